//! Submitting: one statement for many tasks, and the look at those that were there already.

use super::Tasks;
use super::eager::{self, Idle};
use super::floor::ClaimFloor;
use super::hot::{Hot, task_of};
use super::row::typed;
use crate::error::{Error, Rejection, Result};
use crate::group::{Bounds, Group, Outcome};
use crate::statement;
use crate::store::{Lane, Store};
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, OnceLock, Weak};
use uuid::Uuid;
use windlass_domain::id::TaskId;
use windlass_domain::json;
use windlass_domain::profile::Kind;
use windlass_domain::refusal::Refusal;
use windlass_domain::state::State;
use windlass_domain::task::{NewTask, When};

statement!(SUBMIT, "task/submit");
statement!(shared FIND_EXISTING, "task/find_existing");

/// All of the above.
pub(super) static STATEMENTS: &[&crate::statement::Statement] = &[&SUBMIT, &FIND_EXISTING];

/// The answer to one submit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// The task; an earlier one when it is a duplicate.
    pub id: TaskId,
    /// Where it stands.
    pub status: State,
    /// It existed already.
    pub duplicate: bool,
    /// A repeated delegation came with another request; the first one stands.
    pub payload_differs: bool,
}

impl Tasks {
    /// Submits tasks. Each gets its own outcome; concurrent calls share a transaction.
    pub async fn submit(&self, tasks: Vec<NewTask>) -> Vec<Outcome<Submitted>> {
        self.submits.join(tasks).await
    }

    /// Submits all of the tasks or none; a refusal names the first task to blame.
    pub async fn submit_atomic(
        &self,
        tasks: Vec<NewTask>,
    ) -> std::result::Result<Vec<Submitted>, (usize, Rejection)> {
        let tasks = Arc::new(tasks);
        let body = Arc::clone(&tasks);
        let written = self
            .store
            .write("submit_atomic", move |tx| {
                let (outcomes, blame) = submit_all(tx, &body)?;
                // Leaving with an error is what rolls the others back.
                match blame {
                    Some((index, refusal)) => Err(Blame::encode(index, refusal)),
                    None => Ok(outcomes),
                }
            })
            .await;
        match written {
            Ok(outcomes) => {
                self.floor.lower(&tasks);
                Ok(outcomes)
            }
            Err(error) => Err(self.blame(&tasks, error).await),
        }
    }

    /// Which item is to blame for an error of an atomic submit.
    async fn blame(&self, tasks: &[NewTask], error: Error) -> (usize, Rejection) {
        if let Some((index, what)) = Blame::decode(&error) {
            return (index, Refusal::IdempotencyKeyReused { what }.into());
        }
        if error.is_about_data() {
            for (index, task) in tasks.iter().enumerate() {
                let alone = task.clone();
                let tried = self
                    .store
                    .write("submit_atomic", move |tx| {
                        submit_all(tx, std::slice::from_ref(&alone))?;
                        Err::<(), _>(Error::Busy(TRIED.into()))
                    })
                    .await;
                match tried {
                    Err(error) if error.is_about_data() => return (index, error.into()),
                    _ => {}
                }
            }
        }
        (0, error.into())
    }
}

const TRIED: &str = "tried and rolled back";

/// Carries the index of a refused item out of a transaction that must roll back.
struct Blame;

impl Blame {
    fn encode(index: usize, what: &'static str) -> Error {
        Error::Foreign(format!("{index} {what}"))
    }

    fn decode(error: &Error) -> Option<(usize, &'static str)> {
        let Error::Foreign(text) = error else { return None };
        let (index, what) = text.split_once(' ')?;
        let what = [BY_ID, BY_KEY].into_iter().find(|known| *known == what)?;
        Some((index.parse().ok()?, what))
    }
}

const BY_ID: &str = "the id";
const BY_KEY: &str = "the idempotency key";

