//! The floor: the least SQL that writes the same rows without constraints, triggers and history.
//!
//! Invariant: same columns, same values, one synced transaction a batch, prepared statements, the
//! same settings of the connection as ours.
//! Absent: everything that makes a task durable work rather than a row: guards, audit, sweeps.

pub mod message;
pub mod postgres;
pub mod sqlite;

use crate::Result;

/// A floor that loses work would be no floor.
fn all(done: usize, wanted: usize) -> Result<()> {
    if done == wanted { Ok(()) } else { Err(format!("the floor did {done} of {wanted}").into()) }
}
