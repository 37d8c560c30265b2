//! The family of a replay: the task that was submitted, its replays, and theirs.
//!
//! Invariant: whoever makes a replay, and whoever begins a step in one that must not run twice,
//! holds the root's lock: one of the two comes first, and the other sees what it did. The root is
//! locked after the task itself, and alone if it is that task. It has ended, like every task that
//! is repeated, so nobody holds it and wants another one but these.

use super::cold;
use crate::error::Result;
use crate::statement;
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use windlass_domain::id::{StepId, TaskId};
use windlass_domain::replay::{Elsewhere, MAX_COUNTED, Made, came_between};
use windlass_domain::step::{Place, StepKey};

statement!(shared ROOT, "replay/root");
statement!(LINE, "replay/line");
statement!(COUNT, "replay/count");
statement!(BEGUN, "replay/begun");
statement!(BEGUN_AS, "replay/begun_as");

/// All of the above.
pub(super) static STATEMENTS: &[&crate::statement::Statement] =
    &[&ROOT, &LINE, &COUNT, &BEGUN, &BEGUN_AS];

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

/// What others of the family than `task` began that must not run twice, in the order of their last
/// runs.
pub(super) fn begun_elsewhere(
    tx: &mut dyn Tx,
    root: TaskId,
    task: TaskId,
) -> Result<Vec<Elsewhere>> {
    let rows = tx.run(Call::one(&BEGUN, others(root, task).collect()))?;
    let mut begun = rows.iter().map(elsewhere).collect::<Result<Vec<_>>>()?;
    begun.sort_by_key(|step| step.place);
    Ok(begun)
}

/// Whether another task of the family began this very step since `task` was made, which is locked:
/// then nobody who permitted the replay knew of it. Locks the root of a replay.
pub(super) fn was_begun_since(tx: &mut dyn Tx, task: TaskId, key: &StepKey) -> Result<bool> {
    let line = tx.run(Call::one(&LINE, vec![task.0.into(), MAX_COUNTED.into()]))?;
    let Some(line) = line.first() else { return Ok(false) };
    let root = TaskId(line.uuid(0)?);
    if root == task {
        return Ok(false);
    }
    let made = Made { run: line.maybe(1, Row::int)?, at: line.time(2)? };
    cold::load(tx, root)?;
    let key = [key.name.as_str().into(), key.inputs_hash.as_str().into(), key.occurrence.into()];
    let rows = tx.run(Call::one(&BEGUN_AS, others(root, task).chain(key).collect()))?;
    let begun = rows.iter().map(elsewhere).collect::<Result<Vec<_>>>()?;
    Ok(begun.iter().any(|step| came_between(step, made)))
}

/// The family of a root but one task, as statements name it.
fn others(root: TaskId, task: TaskId) -> impl Iterator<Item = Value> {
    [root.0.into(), MAX_COUNTED.into(), task.0.into()].into_iter()
}

fn elsewhere(row: &Row) -> Result<Elsewhere> {
    let text = |index| row.text(index).map(str::to_owned);
    Ok(Elsewhere {
        id: StepId(row.uuid(0)?),
        task: TaskId(row.uuid(1)?),
        key: StepKey { name: text(2)?, inputs_hash: text(3)?, occurrence: row.int32(4)? },
        place: Place { seq: row.int(5)?, run: row.maybe(6, Row::int)? },
        status: row.named(7)?,
        effect: row.maybe(8, Row::named)?,
        ended_at: row.maybe(9, Row::time)?,
    })
}
