//! Replay: a finished task once more, as a new task that takes done steps along.
//!
//! Invariant: the plan and the new task are made in one transaction, under the locks of the origin
//! and of the root of its family (`family.rs`), so that two replays at once are counted one after
//! the other, and what one of them began is seen by the next.
//! Absent: asking a person. Whoever gets [`Replayed::NeedsApproval`] does (`approval/replay.rs`).

use super::room::Room;
use super::row::Task;
use super::show::show_row;
use super::submit::{Placed, insert, look_up_in};
use super::{Tasks, cold, family};
use crate::error::Result;
use crate::group::Outcome;
use crate::statement;
use crate::step;
use crate::tx::{Call, Tx};
use crate::value::Row;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use windlass_domain::id::{StepId, TaskId};
use windlass_domain::json;
use windlass_domain::refusal::Refusal;
use windlass_domain::replay::{Agreed, Origin, Past, Plan, ReplayFrom, needs_approval, plan};
use windlass_domain::snapshot::Snapshot;
use windlass_domain::step::{Place, StepKey};
use windlass_domain::task::{NewTask, When};

statement!(COPY_CHECKPOINT, "replay/copy_checkpoint");
statement!(shared PAST, "step/past");

/// All of the above.
pub(super) static STATEMENTS: &[&crate::statement::Statement] = &[&COPY_CHECKPOINT, &PAST];

/// How many steps are read at once, without their results.
const PAGE: i64 = 5_000;

/// What is to be replayed. It is kept as JSON with an approval that it waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Replay {
    /// Which task.
    pub origin: TaskId,
    /// The new task's id, made before the first try.
    pub id: TaskId,
    /// From where.
    pub from: ReplayFrom,
    /// Whether steps that must not run twice may.
    pub allow_non_idempotent: bool,
    /// Who asks.
    pub actor: String,
}

/// Whether a replay may go on without a person.
#[derive(Clone, Debug)]
pub enum Consent {
    /// A person has agreed.
    Given,
    /// A person has agreed that these steps run again, which have not run since, and no others
    /// that must not run twice.
    To(Agreed),
    /// Up to so many replays of a family need nobody, unless somebody is wanted in any case.
    UpTo {
        /// How many.
        threshold: i64,
        /// In any case.
        is_required: bool,
    },
}

/// What became of a replay.
#[derive(Clone, Debug, PartialEq)]
pub enum Replayed {
    /// The new task is there.
    New(TaskId, Plan),
    /// It was there before: the same call again.
    Existing(TaskId),
    /// A person must agree first; nothing is written.
    NeedsApproval(Plan),
}

impl Tasks {
    /// What a replay would do. Steps that must not run again are marked in the plan.
    pub async fn plan_replay(&self, replay: Replay) -> Outcome<Plan> {
        let body = move |tx: &mut dyn Tx| {
            let Some(task) = show_row(tx, replay.origin)? else {
                return Ok(Err(Refusal::UnknownTask.into()));
            };
            let root = family::root(tx, replay.origin)?;
            let steps = all_steps(tx, replay.origin)?;
            let planned = plan_of(tx, &replay, &task, root, &steps)?;
            Ok(planned.map_err(Into::into))
        };
        self.store.read("replay_plan", body).await?
    }

    /// How many replays the family of a task has, replays of replays included; `most` at most.
    pub async fn count_replays(&self, origin: TaskId, most: i64) -> Result<i64> {
        let body = move |tx: &mut dyn Tx| {
            let root = family::root(tx, origin)?;
            family::count(tx, root, most)
        };
        self.store.read("replay_count", body).await
    }

    /// Makes the new task, or says why not.
    pub async fn replay(&self, replay: Replay, consent: Consent) -> Outcome<Replayed> {
        let body = move |tx: &mut dyn Tx| create(tx, &replay, &consent);
        let replayed = self.store.write("replay", body).await?;
        if let Ok((_, Some(new))) = &replayed {
            self.stand_new(new).await;
        }
        replayed.map(|(replayed, _)| replayed)
    }
}

type Created = (Replayed, Option<NewTask>);

