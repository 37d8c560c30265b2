//! Messages: a durable inbox for every agent.
//!
//! Invariant: [`deliver`] puts what the service itself says into an inbox, in the transaction of
//! whatever makes the message. It never fails that transaction for the message's sake: what cannot
//! lie in an inbox becomes a dead letter there and then. What agents and people say comes by
//! [`send`](Messages::send), which asks first who may write to whom.

mod claim;
mod list;
mod send;
mod sweep;

pub use claim::{Claim, Delivery, Ending, Whose};
pub use list::{Cursor, Depth, Filter, ORDER};
pub use send::{Sent, Speaker};

use crate::dead_letter::{self, Letter};
use crate::error::Result;
use crate::statement;
use crate::store::Store;
use crate::tx::{Call, Tx};
use crate::value::{Row, Value, unreadable};
use crate::{agent, audit, statement::Statement};
use serde::Serialize;
use serde_json::{Value as Json, json};
use uuid::Uuid;
use windlass_domain::id::MessageId;
pub use windlass_domain::message::NewMessage;
use windlass_domain::message::handler::Handler;
use windlass_domain::message::{Reason, Status};
use windlass_domain::order::{MAX_PRIORITY, MIN_PRIORITY};
use windlass_domain::time::Timestamp;
use windlass_domain::validate::{MAX_NAME_BYTES, MAX_WORKER_BYTES};

/// A message is read in this order; its lease is nobody's to see.
pub(crate) const COLUMNS: &str = "m.id, m.from_agent, m.to_agent, m.type, m.priority, m.payload, \
    coalesce(m.correlation_id, m.id::text), m.idempotency_key, m.sent_by, m.redelivery_of, \
    m.status, m.created_at, m.due_at, m.expires_at, m.deliveries, m.handled_by, m.delivered_at, \
    m.lease_expires_at, m.last_error, m.finished_at, m.request_digest, m.lease_id, \
    m.ending_digest";

statement!(shared INSERT, "message/insert");
statement!(shared SHOW, "message/show");
statement!(shared OF_KEY, "message/of_key");

/// All of the above.
static STATEMENTS: &[&Statement] = &[&INSERT, &SHOW, &OF_KEY];

/// Every statement about messages.
pub(crate) fn statements() -> impl Iterator<Item = &'static Statement> {
    let all =
        [STATEMENTS, claim::STATEMENTS, list::STATEMENTS, send::STATEMENTS, sweep::STATEMENTS];
    all.into_iter().flatten().copied().chain(statement::both(list::LISTS))
}

/// What an UPDATE returns of a message.
pub(crate) fn returned() -> String {
    COLUMNS.replace("m.", "")
}

/// Which pool of handlers the messages of an agent `a` go to.
pub(crate) fn agent_handler() -> String {
    let roles = [Handler::Ceo, Handler::Vp]
        .map(|handler| format!("WHEN '{}' THEN '{handler}'", handler.role()));
    format!("coalesce(a.worker_type, CASE a.role {} ELSE '{}' END)", roles.join(" "), Handler::Crew)
}

/// Whether an agent `a` is in one conversation at a time: `handler::converses` of the domain.
pub(crate) fn agent_converses() -> String {
    let conversing = || Handler::ALL.iter().filter(|handler| handler.converses());
    let roles: Vec<_> = conversing().map(|handler| format!("'{}'", handler.role())).collect();
    let pools: Vec<_> = conversing().map(|handler| format!("'{handler}'")).collect();
    let (roles, pools) = (roles.join(", "), pools.join(", "));
    format!("(coalesce(a.role, '') IN ({roles}) OR coalesce(a.worker_type, '') IN ({pools}))")
}

/// The repository of messages; cheap to clone.
#[derive(Clone)]
pub struct Messages {
    store: Store,
    ways: send::Ways,
}

impl Messages {
    /// The messages of one database.
    pub fn new(store: Store) -> Messages {
        Messages { store, ways: send::Ways::default() }
    }
}

