//! The demo of an agent: steps, a gate, a crash and a resume, with real processes.
//!
//! Invariant: what is said at the end is counted from what the agent did to the world (a file) and
//! from what the server recorded.

use super::{Ended, Stage, in_a_folder, serve, spawn};
use crate::client::{Call, Client};
use crate::print;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};
use windlass::remote::Remote;
use windlass::sdk::{Ctx, Handlers, Result as Done};
use windlass::worker::WorkerOptions;

const QUEUE: &str = "agents";
const LEASE_MS: i64 = 2_000;
/// How long each step pretends to think.
const THINKING: Duration = Duration::from_millis(900);
const PATIENCE: Duration = Duration::from_secs(60);
const STEPS: [&str; 6] = ["research", "outline", "draft", "publish", "announce", "file"];

/// What came of it.
pub struct Summary {
    status: String,
    /// Each step, and how often it happened in the world.
    effects: Vec<(&'static str, usize)>,
    history: Vec<(String, String)>,
    seconds: f64,
}

impl Summary {
    /// Whether the agent finished, and did everything once.
    pub fn holds(&self) -> bool {
        self.status == "completed" && self.effects.iter().all(|(_, count)| *count == 1)
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let effects: Value = self.effects.iter().map(|(name, n)| (*name, json!(n))).collect();
        let events: Vec<_> = self.history.iter().map(|(event, _)| event).collect();
        json!({ "status": self.status, "effects": effects, "history": events,
                "seconds": self.seconds })
    }

    /// For people.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![String::new(), "  what the history tells".to_owned()];
        lines.extend(self.history.iter().map(|(event, told)| format!("    {event:<14}{told}")));
        lines.extend([String::new(), "  how often each step happened".to_owned()]);
        lines.extend(self.effects.iter().map(|(name, n)| format!("    {name:<14}{n}")));
        lines.push(String::new());
        lines.push(format!(
            "The agent is {}: its worker and the server were killed; {:.0} seconds in all.",
            self.status, self.seconds
        ));
        lines
    }
}

/// The agent itself: a worker of the Rust SDK, as a process of its own.
pub async fn work(server: &str, effects: PathBuf) -> Result<(), String> {
    let effects = Arc::new(effects);
    let handlers = Handlers::new().on("report", move |ctx: Ctx, topic: String| {
        let effects = Arc::clone(&effects);
        async move { report(ctx, topic, &effects).await }
    });
    let options =
        WorkerOptions { lease_ms: Some(LEASE_MS), ..WorkerOptions::queue("agent", QUEUE, 1) };
    let remote = Remote::new(server, None).map_err(|e| e.to_string())?;
    remote.run(options, handlers).await.map_err(|e| e.to_string())?.done().await;
    Ok(())
}

async fn report(ctx: Ctx, topic: String, effects: &Path) -> Done<String> {
    let happens = |name: &'static str| async move {
        tokio::time::sleep(THINKING).await;
        let mut file = std::fs::File::options().create(true).append(true).open(effects)?;
        writeln!(file, "{name}")?;
        file.sync_data()?;
        Ok(name.to_owned())
    };
    for name in &STEPS[..3] {
        ctx.step(*name, || happens(name)).await?;
    }
    ctx.approve("publish", "publish the report", &json!({ "topic": topic })).await?;
    ctx.step(STEPS[3], || happens(STEPS[3])).once().await?;
    for name in &STEPS[4..] {
        ctx.step(*name, || happens(name)).await?;
    }
    Ok(format!("a report about {topic}"))
}

/// Runs the demo.
pub async fn run(quiet: bool) -> Result<Summary, Ended> {
    in_a_folder(async |folder| play(quiet, folder).await).await
}