/// Makes the new task in the caller's transaction.
pub(crate) fn create(
    tx: &mut dyn Tx,
    replay: &Replay,
    consent: &Consent,
) -> Result<Outcome<Created>> {
    let Some((origin, _)) = cold::load(tx, replay.origin)? else {
        return Ok(Err(Refusal::UnknownTask.into()));
    };
    let root = family::locked_root(tx, replay.origin)?;
    let task = show_row(tx, origin.id)?.ok_or_else(cold::no_answer)?;
    let steps = all_steps(tx, replay.origin)?;
    let planned = match plan_of(tx, replay, &task, root, &steps)? {
        Ok(plan) => plan,
        Err(refusal) => return Ok(Err(refusal.into())),
    };
    let new = new_task(task, &origin, replay);
    let known = look_up_in(tx, &new)?;
    if let Some(Ok(known)) = known {
        // The same call again: what this very replay has begun since does not stop it.
        return Ok(Ok((Replayed::Existing(known.id), None)));
    }
    if let Err(refused) = planned.permit() {
        return Ok(Err(Refusal::from(refused).into()));
    }
    if let Some(Err(other)) = known {
        return Ok(Err(other));
    }
    match consent {
        &Consent::UpTo { threshold, is_required } => {
            let earlier = family::count(tx, root, threshold)?;
            if needs_approval(earlier, threshold, is_required) {
                return Ok(Ok((Replayed::NeedsApproval(planned), None)));
            }
        }
        Consent::Given => {}
        Consent::To(agreed) => {
            if let Err(refused) = planned.stay_within(agreed) {
                return Ok(Err(Refusal::from(refused).into()));
            }
        }
    }
    let placed = Placed::somewhere(new.clone());
    let (call, _) = insert(tx, &[&placed], &mut Room::adding(1));
    tx.run(call)?;
    copy_steps(tx, replay, &steps, &planned)?;
    if planned.checkpoint {
        let now = tx.now()?;
        let change = Uuid::from_u128(replay.id.0.as_u128() ^ replay.origin.0.as_u128());
        let params = vec![replay.origin.0.into(), replay.id.0.into(), change.into(), now.into()];
        tx.run(Call::one(&COPY_CHECKPOINT, params))?;
    }
    Ok(Ok((Replayed::New(new.id, planned), Some(new))))
}

/// What would be done, with an eye on the others of the family.
fn plan_of(
    tx: &mut dyn Tx,
    replay: &Replay,
    task: &Task,
    root: TaskId,
    steps: &[Past],
) -> Result<Result<Plan, Refusal>> {
    let elsewhere = family::begun_elsewhere(tx, root, replay.origin)?;
    let origin = Origin {
        state: task.status,
        has_checkpoint: task.checkpoint.is_some(),
        steps,
        elsewhere: &elsewhere,
    };
    Ok(plan(&origin, &replay.from, replay.allow_non_idempotent).map_err(Refusal::from))
}

fn copy_steps(tx: &mut dyn Tx, replay: &Replay, steps: &[Past], plan: &Plan) -> Result<()> {
    let reused: std::collections::HashSet<StepId> = plan.reused().collect();
    let copies = steps
        .iter()
        .filter(|step| reused.contains(&step.id))
        .map(|step| (step.key.id(replay.id), step.id));
    step::copy(tx, replay.id, replay.origin, copies.collect())
}

fn all_steps(tx: &mut dyn Tx, task: TaskId) -> Result<Vec<Past>> {
    let mut all: Vec<Past> = Vec::new();
    loop {
        let after = all.last().map_or(0, |step| step.place.seq);
        let rows = tx.run(Call::one(&PAST, vec![task.0.into(), after.into(), PAGE.into()]))?;
        for row in &rows {
            all.push(past(row)?);
        }
        if (rows.len() as i64) < PAGE {
            return Ok(all);
        }
    }
}

fn past(row: &Row) -> Result<Past> {
    let text = |index| row.text(index).map(str::to_owned);
    Ok(Past {
        id: StepId(row.uuid(0)?),
        key: StepKey { name: text(1)?, inputs_hash: text(2)?, occurrence: row.int32(3)? },
        place: Place { seq: row.int(4)?, run: row.maybe(5, Row::int)? },
        begun_at: row.time(6)?,
        idempotent: row.bool(7)?,
        status: row.named(8)?,
        effect: row.maybe(9, Row::named)?,
        expired: row.maybe(10, Row::time)?.is_some(),
    })
}

/// What was submitted once, now without a key: a replay is wanted even if the origin had one.
fn new_task(task: Task, origin: &Snapshot, replay: &Replay) -> NewTask {
    let span = |at: windlass_domain::time::Timestamp| at.as_ms() - task.created_at.as_ms();
    let request = serde_json::to_value(replay).unwrap_or_default();
    NewTask {
        id: replay.id,
        profile: task.profile,
        name: task.name,
        queue: task.queue,
        payload: json::canonical(&task.payload),
        priority: task.priority,
        tags: task.tags,
        agent: task.agent,
        venture: task.venture,
        portfolio: task.portfolio,
        stage: task.stage,
        owner: task.owner,
        idempotency_scope: task.caller.clone().unwrap_or_default(),
        caller: task.caller,
        callee: task.callee,
        pool: task.pool,
        llm: task.llm,
        model: task.model,
        tier: task.tier,
        parent_id: task.parent_id,
        replay_of: Some(origin.id),
        correlation_id: task.correlation_id,
        idempotency_key: None,
        request_digest: json::digest(&request),
        run_at: When::After(0),
        deadline: task.deadline_at.map(|at| When::After(span(at))),
        max_retries: origin.max_retries,
        backoff: origin.backoff.clone(),
        actor: replay.actor.clone(),
    }
}
