//! Steps of a task that is held: recording those that may run twice (hot), and the intents of those
//! that must not (decided under the task's lock).

use super::cold::{self, Ask};
use super::hold::{keep_checkpoint, save_progress, sorted};
use super::hot::{Hot, task_of};
use super::{Tasks, family};
use crate::error::Result;
use crate::group::{Bounds, Group, Outcome};
use crate::statement;
use crate::step::{self, Intent, NewStep, Step};
use crate::store::{Lane, Store};
use crate::tx::{Call, Tx};
use crate::value::Value;
use crate::wait::{self, Wait};
use std::collections::HashMap;
use std::sync::Arc;
use uuid::Uuid;
use windlass_domain::command::Command;
use windlass_domain::decide::may_record;
use windlass_domain::failure::TaskError;
use windlass_domain::id::{ChangeId, LeaseId, StepId, TaskId};
use windlass_domain::json;
use windlass_domain::refusal::Refusal;
use windlass_domain::snapshot::Snapshot;
use windlass_domain::state::State;
use windlass_domain::step::{self as rule, Begin, CheckedStep, Effect, StepEvent, StepState, Told};
use windlass_domain::wait::{WaitKind, parked};

statement!(RECORD, "step/record");

/// All of the above.
pub(super) static STATEMENTS: &[&crate::statement::Statement] = &[&RECORD];

/// Who holds a task and does something with its steps.
#[derive(Clone, Debug)]
pub struct Holder {
    /// Which task.
    pub task: TaskId,
    /// The holder's lease.
    pub lease: LeaseId,
    /// Who, for the history.
    pub actor: String,
    /// The ids of the history rows, made before the first try: of a start, then of a wait.
    pub changes: [ChangeId; 2],
}

impl Holder {
    /// A holder with fresh change ids.
    pub fn new(task: TaskId, lease: LeaseId, actor: impl Into<String>) -> Holder {
        let changes = [ChangeId(Uuid::now_v7()), ChangeId(Uuid::now_v7())];
        Holder { task, lease, actor: actor.into(), changes }
    }

    fn ask(&self, command: Command, change: ChangeId) -> Ask {
        Ask { task: self.task, command, actor: self.actor.clone(), reason: None, change }
    }

    pub(super) fn start(&self) -> Ask {
        self.ask(Command::Start { lease_id: self.lease }, self.changes[0])
    }

    pub(super) fn wait(&self) -> Ask {
        self.ask(Command::Wait { lease_id: self.lease }, self.changes[1])
    }
}

/// A step that is done and may run twice.
#[derive(Clone, Debug)]
pub struct RecordStep {
    /// Who did it.
    pub holder: Holder,
    /// Which step.
    pub step: CheckedStep,
    /// Canonical JSON.
    pub result: String,
    /// Canonical JSON; `None` keeps the last.
    pub checkpoint: Option<String>,
}

impl RecordStep {
    fn id(&self) -> StepId {
        self.step.key.id(self.holder.task)
    }
}

/// The answer to a recorded step.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// Its id.
    pub id: StepId,
    /// What was recorded before, and stands; `None`: this very call has recorded it.
    pub earlier: Option<serde_json::Value>,
}

/// May a step run that must not run twice?
#[derive(Clone, Debug)]
pub struct BeginStep {
    /// Who asks.
    pub holder: Holder,
    /// Which step.
    pub step: CheckedStep,
}

/// The answer to a begun step.
#[derive(Clone, Debug, PartialEq)]
pub enum Begun {
    /// It may run; and the number of the run.
    New(StepId, Option<i64>),
    /// It has run, or a person failed it.
    Ended(Box<Step>),
}

/// How a step that was begun ended.
#[derive(Clone, Debug)]
pub enum StepEnd {
    /// With a result: canonical JSON.
    Complete {
        /// Canonical JSON.
        result: String,
        /// Canonical JSON; `None` keeps the last.
        checkpoint: Option<String>,
    },
    /// With an error.
    Fail {
        /// What went wrong.
        error: TaskError,
        /// What it has done all the same.
        effect: Effect,
    },
}

