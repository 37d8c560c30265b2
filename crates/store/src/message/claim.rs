//! Handing messages out: claim, acknowledge, give back, extend.
//!
//! Invariant: of a conversing agent at most one message is in anybody's hands. A claim first takes
//! the row of its inbox, which nobody waits for, and then looks, so that what it sees is what
//! everybody before it has committed; a unique index stands behind that.
//! Invariant: a message that is not acknowledged comes back, at most as often as the domain says.

use super::{Message, Messages, find, lost, read};
use crate::dead_letter::{self, Letter};
use crate::error::{Rejection, Result};
use crate::statement;
use crate::statement::Statement;
use crate::store::Lane;
use crate::tx::{Call, Tx};
use crate::value::Value;
use serde_json::json;
use std::collections::HashSet;
use uuid::Uuid;
use windlass_domain::id::{LeaseId, MessageId};
use windlass_domain::message::handler::Handler;
use windlass_domain::message::{
    AfterFailure, Event, Failure, MAX_ERROR_CHARS, Reason, Status, after_failure, step,
};
use windlass_domain::refusal::Refusal;
use windlass_domain::time::Timestamp;

statement!(shared HEADS_OF_HANDLER, "message/heads_of_handler");
statement!(HEADS_OF_AGENTS, "message/heads_of_agents");
statement!(CONVERSE, "message/converse");
statement!(TAKE_TURN, "message/take_turn");
statement!(TAKE, "message/take");
statement!(shared HELD, "message/held");
statement!(AGENTS_THERE, "message/agents_there");
statement!(POOLS_THERE, "message/pools_there");
statement!(LOAD, "message/load");
statement!(shared SAVE, "message/save");
statement!(shared EXTEND, "message/extend");

/// All of the above.
pub(crate) static STATEMENTS: &[&Statement] = &[
    &HEADS_OF_HANDLER,
    &HEADS_OF_AGENTS,
    &CONVERSE,
    &TAKE_TURN,
    &TAKE,
    &HELD,
    &AGENTS_THERE,
    &POOLS_THERE,
    &LOAD,
    &SAVE,
    &EXTEND,
];

/// Whose messages a handler takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Whose {
    /// Those of all agents whose messages go to this pool.
    Pool(String),
    /// Those of these agents.
    Agents(Vec<String>),
}

/// A handler asks for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Whose.
    pub from: Whose,
    /// Who asks: what a message shows as its handler.
    pub handler: String,
    /// How long it may hold them.
    pub lease_ms: i64,
    /// One lease for each message that it would take, made before the first try.
    pub leases: Vec<LeaseId>,
}

impl Claim {
    /// A claim for at most `max` messages.
    pub fn new(from: Whose, handler: impl Into<String>, lease_ms: i64, max: usize) -> Claim {
        let leases = (0..max).map(|_| LeaseId(Uuid::now_v7())).collect();
        Claim { from, handler: handler.into(), lease_ms, leases }
    }
}

/// A message in a handler's hands.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// The message.
    pub message: Message,
    /// The right to it: in this answer and in no other read.
    pub lease: LeaseId,
    /// Until when, unless it is extended.
    pub lease_expires_at: Timestamp,
}

/// How a handler ends a delivery.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    /// It has handled the message.
    Acknowledge,
    /// It could not.
    Return {
        /// What follows depends on how.
        failure: Failure,
        /// Why, in its own words.
        error: Option<String>,
    },
}

impl Ending {
    /// What makes two words the same. Chance is no part of it.
    fn digest(&self) -> Option<String> {
        let Ending::Return { failure, error } = self else { return None };
        let (retry_after_ms, rejected) = match failure {
            Failure::Failed { retry_after_ms, .. } => (*retry_after_ms, false),
            Failure::Rejected => (None, true),
            Failure::LeaseLost => (None, false),
        };
        let word = json!({
            "error": error, "rejected": rejected, "retry_after_ms": retry_after_ms,
        });
        Some(windlass_domain::json::digest(&word))
    }
}

impl Messages {
    /// Takes messages, the most urgent first, at most as many as the claim has leases.
    pub async fn claim(&self, claim: Claim) -> Result<Vec<Delivery>> {
        let mut is_again = false;
        let body = move |tx: &mut dyn Tx| {
            // A commit in doubt may have happened: then everything was taken already.
            if std::mem::replace(&mut is_again, true) {
                let held = held(tx, &claim)?;
                if !held.is_empty() {
                    return Ok(held);
                }
            }
            take(tx, &claim)
        };
        self.store.write("message_claim", body).await
    }

