//! Steps as rows: reading them, and writing those that a cold operation decided upon.
//!
//! Invariant: whoever writes a step here holds its task's lock, so a step has one writer at a time.
//! Absent: the hot way. `task/step.rs` records steps that may run twice in one statement.

mod page;

pub(crate) use page::first;
pub use page::{PAGE_BYTES, StepPage};

use crate::error::{Error, Result};
use crate::signal;
use crate::statement;
use crate::statement::Dialect;
use crate::store::Store;
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use crate::wait;
use serde_json::Value as Json;
use windlass_domain::failure::TaskError;
use windlass_domain::id::{LeaseId, StepId, TaskId};
use windlass_domain::json;
use windlass_domain::page::{Order, Part};
use windlass_domain::step::{
    self as rule, CheckedStep, Effect, Place, RESULT_RETENTION_MS, StepKey, StepSnapshot, StepState,
};
use windlass_domain::time::Timestamp;

/// A step is read in this order.
pub(crate) const COLUMNS: &str = "task_id, id, seq, name, type, inputs_hash, occurrence, inputs, \
    idempotent, status, result, error, effect, lease_id, attempt, actor, copied_from, created_at, \
    ended_at, expired_at, checkpoint_digest, run";
/// How many columns that are.
const COLUMN_COUNT: usize = 22;

statement!(shared FIND, "step/find");
statement!(shared INTENT, "step/intent");
statement!(shared LIST, "step/list");
statement!(ordered shared PAGE, "step/page");
statement!(ordered shared IN_DOUBT, "step/in_doubt");
statement!(shared INSERT, "step/insert");
statement!(shared SAVE, "step/save");
statement!(shared NEXT_RUN, "step/next_run");
statement!(shared BEGIN, "step/begin");
statement!(shared BEGIN_AGAIN, "step/begin_again");
statement!(COPY, "step/copy");
statement!(FINISHED, "step/finished");
statement!(CLEAR, "step/clear");
statement!(MOVE_EXPIRY, "step/move_expiry");

/// All of the above that are no lists.
pub(crate) static STATEMENTS: &[&statement::Statement] = &[
    &FIND,
    &INTENT,
    &LIST,
    &INSERT,
    &SAVE,
    &NEXT_RUN,
    &BEGIN,
    &BEGIN_AGAIN,
    &COPY,
    &FINISHED,
    &CLEAR,
    &MOVE_EXPIRY,
];

/// The lists, each in both orders.
pub(crate) static LISTS: &[&statement::Ordered] = &[&PAGE, &IN_DOUBT];

/// The order of a list unless another one is asked for.
pub const ORDER: Order = Order::Ascending;

/// A step as users see it.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // Named like the columns of `step`.
pub struct Step {
    pub task_id: TaskId,
    pub id: StepId,
    pub seq: i64,
    pub name: String,
    /// The column `type`.
    pub kind: String,
    pub inputs_hash: String,
    pub occurrence: i32,
    pub inputs: Option<Json>,
    pub idempotent: bool,
    pub status: StepState,
    pub result: Option<Json>,
    pub error: Option<TaskError>,
    pub effect: Option<Effect>,
    /// The holder's secret; no reader is shown it.
    pub(crate) lease_id: Option<LeaseId>,
    pub attempt: i32,
    pub actor: String,
    pub copied_from: Option<StepId>,
    pub created_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    pub expired_at: Option<Timestamp>,
    /// Only there to tell the same end from another one.
    pub(crate) checkpoint_digest: Option<String>,
    /// Of one that must not run twice: which run began last.
    pub run: Option<i64>,
}

impl Step {
    /// What identifies it in its task.
    pub fn key(&self) -> StepKey {
        StepKey {
            name: self.name.clone(),
            inputs_hash: self.inputs_hash.clone(),
            occurrence: self.occurrence,
        }
    }

    /// The place of its last run.
    pub fn place(&self) -> Place {
        Place { run: self.run, seq: self.seq }
    }

    /// What the rules must know of it.
    pub fn snapshot(&self) -> StepSnapshot {
        StepSnapshot {
            id: self.id,
            status: self.status,
            lease_id: self.lease_id,
            run: self.run,
            effect: self.effect,
            result: self.result.as_ref().map(json::canonical),
            error: self.error.as_ref().map(error_text),
            checkpoint: self.checkpoint_digest.clone(),
        }
    }
}

