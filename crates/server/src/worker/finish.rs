//! Telling the server how attempts ended, many in one call, until it has answered.
//!
//! Invariant: a result is not forgotten before the server has taken it or refused it for good. The
//! call may be repeated: the same lease with the same content is answered like the first time.

use super::Shared;
use super::outcome::{INVALID_OUTPUT, Outcome};
use super::session;
use crate::client::{Call, Error, Patience};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// The most items in one call.
const MAX_ITEMS: usize = 100;
/// About how many bytes one call may have; the server takes 8 MiB.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// The longest message of a failure that is told in other words.
const MAX_MESSAGE: usize = 1_000;

/// The end of one attempt.
pub struct Item {
    task_id: String,
    lease_id: String,
    body: Value,
    bytes: usize,
    run: Option<Run>,
}

/// What is logged of a command that ran.
#[derive(Default)]
pub struct Run {
    /// Of its task, if it has one.
    pub correlation_id: Option<String>,
    /// From start to end.
    pub took_ms: u64,
}

impl Item {
    /// Says what has become of the task, once the server has taken it.
    fn log(&self) {
        let Some(Run { correlation_id, took_ms }) = &self.run else { return };
        let task_id = &self.task_id;
        match self.body["outcome"].as_str() {
            Some("complete") => tracing::info!(task_id, correlation_id, took_ms, "completed"),
            Some("fail") => {
                let code = self.body["error"]["code"].as_str().unwrap_or_default();
                let message = self.body["error"]["message"].as_str().unwrap_or_default();
                tracing::warn!(task_id, correlation_id, took_ms, code, "failed: {message}");
            }
            _ => tracing::info!(task_id, correlation_id, took_ms, "given back"),
        }
    }
}

/// Hands over the end of an attempt. A dropped one ends here: nobody wants to hear of it.
pub async fn send(
    shared: &Shared,
    task_id: &str,
    lease_id: &str,
    outcome: Outcome,
    run: Option<Run>,
) {
    let Some(body) = outcome.item(task_id, lease_id) else {
        shared.hold.end(lease_id);
        return;
    };
    let bytes = body.to_string().len();
    let (task_id, lease_id) = (task_id.to_owned(), lease_id.to_owned());
    // The receiver lives as long as the worker.
    let _ = shared.finished.send(Item { task_id, lease_id, body, bytes, run }).await;
}

/// Sends what comes, as many at once as are there.
pub async fn run(shared: Arc<Shared>, mut items: mpsc::Receiver<Item>) {
    let mut next = None;
    loop {
        let first = match next.take() {
            Some(item) => item,
            None => match items.recv().await {
                Some(item) => item,
                None => return,
            },
        };
        let mut bytes = first.bytes;
        let mut batch = vec![first];
        while batch.len() < MAX_ITEMS {
            let Ok(item) = items.try_recv() else { break };
            if bytes + item.bytes > MAX_BYTES {
                next = Some(item);
                break;
            }
            bytes += item.bytes;
            batch.push(item);
        }
        deliver(&shared, batch).await;
    }
}

/// Delivers a batch. If the server refuses it as a whole, each item is sent alone, so that one
/// bad item does not cost the others their results.
async fn deliver(shared: &Arc<Shared>, batch: Vec<Item>) {
    match call(shared, &batch).await {
        Ok(results) => settle(shared, batch, &results).await,
        Err(error) if batch.len() == 1 => {
            for item in batch {
                refused(shared, item, error.code().unwrap_or("refused"), &error.to_string()).await;
            }
        }
        Err(_) => {
            for item in batch {
                Box::pin(deliver(shared, vec![item])).await;
            }
        }
    }
}

async fn settle(shared: &Arc<Shared>, batch: Vec<Item>, results: &[Value]) {
    let mut again = Vec::new();
    for (i, item) in batch.into_iter().enumerate() {
        let error = results.get(i).and_then(|result| result.get("error"));
        match error.filter(|error| !error.is_null()) {
            None => {
                item.log();
                shared.hold.end(&item.lease_id);
            }
            // The database did not answer for this one: it may next time.
            Some(error) if error["status"].as_u64().is_some_and(|s| s >= 500 || s == 429) => {
                again.push(item);
            }
            Some(error) => {
                let code = error["code"].as_str().unwrap_or("refused");
                let detail = error["detail"].as_str().unwrap_or_default();
                refused(shared, item, code, detail).await;
            }
        }
    }
    if !again.is_empty() {
        tracing::warn!(count = again.len(), "some results were not stored; trying again");
        tokio::time::sleep(Duration::from_secs(1)).await;
        Box::pin(deliver(shared, again)).await;
    }
}

