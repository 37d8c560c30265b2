//! Reading one task, its history, its failures, and the log of all transitions.
//!
//! How the log is ordered on PostgreSQL, where transactions overlap. A transaction takes its number
//! with its first lock and commits whenever it likes, so neither the number nor the sequence of the
//! rows is the order of the commits. A row carries the number of its transaction or, if that is
//! higher, the number that the task's change before it carries, and the log is read by (number,
//! sequence) below the oldest transaction that still runs.
//!
//! - Nothing is lost or repeated: whatever carries a number was written by a transaction with that
//!   number or a lower one. Once all of those are over, nothing can appear below it any more.
//! - A task's changes come in their order: whoever changes a task has waited for the change before
//!   to commit, carries at least its number, and takes its sequence number after it.
//! - A position is all that a reader has to keep: it says nothing about this server or this call,
//!   and it stays good when the database is restored elsewhere (`windlass_rebase_log`).
//!
//! Absent: the order of commits between tasks. Nobody may rely on it; on SQLite it comes for free.

use super::Tasks;
use super::row::{self, Failure, History, Task};
use crate::error::{Error, Result};
use crate::group::{Bounds, Group, Outcome};
use crate::statement;
use crate::store::Store;
use crate::tx::{Call, Tx};
use crate::value::Row;
use crate::wait;
use std::collections::HashMap;
use std::sync::Arc;
use windlass_domain::id::TaskId;
use windlass_domain::json;
use windlass_domain::state::State;

statement!(shared SHOW, "task/show");
statement!(LOOK, "task/look");
statement!(shared OF_TASK, "history/of_task");
statement!(shared FAILURES, "history/failures");
statement!(TAIL, "history/tail");
statement!(HEAD, "history/head");
statement!(REMOVED, "history/removed");

/// All of the above.
pub(super) static STATEMENTS: &[&crate::statement::Statement] =
    &[&SHOW, &LOOK, &OF_TASK, &FAILURES, &TAIL, &HEAD, &REMOVED];

/// A place in the log of all transitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The transaction; 0 on SQLite, which has one writer.
    pub transaction: i64,
    /// The transition within it.
    pub seq: i64,
}

/// One task as its row.
pub(super) fn show_row(tx: &mut dyn Tx, id: TaskId) -> Result<Option<Task>> {
    let rows = tx.run(Call::one(&SHOW, vec![id.0.into()]))?;
    rows.first().map(|row| row::task(row, 0)).transpose()
}

/// Whether more is to be told of it than its row says.
fn waits(task: &Task) -> bool {
    matches!(task.status, State::Waiting | State::WaitingForApproval)
}

/// Concurrent looks at tasks share a statement: so many at most, because each brings its payload
/// and its result along.
pub(super) fn look_group(store: Store, bounds: Bounds) -> Group<TaskId, Option<Task>> {
    let bounds = Bounds { items: 64, ..bounds };
    Group::new(
        "look",
        bounds,
        |_| 1024,
        move |ids: Vec<TaskId>| {
            let store = store.clone();
            async move {
                let asked: Arc<[TaskId]> = ids.as_slice().into();
                match store.read("look", move |tx: &mut dyn Tx| look(tx, &asked)).await {
                    Ok(found) => ids
                        .iter()
                        .map(|id| found.get(id).cloned().transpose().map_err(Into::into))
                        .collect(),
                    Err(error) => ids.iter().map(|_| Err(error.clone().into())).collect(),
                }
            }
        },
    )
}

/// Each as it can be read: one that cannot is the affair of those who look at it.
fn look(tx: &mut dyn Tx, ids: &[TaskId]) -> Result<HashMap<TaskId, Result<Task>>> {
    let rows =
        tx.ask(Call::each(&LOOK, vec![], ids.iter().map(|id| vec![id.0.into()]).collect()))?;
    let task = |row: &Row| Ok((TaskId(row.uuid(0)?), row::task(row, 0)));
    rows.iter().map(task).collect()
}

/// The checkpoint that stands: canonical JSON.
pub(crate) fn checkpoint(tx: &mut dyn Tx, id: TaskId) -> Result<Option<String>> {
    let kept = show_row(tx, id)?.and_then(|task| task.checkpoint);
    Ok(kept.as_ref().map(json::canonical))
}

