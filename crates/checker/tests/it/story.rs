//! Two stories with real processes: an agent that is killed, waits for a person and goes on; and a
//! task that ends in the poison queue and is resolved by a replay.

use crate::cluster::TestDatabase;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use windlass::client::{Call, Client, Patience};
use windlass_checker::harness::{Folder, Server};

const WORKER: &str = env!("CARGO_BIN_EXE_windlass-story-worker");
const PATIENCE: Duration = Duration::from_secs(60);

struct Worker(Child);

impl Worker {
    fn start(stage: &Stage, hold: bool) -> Worker {
        let mut command = Command::new(WORKER);
        command.arg(stage.server.url()).arg(&stage.effects);
        if hold {
            command.arg("hold");
        }
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        Worker(child.expect("the worker runs"))
    }
}

impl Drop for Worker {
    /// kill -9.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Stage {
    server: Server,
    client: Client,
    effects: PathBuf,
}

impl Stage {
    async fn new(database: &str, folder: &Path) -> Stage {
        let server = Server::start(database, folder).await;
        let client = Client::new(&server.url(), None).unwrap();
        Stage { server, client, effects: folder.join("story.effects") }
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let call = Call::post(path, body);
        self.client.call(&call, Patience::LONG).await.unwrap_or_else(|e| panic!("{path}: {e}")).body
    }

    /// The code of a refusal, and its words.
    async fn refused(&self, path: &str, body: Value) -> (String, String) {
        let call = Call::post(path, body);
        let error = self.client.call(&call, Patience::LONG).await.expect_err(path);
        (error.code().unwrap_or("none").to_owned(), error.to_string())
    }

    async fn get(&self, path: &str) -> Value {
        let call = Call::get(path);
        self.client.call(&call, Patience::LONG).await.unwrap_or_else(|e| panic!("{path}: {e}")).body
    }

    async fn submit(&self, name: &str, payload: Value, more: Value) -> String {
        let mut body = json!({ "queue": "q", "name": name, "payload": payload });
        body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        self.post("/v1/tasks", body).await["id"].as_str().unwrap().to_owned()
    }

    async fn until(&self, task: &str, status: &str) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = self.get(&format!("/v1/tasks/{task}")).await;
            if found["status"] == status {
                return found;
            }
            assert!(Instant::now() < end, "{task} is not {status}: {found:#}");
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    /// What the world saw of a task.
    fn effects(&self, task: &str) -> Vec<String> {
        let text = std::fs::read_to_string(&self.effects).unwrap_or_default();
        let of_task = |line: &str| line.strip_prefix(&format!("{task} ")).map(str::to_owned);
        text.lines().filter_map(of_task).collect()
    }

