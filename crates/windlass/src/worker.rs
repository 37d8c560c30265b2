//! Workers: they claim tasks, run handlers, and beat for every task that runs.
//!
//! Invariant: a handler whose lease is lost is dropped at its next await, and its result with it;
//! one whose task was cancelled is told, and dropped a little later. A task that parked is nobody's
//! business here any more. Heartbeats name every lease until its end was answered.

use crate::engine::{Engine, Phase, Result, SessionRequest};
use crate::sdk::{Ctx, Ended, Failure, Handlers, Host, HostBeat, Local, Registered, Start, Work};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use uuid::Uuid;
use windlass_domain::failure::TaskError;
use windlass_domain::id::{ChangeId, ClaimId, LeaseId, SessionId, TaskId};
use windlass_domain::profile::beat_every_ms;
use windlass_domain::usage::Usage;
use windlass_domain::validate;
use windlass_store::session::{Routes, TTL_MS};
use windlass_store::task::{Assignment, Finish, Finishing};

/// How long a handler may go on after its task was cancelled, to clean up.
const GRACE: Duration = Duration::from_secs(5);

/// How long a worker asks at most why a lease is gone; then it takes it for lost.
const ASK: Duration = Duration::from_secs(1);

/// How long after a beat without an answer the next one follows, at most.
const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// Claims that one worker has under way at most: the next one is being taken while what the one
/// before brought is begun and ended.
const CLAIMS: usize = 2;

/// Fewer slots than this are no second claim: a claim of few costs almost as much as one of many.
const WORTH_A_CLAIM: usize = 16;

/// How a worker takes part.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// Shown to people.
    pub name: String,
    /// Where its tasks come from.
    pub routes: Routes,
    /// How many at once.
    pub slots: i32,
    /// Its own lease length; the kind's if `None`.
    pub lease_ms: Option<i64>,
}

impl WorkerOptions {
    /// A worker of one queue.
    pub fn queue(name: impl Into<String>, queue: impl Into<String>, slots: i32) -> WorkerOptions {
        let routes = Routes { queues: vec![queue.into()], ..Routes::default() };
        WorkerOptions { name: name.into(), routes, slots, lease_ms: None }
    }
}

/// A running worker. It ends with its engine, or by [`Worker::stop`].
pub struct Worker {
    session: SessionId,
    stop: watch::Sender<bool>,
    done: tokio::task::JoinHandle<()>,
}

impl Worker {
    /// Its session.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// Takes no more tasks and waits until those that run are done.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        let _ = self.done.await;
    }

    /// Runs until the worker's host ends.
    pub async fn done(self) {
        let _ = self.done.await;
    }
}

impl Engine {
    /// Runs `handler` for every task of the worker's queues, until stopped: one attempt from
    /// beginning to end, without steps.
    pub async fn work<F>(
        &self,
        options: WorkerOptions,
        handler: impl Fn(Assignment) -> F + Send + Sync + 'static,
    ) -> Result<Worker>
    where
        F: Future<Output = Result<serde_json::Value, TaskError>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let plain = move |assignment| -> Running {
            let ended = handler(assignment);
            Box::pin(async move { ended.await.map_err(Failure::from_task) })
        };
        self.begin_worker(options, Job::Plain(Arc::new(plain))).await
    }

    /// Runs handlers with steps for the tasks of the worker's queues, until stopped.
    pub async fn run(&self, options: WorkerOptions, handlers: Handlers) -> Result<Worker> {
        self.begin_worker(options, Job::Steps(handlers)).await
    }

    async fn begin_worker(&self, options: WorkerOptions, job: Job) -> Result<Worker> {
        let registration = SessionRequest {
            id: Some(SessionId(Uuid::now_v7())),
            name: options.name,
            worker_type: None,
            routes: options.routes,
            slots: Some(options.slots),
            lease_ms: options.lease_ms,
        };
        let session = self.register(registration.clone()).await?;
        let slots = session.slots.try_into().unwrap_or(1);
        let registered = Registered { session: session.id, slots };
        let host = Local { engine: self.clone(), registration };
        Ok(begin(Arc::new(host), registered, options.lease_ms, job))
    }
}

