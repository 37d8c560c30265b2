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
use windlass_domain::page::{Order, Part};
use windlass_domain::state::State;

statement!(shared SHOW, "task/show");
statement!(LOOK, "task/look");
statement!(ordered shared OF_TASK, "history/of_task");
statement!(ordered shared FAILURES, "history/failures");
statement!(TAIL, "history/tail");
statement!(HEAD, "history/head");
statement!(REMOVED, "history/removed");
statement!(NEWEST, "history/newest");

/// All of the above that are no lists.
pub(super) static STATEMENTS: &[&crate::statement::Statement] =
    &[&SHOW, &LOOK, &TAIL, &HEAD, &REMOVED, &NEWEST];

/// The lists, each in both orders.
pub(super) static LISTS: &[&crate::statement::Ordered] = &[&OF_TASK, &FAILURES];

/// The order of a task's history and failures unless another one is asked for.
pub const HISTORY_ORDER: Order = Order::Ascending;

/// A place in the log of all transitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The transaction; 0 on SQLite, which has one writer.
    pub transaction: i64,
    /// The transition within it.
    pub seq: i64,
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.transaction, self.seq)
    }
}

/// The text is no place in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPosition;

impl std::str::FromStr for Position {
    type Err = NoPosition;

    /// As it was written.
    fn from_str(text: &str) -> std::result::Result<Position, NoPosition> {
        let (transaction, seq) = text.split_once('-').ok_or(NoPosition)?;
        let number = |text: &str| text.parse::<i64>().ok().filter(|n| *n >= 0).ok_or(NoPosition);
        Ok(Position { transaction: number(transaction)?, seq: number(seq)? })
    }
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
        let limit = usize::try_from(limit).unwrap_or_default();
        Ok(self.history_page(id, Part::new(HISTORY_ORDER, Some(after_seq), limit)).await?.0)
    }

    /// A page of a task's transitions, in either order.
    pub async fn history_page(
        &self,
        id: TaskId,
        part: Part<i64>,
    ) -> Result<(Vec<History>, Option<i64>)> {
        let (begin, most) = (part.begin(), part.most());
        let statement = OF_TASK.in_order(part.order);
        let params = move || vec![id.0.into(), begin.into(), most.into()];
        let body = move |tx: &mut dyn Tx| {
            tx.ask(Call::one(statement, params()))?.iter().map(row::history).collect()
        };
        let read: Vec<History> = self.store.read("history", body).await?;
        Ok(part.cut(read, |history| history.seq))
    }

    /// A task's failures after `after_seq`, oldest first.
    pub async fn failures(&self, id: TaskId, after_seq: i64, limit: i64) -> Result<Vec<Failure>> {
        let limit = usize::try_from(limit).unwrap_or_default();
        Ok(self.failure_page(id, Part::new(HISTORY_ORDER, Some(after_seq), limit)).await?.0)
    }

    /// A page of a task's failures, in either order.
    pub async fn failure_page(
        &self,
        id: TaskId,
        part: Part<i64>,
    ) -> Result<(Vec<Failure>, Option<i64>)> {
        let (begin, most) = (part.begin(), part.most());
        let statement = FAILURES.in_order(part.order);
        let params = move || vec![id.0.into(), begin.into(), most.into()];
        let body = move |tx: &mut dyn Tx| {
            tx.ask(Call::one(statement, params()))?.iter().map(failure).collect()
        };
        let read: Vec<Failure> = self.store.read("failures", body).await?;
        Ok(part.cut(read, |failure| failure.seq))
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

    /// The last transition that [`Tasks::tail`] shows; `None` if there is none.
    pub async fn newest(&self) -> Result<Option<Position>> {
        let body = |tx: &mut dyn Tx| {
            let rows = tx.ask(Call::one(&NEWEST, Vec::new()))?;
            let position = |row: &Row| Ok(Position { transaction: row.int(0)?, seq: row.int(1)? });
            rows.first().map(position).transpose()
        };
        self.store.read("newest", body).await
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