    /// Who of those whose messages a handler asks for is nobody's to read: agents that are not
    /// there or archived, or a pool that no agent's messages go to. The pools of the roles are
    /// always there.
    pub async fn nobody_of(&self, whose: &Whose) -> Result<Vec<String>> {
        let asked = match whose {
            Whose::Pool(pool) if pool.parse::<Handler>().is_ok() => return Ok(Vec::new()),
            Whose::Pool(pool) => vec![pool.clone()],
            Whose::Agents(names) => names.clone(),
        };
        let statement = match whose {
            Whose::Pool(_) => &POOLS_THERE,
            Whose::Agents(_) => &AGENTS_THERE,
        };
        let names = asked.clone();
        let body = move |tx: &mut dyn Tx| {
            let rows = tx.run(Call::one(statement, vec![Value::TextList(names.clone())]))?;
            rows.iter().map(|row| Ok(row.text(0)?.to_owned())).collect()
        };
        let there: Vec<String> = self.store.read("message_readers", body).await?;
        Ok(asked.into_iter().filter(|name| !there.contains(name)).collect())
    }

    /// Ends a delivery. The same word again is answered like the first.
    pub async fn end(
        &self,
        id: MessageId,
        lease: LeaseId,
        ending: Ending,
    ) -> Result<Message, Rejection> {
        let body = move |tx: &mut dyn Tx| end(tx, id, lease, &ending);
        Ok(self.store.write("message_end", body).await??)
    }

    /// Holds a message for longer: `lease_ms` from now.
    pub async fn extend(
        &self,
        id: MessageId,
        lease: LeaseId,
        lease_ms: i64,
    ) -> Result<Timestamp, Rejection> {
        let body = move |tx: &mut dyn Tx| {
            let now = tx.now()?;
            let until = now.plus_ms(lease_ms);
            let params = vec![id.0.into(), lease.0.into(), until.into(), now.into()];
            if !tx.run(Call::one(&EXTEND, params))?.is_empty() {
                return Ok(Ok(until));
            }
            Ok(Err(match find(tx, id)? {
                Some(message) => Refusal::MessageLost { status: message.status },
                None => Refusal::Unknown { what: "message" },
            }))
        };
        Ok(self.store.run(Lane::Heartbeat, "message_extend", body).await??)
    }
}

fn held(tx: &mut dyn Tx, claim: &Claim) -> Result<Vec<Delivery>> {
    let mut held = Vec::new();
    for lease in &claim.leases {
        let rows = tx.run(Call::one(&HELD, vec![lease.0.into()]))?;
        held.extend(rows.iter().map(delivery).collect::<Result<Vec<_>>>()?);
    }
    Ok(held)
}

/// One message of each agent that has some, again and again, until the claim is full. Of an agent
/// whose messages somebody else is just taking it gets none, and takes those of the next.
fn take(tx: &mut dyn Tx, claim: &Claim) -> Result<Vec<Delivery>> {
    let mut taken: Vec<Delivery> = Vec::new();
    let mut passed: HashSet<String> = HashSet::new();
    while taken.len() < claim.leases.len() {
        let now = tx.now()?;
        let room = Value::Int((claim.leases.len() - taken.len() + passed.len()) as i64);
        let heads = match &claim.from {
            Whose::Pool(pool) => {
                Call::one(&HEADS_OF_HANDLER, vec![pool.as_str().into(), now.into(), room])
            }
            Whose::Agents(names) => {
                let names = Value::TextList(names.clone());
                Call::one(&HEADS_OF_AGENTS, vec![names, now.into(), room])
            }
        };
        let before = (taken.len(), passed.len());
        for row in tx.run(heads)? {
            let (agent, converses) = (row.text(0)?, row.bool(2)?);
            let Some(&lease) = claim.leases.get(taken.len()) else { break };
            if passed.contains(agent) {
                continue;
            }
            match take_one(tx, agent, converses, claim, lease)? {
                Some(delivery) => taken.push(delivery),
                None => drop(passed.insert(agent.to_owned())),
            }
        }
        if (taken.len(), passed.len()) == before {
            break;
        }
    }
    Ok(taken)
}

/// Takes the first message of one agent for the first of these handlers that takes its messages;
/// which one it was.
pub(crate) fn take_of(
    tx: &mut dyn Tx,
    agent: &str,
    offers: &[Claim],
) -> Result<Option<(usize, Delivery)>> {
    if offers.is_empty() {
        return Ok(None);
    }
    // An earlier try of this transaction may have committed.
    for (index, claim) in offers.iter().enumerate() {
        if let Some(delivery) = held(tx, claim)?.into_iter().next() {
            return Ok(Some((index, delivery)));
        }
    }
    take_head(tx, agent, offers)
}

