//! Handlers of messages: a pool that waits for them, runs a function for each, and acknowledges.
//!
//! The same handler runs in process, over an [`Engine`](crate::Engine), and against a remote
//! server, over [`Remote`](crate::remote::Remote).
//!
//! Invariant: a message is acknowledged after its handler returned well, never before; so a handler
//! may see a message again, and must bear it. While it runs, its lease is renewed at half its time;
//! a lost lease ends it.

use super::host::{CallError, Pending};
use super::{Failure, Result};
use crate::Engine;
use crate::engine::{MessageClaim, Returned};
use serde::Deserialize;
use serde_json::Value as Json;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use windlass_domain::id::{LeaseId, MessageId};
use windlass_domain::message::handler::{Handler, pool_size};
use windlass_domain::message::{self};
use windlass_domain::refusal::Refusal;
use windlass_store::message::Whose;

/// How long one claim waits.
const WAIT: Duration = Duration::from_secs(30);
/// How long to wait after a call failed.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// A message in a handler's hands.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Incoming {
    /// Its id: the same in every delivery.
    pub id: MessageId,
    /// Who wrote it.
    pub from: String,
    /// The agent that it is for.
    pub to: String,
    /// What kind of message.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it says.
    pub payload: Json,
    /// What it belongs to.
    pub correlation_id: String,
    /// How urgent it is.
    pub priority: i32,
    /// Which delivery this is, from 1.
    pub deliveries: i32,
}

/// Which messages a pool of handlers takes, and how many at once.
#[derive(Clone, Debug)]
pub struct MessageOptions {
    pub(crate) whose: Whose,
    pub(crate) name: String,
    pub(crate) size: usize,
    pub(crate) lease_ms: i64,
}

impl MessageOptions {
    /// The messages of all agents of a role: `ceo`, `vp`, `crew`, or any other, which is crew.
    pub fn role(role: &str) -> MessageOptions {
        let handler = Handler::of_role(role);
        let size = pool_size(handler, None).unwrap_or(1);
        MessageOptions::new(Whose::Pool(handler.as_str().to_owned()), handler.as_str(), size)
    }

    /// The messages of one agent.
    pub fn agent(name: &str) -> MessageOptions {
        MessageOptions::new(Whose::Agents(vec![name.to_owned()]), name, 1)
    }

    fn new(whose: Whose, name: &str, size: usize) -> MessageOptions {
        MessageOptions { whose, name: name.to_owned(), size, lease_ms: message::LEASE_MS }
    }

    /// How many handlers run at once: at most 5 for ceos, 10 for vps, 50 for everybody else.
    pub fn size(mut self, size: usize) -> Result<MessageOptions, Refusal> {
        let handler = match &self.whose {
            Whose::Pool(pool) => pool.parse().unwrap_or(Handler::Crew),
            Whose::Agents(_) => Handler::Crew,
        };
        self.size = pool_size(handler, Some(size))?;
        Ok(self)
    }

    /// How long a handler may hold a message without a sign of life.
    pub fn lease(mut self, lease: Duration) -> Result<MessageOptions, Refusal> {
        let ms = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
        self.lease_ms = message::lease_ms(Some(ms))?;
        Ok(self)
    }

    /// What messages show as their handler.
    pub fn named(mut self, name: &str) -> MessageOptions {
        self.name = name.to_owned();
        self
    }
}

/// A message and the right to it.
pub(crate) struct Held {
    pub message: Incoming,
    pub lease: LeaseId,
}

/// Where a handler's calls go: an engine in this process, or a server.
pub(crate) trait Mail: Send + Sync + 'static {
    fn take(&self, claim: MessageClaim) -> Pending<'_, Vec<Held>>;
    fn acknowledge(&self, id: MessageId, lease: LeaseId) -> Pending<'_, ()>;
    fn give_back(&self, id: MessageId, lease: LeaseId, returned: Returned) -> Pending<'_, ()>;
    fn extend(&self, id: MessageId, lease: LeaseId, lease_ms: i64) -> Pending<'_, ()>;
    /// Resolves when no new work may begin.
    fn draining(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
    /// Counts as a worker until it is dropped.
    fn count(&self) -> Box<dyn Send + Sync>;
}

/// What a handler does with a message.
pub(crate) type Run =
    Arc<dyn Fn(Incoming) -> Pin<Box<dyn Future<Output = Result<()>> + Send>> + Send + Sync>;

/// A running pool of message handlers. Dropping it lets it run on; [`stop`](Self::stop) ends it.
pub struct MessageWorker {
    stop: watch::Sender<bool>,
    running: JoinSet<()>,
}

impl MessageWorker {
    /// Takes no new messages, and waits until those in hand are handled.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.running.join_next().await.is_some() {}
    }
}

impl Drop for MessageWorker {
    fn drop(&mut self) {
        self.running.detach_all();
    }
}

/// Starts a pool.
pub(crate) fn serve(mail: Arc<dyn Mail>, options: MessageOptions, run: Run) -> MessageWorker {
    let (stop, stopping) = watch::channel(false);
    let mut running = JoinSet::new();
    for _ in 0..options.size {
        let one = One {
            mail: Arc::clone(&mail),
            options: options.clone(),
            run: Arc::clone(&run),
            stopping: stopping.clone(),
        };
        running.spawn(one.work());
    }
    MessageWorker { stop, running }
}

