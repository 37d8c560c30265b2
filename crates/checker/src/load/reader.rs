//! Clients that read: they look at acknowledged tasks at random while things break, and wait for
//! all of them at the end.

use super::Phase;
use super::client::{Client, Request};
use crate::log::{Answer, Log, Operation, Outcome};
use crate::seed::Seed;
use serde_json::Value;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;
use windlass_domain::state::State;

/// How many tasks are waited for at once.
const WAITERS: usize = 16;
/// How long the server is asked to wait for one.
const WAIT: Duration = Duration::from_secs(2);

/// Reads one acknowledged task after the other, until the run is over.
pub(super) async fn look_around(
    mut client: Client,
    mut seed: Seed,
    ids: Arc<Mutex<Vec<Uuid>>>,
    mut phase: watch::Receiver<Phase>,
) {
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while *phase.borrow_and_update() != Phase::Over {
        ticks.tick().await;
        let mut pick =
            |known: &Vec<Uuid>| known.get(seed.below(known.len().max(1) as u64) as usize).copied();
        let picked = pick(&ids.lock().expect("no client panics here"));
        if let Some(task) = picked {
            show(&mut client, task, Request::get(format!("/v1/tasks/{task}"))).await;
        }
    }
}

/// Waits until all tasks have ended, `bound` at most; gives the number of those that had not.
pub(super) async fn wait_for_all(
    nodes: &[String],
    log: &Arc<Log>,
    ids: Vec<Uuid>,
    bound: Duration,
) -> usize {
    let end = Instant::now() + bound;
    let ids = Arc::new(Mutex::new(ids));
    let mut waiters = JoinSet::new();
    for n in 0..WAITERS {
        let mut client = Client::new(&format!("waiter-{n}"), nodes.to_vec(), n, Arc::clone(log));
        let ids = Arc::clone(&ids);
        waiters.spawn(async move {
            let mut left = 0;
            loop {
                let next = ids.lock().expect("no waiter panics here").pop();
                let Some(task) = next else {
                    return left;
                };
                left += usize::from(!wait_for(&mut client, task, end).await);
            }
        });
    }
    waiters.join_all().await.into_iter().sum()
}

async fn wait_for(client: &mut Client, task: Uuid, end: Instant) -> bool {
    let path = format!("/v1/tasks/{task}/wait?timeout_ms={}", WAIT.as_millis());
    let request = Request::get(path).waiting(WAIT);
    loop {
        match show(client, task, request.clone()).await {
            Outcome::Ok(Answer::Shown { status, .. }) if status.is_terminal() => return true,
            // Asking again gives no other answer: the checker will say that it is gone.
            Outcome::Failed { status: 404, .. } => return false,
            Outcome::Ok(_) => {}
            Outcome::Failed { .. } | Outcome::Unknown { .. } => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        if Instant::now() > end {
            return false;
        }
    }
}

async fn show(client: &mut Client, task: Uuid, request: Request) -> Outcome {
    let read = |_, body: &Value| {
        let status: State = serde_json::from_value(body["status"].clone())
            .unwrap_or_else(|error| panic!("a task without status ({error}): {body}"));
        let result = Some(body["result"].clone()).filter(|result| !result.is_null());
        Ok(Answer::Shown { status, result })
    };
    client.call(Operation::Show { task }, &request, read).await
}
