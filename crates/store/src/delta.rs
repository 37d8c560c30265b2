//! Where the deltas of running attempts are, for nodes that do not have them.
//!
//! Invariant: nothing here is the truth about a task. A row says which node to ask; chunks are
//! there only while a node wants them that cannot ask, and go when the attempt is over.

use crate::error::{Error, Result};
use crate::statement;
use crate::store::Store;
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use serde_json::Value as Json;
use uuid::Uuid;
use windlass_domain::id::TaskId;

/// How long a wish for chunks holds.
pub const WANTED_MS: i64 = 10_000;
/// How long after its end an attempt's source and chunks are kept for those who still read.
pub const MEMORY_MS: i64 = 60_000;

statement!(FIND, "delta/find");
statement!(shared WANT, "delta/want");
statement!(shared WANTED, "delta/wanted");
statement!(shared PUT_CHUNK, "delta/put_chunk");
statement!(shared END, "delta/end");
statement!(shared CHUNKS, "delta/chunks");
statement!(shared CHUNKS_BEFORE, "delta/chunks_before");
statement!(shared FORGET_SOURCES, "delta/forget_sources");
statement!(shared FORGET_CHUNKS, "delta/forget_chunks");

/// All of the above.
pub(crate) static STATEMENTS: &[&statement::Statement] = &[
    &FIND,
    &WANT,
    &WANTED,
    &PUT_CHUNK,
    &END,
    &CHUNKS,
    &CHUNKS_BEFORE,
    &FORGET_SOURCES,
    &FORGET_CHUNKS,
];

/// Who has the deltas of a running attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Whose.
    pub task: TaskId,
    /// Of which attempt.
    pub attempt: i32,
    /// The node that has them.
    pub node: Uuid,
    /// Where it is reached, if it lives and says so.
    pub url: Option<String>,
    /// How many there were, once they are all in chunks.
    pub total: Option<u64>,
    /// Whether somebody holds the task, so that more may come.
    pub is_held: bool,
}

/// The repository of sources and chunks; cheap to clone.
#[derive(Clone)]
pub struct Sources {
    store: Store,
}

impl Sources {
    /// The sources of one database.
    pub fn new(store: Store) -> Sources {
        Sources { store }
    }

    /// Where the deltas of these tasks are.
    pub async fn find(&self, tasks: Vec<TaskId>) -> Result<Vec<Source>> {
        let body = move |tx: &mut dyn Tx| {
            let now = tx.now()?;
            tx.run(Call::one(&FIND, vec![ids(&tasks), now.into()]))?.iter().map(source).collect()
        };
        self.store.read("delta_find", body).await
    }

    /// Asks whoever has the deltas for chunks. `false`: nobody has them any more.
    pub async fn want(&self, task: TaskId, attempt: i32) -> Result<bool> {
        let body = move |tx: &mut dyn Tx| {
            let until = tx.now()?.plus_ms(WANTED_MS);
            let params = vec![task.0.into(), attempt.into(), until.into()];
            Ok(!tx.run(Call::one(&WANT, params))?.is_empty())
        };
        self.store.write("delta_want", body).await
    }

    /// Which attempts' deltas are wanted of this node.
    pub async fn wanted(&self, node: Uuid) -> Result<Vec<(TaskId, i32)>> {
        let body = move |tx: &mut dyn Tx| {
            let now = tx.now()?;
            let rows = tx.run(Call::one(&WANTED, vec![node.into(), now.into()]))?;
            rows.iter().map(attempt).collect()
        };
        self.store.read("delta_wanted", body).await
    }

    /// Puts deltas where other nodes read them: of which attempt, from which index on.
    pub async fn put_chunk(
        &self,
        task: TaskId,
        attempt: i32,
        from: u64,
        deltas: String,
    ) -> Result<()> {
        let body = move |tx: &mut dyn Tx| {
            let (from, deltas) = (Value::Int(from as i64), deltas.as_str().into());
            let params = vec![task.0.into(), attempt.into(), from, deltas];
            tx.run(Call::one(&PUT_CHUNK, params)).map(drop)
        };
        self.store.write("delta_chunk", body).await
    }

    /// Says that all deltas of an attempt are in chunks.
    pub async fn end(&self, task: TaskId, attempt: i32, node: Uuid, total: u64) -> Result<()> {
        let body = move |tx: &mut dyn Tx| {
            let total = Value::Int(total as i64);
            let params = vec![task.0.into(), attempt.into(), node.into(), total];
            tx.run(Call::one(&END, params)).map(drop)
        };
        self.store.write("delta_end", body).await
    }

    /// The chunks of an attempt from an index on, each with the index of its first delta.
    pub async fn chunks(
        &self,
        task: TaskId,
        attempt: i32,
        from: u64,
    ) -> Result<Vec<(u64, Vec<Json>)>> {
        self.read_chunks(&CHUNKS, task, attempt, from).await
    }

    /// The last chunks of an attempt that begin before an index; one of them may reach beyond it.
    pub async fn chunks_before(
        &self,
        task: TaskId,
        attempt: i32,
        index: u64,
    ) -> Result<Vec<(u64, Vec<Json>)>> {
        self.read_chunks(&CHUNKS_BEFORE, task, attempt, index).await
    }

    async fn read_chunks(
        &self,
        statement: &'static statement::Statement,
        task: TaskId,
        attempt: i32,
        index: u64,
    ) -> Result<Vec<(u64, Vec<Json>)>> {
        let body = move |tx: &mut dyn Tx| {
            let params = vec![task.0.into(), attempt.into(), Value::Int(index as i64)];
            tx.run(Call::one(statement, params))?.iter().map(chunk).collect()
        };
        self.store.read("delta_chunks", body).await
    }

    /// Forgets what attempts left behind that have been over for a while.
    pub async fn forget(&self, limit: usize) -> Result<usize> {
        let body = move |tx: &mut dyn Tx| {
            let latest = tx.now()?.plus_ms(-MEMORY_MS);
            let params = vec![latest.into(), Value::Int(limit as i64)];
            let forgotten = tx.run(Call::one(&FORGET_SOURCES, params))?.len();
            tx.run(Call::one(&FORGET_CHUNKS, vec![]))?;
            Ok(forgotten)
        };
        self.store.write("delta_forget", body).await
    }
}

fn ids(tasks: &[TaskId]) -> Value {
    Value::UuidList(tasks.iter().map(|task| task.0).collect())
}

fn attempt(row: &Row) -> Result<(TaskId, i32)> {
    Ok((TaskId(row.uuid(0)?), row.int32(1)?))
}

fn source(row: &Row) -> Result<Source> {
    Ok(Source {
        task: TaskId(row.uuid(0)?),
        attempt: row.int32(1)?,
        node: row.uuid(2)?,
        url: row.maybe(3, |r, i| r.text(i).map(str::to_owned))?,
        total: row.maybe(4, Row::int)?.map(|total| total as u64),
        is_held: row.int(5)? > 0,
    })
}

fn chunk(row: &Row) -> Result<(u64, Vec<Json>)> {
    let deltas = serde_json::from_str(row.text(1)?)
        .map_err(|error| Error::Corrupt(format!("a chunk of deltas: {error}")))?;
    Ok((row.int(0)? as u64, deltas))
}
