//! Submitting: one statement for many tasks, and the look at those that were there already.

use super::Tasks;
use super::eager::{self, Idle};
use super::hot::{Hot, task_of};
use super::lane::Lanes;
use super::own;
use super::room::{Hope, Lock, Room, is_crowded};
use super::row::typed;
use super::term::{TRIES, is_behind, is_outdated};
use crate::error::{Error, OUTDATED, Rejection, Result};
use crate::group::{Bounds, Group, Outcome};
use crate::statement;
use crate::statement::Dialect;
use crate::store::{Lane, Store};
use crate::tx::{Call, Check, Tx};
use crate::value::{Row, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use uuid::Uuid;
use windlass_domain::id::TaskId;
use windlass_domain::json;
use windlass_domain::limit::{Bound, QueueFull};
use windlass_domain::profile::{Kind, Profile};
use windlass_domain::refusal::Refusal;
use windlass_domain::state::State;
use windlass_domain::task::{NewTask, When};
use windlass_domain::time::Timestamp;

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
        let lanes = self.lanes.of(&self.store, &tasks).await.map_err(|e| (0, e.into()))?;
        let mut placed = place(&self.lanes, tasks, &lanes, Some(self.lanes.check()));
        let blamed = Arc::new(Mutex::new(None));
        let mut tries_left = TRIES;
        let written = loop {
            let (body, blame) = (Arc::clone(&placed), Arc::clone(&blamed));
            let body = move |tx: &mut dyn Tx| {
                submit_all(tx, &body)?.map_err(|who| {
                    // Leaving with an error is what rolls the others back.
                    *blame.lock().unwrap_or_else(PoisonError::into_inner) = Some(who);
                    Error::Busy(TRIED.into())
                })
            };
            match self.store.write("submit_atomic", body).await {
                Err(error) if is_outdated(&error) && tries_left > 1 => {
                    tries_left -= 1;
                    let tasks = placed.iter().map(|placed| placed.task.clone()).collect();
                    match self.lanes.check_anew(is_behind(&error), tries_left).await {
                        Ok(check) => placed = place(&self.lanes, tasks, &lanes, check),
                        Err(error) => break Err(error),
                    }
                }
                written => break written,
            }
        };
        let blamed = blamed.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (written, blamed) {
            (Ok(outcomes), _) => {
                self.lanes.note(placed.iter().map(|p| (&p.task, p.lane)));
                Ok(outcomes)
            }
            (Err(Error::Busy(_)), Some((index, refusal))) => Err((index, refusal.into())),
            (Err(error), _) => Err(self.blame(&placed, error).await),
        }
    }

    /// Which item is to blame for an error of an atomic submit.
    async fn blame(&self, tasks: &[Placed], error: Error) -> (usize, Rejection) {
        if error.is_about_data() {
            for (index, task) in tasks.iter().enumerate() {
                let alone = task.clone();
                let tried = self
                    .store
                    .write("submit_atomic", move |tx| {
                        let _ = submit_all(tx, std::slice::from_ref(&alone))?;
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

    /// A task that another repository has written stands in line; said after the commit. Where its
    /// lane cannot be told, the next scan finds it.
    pub(crate) async fn stand_new(&self, task: &NewTask) {
        if let Ok(lanes) = self.lanes.of(&self.store, std::slice::from_ref(task)).await {
            self.lanes.note(lanes.into_iter().map(|lane| (task, lane)));
        }
    }
}

const TRIED: &str = "tried and rolled back";

const BY_ID: &str = "the id";
const BY_KEY: &str = "the idempotency key";

/// A task on its way into its lane.
#[derive(Clone)]
pub(super) struct Placed {
    pub(super) task: NewTask,
    pub(super) lane: i64,
    pub(super) bounds: Arc<[Bound]>,
    /// What its transaction may count on.
    hope: Hope,
    /// Whether the bounds are still those of the rules.
    check: Option<Check>,
}

impl Placed {
    /// In the lane that the database finds for it, past all limits: somebody in charge wants it.
    pub(super) fn somewhere(task: NewTask) -> Placed {
        Placed { task, lane: 0, bounds: Arc::new([]), hope: Hope::default(), check: None }
    }
}

/// Has the transaction of these tasks asked, before it commits, whether their rules still hold.
pub(super) fn by_their_rules<'p>(tx: &mut dyn Tx, tasks: impl IntoIterator<Item = &'p Placed>) {
    // They were placed together, by the same rules.
    if let Some(check) = tasks.into_iter().next().and_then(|placed| placed.check.as_ref()) {
        tx.only_if(Arc::clone(check));
    }
}

/// What the transaction of these tasks may count on.
pub(super) fn hope(tasks: &[&Placed]) -> Hope {
    tasks.first().map(|placed| placed.hope).unwrap_or_default()
}

fn place(
    lanes: &Lanes,
    tasks: Vec<NewTask>,
    ids: &[i64],
    check: Option<Check>,
) -> Arc<Vec<Placed>> {
    let hope = lanes.hope(check.is_some());
    let one = |(task, &lane)| {
        let (bounds, check) = (lanes.bounds_of(&task, lane), check.clone());
        Placed { task, lane, bounds, hope, check }
    };
    Arc::new(tasks.into_iter().zip(ids).map(one).collect())
}

pub(super) fn group(
    store: Store,
    lanes: Arc<Lanes>,
    bounds: Bounds,
    idle: Arc<OnceLock<Weak<dyn Idle>>>,
) -> Group<NewTask, Submitted> {
    let weigh = |task: &NewTask| task.payload.len() + 512;
    Group::new("submit", bounds, weigh, move |tasks: Vec<NewTask>| {
        let (store, lanes, idle) = (store.clone(), Arc::clone(&lanes), Arc::clone(&idle));
        async move {
            let ids = match lanes.of(&store, &tasks).await {
                Ok(ids) => ids,
                Err(error) => return tasks.iter().map(|_| Err(error.clone().into())).collect(),
            };
            let placed = place(&lanes, tasks, &ids, Some(lanes.check()));
            let eager = match idle.get().and_then(Weak::upgrade) {
                Some(idle) => eager::submit(&store, &lanes, &placed, &idle).await,
                None => None,
            };
            let outcomes = match eager {
                Some(outcomes) => outcomes,
                None => write(&store, &lanes, &placed).await,
            };
            lanes.note(placed.iter().map(|p| (&p.task, p.lane)));
            outcomes
        }
    })
}

/// Writes the tasks. Where that fails on data, a lane that this node remembers may be gone with the
/// database that it was in: the lanes of those tasks are looked up anew, once.
async fn write(
    store: &Store,
    lanes: &Arc<Lanes>,
    placed: &Arc<Vec<Placed>>,
) -> Vec<Outcome<Submitted>> {
    let mut outcomes = write_by_rules(store, lanes, placed).await;
    let failed = those_of(&outcomes, Error::is_about_data);
    if failed.is_empty() || store.dialect() == Dialect::Sqlite {
        return outcomes;
    }
    lanes.forget();
    let tasks: Vec<NewTask> = failed.iter().map(|&i| placed[i].task.clone()).collect();
    let again = match lanes.of(store, &tasks).await {
        Ok(ids) => {
            let again = place(lanes, tasks, &ids, Some(lanes.check()));
            write_by_rules(store, lanes, &again).await
        }
        Err(error) => tasks.iter().map(|_| Err(error.clone().into())).collect(),
    };
    failed.into_iter().zip(again).for_each(|(i, outcome)| outcomes[i] = outcome);
    outcomes
}

/// Writes the tasks by rules that are in force when they are written. One whose limits leave too
/// little room to share their lock, or whose rules have changed meanwhile, is asked again.
async fn write_by_rules(
    store: &Store,
    lanes: &Arc<Lanes>,
    placed: &Arc<Vec<Placed>>,
) -> Vec<Outcome<Submitted>> {
    let flat = |outcomes: Vec<Outcome<Outcome<Submitted>>>| -> Vec<Outcome<Submitted>> {
        outcomes.into_iter().map(|outcome| outcome.and_then(|inner| inner)).collect()
    };
    let mut outcomes = flat(SUBMITS.run(store, Arc::clone(placed)).await);
    for tries_left in (1..TRIES).rev() {
        let (those, check) = match those_of(&outcomes, is_crowded) {
            // The rules are others by now, or nobody knows: these go by those of now.
            none if none.is_empty() => {
                let those = those_of(&outcomes, is_outdated);
                if those.is_empty() {
                    break;
                }
                let are_behind = !those_of(&outcomes, is_behind).is_empty();
                match lanes.check_anew(are_behind, tries_left).await {
                    Ok(check) => (those, check),
                    Err(_) => break,
                }
            }
            // The hope for plenty of room was vain: now it is looked at first, for these.
            those => {
                lanes.was_crowded();
                (those, Some(lanes.check()))
            }
        };
        let again: Vec<&Placed> = those.iter().map(|&i| &placed[i]).collect();
        let ids: Vec<i64> = again.iter().map(|placed| placed.lane).collect();
        let tasks = again.into_iter().map(|placed| placed.task.clone()).collect();
        let again = flat(SUBMITS.run(store, place(lanes, tasks, &ids, check)).await);
        those.into_iter().zip(again).for_each(|(i, outcome)| outcomes[i] = outcome);
    }
    outcomes
}

/// The places of the tasks that failed with such an error.
fn those_of(outcomes: &[Outcome<Submitted>], such: impl Fn(&Error) -> bool) -> Vec<usize> {
    let is_such = |(_, outcome): &(usize, &Outcome<Submitted>)| match outcome {
        Err(Rejection::Failed(error)) => such(error),
        _ => false,
    };
    outcomes.iter().enumerate().filter(is_such).map(|(i, _)| i).collect()
}

const SUBMITS: Hot<Placed, Outcome<Submitted>> = Hot {
    name: "submit",
    lane: Lane::Write,
    id: |placed| placed.task.id.0,
    run: |tx, tasks| {
        let mut own = own::find(tx, tasks)?;
        if !own.is_empty() {
            // Nothing is written any more, so no rule is asked. What the try before has not written
            // it refused, or knew already: that is asked once more.
            let others = own::others(tasks, &own);
            let again = || Err(Error::Busy(OUTDATED.into()).into());
            own.extend(others.into_iter().map(|placed| (placed.task.id.0, again())));
            return Ok(own);
        }
        by_their_rules(tx, tasks.iter().copied());
        let mut room = Room::adding(tasks.len()).hoping(hope(tasks)).folding();
        let (accepted, mut outcomes) = admit(tx, tasks, &mut room, Lock::Pending)?;
        if accepted.is_empty() {
            return Ok(outcomes);
        }
        let (call, ids) = insert(tx, &accepted, &mut room);
        let rows = tx.run_and_commit(vec![call])?;
        let new = rows[0].iter().map(|row| task_of(row, &ids));
        let new = new.collect::<Result<HashSet<Uuid>>>()?;
        let written = accepted.iter().filter(|placed| new.contains(&placed.task.id.0));
        outcomes.extend(written.map(|placed| (placed.task.id.0, Ok(submitted(&placed.task)))));
        Ok(outcomes)
    },
    missed: |store, tasks| {
        let tasks = tasks.into_iter().map(|placed| placed.task).collect();
        Box::pin(async move { look_up(store, tasks).await.into_iter().map(Ok).collect() })
    },
};

type Refused = HashMap<Uuid, Outcome<Submitted>>;

/// Which tasks the pending limits let in, in order, and what the others are told. A task that is
/// there already is never refused, and takes no place: it was let in before.
pub(super) fn admit<'t>(
    tx: &mut dyn Tx,
    tasks: &[&'t Placed],
    room: &mut Room,
    lock: Lock,
) -> Result<(Vec<&'t Placed>, Refused)> {
    let is_limited = |placed: &&Placed| placed.bounds.iter().any(Bound::binds_submits);
    let mut refused = HashMap::new();
    if !tasks.iter().any(is_limited) {
        return Ok((tasks.to_vec(), refused));
    }
    room.hold(tx, lock, tasks.iter().map(|placed| &placed.bounds[..]))?;
    let before = room.mark();
    if tasks.iter().all(|placed| room.accept(&placed.bounds).is_ok()) {
        return Ok((tasks.to_vec(), refused));
    }
    // Somebody is to be refused: now it matters who takes a place. Whoever is there already, or
    // comes twice, takes none.
    room.go_back(before);
    let mut accepted = Vec::with_capacity(tasks.len());
    let mut keys = HashSet::new();
    for &placed in tasks {
        let task = &placed.task;
        if let Some(known) = look_up_in(tx, task)? {
            refused.insert(task.id.0, known);
            continue;
        }
        let key = task.idempotency_key.as_ref().map(|key| (&task.idempotency_scope, key));
        let comes_twice = key.is_some_and(|key| keys.contains(&key));
        match if comes_twice { Ok(()) } else { room.accept(&placed.bounds) } {
            Ok(()) => {
                keys.extend(key);
                accepted.push(placed);
            }
            Err(refusal) => drop(refused.insert(task.id.0, Err(refusal.into()))),
        }
    }
    Ok((accepted, refused))
}

pub(super) fn submitted(task: &NewTask) -> Submitted {
    Submitted { id: task.id, status: State::Pending, duplicate: false, payload_differs: false }
}

/// The statement for these tasks, in one order for all callers, so that two batches that carry
/// the same keys cannot wait for each other.
pub(super) fn insert<'a>(tx: &dyn Tx, tasks: &[&Placed], room: &mut Room) -> (Call<'a>, Vec<Uuid>) {
    let mut ordered = tasks.to_vec();
    ordered.sort_by_key(|p| (&p.task.idempotency_scope, &p.task.idempotency_key, p.task.id));
    let ids = ordered.iter().map(|placed| placed.task.id.0).collect();
    let items = ordered.into_iter().map(|placed| item(&placed.task, placed.lane)).collect();
    let mut shared = vec![tx.fixed_now().into()];
    if tx.dialect() == Dialect::Postgres {
        shared.extend(room.share());
    }
    (Call::each(&SUBMIT, shared, items), ids)
}

pub(super) fn item(task: &NewTask, lane: i64) -> Vec<Value> {
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
        lane.into(),
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
    // The key decides when both are known: it is what the caller repeats on purpose.
    rows_like(tx, task)?.last().map(|row| found(row, task)).transpose()
}

/// The row with a task's id, and then that with its key.
pub(super) fn rows_like(tx: &mut dyn Tx, task: &NewTask) -> Result<Vec<Row>> {
    tx.run(Call::one(
        &FIND_EXISTING,
        vec![
            task.id.0.into(),
            task.idempotency_scope.as_str().into(),
            task.idempotency_key.clone().into(),
        ],
    ))
}

/// When the task of such a row was submitted.
pub(super) fn submitted_at(row: &Row) -> Result<Timestamp> {
    row.time(27)
}

fn found(row: &Row, task: &NewTask) -> Result<Outcome<Submitted>> {
    let same = is_same_request(row, task)?;
    let id = TaskId(row.uuid(0)?);
    // Whoever delegates twice under one id or key delegated once, and is told of a difference. What
    // another caller delegated, or what is no delegation, is not the caller's to repeat.
    let there = row.named::<Profile>(6)?.kind();
    let tolerant = task.profile.kind() == Kind::Delegation
        && there == Kind::Delegation
        && row.maybe(13, Row::text)? == task.caller.as_deref();
    if same || tolerant {
        let status = row.named(4)?;
        return Ok(Ok(Submitted { id, status, duplicate: true, payload_differs: !same }));
    }
    let what = if id == task.id { BY_ID } else { BY_KEY };
    Ok(Err(Refusal::IdempotencyKeyReused { what }.into()))
}

pub(super) fn is_same_request(row: &Row, task: &NewTask) -> Result<bool> {
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
    let created_at = submitted_at(row)?;
    same &= row.time(25)? == task.run_at.resolve(created_at);
    same &= row.maybe(26, Row::time)? == task.deadline.map(|when| when.resolve(created_at));
    Ok(same)
}

type Written = std::result::Result<Vec<Submitted>, (usize, Refusal)>;

fn submit_all(tx: &mut dyn Tx, tasks: &[Placed]) -> Result<Written> {
    // The second of two with one id is a repeat of the first.
    let mut ids = HashSet::new();
    let all: Vec<&Placed> = tasks.iter().filter(|p| ids.insert(p.task.id.0)).collect();
    let own = own::find(tx, &all)?;
    if own.is_empty() {
        by_their_rules(tx, all.iter().copied());
    }
    let left = own::others(&all, &own);
    let mut room = Room::adding(left.len());
    let (accepted, mut refused) = admit(tx, &left, &mut room, Lock::Pending)?;
    refused.extend(own);
    let is_known = |outcome: &Outcome<Submitted>| match outcome {
        Err(Rejection::Refused(refusal)) => !matches!(refusal, Refusal::QueueFull(_)),
        _ => true,
    };
    let known = refused.iter().filter(|(_, outcome)| is_known(outcome)).map(|(id, _)| *id);
    let known: HashSet<Uuid> = known.collect();
    let (call, ids) = insert(tx, &accepted, &mut room);
    let rows = if accepted.is_empty() { Vec::new() } else { tx.run(call)? };
    let mut new = rows.iter().map(|row| task_of(row, &ids)).collect::<Result<BTreeSet<Uuid>>>()?;
    let mut outcomes = Vec::with_capacity(tasks.len());
    for (index, placed) in tasks.iter().enumerate() {
        let task = &placed.task;
        if new.remove(&task.id.0) {
            outcomes.push(submitted(task));
            continue;
        }
        let outcome = match refused.remove(&task.id.0) {
            Some(outcome) => outcome,
            None => existing(tx, task)?,
        };
        match outcome {
            Ok(outcome) => outcomes.push(outcome),
            Err(Rejection::Refused(Refusal::QueueFull(full))) => {
                let full = of_batch(full, &all, &accepted, &known);
                return Ok(Err((index, full.into())));
            }
            Err(Rejection::Refused(refusal)) => return Ok(Err((index, refusal))),
            Err(Rejection::Failed(error)) => return Err(error),
        }
    }
    Ok(Ok(outcomes))
}

/// What is told of a full queue when none of a batch comes in: its own tasks hold no place.
fn of_batch(
    full: QueueFull,
    all: &[&Placed],
    accepted: &[&Placed],
    known: &HashSet<Uuid>,
) -> QueueFull {
    let of_key = |tasks: &[&Placed]| {
        let is_meant = |placed: &&&Placed| {
            let is_new = !known.contains(&placed.task.id.0);
            is_new && placed.bounds.iter().any(|bound| bound.key == full.key)
        };
        // Those that come twice under one key take one place.
        let place = |placed: &&Placed| {
            let NewTask { id, idempotency_scope, idempotency_key, .. } = &placed.task;
            let key = idempotency_key.clone().map(|key| (idempotency_scope.clone(), key));
            let id = key.is_none().then_some(id.0);
            (id, key)
        };
        tasks.iter().filter(is_meant).map(place).collect::<HashSet<_>>().len() as i64
    };
    let (own, adding) = (of_key(accepted), of_key(all));
    full.of_batch(own, adding)
}
