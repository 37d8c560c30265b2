//! The deltas of one attempt on their way to the server.
//!
//! Invariant: they arrive in order and each once. Those that come while a post is under way go with
//! the next one, so a slow server costs delay and not a call for each.

use crate::client::{Call, Client, Error, Patience};
use serde_json::{Value, json};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The most deltas of one post.
const MAX_DELTAS: usize = 500;
/// About how many bytes one post may have.
const MAX_BYTES: usize = 1 << 20;
/// How often everything is posted from the beginning before that is given up.
const MAX_REWINDS: u32 = 3;

/// What became of the deltas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// All of them are there, or the server wants no more of them. The result will say all.
    Done,
    /// The task is no longer ours.
    Lost,
}

#[derive(Default)]
struct State {
    /// All of the attempt, with their sizes: a server that was restarted asks for them again.
    all: Vec<(Value, usize)>,
    /// None will be added.
    is_over: bool,
    /// What is not posted yet must not be.
    is_broken: bool,
}

/// The deltas of one attempt.
#[derive(Default)]
pub struct Deltas {
    state: Mutex<State>,
    grown: Notify,
}

impl Deltas {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one that takes so many bytes.
    pub fn add(&self, delta: Value, bytes: usize) {
        self.state().all.push((delta, bytes));
        self.grown.notify_one();
    }

    /// None will come; if the attempt is `broken`, those that wait are not posted any more.
    pub fn end(&self, broken: bool) {
        let mut state = self.state();
        state.is_over = true;
        state.is_broken = broken;
        drop(state);
        self.grown.notify_one();
    }

    /// The next ones to post; none when everything is posted and nothing will come.
    async fn next(&self, posted: usize) -> Option<Vec<Value>> {
        loop {
            {
                let state = self.state();
                if state.is_broken {
                    return None;
                }
                if state.all.len() > posted {
                    let mut bytes = 0;
                    let fits = |(_, size): &&(Value, usize)| {
                        bytes += size;
                        bytes <= MAX_BYTES || bytes == *size
                    };
                    let page = state.all[posted..].iter().take(MAX_DELTAS).take_while(fits);
                    return Some(page.map(|(delta, _)| delta.clone()).collect());
                }
                if state.is_over {
                    return None;
                }
            }
            // One permit is kept, so what is added between the look and here is not missed.
            self.grown.notified().await;
        }
    }

    /// Posts until all are there. Gives how many the server has taken, too.
    pub async fn post(&self, client: &Client, task_id: &str, lease_id: &str) -> (Posted, usize) {
        let (mut posted, mut most, mut rewinds, mut failed) = (0, 0, 0, 0);
        while let Some(page) = self.next(posted).await {
            let count = page.len();
            let body = json!({ "lease_id": lease_id, "offset": posted, "deltas": page });
            let call = Call::post(format!("/v1/tasks/{task_id}/deltas"), body);
            let error = match client.try_call(&call).await {
                Ok(_) => {
                    posted += count;
                    most = most.max(posted);
                    failed = 0;
                    continue;
                }
                Err(error) => error,
            };
            match fate(&error) {
                Fate::Again => {
                    failed += 1;
                    tracing::debug!(task_id, %error, failed, "deltas were not taken; again");
                    let pause = Patience::LONG.pause(failed.min(10), error.retry_after());
                    tokio::time::sleep(pause.unwrap_or(Duration::from_secs(3))).await;
                }
                // What is there already is ignored.
                Fate::Rewind if rewinds < MAX_REWINDS => {
                    rewinds += 1;
                    posted = 0;
                }
                Fate::Lost => return (Posted::Lost, most),
                Fate::Rewind | Fate::Enough => {
                    tracing::warn!(task_id, %error, "the server takes no more deltas");
                    return (Posted::Done, most);
                }
            }
        }
        (Posted::Done, most)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Again,
    Rewind,
    Lost,
    Enough,
}

fn fate(error: &Error) -> Fate {
    match (error.code(), error.status()) {
        (Some("delta_gap"), _) => Fate::Rewind,
        (Some("lease_lost" | "not_found" | "already_finished" | "illegal_transition"), _) => {
            Fate::Lost
        }
        (_, Some(408 | 429)) => Fate::Again,
        (_, Some(status)) if status < 500 => Fate::Enough,
        _ => Fate::Again,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::problem::Problem;

    #[test]
    fn a_refusal_decides_what_becomes_of_the_deltas() {
        for (status, code, expected) in [
            (409, "delta_gap", Fate::Rewind),
            (409, "lease_lost", Fate::Lost),
            (404, "not_found", Fate::Lost),
            (413, "too_large", Fate::Enough),
            (405, "method_not_allowed", Fate::Enough),
            (429, "busy", Fate::Again),
            (503, "unavailable", Fate::Again),
        ] {
            let problem = Problem::read(status, Some(&json!({ "code": code })), None).unwrap();
            assert_eq!(fate(&Error::Problem(Box::new(problem))), expected, "{code}");
        }
    }

    #[tokio::test]
    async fn what_waits_is_taken_at_once_and_within_bounds() {
        let deltas = Deltas::default();
        for index in 0..3 {
            deltas.add(json!(index), if index == 2 { MAX_BYTES } else { 10 });
        }
        assert_eq!(deltas.next(0).await, Some(vec![json!(0), json!(1)]));
        assert_eq!(deltas.next(2).await, Some(vec![json!(2)]));
        deltas.end(false);
        assert_eq!(deltas.next(3).await, None);
        assert_eq!(deltas.next(2).await, Some(vec![json!(2)]));
        deltas.end(true);
        assert_eq!(deltas.next(2).await, None);
    }
}
