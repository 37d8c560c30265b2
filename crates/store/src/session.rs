//! Workers' sessions: who is there, for which work, and until when without a sign of life.
//!
//! Invariant: a session's end and its tasks' way back are two transactions, in this order. The
//! second may never come, and another node may give the session something between them; so each
//! closed session is looked at once more before it counts as settled.
//! Absent: the streams. The engine holds them; here is only on which node, and which is current.

use crate::error::Result;
use crate::statement;
use crate::store::{Lane, Store};
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use uuid::Uuid;
use windlass_domain::contact::Contact;
use windlass_domain::id::{SessionId, TaskId};
use windlass_domain::page::{Order, Part};
use windlass_domain::pins::Serves;
use windlass_domain::profile::{Kind, Profile};
use windlass_domain::time::Timestamp;

/// How long a session lives without a sign of life.
pub const TTL_MS: i64 = 15_000;

/// What a session is written with.
pub(crate) const COLUMNS: &str = "id, name, worker_type, routes, slots, lease_ms, node, \
    stream_epoch, expires_at, created_at, updated_at, closed_at, close_reason";

statement!(shared REGISTER, "session/register");
statement!(shared SHOW, "session/show");
statement!(ordered shared LIST, "session/list");
statement!(ordered shared LIST_ALL, "session/list_all");
statement!(RENEW, "session/renew");
statement!(EPOCHS, "session/epochs");
statement!(shared BIND, "session/bind");
statement!(shared UNBIND, "session/unbind");
statement!(shared CLOSE, "session/close");
statement!(EXPIRE, "session/expire");
statement!(OF_QUEUE, "session/of_queue");
statement!(shared PROVIDING, "session/providing");
statement!(shared FORGET, "session/forget");
statement!(HOLDER, "session/holder");
statement!(shared UNSETTLED, "session/unsettled");
statement!(HOLDING, "session/holding");
statement!(SETTLE, "session/settle");

/// All of the above that are no lists.
pub(crate) static STATEMENTS: &[&statement::Statement] = &[
    &REGISTER, &SHOW, &RENEW, &EPOCHS, &BIND, &UNBIND, &CLOSE, &EXPIRE, &FORGET, &OF_QUEUE,
    &PROVIDING, &HOLDER, &UNSETTLED, &HOLDING, &SETTLE,
];

/// The lists, each in both orders.
pub(crate) static LISTS: &[&statement::Ordered] = &[&LIST, &LIST_ALL];

/// The order of a list unless another one is asked for.
pub const ORDER: Order = Order::Descending;

/// Which work a session takes. An empty list of kinds means jobs and delegations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // Named like the fields of the request.
pub struct Routes {
    pub queues: Vec<String>,
    pub pools: Vec<String>,
    pub llms: Vec<String>,
    pub models: Vec<String>,
    pub tiers: Vec<String>,
    pub kinds: Vec<Kind>,
}

impl Routes {
    /// Which profiles its kinds are; ledger delegations are nobody's to claim.
    pub fn profiles(&self) -> Vec<Profile> {
        let takes = |kind: Kind| match self.kinds.is_empty() {
            true => kind != Kind::Inference || !self.pools.is_empty(),
            false => self.kinds.contains(&kind),
        };
        let all = Profile::ALL.iter().copied();
        all.filter(|profile| *profile != Profile::Ledger && takes(profile.kind())).collect()
    }

    /// What it has, of what tasks are pinned to.
    pub fn serves(&self) -> Serves {
        let Routes { llms, models, tiers, .. } = self.clone();
        Serves { llms, models, tiers }
    }

    /// Queues and pools: a pool's tasks stand in the queue of its name.
    pub fn all_queues(&self) -> Vec<String> {
        let mut queues = self.queues.clone();
        queues.extend(self.pools.iter().cloned());
        queues.dedup();
        queues
    }
}

/// A worker that wants to take part.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // Named like the columns of `session`.
pub struct NewSession {
    pub id: SessionId,
    pub name: String,
    pub worker_type: Option<String>,
    pub routes: Routes,
    pub slots: i32,
    pub lease_ms: Option<i64>,
}

/// A session as users see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs)] // Named like the columns of `session`.
pub struct Session {
    pub id: SessionId,
    pub name: String,
    pub worker_type: Option<String>,
    #[serde(flatten)]
    pub routes: Routes,
    pub slots: i32,
    pub lease_ms: Option<i64>,
    pub node: Option<Uuid>,
    pub stream_epoch: i64,
    pub expires_at: Timestamp,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub closed_at: Option<Timestamp>,
    pub close_reason: Option<String>,
}

