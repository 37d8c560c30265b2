//! The family of a replay: the task that was submitted, its replays, and theirs.
//!
//! Invariant: whoever makes a replay, and whoever begins a step in one that must not run twice,
//! holds the root's lock: one of the two comes first, and the other sees what it did. The root is
//! locked after the task itself, and alone if it is that task. It has ended, like every task that
//! is repeated, so nobody holds it and wants another one but these.

use super::cold;
use crate::error::Result;
use crate::statement;
use crate::step::{self, Step};
use crate::tx::{Call, Tx};
use crate::value::Row;
use windlass_domain::id::TaskId;
use windlass_domain::replay::{Elsewhere, MAX_COUNTED, Made, came_between};
use windlass_domain::step::StepKey;

statement!(shared ROOT, "replay/root");
statement!(COUNT, "replay/count");
statement!(FAMILY, "replay/family");
statement!(MADE, "replay/made");

/// All of the above.
pub(super) static STATEMENTS: &[&crate::statement::Statement] = &[&ROOT, &COUNT, &FAMILY, &MADE];

/// The task that all others of a family repeat.
pub(super) fn root(tx: &mut dyn Tx, task: TaskId) -> Result<TaskId> {
    let rows = tx.run(Call::one(&ROOT, vec![task.0.into(), MAX_COUNTED.into()]))?;
    rows.first().map_or(Ok(task), |row| row.uuid(0).map(TaskId))
}

/// The same, locked; the task itself is.
pub(super) fn locked_root(tx: &mut dyn Tx, task: TaskId) -> Result<TaskId> {
    let root = root(tx, task)?;
    if root != task {
        cold::load(tx, root)?;
    }
    Ok(root)
}

/// How many tasks repeat a root; `most` at most.
pub(super) fn count(tx: &mut dyn Tx, root: TaskId, most: i64) -> Result<i64> {
    let most = most.clamp(0, MAX_COUNTED);
    let rows = tx.run(Call::one(&COUNT, vec![root.0.into(), most.into()]))?;
    rows.first().map_or(Ok(0), |row| row.int(0))
}

/// The tasks of a family but this one.
fn others(tx: &mut dyn Tx, root: TaskId, task: TaskId) -> Result<Vec<TaskId>> {
    let rows = tx.run(Call::one(&FAMILY, vec![root.0.into(), MAX_COUNTED.into()]))?;
    let members = rows.iter().map(|row| row.uuid(0).map(TaskId));
    members.filter(|member| !member.as_ref().is_ok_and(|member| *member == task)).collect()
}

fn made(tx: &mut dyn Tx, task: TaskId) -> Result<Option<Made>> {
    let rows = tx.run(Call::one(&MADE, vec![task.0.into()]))?;
    let made = |row: &Row| Ok(Made { run: row.maybe(0, Row::int)?, at: row.time(1)? });
    rows.first().map(made).transpose()
}

/// What others of the family than `task` began that must not run twice.
pub(super) fn begun_elsewhere(
    tx: &mut dyn Tx,
    root: TaskId,
    task: TaskId,
) -> Result<Vec<Elsewhere>> {
    let others = others(tx, root, task)?;
    Ok(step::begun_by(tx, others)?.into_iter().map(elsewhere).collect())
}

/// Whether another task of the family began this very step since `task` was made, which is locked:
/// then nobody who permitted the replay knew of it. Locks the root of a replay.
pub(super) fn was_begun_since(tx: &mut dyn Tx, task: TaskId, key: &StepKey) -> Result<bool> {
    let root = locked_root(tx, task)?;
    if root == task {
        return Ok(false);
    }
    let Some(made) = made(tx, task)? else {
        return Ok(false);
    };
    let others = others(tx, root, task)?;
    let begun = step::begun_as(tx, others, key)?.into_iter().map(elsewhere);
    Ok(begun.into_iter().any(|step| came_between(&step, made)))
}

fn elsewhere(step: Step) -> Elsewhere {
    let (id, task, key, place) = (step.id, step.task_id, step.key(), step.place());
    let Step { status, effect, ended_at, .. } = step;
    Elsewhere { id, task, key, place, status, effect, ended_at }
}
