//! A lane's thread: takes jobs, runs their bodies, repeats what may be repeated, answers.
//!
//! Invariants: a job is answered once. A body is run again only after a deadlock, a serialization
//! failure, or a commit in doubt that a synced probe has settled. Once a commit was in doubt, the
//! job never ends with an error that says "nothing was written".

use super::Shared;
use super::connect::{Connector, Durability};
use super::connection::{Connection, Step};
use super::error::{Failure, Verdict};
use super::queue::Queued;
use super::stats::count;
use super::tx::PostgresTx;
use crate::error::{BEHIND, CROWDED, Error, OUTDATED, Result};
use crate::store::{Job, Lane};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use uuid::Uuid;

/// How often a body is run when it meets deadlocks and serialization failures.
const CONFLICT_TRIES: u32 = 5;
/// How many commits in doubt one job may have.
const DOUBT_ROUNDS: u32 = 3;
/// Writes to the log of the database and changes nothing. Its commit waits for the synchronous
/// standby like any other, so that a clean answer covers all commits before it.
pub(super) const PROBE: &str = "SELECT pg_logical_emit_message(true, 'windlass', '')";

/// Connects once, trying for as long as a job would, and tells what the server promises. On a
/// thread of its own, because the caller may be inside a runtime, which must not be blocked on.
pub(super) fn first_connection(connector: &Connector) -> Result<Durability> {
    std::thread::scope(|scope| scope.spawn(|| connect_once(connector)).join()).unwrap_or_else(
        |_| {
            let detail = "connecting panicked".to_owned();
            Err(Error::Internal { operation: "open".into(), detail })
        },
    )
}

