//! Sending: the rule of authority, then the inbox, in one transaction; a refusal is audited there.
//!
//! Two flights to the database: one statement reads everything that the decision needs, the rule
//! decides here, and the message, its audit, its first delivery and the commit travel together. On
//! PostgreSQL a way that was open before is gone in one flight, as long as the registry of agents
//! is the same: the statement itself looks, so nothing is believed that is not so any more.
//!
//! Invariant: a repeated send is answered like the first, whatever the hierarchy has become since.
//! A handler that waits may be given the message in the same transaction.

use super::claim::{Claim, Delivery, bury_unreadable, delivery, take_head, take_of, taker, taking};
use super::{Message, Messages, NewMessage, find, is_same, lost, params, read, told};
use crate::agent::kept;
use crate::audit;
use crate::error::{Rejection, Result};
use crate::statement;
use crate::statement::{Dialect, Statement};
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use windlass_domain::agent::{Authority, MAX_DEPTH};
use windlass_domain::message::Status;
use windlass_domain::message::authority::{self, Agent, Rule, Sender};
use windlass_domain::refusal::Refusal;
use windlass_domain::time::Timestamp;

statement!(CONSIDER, "message/consider");
statement!(SEND, "message/send");
statement!(SEND_KNOWN, "message/send_known");

/// All of the above.
pub(crate) static STATEMENTS: &[&Statement] = &[&CONSIDER, &SEND, &SEND_KNOWN];

/// How many ways are known at once; beyond that all of them are found anew.
const MOST_WAYS: usize = 10_000;

/// From whom (nobody: a person speaks) to whom.
type From = (Option<String>, String);

/// The ways that were open, each with what a send must know of it. Hints: the database looks again.
#[derive(Clone, Default)]
pub(super) struct Ways(Arc<Mutex<HashMap<From, Way>>>);

/// A way that is open as long as the registry is this one.
#[derive(Clone)]
struct Way {
    registry: i64,
    pool: String,
    converses: bool,
}

fn from(new: &NewMessage, speaker: Speaker) -> From {
    ((speaker == Speaker::Agent).then(|| new.from.clone()), new.to.clone())
}

impl Ways {
    fn get(&self, from: &From) -> Option<Way> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(from).cloned()
    }

    fn put(&self, from: From, way: Option<Way>) {
        let mut ways = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match way {
            Some(_) if ways.len() >= MOST_WAYS => ways.clear(),
            Some(way) => drop(ways.insert(from, way)),
            None => drop(ways.remove(&from)),
        }
    }
}

/// Whose words a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// Those of the agent that it comes from.
    Agent,
    /// Those of a person, or of a program that is no agent.
    Person,
}

/// What came of a send.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    /// The message as it stands.
    pub message: super::Message,
    /// Whether it was there before.
    pub duplicate: bool,
    /// Which of the handlers that waited got what: this message, or one that lay before it.
    pub delivery: Option<(usize, Delivery)>,
}

/// What a transaction came to.
enum Carried {
    /// This.
    Out(Box<Result<Sent, Refusal>>),
    /// Somebody sent the same at the same time: it is there now.
    Again,
}

impl Messages {
    /// Sends a message, if its sender may write to its receiver. `offers` are claims of handlers
    /// that wait; the first that takes the receiver's messages gets the head of its inbox.
    pub async fn send(
        &self,
        new: NewMessage,
        speaker: Speaker,
        offers: Vec<Claim>,
    ) -> Result<Sent, Rejection> {
        let from = from(&new, speaker);
        if let Some(way) = self.ways.get(&from) {
            let (sending, claims) = (new.clone(), offers.clone());
            let body = move |tx: &mut dyn Tx| go(tx, &sending, &way, &claims);
            match self.store.write("message_send", body).await? {
                Some((sent, true)) => return Ok(self.before(sent, offers).await?),
                Some((sent, false)) => return Ok(sent),
                None => {}
            }
        }
        loop {
            let (sending, claims) = (new.clone(), offers.clone());
            let body = move |tx: &mut dyn Tx| carry_out(tx, &sending, speaker, &claims);
            let (carried, way) = self.store.write("message_send", body).await?;
            self.ways.put(from.clone(), way);
            match carried {
                Carried::Out(sent) => return Ok(self.readable((*sent)?, offers).await?),
                Carried::Again => {}
            }
        }
    }