type Running = Pin<Box<dyn Future<Output = Result<serde_json::Value, Failure>> + Send>>;

/// What runs a task.
#[derive(Clone)]
pub(crate) enum Job {
    Plain(Arc<dyn Fn(Assignment) -> Running + Send + Sync>),
    Steps(Handlers),
}

/// Begins a worker over a host, under a session that is registered there.
pub(crate) fn begin(
    host: Arc<dyn Host>,
    registered: Registered,
    lease_ms: Option<i64>,
    job: Job,
) -> Worker {
    let Registered { session, slots } = registered;
    let (stop, stopping) = watch::channel(false);
    let run = Run { host, session, slots, lease_ms, job, held: Arc::default() };
    let done = tokio::spawn(run.serve(stopping));
    Worker { session, stop, done }
}

/// Tasks in hand, and how each is told that it is not any more.
type Held = Arc<Mutex<HashMap<LeaseId, InHand>>>;

struct InHand {
    task: TaskId,
    cancelled: watch::Sender<bool>,
    lost: Option<oneshot::Sender<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone)]
struct Run {
    host: Arc<dyn Host>,
    session: SessionId,
    slots: usize,
    lease_ms: Option<i64>,
    job: Job,
    held: Held,
}

impl Run {
    async fn serve(self, mut stop: watch::Receiver<bool>) {
        let _counted = self.host.count();
        let slots = Arc::new(Semaphore::new(self.slots));
        let beating = tokio::spawn(beat(self.clone()));
        let mut claims = FuturesUnordered::new();
        loop {
            let wanted = enough_slots(self.slots, claims.len());
            let may_claim = claims.len() < CLAIMS && self.host.phase() == Phase::Running;
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => break,
                // What a claim brings that is under way is begun.
                () = self.host.draining(), if claims.is_empty() => break,
                Some((free, claimed)) = claims.next() => self.begin_all(free, claimed),
                // Slots first: a task is claimed only when somebody can run it.
                Some(free) = free_slots(&slots, wanted), if may_claim => {
                    claims.push(self.claim(free));
                }
            }
        }
        drop(claims);
        // Those that run may finish; the engine decides how long it waits for that.
        tokio::select! {
            _ = slots.acquire_many(self.slots.try_into().unwrap_or(1)) => {}
            () = self.host.abandoned() => lock(&self.held).clear(),
        }
        beating.abort();
        if let Err(error) = self.host.close(self.session).await {
            tracing::warn!(session = %self.session, detail = error.detail, "no goodbye");
        }
    }

    /// Claims as many tasks as slots are free, and keeps those slots for them.
    async fn claim(&self, free: OwnedSemaphorePermit) -> (OwnedSemaphorePermit, Vec<Work>) {
        let (claim, max) = (ClaimId(Uuid::now_v7()), free.num_permits());
        loop {
            let claimed = self.host.claim(self.session, claim, max, Duration::from_secs(30)).await;
            let error = match claimed {
                Ok(claimed) => return (free, claimed),
                Err(error) => error,
            };
            tracing::warn!(session = %self.session, detail = error.detail, "no work");
            tokio::time::sleep(Duration::from_millis(500)).await;
            if self.host.phase() != Phase::Running {
                return (free, Vec::new());
            }
            // It may have taken something all the same: the same claim brings it.
        }
    }

    /// Begins what was claimed, each in a slot of its own; the other slots are free again.
    fn begin_all(&self, mut free: OwnedSemaphorePermit, claimed: Vec<Work>) {
        for work in claimed {
            // A host gives no more than it was asked for.
            let Some(slot) = free.split(1) else { return };
            let run = self.clone();
            tokio::spawn(async move {
                run.run_one(work).await;
                drop(slot);
            });
        }
    }

    async fn run_one(&self, mut work: Work) {
        let (task, lease) = (work.task.id, work.lease);
        let (cancelled, cancelling) = watch::channel(false);
        let (lost, mut losing) = oneshot::channel();
        lock(&self.held).insert(lease, InHand { task, cancelled, lost: Some(lost) });
        let (ended, mut ending) = mpsc::channel(1);
        let usage: Arc<Mutex<Option<Usage>>> = Arc::default();
        let plain = work.assignment.take();
        let running: Running = match (&self.job, plain) {
            (Job::Plain(run), Some(assignment)) => run(*assignment),
            (Job::Plain(_), None) => return,
            (Job::Steps(handlers), _) => {
                let payload = std::mem::take(&mut work.payload);
                let start = Start {
                    host: Arc::clone(&self.host),
                    session: self.session,
                    lease_ms: self.lease_ms,
                    work,
                    strict: handlers.is_strict(),
                    cancelled: cancelling.clone(),
                    ended,
                    usage: Arc::clone(&usage),
                };
                let handlers = handlers.clone();
                Box::pin(async move {
                    let ctx = Ctx::begin(start).await.map_err(Failure::of_call)?;
                    handlers.run(ctx, payload).await
                })
            }
        };
        // On a task of its own, so that a panic is a failure of this attempt and of nothing else.
        let mut work = tokio::spawn(running);
        let outcome = tokio::select! {
            done = &mut work => Some(done),
            // The sender is dropped when the worker is told to abandon what it holds.
            _ = &mut losing => None,
            () = self.is_dropped(task, lease, &mut ending) => None,
            () = overdue(cancelling.clone()) => None,
        };
        let was_cancelled = *cancelling.borrow();
        let how = match outcome {
            None => {
                work.abort();
                return self.let_go(lease);
            }
            // Its result would be refused.
            Some(_) if was_cancelled => return self.let_go(lease),
            Some(Ok(Ok(result))) => match validate::result(&result) {
                Ok(text) => Finishing::Complete(Some(text)),
                Err(refusal) => failed(Failure::new("INVALID_OUTPUT", refusal.to_string())),
            },
            Some(Ok(Err(failure))) => failed(failure),
            Some(Err(panic)) => failed(Failure::new("PANIC", panic.to_string())),
        };
        let item = Finish {
            task,
            lease,
            how,
            usage: lock(&usage).take(),
            actor: self.session.to_string(),
            reason: None,
            change: ChangeId(Uuid::now_v7()),
        };
        self.finish(item).await;
        // Named by heartbeats until the end is answered: what they do not name is given back.
        self.let_go(lease);
    }

    fn let_go(&self, lease: LeaseId) {
        lock(&self.held).remove(&lease);
    }

    /// Gives back what the session holds and nobody here knows of: a claim was ended, by a stop,
    /// before its answer came.
    async fn give_back(self, task: TaskId, lease: LeaseId) {
        tracing::warn!(session = %self.session, %task, "giving back a task that never came");
        self.finish(Finish {
            task,
            lease,
            how: Finishing::Release,
            usage: None,
            actor: self.session.to_string(),
            reason: None,
            change: ChangeId(Uuid::now_v7()),
        })
        .await;
    }

    /// Resolves when a call of the handler says that its task is in other hands. A call may also
    /// hear of a cancel before a heartbeat does: then the handler is told, and has its time.
    async fn is_dropped(&self, task: TaskId, lease: LeaseId, ending: &mut mpsc::Receiver<Ended>) {
        match ending.recv().await {
            Some(Ended::Parked) => return,
            Some(Ended::Lost) => {}
            None => return std::future::pending().await,
        }
        let beat = HostBeat { task, lease, checkpoint: None, progress: None };
        let asked = tokio::time::timeout(ASK, self.host.beat(self.session, vec![beat])).await;
        if !asked.is_ok_and(|told| told.is_ok_and(|told| told.cancelled.contains(&lease))) {
            return;
        }
        if let Some(in_hand) = lock(&self.held).get(&lease) {
            in_hand.cancelled.send_replace(true);
        }
        std::future::pending().await
    }

    /// Tells how an attempt ended, again and again while the host gives no answer.
    async fn finish(&self, item: Finish) {
        let mut pause = Duration::from_millis(50);
        loop {
            match self.host.finish(self.session, item.clone()).await {
                Ok(()) => return,
                Err(error) if error.is_temporary && self.host.phase() != Phase::Stopped => {
                    tracing::warn!(task = %item.task, detail = error.detail, "not stored yet");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(5));
                }
                Err(error) => {
                    return tracing::warn!(task = %item.task, detail = error.detail, "refused");
                }
            }
        }
    }
}

