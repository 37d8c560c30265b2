//! Taking a task and keeping it: claim, start, heartbeat.

use super::{Decision, change, illegal, require_live_lease};
use crate::id::{ClaimId, LeaseId};
use crate::profile::{FirstLease, MAX_ATTEMPT, Profile};
use crate::refusal::Refusal;
use crate::snapshot::Snapshot;
use crate::state::{Event, State};
use crate::time::Timestamp;

#[allow(clippy::too_many_arguments)] // The fields of `Command::Claim`.
pub(super) fn claim(
    task: &Snapshot,
    session: &str,
    lease_id: LeaseId,
    claim_id: ClaimId,
    lease_ms: Option<i64>,
    start: bool,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    if task.status.is_claimable() && !task.ready && task.run_at > now {
        return Err(Refusal::NotDue);
    }
    let mut after = task.clone();
    after.ready = false;
    after.attempt = task.attempt.saturating_add(1).min(MAX_ATTEMPT);
    after.lease_id = Some(lease_id);
    after.lease_expires_at = match task.profile.rules().first_lease {
        FirstLease::Timed => Some(now.plus_ms(lease_length(task, lease_ms))),
        FirstLease::UntilFirstBeat => None,
    };
    after.claim_id = Some(claim_id);
    after.claimed_by = Some(session.to_owned());
    after.claimed_at = Some(now);
    after.last_heartbeat_at = None;
    if start {
        after.started_at = Some(now);
    }
    let to = if start { State::Running } else { State::Claimed };
    change(task, Event::Claim, to, after, None, now)
}

pub(super) fn start(task: &Snapshot, lease: LeaseId, now: Timestamp) -> Result<Decision, Refusal> {
    require_live_lease(task, lease, now)?;
    if task.status == State::Running {
        return Ok(Decision::Nothing);
    }
    let mut after = task.clone();
    after.started_at = Some(now);
    change(task, Event::Start, State::Running, after, None, now)
}

/// The first heartbeat of a claimed task starts it.
pub(super) fn heartbeat(
    task: &Snapshot,
    lease: LeaseId,
    lease_ms: Option<i64>,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    if task.profile == Profile::Ledger {
        return Err(illegal(task, Event::Start));
    }
    require_live_lease(task, lease, now)?;
    let mut after = task.clone();
    after.lease_expires_at = Some(now.plus_ms(lease_length(task, lease_ms)));
    after.last_heartbeat_at = Some(now);
    after.updated_at = now;
    if task.status == State::Claimed {
        after.started_at = Some(now);
        return change(task, Event::Start, State::Running, after, None, now);
    }
    Ok(Decision::Touch(Box::new(after)))
}

fn lease_length(task: &Snapshot, asked: Option<i64>) -> i64 {
    asked.unwrap_or(task.profile.rules().lease_ms)
}
