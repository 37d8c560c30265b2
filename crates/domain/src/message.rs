//! Messages: what one agent tells another, and what becomes of it.
//!
//! Invariant: the table [`TRANSITIONS`] is the only place that says what may follow what; the
//! databases hold the same table. What has ended never changes: a redelivery is a new message.
//! Absent: who may write to whom ([`authority`]), and the work of people on dead letters, which is
//! that of [`crate::trouble`].

pub mod authority;
pub mod handler;

use crate::id::MessageId;
use crate::json;
use crate::order::{MAX_PRIORITY, MIN_PRIORITY};
use crate::refusal::Refusal;
use crate::retry::Backoff;
use crate::time::Timestamp;
use crate::validate::{
    self, Errors, MAX_DELAY_MS, MAX_JSON_BYTES, MAX_LEASE_MS, MAX_NAME_BYTES, MAX_WORKER_BYTES,
    MIN_LEASE_MS,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// How often a message is handed out before it becomes a dead letter.
pub const MAX_DELIVERIES: i32 = 5;
/// How long a handler has a message, unless it asks for another time.
pub const LEASE_MS: i64 = 60_000;
/// The most messages that one claim takes.
pub const MAX_CLAIM: i64 = 100;
/// The longest that a claim waits.
pub const MAX_WAIT_MS: i64 = 300_000;
/// The longest reason that is kept of a failed delivery, in characters.
pub const MAX_ERROR_CHARS: usize = 4_000;

/// Where a message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// In its inbox.
    Pending,
    /// In a handler's hands, under a lease.
    Delivered,
    /// Handled.
    Acknowledged,
    /// It could not be delivered or handled; a person looks at it.
    DeadLettered,
    /// Its time passed before anybody handled it.
    Expired,
}

/// What happens to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A handler takes it.
    Deliver,
    /// Its handler has handled it.
    Acknowledge,
    /// It goes back: its handler failed, gave it back, or fell silent.
    Return,
    /// It is given up.
    DeadLetter,
    /// Its time has passed.
    Expire,
}

/// From where an event leads where.
pub const TRANSITIONS: &[(Status, Event, Status)] = &[
    (Status::Pending, Event::Deliver, Status::Delivered),
    (Status::Pending, Event::Expire, Status::Expired),
    // Nobody is there to deliver it to.
    (Status::Pending, Event::DeadLetter, Status::DeadLettered),
    (Status::Delivered, Event::Acknowledge, Status::Acknowledged),
    (Status::Delivered, Event::Return, Status::Pending),
    (Status::Delivered, Event::DeadLetter, Status::DeadLettered),
    // A handler that has it in time may go on; what fails afterwards is not handed out again.
    (Status::Delivered, Event::Expire, Status::Expired),
];

/// Where an event leads, if it may happen there.
pub fn step(from: Status, event: Event) -> Option<Status> {
    let found = TRANSITIONS.iter().find(|(f, e, _)| (*f, *e) == (from, event));
    found.map(|(_, _, to)| *to)
}

impl Status {
    /// Every status.
    pub const ALL: &[Status] = &[
        Status::Pending,
        Status::Delivered,
        Status::Acknowledged,
        Status::DeadLettered,
        Status::Expired,
    ];

    /// Its name, in the API and in both databases.
    pub const fn as_str(self) -> &'static str {
        match self {
            Status::Pending => "pending",
            Status::Delivered => "delivered",
            Status::Acknowledged => "acknowledged",
            Status::DeadLettered => "dead_lettered",
            Status::Expired => "expired",
        }
    }

    /// Whether nothing more happens to it.
    pub const fn is_terminal(self) -> bool {
        !matches!(self, Status::Pending | Status::Delivered)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Status {
    type Err = ();

    fn from_str(text: &str) -> Result<Status, ()> {
        Status::ALL.iter().copied().find(|status| status.as_str() == text).ok_or(())
    }
}

/// Why a message became a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// No agent of this name is known.
    UnknownAgent,
    /// The agent is archived and reads nothing any more.
    ArchivedAgent,
    /// It was handed out as often as it may be.
    DeliveryLimit,
    /// Its handler said that it can never be handled.
    Rejected,
    /// It is not what a message may be, so that it cannot lie in an inbox.
    Invalid,
}

