//! A small company: one ceo, two vps and ten crew, each a process of its own, on one server.
//!
//! A person tells the ceo to launch. The ceo writes to both vps, each vp to its five crew; the crew
//! work and report to their vp. When all five have reported, the vp delegates a review to a crew
//! member of the other vp and tells the ceo how it went. Meanwhile one crew member is killed with
//! SIGKILL in the middle of its work; it is started again, gets the message that it had in hand
//! once more, and everything finishes.
//!
//! ```sh
//! windlass serve &
//! cargo run -p windlass-server --example company
//! ```
//!
//! Invariant: every handler bears to see a message twice: whatever it sends has an idempotency key.
//! What a vp must remember is what lies in its inbox, so a vp that is started again knows as much.

use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use windlass::client::{Call, Client, Patience};
use windlass::remote::Remote;
use windlass::sdk::{Ctx, Failure, Handlers, Incoming, MessageOptions, Result};
use windlass::worker::WorkerOptions;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Who is killed.
const VICTIM: &str = "crew-3";
/// How long the victim works: long enough to be killed in the middle.
const WORK: Duration = Duration::from_millis(1_500);
/// A silent handler loses its message after this time.
const LEASE: Duration = Duration::from_secs(2);
/// How long all of it may take.
const LIMIT: Duration = Duration::from_secs(60);

/// The five crew of a vp.
fn crew_of(vp: &str) -> Vec<String> {
    let first = if vp == "vp-1" { 1 } else { 6 };
    (first..first + 5).map(|n| format!("crew-{n}")).collect()
}

fn vp_of(crew: &str) -> &'static str {
    if crew_of("vp-1").iter().any(|name| name == crew) { "vp-1" } else { "vp-2" }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let server = std::env::var("WINDLASS_SERVER");
    let server = server.unwrap_or_else(|_| "http://127.0.0.1:7070".to_owned());
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("member"), Some(name)) => work(&server, &name).await,
        _ => company(&server).await,
    }
}

/// The processes of the company; they end with it.
struct Staff(Vec<(String, Child)>);

impl Staff {
    fn hire(&mut self, server: &str, name: &str) -> Result<(), Error> {
        let mut command = Command::new(std::env::current_exe()?);
        let child = command.args(["member", name]).env("WINDLASS_SERVER", server).spawn()?;
        self.0.push((name.to_owned(), child));
        Ok(())
    }

    /// SIGKILL: no goodbye, no last words.
    fn kill(&mut self, name: &str) -> Result<(), Error> {
        for (_, child) in self.0.iter_mut().filter(|(known, _)| known == name) {
            child.kill()?;
            child.wait()?;
        }
        self.0.retain(|(known, _)| known != name);
        Ok(())
    }
}