    /// Something lay before a message that was sent by a known way: the handler gets that.
    async fn before(&self, sent: Sent, offers: Vec<Claim>) -> Result<Sent> {
        let (to, claims) = (sent.message.to.clone(), offers.clone());
        let mut is_again = false;
        let body = move |tx: &mut dyn Tx| match std::mem::replace(&mut is_again, true) {
            false => take_head(tx, &to, &claims),
            true => take_of(tx, &to, &claims),
        };
        let delivery = self.store.write("message_send_head", body).await?;
        let message = match &delivery {
            Some((_, held)) if held.message.id == sent.message.id => held.message.clone(),
            _ => sent.message.clone(),
        };
        Ok(Sent { message, delivery, ..sent })
    }

    /// What a handler was given may be what nobody can read: it is given up, and the handler is
    /// given the next one.
    async fn readable(&self, sent: Sent, offers: Vec<Claim>) -> Result<Sent> {
        let is_unreadable = |(_, held): &&(usize, Delivery)| held.message.is_unreadable;
        let Some((_, held)) = sent.delivery.as_ref().filter(is_unreadable) else {
            return Ok(sent);
        };
        let (id, lease, sent_id) = (held.message.id, held.lease, sent.message.id);
        let to = held.message.to.clone();
        let body = move |tx: &mut dyn Tx| {
            let held = find(tx, id)?.filter(|message| message.lease_id == Some(lease.0));
            if let Some(message) = held.filter(|message| message.status == Status::Delivered) {
                bury_unreadable(tx, message)?;
            }
            let delivery = take_of(tx, &to, &offers)?;
            Ok((find(tx, sent_id)?.ok_or_else(|| lost("message_send"))?, delivery))
        };
        let (message, delivery) = self.store.write("message_unreadable", body).await?;
        Ok(Sent { message, delivery, ..sent })
    }
}

fn carry_out(
    tx: &mut dyn Tx,
    new: &NewMessage,
    speaker: Speaker,
    offers: &[Claim],
) -> Result<(Carried, Option<Way>)> {
    let known = consider(tx, new, speaker)?;
    if let Some(earlier) = known.earlier {
        return Ok((Carried::Out(Box::new(answered(tx, new, earlier, offers)?)), None));
    }
    let (now, registry) = (known.now, known.registry);
    let (rule, refusal) = match known.permitted(new, speaker) {
        Ok(receiver) => {
            let (pool, converses) = (receiver.pool.clone(), receiver.converses);
            let way = registry.map(|registry| Way { registry, pool, converses });
            return Ok((put(tx, new, receiver, now, offers)?, way));
        }
        Err(refused) => refused,
    };
    let mut detail = told(new);
    detail["rule"] = rule.into();
    audit::write(tx, &new.sent_by, "message_refused", &detail)?;
    Ok((Carried::Out(Box::new(Err(refusal))), None))
}

