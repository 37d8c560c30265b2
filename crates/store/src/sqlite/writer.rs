//! The thread that writes: group commit.
//!
//! Invariant: a job is told `Ok` only after the COMMIT that holds its work was acknowledged. All
//! jobs that wait share one transaction; each after the first has a savepoint of its own, so that
//! one that fails is undone alone. The first needs none: when it fails, nothing else is in the
//! transaction yet. Nor does one that follows only such as wrote nothing, like claims that found
//! nothing. Inside a savepoint, what a statement costs grows with the pages that were changed
//! since, so a job that changes many tasks begins a group of its own. A job that is alone waits
//! for nobody and pays for no savepoint.

use super::Shared;
use super::checkpoint::Checkpointer;
use super::error::{is_io_failure, map};
use super::prepared::{Failure, Statements};
use super::queue::{CloseAtEnd, Taken, answer};
use super::tx::{Setting, attempt, control, roll_back};
use crate::error::{Error, Result};
use crate::store::Job;
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use std::time::{Duration, Instant};

/// Bounds of a group: how many jobs share a COMMIT, and for how long a group takes in more jobs.
/// A heartbeat waits for at most one group.
const GROUP_JOBS: usize = 1_024;
const GROUP_TIME: Duration = Duration::from_millis(50);
/// A job that changes more tasks than this is the first of its group. A commit costs less than what
/// its savepoint would.
const HEAVY: usize = 64;

pub(super) fn run(connection: &Connection, shared: &Shared) {
    let _closes = CloseAtEnd(&shared.writes);
    let mut writer = Writer {
        connection,
        shared,
        statements: Statements::new(connection),
        checkpointer: Checkpointer::new(connection, &shared.counters, &shared.options),
    };
    writer.serve();
}

struct Writer<'a> {
    connection: &'a Connection,
    shared: &'a Shared,
    statements: Statements<'a>,
    checkpointer: Checkpointer<'a>,
}

impl<'a> Writer<'a> {
    fn serve(&mut self) {
        loop {
            let checkpointed = match self.shared.writes.take(self.checkpointer.patience()) {
                Taken::Job(job) => match self.shared.failure() {
                    Some(failure) => {
                        answer(job, Err(failure));
                        continue;
                    }
                    None => {
                        self.run_group(job);
                        self.unless_failed(Checkpointer::after_group)
                    }
                },
                Taken::Idle => self.unless_failed(Checkpointer::when_idle),
                Taken::Closed => break,
            };
            self.note(checkpointed);
        }
        let last = self.unless_failed(Checkpointer::when_idle);
        self.note(last);
        if self.shared.failure().is_some() {
            // Closing the last connection would copy the log, on a disk that cannot be trusted.
            let keep = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            let _ = self.connection.set_db_config(keep, true);
        }
    }

    /// Runs `first` and whatever else waits in one transaction.
    fn run_group(&mut self, first: Job) {
        if let Err(error) = control(self.connection, "BEGIN IMMEDIATE") {
            return self.refuse_waiting(first, map(&error, "BEGIN"));
        }
        let setting = Setting::of(&self.shared.options.clock, true);
        let started = Instant::now();
        let unchanged = self.connection.total_changes();
        let mut group = Vec::new();
        let mut next = Some(first);
        while let Some(mut job) = next {
            let is_first = self.connection.total_changes() == unchanged;
            if job.weight > HEAVY && !is_first {
                self.shared.writes.put_back(job);
                break;
            }
            match self.run_in_group(&mut job, setting, is_first) {
                Ok(()) => group.push(job),
                Err(error) => answer(job, Err(error)),
            }
            if self.connection.is_autocommit() {
                // The transaction is gone, and with it the work of the jobs before this one. They
                // are run again, each alone, so that nothing can take them along a second time.
                group.into_iter().for_each(|job| self.run_alone(job));
                return;
            }
            let full = group.len() >= GROUP_JOBS || started.elapsed() >= GROUP_TIME;
            next = if full { None } else { self.shared.writes.try_take() };
        }
        self.commit(group);
    }

