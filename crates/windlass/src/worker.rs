//! Workers in process: a handler that runs tasks of some queues, inside the application or server.
//!
//! Invariant: the worker beats for every task it runs, at a third of its lease. A handler whose
//! lease is lost or whose task was cancelled is dropped at its next await, and its result with it.
//! Absent: steps, waits and approvals; a handler is one attempt from beginning to end.

use crate::engine::{Beat, ClaimRequest, Engine, Result, SessionRequest};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};
use uuid::Uuid;
use windlass_domain::failure::TaskError;
use windlass_domain::id::{ChangeId, ClaimId, LeaseId, SessionId, TaskId};
use windlass_domain::validate;
use windlass_store::session::{Routes, TTL_MS};
use windlass_store::task::{Assignment, Finish, Finishing};

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

type Running = Arc<Mutex<HashMap<LeaseId, (TaskId, oneshot::Sender<()>)>>>;

/// A running worker. It ends with its engine, or by [`Worker::stop`].
pub struct Worker {
    session: SessionId,
    stop: tokio::sync::watch::Sender<bool>,
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
}

impl Engine {
    /// Runs `handler` for every task of the worker's queues, until stopped.
    pub async fn work<F>(
        &self,
        options: WorkerOptions,
        handler: impl Fn(Assignment) -> F + Send + Sync + 'static,
    ) -> Result<Worker>
    where
        F: Future<Output = Result<serde_json::Value, TaskError>> + Send + 'static,
    {
        let request = SessionRequest {
            id: None,
            name: options.name.clone(),
            worker_type: None,
            routes: options.routes.clone(),
            slots: Some(options.slots),
            lease_ms: options.lease_ms,
        };
        let session = self.register(request).await?;
        let (stop, _) = tokio::sync::watch::channel(false);
        let run = Run {
            engine: self.clone(),
            session: session.id,
            slots: session.slots.try_into().unwrap_or(1),
            lease_ms: options.lease_ms,
            running: Arc::default(),
        };
        let stopping = stop.subscribe();
        let done = tokio::spawn(run.serve(Arc::new(handler), stopping));
        Ok(Worker { session: session.id, stop, done })
    }
}

struct Run {
    engine: Engine,
    session: SessionId,
    slots: usize,
    lease_ms: Option<i64>,
    running: Running,
}

fn lock(running: &Running) -> MutexGuard<'_, HashMap<LeaseId, (TaskId, oneshot::Sender<()>)>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Run {
    async fn serve<F, H>(self, handler: Arc<H>, mut stop: tokio::sync::watch::Receiver<bool>)
    where
        H: Fn(Assignment) -> F + Send + Sync + 'static,
        F: Future<Output = Result<serde_json::Value, TaskError>> + Send + 'static,
    {
        let _counted = self.engine.count_worker();
        let slots = Arc::new(Semaphore::new(self.slots));
        let beating = tokio::spawn(beat(
            self.engine.clone(),
            self.session,
            self.lease_ms,
            Arc::clone(&self.running),
        ));
        loop {
            // A slot first: a task is claimed only when somebody can run it.
            let first = tokio::select! {
                permit = Arc::clone(&slots).acquire_owned() => permit,
                _ = stop.wait_for(|stop| *stop) => break,
                () = self.engine.draining() => break,
            };
            let Ok(first) = first else { break };
            let request = ClaimRequest {
                max: 1 + slots.available_permits(),
                wait: Duration::from_secs(30),
                start: true,
                claim: ClaimId(Uuid::now_v7()),
                tasks: Vec::new(),
            };
            let claimed = tokio::select! {
                claimed = self.engine.claim(self.session, request) => claimed,
                _ = stop.wait_for(|stop| *stop) => break,
            };
            let assignments = match claimed {
                Ok(assignments) => assignments,
                Err(error) => {
                    tracing::warn!(session = %self.session, %error, "a worker got no work");
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    continue;
                }
            };
            let mut permit = Some(first);
            for assignment in assignments {
                let permit = match permit.take() {
                    Some(permit) => permit,
                    None => match Arc::clone(&slots).acquire_owned().await {
                        Ok(permit) => permit,
                        Err(_) => return,
                    },
                };
                let (engine, running) = (self.engine.clone(), Arc::clone(&self.running));
                let (handler, session) = (Arc::clone(&handler), self.session);
                tokio::spawn(async move {
                    run_one(&engine, session, &running, assignment, &*handler).await;
                    drop(permit);
                });
            }
        }
        // Those that run may finish; the engine decides how long it waits for that.
        tokio::select! {
            _ = slots.acquire_many(self.slots.try_into().unwrap_or(1)) => {}
            () = self.engine.abandoned() => lock(&self.running).clear(),
        }
        beating.abort();
        if let Err(error) = self.engine.close_session(self.session).await {
            tracing::warn!(session = %self.session, %error, "a worker could not say goodbye");
        }
    }
}

