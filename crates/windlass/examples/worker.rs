//! A worker in process: submit a task, run it, wait for its result. No server is needed.
//!
//! `cargo run --example worker -- windlass.db` keeps the file; without a name it is temporary.

use serde_json::json;
use std::time::Duration;
use uuid::Uuid;
use windlass::domain::id::TaskId;
use windlass::domain::request::SubmitRequest;
use windlass::domain::validate;
use windlass::store::migration;
use windlass::worker::WorkerOptions;
use windlass::{Engine, Options};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let kept = std::env::args().nth(1).map(std::path::PathBuf::from);
    let temporary = std::env::temp_dir().join(format!("windlass-{}.db", Uuid::now_v7()));
    let file = kept.as_ref().unwrap_or(&temporary);
    let store = windlass::database::open(&format!("sqlite:{}", file.display()))?;
    migration::up(&store).await?;
    let engine = Engine::start(store, Options::default()).await?;

    let worker = engine.work(WorkerOptions::queue("mailer", "mail", 4), |assignment| async move {
        println!("attempt {} of {}", assignment.attempt, assignment.task.id);
        Ok(json!({ "sent_to": assignment.task.payload["to"] }))
    });
    let worker = worker.await?;

    let request = SubmitRequest {
        queue: Some("mail".into()),
        payload: json!({ "to": "ada" }),
        ..SubmitRequest::default()
    };
    let task = validate::new_task(&request, TaskId(Uuid::now_v7()), "", "example")?;
    let id = task.id;
    for outcome in engine.submit(vec![task]).await {
        println!("submitted {}", outcome?.id);
    }
    let waited = engine.wait_for(id, Duration::from_secs(10)).await?;
    println!("result {}", waited.result()?);

    worker.stop().await;
    engine.shutdown(Duration::from_secs(5)).await;
    if kept.is_none() {
        for suffix in ["", "-wal", "-shm", ".lock"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
        }
    }
    Ok(())
}