/// What some sessions provide for; those that provide for the same are told together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Providing {
    /// What.
    pub routes: Routes,
    /// Whether one of them is open.
    pub is_open: bool,
    /// When the first one that is remembered came.
    pub first_at: Timestamp,
}

/// How long this node has been in touch with the database; cheap to clone, and shared by all who
/// notice.
#[derive(Clone, Debug, Default)]
pub struct Touch(Arc<Mutex<Option<Contact>>>);

impl Touch {
    /// The database has answered, at this time of its own. Whether sessions that seem silent are.
    pub fn seen(&self, now: Timestamp) -> bool {
        let mut contact = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = match *contact {
            Some(contact) => contact.seen(now, TTL_MS),
            None => Contact::begun(now),
        };
        *contact = Some(seen);
        seen.has_lasted(TTL_MS)
    }
}

/// Where a page of sessions begins.
pub type Cursor = (Timestamp, Uuid);

/// The repository of sessions; cheap to clone.
#[derive(Clone)]
pub struct Sessions {
    store: Store,
}

impl Sessions {
    /// The sessions of one database.
    pub fn new(store: Store) -> Sessions {
        Sessions { store }
    }

    /// Begins a session, or goes on with the one that has this id.
    pub async fn register(&self, new: NewSession) -> Result<Session> {
        let routes = typed(&new.routes)?;
        let body = move |tx: &mut dyn Tx| {
            let now = tx.now()?;
            let params = vec![
                new.id.0.into(),
                new.name.as_str().into(),
                new.worker_type.clone().into(),
                routes.clone(),
                new.slots.into(),
                new.lease_ms.into(),
                now.plus_ms(TTL_MS).into(),
                now.into(),
            ];
            one(tx, Call::one(&REGISTER, params))
        };
        let registered = self.store.run(Lane::Heartbeat, "session_register", body).await?;
        registered.ok_or_else(|| crate::error::Error::Internal {
            operation: "session_register".into(),
            detail: "no row came back".into(),
        })
    }

    /// One session, also a closed one.
    pub async fn show(&self, id: SessionId) -> Result<Option<Session>> {
        let body = move |tx: &mut dyn Tx| {
            tx.ask(Call::one(&SHOW, vec![id.0.into()]))?.first().map(read).transpose()
        };
        self.store.read("session_show", body).await
    }

    /// The session that holds a task, and the length of its leases if it asked for one.
    pub async fn holder(&self, task: TaskId) -> Result<Option<(SessionId, Option<i64>)>> {
        let body = move |tx: &mut dyn Tx| {
            let rows = tx.ask(Call::one(&HOLDER, vec![task.0.into()]))?;
            let holder = |row: &Row| Ok((SessionId(row.uuid(0)?), row.maybe(1, Row::int)?));
            rows.first().map(holder).transpose()
        };
        self.store.read("session_holder", body).await
    }

    /// A page of sessions, newest first: open ones, or all.
    pub async fn list(
        &self,
        all: bool,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<Session>, Option<Cursor>)> {
        self.page(all, Part::new(ORDER, after, limit)).await
    }

    /// A page of sessions, in either order: open ones, or all.
    pub async fn page(
        &self,
        all: bool,
        part: Part<Cursor>,
    ) -> Result<(Vec<Session>, Option<Cursor>)> {
        let ((time, id), most) = (part.begin(), part.most());
        let statement = if all { &LIST_ALL } else { &LIST }.in_order(part.order);
        let body = move |tx: &mut dyn Tx| {
            let params = vec![time.into(), id.into(), Value::Int(most)];
            tx.run(Call::one(statement, params))?.iter().map(read).collect()
        };
        let sessions: Vec<Session> = self.store.read("session_list", body).await?;
        Ok(part.cut(sessions, |session| (session.created_at, session.id.0)))
    }

    /// What the sessions that are remembered provide for: open ones first, then the newest, at most
    /// `limit` that differ.
    pub async fn providing(&self, limit: usize) -> Result<Vec<Providing>> {
        let body = move |tx: &mut dyn Tx| {
            let rows = tx.run(Call::one(&PROVIDING, vec![Value::Int(limit as i64)]))?;
            rows.iter().map(providing).collect()
        };
        let mut all: Vec<Providing> = self.store.read("session_providing", body).await?;
        all.sort_by_key(|providing| !providing.is_open);
        Ok(all)
    }