impl Reason {
    /// Every reason.
    pub const ALL: &[Reason] = &[
        Reason::UnknownAgent,
        Reason::ArchivedAgent,
        Reason::DeliveryLimit,
        Reason::Rejected,
        Reason::Invalid,
    ];

    /// Its name, in the API and in both databases.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::UnknownAgent => "unknown_agent",
            Reason::ArchivedAgent => "archived_agent",
            Reason::DeliveryLimit => "delivery_limit",
            Reason::Rejected => "rejected",
            Reason::Invalid => "invalid",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Reason {
    type Err = ();

    fn from_str(text: &str) -> Result<Reason, ()> {
        Reason::ALL.iter().copied().find(|reason| reason.as_str() == text).ok_or(())
    }
}

/// A message as somebody wants to send it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)] // Named like the columns of `message`.
pub struct SendRequest {
    pub id: Option<MessageId>,
    /// The agent that speaks; a person speaks in the name of nobody.
    pub from: Option<String>,
    pub to: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub payload: Value,
    pub priority: Option<i32>,
    pub correlation_id: Option<String>,
    pub idempotency_key: Option<String>,
    pub ttl_ms: Option<i64>,
}

/// A message that may be sent.
#[derive(Clone, Debug, PartialEq)]
pub struct NewMessage {
    /// Made or chosen before the first try, and the same on every try.
    pub id: MessageId,
    /// The agent, or whoever else speaks.
    pub from: String,
    /// The agent whose inbox it goes to.
    pub to: String,
    /// What kind of message, in the sender's own words.
    pub kind: String,
    /// What it says.
    pub payload: Value,
    /// Higher first.
    pub priority: i32,
    /// What it belongs to; its own id unless it is said.
    pub correlation_id: Option<String>,
    /// The same key by the same sender is the same message.
    pub idempotency_key: Option<String>,
    /// How long it is worth delivering.
    pub ttl_ms: Option<i64>,
    /// Who asked for it: what the audit names.
    pub sent_by: String,
    /// The dead letter that it delivers again.
    pub redelivery_of: Option<MessageId>,
}

impl NewMessage {
    /// A message of the service itself, such as the result of a delegation: nothing is checked
    /// here, and what cannot be delivered becomes a dead letter.
    pub fn new(id: MessageId, from: &str, to: &str, kind: &str, payload: Value) -> NewMessage {
        NewMessage {
            id,
            from: from.to_owned(),
            to: to.to_owned(),
            kind: kind.to_owned(),
            payload,
            priority: 0,
            correlation_id: None,
            idempotency_key: None,
            ttl_ms: None,
            sent_by: "windlass".to_owned(),
            redelivery_of: None,
        }
    }

    /// What makes two sends the same. Who asked is no part of it, nor is the id.
    pub fn digest(&self) -> String {
        json::digest(&json!({
            "from": self.from, "to": self.to, "type": self.kind, "payload": self.payload,
            "priority": self.priority, "correlation_id": self.correlation_id,
            "ttl_ms": self.ttl_ms,
        }))
    }

