//! What time and operators do to a task: lost leases and sessions, deadlines, cancellation.
//!
//! Each rule checks its own condition again, so that a sweep that raced a heartbeat or a
//! completion changes nothing.

use super::finish::{end, exhausted, give_back, try_again};
use super::{Decision, change, illegal};
use crate::failure::TaskError;
use crate::profile::{Kind, MAX_RELEASES, Profile, WhenLost};
use crate::refusal::Refusal;
use crate::snapshot::Snapshot;
use crate::state::{Event, State};
use crate::time::Timestamp;

/// Whether the lease (of a ledger delegation: the expected beat) has run out. A task that never
/// beat and has no expiry is never stale: the first-beat free pass.
pub fn is_stale(task: &Snapshot, now: Timestamp) -> bool {
    task.status.is_held() && task.lease_expires_at.is_some_and(|expiry| expiry <= now)
}

/// Whether the deadline has passed. Checked before staleness: a row that is both ends `failed`.
pub fn is_overdue(task: &Snapshot, now: Timestamp) -> bool {
    !task.status.is_terminal() && task.deadline_at.is_some_and(|deadline| deadline <= now)
}

pub(super) fn lose_lease(task: &Snapshot, now: Timestamp) -> Result<Decision, Refusal> {
    if !task.status.is_held() {
        return Err(illegal(task, Event::LoseLease));
    }
    if is_overdue(task, now) {
        return exceed_deadline(task, now);
    }
    if !is_stale(task, now) {
        return Err(Refusal::NotDue);
    }
    if task.status == State::Claimed && task.profile != Profile::Ledger {
        return give_back(task, Event::LoseLease, now);
    }
    match task.profile.rules().when_lost {
        WhenLost::Release => give_back(task, Event::LoseLease, now),
        WhenLost::Stuck => end(task, Event::LoseLease, State::Stuck, &TaskError::stale(), now),
        WhenLost::Retry => {
            let error = TaskError::lease_expired();
            if task.retry_count < task.max_retries {
                try_again(task, Event::LoseLease, &error, now, now)
            } else {
                lose_last(task, exhausted(task), &error, now)
            }
        }
    }
}

/// What the sweeper does to a delegation. Its own threshold counts, whatever the beat before was
/// promised; one that never beat since it was taken is never silent. A ledger delegation is in
/// flight from its submit on: one that beat and fell silent is stuck wherever it stands, and as no
/// lease guards it, the sweeper reports it so.
pub(super) fn delegation(
    task: &Snapshot,
    stuck_ms: i64,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    if task.profile.kind() != Kind::Delegation || task.status.is_terminal() {
        return Err(illegal(task, Event::LoseLease));
    }
    if is_overdue(task, now) {
        return exceed_deadline(task, now);
    }
    let is_ledger = task.profile == Profile::Ledger;
    let has_beaten = is_ledger || (task.status.is_held() && task.lease_expires_at.is_some());
    let beat = task.last_heartbeat_at.filter(|_| has_beaten);
    if beat.is_none_or(|beat| beat.plus_ms(stuck_ms) > now) {
        return Err(Refusal::NotDue);
    }
    if task.status == State::Claimed && !is_ledger {
        return give_back(task, Event::LoseLease, now);
    }
    let event = if task.status.is_held() { Event::LoseLease } else { Event::Report };
    end(task, event, State::Stuck, &TaskError::stale(), now)
}

/// The last lease is lost. A job whose policy lets it fail fails by LEASE_EXPIRED like by any other
/// error; the history says that nobody told so.
fn lose_last(
    task: &Snapshot,
    to: State,
    error: &TaskError,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    if to != State::Failed {
        return end(task, Event::LoseLease, to, error, now);
    }
    let failed = end(task, Event::Fail, to, error, now)?;
    Ok(not_told(failed, LEASE_LOST))
}

/// The holder did not say so: its late finish lost the lease, it did not finish twice.
fn not_told(mut decision: Decision, why: &str) -> Decision {
    if let Decision::Change(change) = &mut decision
        && let Some(metadata) = &mut change.metadata
    {
        metadata[why] = true.into();
    }
    decision
}

/// Whether the history's row of a finish was written by a sweep, not by the holder.
pub fn is_not_told(metadata: &serde_json::Value) -> bool {
    [SESSION_LOST, LEASE_LOST].iter().any(|why| metadata[*why] == true)
}

const SESSION_LOST: &str = "session_lost";
const LEASE_LOST: &str = "lease_lost";

/// For jobs the lease decides; only inference and delegations before their first beat go back.
pub(super) fn lose_session(
    task: &Snapshot,
    session: &str,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    let held = task.status.is_held() && task.claimed_by.as_deref() == Some(session);
    let goes_back = match task.profile {
        Profile::Inference => true,
        Profile::Delegation => task.last_heartbeat_at.is_none(),
        Profile::Job | Profile::Ledger => false,
    };
    if !(held && goes_back) {
        return Ok(Decision::Nothing);
    }
    Ok(not_told(give_back(task, Event::Release, now)?, SESSION_LOST))
}

pub(super) fn exceed_deadline(task: &Snapshot, now: Timestamp) -> Result<Decision, Refusal> {
    if task.status.is_terminal() {
        return Err(illegal(task, Event::ExceedDeadline));
    }
    if !is_overdue(task, now) {
        return Err(Refusal::NotDue);
    }
    end(task, Event::ExceedDeadline, State::Failed, &TaskError::deadline_exceeded(), now)
}

pub(super) fn time_out_pending(
    task: &Snapshot,
    limit_ms: Option<i64>,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    // Whose profile has no limit waits for ever, whatever is asked.
    let limit = task.profile.rules().pending_ms.map(|ms| limit_ms.unwrap_or(ms));
    let (State::Pending, Some(limit_ms)) = (task.status, limit) else {
        return Err(illegal(task, Event::TimeOutPending));
    };
    // What was not due yet could not be taken: only the time in line counts.
    if task.entered_at.max(task.run_at).plus_ms(limit_ms) > now {
        return Err(Refusal::NotDue);
    }
    let error = TaskError::pending_timeout(limit_ms);
    end(task, Event::TimeOutPending, State::Failed, &error, now)
}

pub(super) fn release_too_often(task: &Snapshot, now: Timestamp) -> Result<Decision, Refusal> {
    if task.release_count < MAX_RELEASES {
        return Err(Refusal::NotDue);
    }
    let error = TaskError::released_too_often(task.release_count);
    end(task, Event::ReleaseTooOften, State::Poisoned, &error, now)
}

/// Cancelling twice is cancelling once.
pub(super) fn cancel(task: &Snapshot, now: Timestamp) -> Result<Decision, Refusal> {
    if task.status == State::Cancelled {
        return Ok(Decision::Nothing);
    }
    let mut after = task.clone();
    after.drop_lease();
    after.approval_id = None;
    change(task, Event::Cancel, State::Cancelled, after, None, now)
}
