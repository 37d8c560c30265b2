//! Delegations that the caller runs elsewhere and only reports. No lease guards them.

use super::{Decision, change, illegal};
use crate::failure::TaskError;
use crate::profile::Profile;
use crate::refusal::Refusal;
use crate::snapshot::Snapshot;
use crate::state::{Event, State};
use crate::time::Timestamp;
use serde_json::json;

/// Forward only; the same status again is nothing new.
pub(super) fn report(
    task: &Snapshot,
    to: State,
    result: &Option<String>,
    error: &Option<TaskError>,
    holder: &str,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    if task.profile == Profile::Ledger && task.status == to {
        return Ok(Decision::Nothing);
    }
    let mut after = task.clone();
    if to.is_held() {
        after.claimed_by = Some(holder.to_owned());
        after.claimed_at.get_or_insert(now);
        if to == State::Running {
            after.started_at.get_or_insert(now);
        }
        // A beat that came before counts: from the first one on, silence makes it stuck.
        let expiry = |beat: Timestamp| beat.plus_ms(task.profile.rules().lease_ms);
        after.lease_expires_at = task.last_heartbeat_at.map(expiry);
    } else {
        after.drop_lease();
    }
    let mut metadata = None;
    if to == State::Completed {
        after.result = result.clone();
    }
    if to.needs_error() {
        let unsaid = || TaskError::new("UNKNOWN", "the caller reported no error");
        let error = error.clone().unwrap_or_else(unsaid);
        metadata = Some(json!({
            "error": error, "attempt": task.attempt, "session": task.claimed_by,
        }));
        after.error = Some(error);
    }
    change(task, Event::Report, to, after, metadata, now)
}

/// Touches only what has not ended; staleness counts from the first beat on.
pub(super) fn beat(task: &Snapshot, now: Timestamp) -> Result<Decision, Refusal> {
    if task.profile != Profile::Ledger {
        return Err(illegal(task, Event::Report));
    }
    if task.status.is_terminal() {
        return Ok(Decision::Nothing);
    }
    let mut after = task.clone();
    after.last_heartbeat_at = Some(now);
    after.updated_at = now;
    if task.status.is_held() {
        after.lease_expires_at = Some(now.plus_ms(task.profile.rules().lease_ms));
    }
    Ok(Decision::Touch(Box::new(after)))
}