    /// Renews sessions; returns those that are still open, each with the epoch of its current
    /// stream. On the lane of heartbeats, so that a flood of submits cannot make workers look dead.
    pub async fn renew(&self, ids: Vec<SessionId>) -> Result<Vec<(SessionId, i64)>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<Uuid> = ids.into_iter().map(|id| id.0).collect();
        let body = move |tx: &mut dyn Tx| {
            let now = tx.now()?;
            let params = vec![Value::UuidList(ids.clone()), now.plus_ms(TTL_MS).into(), now.into()];
            let rows = tx.run(Call::one(&RENEW, params))?;
            rows.iter().map(|row| Ok((SessionId(row.uuid(0)?), row.int(1)?))).collect()
        };
        self.store.run(Lane::Heartbeat, "session_renew", body).await
    }

    /// Those of these sessions that are open, each with the epoch of its current stream.
    pub async fn epochs(&self, ids: Vec<SessionId>) -> Result<Vec<(SessionId, i64)>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<Uuid> = ids.into_iter().map(|id| id.0).collect();
        let body = move |tx: &mut dyn Tx| {
            let rows = tx.run(Call::one(&EPOCHS, vec![Value::UuidList(ids.clone())]))?;
            rows.iter().map(|row| Ok((SessionId(row.uuid(0)?), row.int(1)?))).collect()
        };
        self.store.read("session_epochs", body).await
    }

    /// A stream was opened; the session comes back with its new epoch.
    pub async fn bind(&self, id: SessionId, node: Uuid) -> Result<Option<Session>> {
        let body = move |tx: &mut dyn Tx| {
            let now = tx.now()?;
            let params = vec![id.0.into(), node.into(), now.plus_ms(TTL_MS).into(), now.into()];
            one(tx, Call::one(&BIND, params))
        };
        self.store.run(Lane::Heartbeat, "session_bind", body).await
    }

    /// A stream ended. `false`: a newer stream is there, or the session is closed.
    pub async fn unbind(&self, id: SessionId, epoch: i64) -> Result<bool> {
        let body = move |tx: &mut dyn Tx| {
            let now = tx.now()?;
            let params = vec![id.0.into(), epoch.into(), now.into()];
            Ok(!tx.run(Call::one(&UNBIND, params))?.is_empty())
        };
        self.store.run(Lane::Heartbeat, "session_unbind", body).await
    }

    /// Ends a session. `false`: it is unknown or ended already.
    pub async fn close(&self, id: SessionId, reason: &'static str) -> Result<bool> {
        let body = move |tx: &mut dyn Tx| {
            let now = tx.now()?;
            let rows = tx.run(Call::one(&CLOSE, vec![id.0.into(), now.into(), reason.into()]))?;
            Ok(!rows.is_empty())
        };
        self.store.run(Lane::Heartbeat, "session_close", body).await
    }

    /// Ends sessions that fell silent and returns them; none before this node has been in touch
    /// with the database for a session's whole life.
    pub async fn expire(&self, limit: usize, touch: &Touch) -> Result<Vec<SessionId>> {
        let touch = touch.clone();
        let body = move |tx: &mut dyn Tx| {
            let now = tx.now()?;
            // Asked by the time of this very transaction, not before the call: the call may have
            // waited for the database to come back.
            if !touch.seen(now) {
                return Ok(Vec::new());
            }
            let rows = tx.run(Call::one(&EXPIRE, vec![now.into(), Value::Int(limit as i64)]))?;
            rows.iter().map(|row| Ok(SessionId(row.uuid(0)?))).collect()
        };
        self.store.run(Lane::Heartbeat, "session_expire", body).await
    }

    /// Sessions that were closed `age_ms` ago or earlier and are not settled: those that hold
    /// nothing, and the others with why they were closed.
    pub async fn unsettled(&self, age_ms: i64, limit: usize) -> Result<Unsettled> {
        let body = move |tx: &mut dyn Tx| {
            let before = tx.now()?.plus_ms(-age_ms);
            let params = vec![before.into(), Value::Int(limit as i64)];
            let found = tx.run(Call::one(&UNSETTLED, params))?;
            let found = found.iter().map(|row| Ok((SessionId(row.uuid(0)?), row.text(1)?.into())));
            let found = found.collect::<Result<Vec<(SessionId, String)>>>()?;
            let holders = found.iter().map(|(id, _)| id.to_string()).collect();
            let rows = tx.run(Call::one(&HOLDING, vec![Value::TextList(holders)]))?;
            let rows = rows.iter().map(|row| Ok(row.text(0)?.to_owned()));
            let holding = rows.collect::<Result<HashSet<String>>>()?;
            let (holding, empty): (Vec<_>, Vec<_>) =
                found.into_iter().partition(|(id, _)| holding.contains(&id.to_string()));
            let empty = empty.into_iter().map(|(id, _)| id).collect();
            Ok(Unsettled { holding, empty })
        };
        self.store.read("session_unsettled", body).await
    }

    /// Nothing is left with these.
    pub async fn settle(&self, ids: Vec<SessionId>) -> Result<()> {
        let ids: Vec<String> = ids.iter().map(SessionId::to_string).collect();
        let body = move |tx: &mut dyn Tx| {
            let now = tx.now()?;
            tx.run(Call::one(&SETTLE, vec![Value::TextList(ids.clone()), now.into()])).map(drop)
        };
        self.store.run(Lane::Heartbeat, "session_settle", body).await
    }

    /// Forgets sessions that were closed `age_ms` ago or earlier; returns how many.
    pub async fn forget(&self, age_ms: i64, limit: usize) -> Result<usize> {
        let body = move |tx: &mut dyn Tx| {
            let before = tx.now()?.plus_ms(-age_ms);
            let params = vec![before.into(), Value::Int(limit as i64)];
            Ok(tx.run(Call::one(&FORGET, params))?.len())
        };
        self.store.run(Lane::Heartbeat, "session_forget", body).await
    }
}