    async fn until_effect(&self, task: &str, what: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.effects(task).iter().any(|effect| effect == what) {
            assert!(Instant::now() < end, "{task} never did {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn story(&self, task: &str) -> Vec<String> {
        let history = self.get(&format!("/v1/tasks/{task}/history?limit=1000")).await;
        let items = history["items"].as_array().unwrap().iter();
        items.map(|h| h["event"].as_str().unwrap().to_owned()).collect()
    }
}

async fn an_agent_survives(database: &str, folder: &Path) {
    let mut stage = Stage::new(database, folder).await;
    // Killed after its second step.
    let first = Worker::start(&stage, true);
    let task = stage.submit("agent", json!("windlasses"), json!({})).await;
    stage.until_effect(&task, "hold").await;
    drop(first);
    // Another one goes on where it stood, and asks.
    let second = Worker::start(&stage, false);
    let waiting = stage.until(&task, "waiting_for_approval").await;
    assert_eq!(waiting["claimed_by"], Value::Null, "nobody is held while people think");
    assert_eq!(stage.effects(&task), ["read", "plan", "hold", "draft"]);
    // The server is killed meanwhile.
    stage.server.kill();
    stage.server.run().await;
    assert_eq!(stage.until(&task, "waiting_for_approval").await["status"], "waiting_for_approval");
    let open = stage.get(&format!("/v1/approvals?task_id={task}&status=open")).await;
    let approval = &open["items"][0];
    assert_eq!(approval["arguments"], json!({ "topic": "windlasses" }));
    let path = format!("/v1/approvals/{}/approve", approval["id"].as_str().unwrap());
    stage.post(&path, json!({ "comment": "go on", "digest": approval["digest"] })).await;
    stage.until(&task, "completed").await;
    let done = ["read", "plan", "hold", "draft", "publish", "notify", "close"];
    assert_eq!(stage.effects(&task), done);
    let story = stage.story(&task).await;
    let told =
        ["submit", "claim", "lose_lease", "claim", "ask_approval", "approve", "claim", "complete"];
    assert_eq!(story, told, "the history tells the whole story");
    replay_from_the_fourth(&stage, &task).await;
    drop(second);
    stage.server.stop().await;
}

async fn replay_from_the_fourth(stage: &Stage, task: &str) {
    let path = format!("/v1/tasks/{task}/replay");
    let from = json!({ "from": "step", "step": "publish" });
    let with = |more: Value| {
        let mut body = from.clone();
        body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        body
    };
    let plan = stage.post(&path, with(json!({ "dry_run": true }))).await;
    let text = plan.to_string();
    let fates: Vec<_> = plan["steps"]
        .as_array()
        .unwrap_or_else(|| panic!("a plan has steps: {text}"))
        .iter()
        .map(|step| (step["name"].as_str().unwrap(), step["fate"].as_str().unwrap()))
        .collect();
    let wanted = [
        ("read", "reused"),
        ("plan", "reused"),
        ("draft", "reused"),
        ("publish", "refused"),
        ("notify", "rerun"),
        ("close", "rerun"),
    ];
    assert_eq!(fates, wanted);
    let (code, told) = stage.refused(&path, from.clone()).await;
    assert_eq!(code, "not_idempotent");
    assert!(told.contains("publish"), "{told}");
    let allowed = stage.post(&path, with(json!({ "allow_non_idempotent": true }))).await;
    let replay = allowed["id"].as_str().unwrap().to_owned();
    assert_eq!(allowed["replay_of"], task);
    // A replay inherits no approval.
    stage.until(&replay, "waiting_for_approval").await;
    let open = stage.get(&format!("/v1/approvals?task_id={replay}&status=open")).await;
    let id = open["items"][0]["id"].as_str().unwrap();
    stage.post(&format!("/v1/approvals/{id}/approve"), json!({})).await;
    stage.until(&replay, "completed").await;
    assert_eq!(stage.effects(&replay), ["publish", "notify", "close"]);
}

async fn a_poisoned_task_is_resolved(database: &str, folder: &Path) {
    let mut stage = Stage::new(database, folder).await;
    let worker = Worker::start(&stage, false);
    let soon = json!({ "max_retries": 1, "backoff": { "base_ms": 1, "max_ms": 1 } });
    let task = stage.submit("broken", json!(null), soon).await;
    stage.until(&task, "poisoned").await;
    assert_eq!(stage.effects(&task), ["fetch"], "a finished step never runs again");
    let listed = stage.get("/v1/poison").await;
    let entry = &listed["items"][0];
    assert_eq!((&entry["task_id"], &entry["status"]), (&json!(task), &json!("pending")));
    assert_eq!(entry["failure_count"], 2);
    let alerts = stage.get("/v1/alerts").await;
    assert_eq!(alerts["items"][0]["severity"], "critical");
    let path = |what: &str| format!("/v1/poison/{task}/{what}");
    stage.post(&path("assign"), json!({ "assignee": "olga" })).await;
    stage.post(&path("investigate"), json!({ "note": "the other side was down" })).await;
    std::fs::write(stage.effects.with_extension("mended"), "").unwrap();
    let replay = json!({ "from": "last_checkpoint" });
    let note = "it is up again";
    let resolved = stage.post(&path("resolve"), json!({ "note": note, "replay": replay })).await;
    assert_eq!(resolved["status"], "resolved");
    let replay = resolved["resolved_by_task"].as_str().expect("the new task's id").to_owned();
    stage.until(&replay, "completed").await;
    assert_eq!(stage.effects(&replay), ["store"], "what was fetched is taken along");
    assert_eq!(stage.until(&task, "poisoned").await["status"], "poisoned");
    drop(worker);
    stage.server.stop().await;
}

fn sqlite(folder: &Folder) -> String {
    format!("sqlite:{}", folder.path().join("windlass.db").display())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_survives_its_death_and_the_servers_on_sqlite() {
    let folder = Folder::create("story");
    an_agent_survives(&sqlite(&folder), folder.path()).await;
    folder.forget();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_survives_its_death_and_the_servers_on_postgresql() {
    let (folder, database) = (Folder::create("story"), TestDatabase::create());
    an_agent_survives(&database.url(), folder.path()).await;
    folder.forget();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poisoned_task_is_resolved_by_a_replay_on_sqlite() {
    let folder = Folder::create("poison");
    a_poisoned_task_is_resolved(&sqlite(&folder), folder.path()).await;
    folder.forget();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poisoned_task_is_resolved_by_a_replay_on_postgresql() {
    let (folder, database) = (Folder::create("poison"), TestDatabase::create());
    a_poisoned_task_is_resolved(&database.url(), folder.path()).await;
    folder.forget();
}
