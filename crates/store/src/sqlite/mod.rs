//! The embedded database: one file, one writing thread, a few reading threads.
//!
//! Invariant: one server a file; `Ok` from a write means that its group was committed and synced.
//! A disk that failed to sync is never trusted again by this process: the database stops, and
//! opening the file anew finds what is really there.
//!
//! Absent: the schema and its version (the migrations know them), and retries (SQLite's own busy
//! timeout is the only wait for a lock).

mod checkpoint;
mod error;
mod file;
mod lock;
mod options;
mod prepared;
mod queue;
mod reader;
mod stats;
mod triggers;
mod tx;
mod writer;

pub use options::{Checkpoint, Options, Synchronous};
pub use stats::Stats;

use crate::error::{Error, Result};
use crate::statement::Dialect;
use crate::store::{Database, Durability, Job, Lane};
use lock::Lock;
use queue::Queue;
use rusqlite::Connection;
use stats::Counters;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;

/// An open SQLite file.
pub struct SqliteDatabase {
    shared: Arc<Shared>,
    running: Mutex<Option<Running>>,
}

/// What the threads have in common.
struct Shared {
    options: Options,
    writes: Queue,
    reads: Queue,
    counters: Counters,
    /// Why the file must be opened anew.
    failed: OnceLock<String>,
}

/// What ends with `close`.
struct Running {
    readers: Vec<JoinHandle<()>>,
    writer: JoinHandle<()>,
}

/// Whether there is a file at `path`; one that could not be made is an error.
pub fn exists(path: impl AsRef<Path>) -> Result<bool> {
    Ok(file::locate(path.as_ref())?.exists())
}

/// Opens the file at `path`, and creates it when it is missing.
pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Arc<SqliteDatabase>> {
    let path = file::locate(path.as_ref())?;
    let lock = Lock::take(&path)?;
    let writing = file::open_writer(&path, &options)?;
    let reading: Vec<Connection> = (0..options.readers.max(1))
        .map(|_| file::open_reader(&path, &options))
        .collect::<Result<_>>()?;
    let shared = Arc::new(Shared {
        writes: Queue::new(options.queue_jobs),
        reads: Queue::new(options.queue_jobs),
        counters: Counters::default(),
        failed: OnceLock::new(),
        options,
    });
    let running = start(writing, reading, lock, &shared).inspect_err(|_| shared.close())?;
    Ok(Arc::new(SqliteDatabase { shared, running: Mutex::new(Some(running)) }))
}

fn start(
    writing: Connection,
    reading: Vec<Connection>,
    lock: Lock,
    shared: &Arc<Shared>,
) -> Result<Running> {
    let mut readers = Vec::new();
    for connection in reading {
        let shared = Arc::clone(shared);
        let run = move || reader::run(&connection, &shared);
        readers.push(spawn("windlass-read", run)?);
    }
    let shared = Arc::clone(shared);
    let writer = spawn("windlass-write", move || {
        writer::run(&writing, &shared);
        drop(writing);
        // The next server may come only when this one has let go of the file.
        drop(lock);
    })?;
    Ok(Running { readers, writer })
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let spawned = std::thread::Builder::new().name(name.into()).spawn(run);
    spawned.map_err(|e| Error::Unavailable(format!("cannot start a thread: {e}")))
}

impl SqliteDatabase {
    /// What it has done so far.
    pub fn stats(&self) -> Stats {
        self.shared.counters.snapshot()
    }

    /// Why every job is refused, if the disk has failed. The process should exit and start anew.
    pub fn failure(&self) -> Option<Error> {
        self.shared.failure()
    }
}

impl Shared {
    fn close(&self) {
        self.reads.close();
        self.writes.close();
    }

    /// Stops the database for good.
    fn fail(&self, error: &Error) {
        if self.failed.set(error.to_string()).is_ok() {
            tracing::error!(%error, "the disk failed; the database must be opened anew");
        }
    }

    fn failure(&self) -> Option<Error> {
        let reason = self.failed.get()?;
        let told = format!("the disk failed and the server must be restarted ({reason})");
        Some(Error::Unavailable(told))
    }
}

impl Database for SqliteDatabase {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn durability(&self) -> Durability {
        let is_synced = self.shared.options.synchronous == Synchronous::Full;
        Durability { is_synced, has_standby: None }
    }

    fn submit(&self, job: Job) {
        if let Some(failure) = self.shared.failure() {
            return queue::answer(job, Err(failure));
        }
        let queue = match job.lane {
            Lane::Write | Lane::Heartbeat => &self.shared.writes,
            Lane::Read => &self.shared.reads,
        };
        if let Err((job, error)) = queue.push(job) {
            queue::answer(job, Err(error));
        }
    }

    fn close(&self) {
        let mut running = self.running.lock().unwrap_or_else(|e| e.into_inner());
        let Some(running) = running.take() else {
            return;
        };
        // Readers go first, so that none of them keeps the last checkpoint from its work.
        self.shared.writes.refuse();
        self.shared.reads.close();
        running.readers.into_iter().for_each(join);
        self.shared.writes.close();
        join(running.writer);
    }
}

/// Waits for a thread. Not for the current one: the last handle may be dropped inside a job.
fn join(thread: JoinHandle<()>) {
    if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
        tracing::error!("a thread of the database panicked");
    }
}

impl Drop for SqliteDatabase {
    fn drop(&mut self) {
        self.close();
    }
}
