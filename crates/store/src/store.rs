//! The handle to a database: named transactions, run on the threads that own its connections.
//!
//! Invariant: an `Ok` from [`Store::write`] means committed and synced. Retries, naming, panics
//! and ambiguous commits are handled behind this seam, once, not by repositories.

use crate::error::{Error, Result};
use crate::statement::Dialect;
use crate::tx::{Noting, Tx};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

/// Which of a database's connections runs a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Ordinary writes.
    Write,
    /// Heartbeats and session renewal: a connection of their own, so that a saturated write lane
    /// cannot cause a storm of lost leases.
    Heartbeat,
    /// Reads. They see one snapshot and must be short.
    Read,
}

/// A transaction's body as the adapters see it.
pub type Body = Box<dyn FnMut(&mut dyn Tx) -> Result<()> + Send>;

/// A transaction that waits for a connection.
pub struct Job {
    /// For logs, metrics and errors.
    pub name: &'static str,
    /// Which connection may run it.
    pub lane: Lane,
    /// May be run more than once; only the last run counts.
    pub body: Body,
    /// Told once: `Ok` after COMMIT was acknowledged by the database.
    pub done: Box<dyn FnOnce(Result<()>) + Send>,
}

/// A reason to look now. It carries no truth: whoever is woken reads the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wake {
    /// A queue has something to claim.
    Ready(String),
    /// Something happened to some task.
    Event,
    /// The text of some task began, or is wanted, on another node.
    Stream,
    /// Some inbox has something to hand out.
    Message,
    /// Anything may have happened: the line was cut for a while.
    Everything,
}

/// What an acknowledged commit survives, as found when the database was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durability {
    /// The loss of power: it was synced to disk before it was acknowledged.
    pub is_synced: bool,
    /// The loss of the machine: it waits for a second server, too. An embedded database has none.
    pub has_standby: Option<bool>,
}

/// A database: takes jobs, runs each in a transaction, answers. One implementation an engine.
pub trait Database: Send + Sync {
    /// Which dialect it speaks.
    fn dialect(&self) -> Dialect;
    /// What its acknowledged commits survive.
    fn durability(&self) -> Durability;
    /// Queues a job. Never blocks; when the queue is full the job is told `Busy` at once.
    fn submit(&self, job: Job);
    /// Hears what other nodes on this database tell. An embedded database has no other nodes.
    fn hear(&self, _hear: Box<dyn Fn(Wake) + Send + Sync>) -> Result<()> {
        Ok(())
    }
    /// Tells other nodes to look. Never blocks, and may be lost: everybody polls as well.
    fn tell(&self, _wake: Wake) {}
    /// Whether what others tell arrives here, so that polling is only the safety net.
    fn hears(&self) -> bool {
        true
    }
    /// Stops taking jobs, finishes those that are queued, closes the connections.
    fn close(&self);
}

/// A cheap handle to an open database.
#[derive(Clone)]
pub struct Store {
    database: Arc<dyn Database>,
    push: Arc<Push>,
}

/// Whether the ends of delegations are told to their callers, and who wakes those that read them.
struct Push {
    is_on: AtomicBool,
    wake: Mutex<Option<Arc<dyn Fn() + Send + Sync>>>,
}

impl Push {
    fn wake(&self) {
        let wake = self.wake.lock().unwrap_or_else(|e| e.into_inner()).clone();
        if let Some(wake) = wake {
            wake();
        }
    }
}

impl Store {
    /// A store over an open database.
    pub fn new(database: Arc<dyn Database>) -> Store {
        let push = Push { is_on: AtomicBool::new(true), wake: Mutex::default() };
        Store { database, push: Arc::new(push) }
    }

    /// Whether the end of a delegation is put into its caller's inbox; it is unless this says
    /// otherwise.
    pub fn push_results(&self, is_on: bool) {
        self.push.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Who is told, after the commit, that something was put into an inbox.
    pub fn on_push(&self, wake: impl Fn() + Send + Sync + 'static) {
        *self.push.wake.lock().unwrap_or_else(|e| e.into_inner()) = Some(Arc::new(wake));
    }

    /// Which dialect the database speaks.
    pub fn dialect(&self) -> Dialect {
        self.database.dialect()
    }

    /// What an acknowledged commit survives.
    pub fn durability(&self) -> Durability {
        self.database.durability()
    }

    /// Runs `body` in a read-write transaction and commits it.
    pub async fn write<T: Send + 'static>(
        &self,
        name: &'static str,
        body: impl FnMut(&mut dyn Tx) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.run(Lane::Write, name, body).await
    }

    /// Runs `body` in a read-only transaction.
    pub async fn read<T: Send + 'static>(
        &self,
        name: &'static str,
        body: impl FnMut(&mut dyn Tx) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.run(Lane::Read, name, body).await
    }

    /// Runs `body` on the given lane.
    pub async fn run<T: Send + 'static>(
        &self,
        lane: Lane,
        name: &'static str,
        body: impl FnMut(&mut dyn Tx) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.run_then(lane, name, body, |value| value).await
    }

    /// Runs `body` on the given lane, and `then` as soon as it is committed, on the thread that
    /// committed it. Whoever is told there need not wait until this task is woken; so `then` must
    /// be short.
    pub async fn run_then<T: Send + 'static, U: Send + 'static>(
        &self,
        lane: Lane,
        name: &'static str,
        mut body: impl FnMut(&mut dyn Tx) -> Result<T> + Send + 'static,
        then: impl FnOnce(T) -> U + Send + 'static,
    ) -> Result<U> {
        let slot = Arc::new(Mutex::new(None));
        let (done, answer) = oneshot::channel();
        let filled = Arc::clone(&slot);
        let pushes = self.push.is_on.load(Ordering::Relaxed);
        let pushed = Arc::new(AtomicBool::new(false));
        let (noted, push) = (Arc::clone(&pushed), Arc::clone(&self.push));
        let lost = move || Error::Internal { operation: name.into(), detail: "no answer".into() };
        self.database.submit(Job {
            name,
            lane,
            body: Box::new(move |tx| {
                let mut noting = Noting { tx, pushes, pushed: false };
                let value = body(&mut noting)?;
                noted.store(noting.pushed, Ordering::Relaxed);
                *filled.lock().unwrap_or_else(|e| e.into_inner()) = Some(value);
                Ok(())
            }),
            // The caller may have gone away; its transaction stands all the same.
            done: Box::new(move |result| {
                let value = slot.lock().unwrap_or_else(|e| e.into_inner()).take();
                let value = result.and_then(|()| value.ok_or_else(lost));
                if value.is_ok() && pushed.load(Ordering::Relaxed) {
                    push.wake();
                }
                drop(done.send(value.map(then)));
            }),
        });
        answer.await.map_err(|_| lost())?
    }

    /// Hears what other nodes tell; see [`Wake`]. Said once, by the engine.
    pub fn hear(&self, hear: impl Fn(Wake) + Send + Sync + 'static) -> Result<()> {
        self.database.hear(Box::new(hear))
    }

    /// Tells other nodes to look.
    pub fn tell(&self, wake: Wake) {
        self.database.tell(wake);
    }

    /// Whether wake-ups from other nodes arrive.
    pub fn hears(&self) -> bool {
        self.database.hears()
    }

    /// Finishes what is queued and closes the connections.
    pub fn close(&self) {
        self.database.close();
    }
}