    /// Runs a job in the open transaction. One that fails has left nothing in it.
    fn run_in_group(&mut self, job: &mut Job, setting: Setting, first: bool) -> Result<()> {
        let result = if first {
            attempt(&mut self.statements, job, setting)
        } else {
            self.run_in_savepoint(job, setting)
        };
        let Err(failure) = result else {
            return Ok(());
        };
        if failure.sync_failed {
            self.shared.fail(&failure.error);
        }
        if first || failure.sync_failed {
            self.undo_all();
        }
        Err(failure.error)
    }

    fn run_in_savepoint(&mut self, job: &mut Job, setting: Setting) -> Result<(), Failure> {
        let name = job.name;
        self.savepoint(name, "SAVEPOINT job")?;
        let result = attempt(&mut self.statements, job, setting);
        if self.connection.is_autocommit() {
            return result;
        }
        if result.is_err() {
            self.savepoint(name, "ROLLBACK TO job")?;
        }
        self.savepoint(name, "RELEASE job")?;
        result
    }

    /// Where a savepoint fails, nobody knows what the transaction holds: all of it is undone.
    fn savepoint(&self, name: &str, sql: &str) -> Result<(), Failure> {
        control(self.connection, sql).map_err(|error| {
            self.undo_all();
            Failure::new(&error, name)
        })
    }

    fn run_alone(&mut self, mut job: Job) {
        if let Some(failure) = self.shared.failure() {
            return answer(job, Err(failure));
        }
        if let Err(error) = control(self.connection, "BEGIN IMMEDIATE") {
            return answer(job, Err(map(&error, "BEGIN")));
        }
        let setting = Setting::of(&self.shared.options.clock, true);
        match self.run_in_group(&mut job, setting, true) {
            Ok(()) => self.commit(vec![job]),
            Err(error) => answer(job, Err(error)),
        }
    }

    fn commit(&mut self, group: Vec<Job>) {
        let Err(error) = control(self.connection, "COMMIT") else {
            self.shared.counters.group(group.len());
            group.into_iter().for_each(|job| answer(job, Ok(())));
            return;
        };
        let told = self.commit_failed(&error);
        self.undo_all();
        if told.is_about_data() && group.len() > 1 {
            // A deferred constraint of one job: the others must not pay for it.
            group.into_iter().for_each(|job| self.run_alone(job));
        } else {
            group.into_iter().for_each(|job| answer(job, Err(told.clone())));
        }
    }

    fn commit_failed(&self, error: &rusqlite::Error) -> Error {
        let told = map(error, "COMMIT");
        if !is_io_failure(error) {
            return told;
        }
        // The commit may be in the log though its sync failed; only opening the file again tells.
        self.shared.fail(&told);
        Error::OutcomeUnknown(told.to_string())
    }

    fn undo_all(&self) {
        if let Err(error) = roll_back(self.connection) {
            self.shared.fail(&error);
        }
    }

    /// Without a transaction no job can run: those that wait by now are told so at once, instead
    /// of one after the other, each after a timeout of its own.
    fn refuse_waiting(&mut self, first: Job, error: Error) {
        answer(first, Err(error.clone()));
        for _ in 1..GROUP_JOBS {
            let Some(job) = self.shared.writes.try_take() else {
                break;
            };
            answer(job, Err(error.clone()));
        }
    }

    fn unless_failed(
        &mut self,
        checkpoint: fn(&mut Checkpointer<'a>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        match self.shared.failure() {
            Some(_) => Ok(()),
            None => checkpoint(&mut self.checkpointer),
        }
    }

    fn note(&self, checkpointed: rusqlite::Result<()>) {
        let Err(error) = checkpointed else {
            return;
        };
        let told = map(&error, "checkpoint");
        if is_io_failure(&error) {
            self.shared.fail(&told);
        } else {
            tracing::warn!(error = %told, "the write-ahead log could not be copied");
        }
    }
}
