//! The load: clients that submit, work and read over HTTP, and write down everything.
//!
//! Submitters make their own ids and repeat a submit under the same id until they know. Workers
//! claim by long polls, beat, have an effect, and finish, some of them badly on purpose (see
//! [`Work`]). All of them go to another node when one does not answer.
//!
//! Invariant: a client does what a careful client may do, never more: it repeats with the same ids
//! what it does not know, and it takes no refusal for an answer to something else.
//! Absent: judgement. Whether the answers fit together is the checker's matter.

mod client;
mod reader;
mod submitter;
mod work;
mod worker;

pub use client::{Client, is_ready, raise_limits};
pub use work::Work;
pub use worker::{WorkerPlan, work};

use crate::ledger::Ledger;
use crate::log::Log;
use crate::seed::Seed;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The nodes' base URLs.
    pub nodes: Vec<String>,
    /// Where logs and ledgers go.
    pub folder: PathBuf,
    /// What decides everything that is left to chance.
    pub seed: u64,
    /// The workers' lease.
    pub lease_ms: i64,
    /// Clients that submit.
    pub submitters: usize,
    /// How long each of them waits between two submits.
    pub pace: Duration,
    /// Workers in this process.
    pub workers: usize,
    /// Tasks that each of them holds at once.
    pub slots: usize,
}

impl Plan {
    /// A run of moderate size against these nodes: some 130 submits in a second.
    pub fn new(nodes: Vec<String>, folder: PathBuf, seed: u64) -> Plan {
        let (submitters, pace) = (4, Duration::from_millis(30));
        Plan { nodes, folder, seed, lease_ms: 2_000, submitters, pace, workers: 4, slots: 12 }
    }

    /// The plan of a worker with this name.
    pub fn worker(&self, name: &str) -> WorkerPlan {
        WorkerPlan {
            nodes: self.nodes.clone(),
            folder: self.folder.clone(),
            name: name.to_owned(),
            seed: self.seed,
            queue: QUEUE.to_owned(),
            lease_ms: self.lease_ms,
            slots: self.slots,
        }
    }
}

/// The queue of every run.
pub const QUEUE: &str = "faults";

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Submitters submit, workers work.
    Load,
    /// Nothing new is submitted; workers go on.
    Quiet,
    /// Everybody goes home.
    Over,
}

/// A running load.
pub struct Load {
    plan: Plan,
    log: Arc<Log>,
    phase: watch::Sender<Phase>,
    acknowledged: Arc<Mutex<Vec<Uuid>>>,
    submitters: JoinSet<()>,
    others: JoinSet<()>,
}

impl Load {
    /// Starts all clients of the plan.
    pub fn start(plan: Plan) -> std::io::Result<Load> {
        let log = Arc::new(Log::create(&plan.folder.join("clients.log"))?);
        let (phase, _) = watch::channel(Phase::Load);
        let acknowledged = Arc::new(Mutex::new(Vec::new()));
        let (mut submitters, mut others) = (JoinSet::new(), JoinSet::new());
        let seed = Seed::new(plan.seed);
        for n in 0..plan.submitters {
            let name = format!("submitter-{n}");
            let client = Client::new(&name, plan.nodes.clone(), n, Arc::clone(&log));
            let acknowledged = Arc::clone(&acknowledged);
            let submit = submitter::Submitter { client, seed: seed.of(&name), acknowledged };
            submitters.spawn(submit.run(plan.pace, phase.subscribe()));
        }
        for n in 0..plan.workers {
            let own = plan.worker(&format!("worker-{n}"));
            let path = plan.folder.join(format!("{}.ledger", own.name));
            let ledger = Arc::new(Ledger::create(&path, &own.name)?);
            others.spawn(work(own, Arc::clone(&log), ledger, phase.subscribe()));
        }
        let client = Client::new("reader", plan.nodes.clone(), 0, Arc::clone(&log));
        let ids = Arc::clone(&acknowledged);
        others.spawn(reader::look_around(client, seed.of("reader"), ids, phase.subscribe()));
        Ok(Load { plan, log, phase, acknowledged, submitters, others })
    }

    /// How many submits were acknowledged so far.
    pub fn acknowledged(&self) -> usize {
        self.acknowledged.lock().expect("no client panics here").len()
    }

    /// Stops submitting and waits until every acknowledged task has ended, `bound` at most; then
    /// everybody goes home. Gives the number of tasks that had not ended.
    pub async fn settle(mut self, bound: Duration) -> usize {
        self.phase.send_replace(Phase::Quiet);
        // Their last submits are still to be acknowledged.
        while let Some(submitter) = self.submitters.join_next().await {
            submitter.expect("no client of the load panics");
        }
        let ids = self.acknowledged.lock().expect("no client panics here").clone();
        let left = reader::wait_for_all(&self.plan.nodes, &self.log, ids, bound).await;
        self.phase.send_replace(Phase::Over);
        while let Some(client) = self.others.join_next().await {
            client.expect("no client of the load panics");
        }
        left
    }
}