/// An error as it is compared: canonical JSON.
pub(crate) fn error_text(error: &TaskError) -> String {
    json::canonical(&serde_json::to_value(error).unwrap_or_default())
}

fn step(row: &Row) -> Result<Step> {
    let text = |index| row.text(index).map(str::to_owned);
    let error = row.maybe(11, Row::json)?.map(serde_json::from_value).transpose();
    Ok(Step {
        task_id: TaskId(row.uuid(0)?),
        id: StepId(row.uuid(1)?),
        seq: row.int(2)?,
        name: text(3)?,
        kind: text(4)?,
        inputs_hash: text(5)?,
        occurrence: row.int32(6)?,
        inputs: row.maybe(7, Row::json)?,
        idempotent: row.bool(8)?,
        status: row.named(9)?,
        result: row.maybe(10, Row::json)?,
        error: error.map_err(|e| Error::Corrupt(format!("a step's error: {e}")))?,
        effect: row.maybe(12, Row::named)?,
        lease_id: row.maybe(13, Row::uuid)?.map(LeaseId),
        attempt: row.int32(14)?,
        actor: text(15)?,
        copied_from: row.maybe(16, Row::uuid)?.map(StepId),
        created_at: row.time(17)?,
        ended_at: row.maybe(18, Row::time)?,
        expired_at: row.maybe(19, Row::time)?,
        checkpoint_digest: row.maybe(20, |r, i| r.text(i).map(str::to_owned))?,
        run: row.maybe(21, Row::int)?,
    })
}

fn steps(rows: &[Row]) -> Result<Vec<Step>> {
    rows.iter().map(step).collect()
}

/// One step of a task.
pub(crate) fn find(tx: &mut dyn Tx, task: TaskId, id: StepId) -> Result<Option<Step>> {
    let rows = tx.run(Call::one(&FIND, vec![task.0.into(), id.0.into()]))?;
    rows.first().map(step).transpose()
}

/// A step that must not run twice, by its id alone.
pub(crate) fn intent(tx: &mut dyn Tx, id: StepId) -> Result<Option<Step>> {
    let rows = tx.run(Call::one(&INTENT, vec![id.0.into()]))?;
    rows.first().map(step).transpose()
}

/// The steps of a task, oldest first, after `after_seq`.
pub(crate) fn list(tx: &mut dyn Tx, task: TaskId, after_seq: i64, limit: i64) -> Result<Vec<Step>> {
    steps(&tx.run(Call::one(&LIST, vec![task.0.into(), after_seq.into(), limit.into()]))?)
}

/// A step that is to be written.
pub(crate) struct NewStep<'a> {
    pub task: TaskId,
    pub step: &'a CheckedStep,
    pub idempotent: bool,
    pub status: StepState,
    pub result: Option<String>,
    pub lease: LeaseId,
    pub attempt: i32,
    pub actor: &'a str,
    pub now: Timestamp,
}

/// Writes a step.
pub(crate) fn insert(tx: &mut dyn Tx, new: &NewStep<'_>) -> Result<()> {
    let CheckedStep { key, kind, inputs } = new.step;
    let has_ended = matches!(new.status, StepState::Done | StepState::Failed);
    let is_read_by_people = !new.idempotent || new.status == StepState::Waiting;
    let params = vec![
        new.task.0.into(),
        key.id(new.task).0.into(),
        key.name.as_str().into(),
        kind.as_str().into(),
        key.inputs_hash.as_str().into(),
        key.occurrence.into(),
        if is_read_by_people { Value::Json(inputs.clone()) } else { Value::Null },
        new.idempotent.into(),
        new.status.as_str().into(),
        new.result.clone().map_or(Value::Null, Value::Json),
        new.lease.0.into(),
        new.attempt.into(),
        new.actor.into(),
        new.now.into(),
        has_ended.then_some(new.now).into(),
    ];
    tx.run(Call::one(&INSERT, params)).map(drop)
}

