//! What a submit has written itself, by a try whose COMMIT was in doubt.
//!
//! Invariant: whoever submits for the first time is told so, also when its first try was committed
//! and only the answer was lost; and whoever repeats an earlier submit is told that. An id may have
//! been chosen by the caller, so the time decides, by the database's clock: what this very call has
//! written is not older than the call.

use super::submit::{Placed, Submitted, is_same_request, rows_like, submitted, submitted_at};
use crate::error::Result;
use crate::group::Outcome;
use crate::tx::Tx;
use crate::value::Row;
use std::collections::HashMap;
use uuid::Uuid;

/// Times are kept in milliseconds, and cut off below.
const CUT_OFF_MS: i64 = 1;

/// Which of the tasks were written by an earlier try of this transaction, and their answers.
/// Nothing is read unless a commit was in doubt.
pub(super) fn find(
    tx: &mut dyn Tx,
    tasks: &[&Placed],
) -> Result<HashMap<Uuid, Outcome<Submitted>>> {
    let mut own = HashMap::new();
    if tx.in_doubt().is_none() {
        return Ok(own);
    }
    let now = tx.now()?;
    // After the database was asked for the time: the answer took some, and is not to be missing.
    let ago = tx.in_doubt().unwrap_or_default();
    let ago_ms = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
    for task in tasks.iter().map(|placed| &placed.task) {
        let rows = rows_like(tx, task)?;
        let is_same_id = |row: &&Row| row.uuid(0).is_ok_and(|id| id == task.id.0);
        let Some(row) = rows.iter().find(is_same_id) else { continue };
        let is_of_now = now.since_ms(submitted_at(row)?) <= ago_ms.saturating_add(CUT_OFF_MS);
        if is_of_now && is_same_request(row, task)? {
            own.insert(task.id.0, Ok(submitted(task)));
        }
    }
    Ok(own)
}

/// The tasks that are not among those.
pub(super) fn others<'t>(
    tasks: &[&'t Placed],
    own: &HashMap<Uuid, Outcome<Submitted>>,
) -> Vec<&'t Placed> {
    tasks.iter().filter(|placed| !own.contains_key(&placed.task.id.0)).copied().collect()
}
