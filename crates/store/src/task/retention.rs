//! Retention: finished tasks of profiles that are not kept for ever are removed with everything
//! that belongs to them, history too. The audit keeps how many they were, and the log how far it
//! has holes.
//!
//! Invariant: the database deletes only inside a transaction that opened its gate, and this is the
//! only place that opens it.

use super::{Tasks, row};
use crate::error::Result;
use crate::statement;
use crate::tx::{Call, Tx};
use crate::value::Value;
use windlass_domain::profile::PROFILES;
use windlass_domain::replay::MAX_COUNTED;

statement!(OPEN, "retention/open");
statement!(CLOSE, "retention/close");
statement!(EXPIRED, "retention/expired");
statement!(NOTE_REMOVED, "retention/note_removed");
statement!(REMOVE_TAGS, "retention/remove_tags");
statement!(REMOVE_HISTORY, "retention/remove_history");
statement!(REMOVE_PROGRESS, "retention/remove_progress");
statement!(REMOVE_VOTES, "retention/remove_votes");
statement!(REMOVE_TOKENS, "retention/remove_tokens");
statement!(REMOVE_APPROVALS, "retention/remove_approvals");
statement!(REMOVE_TROUBLE, "retention/remove_trouble");
statement!(REMOVE_TROUBLE_NOTES, "retention/remove_trouble_notes");
statement!(REMOVE_STEPS, "retention/remove_steps");
statement!(REMOVE_SIGNALS, "retention/remove_signals");
statement!(REMOVE_DELETED_RESPONSES, "retention/remove_deleted_responses");
statement!(REMOVE_STATE, "retention/remove_state");
statement!(REMOVE_SPEC, "retention/remove_spec");
statement!(shared AUDIT, "retention/audit");

/// All of the above.
pub(super) static STATEMENTS: &[&crate::statement::Statement] = &[
    &OPEN,
    &CLOSE,
    &EXPIRED,
    &NOTE_REMOVED,
    &REMOVE_TAGS,
    &REMOVE_HISTORY,
    &REMOVE_PROGRESS,
    &REMOVE_VOTES,
    &REMOVE_TOKENS,
    &REMOVE_APPROVALS,
    &REMOVE_TROUBLE,
    &REMOVE_TROUBLE_NOTES,
    &REMOVE_STEPS,
    &REMOVE_SIGNALS,
    &REMOVE_DELETED_RESPONSES,
    &REMOVE_STATE,
    &REMOVE_SPEC,
    &AUDIT,
];

impl Tasks {
    /// Removes finished tasks whose retention is over, at most `limit`; returns how many. They are
    /// kept for `keep_ms`, or as long as their profile says.
    pub async fn remove_expired(&self, keep_ms: Option<i64>, limit: usize) -> Result<usize> {
        let standard = PROFILES.iter().find_map(|rules| rules.retention_ms).unwrap_or(i64::MAX);
        let keep_ms = keep_ms.unwrap_or(standard);
        self.store.write("remove_expired", move |tx| remove(tx, keep_ms, limit)).await
    }
}

fn remove(tx: &mut dyn Tx, keep_ms: i64, limit: usize) -> Result<usize> {
    let latest = tx.now()?.plus_ms(-keep_ms);
    let asked = vec![latest.into(), Value::Int(limit as i64), MAX_COUNTED.into()];
    let rows = tx.run(Call::one(&EXPIRED, asked))?;
    if rows.is_empty() {
        return Ok(0);
    }
    let ids = rows.iter().map(|row| row.uuid(0)).collect::<Result<Vec<_>>>()?;
    tx.run(Call::one(&OPEN, vec![]))?;
    for statement in [
        &NOTE_REMOVED,
        &REMOVE_TAGS,
        &REMOVE_HISTORY,
        &REMOVE_PROGRESS,
        &REMOVE_VOTES,
        &REMOVE_TOKENS,
        &REMOVE_APPROVALS,
        &REMOVE_TROUBLE_NOTES,
        &REMOVE_TROUBLE,
        &REMOVE_STEPS,
        &REMOVE_SIGNALS,
        &REMOVE_DELETED_RESPONSES,
        &REMOVE_STATE,
        &REMOVE_SPEC,
    ] {
        tx.run(Call::one(statement, vec![Value::UuidList(ids.clone())]))?;
    }
    tx.run(Call::one(&CLOSE, vec![]))?;
    let detail = serde_json::json!({ "tasks": ids.len(), "finished_until": latest });
    let now = tx.now()?;
    tx.run(Call::one(&AUDIT, vec![now.into(), row::typed(&detail)]))?;
    Ok(ids.len())
}
