//! Work taken over HTTP: tasks are claimed, and an [`Executor`] does what they ask for.
//!
//! The command worker runs a child process for each ([`command`]); a provider forwards them.
//!
//! Invariant: every lease that the server has given to this worker is named by its heartbeats
//! until its end has been answered, and is then never named again. So a cancelled or lost task is
//! noticed, and a result survives a restart of the server.
//! Absent: rules. Whether a failure is retried is the server's decision.

pub mod assignment;
pub mod child;
pub mod command;
mod environment;
mod finish;
mod heartbeat;
mod hold;
pub mod outcome;
mod presence;
mod session;

use crate::client::{Call, Client, Error, Patience};
use crate::interrupt::Signals;
use assignment::Assignment;
use child::Stop;
use hold::Hold;
use outcome::Outcome;
use presence::Presence;
use rustix::process::Pid;
use serde_json::json;
use session::Sessions;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use windlass::domain::profile::Kind;

/// How long a claim waits at the server for work.
const CLAIM_WAIT: Duration = Duration::from_secs(20);
/// How long the end of everything may take once the children are dead.
const FAREWELL: Duration = Duration::from_secs(10);

/// What a worker does.
#[derive(Clone, Debug)]
pub struct Options {
    /// What people call it.
    pub name: String,
    /// Where it takes work from.
    pub queues: Vec<String>,
    /// The pools that it provides for.
    pub pools: Vec<String>,
    /// The models that it has.
    pub models: Vec<String>,
    /// The llms that it is: tasks are pinned to one by its name.
    pub llms: Vec<String>,
    /// The tiers that it serves.
    pub tiers: Vec<String>,
    /// Which kinds of work; empty means every kind.
    pub kinds: Vec<String>,
    /// How many tasks at once.
    pub slots: usize,
    /// How long its leases last; the server's default if it says nothing.
    pub lease_ms: Option<u64>,
    /// How long running tasks may take to end on a signal.
    pub grace: Duration,
    /// Whether it binds a stream, so that its end is noticed at once.
    pub is_present: bool,
}

impl Options {
    /// Whether it opens a stream only to be told at once what is cancelled. One that takes
    /// inference does not: it would lose what it runs whenever the stream breaks.
    fn listens(&self) -> bool {
        !self.is_present && self.kinds.iter().all(|kind| kind != Kind::Inference.as_str())
    }
}

/// Something under way.
pub type Running<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
/// Learns the process group that works under a lease.
pub type Begun<'a> = &'a (dyn Fn(Pid) + Send + Sync);

/// What is done with a task.
pub trait Executor: Send + Sync {
    /// Works on one task until its end, or until it is told to stop. `begun` learns of the process
    /// group, if there is one, so that it can be killed when this process must end at once.
    fn run<'a>(
        &'a self,
        assignment: &'a Assignment,
        stop: watch::Receiver<Option<Stop>>,
        begun: Begun<'a>,
    ) -> Running<'a, Outcome>;

    /// Resolves when new work can be taken.
    fn ready(&self) -> Running<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Resolves when no new work can be taken.
    fn unready(&self) -> Running<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// What the parts of a worker share.
struct Shared {
    client: Client,
    options: Options,
    executor: Arc<dyn Executor>,
    sessions: Sessions,
    hold: Hold,
    presence: Presence,
    finished: mpsc::Sender<finish::Item>,
    /// Whether no new work is taken.
    draining: watch::Sender<bool>,
}

impl Shared {
    fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    async fn drained(&self) {
        let mut draining = self.draining.subscribe();
        // The sender lives in `self`, so this ends only when draining begins.
        let _ = draining.wait_for(|draining| *draining).await;
    }
}

/// Works until a signal ends it, or the server refuses it for good.
pub async fn run(
    client: Client,
    options: Options,
    executor: Arc<dyn Executor>,
) -> Result<(), Error> {
    // Listen to signals before anything is claimed: one that comes early must not be lost.
    let mut signals = Signals::new();
    // Room for every lease and for those that go back at once, so that a beat never waits here.
    let (finished, items) = mpsc::channel(2 * options.slots + 100);
    let shared = Arc::new(Shared {
        sessions: Sessions::default(),
        hold: Hold::default(),
        presence: Presence::default(),
        finished,
        draining: watch::Sender::new(false),
        client,
        options,
        executor,
    });
    let finisher = tokio::spawn(finish::run(shared.clone(), items));
    let beater = tokio::spawn(heartbeat::run(shared.clone()));
    let mut claimer = tokio::spawn(claim_until_drained(shared.clone()));
    let binding = shared.options.is_present.then(|| tokio::spawn(presence::run(shared.clone())));
    let mut binder = binding.unwrap_or_else(|| tokio::spawn(std::future::pending()));
    let listener = shared.options.listens().then(|| tokio::spawn(presence::listen(shared.clone())));
    let mut refused = None;
    tokio::select! {
        number = signals.next() => tracing::info!(signal = number, "stopping"),
        ended = &mut claimer => refused = ended.ok().and_then(Result::err),
        ended = &mut binder => refused = ended.ok(),
    }
    let _ = shared.draining.send(true);
    let close = close(&shared);
    tokio::select! {
        () = close => {}
        number = signals.next() => {
            shared.hold.kill_all();
            tracing::warn!(signal = number, "ending at once");
            std::process::exit(128 + number);
        }
    }
    claimer.abort();
    binder.abort();
    listener.inspect(tokio::task::JoinHandle::abort);
    beater.abort();
    finisher.abort();
    refused.map_or(Ok(()), Err)
}