impl Drop for Staff {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

async fn company(server: &str) -> Result<(), Error> {
    let office = Office { client: Client::new(server, None)? };
    let mut names = vec![("ceo".to_owned(), "ceo", None)];
    for vp in ["vp-1", "vp-2"] {
        names.push((vp.to_owned(), "vp", Some("ceo")));
        names.extend(crew_of(vp).into_iter().map(|name| (name, "crew", Some(vp))));
    }
    let mut staff = Staff(Vec::new());
    for (name, role, parent) in &names {
        let body = json!({ "role": role, "parent": parent });
        office.call(Call::put(format!("/v1/agents/{name}"), body)).await?;
    }
    for (name, _, _) in &names {
        staff.hire(server, name)?;
    }
    // Every run is a launch of its own.
    let launch = format!("launch-{}", uuid::Uuid::now_v7());
    let body = json!({ "to": "ceo", "type": "launch", "correlation_id": launch });
    office.call(Call::post("/v1/messages", body)).await?;
    let begun = Instant::now();
    let mut killed = false;
    loop {
        if begun.elapsed() > LIMIT {
            return Err("the launch did not finish in time".into());
        }
        if !killed && office.count(&launch, VICTIM, "work", "delivered").await? == 1 {
            println!("{VICTIM} works on its message, and is killed");
            staff.kill(VICTIM)?;
            staff.hire(server, VICTIM)?;
            killed = true;
        }
        if office.count(&launch, "ceo", "done", "acknowledged").await? == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    office.tell(&launch, killed).await
}

/// What everybody does in the office.
#[derive(Clone)]
struct Office {
    client: Client,
}

impl Office {
    async fn call(&self, call: Call) -> Result<Json, Error> {
        Ok(self.client.call(&call, Patience::SHORT).await?.body)
    }

    /// Sends a message; the key makes a repetition harmless.
    async fn send(
        &self,
        cause: &Incoming,
        to: &str,
        kind: &str,
        payload: Json,
    ) -> Result<(), Error> {
        let launch = &cause.correlation_id;
        let body = json!({
            "from": cause.to, "to": to, "type": kind, "payload": payload,
            "correlation_id": launch, "idempotency_key": format!("{launch} {kind} {to}"),
        });
        self.call(Call::post("/v1/messages", body)).await.map(drop)
    }

    async fn messages(&self, launch: &str, to: &str, kind: &str) -> Result<Vec<Json>, Error> {
        let call = Call::get("/v1/messages").query("correlation_id", launch).query("to", to);
        let list = self.call(call.query("type", kind).query("limit", 100)).await?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    async fn count(
        &self,
        launch: &str,
        to: &str,
        kind: &str,
        status: &str,
    ) -> Result<usize, Error> {
        let all = self.messages(launch, to, kind).await?;
        Ok(all.iter().filter(|message| message["status"] == status).count())
    }

    /// What came of it.
    async fn tell(&self, launch: &str, killed: bool) -> Result<(), Error> {
        let call = Call::get("/v1/messages").query("correlation_id", launch).query("limit", 1_000);
        let list = self.call(call).await?;
        let all = list["items"].as_array().cloned().unwrap_or_default();
        let of = |kind: &str| all.iter().filter(|message| message["type"] == kind).count();
        let work = self.messages(launch, VICTIM, "work").await?;
        let tries = work.first().map_or(0, |message| message["deliveries"].as_i64().unwrap_or(0));
        let call = Call::get("/v1/delegations").query("correlation_id", launch);
        let list = self.call(call).await?;
        let reviews = list["items"].as_array().cloned().unwrap_or_default();
        let completed = reviews.iter().filter(|task| task["status"] == "completed").count();
        let told = json!({
            "launch": launch, "orders": of("order"), "work": of("work"), "reports": of("report"),
            "done": of("done"), "delegations": reviews.len(), "completed": completed,
            "killed": killed, "deliveries_of_the_victim": tries,
        });
        println!("{told}");
        Ok(())
    }
}

/// One member of the company, in a process of its own.
async fn work(server: &str, name: &str) -> Result<(), Error> {
    let remote = Remote::new(server, None)?;
    let office = Office { client: remote.client().clone() };
    let options = MessageOptions::agent(name).lease(LEASE)?.named(name);
    let mail = office.clone();
    let handlers = remote.handle_messages(options, move |message| {
        let mail = mail.clone();
        async move {
            let handled = match message.to.as_str() {
                "ceo" => ceo(&mail, &message).await,
                "vp-1" | "vp-2" => vp(&mail, &message).await,
                _ => crew(&mail, &message).await,
            };
            handled.map_err(|error| Failure::new("ERROR", error.to_string()))
        }
    });
    // What is delegated to it.
    let review = async |_: Ctx, subject: String| Ok(format!("{subject} is fine"));
    let options = WorkerOptions::queue(name, name, 1);
    let worker = remote.run(options, Handlers::new().on("review", review)).await?;
    worker.done().await;
    handlers.stop().await;
    Ok(())
}

async fn ceo(office: &Office, message: &Incoming) -> Result<(), Error> {
    if message.kind == "launch" {
        for vp in ["vp-1", "vp-2"] {
            office.send(message, vp, "order", json!({ "build": "the product" })).await?;
        }
    }
    Ok(())
}

async fn vp(office: &Office, message: &Incoming) -> Result<(), Error> {
    let (name, launch) = (message.to.as_str(), &message.correlation_id);
    let crew = crew_of(name);
    match message.kind.as_str() {
        "order" => {
            for member in &crew {
                office.send(message, member, "work", message.payload.clone()).await?;
            }
        }
        "report" => {
            let reports = office.messages(launch, name, "report").await?;
            let senders = reports.iter().filter_map(|report| report["from"].as_str());
            if senders.collect::<BTreeSet<_>>().len() < crew.len() {
                return Ok(());
            }
            // Across: somebody else's crew looks at it with fresh eyes.
            let other = if name == "vp-1" { "crew-7" } else { "crew-2" };
            let body = json!({
                "caller": name, "callee": other, "name": "review",
                "payload": format!("the work of {name}"), "correlation_id": launch,
                "idempotency_key": format!("{launch} review"),
            });
            let review = office.call(Call::post("/v1/delegations", body)).await?;
            let id = review["id"].as_str().unwrap_or_default();
            let wait = Duration::from_secs(30);
            let call = Call::get(format!("/v1/tasks/{id}/wait")).patient(wait);
            let reviewed = office.call(call.query("timeout_ms", wait.as_millis())).await?;
            if reviewed["status"] != "completed" {
                return Err(format!("the review is {}", reviewed["status"]).into());
            }
            office.send(message, "ceo", "done", json!({ "review": reviewed["result"] })).await?;
        }
        // The results of delegations come as well; this company has waited for them.
        _ => {}
    }
    Ok(())
}

async fn crew(office: &Office, message: &Incoming) -> Result<(), Error> {
    if message.kind == "work" {
        if message.to == VICTIM {
            tokio::time::sleep(WORK).await;
        }
        let told = json!({ "built": message.payload["build"], "by": message.to });
        office.send(message, vp_of(&message.to), "report", told).await?;
    }
    Ok(())
}