impl Tasks {
    /// One task, and what it waits for.
    pub async fn show(&self, id: TaskId) -> Result<Option<Task>> {
        let row = move |tx: &mut dyn Tx| {
            let rows = tx.ask(Call::one(&SHOW, vec![id.0.into()]))?;
            rows.first().map(|row| row::task(row, 0)).transpose()
        };
        let found = self.store.read("show", row).await?;
        if !found.as_ref().is_some_and(waits) {
            return Ok(found);
        }
        // Once more, for what it waits for belongs to the same moment.
        let body = move |tx: &mut dyn Tx| {
            let Some(mut task) = show_row(tx, id)? else { return Ok(None) };
            if waits(&task) {
                task.waiting_for = wait::shown(tx, id)?;
            }
            Ok(Some(task))
        };
        self.store.read("show", body).await
    }

    /// The same, for many who look at once: they share one read.
    pub async fn look(&self, id: TaskId) -> Outcome<Option<Task>> {
        let found = self.looks.join(vec![id]).await.pop().unwrap_or(Ok(None))?;
        if !found.as_ref().is_some_and(waits) {
            return Ok(found);
        }
        Ok(self.show(id).await?)
    }

    /// A task's transitions after `after_seq` (0: from the first), oldest first.
    pub async fn history(&self, id: TaskId, after_seq: i64, limit: i64) -> Result<Vec<History>> {
        let params = move || vec![id.0.into(), after_seq.into(), limit.into()];
        let body = move |tx: &mut dyn Tx| {
            tx.ask(Call::one(&OF_TASK, params()))?.iter().map(row::history).collect()
        };
        self.store.read("history", body).await
    }

    /// A task's failures after `after_seq`, oldest first.
    pub async fn failures(&self, id: TaskId, after_seq: i64, limit: i64) -> Result<Vec<Failure>> {
        let params = move || vec![id.0.into(), after_seq.into(), limit.into()];
        let body = move |tx: &mut dyn Tx| {
            tx.ask(Call::one(&FAILURES, params()))?.iter().map(failure).collect()
        };
        self.store.read("failures", body).await
    }

    /// Where the log stands: whatever is not yet shown by [`Tasks::tail`] comes after it.
    pub async fn head(&self) -> Result<Position> {
        let body = |tx: &mut dyn Tx| {
            let rows = tx.ask(Call::one(&HEAD, Vec::new()))?;
            let row = rows.first().ok_or_else(|| Error::Corrupt("the log has no head".into()))?;
            Ok(Position { transaction: row.int(0)?, seq: row.int(1)? })
        };
        self.store.read("head", body).await
    }

    /// The last place that retention has removed: whoever reads on from before it misses something.
    pub async fn removed(&self) -> Result<Position> {
        let body = |tx: &mut dyn Tx| {
            let rows = tx.ask(Call::one(&REMOVED, Vec::new()))?;
            let Some(row) = rows.first() else { return Ok(Position::default()) };
            Ok(Position { transaction: row.int(0)?, seq: row.int(1)? })
        };
        self.store.read("removed", body).await
    }

    /// All transitions after a position, each task's in their order: what is read is final, and
    /// what commits later comes later.
    pub async fn tail(&self, after: Position, limit: i64) -> Result<Vec<(Position, History)>> {
        let params = move || vec![after.transaction.into(), after.seq.into(), limit.into()];
        let body = move |tx: &mut dyn Tx| {
            let rows = tx.ask(Call::one(&TAIL, params()))?;
            rows.iter()
                .map(|row| {
                    let history = row::history(row)?;
                    let position = Position { transaction: row.int(10)?, seq: history.seq };
                    Ok((position, history))
                })
                .collect()
        };
        self.store.read("tail", body).await
    }
}

fn failure(row: &Row) -> Result<Failure> {
    let history = row::history(row)?;
    let damaged = |what: String| Error::Corrupt(format!("history {}: {what}", history.seq));
    let metadata = history.metadata.clone().unwrap_or_default();
    let error =
        serde_json::from_value(metadata["error"].clone()).map_err(|e| damaged(e.to_string()))?;
    let attempt = metadata["attempt"].as_i64().unwrap_or(0);
    Ok(Failure {
        error,
        attempt: attempt.try_into().map_err(|_| damaged(format!("attempt {attempt}")))?,
        session: metadata["session"].as_str().map(str::to_owned),
        seq: history.seq,
        at: history.at,
    })
}
