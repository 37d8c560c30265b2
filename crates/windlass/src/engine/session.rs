//! Workers' sessions: registering, claiming, heartbeats, closing.
//!
//! Invariant: a heartbeat renews only the leases it names; what the session holds and did not name
//! comes back in the answer, so that a claim whose response was lost strands nothing.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use uuid::Uuid;
use windlass_domain::id::{ChangeId, ClaimId, LeaseId, SessionId, TaskId};
use windlass_domain::refusal::Refusal;
use windlass_domain::state::State;
use windlass_domain::time::Timestamp;
use windlass_domain::validate;
use windlass_store::error::Rejection;
use windlass_store::group::{Bounds, Group};
use windlass_store::session::{NewSession, Routes, Session, Sessions};
use windlass_store::task::{self, Assignment, Claim, Finish, Finishing};

use super::held::Gone;
use super::{Engine, Error, Phase, Result};

/// How long a claim without a free slot is answered later than it could be.
const FULL_WAIT: Duration = Duration::from_secs(1);

/// A worker that wants to take part.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)] // Named like the fields of the request.
pub struct SessionRequest {
    pub id: Option<SessionId>,
    pub name: String,
    pub worker_type: Option<String>,
    pub routes: Routes,
    pub slots: Option<i32>,
    pub lease_ms: Option<i64>,
}

/// A worker asks for work.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// At most so many tasks.
    pub max: usize,
    /// How long to wait when there are none.
    pub wait: Duration,
    /// Whether work begins at once.
    pub start: bool,
    /// The call; repeating it returns what it already gave. What is handed to a call without an id
    /// whose caller is gone by then goes back at once, because nobody can ask for it again.
    pub claim: Option<ClaimId>,
    /// Only these tasks, and none if it names none; then nobody waits. `None`: any.
    pub tasks: Option<Vec<TaskId>>,
}

/// One lease of a heartbeat.
#[derive(Clone, Debug)]
pub struct Beat {
    /// Which task.
    pub task: TaskId,
    /// The holder's lease.
    pub lease: LeaseId,
    /// Canonical JSON; `None` keeps the last.
    pub checkpoint: Option<String>,
    /// Canonical JSON; `None` keeps the last.
    pub progress: Option<String>,
}

/// A task under one lease: a session may hold an older lease of the same task, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leased {
    /// Which task.
    pub task: TaskId,
    /// Under which lease.
    pub lease: LeaseId,
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, Default)]
pub struct BeatAnswer {
    /// Leases that hold on, and until when.
    pub renewed: Vec<(Leased, Option<Timestamp>)>,
    /// Tasks that were cancelled: stop working on them.
    pub cancelled: Vec<Leased>,
    /// Tasks that are somebody else's by now, or nobody's.
    pub lost: Vec<Leased>,
    /// Items that could not be stored, each with the reason; their leases stand as they were.
    pub failed: Vec<(Leased, Rejection)>,
    /// What the session holds and did not name, 100 at most: the rest is told by the next
    /// heartbeat, which names these.
    pub unnamed: Vec<Assignment>,
}

/// How often a session that is in use is renewed.
const RENEW_EVERY: Duration = Duration::from_millis(windlass_store::session::TTL_MS as u64 / 3);
/// Why a session ended whose worker said so.
pub(super) const CLOSED: &str = "closed";
/// How many sessions are remembered as renewed; beyond, those that are due are forgotten.
const REMEMBERED: usize = 10_000;

/// When this node last renewed which session.
#[derive(Default)]
pub(super) struct Alive {
    renewed: Mutex<HashMap<SessionId, Instant>>,
    /// When it last renewed the sessions of all its streams.
    streams: Mutex<Option<Instant>>,
}

impl Alive {
    fn is_fresh(&self, id: SessionId) -> bool {
        let renewed = self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        renewed.get(&id).is_some_and(|at| at.elapsed() < RENEW_EVERY)
    }

    fn renewed(&self, id: SessionId) {
        let mut renewed = self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        if renewed.len() >= REMEMBERED {
            renewed.retain(|_, at| at.elapsed() < RENEW_EVERY);
        }
        renewed.insert(id, Instant::now());
    }

