//! Ending an attempt: complete, fail, release. A matching lease suffices, even an expired one.

use super::{Decision, change, require_lease};
use crate::failure::TaskError;
use crate::id::LeaseId;
use crate::profile::MAX_RELEASES;
use crate::refusal::Refusal;
use crate::retry::{self, Backoff, Class, OnExhausted};
use crate::snapshot::Snapshot;
use crate::state::{Event, State};
use crate::time::Timestamp;
use crate::usage::Usage;
use serde_json::{Value, json};

pub(super) fn complete(
    task: &Snapshot,
    lease: LeaseId,
    result: &Option<String>,
    usage: Option<&Usage>,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    require_lease(task, lease)?;
    let mut after = task.clone();
    after.drop_lease();
    after.result = result.clone();
    // The failures of earlier attempts stay in the history; a completed task shows none.
    after.error = None;
    let completed = change(task, Event::Complete, State::Completed, after, None, now)?;
    Ok(spent(completed, usage))
}

/// What the attempt took is added to what the earlier ones did; the history keeps its own share.
pub(super) fn spent(decision: Decision, usage: Option<&Usage>) -> Decision {
    match (decision, usage) {
        (Decision::Change(mut change), Some(usage)) => {
            let before = change.after.usage.as_ref();
            change.after.usage = Some(before.map_or_else(|| usage.clone(), |b| b.plus(usage)));
            change.metadata.get_or_insert_with(|| json!({}))["usage"] = json!(usage);
            Decision::Change(change)
        }
        (decision, _) => decision,
    }
}

pub(super) fn fail(
    task: &Snapshot,
    lease: LeaseId,
    error: &TaskError,
    retry_after_ms: Option<i64>,
    chance: f64,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    require_lease(task, lease)?;
    let delay = |backoff: &Backoff| {
        retry_after_ms.unwrap_or_else(|| backoff.delay_ms(task.retry_count, chance))
    };
    match retry::classify(&error.code, task.backoff.as_ref()) {
        Class::Poison => end(task, Event::Fail, State::Poisoned, error, now),
        Class::Final => end(task, Event::Fail, State::Failed, error, now),
        Class::Retry if task.retry_count < task.max_retries => {
            let default = Backoff::default();
            let delay_ms = delay(task.backoff.as_ref().unwrap_or(&default));
            try_again(task, Event::Fail, error, now.plus_ms(delay_ms), now)
        }
        Class::Retry => end(task, Event::Fail, exhausted(task), error, now),
    }
}

/// Where a task ends whose retries are used up: its policy decides, then its profile.
pub(super) fn exhausted(task: &Snapshot) -> State {
    match task.backoff.as_ref().and_then(|backoff| backoff.on_exhausted) {
        Some(OnExhausted::Poisoned) => State::Poisoned,
        Some(OnExhausted::Failed) => State::Failed,
        None if task.profile.rules().poison_when_exhausted => State::Poisoned,
        None => State::Failed,
    }
}

/// The task goes to `retry` and runs again at `run_at`.
pub(super) fn try_again(
    task: &Snapshot,
    event: Event,
    error: &TaskError,
    run_at: Timestamp,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    let mut after = task.clone();
    after.drop_holder();
    after.retry_count += 1;
    after.run_at = run_at;
    after.order_key = crate::order::order_key(task.priority, run_at);
    after.queue_up(now);
    after.error = Some(error.clone());
    let mut metadata = failure(task, error);
    metadata["retry_count"] = json!(after.retry_count);
    metadata["run_at"] = json!(run_at);
    change(task, event, State::Retry, after, Some(metadata), now)
}

/// The task ends badly; its last holder stays visible.
pub(super) fn end(
    task: &Snapshot,
    event: Event,
    to: State,
    error: &TaskError,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    let mut after = task.clone();
    after.drop_lease();
    after.approval_id = None;
    after.error = Some(error.clone());
    change(task, event, to, after, Some(failure(task, error)), now)
}

pub(super) fn release(
    task: &Snapshot,
    lease: LeaseId,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    require_lease(task, lease)?;
    give_back(task, Event::Release, now)
}

/// Back to `pending`, counted; too often ends it.
pub(super) fn give_back(
    task: &Snapshot,
    event: Event,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    let release_count = task.release_count.saturating_add(1).min(MAX_RELEASES);
    if release_count >= MAX_RELEASES {
        let mut worn = task.clone();
        worn.release_count = release_count;
        let error = TaskError::released_too_often(release_count);
        return end_as(task, worn, Event::ReleaseTooOften, State::Poisoned, &error, now);
    }
    let mut after = task.clone();
    after.drop_holder();
    after.release_count = release_count;
    after.queue_up(now);
    let metadata = json!({ "release_count": release_count, "session": task.claimed_by });
    change(task, event, State::Pending, after, Some(metadata), now)
}

fn end_as(
    task: &Snapshot,
    mut after: Snapshot,
    event: Event,
    to: State,
    error: &TaskError,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    after.drop_lease();
    after.error = Some(error.clone());
    change(task, event, to, after, Some(failure(task, error)), now)
}

/// What the history keeps of a failure: every one of them, with its attempt and session.
fn failure(task: &Snapshot, error: &TaskError) -> Value {
    json!({ "error": error, "attempt": task.attempt, "session": task.claimed_by })
}
