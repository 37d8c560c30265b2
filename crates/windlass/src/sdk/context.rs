//! What a handler has in its hands: its task, its past, and the calls to do durable things.
//!
//! Invariant: once the task is parked, lost or cancelled, no call of its context returns: the
//! handler stops where it is, and its worker drops it; after a cancel a little later.

use super::host::{CallError, Host, HostBeat, PastStep, Work};
use super::{Failure, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use windlass_domain::id::{LeaseId, SessionId, StepId, TaskId};
use windlass_domain::step::{StepKey, StepState};
use windlass_domain::time::Timestamp;
use windlass_domain::usage::Usage;
use windlass_domain::validate;
use windlass_store::task::Holder;

/// How long a context waits before it repeats a call that got no answer.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What a handler may know of its task.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[allow(missing_docs)] // Named like the fields of a task.
pub struct TaskInfo {
    pub id: TaskId,
    pub name: Option<String>,
    pub queue: String,
    pub attempt: i32,
    pub retry_count: i32,
    pub max_retries: i32,
    pub tags: BTreeMap<String, String>,
    pub agent: Option<String>,
    pub venture: Option<String>,
    pub caller: Option<String>,
    pub callee: Option<String>,
    pub parent_id: Option<TaskId>,
    pub replay_of: Option<TaskId>,
    pub correlation_id: Option<String>,
    pub deadline_at: Option<Timestamp>,
    pub created_at: Timestamp,
}

/// Why a handler stops before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The task waits; somebody goes on with it later.
    Parked,
    /// The lease is gone.
    Lost,
}

/// What a context begins with.
pub(crate) struct Start {
    pub host: Arc<dyn Host>,
    pub session: SessionId,
    pub lease_ms: Option<i64>,
    pub work: Work,
    pub strict: bool,
    pub cancelled: watch::Receiver<bool>,
    pub ended: mpsc::Sender<Ended>,
    /// What the attempt took so far; its end tells it.
    pub usage: Arc<Mutex<Option<Usage>>>,
}

/// A handler's context; cheap to clone.
#[derive(Clone)]
pub struct Ctx {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) host: Arc<dyn Host>,
    session: SessionId,
    lease: LeaseId,
    lease_ms: Option<i64>,
    task: TaskInfo,
    checkpoint: Option<Json>,
    strict: bool,
    past: Mutex<HashMap<StepId, Past>>,
    occurrences: Mutex<HashMap<(String, String), i32>>,
    parallel: AtomicUsize,
    cancelled: watch::Receiver<bool>,
    ended: mpsc::Sender<Ended>,
    usage: Arc<Mutex<Option<Usage>>>,
}

/// A step that was recorded.
#[derive(Clone, Debug)]
pub(super) struct Past {
    name: String,
    pub(super) status: StepState,
    pub(super) result: Json,
    visited: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ctx {
    /// The context of one attempt. Reads the rest of a long past, however long that takes.
    pub(crate) async fn begin(start: Start) -> Result<Ctx, CallError> {
        let Start { host, session, lease_ms, work, strict, cancelled, ended, usage } = start;
        let Work { task, lease, checkpoint, mut steps, mut steps_complete, .. } = work;
        while !steps_complete {
            let after = steps.last().map_or(0, |step| step.seq);
            let (more, complete) = patiently(task.id, || host.steps(task.id, after)).await?;
            steps_complete = complete || more.is_empty();
            steps.extend(more);
        }
        let past = |step: PastStep| {
            let result = step.result.unwrap_or_default();
            (step.id, Past { name: step.name, status: step.status, result, visited: false })
        };
        Ok(Ctx {
            inner: Arc::new(Inner {
                host,
                session,
                lease,
                lease_ms,
                task,
                checkpoint,
                strict,
                past: Mutex::new(steps.into_iter().map(past).collect()),
                occurrences: Mutex::default(),
                parallel: AtomicUsize::new(0),
                cancelled,
                ended,
                usage,
            }),
        })
    }

    /// The task.
    pub fn task(&self) -> &TaskInfo {
        &self.inner.task
    }

    /// The checkpoint that the task had when this attempt began.
    pub fn last_checkpoint<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let read = self.inner.checkpoint.clone().map(serde_json::from_value).transpose();
        read.map_err(|e| Failure::new("CHECKPOINT_MISMATCH", format!("the checkpoint: {e}")))
    }

    /// Keeps a checkpoint: where the work can go on after a crash.
    pub async fn checkpoint(&self, value: &impl Serialize) -> Result<()> {
        let json = serde_json::to_value(value)?;
        self.tell(Some(validate::checkpoint(&json).map_err(refused)?), None).await
    }

    /// Tells how far the work has come; for people.
    pub async fn progress(&self, value: &impl Serialize) -> Result<()> {
        let json = serde_json::to_value(value)?;
        self.tell(None, Some(validate::progress(&json).map_err(refused)?)).await
    }

    /// Adds to what this attempt took (tokens of a model, say). It is told with the attempt's end,
    /// completed or failed, and shown as the task's `usage`. Call this inside the step that took
    /// it, so that an attempt that goes past the step does not count it again. Numbers whose names
    /// the API refuses are not counted.
    pub fn add_usage(&self, more: &Usage) {
        let mut usage = lock(&self.inner.usage);
        let sum = usage.clone().unwrap_or_default().plus(more);
        // The end of the attempt would be refused with it.
        match serde_json::to_value(&sum).map(|sum| Usage::told("/usage", &sum)) {
            Ok(Ok(_)) => *usage = Some(sum),
            Ok(Err(refusal)) => {
                tracing::warn!(task = %self.inner.task.id, %refusal, "usage is not counted");
            }
            Err(error) => tracing::warn!(task = %self.inner.task.id, %error, "usage is no JSON"),
        }
    }

