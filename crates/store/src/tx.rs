//! The seam: what a repository may do inside a transaction.
//!
//! Invariant: bodies are synchronous and run on a thread that owns a connection, so nobody can
//! await a model call inside a transaction. A body may be run again from the start (a deadlock, a
//! lost connection), so it makes no ids and has no effects but those on `tx`.

use crate::error::Result;
use crate::statement::{Dialect, Statement};
use crate::value::{Row, Value};
use std::sync::Arc;
use std::time::Duration;
use windlass_domain::time::Timestamp;

/// What a transaction is asked before it commits.
pub type Check = Arc<dyn Fn() -> Result<()> + Send + Sync>;

/// One statement with its parameters.
pub struct Call<'a> {
    /// What to run.
    pub statement: &'a Statement,
    /// `$1 … $k`, the same for every item.
    pub shared: Vec<Value>,
    /// `$k+1 …`: one vector an item. PostgreSQL binds each position as an array over all items
    /// and runs the statement once; SQLite runs it once an item. `None`: a plain statement.
    /// A statement without RETURNING answers on SQLite with the item's index for each item that
    /// changed a row: RETURNING costs more there than the change itself.
    pub items: Option<Vec<Vec<Value>>>,
    /// SQLite only: stop at the first item that returns no row, because no later one can.
    pub stop_when_empty: bool,
}

impl<'a> Call<'a> {
    /// A plain statement.
    pub fn one(statement: &'a Statement, shared: Vec<Value>) -> Self {
        Call { statement, shared, items: None, stop_when_empty: false }
    }

    /// A set-based statement over items.
    pub fn each(statement: &'a Statement, shared: Vec<Value>, items: Vec<Vec<Value>>) -> Self {
        Call { statement, shared, items: Some(items), stop_when_empty: false }
    }
}

/// An open transaction.
pub trait Tx {
    /// Which database this is; only hot repositories ask.
    fn dialect(&self) -> Dialect;

    /// The transaction's one time: read from the database's clock at the first call (on
    /// PostgreSQL `clock_timestamp()`, so call it after taking locks), then the same.
    fn now(&mut self) -> Result<Timestamp>;

    /// Fixed by a test's clock, if there is one. Hot statements on PostgreSQL take it as a
    /// parameter and read the database's clock when it is NULL.
    fn fixed_now(&self) -> Option<Timestamp>;

    /// Runs one statement and returns its rows.
    fn run(&mut self, call: Call<'_>) -> Result<Vec<Row>>;

    /// Runs one statement together with the next, on PostgreSQL in the same round trip. What it
    /// answers nobody sees; its error is the next one's.
    fn ahead(&mut self, call: Call<'static>) -> Result<()>;

    /// Runs a text of many statements without parameters: a migration.
    fn script(&mut self, sql: &str) -> Result<()>;

    /// Runs the statements and commits, on PostgreSQL in one round trip together with BEGIN. The
    /// body must return right after it. Returns each statement's rows.
    fn run_and_commit(&mut self, calls: Vec<Call<'_>>) -> Result<Vec<Vec<Row>>>;

    /// Runs the only statement of a transaction, on PostgreSQL without BEGIN and COMMIT: a read
    /// that takes one round trip instead of two. The body must return right after it.
    fn ask(&mut self, call: Call<'_>) -> Result<Vec<Row>> {
        Ok(self.run_and_commit(vec![call])?.pop().unwrap_or_default())
    }

    /// Asked as late as possible before the commit, on PostgreSQL when nothing remains but to send
    /// it: an error undoes everything.
    fn only_if(&mut self, check: Check);

    /// How long ago this transaction was asked for, if an earlier try of it ended with a COMMIT in
    /// doubt. What was written since then under its own ids, it has written itself.
    fn in_doubt(&self) -> Option<Duration> {
        None
    }

    /// Whether the ends of delegations are told to their callers; see [`Store::push_results`].
    ///
    /// [`Store::push_results`]: crate::store::Store::push_results
    fn pushes(&self) -> bool {
        true
    }

    /// Something was put into an inbox: whoever reads it is woken after the commit.
    fn pushed(&mut self) {}
}

/// A transaction of a store: with what the store says about pushes, and what came of them.
pub(crate) struct Noting<'a> {
    pub(crate) tx: &'a mut dyn Tx,
    pub(crate) pushes: bool,
    pub(crate) pushed: bool,
}

impl Tx for Noting<'_> {
    fn dialect(&self) -> Dialect {
        self.tx.dialect()
    }

    fn now(&mut self) -> Result<Timestamp> {
        self.tx.now()
    }

    fn fixed_now(&self) -> Option<Timestamp> {
        self.tx.fixed_now()
    }

    fn run(&mut self, call: Call<'_>) -> Result<Vec<Row>> {
        self.tx.run(call)
    }

    fn ahead(&mut self, call: Call<'static>) -> Result<()> {
        self.tx.ahead(call)
    }

    fn script(&mut self, sql: &str) -> Result<()> {
        self.tx.script(sql)
    }

    fn run_and_commit(&mut self, calls: Vec<Call<'_>>) -> Result<Vec<Vec<Row>>> {
        self.tx.run_and_commit(calls)
    }

    fn only_if(&mut self, check: Check) {
        self.tx.only_if(check);
    }

    fn in_doubt(&self) -> Option<Duration> {
        self.tx.in_doubt()
    }

    fn pushes(&self) -> bool {
        self.pushes
    }

    fn pushed(&mut self) {
        self.pushed = true;
    }
}