    pub(super) fn renewed_streams(&self) {
        *self.streams.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether that was lately: it is done every [`RENEW_EVERY`], and may take a while.
    pub(super) fn has_renewed_streams(&self) -> bool {
        let streams = *self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.is_some_and(|at| at.elapsed() < 2 * RENEW_EVERY)
    }

    fn forget(&self, id: SessionId) {
        self.renewed.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }
}

/// Concurrent renewals share a transaction.
pub(super) fn renewals(sessions: Sessions, bounds: Bounds) -> Group<SessionId, bool> {
    Group::new(
        "session_renew",
        bounds,
        |_| 16,
        move |ids: Vec<SessionId>| {
            let sessions = sessions.clone();
            async move {
                match sessions.renew(ids.clone()).await {
                    Ok(open) => {
                        let is_open = |id| open.iter().any(|(open, _)| open == id);
                        ids.iter().map(|id| Ok(is_open(id))).collect()
                    }
                    Err(error) => ids.iter().map(|_| Err(error.clone().into())).collect(),
                }
            }
        },
    )
}

impl Engine {
    /// Begins a session, or goes on with the one that has this id.
    pub async fn register(&self, request: SessionRequest) -> Result<Session> {
        validate::session(&validate::Session {
            name: &request.name,
            worker_type: request.worker_type.as_deref(),
            queues: &request.routes.queues,
            pools: &request.routes.pools,
            llms: &request.routes.llms,
            models: &request.routes.models,
            tiers: &request.routes.tiers,
            slots: request.slots,
            lease_ms: request.lease_ms,
        })?;
        if *self.inner.phase.borrow() != Phase::Running {
            return Err(Error::ShuttingDown);
        }
        let slots = self.limits().slots(request.worker_type.as_deref(), request.slots);
        let new = NewSession {
            id: request.id.unwrap_or_else(|| SessionId(Uuid::now_v7())),
            name: request.name,
            worker_type: request.worker_type,
            routes: request.routes,
            slots,
            lease_ms: request.lease_ms,
        };
        Ok(self.inner.sessions.register(new).await?)
    }

    /// An open session.
    pub async fn open_session(&self, id: SessionId) -> Result<Session> {
        let session = self.inner.sessions.show(id).await?.ok_or(Error::UnknownSession(id))?;
        match &session.close_reason {
            Some(reason) => Err(Error::SessionClosed(id, reason.clone())),
            None => Ok(session),
        }
    }

    /// Takes ready tasks for a session; waits for some if there are none.
    pub async fn claim(&self, id: SessionId, request: ClaimRequest) -> Result<Vec<Assignment>> {
        let session = self.open_session(id).await?;
        if *self.inner.phase.borrow() != Phase::Running {
            return Err(Error::ShuttingDown);
        }
        self.touch(id).await?;
        let max = request.max.min(session.slots.try_into().unwrap_or(1));
        let max = max.min(self.free_slots(&session).await?);
        let claim = self.claim_of(&session, request.claim, max, request.start);
        if max == 0 {
            // Whoever repeats the call that filled its slots gets what that gave. Others wait a
            // little, so that a worker that asks too much does not ask all the time.
            let given = self.inner.tasks.claim_tasks(&claim, Vec::new()).await?;
            if given.is_empty() {
                tokio::time::sleep(request.wait.min(FULL_WAIT)).await;
            }
            return Ok(self.inner.tasks.fill_steps(given).await?);
        }
        let taken = match request.tasks {
            None => {
                let claiming = self.inner.dispatcher.claim(self, claim, request.wait);
                self.while_alive(id, claiming).await?
            }
            named => {
                self.keep_up_with_limits().await;
                self.inner.dispatcher.take(&claim, named).await?
            }
        };
        self.attended(&session, taken.assignments());
        if !taken.assignments().is_empty() {
            self.tell_event();
        }
        Ok(taken.fill_steps().await?)
    }

    /// A session that has a stream on this node is told by it what becomes of these; and its
    /// deltas go on at once.
    fn attended(&self, session: &Session, taken: &[Assignment]) {
        let held = taken.iter().map(|assignment| (assignment.task.id, assignment.lease_id));
        self.inner.held.add(session.id, held);
        self.inner.deltas.handed(session.id, session.lease_ms, taken);
    }

    /// How many more tasks a session may take, where its type says how many it holds; the store
    /// counts again when it claims.
    async fn free_slots(&self, session: &Session) -> Result<usize> {
        let most = self.limits().most_held(session.worker_type.as_deref());
        let Some(most) = most else { return Ok(usize::MAX) };
        let held = self.inner.tasks.count_held(&session.id.to_string()).await?;
        let most = most.min(session.slots.into());
        Ok(usize::try_from(most).unwrap_or_default().saturating_sub(held))
    }

    /// A worker that calls is alive: its session is renewed, though not at every call.
    pub async fn touch(&self, id: SessionId) -> Result<()> {
        if self.inner.alive.is_fresh(id) { Ok(()) } else { self.renew(id).await }
    }