/// A message as users see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs)] // Named like the columns of `message`.
pub struct Message {
    pub id: MessageId,
    pub from: String,
    pub to: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub priority: i32,
    pub payload: Json,
    pub correlation_id: String,
    pub idempotency_key: Option<String>,
    pub sent_by: String,
    pub redelivery_of: Option<MessageId>,
    pub status: Status,
    pub created_at: Timestamp,
    pub due_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub deliveries: i32,
    pub handled_by: Option<String>,
    pub delivered_at: Option<Timestamp>,
    pub lease_expires_at: Option<Timestamp>,
    pub last_error: Option<String>,
    pub finished_at: Option<Timestamp>,
    #[serde(skip)]
    pub(crate) request_digest: String,
    #[serde(skip)]
    pub(crate) lease_id: Option<Uuid>,
    /// With which word its last delivery ended.
    #[serde(skip)]
    pub(crate) ending_digest: Option<String>,
    /// Nobody can read what it says: it is for no handler.
    #[serde(skip)]
    pub(crate) is_unreadable: bool,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It lies in its inbox.
    InInbox,
    /// It could not, and is a dead letter.
    DeadLettered(Reason),
    /// A message of this id, or of this key and sender, was there before. Nothing was written.
    Duplicate {
        /// Which one.
        id: MessageId,
        /// Whether it says the same.
        same: bool,
    },
}

/// Puts a message into its inbox, or among the dead letters when nobody is there to read it, in the
/// transaction of whatever makes it. An error means that the database gave no answer, never that
/// something is wrong with the message.
pub fn deliver(tx: &mut dyn Tx, new: &NewMessage) -> Result<Outcome> {
    if let Err(refusal) = new.check() {
        let fitting = fitting(new);
        return bury(tx, &fitting, Reason::Invalid, &refusal.to_string());
    }
    match receiver(tx, &new.to)? {
        Ok(()) => put(tx, new),
        Err(reason) => {
            let detail = format!("nobody reads the inbox of {}", new.to);
            bury(tx, new, reason, &detail)
        }
    }
}

/// Whether somebody is there to read what is sent to an agent.
pub(crate) fn receiver(tx: &mut dyn Tx, name: &str) -> Result<Result<(), Reason>> {
    Ok(match agent::find(tx, name)? {
        None => Err(Reason::UnknownAgent),
        Some(agent) if agent.archived_at.is_some() => Err(Reason::ArchivedAgent),
        Some(_) => Ok(()),
    })
}

/// Puts a message into its inbox; the audit tells of it.
fn put(tx: &mut dyn Tx, new: &NewMessage) -> Result<Outcome> {
    if let Some(earlier) = insert(tx, new, Status::Pending)? {
        return Ok(earlier);
    }
    audit::write(tx, &new.sent_by, "message_sent", &told(new))?;
    Ok(Outcome::InInbox)
}

/// Puts a message among the dead letters at once.
fn bury(tx: &mut dyn Tx, new: &NewMessage, reason: Reason, detail: &str) -> Result<Outcome> {
    // Whoever sent it before is told so; a dead letter is entered once.
    if let Some(earlier) = earlier(tx, new)? {
        return Ok(earlier);
    }
    let now = tx.now()?;
    let mut original = told(new);
    original["payload"] = new.payload.clone();
    original["priority"] = new.priority.into();
    original["sent_by"] = new.sent_by.as_str().into();
    original["created_at"] = json!(now);
    let letter = Letter {
        message: new.id,
        original,
        from: &new.from,
        to: &new.to,
        kind: &new.kind,
        correlation_id: new.correlation_id.as_deref(),
        reason,
        detail,
        deliveries: 0,
        actor: &new.sent_by,
    };
    dead_letter::enter(tx, &letter)?;
    match insert(tx, new, Status::DeadLettered)? {
        Some(earlier) => Ok(earlier),
        None => Ok(Outcome::DeadLettered(reason)),
    }
}

/// Writes the row; what was there before, if something was.
fn insert(tx: &mut dyn Tx, new: &NewMessage, status: Status) -> Result<Option<Outcome>> {
    let params = params(new, status, tx.now()?);
    if !tx.run(Call::one(&INSERT, params))?.is_empty() {
        return Ok(None);
    }
    let lost = || crate::error::Error::Busy("the message before it is not visible yet".into());
    earlier(tx, new)?.map(Some).ok_or_else(lost)
}

/// What the row of a message holds.
fn params(new: &NewMessage, status: Status, now: Timestamp) -> Vec<Value> {
    vec![
        new.id.0.into(),
        new.from.as_str().into(),
        new.to.as_str().into(),
        new.kind.as_str().into(),
        new.priority.into(),
        Value::Json(windlass_domain::json::canonical(&new.payload)),
        new.correlation_id.clone().unwrap_or_else(|| new.id.to_string()).into(),
        new.idempotency_key.clone().into(),
        new.digest().into(),
        new.sent_by.as_str().into(),
        new.redelivery_of.map(|id| id.0).into(),
        status.as_str().into(),
        now.into(),
        new.ttl_ms.map(|ttl_ms| now.plus_ms(ttl_ms)).into(),
        status.is_terminal().then_some(now).into(),
    ]
}