pub(super) fn group(
    store: Store,
    floor: Arc<ClaimFloor>,
    bounds: Bounds,
    idle: Arc<OnceLock<Weak<dyn Idle>>>,
) -> Group<NewTask, Submitted> {
    let weigh = |task: &NewTask| task.payload.len() + 512;
    Group::new("submit", bounds, weigh, move |tasks: Vec<NewTask>| {
        let (store, floor, idle) = (store.clone(), Arc::clone(&floor), Arc::clone(&idle));
        async move {
            let tasks = Arc::new(tasks);
            let eager = match idle.get().and_then(Weak::upgrade) {
                Some(idle) => eager::submit(&store, &floor, &tasks, &idle).await,
                None => None,
            };
            let outcomes = match eager {
                Some(outcomes) => outcomes,
                None => SUBMITS.run(&store, Arc::clone(&tasks)).await,
            };
            floor.lower(&tasks);
            outcomes
        }
    })
}

const SUBMITS: Hot<NewTask, Submitted> = Hot {
    name: "submit",
    lane: Lane::Write,
    id: |task| task.id.0,
    run: |tx, tasks| {
        let (call, ids) = insert(tx, tasks);
        let rows = tx.run_and_commit(vec![call])?;
        let new = rows[0].iter().map(|row| task_of(row, &ids));
        let new = new.collect::<Result<HashSet<Uuid>>>()?;
        let written = tasks.iter().filter(|task| new.contains(&task.id.0));
        Ok(written.map(|task| (task.id.0, submitted(task))).collect())
    },
    missed: |store, tasks| Box::pin(look_up(store, tasks)),
};

pub(super) fn submitted(task: &NewTask) -> Submitted {
    Submitted { id: task.id, status: State::Pending, duplicate: false, payload_differs: false }
}

/// The statement for these tasks, in one order for all callers, so that two batches that carry
/// the same keys cannot wait for each other.
pub(super) fn insert<'a>(tx: &dyn Tx, tasks: &[&NewTask]) -> (Call<'a>, Vec<Uuid>) {
    let mut ordered = tasks.to_vec();
    ordered.sort_by_key(|t| (&t.idempotency_scope, &t.idempotency_key, t.id));
    let ids = ordered.iter().map(|task| task.id.0).collect();
    let items = ordered.into_iter().map(item).collect();
    (Call::each(&SUBMIT, vec![tx.fixed_now().into()], items), ids)
}

pub(super) fn item(task: &NewTask) -> Vec<Value> {
    let (run_at, delay_ms) = split(Some(task.run_at));
    let (deadline_at, deadline_ms) = split(task.deadline);
    vec![
        task.id.0.into(),
        task.profile.as_str().into(),
        task.name.clone().into(),
        task.queue.as_str().into(),
        Value::Json(task.payload.clone()),
        task.priority.into(),
        if task.tags.is_empty() { Value::Null } else { typed(&task.tags) },
        task.agent.clone().into(),
        task.venture.clone().into(),
        task.portfolio.clone().into(),
        task.stage.clone().into(),
        task.owner.clone().into(),
        task.caller.clone().into(),
        task.callee.clone().into(),
        task.pool.clone().into(),
        task.llm.clone().into(),
        task.model.clone().into(),
        task.tier.clone().into(),
        task.parent_id.map(|id| id.0).into(),
        task.replay_of.map(|id| id.0).into(),
        task.correlation_id.clone().into(),
        task.idempotency_scope.as_str().into(),
        task.idempotency_key.clone().into(),
        task.request_digest.as_str().into(),
        task.max_retries.into(),
        task.backoff.as_ref().map_or(Value::Null, typed),
        task.actor.as_str().into(),
        run_at,
        delay_ms,
        deadline_at,
        deadline_ms,
    ]
}

/// An instant goes as it is; a span is counted from the database's clock.
fn split(when: Option<When>) -> (Value, Value) {
    match when {
        None => (Value::Null, Value::Null),
        Some(When::At(at)) => (at.into(), Value::Null),
        Some(When::After(ms)) => (Value::Null, ms.into()),
    }
}

/// What the tasks are that were there already.
pub(super) async fn look_up(store: Store, missed: Vec<NewTask>) -> Vec<Outcome<Submitted>> {
    let count = missed.len();
    let found = store
        .read("submit_existing", move |tx| missed.iter().map(|task| existing(tx, task)).collect())
        .await;
    match found {
        Ok(outcomes) => outcomes,
        Err(error) => (0..count).map(|_| Err(error.clone().into())).collect(),
    }
}

fn existing(tx: &mut dyn Tx, task: &NewTask) -> Result<Outcome<Submitted>> {
    let gone = || Err(Error::Busy("a task with this id or key came and went".into()).into());
    Ok(look_up_in(tx, task)?.unwrap_or_else(gone))
}