async fn run_one<F>(
    engine: &Engine,
    session: SessionId,
    running: &Running,
    assignment: Assignment,
    handler: &(impl Fn(Assignment) -> F + Send + Sync + 'static),
) where
    F: Future<Output = Result<serde_json::Value, TaskError>> + Send + 'static,
{
    let (task, lease) = (assignment.task.id, assignment.lease_id);
    let (lost, losing) = oneshot::channel();
    lock(running).insert(lease, (task, lost));
    // On a task of its own, so that a panic is a failure of this attempt and of nothing else.
    let mut work = tokio::spawn(handler(assignment));
    let outcome = tokio::select! {
        ended = &mut work => Some(ended),
        _ = losing => None,
    };
    lock(running).remove(&lease);
    let how = match outcome {
        None => return work.abort(),
        Some(Ok(Ok(result))) => match validate::result(&result) {
            Ok(text) => Finishing::Complete(Some(text)),
            Err(refusal) => failed(TaskError::new("INVALID_OUTPUT", refusal.to_string())),
        },
        Some(Ok(Err(error))) => failed(error),
        Some(Err(panic)) => failed(TaskError::new("PANIC", panic.to_string())),
    };
    let item = Finish {
        task,
        lease,
        how,
        actor: session.to_string(),
        reason: None,
        change: ChangeId(Uuid::now_v7()),
    };
    finish(engine, item).await;
}

fn failed(error: TaskError) -> Finishing {
    Finishing::Fail { error, retry_after_ms: None, chance: crate::engine::chance() }
}

/// Tells how an attempt ended, again and again while the database gives no answer.
async fn finish(engine: &Engine, item: Finish) {
    let mut pause = Duration::from_millis(50);
    loop {
        let outcome = engine.finish(vec![item.clone()]).await.pop();
        match outcome {
            Some(Err(windlass_store::error::Rejection::Failed(error)))
                if !error.is_about_data() && engine.phase() != crate::engine::Phase::Stopped =>
            {
                tracing::warn!(task = %item.task, %error, "a result could not be stored yet");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(5));
            }
            Some(Err(rejection)) => {
                return tracing::warn!(task = %item.task, %rejection, "a result was refused");
            }
            Some(Ok(_)) | None => return,
        }
    }
}

async fn beat(engine: Engine, session: SessionId, lease_ms: Option<i64>, running: Running) {
    let lease_ms = lease_ms.unwrap_or(60_000).min(TTL_MS);
    let every = Duration::from_millis(lease_ms.try_into().unwrap_or(1_000) / 3);
    loop {
        tokio::time::sleep(every).await;
        let beats: Vec<Beat> = (lock(&running).iter())
            .map(|(&lease, &(task, _))| Beat { task, lease, checkpoint: None, progress: None })
            .collect();
        let answer = match engine.heartbeat(session, beats).await {
            Ok(answer) => answer,
            Err(error) => {
                tracing::warn!(%session, %error, "a heartbeat got no answer");
                continue;
            }
        };
        let mut running = lock(&running);
        for gone in answer.cancelled.into_iter().chain(answer.lost) {
            if let Some((_, lost)) = running.remove(&gone.lease) {
                let _ = lost.send(());
            }
        }
    }
}