/// The number of the run that begins now: of the log's numbers, so that the first entry of a task
/// says which runs began after it was made. SQLite's log has room for a million of them between
/// two entries. Whoever begins a step of a replay, or makes one, holds the lock of its family, so
/// that numbers are in the order of what they saw.
pub(crate) const fn next_run(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => "nextval('task_history_seq')",
        Dialect::Sqlite => {
            "max((SELECT coalesce(max(run), 0) + 1 FROM step WHERE run IS NOT NULL), \
             (SELECT coalesce(max(seq), 0) * 1048576 FROM task_history))"
        }
    }
}

/// A step that must not run twice, and begins now.
pub(crate) struct Intent<'a> {
    pub task: TaskId,
    pub step: &'a CheckedStep,
    pub lease: LeaseId,
    pub attempt: i32,
    pub actor: &'a str,
    pub now: Timestamp,
}

/// Writes the intent of a step, or that a step of the task begins once more. It answers with the
/// number of the run.
pub(crate) fn begin<'a>(intent: &Intent<'_>, is_known: bool) -> Call<'a> {
    let CheckedStep { key, kind, inputs } = intent.step;
    let which = [intent.task.0.into(), key.id(intent.task).0.into()];
    let holder = [intent.lease.0.into(), intent.attempt.into(), intent.actor.into()];
    if is_known {
        return Call::one(&BEGIN_AGAIN, which.into_iter().chain(holder).collect());
    }
    let what = [
        key.name.as_str().into(),
        kind.as_str().into(),
        key.inputs_hash.as_str().into(),
        key.occurrence.into(),
        Value::Json(inputs.clone()),
    ];
    let params = which.into_iter().chain(what).chain(holder).chain([intent.now.into()]);
    Call::one(&BEGIN, params.collect())
}

/// The number in what [`begin`] answers.
pub(crate) fn run_of(rows: &[Row]) -> Result<i64> {
    rows.first().ok_or_else(|| Error::Corrupt("a run without a number".into()))?.int(0)
}

/// Writes what became of a step.
pub(crate) fn save(tx: &mut dyn Tx, step: &Step) -> Result<()> {
    let json = |value: &Option<Json>| {
        value.as_ref().map_or(Value::Null, |value| Value::Json(json::canonical(value)))
    };
    let error = step.error.as_ref().map(serde_json::to_value).transpose().unwrap_or_default();
    let params = vec![
        step.task_id.0.into(),
        step.id.0.into(),
        step.status.as_str().into(),
        json(&step.result),
        json(&error),
        step.effect.map(Effect::as_str).into(),
        step.lease_id.map(|lease| lease.0).into(),
        step.attempt.into(),
        step.actor.as_str().into(),
        step.ended_at.into(),
        step.checkpoint_digest.clone().into(),
        step.run.into(),
    ];
    tx.run(Call::one(&SAVE, params)).map(drop)
}

/// Takes done steps of `origin` along into `task`, each under its new id: all of them or none. The
/// duty that clears results waits for nobody, and whoever planned with one that is gone by now
/// must plan anew: a step that is missing among the copies would run again unasked.
pub(crate) fn copy(
    tx: &mut dyn Tx,
    task: TaskId,
    origin: TaskId,
    ids: Vec<(StepId, StepId)>,
) -> Result<()> {
    if ids.is_empty() {
        return Ok(());
    }
    let run = run_of(&tx.run(Call::one(&NEXT_RUN, vec![]))?)?;
    let planned = ids.len();
    let items = ids.into_iter().map(|(new, old)| vec![new.0.into(), old.0.into()]).collect();
    let given = vec![task.0.into(), origin.0.into(), run.into()];
    let copied = tx.run(Call::each(&COPY, given, items))?.len();
    if copied == planned {
        return Ok(());
    }
    Err(Error::Busy(format!("{} results were cleared at this moment", planned - copied)))
}

/// The repository of steps: reads, and the end of what was kept long enough. Cheap to clone.
#[derive(Clone)]
pub struct Steps {
    store: Store,
}

impl Steps {
    /// The steps of one database.
    pub fn new(store: Store) -> Steps {
        Steps { store }
    }

