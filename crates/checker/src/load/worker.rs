//! A worker: one session that claims by long polls, beats, has effects and finishes.
//!
//! Invariant: an effect is in the ledger, synced, before its result is sent, and a result is sent
//! again with the same lease and content until the worker knows what became of it.
//! Absent: obedience. A worker that is told that its lease is lost finishes all the same, because
//! the server must refuse it, not the worker.

use super::client::{Client, Request};
use super::{Phase, Work};
use crate::check::SLACK_MS;
use crate::ledger::{self, Ledger};
use crate::log::{Answer, Ending, Handed, Held, Log, Operation, Outcome, Renewed, now_ms};
use crate::seed::Seed;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use uuid::Uuid;
use windlass_domain::state::State;
use windlass_domain::time::Timestamp;

/// What one worker is told; also the argument of the worker process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerPlan {
    /// The nodes' base URLs.
    pub nodes: Vec<String>,
    /// Where its log and ledger go, if it is a process of its own.
    pub folder: PathBuf,
    /// Its name.
    pub name: String,
    /// What decides everything that is left to chance.
    pub seed: u64,
    /// What it works on.
    pub queue: String,
    /// How long its leases last.
    pub lease_ms: i64,
    /// How many tasks it holds at once.
    pub slots: usize,
}

/// How long a claim waits for work.
const CLAIM_WAIT: Duration = Duration::from_millis(1_000);

/// Works until the run is over.
pub async fn work(
    plan: WorkerPlan,
    log: Arc<Log>,
    ledger: Arc<Ledger>,
    phase: watch::Receiver<Phase>,
) {
    let mut seed = Seed::new(plan.seed).of(&plan.name);
    let at = seed.below(plan.nodes.len() as u64) as usize;
    let client = Client::new(&plan.name, plan.nodes.clone(), at, log);
    // Half of the workers start what they claim at once, the others by their first heartbeat.
    let start = seed.below(2) == 0;
    let slots = Arc::new(Semaphore::new(plan.slots));
    let (holding, session) = (Mutex::default(), Mutex::new(Uuid::nil()));
    let worker = Arc::new(Worker { plan, client, ledger, phase, start, slots, holding, session });
    let mut phase = worker.phase.clone();
    let mut parts = JoinSet::new();
    worker.register(&mut seed).await;
    parts.spawn(Arc::clone(&worker).beat());
    parts.spawn(Arc::clone(&worker).claim(seed));
    let _ = phase.wait_for(|phase| *phase == Phase::Over).await;
    while let Some(part) = parts.join_next().await {
        part.expect("no part of a worker panics");
    }
}

struct Worker {
    plan: WorkerPlan,
    client: Client,
    ledger: Arc<Ledger>,
    phase: watch::Receiver<Phase>,
    start: bool,
    slots: Arc<Semaphore>,
    holding: Mutex<Holding>,
    session: Mutex<Uuid>,
}

#[derive(Default)]
struct Holding {
    /// Every lease it ever heard of: nothing is worked on twice under one lease.
    known: BTreeSet<Uuid>,
    /// What its heartbeats name.
    beaten: BTreeMap<Uuid, Held>,
}

impl Worker {
    fn is_over(&self) -> bool {
        *self.phase.borrow() == Phase::Over
    }

    fn session(&self) -> Uuid {
        *self.session.lock().expect("no worker panics here")
    }