/// Closed sessions that nobody has looked at since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unsettled {
    /// They hold something, and were closed for this reason.
    pub holding: Vec<(SessionId, String)>,
    /// They hold nothing.
    pub empty: Vec<SessionId>,
}

/// How many sessions are looked at to see who takes a queue.
const MOST_OF_QUEUE: i64 = 10_000;

/// A session that names a queue.
pub(crate) struct OfQueue {
    pub(crate) id: SessionId,
    pub(crate) routes: Routes,
    pub(crate) slots: i32,
    pub(crate) worker_type: Option<String>,
}

/// The sessions that are alive and name a queue.
pub(crate) fn of_queue(tx: &mut dyn Tx, queue: &str, now: Timestamp) -> Result<Vec<OfQueue>> {
    let params = vec![queue.into(), now.into(), MOST_OF_QUEUE.into()];
    let read = |row: &Row| {
        Ok(OfQueue {
            routes: read_routes(row, 0)?,
            slots: row.int32(1)?,
            id: SessionId(row.uuid(2)?),
            worker_type: row.maybe(3, Row::text)?.map(str::to_owned),
        })
    };
    tx.run(Call::one(&OF_QUEUE, params))?.iter().map(read).collect()
}

/// What a session is called; `None` if this is none that is remembered.
pub(crate) fn name_of(tx: &mut dyn Tx, session: &str) -> Result<Option<String>> {
    let Ok(id) = session.parse::<Uuid>() else { return Ok(None) };
    Ok(one(tx, Call::one(&SHOW, vec![id.into()]))?.map(|session| session.name))
}

fn read_routes(row: &Row, at: usize) -> Result<Routes> {
    let damaged =
        |e: serde_json::Error| crate::error::Error::Corrupt(format!("routes of a session: {e}"));
    serde_json::from_value(row.json(at)?).map_err(damaged)
}

fn one(tx: &mut dyn Tx, call: Call<'_>) -> Result<Option<Session>> {
    tx.run(call)?.first().map(read).transpose()
}

fn providing(row: &Row) -> Result<Providing> {
    let (routes, open) = (read_routes(row, 0)?, row.int(1)?);
    Ok(Providing { routes, is_open: open > 0, first_at: row.time(2)? })
}

pub(crate) fn read(row: &Row) -> Result<Session> {
    let text = |index| row.maybe(index, |r, i| r.text(i).map(str::to_owned));
    Ok(Session {
        id: SessionId(row.uuid(0)?),
        name: row.text(1)?.to_owned(),
        worker_type: text(2)?,
        routes: read_routes(row, 3)?,
        slots: row.int32(4)?,
        lease_ms: row.maybe(5, Row::int)?,
        node: row.maybe(6, Row::uuid)?,
        stream_epoch: row.int(7)?,
        expires_at: row.time(8)?,
        created_at: row.time(9)?,
        updated_at: row.time(10)?,
        closed_at: row.maybe(11, Row::time)?,
        close_reason: text(12)?,
    })
}

fn typed(routes: &Routes) -> Result<Value> {
    let json = serde_json::to_string(routes).map_err(|e| crate::error::Error::Internal {
        operation: "session_register".into(),
        detail: e.to_string(),
    })?;
    Ok(Value::Json(json))
}