    /// Every bound that both databases hold it to.
    pub fn check(&self) -> validate::Result<()> {
        let mut errors = Errors::default();
        errors.name("/from", &self.from, MAX_NAME_BYTES);
        errors.name("/to", &self.to, MAX_NAME_BYTES);
        errors.name("/type", &self.kind, MAX_WORKER_BYTES);
        errors.optional_name("/correlation_id", self.correlation_id.as_deref());
        errors.optional_name("/idempotency_key", self.idempotency_key.as_deref());
        errors.range("/priority", self.priority.into(), MIN_PRIORITY.into(), MAX_PRIORITY.into());
        if let Some(ttl_ms) = self.ttl_ms {
            errors.range("/ttl_ms", ttl_ms, 1, MAX_DELAY_MS);
        }
        errors.json("/payload", &self.payload, MAX_JSON_BYTES);
        errors.into_result()
    }
}

/// The message that a request asks for; `fresh` is its id unless the caller chose one, `principal`
/// whoever the credential says.
pub fn new_message(
    request: SendRequest,
    fresh: MessageId,
    principal: &str,
) -> validate::Result<NewMessage> {
    let message = NewMessage {
        priority: request.priority.unwrap_or(0),
        correlation_id: request.correlation_id,
        idempotency_key: request.idempotency_key,
        ttl_ms: request.ttl_ms,
        sent_by: principal.to_owned(),
        ..NewMessage::new(
            request.id.unwrap_or(fresh),
            request.from.as_deref().unwrap_or(principal),
            &request.to,
            &request.kind,
            request.payload,
        )
    };
    message.check().map(|()| message)
}

/// What follows a delivery that came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// It lies in its inbox again and may be taken from this time on.
    Again(Timestamp),
    /// A person must look.
    DeadLetter(Reason),
    /// It is not worth another try.
    Expired,
}

/// How a delivery came to nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Failure {
    /// The handler says that it failed. `chance` spreads the next tries.
    Failed {
        /// From 0 to 1.
        chance: f64,
        /// The handler's own wish.
        retry_after_ms: Option<i64>,
    },
    /// The handler says that nobody can ever handle it.
    Rejected,
    /// The handler fell silent. The lease was wait enough.
    LeaseLost,
}

/// What follows when delivery number `deliveries` failed.
pub fn after_failure(
    deliveries: i32,
    expires_at: Option<Timestamp>,
    failure: Failure,
    now: Timestamp,
) -> AfterFailure {
    if failure == Failure::Rejected {
        return AfterFailure::DeadLetter(Reason::Rejected);
    }
    if deliveries >= MAX_DELIVERIES {
        return AfterFailure::DeadLetter(Reason::DeliveryLimit);
    }
    if expires_at.is_some_and(|at| at <= now) {
        return AfterFailure::Expired;
    }
    let wait_ms = match failure {
        Failure::Failed { retry_after_ms: Some(ms), .. } => ms.clamp(0, MAX_DELAY_MS),
        Failure::Failed { chance, .. } => {
            Backoff::default().delay_ms(deliveries.saturating_sub(1), chance)
        }
        Failure::Rejected | Failure::LeaseLost => 0,
    };
    AfterFailure::Again(now.plus_ms(wait_ms))
}

/// How long a handler may hold a message.
pub fn lease_ms(asked: Option<i64>) -> validate::Result<i64> {
    let lease_ms = asked.unwrap_or(LEASE_MS);
    let mut errors = Errors::default();
    errors.range("/lease_ms", lease_ms, MIN_LEASE_MS, MAX_LEASE_MS);
    errors.into_result().map(|()| lease_ms)
}

/// A claim for these, of which nobody is there: each is named. A pool that no agent's messages go
/// to is as wrong as an agent that is not there: whoever waits for it waits for ever.
pub fn readers(is_pool: bool, nobody: &[String]) -> validate::Result<()> {
    let mut errors = Errors::default();
    for name in nobody {
        if is_pool {
            let detail = format!(
                "no agent's messages go to a pool `{name}`; it must be the worker type of an \
                 agent, or ceo_handler, vp_handler or crew_executor"
            );
            errors.add("/pool", "not_found", detail);
        } else {
            let detail = format!("there is no agent `{name}`, or it is archived; create it first");
            errors.add("/agents", "not_found", detail);
        }
    }
    errors.into_result()
}

/// The refusal of whoever no longer holds a message.
pub fn lease_lost(status: Status) -> Refusal {
    Refusal::MessageLost { status }
}

#[cfg(test)]
mod tests;
