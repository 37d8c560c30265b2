//! Replay: a finished task once more, as a new task that takes done steps along.
//!
//! Invariant: the plan and the new task are made in one transaction, under the locks of the origin
//! and of the root of its family, so that two replays at once are counted one after the other. The
//! root is locked last, and alone if it is the origin: both have ended, so nobody holds one of them
//! and wants another but replays.
//! Absent: asking a person. Whoever gets [`Replayed::NeedsApproval`] does (`approval/replay.rs`).

use super::show::show_row;
use super::submit::{Placed, insert, look_up_in};
use super::{Tasks, cold};
use crate::error::Result;
use crate::group::Outcome;
use crate::statement;
use crate::step::{self, Step};
use crate::tx::{Call, Tx};
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use windlass_domain::id::{StepId, TaskId};
use windlass_domain::json;
use windlass_domain::refusal::Refusal;
use windlass_domain::replay::{MAX_COUNTED, Past, Plan, ReplayFrom, needs_approval, plan};
use windlass_domain::snapshot::Snapshot;
use windlass_domain::step::StepKey;
use windlass_domain::task::{NewTask, When};

statement!(shared ROOT, "replay/root");
statement!(COUNT, "replay/count");
statement!(COPY_CHECKPOINT, "replay/copy_checkpoint");

/// All of the above.
pub(super) static STATEMENTS: &[&crate::statement::Statement] = &[&ROOT, &COUNT, &COPY_CHECKPOINT];

/// How many steps are read at once.
const PAGE: i64 = 500;

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
#[derive(Clone, Copy, Debug)]
pub enum Consent {
    /// A person has agreed.
    Given,
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
            let steps = all_steps(tx, replay.origin)?;
            let planned =
                plan(task.status, &replay.from, &past(&steps), replay.allow_non_idempotent);
            Ok(planned.map_err(|refused| Refusal::from(refused).into()))
        };
        self.store.read("replay_plan", body).await?
    }

    /// How many replays the family of a task has, replays of replays included; `most` at most.
    pub async fn count_replays(&self, origin: TaskId, most: i64) -> Result<i64> {
        let body = move |tx: &mut dyn Tx| {
            let root = root(tx, origin)?;
            count(tx, root, most)
        };
        self.store.read("replay_count", body).await
    }

    /// Makes the new task, or says why not.
    pub async fn replay(&self, replay: Replay, consent: Consent) -> Outcome<Replayed> {
        let body = move |tx: &mut dyn Tx| create(tx, &replay, consent);
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
    consent: Consent,
) -> Result<Outcome<Created>> {
    let Some((origin, _)) = cold::load(tx, replay.origin)? else {
        return Ok(Err(Refusal::UnknownTask.into()));
    };
    let steps = all_steps(tx, replay.origin)?;
    let planned = plan(origin.status, &replay.from, &past(&steps), replay.allow_non_idempotent);
    let planned = match planned.and_then(|plan| plan.permit().map(|()| plan)) {
        Ok(plan) => plan,
        Err(refused) => return Ok(Err(Refusal::from(refused).into())),
    };
    let new = new_task(tx, &origin, replay)?;
    if let Some(known) = look_up_in(tx, &new)? {
        return Ok(known.map(|known| (Replayed::Existing(known.id), None)));
    }
    if let Consent::UpTo { threshold, is_required } = consent {
        let root = root(tx, replay.origin)?;
        if root != replay.origin {
            cold::load(tx, root)?;
        }
        if needs_approval(count(tx, root, threshold)?, threshold, is_required) {
            return Ok(Ok((Replayed::NeedsApproval(planned), None)));
        }
    }
    let (call, _) = insert(tx, &[&Placed::somewhere(new.clone())]);
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

fn root(tx: &mut dyn Tx, task: TaskId) -> Result<TaskId> {
    let rows = tx.run(Call::one(&ROOT, vec![task.0.into(), MAX_COUNTED.into()]))?;
    rows.first().map_or(Ok(task), |row| row.uuid(0).map(TaskId))
}

fn count(tx: &mut dyn Tx, root: TaskId, most: i64) -> Result<i64> {
    let most = most.clamp(0, MAX_COUNTED);
    let rows = tx.run(Call::one(&COUNT, vec![root.0.into(), most.into()]))?;
    rows.first().map_or(Ok(0), |row| row.int(0))
}

fn copy_steps(tx: &mut dyn Tx, replay: &Replay, steps: &[Step], plan: &Plan) -> Result<()> {
    let reused: std::collections::HashSet<StepId> = plan.reused().collect();
    let copies = steps.iter().filter(|step| reused.contains(&step.id)).map(|step| {
        let key = StepKey {
            name: step.name.clone(),
            inputs_hash: step.inputs_hash.clone(),
            occurrence: step.occurrence,
        };
        (key.id(replay.id), step.id)
    });
    step::copy(tx, replay.id, replay.origin, copies.collect())
}

fn all_steps(tx: &mut dyn Tx, task: TaskId) -> Result<Vec<Step>> {
    let mut all: Vec<Step> = Vec::new();
    loop {
        let after = all.last().map_or(0, |step| step.seq);
        let page = step::list(tx, task, after, PAGE)?;
        let is_last = (page.len() as i64) < PAGE;
        all.extend(page);
        if is_last {
            return Ok(all);
        }
    }
}

fn past(steps: &[Step]) -> Vec<Past> {
    let past = |step: &Step| Past {
        id: step.id,
        name: step.name.clone(),
        occurrence: step.occurrence,
        idempotent: step.idempotent,
        status: step.status,
        effect: step.effect,
        expired: step.expired_at.is_some(),
    };
    steps.iter().map(past).collect()
}

/// What was submitted once, now without a key: a replay is wanted even if the origin had one.
fn new_task(tx: &mut dyn Tx, origin: &Snapshot, replay: &Replay) -> Result<NewTask> {
    let task = show_row(tx, origin.id)?.ok_or_else(cold::no_answer)?;
    let span = |at: windlass_domain::time::Timestamp| at.as_ms() - task.created_at.as_ms();
    let request = serde_json::to_value(replay).unwrap_or_default();
    Ok(NewTask {
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
    })
}
