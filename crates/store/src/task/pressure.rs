//! How much is held, and how many tasks left the line since one looked last: figures for people and
//! for callers who slow down, read in one snapshot.
//!
//! Absent: whoever decides by them. Claims and submits count for themselves, under their locks.

use super::Tasks;
use super::count;
use super::show::Position;
use crate::error::{Error, Result};
use crate::limit;
use crate::statement;
use crate::tx::{Call, Tx};
use crate::value::Row;
use std::collections::BTreeSet;
use windlass_domain::limit::{Key, Limits};
use windlass_domain::time::Timestamp;

statement!(IN_ALL, "limit/in_all");
statement!(shared COUNT_IN_LINE, "task/count_in_line");
statement!(shared COUNT_LATER, "task/count_later");
statement!(COUNT_LATER_GOING, "task/count_later_going");
statement!(STOPPED, "limit/stopped");
statement!(LEFT, "history/left");

/// All of the above.
pub(super) static STATEMENTS: &[&crate::statement::Statement] =
    &[&IN_ALL, &COUNT_IN_LINE, &COUNT_LATER, &COUNT_LATER_GOING, &STOPPED, &LEFT];

/// How many transitions one look counts at most; beyond that the pace is told too low.
const MOST: i64 = 100_000;

/// How many tasks one look counts one by one at most. Where more could start and more than that
/// wait for their time as well, the line is told too long.
const MOST_COUNTED: i64 = 10_000;

/// What one look shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Claimed and running tasks.
    pub active: i64,
    /// Pending and retry tasks.
    pub pending: i64,
    /// How many of those nothing can be begun of: what they belong to is paused, or may have no
    /// active task. On PostgreSQL perhaps too few, where pauses of different kinds meet.
    pub held_back: i64,
    /// How many of the others could start now.
    pub in_line: i64,
    /// How many left the line after the place of the look before.
    pub left: i64,
    /// From where the next look goes on.
    pub position: Position,
}

impl Tasks {
    /// How many tasks are claimed or running, and how many are pending or retry: what the database
    /// counts by itself, so that asking costs the same however many there are.
    pub async fn in_all(&self) -> Result<(i64, i64)> {
        let body = |tx: &mut dyn Tx| {
            let held = one(tx, Call::one(&IN_ALL, Vec::new()))?;
            Ok((held.int(0)?, held.int(1)?))
        };
        self.store.read("in_all", body).await
    }

    /// What is held, and what left the line after a position.
    pub async fn traffic(&self, after: Position) -> Result<Traffic> {
        let limits = self.limits();
        let body = move |tx: &mut dyn Tx| {
            let stopped = limits.as_deref().map_or(Ok(Vec::new()), |limits| stopped(tx, limits))?;
            traffic(tx, after, &stopped)
        };
        self.store.read("traffic", body).await
    }

    /// The limits in force on this node, if there are any.
    pub fn limits(&self) -> Option<std::sync::Arc<Limits>> {
        self.lanes.limits()
    }
}

/// The keys of which nothing begins. Those that a limit for each one of a scope is for are found
/// among what is held, which is walked over only where such a limit is 0.
fn stopped(tx: &mut dyn Tx, limits: &Limits) -> Result<Vec<String>> {
    let mut keys: BTreeSet<Key> = limits.stopped().into_iter().collect();
    if limits.closes_each() {
        keys.extend(limits.closed(limit::in_use(tx)?.keys()));
    }
    Ok(keys.iter().map(Key::text).collect())
}

fn traffic(tx: &mut dyn Tx, after: Position, stopped: &[String]) -> Result<Traffic> {
    count::prefer_indexes(tx)?;
    let now = tx.now()?;
    let held = one(tx, Call::one(&IN_ALL, Vec::new()))?;
    let pending = held.int(1)?;
    let held_back = match stopped.is_empty() {
        true => 0,
        false => one(tx, Call::one(&STOPPED, vec![stopped.to_vec().into()]))?.int(0)?,
    };
    let in_line = in_line(tx, pending - held_back, stopped, now)?;
    let params = vec![after.transaction.into(), after.seq.into(), MOST.into()];
    let left = one(tx, Call::one(&LEFT, params))?;
    let is_later = !left.is_null(1) && !left.is_null(2);
    let read = |row: &Row| Ok(Position { transaction: row.int(1)?, seq: row.int(2)? });
    Ok(Traffic {
        active: held.int(0)?,
        pending,
        held_back,
        in_line,
        left: left.int(0)?,
        position: if is_later { read(&left)? } else { after },
    })
}

/// How many of so many pending tasks that nothing holds back could start now: those that wait for a
/// time are left out.
fn in_line(tx: &mut dyn Tx, going: i64, stopped: &[String], now: Timestamp) -> Result<i64> {
    let bounds = || vec![now.into(), MOST_COUNTED.into()];
    let (seen, later) = if stopped.is_empty() {
        let later = one(tx, Call::one(&COUNT_LATER, bounds()))?.int(0)?;
        (later, later)
    } else {
        let params = [bounds(), vec![stopped.to_vec().into()]].concat();
        let later = one(tx, Call::one(&COUNT_LATER_GOING, params))?;
        (later.int(0)?, later.int(1)?)
    };
    let most = (going - later).max(0);
    if seen < MOST_COUNTED {
        return Ok(most);
    }
    // Only where too many wait for a time to be counted is the line itself walked: the index of
    // what is ready keeps every task that was in it since the oldest snapshot began.
    let counted = one(tx, Call::one(&COUNT_IN_LINE, bounds()))?.int(0)?;
    Ok(if counted < MOST_COUNTED { counted.min(most) } else { most })
}

fn one(tx: &mut dyn Tx, call: Call<'_>) -> Result<Row> {
    let name = call.statement.name;
    let row = tx.run(call)?.into_iter().next();
    row.ok_or_else(|| Error::Corrupt(format!("{name} gave no row")))
}
