//! One task from submit to result, in a SQLite file.
//!
//! `cargo run --example lifecycle -- windlass.db` keeps the file, so that you can look inside;
//! without a name it is a temporary one.

use serde_json::json;
use uuid::Uuid;
use windlass::domain::id::{ChangeId, ClaimId, TaskId};
use windlass::domain::profile::Profile;
use windlass::domain::request::SubmitRequest;
use windlass::domain::{json as canonical, validate};
use windlass::store::migration;
use windlass::store::task::{Claim, Finish, Finishing, Tasks};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let kept = std::env::args().nth(1).map(std::path::PathBuf::from);
    let temporary = std::env::temp_dir().join(format!("windlass-{}.db", Uuid::now_v7()));
    let file = kept.as_ref().unwrap_or(&temporary);
    let store = windlass::database::open(&format!("sqlite:{}", file.display()))?;
    migration::up(&store).await?;
    let tasks = Tasks::new(store.clone());

    let request = SubmitRequest {
        queue: Some("mail".into()),
        payload: json!({ "to": "ada", "subject": "tides" }),
        ..SubmitRequest::default()
    };
    let task = validate::new_task(&request, TaskId(Uuid::now_v7()), "", "example")?;
    for outcome in tasks.submit(vec![task]).await {
        println!("submitted {}", outcome?.id);
    }

    let assignments = tasks
        .claim(Claim {
            claim: ClaimId(Uuid::now_v7()),
            may_repeat: false,
            session: "worker-1".into(),
            worker_type: None,
            queues: vec!["mail".into()],
            profiles: vec![Profile::Job],
            serves: Default::default(),
            max: 10,
            lease_ms: None,
            start: true,
        })
        .await?;
    for held in assignments {
        println!("attempt {} of {}: {}", held.attempt, held.task.id, held.task.payload);
        let result = canonical::canonical(&json!({ "sent": true }));
        let finish = Finish {
            task: held.task.id,
            lease: held.lease_id,
            how: Finishing::Complete(Some(result)),
            usage: None,
            actor: "worker-1".into(),
            reason: None,
            change: ChangeId(Uuid::now_v7()),
        };
        for outcome in tasks.finish(vec![finish]).await {
            println!("now {}", outcome?);
        }
        for step in tasks.history(held.task.id, 0, 100).await? {
            println!("  {} {:<10} -> {} by {}", step.at, step.event, step.to_status, step.actor);
        }
    }
    store.close();
    if kept.is_none() {
        std::fs::remove_file(&temporary)?;
        std::fs::remove_file(temporary.with_extension("db.lock"))?;
    }
    Ok(())
}
