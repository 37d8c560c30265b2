//! Waiting without a worker: approvals, timers, signals, children.

use super::finish::end;
use super::{Decision, change, illegal, require_live_lease};
use crate::approval::{Answer, Question};
use crate::failure::TaskError;
use crate::id::{ApprovalId, LeaseId};
use crate::refusal::Refusal;
use crate::snapshot::Snapshot;
use crate::state::{Event, State};
use crate::time::Timestamp;
use serde_json::json;

pub(super) fn ask_approval(
    task: &Snapshot,
    lease: LeaseId,
    approval: ApprovalId,
    question: &Question,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    require_live_lease(task, lease, now)?;
    let mut after = task.clone();
    after.drop_holder();
    after.approval_id = Some(approval);
    let metadata =
        json!({ "approval": approval, "gate": question.gate, "digest": question.digest });
    change(task, Event::AskApproval, State::WaitingForApproval, after, Some(metadata), now)
}

pub(super) fn approve(
    task: &Snapshot,
    answer: &Answer,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    let mut after = task.clone();
    after.approval_id = None;
    after.queue_up(now);
    let metadata = Some(json!({}));
    let decision = change(task, Event::Approve, State::Pending, after, metadata, now)?;
    Ok(answered(decision, task, answer))
}

pub(super) fn deny(task: &Snapshot, answer: &Answer, now: Timestamp) -> Result<Decision, Refusal> {
    let error = TaskError::approval_denied(answer.comment.as_deref());
    let decision = end(task, Event::Deny, State::Failed, &error, now)?;
    Ok(answered(decision, task, answer))
}

pub(super) fn expire_approval(task: &Snapshot, now: Timestamp) -> Result<Decision, Refusal> {
    let error = TaskError::approval_expired();
    let decision = end(task, Event::ExpireApproval, State::Failed, &error, now)?;
    Ok(answered(decision, task, &Answer::default()))
}

/// The history says which question was answered, by whom, and with which words.
fn answered(mut decision: Decision, task: &Snapshot, answer: &Answer) -> Decision {
    if let Decision::Change(change) = &mut decision
        && let Some(metadata) = &mut change.metadata
    {
        metadata["approval"] = json!(task.approval_id);
        if !answer.approvers.is_empty() {
            metadata["approvers"] = json!(answer.approvers);
        }
        if let Some(comment) = &answer.comment {
            metadata["comment"] = comment.as_str().into();
        }
    }
    decision
}

pub(super) fn wait(task: &Snapshot, lease: LeaseId, now: Timestamp) -> Result<Decision, Refusal> {
    require_live_lease(task, lease, now)?;
    let mut after = task.clone();
    after.drop_holder();
    change(task, Event::Wait, State::Waiting, after, None, now)
}

pub(super) fn wake(task: &Snapshot, now: Timestamp) -> Result<Decision, Refusal> {
    if task.status != State::Waiting {
        return Err(illegal(task, Event::Wake));
    }
    let mut after = task.clone();
    after.queue_up(now);
    change(task, Event::Wake, State::Pending, after, None, now)
}