/// Lets running tasks end, stops those that do not, and gives everything back.
async fn close(shared: &Arc<Shared>) {
    let held = shared.hold.len();
    if held > 0 {
        let grace_ms =
            crate::print::span(i64::try_from(shared.options.grace.as_millis()).unwrap_or(i64::MAX));
        tracing::info!(held, "waiting up to {grace_ms} for running tasks; signal again to end now");
    }
    if tokio::time::timeout(shared.options.grace, shared.hold.emptied()).await.is_err() {
        tracing::warn!(held = shared.hold.len(), "ending tasks that took too long");
        shared.hold.stop_all(Stop::Release);
        let limit = child::KILL_AFTER + FAREWELL;
        let _ = tokio::time::timeout(limit, shared.hold.emptied()).await;
    }
    if let Some(session) = shared.sessions.current() {
        let call = Call::delete(format!("/v1/sessions/{}", session.id));
        let farewell = shared.client.call(&call, Patience::SHORT);
        match tokio::time::timeout(FAREWELL, farewell).await {
            Ok(Ok(_)) => tracing::info!(session = session.id, "closed the session"),
            Ok(Err(error)) => tracing::warn!(%error, "the session was not closed; it will expire"),
            Err(_) => tracing::warn!("the session was not closed in time; it will expire"),
        }
    }
}

/// Claims as long as there are free slots. Ends when draining begins or the server says no.
async fn claim_until_drained(shared: Arc<Shared>) -> Result<(), Error> {
    while !shared.is_draining() {
        let freed = shared.hold.changed();
        let session = tokio::select! {
            session = shared.sessions.get(&shared) => session?,
            () = shared.drained() => return Ok(()),
        };
        if shared.options.is_present && !shared.presence.is_bound(&session) {
            tokio::select! {
                () = shared.presence.bound(&session, &shared.sessions) => continue,
                () = shared.drained() => return Ok(()),
            }
        }
        let free = session.slots.saturating_sub(shared.hold.len());
        if free == 0 {
            tokio::select! {
                () = freed => {}
                () = shared.drained() => {}
            }
            continue;
        }
        tokio::select! {
            () = shared.executor.ready() => {}
            () = shared.drained() => return Ok(()),
        }
        let body = json!({
            "max": free,
            "wait_ms": u64::try_from(CLAIM_WAIT.as_millis()).unwrap_or(0),
            "start": true,
            "claim_id": uuid::Uuid::now_v7(),
        });
        // The same claim again returns what it already gave, so an answer that was lost on the
        // way strands nothing.
        let path = format!("/v1/sessions/{}/claim", session.id);
        let call = Call::post(path, body).patient(CLAIM_WAIT);
        let answer = tokio::select! {
            answer = shared.client.call(&call, Patience::ENDLESS) => answer,
            // What the server has given meanwhile comes back by a heartbeat, or by the close.
            () = shared.drained() => return Ok(()),
            () = shared.executor.unready() => continue,
            () = shared.presence.unbound(&session), if shared.options.is_present => continue,
        };
        match answer {
            Ok(answer) => {
                for assignment in Assignment::read_all(&answer.body["assignments"]) {
                    begin(&shared, assignment).await;
                }
                // What was taken goes first: the next claim can wait until it has begun.
                tokio::task::yield_now().await;
            }
            Err(error) if session::is_gone(&error) => shared.sessions.forget(&session.id),
            Err(error) if session::is_lasting(&error, true) => {
                tracing::error!(%error, "the server refuses to give work");
                return Err(error);
            }
            Err(error) => {
                tracing::warn!(%error, "a claim was not answered; trying again");
                tokio::time::sleep(Patience::ENDLESS.longest).await;
            }
        }
    }
    Ok(())
}

/// Runs an assignment, or gives it back when there is no room for it. One that is known already
/// is left alone: a claim's answer and a heartbeat may both name it.
async fn begin(shared: &Arc<Shared>, assignment: Assignment) {
    let (task_id, lease_id) = (assignment.task_id.clone(), assignment.lease_id.clone());
    let room = if shared.is_draining() { 0 } else { shared.options.slots };
    match shared.hold.take(&task_id, &lease_id, room) {
        hold::Taken::Known => {}
        hold::Taken::NoRoom => {
            tracing::info!(task_id, "giving back a task for which there is no slot");
            finish::send(shared, &task_id, &lease_id, Outcome::Release, None).await;
        }
        hold::Taken::Slot(stop) => {
            let shared = shared.clone();
            tokio::spawn(async move { work(&shared, assignment, stop).await });
        }
    }
}

async fn work(shared: &Arc<Shared>, assignment: Assignment, stop: watch::Receiver<Option<Stop>>) {
    let begun = std::time::Instant::now();
    let Assignment { task_id, lease_id, attempt, .. } = &assignment;
    let correlation_id = assignment.task["correlation_id"].as_str();
    tracing::info!(task_id, attempt, correlation_id, "started");
    let note = |group| shared.hold.set_group(lease_id, group);
    let outcome = shared.executor.run(&assignment, stop, &note).await;
    shared.hold.set_over(lease_id);
    let took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    if matches!(outcome, Outcome::Dropped) {
        tracing::info!(task_id, correlation_id, took_ms, "dropped");
    }
    // What has become of the task is the server's to say: its command may have parked it.
    let correlation_id = correlation_id.map(str::to_owned);
    let run = Some(finish::Run { correlation_id, took_ms });
    finish::send(shared, task_id, lease_id, outcome, run).await;
}
