//! Duties: what happens without anybody's call.
//!
//! Each is one function that can be called alone, and a ticker. On many nodes each runs on one at
//! a time, by a lease row; an embedded database has one node.
//!
//! Invariant: an error or a panic in a duty is logged and counted, and stops neither its ticker nor
//! another duty.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use windlass_domain::id::SessionId;
use windlass_store::session::TTL_MS;
use windlass_store::statement::Dialect;
use windlass_store::store::Wake;
use windlass_store::task::{Drift, SweepReport};

use super::session::CLOSED;
use super::{Engine, Phase, Result};

/// Rows that one sweep takes in one transaction.
pub(super) const BATCH: usize = 500;
/// How many counts that were not true are logged one by one.
const TOLD_DRIFTS: usize = 20;
/// How long closed sessions are remembered.
const SESSION_MEMORY_MS: i64 = 7 * 24 * 60 * 60 * 1_000;

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 2)
}

/// What a sweep did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Rows it looked at.
    pub scanned: usize,
    /// Rows it changed.
    pub changed: usize,
}

/// A sweep under way.
pub type Sweep<'a> = Pin<Box<dyn Future<Output = Result<Report>> + Send + 'a>>;

/// Something that must be looked after again and again.
pub trait Duty: Send + Sync + 'static {
    /// Its name, in logs, metrics and the lease row.
    fn name(&self) -> &'static str;
    /// How often.
    fn every(&self) -> Duration;
    /// Looks once.
    fn sweep<'a>(&'a self, engine: &'a Engine) -> Sweep<'a>;
}

/// What a duty did on this node so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // The names say it.
pub struct DutyStats {
    pub name: &'static str,
    pub runs: u64,
    pub changed: u64,
    pub errors: u64,
    pub panics: u64,
}

#[derive(Default)]
struct Counters {
    runs: AtomicU64,
    changed: AtomicU64,
    errors: AtomicU64,
    panics: AtomicU64,
}

/// The duties of this engine.
#[derive(Default)]
pub(super) struct Running {
    duties: Mutex<Vec<(&'static str, Arc<Counters>)>>,
}

impl Running {
    pub(super) fn stats(&self) -> Vec<DutyStats> {
        let duties = self.duties.lock().unwrap_or_else(PoisonError::into_inner);
        let stats = |(name, counters): &(&'static str, Arc<Counters>)| DutyStats {
            name,
            runs: counters.runs.load(Ordering::Relaxed),
            changed: counters.changed.load(Ordering::Relaxed),
            errors: counters.errors.load(Ordering::Relaxed),
            panics: counters.panics.load(Ordering::Relaxed),
        };
        duties.iter().map(stats).collect()
    }

    fn add(&self, name: &'static str) -> Arc<Counters> {
        let counters = Arc::new(Counters::default());
        let mut duties = self.duties.lock().unwrap_or_else(PoisonError::into_inner);
        duties.push((name, Arc::clone(&counters)));
        counters
    }
}

/// A duty made of a function.
struct Simple {
    name: &'static str,
    every: Duration,
    sweep: for<'a> fn(&'a Engine) -> Sweep<'a>,
}

impl Duty for Simple {
    fn name(&self) -> &'static str {
        self.name
    }

    fn every(&self) -> Duration {
        self.every
    }

    fn sweep<'a>(&'a self, engine: &'a Engine) -> Sweep<'a> {
        (self.sweep)(engine)
    }
}

/// The duties that every engine has.
pub(super) fn standard() -> Vec<Arc<dyn Duty>> {
    const SECOND: Duration = Duration::from_secs(1);
    let duty = |name, every, sweep| Arc::new(Simple { name, every, sweep }) as Arc<dyn Duty>;
    vec![
        // Deadlines first: a task that is both overdue and stale ends failed.
        duty("deadlines", SECOND, |e| Box::pin(async { e.expire_deadlines().await })),
        duty("leases", SECOND, |e| Box::pin(async { e.expire_leases().await })),
        duty("sessions", SECOND, |e| Box::pin(async { e.expire_sessions().await })),
        duty("closed_sessions", 5 * SECOND, |e| Box::pin(async { e.settle_sessions().await })),
        duty("pending_timeout", SECOND, |e| Box::pin(async { e.time_out_pending().await })),
        duty("timers", SECOND, |e| Box::pin(async { e.wake_due().await })),
        duty("messages", SECOND, |e| Box::pin(async { e.sweep_messages().await })),
        // Whoever finishes tells the log; this is for what nobody saw.
        duty("parents", 30 * SECOND, |e| Box::pin(async { e.wake_parents().await })),
        duty("step_expiry", 600 * SECOND, |e| Box::pin(async { e.expire_steps().await })),
        duty("notice_expiry", 60 * SECOND, |e| Box::pin(async { e.expire_notices().await })),
        duty("alert_memory", 600 * SECOND, |e| Box::pin(async { e.forget_alerts().await })),
        duty("approvals", 10 * SECOND, |e| Box::pin(async { e.expire_approvals().await })),
        duty("tally", 5 * SECOND, |e| Box::pin(async { e.fold_tally().await })),
        duty("limit_counts", 60 * SECOND, |e| Box::pin(async { e.fold_counts().await })),
        duty("retention", 600 * SECOND, |e| Box::pin(async { e.remove_expired().await })),
        duty("delta_memory", 60 * SECOND, |e| Box::pin(async { e.forget_deltas().await })),
        duty("session_memory", 600 * SECOND, |e| Box::pin(async { e.forget_sessions().await })),
    ]
}

