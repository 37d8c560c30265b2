//! A client that submits: each task under an id of its own, repeated until it is known.

use super::client::{Client, Request};
use super::{Phase, QUEUE, Work};
use crate::log::{Answer, Operation, Outcome};
use crate::seed::Seed;
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use uuid::Uuid;

/// The client, and where it notes what was acknowledged.
pub(super) struct Submitter {
    pub client: Client,
    pub seed: Seed,
    pub acknowledged: Arc<Mutex<Vec<Uuid>>>,
}

impl Submitter {
    pub async fn run(mut self, pace: Duration, mut phase: watch::Receiver<Phase>) {
        let mut ticks = tokio::time::interval(pace);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut n = 0;
        while *phase.borrow_and_update() == Phase::Load {
            ticks.tick().await;
            self.submit(n, &phase).await;
            n += 1;
        }
    }

    async fn submit(&mut self, n: usize, phase: &watch::Receiver<Phase>) {
        let task = self.seed.id();
        let work = Work::pick(n, &mut self.seed);
        let payload = work.payload(&mut self.seed);
        let body = json!({
            "queue": QUEUE, "id": task, "payload": payload, "max_retries": work.max_retries(),
        });
        let request = Request::post("/v1/tasks".into(), body);
        // Somebody who is not sure asks again; somebody who is sure may ask again, too.
        let mut repeats = u64::from(self.seed.below(20) == 0);
        let mut pause = Duration::from_millis(20);
        loop {
            let operation = Operation::Submit { task, payload: payload.clone() };
            let read = |duplicate, _: &_| Ok(Answer::Submitted { duplicate });
            match self.client.call(operation, &request, read).await {
                Outcome::Ok(_) if repeats > 0 => repeats -= 1,
                Outcome::Ok(_) => {
                    self.acknowledged.lock().expect("no client panics here").push(task);
                    return;
                }
                Outcome::Failed { status: 429, .. } | Outcome::Unknown { .. } => {
                    if *phase.borrow() != Phase::Load {
                        return;
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_millis(500));
                }
                Outcome::Failed { status, code } => {
                    panic!("a good submit was refused: {status} {code}")
                }
            }
        }
    }
}