struct One {
    mail: Arc<dyn Mail>,
    options: MessageOptions,
    run: Run,
    stopping: watch::Receiver<bool>,
}

impl One {
    async fn work(mut self) {
        let _counted = self.mail.count();
        let mail = Arc::clone(&self.mail);
        loop {
            let claim = MessageClaim {
                whose: self.options.whose.clone(),
                handler: self.options.name.clone(),
                max: 1,
                lease_ms: Some(self.options.lease_ms),
                wait: WAIT,
            };
            let taken = tokio::select! {
                taken = mail.take(claim) => taken,
                () = mail.draining() => return,
                // An engine that is gone stops nobody: the pool runs on without its handle.
                Ok(_) = self.stopping.wait_for(|stopping| *stopping) => return,
            };
            match taken {
                Ok(held) => {
                    for held in held {
                        self.handle(held).await;
                    }
                }
                Err(error) if error.code == "shutting_down" => return,
                Err(error) => {
                    tracing::warn!(detail = error.detail, "no messages for now");
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
            }
        }
    }

    async fn handle(&self, held: Held) {
        let Held { message, lease } = held;
        let id = message.id;
        // On a task of its own, so that a panic is a failure of this delivery and of nothing else.
        let mut running = tokio::spawn((self.run)(message));
        let outcome = tokio::select! {
            done = &mut running => done,
            () = self.renew(id, lease) => {
                tracing::warn!(message_id = %id, "the lease is lost; the handler is ended");
                return running.abort();
            }
        };
        let returned = match outcome {
            Ok(Ok(())) => {
                return self.told("acknowledged", id, || self.mail.acknowledge(id, lease)).await;
            }
            Ok(Err(failure)) => failure,
            Err(panic) => Failure::new("PANIC", panic.to_string()),
        };
        let (error, retry_after_ms) = (returned.told(), returned.retry_after_ms());
        let returned = Returned {
            code: Some(error.code),
            message: Some(error.message),
            retry_after_ms,
            reject: false,
        };
        self.told("given back", id, || self.mail.give_back(id, lease, returned.clone())).await;
    }

    /// Ends when the lease is lost.
    async fn renew(&self, id: MessageId, lease: LeaseId) {
        let half = Duration::from_millis((self.options.lease_ms / 2).max(1) as u64);
        let mut pause = half;
        loop {
            tokio::time::sleep(pause).await;
            pause = half;
            match self.mail.extend(id, lease, self.options.lease_ms).await {
                Ok(()) => {}
                // Half of the lease is left: it is not spent on waiting.
                Err(error) if error.is_temporary => pause = (half / 4).min(AFTER_FAILURE),
                Err(_) => return,
            }
        }
    }

    /// Tells how a delivery ended, again while there is no answer.
    async fn told<'a>(&'a self, what: &str, id: MessageId, call: impl Fn() -> Pending<'a, ()>) {
        let mut pause = Duration::from_millis(50);
        loop {
            match call().await {
                Ok(()) => return,
                Err(error) if error.is_temporary => {
                    tracing::warn!(message_id = %id, detail = error.detail, "not {what} yet");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(5));
                }
                Err(error) => {
                    return tracing::warn!(message_id = %id, detail = error.detail, "not {what}");
                }
            }
        }
    }
}

impl Mail for Engine {
    fn take(&self, claim: MessageClaim) -> Pending<'_, Vec<Held>> {
        Box::pin(async move {
            let taken = self.claim_messages(claim).await.map_err(CallError::from)?;
            Ok(taken.into_iter().map(Held::from).collect())
        })
    }

    fn acknowledge(&self, id: MessageId, lease: LeaseId) -> Pending<'_, ()> {
        Box::pin(async move {
            self.acknowledge_message(id, lease).await.map(drop).map_err(CallError::from)
        })
    }

    fn give_back(&self, id: MessageId, lease: LeaseId, returned: Returned) -> Pending<'_, ()> {
        Box::pin(async move {
            self.return_message(id, lease, returned).await.map(drop).map_err(CallError::from)
        })
    }

    fn extend(&self, id: MessageId, lease: LeaseId, lease_ms: i64) -> Pending<'_, ()> {
        Box::pin(async move {
            let extended = self.extend_message(id, lease, Some(lease_ms)).await;
            extended.map(drop).map_err(CallError::from)
        })
    }

    fn draining(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(Engine::draining(self))
    }

    fn count(&self) -> Box<dyn Send + Sync> {
        Box::new(self.count_worker())
    }
}

impl From<windlass_store::message::Delivery> for Held {
    fn from(delivery: windlass_store::message::Delivery) -> Held {
        let message = delivery.message;
        Held {
            lease: delivery.lease,
            message: Incoming {
                id: message.id,
                from: message.from,
                to: message.to,
                kind: message.kind,
                payload: message.payload,
                correlation_id: message.correlation_id,
                priority: message.priority,
                deliveries: message.deliveries,
            },
        }
    }
}

impl Engine {
    /// Runs a function for every message that comes to a role or an agent, until stopped.
    pub fn handle_messages<F>(
        &self,
        options: MessageOptions,
        handler: impl Fn(Incoming) -> F + Send + Sync + 'static,
    ) -> MessageWorker
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        serve(Arc::new(self.clone()), options, boxed(handler))
    }
}

pub(crate) fn boxed<F>(handler: impl Fn(Incoming) -> F + Send + Sync + 'static) -> Run
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    Arc::new(move |message| Box::pin(handler(message)))
}
