//! Messages: the store's operations, and whoever must be told.
//!
//! Invariant: ids, leases and chance are made here, before the first try.

use std::time::Duration;
use uuid::Uuid;
use windlass_domain::id::{LeaseId, MessageId};
use windlass_domain::message::{self, Failure, MAX_CLAIM, MAX_WAIT_MS, SendRequest};
use windlass_domain::refusal::Refusal;
use windlass_domain::retry::{Class, classify};
use windlass_domain::time::Timestamp;
use windlass_domain::validate::{Errors, MAX_NAME_BYTES};
use windlass_store::dead_letter::Redelivery;
use windlass_store::message::{Claim, Delivery, Ending, Message, Sent, Speaker, Whose};
use windlass_store::store::Wake;

use super::duty::{BATCH, Report};
use super::post::Offered;
use super::{Engine, Phase, Result};

/// A handler asks for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageClaim {
    /// Whose.
    pub whose: Whose,
    /// Who asks: what the messages show as their handler.
    pub handler: String,
    /// How many at most.
    pub max: i64,
    /// How long it may hold them; a minute unless it is said.
    pub lease_ms: Option<i64>,
    /// How long to wait for the first one.
    pub wait: Duration,
}

/// How a handler gives a message back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Returned {
    /// A code as tasks fail with: it decides whether another try is worth it.
    pub code: Option<String>,
    /// Why, in words.
    pub message: Option<String>,
    /// When to try again, instead of the usual time.
    pub retry_after_ms: Option<i64>,
    /// Nobody can ever handle it.
    pub reject: bool,
}

impl MessageClaim {
    fn check(&self) -> Result<Claim, Refusal> {
        let mut errors = Errors::default();
        errors.name("/handler", &self.handler, MAX_NAME_BYTES);
        errors.range("/max", self.max, 1, MAX_CLAIM);
        let wait_ms = i64::try_from(self.wait.as_millis()).unwrap_or(i64::MAX);
        errors.range("/wait_ms", wait_ms, 0, MAX_WAIT_MS);
        match &self.whose {
            Whose::Pool(pool) => errors.name("/pool", pool, MAX_NAME_BYTES),
            Whose::Agents(names) if names.is_empty() => {
                errors.add("/agents", "required", "must name an agent, or leave it out for a pool");
            }
            Whose::Agents(names) => errors.names("/agents", names),
        }
        errors.into_result()?;
        let lease_ms = message::lease_ms(self.lease_ms)?;
        let max = usize::try_from(self.max).unwrap_or(1);
        Ok(Claim::new(self.whose.clone(), self.handler.clone(), lease_ms, max))
    }
}

impl Returned {
    fn failure(&self) -> Failure {
        let is_final = |code: &String| classify(code, None) != Class::Retry;
        if self.reject || self.code.as_ref().is_some_and(is_final) {
            return Failure::Rejected;
        }
        Failure::Failed { chance: super::chance(), retry_after_ms: self.retry_after_ms }
    }

    fn words(&self) -> Option<String> {
        match (&self.code, &self.message) {
            (Some(code), Some(message)) => Some(format!("{code}: {message}")),
            (one, other) => one.clone().or_else(|| other.clone()),
        }
    }
}

impl Engine {
    /// Sends a message, if the rule of authority permits it. A handler of its receiver that waits
    /// on this node gets it at once. `principal` is whoever the credential says.
    pub async fn send_message(&self, request: SendRequest, principal: &str) -> Result<Sent> {
        let speaker = if request.from.is_some() { Speaker::Agent } else { Speaker::Person };
        let new = message::new_message(request, MessageId(Uuid::now_v7()), principal)?;
        let (id, correlation, to) = (new.id, new.correlation_id.clone(), new.to.clone());
        let post = std::sync::Arc::clone(&self.inner.post);
        let offered = if self.inner.options.eager { post.offer(&to) } else { Offered::none() };
        // On a task of its own: claims that were taken along are told, whoever goes away.
        let messages = self.inner.messages.clone();
        let sending = tokio::spawn(async move {
            let sent = messages.send(new, speaker, offered.claims()).await;
            let given = sent.as_ref().ok().and_then(|sent| sent.delivery.clone());
            post.settle(offered, given);
            sent
        });
        let sent = match sending.await {
            Ok(sent) => sent,
            Err(_) => return Err(super::Error::ShuttingDown),
        };
        match &sent {
            Ok(sent) => {
                let correlation_id = &sent.message.correlation_id;
                tracing::info!(message_id = %sent.message.id, correlation_id, to, "sent");
                if sent.delivery.is_none() && !sent.duplicate {
                    self.tell_message();
                }
            }
            Err(error) => {
                let correlation_id = correlation;
                tracing::info!(message_id = %id, correlation_id, to, %error, "not sent");
            }
        }
        Ok(sent?)
    }