/// Goes a way that was open before: the message, and whether a handler waits that did not get it.
/// `None`: it is not open any more, or the message is there already. Nothing is written then.
fn go(
    tx: &mut dyn Tx,
    new: &NewMessage,
    way: &Way,
    offers: &[Claim],
) -> Result<Option<(Sent, bool)>> {
    let taker = taker(offers, &new.to, &way.pool);
    let claim = taker.map(|(index, lease)| (&offers[index], lease));
    let mut sending = params(new, Status::Pending, Timestamp::EPOCH);
    // The statement reads the clock, and counts from there.
    sending.truncate(11);
    sending.extend([
        tx.fixed_now().into(),
        new.ttl_ms.into(),
        way.registry.into(),
        claim.map(|(_, lease)| lease.0).into(),
        claim.map(|(claim, _)| claim.lease_ms).into(),
        claim.map(|(claim, _)| claim.handler.clone()).into(),
        way.converses.into(),
        Value::Json(windlass_domain::json::canonical(&told(new))),
    ]);
    let answers = tx.run_and_commit(vec![Call::one(&SEND_KNOWN, sending)])?;
    let Some(sent) = answers.last().and_then(|rows| rows.first()) else { return Ok(None) };
    let message = read(sent)?;
    let delivery = match (taker, message.status) {
        (Some((index, _)), Status::Delivered) => Some((index, delivery(sent)?)),
        _ => None,
    };
    let waits = taker.is_some() && delivery.is_none();
    Ok(Some((Sent { message, duplicate: false, delivery }, waits)))
}

/// What a send must know.
struct Known {
    now: Timestamp,
    /// The message of this id, or of this key and sender.
    earlier: Option<Message>,
    receiver: Option<Receiver>,
    sender: Option<(Agent, Authority)>,
    /// Which registry all that is of, where that is known.
    registry: Option<i64>,
}

/// Whoever is written to.
struct Receiver {
    agent: Agent,
    /// The pool that its messages go to.
    pool: String,
    converses: bool,
}

fn consider(tx: &mut dyn Tx, new: &NewMessage, speaker: Speaker) -> Result<Known> {
    // PostgreSQL reads its clock in the same statement.
    let now = match tx.dialect() {
        Dialect::Postgres => tx.fixed_now(),
        Dialect::Sqlite => Some(tx.now()?),
    };
    let params = vec![
        new.id.0.into(),
        new.from.as_str().into(),
        new.idempotency_key.clone().into(),
        new.to.as_str().into(),
        (speaker == Speaker::Agent).into(),
        now.into(),
        Value::Int(MAX_DEPTH as i64 + 1),
    ];
    let rows = tx.run(Call::one(&CONSIDER, params))?;
    let row = rows.first().ok_or_else(|| lost("message_send"))?;
    let earlier = if row.is_null(0) { None } else { Some(read(row)?) };
    let receiver = match agent(row, AT + 1, AT + 10)? {
        Some(agent) => {
            let (pool, converses) = (row.text(AT + 4)?.to_owned(), row.bool(AT + 5)?);
            Some(Receiver { agent, pool, converses })
        }
        None => None,
    };
    // Grants that nobody can read are none.
    let granted = |agent| (agent, kept(row, AT + 9).unwrap_or_default());
    let sender = agent(row, AT + 6, AT + 11)?.map(granted);
    let registry = match tx.dialect() {
        Dialect::Postgres => Some(row.int(AT + 12)?),
        Dialect::Sqlite => None,
    };
    Ok(Known { now: row.time(AT)?, earlier, receiver, sender, registry })
}

/// Where the columns of an earlier message end.
const AT: usize = 23;

fn agent(row: &Row, at: usize, line: usize) -> Result<Option<Agent>> {
    if row.is_null(at) {
        return Ok(None);
    }
    let names = row.json(line)?;
    let names = names.as_array().into_iter().flatten();
    Ok(Some(Agent {
        name: row.text(at)?.to_owned(),
        venture: row.maybe(at + 1, Row::text)?.map(str::to_owned),
        archived: row.bool(at + 2)?,
        ancestors: names.filter_map(|name| name.as_str().map(str::to_owned)).collect(),
    }))
}