impl Tasks {
    /// Records steps that are done, each in its own right. One that was recorded before keeps its
    /// first result, which is in the answer.
    pub async fn record_steps(&self, items: Vec<RecordStep>) -> Vec<Outcome<Recorded>> {
        self.records.join(items).await
    }

    /// Writes the intent of a step that must not run twice. If an earlier attempt left an intent
    /// without a result, the task is parked and the answer is `in_doubt`.
    pub async fn begin_step(&self, item: BeginStep) -> Outcome<Begun> {
        self.store.write("step_begin", move |tx| begin(tx, &item)).await?
    }

    /// Tells how a step ended that was begun under this lease; with the number of its run, of that
    /// run alone.
    pub async fn end_step(
        &self,
        id: StepId,
        lease: LeaseId,
        run: Option<i64>,
        actor: String,
        end: StepEnd,
    ) -> Outcome<Step> {
        self.store.write("step_end", move |tx| end_step(tx, id, lease, run, &actor, &end)).await?
    }
}

pub(super) fn record_group(store: Store, bounds: Bounds) -> Group<RecordStep, Recorded> {
    let weigh = |item: &RecordStep| {
        256 + item.result.len() + item.checkpoint.as_ref().map_or(0, String::len)
    };
    Group::new("step_record", bounds, weigh, move |items| {
        let store = store.clone();
        async move { RECORDS.run(&store, Arc::new(items)).await }
    })
}

const RECORDS: Hot<RecordStep, Recorded> = Hot {
    name: "step_record",
    lane: Lane::Write,
    id: |item| item.id().0,
    run: record,
    missed: |store, items| {
        Box::pin(async move {
            let mut outcomes = Vec::with_capacity(items.len());
            for item in items {
                let again = store.write("step_record_again", move |tx| record_again(tx, &item));
                outcomes.push(again.await.unwrap_or_else(|error| Err(error.into())));
            }
            outcomes
        })
    },
};

fn record(tx: &mut dyn Tx, items: &[&RecordStep]) -> Result<HashMap<Uuid, Recorded>> {
    let now = Value::from(tx.fixed_now());
    let items = sorted(items, |i| i.holder.task);
    let ids: Vec<Uuid> = items.iter().map(|i| i.id().0).collect();
    let rows = (items.iter().zip(&ids))
        .map(|(i, &id)| {
            let key = &i.step.key;
            vec![
                i.holder.task.0.into(),
                i.holder.lease.0.into(),
                id.into(),
                key.name.as_str().into(),
                i.step.kind.as_str().into(),
                key.inputs_hash.as_str().into(),
                key.occurrence.into(),
                Value::Json(i.result.clone()),
                i.holder.actor.as_str().into(),
            ]
        })
        .collect();
    let call = Call::each(&RECORD, vec![now.clone()], rows);
    let recorded = if items.iter().all(|item| item.checkpoint.is_none()) {
        tx.run_and_commit(vec![call])?.remove(0)
    } else {
        tx.run(call)?
    };
    let recorded: Vec<Uuid> =
        recorded.iter().map(|row| task_of(row, &ids)).collect::<Result<_>>()?;
    // A checkpoint comes with its step or not at all: a repeated call brings no old one back.
    let fresh: Vec<&RecordStep> =
        items.iter().copied().filter(|item| recorded.contains(&item.id().0)).collect();
    let told = latest_checkpoints(&fresh);
    if !told.is_empty() {
        tx.run(save_progress(now, told))?;
    }
    Ok(recorded.into_iter().map(|id| (id, Recorded { id: StepId(id), earlier: None })).collect())
}

/// A task has one checkpoint: of several in one batch the last one counts.
fn latest_checkpoints(items: &[&RecordStep]) -> Vec<Vec<Value>> {
    let mut told: Vec<&RecordStep> = Vec::new();
    for item in items.iter().filter(|item| item.checkpoint.is_some()) {
        match told.last_mut() {
            Some(last) if last.holder.task == item.holder.task => *last = item,
            _ => told.push(item),
        }
    }
    told.into_iter().map(progress_values).collect()
}

