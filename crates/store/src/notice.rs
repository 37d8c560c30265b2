//! Notices: what the service tells the outside, from the transaction that gives the reason until
//! every receiver has it.
//!
//! Invariant: a notice is written in the transaction of what it speaks of ([`enqueue`]), so it is
//! told if and only if that happened. It is told at least once: a try is counted before it begins,
//! and one that never came to an end is made again under the same id.
//! Absent: receivers. Whoever sends knows them, and says which of them have a notice.

use crate::error::Result;
use crate::statement;
use crate::store::Store;
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use serde_json::Value as Json;
use uuid::Uuid;
use windlass_domain::json;
use windlass_domain::notice::{self, AfterFailure, Severity};
use windlass_domain::page::{Order, Part};
use windlass_domain::time::Timestamp;

/// What a notice is read with; what is sealed is read by a claim alone.
pub(crate) const COLUMNS: &str = "id, kind, severity, subject_id, body, created_at, due_at, \
    tries, last_error, delivered_to, delivered_at, given_up_at";

statement!(shared ENQUEUE, "notice/enqueue");
statement!(CLAIM, "notice/claim");
statement!(shared RIPE, "notice/ripe");
statement!(shared DELIVER, "notice/deliver");
statement!(shared RETRY, "notice/retry");
statement!(shared GIVE_UP, "notice/give_up");
statement!(shared EXPIRE, "notice/expire");
statement!(ordered shared LIST, "notice/list");
statement!(shared FORGET, "notice/forget");

/// All of the above that are no lists.
pub(crate) static STATEMENTS: &[&statement::Statement] =
    &[&ENQUEUE, &CLAIM, &RIPE, &DELIVER, &RETRY, &GIVE_UP, &EXPIRE, &FORGET];

/// The lists, each in both orders.
pub(crate) static LISTS: &[&statement::Ordered] = &[&LIST];

/// The order of a list unless another one is asked for.
pub const ORDER: Order = Order::Descending;

/// The longest error that is kept of a try, in characters.
const MAX_ERROR_CHARS: usize = 1_000;

/// Something to tell.
#[derive(Clone, Debug, PartialEq)]
pub struct NewNotice {
    /// Made before the transaction, and the same on every try.
    pub id: Uuid,
    /// `alert`, `approval` …
    pub kind: &'static str,
    /// How soon.
    pub severity: Severity,
    /// What it speaks of.
    pub subject_id: Option<Uuid>,
    /// What receivers and readers see.
    pub body: Json,
    /// What receivers alone see: an object whose fields are added to the body when it is sent. It
    /// is forgotten when the notice is delivered or given up.
    pub sealed: Option<Json>,
}

/// A notice as users see it.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // Named like the columns of `notice`.
pub struct Notice {
    pub id: Uuid,
    pub kind: String,
    pub severity: Severity,
    pub subject_id: Option<Uuid>,
    pub body: Json,
    pub created_at: Timestamp,
    pub due_at: Timestamp,
    pub tries: i32,
    pub last_error: Option<String>,
    pub delivered_to: Vec<String>,
    pub delivered_at: Option<Timestamp>,
    pub given_up_at: Option<Timestamp>,
}

/// A notice to be sent now.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    /// The notice; its `tries` counts this one.
    pub notice: Notice,
    /// What receivers alone see.
    pub sealed: Option<Json>,
    /// When it was taken, by the database's clock.
    pub at: Timestamp,
}

/// What came of a try.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    /// Which notice.
    pub id: Uuid,
    /// Which try.
    pub tries: i32,
    /// Everybody who has it by now.
    pub delivered_to: Vec<String>,
    /// Why somebody does not; none means that everybody has it.
    pub error: Option<String>,
}

/// How many notices ended which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // The names say it.
pub struct Settlement {
    pub delivered: usize,
    pub put_off: usize,
    pub given_up: usize,
}

/// Which notices. Everything that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // Named like the fields of a notice.
pub struct Filter {
    pub kind: Option<String>,
    pub severity: Option<Severity>,
    /// `waiting`, `delivered` or `given_up`.
    pub state: Option<&'static str>,
    pub subject_id: Option<Uuid>,
}

/// Where a page begins.
pub type Cursor = (Timestamp, Uuid);

/// Writes a notice in the transaction of what it speaks of.
pub fn enqueue(tx: &mut dyn Tx, new: &NewNotice) -> Result<()> {
    let now = tx.now()?;
    let params = vec![
        new.id.into(),
        new.kind.into(),
        new.severity.as_str().into(),
        new.subject_id.into(),
        Value::Json(json::canonical(&new.body)),
        new.sealed.as_ref().map_or(Value::Null, |sealed| Value::Json(json::canonical(sealed))),
        now.into(),
    ];
    tx.run(Call::one(&ENQUEUE, params)).map(drop)
}

/// The repository of notices; cheap to clone.
#[derive(Clone)]
pub struct Notices {
    store: Store,
}

impl Notices {
    /// The notices of one database.
    pub fn new(store: Store) -> Notices {
        Notices { store }
    }

