//! The audit: what somebody did, or tried in vain, that no task's history tells.
//!
//! Invariant: append-only; the database refuses every change. Written in the transaction of what it
//! tells, so that neither is there without the other.
//! Absent: secrets. A token stands here by the approval it was for, never by its text.

use crate::error::Result;
use crate::statement;
use crate::store::Store;
use crate::tx::{Call, Tx};
use crate::value::{Row, Value, unreadable};
use serde_json::Value as Json;
use windlass_domain::json;
use windlass_domain::page::{Order, Part};
use windlass_domain::time::Timestamp;

statement!(shared WRITE, "audit/write");
statement!(ordered shared LIST, "audit/list");
statement!(ordered shared LIST_OF_ACTOR, "audit/list_of_actor");
statement!(ordered shared LIST_OF_EVENT, "audit/list_of_event");
statement!(ordered shared LIST_OF_SUBJECT, "audit/list_of_subject");
statement!(EXPORT, "audit/export");

/// All of the above that are no lists.
pub(crate) static STATEMENTS: &[&statement::Statement] = &[&WRITE, &EXPORT];

/// The lists, each in both orders.
pub(crate) static LISTS: &[&statement::Ordered] =
    &[&LIST, &LIST_OF_ACTOR, &LIST_OF_EVENT, &LIST_OF_SUBJECT];

/// The order of a list unless another one is asked for.
pub const ORDER: Order = Order::Descending;

/// One entry.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // Named like the columns of `audit`.
pub struct Entry {
    pub seq: i64,
    pub at: Timestamp,
    pub actor: String,
    pub event: String,
    /// What it is about: an id, a name, or `scope:name` of a limit.
    pub subject: Option<String>,
    pub detail: Json,
}

/// Which entries. Everything that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // Named like the columns of `audit`.
pub struct Filter {
    pub actor: Option<String>,
    pub event: Option<String>,
    pub subject: Option<String>,
    /// From this time on.
    pub since: Option<Timestamp>,
    /// Before this time.
    pub until: Option<Timestamp>,
}

impl Filter {
    /// All entries of one event.
    pub fn of_event(event: &str) -> Filter {
        Filter { event: Some(event.to_owned()), ..Filter::default() }
    }
}

/// Adds an entry, in the transaction of what it tells.
pub fn write(tx: &mut dyn Tx, actor: &str, event: &str, detail: &Json) -> Result<()> {
    let now = tx.now()?;
    tx.run(call(now, actor, event, detail)).map(drop)
}

/// The statement that adds an entry, for whoever sends it along with others.
pub(crate) fn call(now: Timestamp, actor: &str, event: &str, detail: &Json) -> Call<'static> {
    let detail = Value::Json(json::canonical(detail));
    Call::one(&WRITE, vec![now.into(), actor.into(), event.into(), detail])
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

    /// A page, newest first; `before` is the last entry of the page before.
    pub async fn list(
        &self,
        filter: Filter,
        before: Option<i64>,
        limit: i64,
    ) -> Result<Vec<Entry>> {
        let limit = usize::try_from(limit).unwrap_or_default();
        Ok(self.page(filter, Part::new(ORDER, before, limit)).await?.0)
    }

    /// A page, in either order.
    pub async fn page(&self, filter: Filter, part: Part<i64>) -> Result<(Vec<Entry>, Option<i64>)> {
        // By whatever leaves the fewest.
        let list = match &filter {
            Filter { subject: Some(_), .. } => &LIST_OF_SUBJECT,
            Filter { event: Some(_), .. } => &LIST_OF_EVENT,
            Filter { actor: Some(_), .. } => &LIST_OF_ACTOR,
            _ => &LIST,
        };
        let (statement, begin, most) = (list.in_order(part.order), part.begin(), part.most());
        let body = move |tx: &mut dyn Tx| entries(tx, statement, begin, most, &filter);
        let read = self.store.read("audit_list", body).await?;
        Ok(part.cut(read, |entry| entry.seq))
    }

    /// A part of the whole, oldest first, after an entry. It is read in the order of its commits,
    /// so that whoever goes on after the last entry it has misses none; what other transactions
    /// are still writing at the time is not shown yet.
    pub async fn export(&self, filter: Filter, after: i64, limit: i64) -> Result<Vec<Entry>> {
        let body = move |tx: &mut dyn Tx| entries(tx, &EXPORT, after, limit, &filter);
        self.store.read("audit_export", body).await
    }
}

fn entries(
    tx: &mut dyn Tx,
    statement: &statement::Statement,
    from: i64,
    limit: i64,
    filter: &Filter,
) -> Result<Vec<Entry>> {
    let params = vec![
        from.into(),
        limit.into(),
        filter.actor.clone().into(),
        filter.event.clone().into(),
        filter.subject.clone().into(),
        filter.since.into(),
        filter.until.into(),
    ];
    let rows = tx.run(Call::one(statement, params))?;
    let entry = |row: &Row| {
        Ok(Entry {
            seq: row.int(0)?,
            at: row.time(1)?,
            actor: row.text(2)?.to_owned(),
            event: row.text(3)?.to_owned(),
            subject: row.maybe(4, |r, i| r.text(i).map(str::to_owned))?,
            // An entry that was written by hand must not keep anybody from the others.
            detail: row.json(5).unwrap_or_else(|_| unreadable()),
        })
    };
    rows.iter().map(entry).collect()
}
