//! Alerts: something happened that somebody should know.
//!
//! Invariant: an alert is raised in the transaction of what it speaks of, and its notice with it (a
//! trigger writes it, so that alerts which the database raises by itself are told alike). It is
//! acknowledged once; nothing else about it changes.

use crate::audit;
use crate::error::{Rejection, Result};
use crate::statement;
use crate::store::Store;
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use serde_json::json;
use uuid::Uuid;
use windlass_domain::id::TaskId;
use windlass_domain::notice::Severity;
use windlass_domain::page::{Order, Part};
use windlass_domain::refusal::Refusal;
use windlass_domain::time::Timestamp;

pub(crate) const COLUMNS: &str =
    "id, type, severity, task_id, message, created_at, acknowledged_at, acknowledged_by";

statement!(shared RAISE, "alert/raise");
statement!(ordered shared LIST, "alert/list");
statement!(ordered shared LIST_OPEN, "alert/list_open");
statement!(ordered shared LIST_OF_TASK, "alert/list_of_task");
statement!(shared SHOW, "alert/show");
statement!(shared ACKNOWLEDGE, "alert/acknowledge");
statement!(shared FORGET, "alert/forget");

/// All of the above that are no lists.
pub(crate) static STATEMENTS: &[&statement::Statement] = &[&RAISE, &SHOW, &ACKNOWLEDGE, &FORGET];

/// The lists, each in both orders.
pub(crate) static LISTS: &[&statement::Ordered] = &[&LIST, &LIST_OPEN, &LIST_OF_TASK];

/// The order of a list unless another one is asked for.
pub const ORDER: Order = Order::Descending;

/// The longest message that is kept, in characters.
const MAX_MESSAGE_CHARS: usize = 4_000;

/// Something that somebody should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAlert {
    /// Made before the transaction, and the same on every try.
    pub id: Uuid,
    /// What kind, such as `budget_exceeded`.
    pub kind: &'static str,
    /// How soon.
    pub severity: Severity,
    /// Which task it is about, if it is about one.
    pub task: Option<TaskId>,
    /// What happened, for people.
    pub message: String,
}

/// An alert as users see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Named like the columns of `alert`.
pub struct Alert {
    pub id: Uuid,
    pub kind: String,
    pub severity: Severity,
    pub task_id: Option<TaskId>,
    pub message: String,
    pub created_at: Timestamp,
    pub acknowledged_at: Option<Timestamp>,
    pub acknowledged_by: Option<String>,
}

/// Which alerts. Everything that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // Named like the fields of an alert.
pub struct Filter {
    pub kind: Option<String>,
    pub severity: Option<Severity>,
    pub task: Option<TaskId>,
    pub acknowledged: Option<bool>,
}

/// Where a page begins.
pub type Cursor = (Timestamp, Uuid);

/// Raises an alert in the transaction of what it speaks of; its notice goes with it.
pub fn raise(tx: &mut dyn Tx, new: &NewAlert) -> Result<()> {
    let now = tx.now()?;
    let message: String =
        new.message.chars().filter(|c| *c != '\0').take(MAX_MESSAGE_CHARS).collect();
    let params = vec![
        new.id.into(),
        new.kind.into(),
        new.severity.as_str().into(),
        new.task.map(|task| task.0).into(),
        message.into(),
        now.into(),
    ];
    tx.run(Call::one(&RAISE, params)).map(drop)
}

/// The repository of alerts; cheap to clone.
#[derive(Clone)]
pub struct Alerts {
    store: Store,
}

impl Alerts {
    /// The alerts of one database.
    pub fn new(store: Store) -> Alerts {
        Alerts { store }
    }

    /// A page of alerts, newest first.
    pub async fn list(
        &self,
        filter: Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<Alert>, Option<Cursor>)> {
        self.page(filter, Part::new(ORDER, after, limit)).await
    }

    /// A page of alerts, in either order.
    pub async fn page(
        &self,
        filter: Filter,
        part: Part<Cursor>,
    ) -> Result<(Vec<Alert>, Option<Cursor>)> {
        let ((time, id), most) = (part.begin(), part.most());
        let list = match (filter.task, filter.acknowledged) {
            (Some(_), _) => &LIST_OF_TASK,
            (None, Some(false)) => &LIST_OPEN,
            (None, _) => &LIST,
        };
        let statement = list.in_order(part.order);
        let body = move |tx: &mut dyn Tx| {
            let mut params = vec![
                time.into(),
                id.into(),
                Value::Int(most),
                filter.kind.clone().into(),
                filter.severity.map(Severity::as_str).into(),
                filter.task.map(|task| task.0).into(),
            ];
            if filter.task.is_some() || filter.acknowledged != Some(false) {
                params.push(filter.acknowledged.into());
            }
            tx.run(Call::one(statement, params))?.iter().map(read).collect()
        };
        let alerts: Vec<Alert> = self.store.read("alert_list", body).await?;
        Ok(part.cut(alerts, |alert| (alert.created_at, alert.id)))
    }

    /// Somebody has seen it. Whoever comes second is told who was first.
    pub async fn acknowledge(&self, id: Uuid, actor: &str) -> Result<Alert, Rejection> {
        let actor = actor.to_owned();
        let body = move |tx: &mut dyn Tx| {
            let now = tx.now()?;
            let params = vec![id.into(), now.into(), actor.as_str().into()];
            let rows = tx.run(Call::one(&ACKNOWLEDGE, params))?;
            if let Some(row) = rows.first() {
                let told = json!({ "alert": id });
                audit::write(tx, &actor, "alert_acknowledged", &told)?;
                return read(row).map(Some);
            }
            tx.run(Call::one(&SHOW, vec![id.into()]))?.first().map(read).transpose()
        };
        let found = self.store.write("alert_acknowledge", body).await?;
        found.ok_or_else(|| Refusal::Unknown { what: "alert" }.into())
    }

    /// Forgets alerts that were acknowledged `age_ms` ago or earlier; returns how many.
    pub async fn forget(&self, age_ms: i64, limit: usize) -> Result<usize> {
        let body = move |tx: &mut dyn Tx| {
            let before = tx.now()?.plus_ms(-age_ms);
            let params = vec![before.into(), Value::Int(limit as i64)];
            Ok(tx.run(Call::one(&FORGET, params))?.len())
        };
        self.store.write("alert_forget", body).await
    }
}

fn read(row: &Row) -> Result<Alert> {
    Ok(Alert {
        id: row.uuid(0)?,
        kind: row.text(1)?.to_owned(),
        severity: row.named(2)?,
        task_id: row.maybe(3, Row::uuid)?.map(TaskId),
        message: row.text(4)?.to_owned(),
        created_at: row.time(5)?,
        acknowledged_at: row.maybe(6, Row::time)?,
        acknowledged_by: row.maybe(7, |r, i| r.text(i).map(str::to_owned))?,
    })
}
