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
use windlass_domain::replay::{Elsewhere, MAX_COUNTED, Relative, came_between, was_open};
use windlass_domain::step::StepKey;

statement!(shared ROOT, "replay/root");
statement!(COUNT, "replay/count");
statement!(FAMILY, "replay/family");

/// All of the above.
pub(super) static STATEMENTS: &[&crate::statement::Statement] = &[&ROOT, &COUNT, &FAMILY];

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

fn members(tx: &mut dyn Tx, root: TaskId) -> Result<Vec<Relative>> {
    let rows = tx.run(Call::one(&FAMILY, vec![root.0.into(), MAX_COUNTED.into()]))?;
    let relative = |row: &Row| {
        Ok(Relative {
            id: TaskId(row.uuid(0)?),
            created_at: row.time(1)?,
            finished_at: row.maybe(2, Row::time)?,
        })
    };
    rows.iter().map(relative).collect()
}

/// What others of the family than `task` began that must not run twice.
pub(super) fn begun_elsewhere(
    tx: &mut dyn Tx,
    root: TaskId,
    task: TaskId,
) -> Result<Vec<Elsewhere>> {
    let mut others: Vec<TaskId> = members(tx, root)?.iter().map(|member| member.id).collect();
    others.retain(|other| *other != task);
    Ok(step::begun_by(tx, others)?.into_iter().map(elsewhere).collect())
}

/// Whether another task of the family began this very step since `task` was made, which is locked:
/// then nobody who permitted the replay knew of it. Locks the root of a replay.
pub(super) fn was_begun_since(tx: &mut dyn Tx, task: TaskId, key: &StepKey) -> Result<bool> {
    let root = locked_root(tx, task)?;
    if root == task {
        return Ok(false);
    }
    let members = members(tx, root)?;
    let Some(made_at) = members.iter().find(|m| m.id == task).map(|m| m.created_at) else {
        return Ok(false);
    };
    for other in members.iter().filter(|m| m.id != task && was_open(m, made_at)) {
        let Some(found) = step::find(tx, other.id, key.id(other.id))? else { continue };
        let (is_own, begun_at) = (found.copied_from.is_none(), found.created_at);
        if is_own && !found.idempotent && came_between(&elsewhere(found), begun_at, made_at) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn elsewhere(step: Step) -> Elsewhere {
    let (id, task, key, seq) = (step.id, step.task_id, step.key(), step.seq);
    Elsewhere { id, task, key, seq, status: step.status, effect: step.effect }
}