fn progress_values(item: &RecordStep) -> Vec<Value> {
    let checkpoint = item.checkpoint.clone().map_or(Value::Null, Value::Json);
    let Holder { task, lease, changes, .. } = &item.holder;
    vec![task.0.into(), lease.0.into(), checkpoint, Value::Null, changes[0].0.into()]
}

/// Saves the checkpoint of a task that is locked and held.
pub(super) fn save_checkpoint(
    tx: &mut dyn Tx,
    holder: &Holder,
    checkpoint: &Option<String>,
) -> Result<()> {
    keep_checkpoint(tx, holder.task, holder.lease, checkpoint, holder.changes[0])
}

/// Why a step could not be recorded; or it is recorded now, because the task had to be started.
fn record_again(tx: &mut dyn Tx, item: &RecordStep) -> Result<Outcome<Recorded>> {
    let holder = &item.holder;
    let Some((mut task, _)) = cold::load(tx, holder.task)? else {
        return Ok(Err(Refusal::UnknownTask.into()));
    };
    let earlier = step::find(tx, holder.task, item.id())?;
    let mine = earlier.as_ref().is_some_and(|step| step.lease_id == Some(holder.lease));
    if !mine {
        if task.status == State::Claimed
            && let Err(refusal) = cold::decide_and_save(tx, &mut task, &holder.start(), None)?
        {
            return Ok(Err(refusal.into()));
        }
        if let Err(refusal) = may_record(&task, holder.lease) {
            return Ok(Err(refusal.into()));
        }
    }
    if let Some(step) = earlier {
        let snapshot = step.snapshot();
        return Ok(match (step.status, step.result) {
            (StepState::Done, earlier) => {
                let earlier = Some(earlier.unwrap_or_default());
                Ok(Recorded { id: step.id, earlier })
            }
            (state, _) => {
                let event = StepEvent::Complete;
                Err(Refusal::StepState { step: snapshot.id, state, event }.into())
            }
        });
    }
    let now = tx.now()?;
    let new = NewStep {
        task: task.id,
        step: &item.step,
        idempotent: true,
        status: StepState::Done,
        result: Some(item.result.clone()),
        lease: holder.lease,
        attempt: task.attempt,
        actor: &holder.actor,
        now,
    };
    step::insert(tx, &new)?;
    save_checkpoint(tx, holder, &item.checkpoint)?;
    Ok(Ok(Recorded { id: item.id(), earlier: None }))
}

fn begin(tx: &mut dyn Tx, item: &BeginStep) -> Result<Outcome<Begun>> {
    let holder = &item.holder;
    let Some((mut task, _)) = cold::load(tx, holder.task)? else {
        return Ok(Err(Refusal::UnknownTask.into()));
    };
    let id = item.step.key.id(holder.task);
    let known = step::find(tx, holder.task, id)?;
    let parked_here = |wait: Wait| wait.lease == Some(holder.lease) && wait.step == id;
    if task.status == State::Waiting && wait::of_task(tx, task.id)?.is_some_and(parked_here) {
        // The same call again, after it has parked the task.
        return Ok(Err(Refusal::InDoubt { step: id }.into()));
    }
    let snapshot = known.as_ref().map(Step::snapshot);
    let follows = rule::begin(snapshot.as_ref(), holder.lease);
    let is_permitted = known.as_ref().is_some_and(|step| step.status == StepState::Allowed);
    // With the family's lock, and so before the clock is read and the run gets its number.
    let follows = match follows {
        Ok(Begin::Run) => {
            let is_doubtful = family::was_begun_since(tx, task.id, &item.step.key)?;
            Ok(if is_doubtful && !is_permitted { Begin::Doubt } else { Begin::Run })
        }
        follows => follows,
    };
    if let Err(refusal) = cold::decide_and_save(tx, &mut task, &holder.start(), None)? {
        return Ok(Err(refusal.into()));
    }
    let follows = match follows {
        Ok(follows) => follows,
        Err(refusal) => return Ok(Err(refusal.into())),
    };
    match (follows, known) {
        (Begin::RunAgain, known) => {
            let run = known.and_then(|step| step.run);
            Ok(Ok(Begun::New(id, run)))
        }
        (Begin::Done | Begin::Rejected, Some(step)) => Ok(Ok(Begun::Ended(Box::new(step)))),
        (Begin::Doubt, Some(step)) => doubt(tx, holder, task, step).map(Err),
        (follows, known) => {
            let intent = Intent {
                task: task.id,
                step: &item.step,
                lease: holder.lease,
                attempt: task.attempt,
                actor: &holder.actor,
                now: tx.now()?,
            };
            let call = step::begin(&intent, known.is_some());
            if follows != Begin::Doubt {
                // The last word of this transaction, so it travels with COMMIT.
                let rows = tx.run_and_commit(vec![call])?.pop().unwrap_or_default();
                return Ok(Ok(Begun::New(id, Some(step::run_of(&rows)?))));
            }
            tx.run(call)?;
            // Another task of the family was quicker: whether this one may as well, a person says.
            let step = step::find(tx, task.id, id)?.ok_or_else(cold::no_answer)?;
            doubt(tx, holder, task, step).map(Err)
        }
    }
}

