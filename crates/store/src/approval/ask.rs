//! Asking: the worker parks its task on a question, unless the same was approved before.
//!
//! Invariant: only a live lease asks, and only a live lease is told "approved": whoever lost the
//! task must not do what was approved. A call sent again finds its own question while it is open.

use super::{Announce, Approval, Approvals, SHOW, approval, find, internal, opened};
use crate::error::{Rejection, Result};
use crate::statement;
use crate::task::{self, Ask};
use crate::tx::{Call, Tx};
use windlass_domain::approval::{Question, Status};
use windlass_domain::command::Command;
use windlass_domain::decide::{Decision, decide};
use windlass_domain::id::{ApprovalId, ChangeId, LeaseId, TaskId};
use windlass_domain::refusal::Refusal;
use windlass_domain::snapshot::Snapshot;
use windlass_domain::state::Event;

statement!(shared GRANTED, "approval/granted");

/// All of the above.
pub(super) static STATEMENTS: &[&statement::Statement] = &[&GRANTED];

/// A worker asks. Ids are made before the first try.
#[derive(Clone, Debug)]
pub struct Asking {
    /// The id of the question, should it be new.
    pub id: ApprovalId,
    /// The task that would wait.
    pub task: TaskId,
    /// The holder's lease.
    pub lease: LeaseId,
    /// What is asked. Without a requester it is the holder's session.
    pub question: Question,
    /// Canonical JSON; `None` keeps the last.
    pub checkpoint: Option<String>,
    /// Who, for the history.
    pub actor: String,
    /// The id of the history row.
    pub change: ChangeId,
    /// Who is told.
    pub announce: Option<Announce>,
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// The question: open, or approved before.
    pub approval: Approval,
    /// Whether the task waits for it now; otherwise the holder goes on.
    pub parked: bool,
    /// Whether this call opened it.
    pub is_new: bool,
}

impl Approvals {
    /// Parks the task on a question, or answers that it was approved before.
    pub async fn ask(&self, asking: Asking) -> Result<Asked, Rejection> {
        let body = move |tx: &mut dyn Tx| ask(tx, &asking);
        let asked = self.tasks.store().write("ask_approval", body).await?;
        self.tasks.made_room();
        Ok(asked?)
    }
}

fn ask(tx: &mut dyn Tx, asking: &Asking) -> Result<Result<Asked, Refusal>> {
    let Some((task, last)) = task::load(tx, asking.task)? else {
        return Ok(Err(Refusal::UnknownTask));
    };
    if last == asking.change {
        // An earlier try of this very call was committed, but its answer was lost.
        let approval = find(tx, &SHOW, asking.id)?;
        let approval = approval.ok_or_else(|| internal("a parked task without its approval"))?;
        return Ok(Ok(Asked { approval, parked: true, is_new: true }));
    }
    let mut question = Box::new(asking.question.clone());
    if question.requested_by.is_empty() {
        question.requested_by = task.claimed_by.clone().unwrap_or_else(|| asking.actor.clone());
    }
    let (lease_id, approval_id) = (asking.lease, asking.id);
    let command = Command::AskApproval { lease_id, approval_id, question };
    match decide(&task, &command, tx.now()?) {
        Ok(Decision::Change(_)) => {}
        Ok(_) => return Err(internal("asking for an approval changes nothing")),
        Err(refusal) => return asked_before(tx, asking, &task, refusal),
    }
    if let Some(approval) = granted(tx, asking)? {
        // Whoever asks again after the answer may be far beyond the checkpoint that it brings.
        return Ok(Ok(Asked { approval, parked: false, is_new: false }));
    }
    task::keep_checkpoint(tx, asking.task, asking.lease, &asking.checkpoint, asking.change)?;
    let ask = Ask { change: asking.change, ..Ask::new(asking.task, command, &asking.actor) };
    if let Err(refusal) = task::carry_out(tx, &ask)?.outcome {
        return Ok(Err(refusal));
    }
    let approval = opened(tx, asking.id, asking.announce.as_ref())?;
    Ok(Ok(Asked { approval, parked: true, is_new: true }))
}

fn granted(tx: &mut dyn Tx, asking: &Asking) -> Result<Option<Approval>> {
    let question = &asking.question;
    let params = vec![
        asking.task.0.into(),
        question.gate.as_str().into(),
        question.digest.as_str().into(),
        question.occurrence.into(),
    ];
    tx.run(Call::one(&GRANTED, params))?.first().map(approval).transpose()
}

/// A lease that is gone may be the one that asked this very question: then the task is parked as
/// it should be, as long as nobody answered.
fn asked_before(
    tx: &mut dyn Tx,
    asking: &Asking,
    task: &Snapshot,
    refusal: Refusal,
) -> Result<Result<Asked, Refusal>> {
    let (Refusal::LeaseLost { .. }, Some(waits_for)) = (&refusal, task.approval_id) else {
        return Ok(Err(refusal));
    };
    if task::ended_by(tx, asking.task, asking.lease)? != Some(Event::AskApproval) {
        return Ok(Err(refusal));
    }
    let question = &asking.question;
    let same = |found: &Approval| {
        found.status == Status::Open
            && (&found.gate, &found.digest, found.occurrence)
                == (&question.gate, &question.digest, question.occurrence)
    };
    let Some(approval) = find(tx, &SHOW, waits_for)?.filter(same) else {
        return Ok(Err(refusal));
    };
    // Nobody holds the task since, so the checkpoint that stands is the one that came along.
    if let Some(told) = &asking.checkpoint
        && task::checkpoint(tx, asking.task)?.as_ref() != Some(told)
    {
        return Ok(Err(Refusal::AlreadyFinished { event: Event::AskApproval }));
    }
    Ok(Ok(Asked { approval, parked: true, is_new: false }))
}
