//! Steps, waits, signals and replays: the store's operations, and whoever must be told.

use std::time::Duration;
use uuid::Uuid;
use windlass_domain::id::{ApprovalId, LeaseId, StepId, TaskId};
use windlass_domain::replay::Plan;
use windlass_domain::state::State;
use windlass_domain::wait::Until;
use windlass_store::approval::{ReplayRequest, Requested};
use windlass_store::group::Outcome;
use windlass_store::signal::{NewSignal, Signals};
use windlass_store::step::Step;
use windlass_store::task::{
    BeginStep, Begun, Consent, Park, Parked, RecordStep, Recorded, Replay, Replayed, Resolution,
    Signalled, StepEnd,
};

use windlass_store::trouble::Act;

use super::duty::{BATCH, Report};
use super::held::Gone;
use super::{Engine, Result};

/// How much of the log the clearing of old results walks in one transaction.
const EXPIRY_PAGE: usize = 1_000;

impl Engine {
    /// Records steps that are done and may run twice. Concurrent calls share a transaction.
    pub async fn record_steps(&self, items: Vec<RecordStep>) -> Vec<Outcome<Recorded>> {
        self.inner.tasks.record_steps(items).await
    }

    /// Writes the intent of a step that must not run twice.
    pub async fn begin_step(&self, item: BeginStep) -> Result<Begun> {
        let (task, lease) = (item.holder.task, item.holder.lease);
        let begun = self.inner.tasks.begin_step(item).await;
        if begun.is_err() {
            // In doubt, or lost: nobody here holds it any more.
            self.gone(task, lease).await?;
        }
        Ok(begun?)
    }

    /// Tells how a step ended that was begun under this lease; with the number of its run, of that
    /// run alone.
    pub async fn end_step(
        &self,
        id: StepId,
        lease: LeaseId,
        run: Option<i64>,
        actor: &str,
        end: StepEnd,
    ) -> Result<Step> {
        Ok(self.inner.tasks.end_step(id, lease, run, actor.to_owned(), end).await?)
    }

    /// A person decides over a step in doubt; its task goes on.
    pub async fn resolve_step(
        &self,
        id: StepId,
        resolution: Resolution,
        actor: &str,
        reason: Option<String>,
    ) -> Result<Step> {
        let step = self.inner.tasks.resolve_step(id, resolution, actor.to_owned(), reason).await?;
        self.came_back();
        self.tell_event();
        Ok(step)
    }

    /// Parks a task until something comes, unless it is there already.
    pub async fn park(&self, item: Park) -> Result<Parked> {
        let (task, lease) = (item.holder.task, item.holder.lease);
        let (until, timeout_ms) = (item.until.clone(), item.timeout_ms);
        if let Until::Task(other) = until {
            // Before the question whether it has ended: an end between the two is not missed.
            self.inner.awaited.add(other);
        }
        let parked = self.inner.tasks.park(item).await?;
        if matches!(parked, Parked::Waiting(_)) {
            self.inner.held.remove(task, Some(lease.digest()), Gone::Finished);
            let soon = match until {
                Until::DelayMs(ms) => Some(ms),
                Until::Time(time) => Some(self.ms_until(time)),
                Until::Signal { .. } | Until::Task(_) => timeout_ms,
            };
            if let Some(ms) = soon.and_then(|ms| u64::try_from(ms).ok()) {
                self.inner.timers.ring_in(Duration::from_millis(ms));
            }
            self.inner.log.needed();
            self.tell_event();
        }
        Ok(parked)
    }

    /// Tells a signal to the task that waits for it, or keeps it for the one that will.
    pub async fn signal(&self, new: NewSignal) -> Result<Signalled> {
        let sent = self.inner.tasks.signal(new).await?;
        // Also for one that woke nobody: it held the task's row for a moment, and a claim that came
        // by meanwhile has skipped the row and waits.
        self.came_back();
        if sent.woke.is_some() {
            self.tell_event();
        }
        Ok(sent)
    }

