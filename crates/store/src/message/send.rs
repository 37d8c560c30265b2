//! Sending: the rule of authority, then the inbox, in one transaction; a refusal is audited there.
//!
//! Invariant: a repeated send is answered like the first, whatever the hierarchy has become since.
//! A handler that waits may be given the message in the same transaction.

use super::claim::{Claim, Delivery, take_of};
use super::{Messages, NewMessage, Outcome, earlier, put, told};
use crate::error::{Rejection, Result};
use crate::tx::Tx;
use crate::{agent, audit};
use windlass_domain::message::authority::{self, Rule, Sender};
use windlass_domain::refusal::Refusal;

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

impl Messages {
    /// Sends a message, if its sender may write to its receiver. `offers` are claims of handlers
    /// that wait; the first that takes the receiver's messages gets the head of its inbox.
    pub async fn send(
        &self,
        new: NewMessage,
        speaker: Speaker,
        offers: Vec<Claim>,
    ) -> Result<Sent, Rejection> {
        let body = move |tx: &mut dyn Tx| carry_out(tx, &new, speaker, &offers);
        Ok(self.store.write("message_send", body).await??)
    }
}

fn carry_out(
    tx: &mut dyn Tx,
    new: &NewMessage,
    speaker: Speaker,
    offers: &[Claim],
) -> Result<Result<Sent, Refusal>> {
    if let Some(outcome) = earlier(tx, new)? {
        return answered(tx, new, outcome, offers);
    }
    if let Err((rule, refusal)) = permitted(tx, new, speaker)? {
        let mut detail = told(new);
        detail["rule"] = rule.into();
        audit::write(tx, &new.sent_by, "message_refused", &detail)?;
        return Ok(Err(refusal));
    }
    let outcome = put(tx, new)?;
    answered(tx, new, outcome, offers)
}

fn answered(
    tx: &mut dyn Tx,
    new: &NewMessage,
    outcome: Outcome,
    offers: &[Claim],
) -> Result<Result<Sent, Refusal>> {
    let (id, duplicate) = match outcome {
        Outcome::Duplicate { same: false, id } => {
            let what = if id == new.id { "the id" } else { "the idempotency key" };
            return Ok(Err(Refusal::IdempotencyKeyReused { what }));
        }
        Outcome::Duplicate { id, .. } => (id, true),
        Outcome::InInbox | Outcome::DeadLettered(_) => (new.id, false),
    };
    let delivery = take_of(tx, &new.to, offers)?;
    let message = match &delivery {
        // What the handler got is this one, unless a more urgent one lay before it.
        Some((_, delivery)) if delivery.message.id == id => delivery.message.clone(),
        _ => super::find(tx, id)?.ok_or_else(|| super::lost("message_send"))?,
    };
    Ok(Ok(Sent { message, duplicate, delivery }))
}

/// Whether the sender may write to the receiver; the rule that says no, and in which words.
fn permitted(
    tx: &mut dyn Tx,
    new: &NewMessage,
    speaker: Speaker,
) -> Result<Result<(), (&'static str, Refusal)>> {
    let receiver = agent::find(tx, &new.to)?.filter(|agent| agent.archived_at.is_none());
    let Some(receiver) = receiver else {
        return Ok(Err(("unknown_receiver", Refusal::Unknown { what: "agent to write to" })));
    };
    let (sender, granted) = match speaker {
        Speaker::Person => (Sender::Person, false),
        Speaker::Agent => match agent::find(tx, &new.from)? {
            None => (Sender::Stranger, false),
            Some(sender) => {
                let authority = &sender.spec.authority;
                let venture = receiver.spec.venture.as_ref();
                let granted = authority.agents.contains(&new.to)
                    || venture.is_some_and(|venture| authority.ventures.contains(venture));
                (Sender::Agent(known(tx, sender)?), granted)
            }
        },
    };
    let receiver = known(tx, receiver)?;
    let refused = |rule: Rule| {
        let (from, to) = (new.from.clone(), new.to.clone());
        (rule.as_str(), Refusal::NotPermitted { from, to, rule })
    };
    Ok(authority::decide(&sender, &receiver, granted).map(drop).map_err(refused))
}

fn known(tx: &mut dyn Tx, agent: agent::Agent) -> Result<authority::Agent> {
    let line = match agent.spec.parent {
        // The line begins with the agent itself.
        Some(_) => agent::line(tx, &agent.name)?.split_off(1),
        None => Vec::new(),
    };
    Ok(authority::Agent {
        name: agent.name,
        venture: agent.spec.venture,
        ancestors: line,
        archived: agent.archived_at.is_some(),
    })
}
