//! Everything at once on eight connections, over the same tasks: no deadlock, and no error but a
//! refusal. `WINDLASS_MIX_SECONDS` says how long.

use crate::model::random::Random;
use crate::world::*;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use uuid::Uuid;
use windlass_domain::command::Command;
use windlass_domain::id::{ChangeId, LeaseId, TaskId};
use windlass_domain::profile::Profile;
use windlass_store::error::Rejection;
use windlass_store::group::Outcome;
use windlass_store::migration;
use windlass_store::postgres::{self, Options, PostgresDatabase};
use windlass_store::statement::Dialect;
use windlass_store::store::Store;
use windlass_store::task::{Ask, Beat, Claim, Finish, Finishing, Start, Tasks};

const CALLERS: u64 = 24;
const BATCH: usize = 60;

/// What all callers know: tasks and leases, old and new. They overlap on purpose.
#[derive(Default)]
struct Known(Mutex<VecDeque<(TaskId, LeaseId)>>);

impl Known {
    fn add(&self, held: impl Iterator<Item = (TaskId, LeaseId)>) {
        let mut known = self.0.lock().unwrap();
        known.extend(held);
        while known.len() > 300 {
            known.pop_front();
        }
    }

    /// Some of them, in any order.
    fn some(&self, random: &mut Random) -> Vec<(TaskId, LeaseId)> {
        let known = self.0.lock().unwrap();
        if known.is_empty() {
            return Vec::new();
        }
        let count = 1 + random.below(BATCH);
        (0..count).map(|_| known[random.below(known.len())]).collect()
    }
}

struct Caller {
    tasks: Tasks,
    random: Random,
    known: Arc<Known>,
    name: String,
    calls: usize,
}

/// A rule may say no; the database may not.
fn only_refusals<T>(what: &str, outcomes: Vec<Outcome<T>>) {
    for outcome in outcomes {
        if let Err(Rejection::Failed(error)) = outcome {
            panic!("{what}: {error}");
        }
    }
}

impl Caller {
    async fn run(mut self, end: Instant) -> usize {
        while Instant::now() < end {
            self.calls += 1;
            match self.random.below(12) {
                0 | 1 => self.submit().await,
                2 | 3 => self.claim().await,
                4 => self.start().await,
                5 | 6 => self.beat().await,
                7 | 8 => self.finish().await,
                9 => self.cancel().await,
                _ => self.sweep().await,
            }
        }
        self.calls
    }

    async fn submit(&mut self) {
        let count = 1 + self.random.below(BATCH);
        let new = |random: &mut Random| {
            let key = random.maybe(50, |r| format!("key-{}", r.below(200)));
            let is_job = random.percent(70);
            let shape = |r: &mut windlass_domain::request::SubmitRequest| {
                r.idempotency_key = key;
                r.priority = Some(random.below(3) as i32);
                r.delay_ms = random.maybe(20, |r| r.between(0, 100));
                r.deadline_ms = random.maybe(20, |r| r.between(50, 1_000));
            };
            if is_job { task(shape) } else { inference_with(shape) }
        };
        let mut tasks: Vec<_> = (0..count).map(|_| new(&mut self.random)).collect();
        if self.random.percent(30) {
            tasks.truncate(10);
            if let Err((_, Rejection::Failed(error))) = self.tasks.submit_atomic(tasks).await {
                panic!("submit_atomic: {error}");
            }
            return;
        }
        only_refusals("submit", self.tasks.submit(tasks).await);
    }

    async fn claim(&mut self) {
        let claim = Claim {
            profiles: vec![Profile::Job, Profile::Inference],
            lease_ms: Some(self.random.between(20, 400)),
            start: self.random.percent(50),
            ..claim_of(&self.name, &["q"], 1 + self.random.below(BATCH))
        };
        let held = self.tasks.claim(claim).await.unwrap_or_else(|error| panic!("claim: {error}"));
        self.known.add(held.iter().map(|held| (held.task.id, held.lease_id)));
    }

    async fn start(&mut self) {
        let items = self.known.some(&mut self.random).into_iter().map(|(task, lease)| Start {
            task,
            lease,
            actor: self.name.clone(),
            change: ChangeId(Uuid::now_v7()),
        });
        only_refusals("start", self.tasks.start(items.collect()).await);
    }

