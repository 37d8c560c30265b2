//! A transaction on SQLite: statements, run on the thread that owns the connection.
//!
//! Invariant: after SQLite itself has ended the transaction (a full disk, an I/O error) no
//! statement runs any more; outside a transaction it would be committed on its own.
//!
//! Absent: BEGIN and COMMIT. The writer and the readers say those.

use super::error::{internal, map};
use super::prepared::{Failure, Statements};
use super::triggers;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::statement::Dialect;
use crate::store::Job;
use crate::tx::{Call, Check, Tx};
use crate::value::{Row, Value};
use rusqlite::Connection;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use windlass_domain::time::Timestamp;

/// What a transaction is told about its surroundings.
#[derive(Clone, Copy)]
pub(super) struct Setting {
    pub(super) now: Timestamp,
    pub(super) fixed_now: Option<Timestamp>,
    pub(super) may_write: bool,
}

impl Setting {
    pub(super) fn of(clock: &Clock, may_write: bool) -> Setting {
        let fixed_now = clock.fixed();
        Setting { now: fixed_now.unwrap_or_else(|| clock.now()), fixed_now, may_write }
    }
}

/// Runs a job's body inside the open transaction. An error does not yet undo anything.
pub(super) fn attempt(
    statements: &mut Statements<'_>,
    job: &mut Job,
    setting: Setting,
) -> Result<(), Failure> {
    let connection = statements.connection;
    let mut tx = SqliteTx {
        statements,
        name: job.name,
        setting,
        finished: false,
        half_done: false,
        last_failure: None,
        check: None,
    };
    let body = &mut job.body;
    let ran = catch_unwind(AssertUnwindSafe(|| body(&mut tx).and_then(|()| tx.check())));
    let half_done = tx.half_done;
    let last = tx.last_failure.take();
    let sync_failed = last.as_ref().is_some_and(|last| last.sync_failed);
    let error = match ran {
        Err(panic) => internal(job.name, format!("panicked: {}", panic_text(&*panic))),
        Ok(Err(error)) => error,
        // The body may have swallowed the error with which SQLite gave up the transaction, or one
        // that came in the middle of a call's items.
        Ok(Ok(())) if half_done || connection.is_autocommit() => {
            return Err(last.unwrap_or_else(|| gone(job.name).into()));
        }
        Ok(Ok(())) => return Ok(()),
    };
    Err(Failure { error, sync_failed })
}

/// Runs BEGIN, COMMIT, SAVEPOINT and their like.
pub(super) fn control(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.raw_execute().map(drop)
}

struct SqliteTx<'a, 'conn> {
    statements: &'a mut Statements<'conn>,
    name: &'static str,
    setting: Setting,
    /// Set by `run_and_commit`.
    finished: bool,
    /// A call over several items failed at one of them: the job must not be kept.
    half_done: bool,
    /// The latest error of a statement, whatever the body made of it.
    last_failure: Option<Failure>,
    /// Asked when the body is done.
    check: Option<Check>,
}

impl SqliteTx<'_, '_> {
    fn check(&self) -> Result<()> {
        self.check.as_ref().map_or(Ok(()), |check| check())
    }

    fn check_usable(&self) -> Result<()> {
        if self.finished {
            let told = "a statement after run_and_commit, which must be the last";
            return Err(internal(self.name, told));
        }
        if self.statements.connection.is_autocommit() {
            let last = self.last_failure.as_ref().map(|last| last.error.clone());
            return Err(last.unwrap_or_else(|| gone(self.name)));
        }
        Ok(())
    }

    fn run_call(&mut self, call: &Call<'_>) -> Result<Vec<Row>, Failure> {
        let writes = self.statements.get(call.statement)?.writes;
        if writes && !self.setting.may_write {
            let told = format!("{} writes, in a read transaction", call.statement.name);
            return Err(internal(self.name, told).into());
        }
        let result = self.run_items(call);
        // No savepoint around the items: with one open, SQLite's cost of a statement grows with
        // the pages changed since. Instead the job as a whole is undone, and the caller splits it.
        let several = call.items.as_ref().is_some_and(|items| items.len() > 1);
        self.half_done |= writes && several && result.is_err();
        result
    }

    fn run_items(&mut self, call: &Call<'_>) -> Result<Vec<Row>, Failure> {
        let (now, connection) = (self.setting.now, self.statements.connection);
        let prepared = self.statements.get(call.statement)?;
        let mut rows = Vec::new();
        let mut run = || -> Result<(), Failure> {
            let Some(items) = &call.items else {
                prepared.bind_shared(now, &call.shared, 0)?;
                return prepared.step(&mut rows);
            };
            let Some(first) = items.first() else {
                return Ok(());
            };
            prepared.bind_shared(now, &call.shared, first.len())?;
            for (index, item) in items.iter().enumerate() {
                let had = rows.len();
                if item.len() != first.len() {
                    return Err(internal(call.statement.name, "items differ in length").into());
                }
                prepared.bind(call.shared.len(), item)?;
                prepared.step(&mut rows)?;
                if prepared.silent && connection.changes() > 0 {
                    rows.push(Row(vec![Value::Int(index as i64)]));
                }
                if call.stop_when_empty && rows.len() == had {
                    break;
                }
            }
            Ok(())
        };
        let result = run();
        prepared.release();
        result.map(|()| rows)
    }

    fn noted<T>(&mut self, result: Result<T, Failure>) -> Result<T> {
        result.map_err(|failure| {
            let error = failure.error.clone();
            self.last_failure = Some(failure);
            error
        })
    }
}

impl Tx for SqliteTx<'_, '_> {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn now(&mut self) -> Result<Timestamp> {
        Ok(self.setting.now)
    }

    fn fixed_now(&self) -> Option<Timestamp> {
        self.setting.fixed_now
    }

    fn run(&mut self, call: Call<'_>) -> Result<Vec<Row>> {
        self.check_usable()?;
        let result = self.run_call(&call);
        self.noted(result)
    }

    fn ahead(&mut self, call: Call<'static>) -> Result<()> {
        self.run(call).map(drop)
    }

    fn script(&mut self, sql: &str) -> Result<()> {
        self.check_usable()?;
        if !self.setting.may_write {
            return Err(internal(self.name, "a script, in a read transaction"));
        }
        // Only migrations are scripts: they may have brought triggers, or replaced some.
        let connection = self.statements.connection;
        let ran = triggers::remove(connection)
            .and_then(|()| connection.execute_batch(sql))
            .and_then(|()| triggers::install(connection));
        let name = self.name;
        self.noted(ran.map_err(|e| Failure::new(&e, name)))
    }

    fn only_if(&mut self, check: Check) {
        self.check = Some(check);
    }

    fn run_and_commit(&mut self, calls: Vec<Call<'_>>) -> Result<Vec<Vec<Row>>> {
        // The group's COMMIT does the rest.
        let result = calls.into_iter().map(|call| self.run(call)).collect();
        self.finished = true;
        result
    }
}

fn gone(name: &str) -> Error {
    internal(name, "the transaction was ended by a statement in it")
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a text")
}

/// Undoes everything since BEGIN, unless SQLite has done so already.
pub(super) fn roll_back(connection: &Connection) -> Result<()> {
    if connection.is_autocommit() {
        return Ok(());
    }
    control(connection, "ROLLBACK").map_err(|e| map(&e, "ROLLBACK"))
}