async fn play(quiet: bool, folder: &Path) -> Result<Summary, Ended> {
    let binary = std::env::current_exe().map_err(|e| e.to_string())?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
    let listen = listener.local_addr().map_err(|e| e.to_string())?.to_string();
    drop(listener);
    let database = format!("sqlite:{}", folder.join("windlass.db").display());
    let client = Client::new(&format!("http://{listen}"), None).map_err(|e| e.to_string())?;
    let server = serve(&binary, &database, &listen)?;
    let started = Instant::now();
    let workers = Vec::new();
    let mut stage = Stage { binary, database, listen, quiet, server, workers, client, started };
    stage.ready().await?;
    let effects = folder.join("effects");
    let mut agent = stage.hire_agent(&effects)?;
    let body = json!({ "queue": QUEUE, "name": "report", "payload": "windlasses" });
    let task = stage.call(Call::post("/v1/tasks", body)).await?;
    let id = task["id"].as_str().unwrap_or_default().to_owned();
    stage.say("an agent is asked for a report: six steps, and a person before the fourth")?;
    stage.until_steps(&id, 2).await?;
    let _ = agent.kill().await;
    stage.say("the agent's worker is killed after the second step")?;
    agent = stage.hire_agent(&effects)?;
    stage.say("another worker begins; it takes over when the lease has run out")?;
    stage.until_status(&id, "waiting_for_approval").await?;
    let path = format!("/v1/approvals?task_id={id}&status=open");
    let open = stage.call(Call::get(path)).await?["items"][0].clone();
    stage.say(&format!(
        "it asks: may it {} with {}? No worker waits for the answer",
        open["display"]["action"].as_str().unwrap_or("go on"),
        open["display"]["arguments"].as_str().unwrap_or("these arguments")
    ))?;
    let _ = stage.server.kill().await;
    stage.say("the server is killed, and started again")?;
    stage.server = serve(&stage.binary, &stage.database, &stage.listen)?;
    stage.ready().await?;
    let approval = open["id"].as_str().unwrap_or_default();
    let yes = json!({ "comment": "go on", "digest": open["digest"] });
    stage.call(Call::post(format!("/v1/approvals/{approval}/approve"), yes)).await?;
    stage.say("the question is still there; a person says yes")?;
    let status = stage.until_end(&id).await?;
    let summary = stage.tell(&id, status, &effects).await?;
    let _ = agent.kill().await;
    stage.clear().await;
    Ok(summary)
}

impl Stage {
    fn hire_agent(&self, effects: &Path) -> Result<Child, Ended> {
        let mut command = Command::new(&self.binary);
        command.args(["demo", "--agent", "--work-for", &format!("http://{}", self.listen)]);
        command.arg("--effects").arg(effects);
        spawn(command)
    }

    /// Waits until so many steps are done; each is told as it comes.
    async fn until_steps(&self, id: &str, wanted: usize) -> Result<(), Ended> {
        let until = Instant::now() + PATIENCE;
        let mut told = 0;
        while told < wanted {
            let steps = self.call(Call::get(format!("/v1/tasks/{id}/steps"))).await?;
            let done = steps["items"].as_array().cloned().unwrap_or_default();
            for step in done.iter().skip(told) {
                self.say(&format!("  step done: {}", step["name"].as_str().unwrap_or_default()))?;
            }
            told = told.max(done.len());
            if Instant::now() > until {
                return Err(format!("only {told} steps were done in time").into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    async fn until_status(&self, id: &str, wanted: &str) -> Result<(), Ended> {
        let until = Instant::now() + PATIENCE;
        loop {
            let task = self.call(Call::get(format!("/v1/tasks/{id}"))).await?;
            if task["status"] == wanted {
                return Ok(());
            }
            if Instant::now() > until || !task["finished_at"].is_null() {
                return Err(format!("the agent is {}, not {wanted}", task["status"]).into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn until_end(&self, id: &str) -> Result<String, Ended> {
        let path = format!("/v1/tasks/{id}/wait");
        let ms = PATIENCE.as_millis();
        let call = Call::get(path).query("timeout_ms", ms).patient(PATIENCE);
        let task = self.call(call).await?;
        Ok(task["status"].as_str().unwrap_or_default().to_owned())
    }

    async fn tell(&self, id: &str, status: String, effects: &Path) -> Result<Summary, Ended> {
        let text = std::fs::read_to_string(effects).unwrap_or_default();
        let count = |name: &str| text.lines().filter(|line| *line == name).count();
        let history = self.call(Call::get(format!("/v1/tasks/{id}/history?limit=100"))).await?;
        let items = history["items"].as_array().cloned().unwrap_or_default();
        let entry = |entry: &Value| {
            let text = |name: &str| print::safe(entry[name].as_str().unwrap_or("")).into_owned();
            (text("event"), format!("{:<22} by {}", text("to_status"), text("actor")))
        };
        Ok(Summary {
            status,
            effects: STEPS.iter().map(|name| (*name, count(name))).collect(),
            history: items.iter().map(entry).collect(),
            seconds: self.started.elapsed().as_secs_f64(),
        })
    }
}