impl Engine {
    /// Ends tasks whose deadline passed.
    pub async fn expire_deadlines(&self) -> Result<Report> {
        let tasks = self.tasks();
        self.sweep_all(|| tasks.expire_deadlines(BATCH)).await
    }

    /// Takes tasks from holders whose lease ran out; delegations are the sweeper's.
    pub async fn expire_leases(&self) -> Result<Report> {
        let tasks = self.tasks();
        self.sweep_all(|| tasks.expire_worker_leases(BATCH)).await
    }

    /// Ends inference that nobody took in time.
    pub async fn time_out_pending(&self) -> Result<Report> {
        let tasks = self.tasks();
        let limit_ms = self.inner.options.inference_pending_timeout.map(millis);
        self.sweep_all(|| tasks.time_out_pending(limit_ms, BATCH)).await
    }

    /// Removes finished inference whose retention is over, and what deltas left behind.
    pub async fn remove_expired(&self) -> Result<Report> {
        let keep_ms = self.inner.options.inference_retention.map(millis);
        let removed = self.inner.tasks.remove_expired(keep_ms, BATCH).await?;
        Ok(Report { scanned: removed, changed: removed })
    }

    async fn forget_deltas(&self) -> Result<Report> {
        let changed = self.inner.sources.forget(BATCH).await?;
        Ok(Report { scanned: changed, changed })
    }

    /// Ends tasks, and requests, whose question nobody answered in time.
    pub async fn expire_approvals(&self) -> Result<Report> {
        let tasks = self.tasks();
        let mut report = self.sweep_all(|| tasks.expire_approvals(BATCH)).await?;
        let requests = self.approvals().expire_requests(BATCH).await?;
        report.scanned += requests;
        report.changed += requests;
        Ok(report)
    }

    /// Ends sessions that fell silent; what goes back with a session goes back.
    ///
    /// While the database is away nobody can renew a session, and when it comes back they all seem
    /// silent. So a node ends none before it has been in touch with the database for a session's
    /// whole life, without a gap: by then all who are alive have renewed theirs, through any node.
    /// The same holds for a node that has just started, or was stopped and goes on.
    pub async fn expire_sessions(&self) -> Result<Report> {
        self.renew_overdue_streams().await?;
        let expired = self.inner.sessions.expire(BATCH, &self.inner.touch).await?;
        let report = Report { scanned: expired.len(), changed: expired.len() };
        for session in expired {
            // What is left behind when this fails is found by whoever settles closed sessions.
            self.lose_session(session).await?;
        }
        Ok(report)
    }

    /// Looks once more at sessions that were closed a while ago. Whoever closed one, or whoever had
    /// a stream of it and gave it something meanwhile, may have died before everything went back.
    pub async fn settle_sessions(&self) -> Result<Report> {
        let unsettled = self.inner.sessions.unsettled(TTL_MS, BATCH).await?;
        let scanned = unsettled.empty.len() + unsettled.holding.len();
        let (mut settled, mut failed) = (unsettled.empty, None);
        for (session, reason) in unsettled.holding {
            let gone = match reason == CLOSED {
                true => self.release_held(session, "the session was closed").await,
                false => self.lose_session(session).await,
            };
            // One that cannot be settled holds up no other, and is looked at again.
            match gone {
                Ok(()) => settled.push(session),
                Err(error) => failed = Some(error),
            }
        }
        let changed = settled.len();
        if changed > 0 {
            self.inner.sessions.settle(settled).await?;
        }
        failed.map_or(Ok(Report { scanned, changed }), Err)
    }

    /// Takes back what goes back with a session that fell silent; leases decide over the rest.
    async fn lose_session(&self, session: SessionId) -> Result<()> {
        let lost = self.inner.tasks.lose_session(&session.to_string()).await?;
        self.noticed(&lost);
        Ok(())
    }

    async fn fold_tally(&self) -> Result<Report> {
        self.inner.tasks.fold_tally().await?;
        Ok(Report::default())
    }

