//! Signals as rows: what waiting tasks are told. One that came early stays until a wait takes it.
//!
//! Invariant: a signal is taken by exactly one wait. Those of a task go with its steps' results,
//! those that nobody took when they are old.

use crate::error::Result;
use crate::statement;
use crate::store::Store;
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use serde_json::Value as Json;
use windlass_domain::id::{SignalId, TaskId};
use windlass_domain::time::Timestamp;
use windlass_domain::wait::SIGNAL_RETENTION_MS;

/// A signal is read in this order.
pub(crate) const COLUMNS: &str =
    "id, name, task_id, key, payload, request_digest, sent_by, created_at, taken_by, taken_at";

statement!(LOCK, "signal/lock");
statement!(shared INSERT, "signal/insert");
statement!(shared FIND, "signal/find");
statement!(shared NEXT_OF_TASK, "signal/next_of_task");
statement!(shared NEXT_OF_KEY, "signal/next_of_key");
statement!(shared TAKE, "signal/take");
statement!(FORGET, "signal/forget");
statement!(shared FORGET_UNTAKEN, "signal/forget_untaken");

/// All of the above.
pub(crate) static STATEMENTS: &[&statement::Statement] =
    &[&LOCK, &INSERT, &FIND, &NEXT_OF_TASK, &NEXT_OF_KEY, &TAKE, &FORGET, &FORGET_UNTAKEN];

/// To whom a signal is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// One task.
    Task(TaskId),
    /// Whoever waits with this key, the one that waits longest first.
    Key(String),
}

/// A signal that is to be sent.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSignal {
    /// Made before the first try, or chosen by the caller.
    pub id: SignalId,
    /// What it is called.
    pub name: String,
    /// To whom.
    pub target: Target,
    /// Canonical JSON.
    pub payload: String,
    /// Who sends it.
    pub sent_by: String,
}

impl NewSignal {
    /// What tells whether the same id came with the same signal.
    fn digest(&self) -> String {
        let target = match &self.target {
            Target::Task(task) => serde_json::json!({ "task": task }),
            Target::Key(key) => serde_json::json!({ "key": key }),
        };
        windlass_domain::json::digest(&serde_json::json!([self.name, target, self.payload]))
    }
}

/// A signal as users see it.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // Named like the columns of `signal`.
pub struct Signal {
    pub id: SignalId,
    pub name: String,
    pub task_id: Option<TaskId>,
    pub key: Option<String>,
    pub payload: Json,
    pub sent_by: String,
    pub created_at: Timestamp,
    pub taken_by: Option<TaskId>,
    pub taken_at: Option<Timestamp>,
}

fn signal(row: &Row) -> Result<Signal> {
    Ok(Signal {
        id: SignalId(row.uuid(0)?),
        name: row.text(1)?.to_owned(),
        task_id: row.maybe(2, Row::uuid)?.map(TaskId),
        key: row.maybe(3, |r, i| r.text(i).map(str::to_owned))?,
        payload: row.json(4)?,
        sent_by: row.text(6)?.to_owned(),
        created_at: row.time(7)?,
        taken_by: row.maybe(8, Row::uuid)?.map(TaskId),
        taken_at: row.maybe(9, Row::time)?,
    })
}

/// Waits until no other transaction sends or awaits a signal of this key.
pub(crate) fn lock(tx: &mut dyn Tx, key: &str) -> Result<()> {
    tx.run(Call::one(&LOCK, vec![key.into()])).map(drop)
}

/// What became of a signal that was sent.
pub(crate) enum Inserted {
    /// It is there now.
    New,
    /// It was there before.
    Same,
    /// Its id was used for another one.
    Other,
}

pub(crate) fn insert(tx: &mut dyn Tx, new: &NewSignal, now: Timestamp) -> Result<Inserted> {
    let (task, key) = match &new.target {
        Target::Task(task) => (Some(task.0), None),
        Target::Key(key) => (None, Some(key.as_str())),
    };
    let params = vec![
        new.id.0.into(),
        new.name.as_str().into(),
        task.into(),
        key.into(),
        Value::Json(new.payload.clone()),
        new.digest().into(),
        new.sent_by.as_str().into(),
        now.into(),
    ];
    if !tx.run(Call::one(&INSERT, params))?.is_empty() {
        return Ok(Inserted::New);
    }
    Ok(if is_known(tx, new)? { Inserted::Same } else { Inserted::Other })
}

/// Whether this very signal was sent before.
pub(crate) fn is_known(tx: &mut dyn Tx, new: &NewSignal) -> Result<bool> {
    let rows = tx.run(Call::one(&FIND, vec![new.id.0.into()]))?;
    let known = rows.first().map(|row| row.text(5)).transpose()?;
    Ok(known == Some(new.digest().as_str()))
}

/// The oldest signal that nobody has taken.
pub(crate) fn next(tx: &mut dyn Tx, target: &Target, name: &str) -> Result<Option<Signal>> {
    let call = match target {
        Target::Task(task) => Call::one(&NEXT_OF_TASK, vec![task.0.into(), name.into()]),
        Target::Key(key) => Call::one(&NEXT_OF_KEY, vec![key.as_str().into(), name.into()]),
    };
    tx.run(call)?.first().map(signal).transpose()
}

/// One wait takes a signal.
pub(crate) fn take(tx: &mut dyn Tx, id: SignalId, task: TaskId, now: Timestamp) -> Result<()> {
    tx.run(Call::one(&TAKE, vec![id.0.into(), task.0.into(), now.into()])).map(drop)
}

/// Removes the signals of those of these tasks that finished at `until` or before; returns how
/// many.
pub(crate) fn forget(tx: &mut dyn Tx, tasks: Vec<uuid::Uuid>, until: Timestamp) -> Result<usize> {
    Ok(tx.run(Call::one(&FORGET, vec![Value::UuidList(tasks), until.into()]))?.len())
}

/// The repository of signals: reads, and the end of those that nobody took. `Tasks::signal` sends
/// them, because that wakes tasks.
#[derive(Clone)]
pub struct Signals {
    store: Store,
}

impl Signals {
    /// The signals of one database.
    pub fn new(store: Store) -> Signals {
        Signals { store }
    }

    /// One signal.
    pub async fn show(&self, id: SignalId) -> Result<Option<Signal>> {
        let body = move |tx: &mut dyn Tx| {
            tx.run(Call::one(&FIND, vec![id.0.into()]))?.first().map(signal).transpose()
        };
        self.store.read("signal_show", body).await
    }

    /// Removes signals of keys that nobody took in time, at most `limit`; returns how many.
    pub async fn forget_untaken(&self, limit: usize) -> Result<usize> {
        let body = move |tx: &mut dyn Tx| {
            let before = tx.now()?.plus_ms(-SIGNAL_RETENTION_MS);
            let params = vec![before.into(), Value::Int(limit as i64)];
            Ok(tx.run(Call::one(&FORGET_UNTAKEN, params))?.len())
        };
        self.store.write("signal_forget_untaken", body).await
    }
}
