//! The threads that read.
//!
//! Invariant: each job sees one snapshot, of committed groups only, and cannot write: its
//! connection is read-only, and a statement that would write is refused by name before it runs.

use super::Shared;
use super::prepared::Statements;
use super::queue::{Taken, answer};
use super::tx::{Setting, attempt, control, roll_back};
use crate::error::Result;
use crate::store::Job;
use rusqlite::Connection;
use std::sync::atomic::Ordering;
use std::time::Instant;

pub(super) fn run(connection: &Connection, shared: &Shared) {
    let mut statements = Statements::new(connection);
    while let Taken::Job(mut job) = shared.reads.take(None) {
        let result = match shared.failure() {
            Some(failure) => Err(failure),
            None => read(&mut statements, &mut job, shared),
        };
        answer(job, result);
    }
}

fn read(statements: &mut Statements<'_>, job: &mut Job, shared: &Shared) -> Result<()> {
    let connection = statements.connection;
    let started = Instant::now();
    control(connection, "BEGIN").map_err(|e| super::error::map(&e, job.name))?;
    let result = attempt(statements, job, Setting::of(&shared.options.clock, false));
    roll_back(connection)?;
    let held = started.elapsed();
    if held > shared.options.long_read {
        shared.counters.long_reads.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            transaction = job.name,
            held_ms = held.as_millis() as u64,
            "a read held its snapshot for long; meanwhile the write-ahead log cannot be reset"
        );
    }
    result.map_err(|failure| failure.error)
}
