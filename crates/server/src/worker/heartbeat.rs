//! Heartbeats: one call for all leases, half of the lease apart.
//!
//! Invariant: a beat never fails a task. Only the server's word does: cancelled, or lost. While it
//! is silent, children go on; the lease decides whether their result counts.

use super::child::Stop;
use super::session::{self, Session};
use super::{Assignment, Shared, begin};
use crate::client::{Call, Error, Patience};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The most leases in one call.
const MAX_LEASES: usize = 1_000;
/// How long after a failed beat the next one follows, at most.
const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// Beats until the worker ends.
pub async fn run(shared: Arc<Shared>) {
    let mut failed = 0;
    loop {
        let Some(session) = shared.sessions.current() else {
            // Nobody has registered yet, or the session was forgotten. The claimer registers when
            // it claims; while all slots are taken, or none will be, the leases need it too.
            if shared.hold.len() > 0 {
                let _ = shared.sessions.get(&shared).await;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        match beat(&shared, &session).await {
            Ok(()) => {
                failed = 0;
                tokio::time::sleep(session.beat).await;
            }
            Err(error) if session::is_gone(&error) => shared.sessions.forget(&session.id),
            Err(error) => {
                failed += 1;
                tracing::warn!(%error, failed, "a heartbeat was not answered");
                let pause = Patience::ENDLESS.pause(failed, error.retry_after());
                let pause = pause.unwrap_or(AFTER_FAILURE);
                tokio::time::sleep(pause.min(AFTER_FAILURE).min(session.beat)).await;
            }
        }
    }
}

async fn beat(shared: &Arc<Shared>, session: &Session) -> Result<(), Error> {
    let leases = shared.hold.leases();
    let mut unnamed = Vec::new();
    let mut chunks: Vec<&[(String, String)]> = leases.chunks(MAX_LEASES).collect();
    if chunks.is_empty() {
        chunks.push(&[]);
    }
    for named in chunks {
        let items: Vec<Value> = named
            .iter()
            .map(|(task_id, lease_id)| json!({ "task_id": task_id, "lease_id": lease_id }))
            .collect();
        let path = format!("/v1/sessions/{}/heartbeat", session.id);
        let answer = shared.client.try_call(&Call::post(path, json!({ "leases": items }))).await?;
        for list in ["cancelled", "lost"] {
            for item in answer.body[list].as_array().into_iter().flatten() {
                for (task_id, lease_id) in named.iter().filter(|lease| is_meant(item, lease)) {
                    if shared.hold.stop(lease_id, Stop::Drop) {
                        tracing::warn!(task_id, "the task is {list}; ending its command");
                    }
                }
            }
        }
        unnamed.extend(Assignment::read_all(&answer.body["unnamed"]));
    }
    // Held by the server's books, but not named by us: the answer of a claim was lost. One that
    // is named by another chunk of this beat, or has come meanwhile, is known already.
    for assignment in unnamed {
        begin(shared, assignment).await;
    }
    Ok(())
}

/// Whether an item of the answer means this lease. A task may be held under two leases for a
/// moment; the lease says which.
fn is_meant(item: &Value, (_, lease_id): &(String, String)) -> bool {
    item["lease_id"].as_str() == Some(lease_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_meant_by_itself_and_not_by_its_task() {
        let lease = ("t".to_owned(), "l".to_owned());
        for (item, expected) in [
            (json!("t"), false),
            (json!({ "task_id": "t" }), false),
            (json!({ "task_id": "t", "lease_id": "l" }), true),
            (json!({ "task_id": "t", "lease_id": "older" }), false),
            (json!("x"), false),
            (json!(1), false),
        ] {
            assert_eq!(is_meant(&item, &lease), expected, "{item}");
        }
    }
}