/// So many slots as soon as they are free, and all others that are free by then: what is left over
/// would be a claim of its own.
async fn free_slots(slots: &Arc<Semaphore>, wanted: u32) -> Option<OwnedSemaphorePermit> {
    let mut free = Arc::clone(slots).acquire_many_owned(wanted).await.ok()?;
    // A batch of ends frees its slots one by one: what can run now runs once.
    tokio::task::yield_now().await;
    let more = u32::try_from(slots.available_permits()).unwrap_or(0);
    if let Ok(more) = Arc::clone(slots).try_acquire_many_owned(more) {
        free.merge(more);
    }
    Some(free)
}

/// How many slots must be free for the next claim: one, or enough to be worth a second one.
fn enough_slots(slots: usize, under_way: usize) -> u32 {
    let wanted = if under_way == 0 { 1 } else { (slots / 4).max(WORTH_A_CLAIM) };
    wanted.try_into().unwrap_or(u32::MAX)
}

fn failed(failure: Failure) -> Finishing {
    let (error, retry_after_ms) = (failure.told(), failure.retry_after_ms());
    Finishing::Fail { error, retry_after_ms, chance: crate::engine::chance() }
}

/// The task was cancelled, and its handler had its time.
async fn overdue(mut cancelled: watch::Receiver<bool>) {
    if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
        std::future::pending().await
    }
    tokio::time::sleep(GRACE).await;
}

