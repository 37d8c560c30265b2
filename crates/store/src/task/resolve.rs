//! A person decides over a step in doubt.
//!
//! Invariant: a decision is made once, and stands in the audit with its reason, in the transaction
//! that makes it: the history of a task that has ended takes no more rows. Such a task stays as it
//! is; its replays see the decision.

use super::Tasks;
use super::cold::{self, Ask};
use crate::audit;
use crate::error::Result;
use crate::group::Outcome;
use crate::step::{self, Step};
use crate::tx::Tx;
use crate::wait;
use serde_json::json;
use uuid::Uuid;
use windlass_domain::command::Command;
use windlass_domain::id::{ChangeId, StepId, TaskId};
use windlass_domain::refusal::Refusal;
use windlass_domain::snapshot::Snapshot;
use windlass_domain::state::State;
use windlass_domain::step::{self as rule, StepEvent, StepSnapshot};
use windlass_domain::wait::woken;

/// What a person decides over a step in doubt.
#[derive(Clone, Debug)]
pub enum Resolution {
    /// It has run, and this is its result: canonical JSON.
    RecordResult(String),
    /// It has not run, or may run twice.
    AllowRerun,
    /// It has failed for good.
    Fail,
}

impl Resolution {
    /// As the API names it.
    fn action(&self) -> &'static str {
        match self {
            Resolution::RecordResult(_) => "record_result",
            Resolution::AllowRerun => "allow_rerun",
            Resolution::Fail => "fail",
        }
    }

    fn event(&self) -> StepEvent {
        match self {
            Resolution::RecordResult(_) => StepEvent::RecordResult,
            Resolution::AllowRerun => StepEvent::AllowRerun,
            Resolution::Fail => StepEvent::Reject,
        }
    }
}

impl Tasks {
    /// A person decides over a step in doubt; its task goes on. A task that has ended stays as it
    /// is: its replays see the decision.
    pub async fn resolve_step(
        &self,
        id: StepId,
        resolution: Resolution,
        actor: String,
        reason: Option<String>,
    ) -> Outcome<Step> {
        let change = ChangeId(Uuid::now_v7());
        let body = move |tx: &mut dyn Tx| {
            let wake = Ask {
                task: TaskId(Uuid::nil()),
                command: Command::Wake,
                actor: actor.clone(),
                reason: reason.clone(),
                change,
            };
            resolve(tx, id, &resolution, wake)
        };
        let (outcome, queued) = self.store.write("step_resolve", body).await?;
        self.stand_in_line(queued.into_iter().collect());
        outcome
    }
}

type Resolved = (Outcome<Step>, Option<cold::Queued>);

fn resolve(
    tx: &mut dyn Tx,
    id: StepId,
    resolution: &Resolution,
    mut wake: Ask,
) -> Result<Resolved> {
    let Some(found) = step::intent(tx, id)? else {
        return Ok((Err(Refusal::UnknownStep.into()), None));
    };
    wake.task = found.task_id;
    let Some((mut task, last)) = cold::load(tx, found.task_id)? else {
        return Ok((Err(Refusal::UnknownTask.into()), None));
    };
    let Some(mut step) = step::find(tx, found.task_id, id)? else {
        return Ok((Err(Refusal::UnknownStep.into()), None));
    };
    if last == wake.change {
        // An earlier try of this very call was committed, but its answer was lost.
        return Ok((Ok(step), cold::queued(&task)));
    }
    let result = match resolution {
        Resolution::RecordResult(result) => Some(result.as_str()),
        Resolution::AllowRerun | Resolution::Fail => None,
    };
    let left = rule::left(&step.snapshot(), task.status.is_terminal());
    let in_doubt = StepSnapshot { status: left, ..step.snapshot() };
    let decided = match rule::resolve(&in_doubt, resolution.event(), result) {
        Ok(Some(state)) => state,
        Ok(None) => return Ok((Ok(step), None)),
        Err(refusal) => return Ok((Err(refusal.into()), None)),
    };
    if step.status != left {
        // The machine has no shorter way.
        step.status = left;
        step::save(tx, &step)?;
    }
    step.status = decided;
    // Whoever began it has no say any more: how it ended is the person's word, no lease's.
    (step.actor, step.lease_id) = (wake.actor.clone(), None);
    if let Resolution::RecordResult(result) = resolution {
        step.result = serde_json::from_str(result).ok();
        step.ended_at = Some(tx.now()?);
    }
    step::save(tx, &step)?;
    record_decision(tx, &step, &task, resolution, &wake)?;
    let waits = wait::of_task(tx, task.id)?.is_some_and(|wait| wait.step == id);
    if waits && task.status == State::Waiting {
        wait::remove(tx, task.id)?;
        let event = json!({ "woken": resolution.event() });
        let metadata = Some(woken(id, &event));
        if let Err(refusal) = cold::decide_and_save(tx, &mut task, &wake, metadata)? {
            return Ok((Err(refusal.into()), None));
        }
    }
    Ok((Ok(step), cold::queued(&task)))
}

/// Who decided what, and why.
fn record_decision(
    tx: &mut dyn Tx,
    step: &Step,
    task: &Snapshot,
    resolution: &Resolution,
    by: &Ask,
) -> Result<()> {
    let detail = json!({
        "step": step.id,
        "name": step.name,
        "task": task.id,
        "task_status": task.status,
        "action": resolution.action(),
        "reason": by.reason,
    });
    audit::write(tx, &by.actor, "step_resolved", &detail)
}