/// What the task is that was there already, if there is one.
pub(super) fn look_up_in(tx: &mut dyn Tx, task: &NewTask) -> Result<Option<Outcome<Submitted>>> {
    let rows = tx.run(Call::one(
        &FIND_EXISTING,
        vec![
            task.id.0.into(),
            task.idempotency_scope.as_str().into(),
            task.idempotency_key.clone().into(),
        ],
    ))?;
    // The key decides when both are known: it is what the caller repeats on purpose.
    rows.last().map(|row| found(row, task)).transpose()
}

fn found(row: &Row, task: &NewTask) -> Result<Outcome<Submitted>> {
    let same = is_same_request(row, task)?;
    let id = TaskId(row.uuid(0)?);
    // Whoever delegates twice under one id or key delegated once, and is told of a difference.
    let tolerant = task.profile.kind() == Kind::Delegation;
    if same || tolerant {
        let status = row.named(4)?;
        return Ok(Ok(Submitted { id, status, duplicate: true, payload_differs: !same }));
    }
    let what = if id == task.id { BY_ID } else { BY_KEY };
    Ok(Err(Refusal::IdempotencyKeyReused { what }.into()))
}

fn is_same_request(row: &Row, task: &NewTask) -> Result<bool> {
    if !row.is_null(1) {
        return Ok(row.text(1)? == task.request_digest);
    }
    // Submitted by windlass_submit: SQL computes no digest, so the task itself is compared.
    let mut same = row.text(2)? == task.queue && json::canonical(&row.json(3)?) == task.payload;
    let texts = [
        Some(task.profile.as_str()),
        task.name.as_deref(),
        task.agent.as_deref(),
        task.venture.as_deref(),
        task.portfolio.as_deref(),
        task.stage.as_deref(),
        task.owner.as_deref(),
        task.caller.as_deref(),
        task.callee.as_deref(),
        task.pool.as_deref(),
        task.llm.as_deref(),
        task.model.as_deref(),
        task.tier.as_deref(),
        task.correlation_id.as_deref(),
    ];
    for (at, text) in texts.into_iter().enumerate() {
        same &= row.maybe(6 + at, Row::text)? == text;
    }
    same &= row.maybe(20, Row::uuid)? == task.parent_id.map(|id| id.0);
    same &= (row.int32(21)?, row.int32(22)?) == (task.priority, task.max_retries);
    let tags = row.maybe(23, Row::json)?.map(serde_json::from_value).transpose();
    same &= tags.is_ok_and(|tags: Option<BTreeMap<_, _>>| tags.unwrap_or_default() == task.tags);
    // Typed: 2 and 2.0 are the same multiplier.
    let backoff = row.maybe(24, Row::json)?.map(serde_json::from_value).transpose();
    same &= backoff.is_ok_and(|backoff| backoff == task.backoff);
    let created_at = row.time(27)?;
    same &= row.time(25)? == task.run_at.resolve(created_at);
    same &= row.maybe(26, Row::time)? == task.deadline.map(|when| when.resolve(created_at));
    Ok(same)
}

type Written = (Vec<Submitted>, Option<(usize, &'static str)>);

fn submit_all(tx: &mut dyn Tx, tasks: &[NewTask]) -> Result<Written> {
    let all: Vec<&NewTask> = tasks.iter().collect();
    let (call, ids) = insert(tx, &all);
    let rows = tx.run(call)?;
    let mut new = rows.iter().map(|row| task_of(row, &ids)).collect::<Result<BTreeSet<Uuid>>>()?;
    let mut outcomes = Vec::with_capacity(tasks.len());
    for (index, task) in tasks.iter().enumerate() {
        if new.remove(&task.id.0) {
            outcomes.push(submitted(task));
            continue;
        }
        match existing(tx, task)? {
            Ok(outcome) => outcomes.push(outcome),
            Err(Rejection::Refused(Refusal::IdempotencyKeyReused { what })) => {
                return Ok((outcomes, Some((index, what))));
            }
            Err(Rejection::Refused(refusal)) => {
                let detail = refusal.to_string();
                return Err(Error::Internal { operation: "submit_atomic".into(), detail });
            }
            Err(Rejection::Failed(error)) => return Err(error),
        }
    }
    Ok((outcomes, None))
}