/// Parks the task until a person has decided.
fn doubt(
    tx: &mut dyn Tx,
    holder: &Holder,
    mut task: Snapshot,
    mut step: Step,
) -> Result<crate::error::Rejection> {
    let now = tx.now()?;
    let metadata = parked(step.id, WaitKind::Person, None);
    if let Err(refusal) = cold::decide_and_save(tx, &mut task, &holder.wait(), Some(metadata))? {
        return Ok(refusal.into());
    }
    let waits = Wait {
        task: task.id,
        kind: WaitKind::Person,
        step: step.id,
        lease: Some(holder.lease),
        child: None,
        signal: None,
        key: None,
    };
    wait::park(tx, &waits, None, now)?;
    if step.status != StepState::InDoubt {
        step.status = StepState::InDoubt;
        step::save(tx, &step)?;
    }
    Ok(Refusal::InDoubt { step: step.id }.into())
}

fn end_step(
    tx: &mut dyn Tx,
    id: StepId,
    lease: LeaseId,
    run: Option<i64>,
    actor: &str,
    end: &StepEnd,
) -> Result<Outcome<Step>> {
    let Some(found) = step::intent(tx, id)? else {
        return Ok(Err(Refusal::UnknownStep.into()));
    };
    let Some((task, _)) = cold::load(tx, found.task_id)? else {
        return Ok(Err(Refusal::UnknownTask.into()));
    };
    // Once more, under the task's lock.
    let Some(mut step) = step::find(tx, found.task_id, id)? else {
        return Ok(Err(Refusal::UnknownStep.into()));
    };
    let told = match end {
        StepEnd::Complete { result, checkpoint } => {
            Told::Result(result.clone(), checkpoint.as_deref().map(json::digest_of))
        }
        StepEnd::Fail { error, effect } => Told::Error(step::error_text(error), *effect),
    };
    let is_new = match rule::end(&step.snapshot(), &told, lease, run) {
        Ok(is_new) => is_new,
        // It stands as this very lease ended it, whoever has the task now.
        Err(refusal @ (Refusal::StepEnded { .. } | Refusal::RunEnded { .. })) => {
            return Ok(Err(refusal.into()));
        }
        // A lease that was lost is told so, whatever has become of the step meanwhile.
        Err(refusal) => return Ok(Err(may_record(&task, lease).err().unwrap_or(refusal).into())),
    };
    if !is_new {
        return Ok(Ok(step));
    }
    if let Err(refusal) = may_record(&task, lease) {
        return Ok(Err(refusal.into()));
    }
    let now = tx.now()?;
    (step.actor, step.ended_at) = (actor.to_owned(), Some(now));
    match end {
        StepEnd::Complete { result, checkpoint } => {
            step.status = StepState::Done;
            step.result = serde_json::from_str(result).ok();
            step.checkpoint_digest = checkpoint.as_deref().map(json::digest_of);
            let holder = Holder::new(task.id, lease, actor);
            save_checkpoint(tx, &holder, checkpoint)?;
        }
        StepEnd::Fail { error, effect } => {
            step.status = StepState::Failed;
            (step.error, step.effect) = (Some(error.clone()), Some(*effect));
        }
    }
    step::save(tx, &step)?;
    Ok(Ok(step))
}