/// The same for leases that nobody can have used before.
pub(super) fn take_head(
    tx: &mut dyn Tx,
    agent: &str,
    offers: &[Claim],
) -> Result<Option<(usize, Delivery)>> {
    let (now, names) = (tx.now()?, Value::TextList(vec![agent.to_owned()]));
    let heads = tx.run(Call::one(&HEADS_OF_AGENTS, vec![names, now.into(), Value::Int(1)]))?;
    let Some(head) = heads.first() else { return Ok(None) };
    let (handler, converses) = (head.text(1)?, head.bool(2)?);
    let Some((index, lease)) = taker(offers, agent, handler) else { return Ok(None) };
    let taken = take_one(tx, agent, converses, &offers[index], lease)?;
    Ok(taken.map(|delivery| (index, delivery)))
}

/// The first of these handlers that takes the messages of an agent that go to this pool.
pub(super) fn taker(offers: &[Claim], agent: &str, pool: &str) -> Option<(usize, LeaseId)> {
    let takes = |claim: &Claim| match &claim.from {
        Whose::Pool(name) => name == pool,
        Whose::Agents(names) => names.iter().any(|name| name == agent),
    };
    let index = offers.iter().position(takes)?;
    Some((index, *offers[index].leases.first()?))
}

fn take_one(
    tx: &mut dyn Tx,
    agent: &str,
    converses: bool,
    claim: &Claim,
    lease: LeaseId,
) -> Result<Option<Delivery>> {
    let now = tx.now()?;
    loop {
        let mut calls = taking(agent, converses, claim, lease, now);
        let Some(take) = calls.pop() else { return Ok(None) };
        for lock in calls {
            if tx.run(lock)?.is_empty() {
                return Ok(None);
            }
        }
        let rows = tx.run(take)?;
        let Some(taken) = rows.first().map(delivery).transpose()? else { return Ok(None) };
        if !taken.message.is_unreadable {
            return Ok(Some(taken));
        }
        // It would be in everybody's way for ever; the next one may be taken instead.
        bury_unreadable(tx, taken.message)?;
    }
}

pub(super) fn bury_unreadable(tx: &mut dyn Tx, message: Message) -> Result<Message> {
    let detail = "nobody can read what it says";
    bury(tx, message, Reason::Invalid, detail, Kept::default(), None, "windlass")
}

/// Whoever gets a row of this may begin a conversation of the agent.
fn conversing(agent: &str) -> Call<'static> {
    Call::one(&CONVERSE, vec![agent.into()])
}

/// The statements that take the first message of an agent's inbox: the last one gives it. Where
/// they travel together, a conversation that somebody else is beginning leaves it without a row.
pub(super) fn taking(
    agent: &str,
    converses: bool,
    claim: &Claim,
    lease: LeaseId,
    now: Timestamp,
) -> Vec<Call<'static>> {
    let params = vec![
        agent.into(),
        lease.0.into(),
        now.plus_ms(claim.lease_ms).into(),
        claim.handler.as_str().into(),
        now.into(),
    ];
    match converses {
        true => vec![conversing(agent), Call::one(&TAKE_TURN, params)],
        false => vec![Call::one(&TAKE, params)],
    }
}

pub(super) fn delivery(row: &crate::value::Row) -> Result<Delivery> {
    let message = read(row)?;
    let held = message.lease_id.zip(message.lease_expires_at);
    let (lease, lease_expires_at) = held.ok_or_else(|| lost("message_claim"))?;
    Ok(Delivery { message, lease: LeaseId(lease), lease_expires_at })
}

fn end(
    tx: &mut dyn Tx,
    id: MessageId,
    lease: LeaseId,
    ending: &Ending,
) -> Result<Result<Message, Refusal>> {
    let found = tx.run(Call::one(&LOAD, vec![id.0.into()]))?;
    let Some(message) = found.first().map(read).transpose()? else {
        return Ok(Err(Refusal::Unknown { what: "message" }));
    };
    let status = message.status;
    if message.lease_id != Some(lease.0) {
        return Ok(Err(Refusal::MessageLost { status }));
    }
    if status != Status::Delivered {
        // This lease has ended it before. Whoever did so before endings were kept said the same.
        let was_acknowledged = status == Status::Acknowledged;
        let is_same = was_acknowledged == (*ending == Ending::Acknowledge)
            && (message.ending_digest.is_none() || message.ending_digest == ending.digest());
        return Ok(if is_same { Ok(message) } else { Err(Refusal::DeliveryEnded { status }) });
    }
    match ending {
        Ending::Acknowledge => {
            let moved = Moved { kept: Kept::of(&message, ending), ..Moved::default() };
            save(tx, message, Event::Acknowledge, moved).map(Ok)
        }
        Ending::Return { failure, error } => {
            let kept = Kept::of(&message, ending);
            let by = message.handled_by.clone().unwrap_or_default();
            give_back(tx, message, *failure, error.clone(), kept, &by).map(Ok)
        }
    }
}