impl Known {
    /// The receiver, if the sender may write to it; else the rule that says no, and in which
    /// words.
    fn permitted(
        self,
        new: &NewMessage,
        speaker: Speaker,
    ) -> Result<Receiver, (&'static str, Refusal)> {
        let unknown = Refusal::Unknown { what: "agent to write to" };
        let is_there = |receiver: &Receiver| !receiver.agent.archived;
        let receiver = self.receiver.filter(is_there).ok_or(("unknown_receiver", unknown))?;
        let (sender, granted) = match (speaker, self.sender) {
            (Speaker::Person, _) => (Sender::Person, false),
            (Speaker::Agent, None) => (Sender::Stranger, false),
            (Speaker::Agent, Some((agent, authority))) => {
                let venture = receiver.agent.venture.as_ref();
                let granted = authority.agents.contains(&new.to)
                    || venture.is_some_and(|venture| authority.ventures.contains(venture));
                (Sender::Agent(agent), granted)
            }
        };
        let refused = |rule: Rule| {
            let (from, to) = (new.from.clone(), new.to.clone());
            (rule.as_str(), Refusal::NotPermitted { from, to, rule })
        };
        authority::decide(&sender, &receiver.agent, granted).map_err(refused)?;
        Ok(receiver)
    }
}

/// Puts the message into its inbox, gives the first handler that takes the receiver's messages the
/// head of it, and commits.
fn put(
    tx: &mut dyn Tx,
    new: &NewMessage,
    receiver: Receiver,
    now: Timestamp,
    offers: &[Claim],
) -> Result<Carried> {
    let mut sending = params(new, Status::Pending, now);
    let detail = Value::Json(windlass_domain::json::canonical(&told(new)));
    sending.push(detail);
    let taker = taker(offers, &new.to, &receiver.pool);
    let mut calls = match taker {
        Some((index, lease)) => taking(&new.to, receiver.converses, &offers[index], lease, now),
        None => Vec::new(),
    };
    // A message that nothing lies before is its handler's as it is written, under the lock of a
    // conversation; only what lies before it is taken afterwards.
    let claim = taker.map(|(index, lease)| (&offers[index], lease));
    sending.extend([
        claim.map(|(_, lease)| lease.0).into(),
        claim.map(|(claim, _)| now.plus_ms(claim.lease_ms)).into(),
        claim.map(|(claim, _)| claim.handler.clone()).into(),
        receiver.converses.into(),
    ]);
    let mut at = calls.len().saturating_sub(1);
    if tx.dialect() == Dialect::Sqlite {
        // PostgreSQL's statement tells the audit itself.
        calls.insert(at, audit::call(now, &new.sent_by, "message_sent", &told(new)));
        at += 1;
    }
    calls.insert(at, Call::one(&SEND, sending));
    let answers = tx.run_and_commit(calls)?;
    let Some(sent) = answers.get(at).and_then(|rows| rows.first()) else {
        return Ok(Carried::Again);
    };
    let taken = answers.last().filter(|_| taker.is_some()).and_then(|rows| rows.first());
    let taken = match read(sent)?.status {
        Status::Delivered => Some(delivery(sent)?),
        _ => taken.map(delivery).transpose()?,
    };
    let message = match &taken {
        // What the handler got is this one, unless a more urgent one lay before it.
        Some(taken) if taken.message.id == new.id => taken.message.clone(),
        _ => read(sent)?,
    };
    let delivery = taker.zip(taken).map(|((index, _), taken)| (index, taken));
    Ok(Carried::Out(Box::new(Ok(Sent { message, duplicate: false, delivery }))))
}

/// What a repeated send is answered; what a commit in doubt has handed out is found again.
fn answered(
    tx: &mut dyn Tx,
    new: &NewMessage,
    earlier: Message,
    offers: &[Claim],
) -> Result<Result<Sent, Refusal>> {
    if !is_same(&earlier, new) {
        let what = if earlier.id == new.id { "the id" } else { "the idempotency key" };
        return Ok(Err(Refusal::IdempotencyKeyReused { what }));
    }
    let delivery = take_of(tx, &new.to, offers)?;
    let message = match &delivery {
        Some((_, delivery)) if delivery.message.id == earlier.id => delivery.message.clone(),
        _ => earlier,
    };
    Ok(Ok(Sent { message, duplicate: true, delivery }))
}