/// The server will not have this end. A result that breaks a rule becomes a failure that says
/// so, a failure is told again without its detail; anything else is over.
async fn refused(shared: &Arc<Shared>, item: Item, refusal: &str, detail: &str) {
    let Item { task_id, lease_id, body, run, .. } = item;
    let is_rule = ["validation_failed", "invalid_json", "too_large", "payload_too_large", "data"];
    let outcome = is_rule.contains(&refusal).then(|| instead(&body, refusal, detail)).flatten();
    if let Some(body) = outcome.and_then(|outcome| outcome.item(&task_id, &lease_id)) {
        tracing::warn!(task_id, refusal, "what became of it was refused: {detail}");
        let again = Item { task_id, lease_id, bytes: 0, body, run };
        Box::pin(deliver(shared, vec![again])).await;
        return;
    }
    shared.hold.end(&lease_id);
    if ["lease_lost", "already_finished"].contains(&refusal) {
        // A command may have parked its task, or asked for an approval, before it ended.
        let call = Call::get(format!("/v1/tasks/{task_id}"));
        let status = shared.client.try_call(&call).await.ok();
        let status = status.and_then(|task| task.body["status"].as_str().map(str::to_owned));
        if let Some(status @ ("waiting" | "waiting_for_approval")) = status.as_deref() {
            let Run { correlation_id, took_ms } = run.unwrap_or_default();
            let said = body["error"]["message"].as_str().unwrap_or_default();
            tracing::info!(
                task_id,
                correlation_id,
                took_ms,
                status,
                said,
                "the task waits; what its command said is not needed"
            );
            return;
        }
    }
    tracing::warn!(task_id, refusal, "the outcome was not taken: {detail}");
}

/// What is told instead of an end that breaks a rule. An end that is never taken would let the
/// server give the task to us again, for the same end.
fn instead(body: &Value, refusal: &str, detail: &str) -> Option<Outcome> {
    let error = &body["error"];
    if body["outcome"] == "release" || !error.is_null() && error["detail"].is_null() {
        return None;
    }
    if error.is_null() {
        let message = format!("the server refused the result: {detail}");
        return Some(Outcome::fail(INVALID_OUTPUT, message, &[], json!({ "refused": refusal })));
    }
    let message = error["message"].as_str().unwrap_or_default();
    let message: String = message.replace('\0', "\u{fffd}").chars().take(MAX_MESSAGE).collect();
    let error = json!({ "code": error["code"], "message": message });
    Some(Outcome::Fail { error, retry_after_ms: body["retry_after_ms"].as_u64() })
}

/// Calls until there is an answer that is not temporary.
async fn call(shared: &Arc<Shared>, batch: &[Item]) -> Result<Vec<Value>, Error> {
    let items: Vec<&Value> = batch.iter().map(|item| &item.body).collect();
    let body = json!({ "items": items });
    let mut tried = 0;
    loop {
        let session = shared.sessions.get(shared).await?;
        let call = Call::post(format!("/v1/sessions/{}/finish", session.id), body.clone());
        let error = match shared.client.try_call(&call).await {
            Ok(answer) => {
                return Ok(answer.body["results"].as_array().cloned().unwrap_or_default());
            }
            Err(error) => error,
        };
        tried += 1;
        if session::is_gone(&error) {
            shared.sessions.forget(&session.id);
        } else if !is_worth_repeating(&error) {
            return Err(error);
        }
        if tried == 1 {
            tracing::warn!(%error, "results were not taken; trying again until they are");
        }
        let pause = Patience::ENDLESS.pause(tried, error.retry_after());
        tokio::time::sleep(pause.unwrap_or(Duration::from_secs(1))).await;
    }
}

/// A result is worth more patience than a request: every trouble on the server's side may pass,
/// and so may a full disk and a key that is being changed.
fn is_worth_repeating(error: &Error) -> bool {
    match error.status() {
        None => true,
        Some(status) => status >= 500 || [401, 403, 408, 429].contains(&status),
    }
}