    /// Makes the counts of limits those of the tasks, tells which were not, and folds those of
    /// connections that are gone.
    pub async fn fold_counts(&self) -> Result<Report> {
        // First: a lane that is counted to hold nothing is removed.
        let drifted = self.inner.tasks.recount().await?;
        for Drift { what, counted, there_are, .. } in drifted.iter().take(TOLD_DRIFTS) {
            tracing::warn!(
                %what, counted_active = counted.0, counted_pending = counted.1,
                active = there_are.0, pending = there_are.1,
                "a count of tasks was not true and is mended; somebody has written it by hand"
            );
        }
        if drifted.len() > TOLD_DRIFTS {
            tracing::warn!(more = drifted.len() - TOLD_DRIFTS, "more counts were not true");
        }
        self.inner.tasks.fold_counts().await?;
        Ok(Report { scanned: drifted.len(), changed: drifted.len() })
    }

    async fn forget_sessions(&self) -> Result<Report> {
        let changed = self.inner.sessions.forget(SESSION_MEMORY_MS, BATCH).await?;
        Ok(Report { scanned: changed, changed })
    }

    /// Sweeps batch by batch until one is not full.
    pub(super) async fn sweep_all<F>(&self, sweep: impl Fn() -> F) -> Result<Report>
    where
        F: Future<Output = windlass_store::error::Result<SweepReport>>,
    {
        let mut report = Report::default();
        loop {
            let swept = sweep().await?;
            report.scanned += swept.scanned;
            report.changed += swept.changed.len();
            self.noticed(&swept);
            if swept.scanned < BATCH || swept.changed.is_empty() {
                return Ok(report);
            }
        }
    }

    pub(super) fn noticed(&self, swept: &SweepReport) {
        if swept.changed.is_empty() {
            return;
        }
        // A stream that has lost its task is told by the log, which knows under which lease.
        for (task, state) in &swept.changed {
            if state.is_terminal() {
                self.inner.ended(*task);
            }
        }
        if swept.changed.iter().any(|(_, state)| state.is_claimable()) {
            self.came_back();
        }
        self.tell_event();
    }

    /// Something is in line again, in a queue that nobody named.
    pub(super) fn came_back(&self) {
        self.inner.dispatcher.wake_everything();
        self.inner.store.tell(Wake::Everything);
    }

    /// Looks after a duty from now on.
    pub fn add_duty(&self, duty: Arc<dyn Duty>) {
        let name = duty.name();
        if self.inner.options.without_duties.iter().any(|off| off == name) {
            return;
        }
        let counters = self.inner.duties.add(name);
        let mine = Arc::new(Mutex::new(None));
        self.spawn_every(name, duty.every(), move |inner| {
            let (duty, counters) = (Arc::clone(&duty), Arc::clone(&counters));
            let mine = Arc::clone(&mine);
            let engine = Engine { inner };
            async move { engine.run_duty(duty, &counters, &mine).await }
        });
    }

    async fn run_duty(
        &self,
        duty: Arc<dyn Duty>,
        counters: &Counters,
        mine: &Mutex<Option<Instant>>,
    ) {
        if *self.inner.phase.borrow() != Phase::Running {
            return;
        }
        let name = duty.name();
        match self.has_duty(&*duty, mine).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                counters.errors.fetch_add(1, Ordering::Relaxed);
                return tracing::warn!(duty = name, %error, "nobody knows whose duty it is");
            }
        }
        let engine = self.clone();
        let swept = tokio::spawn(async move { duty.sweep(&engine).await }).await;
        counters.runs.fetch_add(1, Ordering::Relaxed);
        match swept {
            Ok(Ok(report)) => {
                counters.changed.fetch_add(report.changed as u64, Ordering::Relaxed);
                if report.changed > 0 {
                    tracing::debug!(duty = name, changed = report.changed, "swept");
                }
            }
            Ok(Err(error)) => {
                counters.errors.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(duty = name, %error, "a duty failed; it is tried again");
            }
            Err(_) => {
                counters.panics.fetch_add(1, Ordering::Relaxed);
                tracing::error!(duty = name, "a duty panicked; it is tried again");
            }
        }
    }

    /// Whether this node does the duty now.
    async fn has_duty(&self, duty: &dyn Duty, mine: &Mutex<Option<Instant>>) -> Result<bool> {
        if self.inner.store.dialect() == Dialect::Sqlite {
            return Ok(true);
        }
        let known = *mine.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_some_and(|until| Instant::now() < until) {
            return Ok(true);
        }
        // Kept for two rounds and asked for again before each: when a node dies, another one goes
        // on after two rounds, so that a lost lease is found soon.
        let round = duty.every().clamp(Duration::from_secs(1), Duration::from_secs(60));
        let ms = 2 * round.as_millis() as i64;
        let (taken, now) = self.inner.nodes.take_duty(duty.name(), self.inner.node, ms).await?;
        // Also where another node has it: whoever takes a duty over has watched as long as it.
        self.inner.touch.seen(now);
        let until = taken.then(|| Instant::now() + round.mul_f64(0.8));
        *mine.lock().unwrap_or_else(PoisonError::into_inner) = until;
        Ok(taken)
    }
}