    /// A task's steps after `after_seq` (0: from the first), oldest first.
    pub async fn list(&self, task: TaskId, after_seq: i64, limit: i64) -> Result<Vec<Step>> {
        let body = move |tx: &mut dyn Tx| {
            let found = list(tx, task, after_seq, limit)?;
            for_people(tx, found)
        };
        self.store.read("step_list", body).await
    }

    /// One step of a task.
    pub async fn show(&self, task: TaskId, id: StepId) -> Result<Option<Step>> {
        let body = move |tx: &mut dyn Tx| {
            let found = find(tx, task, id)?;
            Ok(for_people(tx, found.into_iter().collect())?.pop())
        };
        self.store.read("step_show", body).await
    }

    /// A step that must not run twice, by its id alone.
    pub async fn intent(&self, id: StepId) -> Result<Option<Step>> {
        let body = move |tx: &mut dyn Tx| {
            let found = intent(tx, id)?;
            Ok(for_people(tx, found.into_iter().collect())?.pop())
        };
        self.store.read("step_intent", body).await
    }

    /// Steps that a person must decide over, of living and of ended tasks, oldest first.
    pub async fn in_doubt(&self, after_seq: i64, limit: i64) -> Result<Vec<Step>> {
        let limit = usize::try_from(limit).unwrap_or_default();
        Ok(self.page_in_doubt(Part::new(ORDER, Some(after_seq), limit)).await?.0)
    }

    /// A page of the steps that a person must decide over, in either order.
    pub async fn page_in_doubt(&self, part: Part<i64>) -> Result<(Vec<Step>, Option<i64>)> {
        let (begin, most) = (part.begin(), part.most());
        let statement = IN_DOUBT.in_order(part.order);
        let body = move |tx: &mut dyn Tx| {
            let rows = tx.run(Call::one(statement, vec![begin.into(), most.into()]))?;
            let mut found = steps(&rows)?;
            found.iter_mut().for_each(|step| step.status = rule::left(&step.snapshot(), true));
            Ok(found)
        };
        let found: Vec<Step> = self.store.read("step_in_doubt", body).await?;
        Ok(part.cut(found, |step| step.seq))
    }

    /// Clears the results of tasks that finished long ago and removes their signals, walking
    /// `limit` entries of the log; returns how many entries it walked, and how many results and
    /// signals there were.
    pub async fn expire(&self, limit: usize) -> Result<(usize, usize)> {
        self.store.write("step_expire", move |tx| expire(tx, limit)).await
    }
}

/// Steps of one task as they stand for people: those that it left behind at its end are in doubt.
fn for_people(tx: &mut dyn Tx, mut steps: Vec<Step>) -> Result<Vec<Step>> {
    let is_open = |step: &Step| rule::left(&step.snapshot(), true) != step.status;
    let Some(task) = steps.iter().find(|step| is_open(step)).map(|step| step.task_id) else {
        return Ok(steps);
    };
    let has_ended = wait::has_ended(tx, task)?;
    steps.iter_mut().for_each(|step| step.status = rule::left(&step.snapshot(), has_ended));
    Ok(steps)
}

fn expire(tx: &mut dyn Tx, limit: usize) -> Result<(usize, usize)> {
    let now = tx.now()?;
    let until = now.plus_ms(-RESULT_RETENTION_MS);
    let mut rows = tx.run(Call::one(&FINISHED, vec![Value::Int(limit as i64)]))?;
    let young = rows.iter().position(|row| row.time(3).is_ok_and(|at| at > until));
    rows.truncate(young.unwrap_or(rows.len()));
    let Some(last) = rows.last() else { return Ok((0, 0)) };
    let (transaction, seq) = (last.int(0)?, last.int(1)?);
    let mut tasks = rows.iter().map(|row| row.uuid(2)).collect::<Result<Vec<_>>>()?;
    tasks.sort_unstable();
    tasks.dedup();
    let params = vec![Value::UuidList(tasks.clone()), now.into(), until.into()];
    let cleared = tx.run(Call::one(&CLEAR, params))?.len() + signal::forget(tx, tasks, until)?;
    tx.run(Call::one(&MOVE_EXPIRY, vec![transaction.into(), seq.into()]))?;
    Ok((rows.len(), cleared))
}
