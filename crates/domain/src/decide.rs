//! The one place where a command meets a task.
//!
//! `decide` is the implementation of every cold operation and the oracle of every hot one: the
//! conformance run compares the SQL statements with it.
//!
//! Invariant: every [`Change`] is a row of `TRANSITIONS`; `change` refuses anything else.
//! Absent: nothing is written, nobody is told. A decision is data.

mod finish;
mod hold;
mod ledger;
mod park;
mod sweep;

pub use sweep::is_not_told;

use crate::command::Command;
use crate::id::LeaseId;
use crate::refusal::Refusal;
use crate::snapshot::Snapshot;
use crate::state::{Event, State};
use crate::time::Timestamp;
use crate::transition;

/// A transition that may be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// What happened.
    pub event: Event,
    /// Where the task stood.
    pub from: State,
    /// The task afterwards.
    pub after: Snapshot,
    /// The lease under which it happened, for the history.
    pub lease_id: Option<LeaseId>,
    /// What the history keeps beside it: fixed keys for each event.
    pub metadata: Option<serde_json::Value>,
}

/// What follows from a command.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The task moves.
    Change(Box<Change>),
    /// The task stays where it is, with a renewed lease or a later beat.
    Touch(Box<Snapshot>),
    /// Nothing is to be done, and that is no error.
    Nothing,
}

/// What `command` does to `task` at `now`, or which rule forbids it.
pub fn decide(task: &Snapshot, command: &Command, now: Timestamp) -> Result<Decision, Refusal> {
    match command {
        Command::Claim { session, lease_id, claim_id, lease_ms, start } => {
            hold::claim(task, session, *lease_id, *claim_id, *lease_ms, *start, now)
        }
        Command::Start { lease_id } => hold::start(task, *lease_id, now),
        Command::Heartbeat { lease_id, lease_ms } => {
            hold::heartbeat(task, *lease_id, *lease_ms, now)
        }
        Command::Complete { lease_id, result, usage } => {
            finish::complete(task, *lease_id, result, usage.as_ref(), now)
        }
        Command::Fail { lease_id, error, retry_after_ms, chance, usage } => {
            let failed = finish::fail(task, *lease_id, error, *retry_after_ms, *chance, now)?;
            Ok(finish::spent(failed, usage.as_ref()))
        }
        Command::Release { lease_id } => finish::release(task, *lease_id, now),
        Command::LoseLease => sweep::lose_lease(task, now),
        Command::LoseSession { session } => sweep::lose_session(task, session, now),
        Command::ExceedDeadline => sweep::exceed_deadline(task, now),
        Command::TimeOutPending { limit_ms } => sweep::time_out_pending(task, *limit_ms, now),
        Command::ReleaseTooOften => sweep::release_too_often(task, now),
        Command::Cancel => sweep::cancel(task, now),
        Command::AskApproval { lease_id, approval_id, question } => {
            park::ask_approval(task, *lease_id, *approval_id, question, now)
        }
        Command::Approve(answer) => park::approve(task, answer, now),
        Command::Deny(answer) => park::deny(task, answer, now),
        Command::ExpireApproval => park::expire_approval(task, now),
        Command::Wait { lease_id } => park::wait(task, *lease_id, now),
        Command::Wake => park::wake(task, now),
        Command::Report { to, result, error, holder } => {
            ledger::report(task, *to, result, error, holder, now)
        }
        Command::ReportBeat => ledger::beat(task, now),
        Command::SweepDelegation { stuck_ms } => sweep::delegation(task, *stuck_ms, now),
    }
}

/// Fencing for what is recorded beside a task: a running task's lease must match. A lease that ran
/// out and was taken by nobody still counts, because the effect has happened already.
pub fn may_record(task: &Snapshot, lease: LeaseId) -> Result<(), Refusal> {
    require_lease(task, lease)?;
    if task.status == State::Running { Ok(()) } else { Err(illegal(task, Event::Start)) }
}

/// Fencing before an effect: the lease must match and be unexpired.
fn require_live_lease(task: &Snapshot, lease: LeaseId, now: Timestamp) -> Result<(), Refusal> {
    require_lease(task, lease)?;
    match task.lease_expires_at {
        Some(expiry) if expiry <= now => Err(Refusal::LeaseLost { state: task.status }),
        _ => Ok(()),
    }
}

/// Fencing after an effect: a matching lease suffices until a sweep or a claim has taken it.
fn require_lease(task: &Snapshot, lease: LeaseId) -> Result<(), Refusal> {
    if task.lease_id == Some(lease) {
        Ok(())
    } else {
        Err(Refusal::LeaseLost { state: task.status })
    }
}

/// Turns `after` into a change, if the machine permits it.
fn change(
    task: &Snapshot,
    event: Event,
    to: State,
    mut after: Snapshot,
    metadata: Option<serde_json::Value>,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    if !transition::permits(task.profile, Some(task.status), event, to) {
        return Err(illegal(task, event));
    }
    after.status = to;
    after.ready = after.ready && to.is_claimable();
    after.entered_at = now;
    after.updated_at = now;
    let lease_id = task.lease_id.or(after.lease_id);
    let change = Change { event, from: task.status, after, lease_id, metadata };
    Ok(Decision::Change(Box::new(change)))
}

fn illegal(task: &Snapshot, event: Event) -> Refusal {
    let allowed = transition::events_from(task.profile, task.status);
    Refusal::IllegalTransition { state: task.status, event, allowed }
}