    /// Some inbox may have something to hand out.
    pub(crate) fn tell_message(&self) {
        self.inner.post.wake();
        self.inner.store.tell(Wake::Message);
    }

    /// Takes messages, the most urgent first; waits for them if there are none.
    pub async fn claim_messages(&self, claim: MessageClaim) -> Result<Vec<Delivery>> {
        let asked = claim.check()?;
        if self.phase() != Phase::Running {
            return Err(super::Error::ShuttingDown);
        }
        let phase = self.inner.phase.subscribe();
        let taken = self.inner.post.claim(asked, claim.wait, phase).await?;
        for Delivery { message, .. } in &taken {
            let correlation_id = &message.correlation_id;
            let deliveries = message.deliveries;
            tracing::info!(message_id = %message.id, correlation_id, deliveries, "delivered");
        }
        Ok(taken)
    }

    /// A handler has handled a message.
    pub async fn acknowledge_message(&self, id: MessageId, lease: LeaseId) -> Result<Message> {
        self.end_message(id, lease, Ending::Acknowledge).await
    }

    /// A handler could not handle a message.
    pub async fn return_message(
        &self,
        id: MessageId,
        lease: LeaseId,
        returned: Returned,
    ) -> Result<Message> {
        let (failure, error) = (returned.failure(), returned.words());
        self.end_message(id, lease, Ending::Return { failure, error }).await
    }

    async fn end_message(&self, id: MessageId, lease: LeaseId, ending: Ending) -> Result<Message> {
        let message = self.inner.messages.end(id, lease, ending).await?;
        let (correlation_id, status) = (&message.correlation_id, message.status);
        tracing::info!(message_id = %id, correlation_id, %status, "ended");
        // The next one of its inbox may be handed out.
        self.tell_message();
        Ok(message)
    }

    /// A handler holds a message for longer.
    pub async fn extend_message(
        &self,
        id: MessageId,
        lease: LeaseId,
        lease_ms: Option<i64>,
    ) -> Result<Timestamp> {
        let lease_ms = message::lease_ms(lease_ms)?;
        Ok(self.inner.messages.extend(id, lease, lease_ms).await?)
    }

    /// Delivers a dead letter again, as a new message.
    pub async fn redeliver(&self, redelivery: Redelivery) -> Result<Message> {
        let message = self.inner.dead_letters.redeliver(redelivery).await?;
        self.tell_message();
        Ok(message)
    }

    /// The message router: takes messages from silent handlers, ends those whose time has passed,
    /// and gives up those that nobody reads.
    pub async fn sweep_messages(&self) -> Result<Report> {
        let mut report = Report::default();
        let messages = &self.inner.messages;
        loop {
            let swept = logged(messages.expire_leases(BATCH).await?, "its lease ran out");
            let expired = logged(messages.expire(BATCH).await?, "its time passed");
            let strays = logged(messages.bury_strays(BATCH).await?, "nobody reads its inbox");
            report.scanned += swept + expired + strays;
            report.changed += swept + expired + strays;
            if swept > 0 {
                self.tell_message();
            }
            if swept.max(expired).max(strays) < BATCH {
                return Ok(report);
            }
        }
    }
}

/// What became of messages by themselves, each in a line of its own; how many there are.
fn logged(swept: Vec<Message>, why: &str) -> usize {
    for message in &swept {
        let Message { id, correlation_id, status, deliveries, to, .. } = message;
        tracing::info!(message_id = %id, correlation_id, %status, deliveries, to, "{why}");
    }
    swept.len()
}