    /// A worker that waits for work is alive: its session is renewed meanwhile.
    async fn while_alive<T>(
        &self,
        id: SessionId,
        work: impl Future<Output = windlass_store::error::Result<T>>,
    ) -> Result<T> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done?),
                () = tokio::time::sleep(RENEW_EVERY) => {
                    let Err(error) = self.renew(id).await else { continue };
                    // Nothing is for it any more, whichever node has closed it.
                    if matches!(error, Error::SessionClosed(..) | Error::UnknownSession(_)) {
                        return Err(error);
                    }
                }
            }
        }
    }

    pub(super) fn claim_of(
        &self,
        session: &Session,
        claim: Option<ClaimId>,
        max: usize,
        start: bool,
    ) -> Claim {
        Claim {
            claim: claim.unwrap_or_else(|| ClaimId(Uuid::now_v7())),
            may_repeat: claim.is_some(),
            session: session.id.to_string(),
            worker_type: session.worker_type.clone(),
            queues: session.routes.all_queues(),
            profiles: session.routes.profiles(),
            serves: session.routes.serves(),
            max,
            lease_ms: session.lease_ms,
            start,
        }
    }

    /// Renews a session; concurrent renewals share a transaction.
    pub async fn renew(&self, id: SessionId) -> Result<()> {
        let renewed = self.inner.renewals.join(vec![id]).await.pop();
        match renewed {
            Some(Ok(true)) => {
                self.inner.alive.renewed(id);
                Ok(())
            }
            Some(Err(rejection)) => Err(rejection.into()),
            // Closed, or unknown: the row says which.
            Some(Ok(false)) | None => self.open_session(id).await.map(drop),
        }
    }

    /// The length of the leases of whoever holds this task, if it asked for one of its own.
    pub async fn lease_ms_of(&self, task: TaskId) -> Result<Option<i64>> {
        Ok(self.inner.sessions.holder(task).await?.and_then(|(_, lease_ms)| lease_ms))
    }

    /// Renews a session and the leases that are named.
    pub async fn heartbeat(&self, id: SessionId, beats: Vec<Beat>) -> Result<BeatAnswer> {
        let session = self.open_session(id).await?;
        self.renew(id).await?;
        let holder = id.to_string();
        let known: Vec<LeaseId> = beats.iter().map(|beat| beat.lease).collect();
        let mut answer = self.beat(&holder, session.lease_ms, beats).await;
        let unnamed = self.inner.tasks.unknown_to(&holder, known).await?;
        answer.unnamed = self.inner.tasks.fill_steps(unnamed).await?;
        Ok(answer)
    }

    async fn beat(&self, holder: &str, lease_ms: Option<i64>, beats: Vec<Beat>) -> BeatAnswer {
        let named = |beat: &Beat| Leased { task: beat.task, lease: beat.lease };
        let leases: Vec<Leased> = beats.iter().map(named).collect();
        let items = beats.into_iter().map(|beat| task::Beat {
            task: beat.task,
            lease: beat.lease,
            lease_ms,
            checkpoint: beat.checkpoint,
            progress: beat.progress,
            actor: holder.to_owned(),
            change: ChangeId(Uuid::now_v7()),
        });
        let outcomes = self.inner.tasks.heartbeat(items.collect()).await;
        let mut answer = BeatAnswer::default();
        for (lease, outcome) in leases.into_iter().zip(outcomes) {
            // It takes no slot of its stream any more, whether or not the log has told that.
            if let Err(Rejection::Refused(Refusal::LeaseLost { state })) = &outcome {
                let is_cancelled = *state == State::Cancelled;
                let gone = if is_cancelled { Gone::Cancelled } else { Gone::Lost };
                self.inner.held.remove(lease.task, Some(lease.lease.digest()), gone);
            }
            match outcome {
                Ok(beaten) => answer.renewed.push((lease, beaten.lease_expires_at)),
                Err(Rejection::Refused(Refusal::LeaseLost { state: State::Cancelled })) => {
                    answer.cancelled.push(lease);
                }
                Err(Rejection::Refused(Refusal::LeaseLost { .. } | Refusal::UnknownTask)) => {
                    answer.lost.push(lease);
                }
                Err(rejection) => answer.failed.push((lease, rejection)),
            }
        }
        answer
    }

    /// Ends a session gracefully: what it held goes back at once.
    pub async fn close_session(&self, id: SessionId) -> Result<()> {
        // Once more after a close, so that a repeated call finds nothing left behind.
        self.inner.alive.forget(id);
        let closed = self.inner.sessions.close(id, CLOSED).await?;
        if !closed && self.inner.sessions.show(id).await?.is_none() {
            return Err(Error::UnknownSession(id));
        }
        // Before anything goes back: its stream would have the slots for it, and claim it again.
        self.inner.held.close_older(id, i64::MAX);
        self.release_held(id, "the session was closed").await
    }

    /// Gives back all that a session holds.
    pub(super) async fn release_held(&self, id: SessionId, reason: &str) -> Result<()> {
        let held = self.inner.tasks.held_by(&id.to_string()).await?;
        self.release(id, held, reason).await
    }

    /// Gives back these tasks of a session.
    pub(super) async fn release(
        &self,
        id: SessionId,
        held: Vec<(TaskId, LeaseId)>,
        reason: &str,
    ) -> Result<()> {
        let holder = id.to_string();
        let items = held.into_iter().map(|(task, lease)| Finish {
            task,
            lease,
            how: Finishing::Release,
            usage: None,
            actor: holder.clone(),
            reason: Some(reason.to_owned()),
            change: ChangeId(Uuid::now_v7()),
        });
        for outcome in self.finish(items.collect()).await {
            // Whoever was faster has settled it.
            if let Err(Rejection::Failed(error)) = outcome {
                return Err(error.into());
            }
        }
        Ok(())
    }
}
