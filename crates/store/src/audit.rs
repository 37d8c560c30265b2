//! The audit: what somebody did, or tried in vain, that no task's history tells.
//!
//! Invariant: append-only; the database refuses every change. Written in the transaction of what it
//! tells, so that neither is there without the other.
//! Absent: secrets. A token stands here by the approval it was for, never by its text.

use crate::error::Result;
use crate::statement;
use crate::store::Store;
use crate::tx::{Call, Tx};
use crate::value::Value;
use serde_json::Value as Json;
use windlass_domain::json;
use windlass_domain::time::Timestamp;

statement!(shared WRITE, "audit/write");
statement!(shared LIST, "audit/list");
statement!(shared LIST_OF_EVENT, "audit/list_of_event");

/// All of the above.
pub(crate) static STATEMENTS: &[&statement::Statement] = &[&WRITE, &LIST, &LIST_OF_EVENT];

/// One entry.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // Named like the columns of `audit`.
pub struct Entry {
    pub seq: i64,
    pub at: Timestamp,
    pub actor: String,
    pub event: String,
    pub detail: Json,
}

/// Adds an entry, in the transaction of what it tells.
pub fn write(tx: &mut dyn Tx, actor: &str, event: &str, detail: &Json) -> Result<()> {
    let now = tx.now()?;
    let detail = Value::Json(json::canonical(detail));
    let params = vec![now.into(), actor.into(), event.into(), detail];
    tx.run(Call::one(&WRITE, params)).map(drop)
}

/// The repository of the audit; cheap to clone.
#[derive(Clone)]
pub struct Audit {
    store: Store,
}

impl Audit {
    /// The audit of one database.
    pub fn new(store: Store) -> Audit {
        Audit { store }
    }

    /// Adds an entry that stands alone, such as a refusal before anything was looked at.
    pub async fn write(&self, actor: &str, event: &'static str, detail: Json) -> Result<()> {
        let actor = actor.to_owned();
        self.store.write("audit", move |tx| write(tx, &actor, event, &detail)).await
    }

    /// A page, newest first, of one event or all; `before` is the last entry of the page before.
    pub async fn list(
        &self,
        event: Option<String>,
        before: Option<i64>,
        limit: i64,
    ) -> Result<Vec<Entry>> {
        let body = move |tx: &mut dyn Tx| {
            let mut params = vec![before.unwrap_or(i64::MAX).into(), limit.into()];
            let statement = if event.is_some() { &LIST_OF_EVENT } else { &LIST };
            params.extend(event.as_deref().map(Value::from));
            let rows = tx.run(Call::one(statement, params))?;
            rows.iter()
                .map(|row| {
                    Ok(Entry {
                        seq: row.int(0)?,
                        at: row.time(1)?,
                        actor: row.text(2)?.to_owned(),
                        event: row.text(3)?.to_owned(),
                        detail: row.json(4)?,
                    })
                })
                .collect()
        };
        self.store.read("audit_list", body).await
    }
}