/// How long after a beat the next one follows. A worker that asked for no lease of its own has that
/// of the kind, which outlasts its session.
fn beat_every(lease_ms: Option<i64>) -> Duration {
    let ms = beat_every_ms(lease_ms.unwrap_or(TTL_MS), TTL_MS);
    Duration::from_millis(ms.try_into().unwrap_or(1))
}

async fn beat(run: Run) {
    let every = beat_every(run.lease_ms);
    let mut pause = every;
    // Of the last answer: what stands in two of them is in no claim's answer on its way here.
    let mut unnamed: HashSet<LeaseId> = HashSet::new();
    loop {
        tokio::time::sleep(pause).await;
        pause = every;
        let beats = (lock(&run.held).iter())
            .map(|(&lease, in_hand)| HostBeat {
                task: in_hand.task,
                lease,
                checkpoint: None,
                progress: None,
            })
            .collect();
        let told = match run.host.beat(run.session, beats).await {
            Ok(told) => told,
            Err(error) => {
                tracing::warn!(session = %run.session, detail = error.detail, "no heartbeat");
                // Half of the lease is left: it is not spent on waiting.
                pause = (every / 4).min(AFTER_FAILURE);
                continue;
            }
        };
        let mut held = lock(&run.held);
        for lease in told.cancelled {
            if let Some(in_hand) = held.get(&lease) {
                in_hand.cancelled.send_replace(true);
            }
        }
        for lease in told.lost {
            if let Some(in_hand) = held.get_mut(&lease)
                && let Some(lost) = in_hand.lost.take()
            {
                let _ = lost.send(());
            }
        }
        let strange = told.unnamed.into_iter().filter(|(_, lease)| !held.contains_key(lease));
        let (again, new): (Vec<_>, Vec<_>) =
            strange.partition(|(_, lease)| unnamed.contains(lease));
        drop(held);
        unnamed = new.into_iter().map(|(_, lease)| lease).collect();
        for (task, lease) in again {
            tokio::spawn(run.clone().give_back(task, lease));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_claim_waits_for_a_quarter_of_the_slots_and_for_no_less_than_it_is_worth() {
        assert_eq!([1, 8, 1_000].map(|slots| enough_slots(slots, 0)), [1, 1, 1]);
        assert_eq!([8, 64, 1_000].map(|slots| enough_slots(slots, 1)), [16, 16, 250]);
    }

    #[test]
    fn a_worker_beats_at_half_of_its_lease_or_of_its_session() {
        let every = |lease_ms| beat_every(lease_ms).as_millis();
        assert_eq!([Some(1_000), Some(60_000), None].map(every), [500, 7_500, 7_500]);
    }
}