/// Whether an earlier message says the same.
fn is_same(earlier: &Message, new: &NewMessage) -> bool {
    earlier.request_digest == new.digest()
}

/// The message of this id, or of this key and sender.
fn earlier(tx: &mut dyn Tx, new: &NewMessage) -> Result<Option<Outcome>> {
    let mut found = tx.run(Call::one(&SHOW, vec![new.id.0.into()]))?;
    if let (true, Some(key)) = (found.is_empty(), &new.idempotency_key) {
        let params = vec![new.from.as_str().into(), key.as_str().into()];
        found = tx.run(Call::one(&OF_KEY, params))?;
    }
    let message = found.first().map(read).transpose()?;
    Ok(message.map(|message| Outcome::Duplicate { id: message.id, same: is_same(&message, new) }))
}

/// What the audit and a dead letter tell of a message.
fn told(new: &NewMessage) -> Json {
    json!({
        "message": new.id, "from": new.from, "to": new.to, "type": new.kind,
        "correlation_id": new.correlation_id.clone().unwrap_or_else(|| new.id.to_string()),
    })
}

/// The nearest thing to a message that both databases can keep.
fn fitting(new: &NewMessage) -> NewMessage {
    let name = |text: &str, max: usize| {
        let plain: String = text.chars().filter(|c| !c.is_control()).collect();
        let mut end = plain.len().min(max);
        while !plain.is_char_boundary(end) {
            end -= 1;
        }
        if end == 0 { "(none)".to_owned() } else { plain[..end].to_owned() }
    };
    let payload = NewMessage {
        payload: new.payload.clone(),
        ..NewMessage::new(new.id, "a", "a", "a", Json::Null)
    };
    let payload_fits = payload.check().is_ok();
    NewMessage {
        id: new.id,
        from: name(&new.from, MAX_NAME_BYTES),
        to: name(&new.to, MAX_NAME_BYTES),
        kind: name(&new.kind, MAX_WORKER_BYTES),
        payload: if payload_fits { new.payload.clone() } else { unreadable() },
        priority: new.priority.clamp(MIN_PRIORITY, MAX_PRIORITY),
        correlation_id: new.correlation_id.as_deref().map(|text| name(text, MAX_NAME_BYTES)),
        idempotency_key: None,
        ttl_ms: None,
        sent_by: name(&new.sent_by, MAX_NAME_BYTES),
        redelivery_of: new.redelivery_of,
    }
}

pub(crate) fn find(tx: &mut dyn Tx, id: MessageId) -> Result<Option<Message>> {
    tx.run(Call::one(&SHOW, vec![id.0.into()]))?.first().map(read).transpose()
}

pub(crate) fn lost(operation: &str) -> crate::error::Error {
    let detail = "a message is not where it must be".into();
    crate::error::Error::Internal { operation: operation.into(), detail }
}

/// A message as it is kept. One that was written by hand, past the database's checks, may hold what
/// nobody can read: it is shown without it, and never keeps anybody from the others.
pub(crate) fn read(row: &Row) -> Result<Message> {
    let payload = row.json(5);
    let text = |index| row.maybe(index, |r, i| r.text(i).map(str::to_owned));
    Ok(Message {
        id: MessageId(row.uuid(0)?),
        from: row.text(1)?.to_owned(),
        to: row.text(2)?.to_owned(),
        kind: row.text(3)?.to_owned(),
        priority: row.int32(4)?,
        is_unreadable: payload.is_err(),
        payload: payload.unwrap_or_else(|_| unreadable()),
        correlation_id: row.text(6)?.to_owned(),
        idempotency_key: text(7)?,
        sent_by: row.text(8)?.to_owned(),
        redelivery_of: row.maybe(9, Row::uuid)?.map(MessageId),
        status: row.named(10)?,
        created_at: row.time(11)?,
        due_at: row.time(12)?,
        expires_at: row.maybe(13, Row::time)?,
        deliveries: row.int32(14)?,
        handled_by: text(15)?,
        delivered_at: row.maybe(16, Row::time)?,
        lease_expires_at: row.maybe(17, Row::time)?,
        last_error: text(18)?,
        finished_at: row.maybe(19, Row::time)?,
        request_digest: row.text(20)?.to_owned(),
        lease_id: row.maybe(21, Row::uuid)?,
        ending_digest: text(22)?,
    })
}