    /// Takes notices of one severity for a try, at most `limit`. Those that are not urgent come
    /// only when the oldest has waited for `batch_ms`, and then all together.
    pub async fn claim(
        &self,
        severity: Severity,
        batch_ms: i64,
        limit: usize,
    ) -> Result<Vec<Claimed>> {
        let body = move |tx: &mut dyn Tx| {
            let now = tx.now()?;
            let name = Value::from(severity.as_str());
            if !severity.is_urgent() {
                let old = now.plus_ms(-batch_ms);
                let ripe = Call::one(&RIPE, vec![name.clone(), now.into(), old.into()]);
                if !tx.run(ripe)?.first().map_or(Ok(false), |row| row.bool(0))? {
                    return Ok(Vec::new());
                }
            }
            let until = now.plus_ms(notice::CLAIM_MS);
            let params = vec![name, now.into(), until.into(), Value::Int(limit as i64)];
            let rows = tx.run(Call::one(&CLAIM, params))?;
            let mut claimed: Vec<Claimed> =
                rows.iter().map(|row| claimed(row, now)).collect::<Result<_>>()?;
            claimed.sort_by_key(|claimed| (claimed.notice.created_at, claimed.notice.id));
            Ok(claimed)
        };
        self.store.write("notice_claim", body).await
    }

    /// Writes down what came of tries.
    pub async fn settle(&self, settled: Vec<Settled>) -> Result<Settlement> {
        let body = move |tx: &mut dyn Tx| {
            let mut settlement = Settlement::default();
            for item in &settled {
                settle(tx, item, &mut settlement)?;
            }
            Ok(settlement)
        };
        self.store.write("notice_settle", body).await
    }

    /// Gives up what nobody tried to send for too long; returns how many.
    pub async fn expire(&self, limit: usize) -> Result<usize> {
        let body = move |tx: &mut dyn Tx| {
            let now = tx.now()?;
            let old = now.plus_ms(-notice::MAX_WAIT_MS);
            let params = vec![old.into(), now.into(), Value::Int(limit as i64)];
            Ok(tx.run(Call::one(&EXPIRE, params))?.len())
        };
        self.store.write("notice_expire", body).await
    }

    /// Forgets notices that are `age_ms` old or older and ended one way or the other; returns how
    /// many.
    pub async fn forget(&self, age_ms: i64, limit: usize) -> Result<usize> {
        let body = move |tx: &mut dyn Tx| {
            let before = tx.now()?.plus_ms(-age_ms);
            let params = vec![before.into(), Value::Int(limit as i64)];
            Ok(tx.run(Call::one(&FORGET, params))?.len())
        };
        self.store.write("notice_forget", body).await
    }

    /// A page of notices, newest first.
    pub async fn list(
        &self,
        filter: Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<Notice>, Option<Cursor>)> {
        self.page(filter, Part::new(ORDER, after, limit)).await
    }

    /// A page of notices, in either order.
    pub async fn page(
        &self,
        filter: Filter,
        part: Part<Cursor>,
    ) -> Result<(Vec<Notice>, Option<Cursor>)> {
        let ((time, id), most) = (part.begin(), part.most());
        let statement = LIST.in_order(part.order);
        let body = move |tx: &mut dyn Tx| {
            let params = vec![
                time.into(),
                id.into(),
                Value::Int(most),
                filter.kind.clone().into(),
                filter.severity.map(Severity::as_str).into(),
                filter.state.into(),
                filter.subject_id.into(),
            ];
            tx.run(Call::one(statement, params))?.iter().map(read).collect()
        };
        let notices: Vec<Notice> = self.store.read("notice_list", body).await?;
        Ok(part.cut(notices, |notice| (notice.created_at, notice.id)))
    }
}

fn settle(tx: &mut dyn Tx, item: &Settled, settlement: &mut Settlement) -> Result<()> {
    let now = tx.now()?;
    let to = Value::Json(json::canonical(&Json::from(item.delivered_to.clone())));
    let (id, tries) = (Value::from(item.id), Value::from(item.tries));
    let Some(error) = &item.error else {
        let rows = tx.run(Call::one(&DELIVER, vec![id, now.into(), to]))?;
        settlement.delivered += rows.len();
        return Ok(());
    };
    let error: String = error.chars().filter(|c| *c != '\0').take(MAX_ERROR_CHARS).collect();
    match notice::after_failure(item.tries) {
        AfterFailure::TryAgain(ms) => {
            let params = vec![id, tries, now.plus_ms(ms).into(), to, error.into()];
            settlement.put_off += tx.run(Call::one(&RETRY, params))?.len();
        }
        AfterFailure::GiveUp => {
            let params = vec![id, tries, now.into(), to, error.into()];
            settlement.given_up += tx.run(Call::one(&GIVE_UP, params))?.len();
        }
    }
    Ok(())
}

fn claimed(row: &Row, at: Timestamp) -> Result<Claimed> {
    Ok(Claimed { notice: read(row)?, sealed: row.maybe(12, Row::json)?, at })
}

fn read(row: &Row) -> Result<Notice> {
    let damaged = |e| crate::error::Error::Corrupt(format!("receivers of a notice: {e}"));
    Ok(Notice {
        id: row.uuid(0)?,
        kind: row.text(1)?.to_owned(),
        severity: row.named(2)?,
        subject_id: row.maybe(3, Row::uuid)?,
        body: row.json(4)?,
        created_at: row.time(5)?,
        due_at: row.time(6)?,
        tries: row.int32(7)?,
        last_error: row.maybe(8, |r, i| r.text(i).map(str::to_owned))?,
        delivered_to: serde_json::from_value(row.json(9)?).map_err(damaged)?,
        delivered_at: row.maybe(10, Row::time)?,
        given_up_at: row.maybe(11, Row::time)?,
    })
}