    /// What a replay would do.
    pub async fn plan_replay(&self, replay: Replay) -> Result<Plan> {
        Ok(self.inner.tasks.plan_replay(replay).await?)
    }

    /// Makes a new task of a finished one, or says that a person must agree first.
    pub async fn replay(&self, replay: Replay, consent: Consent) -> Result<Replayed> {
        let replayed = self.inner.tasks.replay(replay, consent).await?;
        if matches!(replayed, Replayed::New(..)) {
            self.came_back();
            self.tell_event();
        }
        Ok(replayed)
    }

    /// Makes a new task of a finished one; if a person must agree, the question is opened, and the
    /// task is made when it is approved. `resolves` closes the origin's trouble with the new task.
    pub async fn request_replay(
        &self,
        replay: Replay,
        consent: Consent,
        requested_by: String,
        resolves: Option<Act>,
    ) -> Result<Requested> {
        let approval = ApprovalId(Uuid::now_v7());
        let announce = Some(self.announcement());
        let request = ReplayRequest { replay, consent, approval, requested_by, announce, resolves };
        let requested = self.inner.approvals.replay(request).await?;
        if matches!(requested, Requested::Task(_, false)) {
            self.came_back();
        }
        self.tell_event();
        Ok(requested)
    }

    /// Wakes tasks whose time has come.
    pub async fn wake_due(&self) -> Result<Report> {
        let tasks = self.tasks();
        self.sweep_all(|| tasks.wake_due(BATCH)).await
    }

    /// Wakes tasks that wait for others that have ended: the safety net under the log's tail.
    pub async fn wake_parents(&self) -> Result<Report> {
        let tasks = self.tasks();
        self.sweep_all(|| tasks.wake_parents(None, BATCH)).await
    }

    /// Clears the results of steps whose tasks finished long ago, and removes signals with them;
    /// also those that nobody took in time.
    pub async fn expire_steps(&self) -> Result<Report> {
        self.inner.tasks.forget_stray_waits(BATCH).await?;
        let signals = Signals::new(self.store().clone());
        let mut report = Report::default();
        loop {
            let forgotten = signals.forget_untaken(BATCH).await?;
            report.scanned += forgotten;
            report.changed += forgotten;
            if forgotten < BATCH {
                break;
            }
        }
        loop {
            let (scanned, changed) = self.inner.steps.expire(EXPIRY_PAGE).await?;
            report.scanned += scanned;
            report.changed += changed;
            if scanned < EXPIRY_PAGE {
                return Ok(report);
            }
        }
    }

    /// These tasks have ended; whoever waits for them goes on, however many they are.
    pub(super) async fn ended(&self, ended: Vec<TaskId>) {
        let swept = match self.inner.tasks.wake_parents(Some(ended.clone()), BATCH).await {
            Ok(swept) => swept,
            // The duty looks again.
            Err(error) => return tracing::debug!(%error, "waiting tasks were not woken yet"),
        };
        self.noticed(&swept);
        if swept.scanned < BATCH {
            return;
        }
        // The log's tail does not wait for all of them.
        let engine = self.clone();
        tokio::spawn(async move {
            let tasks = engine.tasks();
            let rest = || tasks.wake_parents(Some(ended.clone()), BATCH);
            if let Err(error) = engine.sweep_all(rest).await {
                tracing::debug!(%error, "not all waiting tasks were woken yet");
            }
        });
    }

    async fn gone(&self, task: TaskId, lease: LeaseId) -> Result<()> {
        let found = self.inner.tasks.show(task).await?;
        if found.is_some_and(|task| task.status == State::Waiting) {
            self.inner.held.remove(task, Some(lease.digest()), Gone::Finished);
            self.tell_event();
        }
        Ok(())
    }

    /// How far away a time is, by this node's clock: only to look at the right moment.
    fn ms_until(&self, time: windlass_domain::time::Timestamp) -> i64 {
        time.as_ms() - windlass_store::clock::Clock::System.now().as_ms()
    }
}