fn connect_once(connector: &Connector) -> Result<Durability> {
    let runtime = runtime()?;
    let deadline = Instant::now() + connector.options().unavailable_after;
    let mut backoff = Backoff::default();
    loop {
        let connected = runtime.block_on(async {
            connector.find_pooler().await?;
            connector.connect(Lane::Write).await
        });
        match connected {
            Ok((connection, durability)) => {
                runtime.block_on(connection.close());
                return Ok(durability);
            }
            Err(error @ Error::Unavailable(_)) => {
                backoff.grow();
                if backoff.next >= deadline {
                    return Err(error);
                }
                sleep_until(&runtime, backoff.next);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Starts one thread of a lane.
pub(super) fn start(shared: Arc<Shared>, lane: Lane, number: usize) -> Result<JoinHandle<()>> {
    let runtime = runtime()?;
    let name = format!("pg-{lane:?}-{number}").to_lowercase();
    let worker = Worker {
        shared,
        lane,
        runtime,
        connection: None,
        connected_before: false,
        backoff: Backoff::default(),
    };
    let started = std::thread::Builder::new().name(name).spawn(move || worker.work());
    started.map_err(|error| Error::Internal {
        operation: "open".into(),
        detail: format!("no thread could be started: {error}"),
    })
}

pub(super) fn runtime() -> Result<Runtime> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|error| Error::Internal {
        operation: "open".into(),
        detail: format!("no runtime could be started: {error}"),
    })
}

struct Worker {
    shared: Arc<Shared>,
    lane: Lane,
    runtime: Runtime,
    connection: Option<Connection>,
    connected_before: bool,
    backoff: Backoff,
}

impl Worker {
    fn work(mut self) {
        // Before the first job, so that it need not wait; if it fails the job will see to it.
        let _ = self.connect_once();
        // The runtime drives the connection while the thread waits for a job, so that a server
        // that has gone away is noticed before the next job.
        while let Some(mut queued) = self.runtime.block_on(self.shared.queue(self.lane).pop()) {
            let result = self.run(&mut queued);
            count(&self.shared.counters.jobs);
            let Job { name, done, .. } = queued.job;
            if catch_unwind(AssertUnwindSafe(|| done(result))).is_err() {
                tracing::error!(transaction = name, "the receiver of an answer panicked");
            }
        }
        if let Some(connection) = self.connection.take() {
            self.runtime.block_on(connection.close());
        }
    }

    fn run(&mut self, queued: &mut Queued) -> Result<()> {
        let patience = self.shared.connector.options().unavailable_after;
        self.ensure_connected(queued.since + patience)?;
        let (mut conflicts, mut doubts) = (0, 0);
        loop {
            let doubted = (doubts > 0).then_some(queued.since);
            let Err(failure) = self.attempt(&mut queued.job, doubted) else {
                return Ok(());
            };
            let name = queued.job.name;
            match failure.verdict {
                Verdict::Deadlock | Verdict::Serialization if conflicts + 1 < CONFLICT_TRIES => {
                    conflicts += 1;
                    self.count_conflict(failure.verdict);
                    let ceiling = Duration::from_millis(50.min(4 << conflicts));
                    let pause = Duration::from_millis(2) + jittered(ceiling);
                    sleep_until(&self.runtime, Instant::now() + pause);
                    let connected = self.ensure_connected(Instant::now() + patience);
                    connected.map_err(|error| honest(error, doubts))?;
                }
                Verdict::Ambiguous if self.lane == Lane::Read => {
                    return Err(Error::Unavailable(failure.error.to_string()));
                }
                Verdict::Ambiguous => {
                    doubts += 1;
                    count(&self.shared.counters.ambiguous_commits);
                    tracing::warn!(transaction = name, error = %failure.error, "commit in doubt");
                    if doubts > DOUBT_ROUNDS {
                        return Err(failure.error);
                    }
                    let settled = self.settle(Instant::now() + patience);
                    settled.map_err(|error| honest(error, doubts))?;
                }
                _ => return Err(honest(failure.error, doubts)),
            }
        }
    }

    fn count_conflict(&self, verdict: Verdict) {
        let counters = &self.shared.counters;
        count(match verdict {
            Verdict::Deadlock => &counters.deadlock_retries,
            _ => &counters.serialization_retries,
        });
    }

    /// Runs the body once and commits. `doubted`: when the job came, if a commit of it was
    /// in doubt.
    fn attempt(&mut self, job: &mut Job, doubted: Option<Instant>) -> Result<(), Failure> {
        let shared = &self.shared;
        let Some(connection) = self.connection.as_mut() else {
            return Err(Failure::of(Error::Unavailable("no connection".into())));
        };
        let options = shared.connector.options();
        connection.refresh(shared.schema_epoch.load(Ordering::SeqCst));
        let warnings = connection.warnings();
        let mut tx =
            PostgresTx::new(&self.runtime, connection, &options.clock, options.answer_timeout)
                .doubted(doubted);
        let returned = catch_unwind(AssertUnwindSafe(|| (job.body)(&mut tx)));
        let returned = returned.unwrap_or_else(|panic| {
            count(&shared.counters.panics);
            Err(Error::Internal { operation: job.name.into(), detail: panic_words(&*panic) })
        });
        let outcome = tx.conclude(returned);
        if tx.scripted() {
            shared.schema_epoch.fetch_add(1, Ordering::SeqCst);
        }
        let heard = connection.warnings() - warnings;
        shared.counters.warnings.fetch_add(heard, Ordering::Relaxed);
        if outcome.as_ref().is_err_and(|failure| failure.discard) {
            self.discard();
        }
        outcome
    }

    /// Makes sure that whatever was committed so far is durable and visible, by a commit that is
    /// answered without doubt. After that the body can look its ids up.
    fn settle(&mut self, deadline: Instant) -> Result<()> {
        loop {
            self.reach(deadline)?;
            let limit = deadline.saturating_duration_since(Instant::now());
            let Some(connection) = self.connection.as_mut().filter(|_| !limit.is_zero()) else {
                return Err(unconfirmed());
            };
            let warnings = connection.warnings();
            // On a connection whose COMMIT is overdue this is answered after that COMMIT.
            let steps = [Step::Probe];
            let answers = self.runtime.block_on(connection.pipeline(steps.iter(), limit));
            let clean = connection.warnings() == warnings;
            match answers {
                Ok(answers) if clean && answers.iter().all(std::result::Result::is_ok) => {
                    connection.overdue = false;
                    return Ok(());
                }
                Ok(_) => {
                    self.discard();
                    self.backoff.grow();
                }
                Err(_) => {
                    connection.overdue = true;
                    return Err(unconfirmed());
                }
            }
        }
    }

    fn discard(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.runtime.block_on(connection.abandon(self.shared.connector.tls()));
        }
    }

    /// A connection that commits; waits for it until the deadline.
    fn ensure_connected(&mut self, deadline: Instant) -> Result<()> {
        self.reach(deadline)?;
        match &self.connection {
            Some(connection) if connection.overdue => self.settle(deadline),
            _ => Ok(()),
        }
    }

    /// Connects again if need be, until the deadline; at least once if no attempt is recent.
    fn reach(&mut self, deadline: Instant) -> Result<()> {
        let epoch = self.shared.schema_epoch.load(Ordering::SeqCst);
        let fine =
            |connection: &Connection| !connection.is_closed() && !connection.is_outdated(epoch);
        if self.connection.as_ref().is_some_and(fine) {
            return Ok(());
        }
        self.connection = None;
        loop {
            let now = Instant::now();
            if self.backoff.next > now {
                if deadline <= now {
                    return Err(self.backoff.error());
                }
                sleep_until(&self.runtime, self.backoff.next.min(deadline));
            }
            match self.connect_once() {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() >= deadline => return Err(error),
                Err(_) => {}
            }
        }
    }

    fn connect_once(&mut self) -> Result<()> {
        // Read before the connection learns the schema's types.
        let epoch = self.shared.schema_epoch.load(Ordering::SeqCst);
        match self.runtime.block_on(self.shared.connector.connect(self.lane)) {
            Ok((mut connection, _)) => {
                connection.schema_epoch = epoch;
                self.connection = Some(connection);
                if self.connected_before {
                    count(&self.shared.counters.reconnects);
                }
                self.connected_before = true;
                self.backoff = Backoff::default();
                Ok(())
            }
            Err(error) => {
                if self.backoff.reason.is_none() {
                    tracing::warn!(lane = ?self.lane, %error, "no connection to PostgreSQL");
                }
                self.backoff.grow();
                self.backoff.reason = Some(match error {
                    Error::Unavailable(reason) => reason,
                    other => other.to_string(),
                });
                Err(self.backoff.error())
            }
        }
    }
}

/// Once a commit was in doubt, only the body's own answer clears the doubt. A vain hope for room or
/// an outdated rule is one: bodies look for what they have committed before they go by rules.
fn honest(error: Error, doubts: u32) -> Error {
    let has_looked =
        matches!(&error, Error::Busy(why) if [CROWDED, OUTDATED, BEHIND].contains(&&**why));
    let is_known = error.is_about_data() || matches!(error, Error::OutcomeUnknown(_));
    if doubts == 0 || is_known || has_looked {
        return error;
    }
    Error::OutcomeUnknown(format!("the commit was in doubt, then: {error}"))
}

fn unconfirmed() -> Error {
    Error::Unavailable("the server does not confirm commits; is its standby away?".into())
}

fn panic_words(panic: &(dyn std::any::Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
    let words = words.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panic: {}", words.unwrap_or_else(|| "without words".into()))
}

/// When to try to connect again: full jitter under a growing ceiling, so that a thousand nodes do
/// not fall upon a server that has just come back.
pub(super) struct Backoff {
    pub(super) next: Instant,
    ceiling: Duration,
    reason: Option<String>,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { next: Instant::now(), ceiling: Duration::from_millis(50), reason: None }
    }
}

impl Backoff {
    pub(super) fn grow(&mut self) {
        self.next = Instant::now() + jittered(self.ceiling);
        self.ceiling = (self.ceiling * 2).min(Duration::from_secs(5));
    }

    fn error(&self) -> Error {
        Error::Unavailable(self.reason.clone().unwrap_or_else(|| "no connection".into()))
    }
}

/// A random part of `ceiling`.
fn jittered(ceiling: Duration) -> Duration {
    // 53 random bits of a random uuid: no need for a generator of our own.
    let bits = Uuid::new_v4().as_u64_pair().1 & ((1 << 53) - 1);
    ceiling.mul_f64(bits as f64 / (1u64 << 53) as f64)
}

pub(super) fn sleep_until(runtime: &Runtime, instant: Instant) {
    // In the runtime, which keeps the connection going meanwhile.
    runtime.block_on(async { tokio::time::sleep_until(instant.into()).await });
}
