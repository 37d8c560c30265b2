//! The PostgreSQL adapter of the transaction seam.
//!
//! Each lane has threads, each thread one connection and a small runtime that drives it, so that
//! bodies are synchronous and a statement costs no hop between threads.
//!
//! Invariant: a job is told `Ok` only after COMMIT was answered without error or warning. A commit
//! whose answer is in doubt is settled by a synced probe and by running the body again, which
//! finds its own ids (see `lane`).
//!
//! Absent: client certificates, COPY.

mod connect;
mod connection;
mod decode;
mod encode;
mod error;
mod lane;
mod listen;
mod options;
mod pooler;
mod queue;
mod stats;
mod text;
mod tls;
mod tx;
mod url;

pub use connect::Durability;
pub use options::{Options, SynchronousCommit};
pub use stats::Stats;

use crate::error::{Error, Result};
use crate::statement::Dialect;
use crate::store::{self, Database, Job, Lane, Wake};
use connect::Connector;
use queue::{Queue, Queued};
use stats::Counters;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// An open PostgreSQL database.
pub struct PostgresDatabase {
    shared: Arc<Shared>,
    durability: Durability,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What all lane threads of one database share.
struct Shared {
    connector: Connector,
    counters: Counters,
    /// Grows when a script has run, because prepared statements may then be stale.
    schema_epoch: AtomicU64,
    write: Queue,
    heartbeat: Queue,
    read: Queue,
    wakes: listen::Wakes,
}

impl Shared {
    fn queue(&self, lane: Lane) -> &Queue {
        match lane {
            Lane::Write => &self.write,
            Lane::Heartbeat => &self.heartbeat,
            Lane::Read => &self.read,
        }
    }
}

/// Connects, checks that the server keeps what it acknowledges, and starts the lanes.
pub fn open(url: &str, options: Options) -> Result<Arc<PostgresDatabase>> {
    options.check()?;
    let connector = Connector::new(url, options)?;
    let durability = lane::first_connection(&connector)?;
    if connector.is_pooled() {
        tracing::info!("a pooler is between us and PostgreSQL: no session state, only polling");
    }
    let options = connector.options();
    let limit = options.queue_limit;
    let lanes = [
        (Lane::Write, options.write_connections),
        (Lane::Heartbeat, options.heartbeat_connections),
        (Lane::Read, options.read_connections),
    ];
    let shared = Arc::new(Shared {
        connector,
        counters: Counters::default(),
        schema_epoch: AtomicU64::new(0),
        write: Queue::new(limit),
        heartbeat: Queue::new(limit),
        read: Queue::new(limit),
        wakes: listen::Wakes::default(),
    });
    let database = PostgresDatabase { shared, durability, threads: Mutex::new(Vec::new()) };
    for (lane, count) in lanes {
        for number in 0..count {
            let thread = lane::start(Arc::clone(&database.shared), lane, number)?;
            database.threads.lock().unwrap_or_else(|e| e.into_inner()).push(thread);
        }
    }
    Ok(Arc::new(database))
}

impl PostgresDatabase {
    /// What the server does with an acknowledged commit, as found at the start.
    pub fn durability(&self) -> &Durability {
        &self.durability
    }

    /// Whether a transaction pooler is in between, by the URL's word or as found at the start.
    pub fn is_pooled(&self) -> bool {
        self.shared.connector.is_pooled()
    }

    /// The counters since the start.
    pub fn stats(&self) -> Stats {
        self.shared.counters.snapshot()
    }
}

impl Database for PostgresDatabase {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn durability(&self) -> store::Durability {
        store::Durability {
            is_synced: self.durability.is_synced(),
            has_standby: Some(self.durability.synchronous_standby),
        }
    }

    fn submit(&self, job: Job) {
        if let Err((refused, why)) = self.shared.queue(job.lane).push(Queued::now(job)) {
            let error = match why {
                queue::Refusal::Full => Error::Busy("too many transactions wait".into()),
                queue::Refusal::Closed => Error::Unavailable("the store is closed".into()),
            };
            (refused.job.done)(Err(error));
        }
    }

    fn hear(&self, hear: Box<dyn Fn(Wake) + Send + Sync>) -> Result<()> {
        if self.is_pooled() {
            return Ok(());
        }
        let thread = listen::start(Arc::clone(&self.shared), hear)?;
        self.threads.lock().unwrap_or_else(|e| e.into_inner()).push(thread);
        Ok(())
    }

    fn tell(&self, wake: Wake) {
        self.shared.wakes.tell(wake);
    }

    fn hears(&self) -> bool {
        self.shared.wakes.hears()
    }

    fn close(&self) {
        self.shared.wakes.close();
        for lane in [Lane::Write, Lane::Heartbeat, Lane::Read] {
            self.shared.queue(lane).close();
        }
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(|e| e.into_inner()));
        for thread in threads {
            // The last handle may be dropped by a job's answer, on a lane's own thread, which
            // cannot wait for itself; it ends when its queue is empty.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for PostgresDatabase {
    fn drop(&mut self) {
        self.close();
    }
}