    async fn beat(&mut self) {
        let random = &mut self.random;
        let items = self.known.some(random).into_iter().map(|(task, lease)| Beat {
            task,
            lease,
            lease_ms: Some(random.between(20, 400)),
            checkpoint: random.maybe(50, |r| format!("{{\"n\":{}}}", r.below(9))),
            progress: None,
            actor: self.name.clone(),
            change: ChangeId(Uuid::now_v7()),
        });
        only_refusals("heartbeat", self.tasks.heartbeat(items.collect()).await);
    }

    async fn finish(&mut self) {
        let random = &mut self.random;
        let items = self.known.some(random).into_iter().map(|(task, lease)| Finish {
            task,
            lease,
            how: match random.below(3) {
                0 => complete(),
                1 => fail("TIMEOUT"),
                _ => Finishing::Release,
            },
            usage: None,
            actor: self.name.clone(),
            reason: None,
            change: ChangeId(Uuid::now_v7()),
        });
        only_refusals("finish", self.tasks.finish(items.collect()).await);
    }

    async fn cancel(&mut self) {
        for (task, _) in self.known.some(&mut self.random).into_iter().take(3) {
            let ask = Ask::new(task, Command::Cancel, self.name.as_str());
            only_refusals("cancel", vec![self.tasks.ask(ask).await]);
        }
    }

    async fn sweep(&mut self) {
        let limit = 1 + self.random.below(100);
        let swept = match self.random.below(4) {
            0 | 1 => self.tasks.expire_leases(limit).await,
            2 => self.tasks.expire_deadlines(limit).await,
            _ => self.tasks.lose_session(&format!("c{}", self.random.below(24))).await,
        };
        swept.unwrap_or_else(|error| panic!("sweep: {error}"));
    }
}

/// Two nodes, of eight connections each.
async fn mix(place: &Place, seconds: u64) -> (usize, Vec<Arc<PostgresDatabase>>) {
    let Place::Postgres(database) = place else { unreachable!("PostgreSQL only") };
    let options = Options { write_connections: 8, heartbeat_connections: 2, ..Options::default() };
    let databases: Vec<Arc<PostgresDatabase>> =
        (0..2).map(|_| postgres::open(&database.url(), options.clone()).unwrap()).collect();
    migration::up(&Store::new(databases[0].clone())).await.unwrap();
    let nodes: Vec<Tasks> = databases.iter().map(|d| Tasks::new(Store::new(d.clone()))).collect();
    let known = Arc::new(Known::default());
    let end = Instant::now() + Duration::from_secs(seconds);
    let callers = (0..CALLERS).map(|number| {
        let caller = Caller {
            tasks: nodes[number as usize % nodes.len()].clone(),
            random: Random::new(number),
            known: Arc::clone(&known),
            name: format!("c{number}"),
            calls: 0,
        };
        tokio::spawn(caller.run(end))
    });
    let callers: Vec<_> = callers.collect();
    let mut calls = 0;
    for caller in callers {
        calls += caller.await.expect("no error but refusals");
    }
    (calls, databases)
}

#[test]
fn everything_at_once_meets_no_deadlock() {
    let seconds = std::env::var("WINDLASS_MIX_SECONDS").ok();
    let seconds = seconds.map_or(5, |text| text.parse().expect("a number of seconds"));
    run(
        move |dialect| async move {
            let place = Place::new(dialect);
            let (calls, databases) = mix(&place, seconds).await;
            let tasks = Tasks::new(Store::new(databases[0].clone()));
            for database in &databases {
                let stats = database.stats();
                let retries = (stats.deadlock_retries, stats.serialization_retries);
                assert_eq!(retries, (0, 0), "after {calls} calls: {stats:?}");
            }
            assert!(calls > 100, "{calls} calls prove nothing");
            let counts = tasks.counts().await.unwrap();
            println!("{calls} calls: {counts:?}");
            databases.iter().for_each(|d| Store::new(d.clone()).close());
        },
        Dialect::Postgres,
    );
}