/// What is kept of a delivery, so that its last word is known when it comes twice.
#[derive(Default)]
pub(super) struct Kept {
    lease: Option<Uuid>,
    ending_digest: Option<String>,
}

impl Kept {
    fn of(message: &Message, ending: &Ending) -> Kept {
        Kept { lease: message.lease_id, ending_digest: ending.digest() }
    }
}

/// What changes with a transition, beside the status.
#[derive(Default)]
struct Moved {
    due_at: Option<Timestamp>,
    kept: Kept,
    error: Option<String>,
}

/// A delivery came to nothing: again, or never.
pub(super) fn give_back(
    tx: &mut dyn Tx,
    message: Message,
    failure: Failure,
    error: Option<String>,
    kept: Kept,
    actor: &str,
) -> Result<Message> {
    let error: Option<String> =
        error.map(|text| text.chars().filter(|c| *c != '\0').take(MAX_ERROR_CHARS).collect());
    let now = tx.now()?;
    match after_failure(message.deliveries, message.expires_at, failure, now) {
        AfterFailure::Again(at) => {
            save(tx, message, Event::Return, Moved { due_at: Some(at), kept, error })
        }
        AfterFailure::Expired => expire(tx, message, kept, error),
        AfterFailure::DeadLetter(reason) => {
            let words = match reason {
                Reason::Rejected => "its handler said that it can never be handled",
                _ => "it was handed out as often as it may be",
            };
            let detail = match &error {
                Some(error) => format!("{words}; the last error: {error}"),
                None => words.to_owned(),
            };
            bury(tx, message, reason, &detail, kept, error, actor)
        }
    }
}

/// A message's time has passed; the audit tells of it.
pub(super) fn expire(
    tx: &mut dyn Tx,
    message: Message,
    kept: Kept,
    error: Option<String>,
) -> Result<Message> {
    let detail = json!({
        "message": message.id, "from": message.from, "to": message.to, "type": message.kind,
        "correlation_id": message.correlation_id, "deliveries": message.deliveries,
    });
    crate::audit::write(tx, "windlass", "message_expired", &detail)?;
    save(tx, message, Event::Expire, Moved { due_at: None, kept, error })
}

/// Gives a message up.
pub(super) fn bury(
    tx: &mut dyn Tx,
    message: Message,
    reason: Reason,
    detail: &str,
    kept: Kept,
    error: Option<String>,
    actor: &str,
) -> Result<Message> {
    let damaged = |e: serde_json::Error| crate::error::Error::Data(e.to_string());
    let letter = Letter {
        message: message.id,
        original: serde_json::to_value(&message).map_err(damaged)?,
        from: &message.from,
        to: &message.to,
        kind: &message.kind,
        correlation_id: Some(&message.correlation_id),
        reason,
        detail,
        deliveries: message.deliveries,
        actor,
    };
    dead_letter::enter(tx, &letter)?;
    save(tx, message, Event::DeadLetter, Moved { due_at: None, kept, error })
}

fn save(tx: &mut dyn Tx, message: Message, event: Event, moved: Moved) -> Result<Message> {
    let now = tx.now()?;
    let from = message.status;
    let to = step(from, event).ok_or_else(|| lost("message_save"))?;
    let due_at = moved.due_at.unwrap_or(message.due_at);
    let finished_at = to.is_terminal().then_some(now);
    let last_error = moved.error.or(message.last_error);
    let params = vec![
        message.id.0.into(),
        from.as_str().into(),
        to.as_str().into(),
        due_at.into(),
        moved.kept.lease.into(),
        last_error.clone().into(),
        finished_at.into(),
        moved.kept.ending_digest.into(),
    ];
    tx.run(Call::one(&SAVE, params))?;
    Ok(Message { status: to, due_at, last_error, finished_at, lease_expires_at: None, ..message })
}
