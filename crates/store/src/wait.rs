//! Waits as rows: for what a parked task waits. One row a task, gone when the task is woken.

use crate::error::Result;
use crate::statement;
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use windlass_domain::id::{ApprovalId, LeaseId, StepId, TaskId};
use windlass_domain::time::Timestamp;
use windlass_domain::wait::{WaitKind, WaitingFor};

/// A wait is read in this order.
pub(crate) const COLUMNS: &str =
    "w.task_id, w.kind, w.step_id, w.lease_id, w.child_id, w.signal, w.key";

statement!(shared PARK, "wait/park");
statement!(shared OF_TASK, "wait/of_task");
statement!(shared SHOWN, "wait/shown");
statement!(shared WITH_KEY, "wait/with_key");
statement!(shared REMOVE, "wait/remove");
statement!(shared STRAY, "wait/stray");
statement!(shared CHILD, "wait/child");
statement!(shared AWAITED, "wait/awaited");
statement!(DUE, "wait/due");
statement!(ENDED, "wait/ended");

/// All of the above.
pub(crate) static STATEMENTS: &[&statement::Statement] =
    &[&PARK, &OF_TASK, &SHOWN, &WITH_KEY, &REMOVE, &STRAY, &CHILD, &AWAITED, &DUE, &ENDED];

/// For what a task waits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wait {
    pub task: TaskId,
    pub kind: WaitKind,
    pub step: StepId,
    pub lease: Option<LeaseId>,
    pub child: Option<TaskId>,
    pub signal: Option<String>,
    pub key: Option<String>,
}

/// Reads a wait from the given column on.
pub(crate) fn wait(row: &Row, at: usize) -> Result<Wait> {
    Ok(Wait {
        task: TaskId(row.uuid(at)?),
        kind: row.named(at + 1)?,
        step: StepId(row.uuid(at + 2)?),
        lease: row.maybe(at + 3, Row::uuid)?.map(LeaseId),
        child: row.maybe(at + 4, Row::uuid)?.map(TaskId),
        signal: row.maybe(at + 5, |r, i| r.text(i).map(str::to_owned))?,
        key: row.maybe(at + 6, |r, i| r.text(i).map(str::to_owned))?,
    })
}

/// For what a task waits, if it does.
pub(crate) fn of_task(tx: &mut dyn Tx, task: TaskId) -> Result<Option<Wait>> {
    let rows = tx.run(Call::one(&OF_TASK, vec![task.0.into()]))?;
    rows.first().map(|row| wait(row, 0)).transpose()
}

/// What people are told of it.
pub(crate) fn shown(tx: &mut dyn Tx, task: TaskId) -> Result<Option<WaitingFor>> {
    let rows = tx.run(Call::one(&SHOWN, vec![task.0.into()]))?;
    let Some(row) = rows.first() else { return Ok(None) };
    let (until, text) = (row.maybe(2, Row::time)?, |r: &Row, i| r.text(i).map(str::to_owned));
    if let Some(approval) = row.maybe(6, Row::uuid)?.map(ApprovalId) {
        let until = row.maybe(7, Row::time)?;
        return Ok(Some(WaitingFor::Approval { approval, until }));
    }
    let Some(kind) = row.maybe(0, Row::named)? else { return Ok(None) };
    Ok(Some(match kind {
        WaitKind::Time => WaitingFor::Time { until: row.time(2)? },
        WaitKind::Signal => {
            WaitingFor::Signal { name: text(row, 3)?, key: row.maybe(4, text)?, until }
        }
        WaitKind::Task => WaitingFor::Task { task: TaskId(row.uuid(5)?), until },
        WaitKind::Person => WaitingFor::Person { step: StepId(row.uuid(1)?) },
    }))
}

/// When a timer ends the wait of a task, if one does.
pub(crate) fn wakes_at(tx: &mut dyn Tx, task: TaskId) -> Result<Option<Timestamp>> {
    let rows = tx.run(Call::one(&SHOWN, vec![task.0.into()]))?;
    rows.first().map_or(Ok(None), |row| row.maybe(2, Row::time))
}

/// Who has waited longest for a signal of a key.
pub(crate) fn with_key(tx: &mut dyn Tx, signal: &str, key: &str) -> Result<Option<Wait>> {
    let rows = tx.run(Call::one(&WITH_KEY, vec![signal.into(), key.into()]))?;
    rows.first().map(|row| wait(row, 0)).transpose()
}

/// Writes for what a task waits.
pub(crate) fn park(
    tx: &mut dyn Tx,
    wait: &Wait,
    wake_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<()> {
    // Whatever an earlier wait left behind: the task was moved by hand.
    remove(tx, wait.task)?;
    let params = vec![
        wait.task.0.into(),
        wait.kind.as_str().into(),
        wait.step.0.into(),
        wait.lease.map(|lease| lease.0).into(),
        wake_at.into(),
        wait.signal.clone().into(),
        wait.key.clone().into(),
        wait.child.map(|child| child.0).into(),
        now.into(),
    ];
    tx.run(Call::one(&PARK, params)).map(drop)
}

/// The task waits no longer.
pub(crate) fn remove(tx: &mut dyn Tx, task: TaskId) -> Result<()> {
    tx.run(Call::one(&REMOVE, vec![task.0.into()])).map(drop)
}

/// Forgets waits of tasks that have ended meanwhile.
pub(crate) fn remove_stray(tx: &mut dyn Tx, limit: usize) -> Result<()> {
    tx.run(Call::one(&STRAY, vec![Value::Int(limit as i64)])).map(drop)
}

/// Waits whose time has come: each task as `decide` needs it, then the wait. Locked.
pub(crate) fn due(tx: &mut dyn Tx, now: Timestamp, limit: usize) -> Result<Vec<Row>> {
    tx.run(Call::one(&DUE, vec![now.into(), Value::Int(limit as i64)]))
}

/// Waits for tasks that have ended, likewise, then how the other task ended.
pub(crate) fn ended(
    tx: &mut dyn Tx,
    others: Option<Vec<uuid::Uuid>>,
    limit: usize,
) -> Result<Vec<Row>> {
    tx.run(Call::one(&ENDED, vec![others.into(), Value::Int(limit as i64)]))
}

/// How another task ended: its state, result, error, and whether it has ended at all.
pub(crate) fn other(tx: &mut dyn Tx, task: TaskId) -> Result<Option<Row>> {
    Ok(tx.run(Call::one(&CHILD, vec![task.0.into()]))?.into_iter().next())
}

/// Whether a task has ended.
pub(crate) fn has_ended(tx: &mut dyn Tx, task: TaskId) -> Result<bool> {
    other(tx, task)?.map_or(Ok(false), |row| row.bool(3))
}

/// The tasks whose end is awaited, at most `limit`.
pub(crate) fn awaited(tx: &mut dyn Tx, limit: usize) -> Result<Vec<TaskId>> {
    let rows = tx.run(Call::one(&AWAITED, vec![Value::Int(limit as i64)]))?;
    rows.iter().map(|row| row.uuid(0).map(TaskId)).collect()
}