    fn holding(&self) -> std::sync::MutexGuard<'_, Holding> {
        self.holding.lock().expect("no worker panics here")
    }

    /// Gets a session, under an id of its own so that the call can be repeated.
    async fn register(&self, seed: &mut Seed) {
        let id = seed.id();
        let mut client = self.client.clone();
        let body = json!({
            "id": id, "name": self.plan.name, "queues": [self.plan.queue],
            "slots": self.plan.slots, "lease_ms": self.plan.lease_ms,
        });
        let request = Request::post("/v1/sessions".into(), body);
        while !self.is_over() {
            match client.send(&request).await {
                super::client::Reply::Done(..) => break,
                super::client::Reply::Refused(status, code) => {
                    panic!("a session was refused: {status} {code}")
                }
                super::client::Reply::Unknown(_) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        *self.session.lock().expect("no worker panics here") = id;
    }

    async fn claim(self: Arc<Self>, mut seed: Seed) {
        let mut client = self.client.clone();
        let mut handlers = JoinSet::new();
        while !self.is_over() {
            let free = Arc::clone(&self.slots).acquire_owned().await.expect("nobody closes it");
            let max = self.slots.available_permits() + 1;
            drop(free);
            let claim = seed.id();
            let mut outcome;
            loop {
                let session = self.session();
                let body = json!({
                    "max": max, "wait_ms": CLAIM_WAIT.as_millis() as u64,
                    "start": self.start, "claim_id": claim,
                });
                let path = format!("/v1/sessions/{session}/claim");
                let request = Request::post(path, body).waiting(CLAIM_WAIT);
                let mut assignments = Vec::new();
                let read = |_, body: &Value| {
                    assignments = list(&body["assignments"]).to_vec();
                    Ok(Answer::Claimed(all_handed(&body["assignments"])))
                };
                outcome = client.call(Operation::Claim { session, claim }, &request, read).await;
                for assignment in &assignments {
                    self.take(assignment, &mut handlers).await;
                }
                match &outcome {
                    Outcome::Unknown { .. } if !self.is_over() => {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                    _ => break,
                }
            }
            if let Outcome::Failed { status, code } = outcome {
                match status {
                    404 | 409 | 410 => self.register(&mut seed).await,
                    429 => tokio::time::sleep(Duration::from_millis(100)).await,
                    _ => panic!("a claim was refused: {status} {code}"),
                }
            }
        }
        handlers.shutdown().await;
    }

    /// Begins to work on an assignment, unless it is known already.
    async fn take(self: &Arc<Self>, assignment: &Value, handlers: &mut JoinSet<()>) {
        let handed = handed(assignment);
        if !self.holding().known.insert(handed.held.lease) {
            return;
        }
        let work = Work::of_payload(&assignment["task"]["payload"]);
        let is_first = handed.attempt == 1;
        let is_silent = match work {
            Work::Late | Work::Vanish => is_first,
            Work::Pill => handed.attempt % 2 == 1,
            _ => false,
        };
        if !is_silent {
            self.holding().beaten.insert(handed.held.lease, handed.held);
        }
        let permit = Arc::clone(&self.slots).acquire_owned().await.expect("nobody closes it");
        handlers.spawn(Arc::clone(self).handle(handed, work, is_silent, permit));
        // Those that are done need not be remembered.
        while handlers.try_join_next().is_some() {}
    }

    async fn handle(
        self: Arc<Self>,
        handed: Handed,
        work: Work,
        is_silent: bool,
        permit: OwnedSemaphorePermit,
    ) {
        let Handed { held, attempt } = handed;
        let session = self.session();
        self.note(ledger::Phase::Begun, held, attempt).await;
        let lease = Duration::from_millis(self.plan.lease_ms.unsigned_abs());
        if is_silent && work != Work::Late {
            return;
        }
        if is_silent {
            // Back from the dead, it beats as if nothing had been.
            tokio::time::sleep(lease * 2).await;
            self.holding().beaten.insert(held.lease, held);
        }
        let effect = match work {
            Work::Slow => lease * 3 / 2,
            Work::Late if is_silent => lease / 2,
            // Long enough that the zombie meets it.
            Work::Late => lease * 2,
            _ => Duration::from_millis(u64::from(held.lease.as_bytes()[15]) % 20),
        };
        tokio::time::sleep(effect).await;
        let is_failure = work == Work::Pill || (work == Work::Flaky && attempt == 1);
        if is_failure {
            let error = json!({ "code": "SERVICE_UNAVAILABLE", "message": "on purpose" });
            self.finish(session, held, Ending::Fail, error).await;
        } else {
            self.note(ledger::Phase::Ended, held, attempt).await;
            let result = json!({ "worker": self.plan.name, "lease": held.lease });
            self.finish(session, held, Ending::Complete, result).await;
        }
        self.holding().beaten.remove(&held.lease);
        drop(permit);
    }

    async fn note(&self, phase: ledger::Phase, held: Held, attempt: i32) {
        let ledger = Arc::clone(&self.ledger);
        let noted = tokio::task::spawn_blocking(move || ledger.note(phase, held, attempt)).await;
        noted.expect("the ledger does not panic");
    }

    async fn finish(&self, session: Uuid, held: Held, ending: Ending, content: Value) {
        let mut client = self.client.clone();
        let mut item = json!({ "task_id": held.task, "lease_id": held.lease, "outcome": ending });
        match ending {
            Ending::Complete => item["result"] = content.clone(),
            Ending::Fail => {
                item["error"] = content.clone();
                item["retry_after_ms"] = 100.into();
            }
            Ending::Release => {}
        }
        let path = format!("/v1/sessions/{session}/finish");
        let request = Request::post(path, json!({ "items": [item] }));
        let mut pause = Duration::from_millis(20);
        loop {
            let content = content.clone();
            let operation = Operation::Finish { session, held, ending, content };
            match client.call(operation, &request, |_, body| finished(body)).await {
                Outcome::Failed { status: 429, .. } | Outcome::Unknown { .. }
                    if !self.is_over() =>
                {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_millis(500));
                }
                _ => return,
            }
        }
    }

    async fn beat(self: Arc<Self>) {
        let mut client = self.client.clone();
        let mut handlers = JoinSet::new();
        let period = Duration::from_millis(self.plan.lease_ms.unsigned_abs() / 4);
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !self.is_over() {
            ticks.tick().await;
            let session = self.session();
            let leases: Vec<Held> = self.holding().beaten.values().copied().collect();
            let named: Vec<Value> = leases
                .iter()
                .map(|held| json!({ "task_id": held.task, "lease_id": held.lease }))
                .collect();
            let path = format!("/v1/sessions/{session}/heartbeat");
            let request = Request::post(path, json!({ "leases": named }));
            let invoked_ms = now_ms();
            let mut unnamed = Vec::new();
            let read = |_, body: &Value| {
                unnamed = list(&body["unnamed"]).to_vec();
                Ok(beaten(body, self.plan.lease_ms, invoked_ms))
            };
            let operation = Operation::Heartbeat { session, leases: leases.clone() };
            let outcome = client.call(operation, &request, read).await;
            // A claim whose answer was lost strands nothing.
            for assignment in &unnamed {
                if self.slots.available_permits() > 0 {
                    self.take(assignment, &mut handlers).await;
                }
            }
            if let Outcome::Ok(Answer::Beaten { lost, .. }) = outcome {
                let mut holding = self.holding();
                for held in lost {
                    holding.beaten.remove(&held.lease);
                }
            }
        }
        handlers.shutdown().await;
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn id(value: &Value) -> Option<Uuid> {
    value.as_str().and_then(|text| text.parse().ok())
}

fn all_handed(assignments: &Value) -> Vec<Handed> {
    list(assignments).iter().map(handed).collect()
}

fn handed(assignment: &Value) -> Handed {
    let task = id(&assignment["task"]["id"]);
    let lease = id(&assignment["lease_id"]);
    let attempt = assignment["attempt"].as_i64().and_then(|n| n.try_into().ok());
    let (Some(task), Some(lease), Some(attempt)) = (task, lease, attempt) else {
        panic!("not an assignment: {assignment}");
    };
    Handed { held: Held { task, lease }, attempt }
}

/// An entry of a heartbeat's answer.
fn lease_of(entry: &Value) -> Held {
    let (Some(task), Some(lease)) = (id(&entry["task_id"]), id(&entry["lease_id"])) else {
        panic!("not a lease: {entry}");
    };
    Held { task, lease }
}

fn beaten(body: &Value, lease_ms: i64, invoked_ms: i64) -> Answer {
    let renewed = list(&body["renewed"]).iter().map(|entry| {
        let held = lease_of(entry);
        let expiry = entry["lease_expires_at"].as_str().and_then(|t| t.parse::<Timestamp>().ok());
        let at_ms = expiry.map(|expiry| expiry.as_ms() - lease_ms);
        // A lease of another length than asked for says nothing about when it was renewed.
        let at_ms =
            at_ms.filter(|at_ms| (invoked_ms - SLACK_MS..=now_ms() + SLACK_MS).contains(at_ms));
        Renewed { held, at_ms }
    });
    let renewed = renewed.collect();
    let gone = list(&body["lost"]).iter().chain(list(&body["cancelled"]));
    let lost = gone.map(lease_of).collect();
    Answer::Beaten { renewed, lost, unnamed: all_handed(&body["unnamed"]) }
}

fn finished(body: &Value) -> Result<Answer, (u16, String)> {
    let result = &body["results"][0];
    let error = &result["error"];
    if error.is_object() {
        let code = error["code"].as_str().unwrap_or_default().to_owned();
        // An item that does not say so was refused for good.
        let is_open = matches!(&*code, "outcome_unknown" | "unavailable" | "busy");
        let status = error["status"].as_u64().and_then(|n| n.try_into().ok());
        return Err((status.unwrap_or(if is_open { 503 } else { 409 }), code));
    }
    let status: State = serde_json::from_value(result["status"].clone())
        .unwrap_or_else(|error| panic!("not the outcome of a finish ({error}): {body}"));
    Ok(Answer::Finished(status))
}