    async fn tell(&self, checkpoint: Option<String>, progress: Option<String>) -> Result<()> {
        let (task, lease) = (self.inner.task.id, self.inner.lease);
        let told = self
            .call(|| {
                let (checkpoint, progress) = (checkpoint.clone(), progress.clone());
                let beat = HostBeat { task, lease, checkpoint, progress };
                self.inner.host.tell(self.inner.lease_ms, beat, self.actor())
            })
            .await?;
        if told.lost.contains(&lease) || told.cancelled.contains(&lease) {
            return self.end(Ended::Lost).await;
        }
        Ok(())
    }

    /// Whether somebody has cancelled the task. The handler has a few seconds to clean up.
    pub fn is_cancelled(&self) -> bool {
        *self.inner.cancelled.borrow()
    }

    /// Resolves when somebody cancels the task.
    pub async fn cancelled(&self) {
        let mut cancelled = self.inner.cancelled.clone();
        if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
            // The worker is gone, and this handler with it.
            std::future::pending().await
        }
    }

    /// Runs steps side by side: the order in which they are begun may change from attempt to
    /// attempt, so it is not checked in here. Waits are refused in here, because a task that waits
    /// has no worker that could run the others.
    pub async fn parallel<T>(&self, work: impl Future<Output = T>) -> T {
        self.inner.parallel.fetch_add(1, Ordering::SeqCst);
        let _leave = Leave(&self.inner.parallel);
        work.await
    }

    pub(super) fn is_parallel(&self) -> bool {
        self.inner.parallel.load(Ordering::SeqCst) > 0
    }

    pub(super) fn holder(&self) -> Holder {
        let Inner { task, lease, session, .. } = &*self.inner;
        Holder::new(task.id, *lease, session.to_string())
    }

    pub(super) fn lease(&self) -> LeaseId {
        self.inner.lease
    }

    pub(super) fn actor(&self) -> String {
        self.inner.session.to_string()
    }

    /// Which repetition of this name and these inputs it is, counted within the attempt.
    pub(super) fn occurrence(&self, name: &str, inputs: &Json) -> i32 {
        let key = (name.to_owned(), windlass_domain::json::digest(inputs));
        let mut occurrences = lock(&self.inner.occurrences);
        let next = occurrences.entry(key).or_default();
        *next += 1;
        *next - 1
    }

    /// What was recorded of a step, if anything was. A step that was not, begins now: what is
    /// recorded and was not revisited before it is a mismatch.
    pub(super) fn revisit(&self, key: &StepKey) -> Result<(StepId, Option<Past>)> {
        let id = key.id(self.inner.task.id);
        let mut past = lock(&self.inner.past);
        if let Some(step) = past.get_mut(&id) {
            step.visited = true;
            return Ok((id, Some(step.clone())));
        }
        if !self.inner.strict || self.is_parallel() {
            return Ok((id, None));
        }
        let mut missed: Vec<&str> =
            past.values().filter(|step| !step.visited).map(|step| step.name.as_str()).collect();
        if missed.is_empty() {
            return Ok((id, None));
        }
        missed.sort_unstable();
        missed.dedup();
        let message = format!(
            "step `{}` begins, but the recorded steps {} were not revisited before it: the handler \
             has changed. Run the old version, or replay the task",
            key.name,
            missed.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        );
        Err(Failure::new("STEP_MISMATCH", message))
    }

    /// Counts a recorded step as revisited.
    pub(super) fn skip(&self, key: &StepKey) {
        if let Some(step) = lock(&self.inner.past).get_mut(&key.id(self.inner.task.id)) {
            step.visited = true;
        }
    }

    /// A step was done in this attempt.
    pub(super) fn did(&self, id: StepId, name: &str, result: Json) {
        let name = name.to_owned();
        let step = Past { name, status: StepState::Done, result, visited: true };
        lock(&self.inner.past).insert(id, step);
    }

    /// Repeats a call while it gets no answer; ids were made before the first try. The worker's
    /// heartbeats end the handler should the lease be lost meanwhile.
    pub(super) async fn call<'a, T, F>(&'a self, call: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T, CallError>> + 'a,
    {
        match patiently(self.inner.task.id, call).await {
            Ok(answer) => Ok(answer),
            Err(error) if error.code == "lease_lost" => self.end(Ended::Lost).await,
            Err(error) if error.code == "in_doubt" => self.end(Ended::Parked).await,
            Err(error) => Err(Failure::of_call(error)),
        }
    }

    /// Ends the handler: the worker drops it, so this never returns.
    pub(super) async fn end<T>(&self, ended: Ended) -> T {
        let _ = self.inner.ended.send(ended).await;
        std::future::pending().await
    }
}

/// Repeats a call of a task while it gets no answer.
async fn patiently<T, F>(task: TaskId, call: impl Fn() -> F) -> Result<T, CallError>
where
    F: Future<Output = Result<T, CallError>>,
{
    let mut pause = FIRST_PAUSE;
    loop {
        match call().await {
            Err(error) if error.is_temporary => {
                tracing::warn!(%task, code = error.code, "trying again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            answer => return answer,
        }
    }
}

struct Leave<'a>(&'a AtomicUsize);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

pub(super) fn refused(refusal: windlass_domain::refusal::Refusal) -> Failure {
    Failure::new("INVALID_OUTPUT", refusal.to_string())
}
