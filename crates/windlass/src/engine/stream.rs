//! Assignment streams: a session that is open gets work as it comes, up to its free slots. Or it
//! claims by itself, and its stream only shows that it is there.
//!
//! Invariant: an assignment on a stream is `claimed` until its worker starts it. Losing a stream
//! releases nothing for jobs and delegations (their leases decide) and gives inference back. A node
//! that ends itself takes nothing from a session that claims: its worker goes on at another node.

use std::time::Duration;
use tokio::sync::mpsc;
use windlass_domain::id::{LeaseId, SessionId, TaskId};
use windlass_domain::profile::Profile;
use windlass_store::session::Session;
use windlass_store::task::{Assignment, HELD_PART};

use super::dispatch::Handover;
use super::held::Signals;
use super::session::CLOSED;
use super::{Engine, Error, Phase, Result};

/// How long a stream's claim waits before it looks again by itself.
const WAIT: Duration = Duration::from_secs(60);

/// What a stream tells its worker.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamEvent {
    /// A task to work on. After a reconnect also what the session held already.
    Assign(Box<Assignment>),
    /// Stop working on this task: it was cancelled.
    Cancel {
        /// Which.
        task_id: TaskId,
        /// As it was assigned.
        lease_id: LeaseId,
    },
    /// Stop working on this task: its lease is lost.
    Lost {
        /// Which.
        task_id: TaskId,
        /// The lease that is lost; the task may have been assigned again under another one.
        lease_id: LeaseId,
    },
}

/// An open stream. Dropping it is losing the stream.
pub struct Assignments {
    events: mpsc::Receiver<StreamEvent>,
    _bound: Bound,
}

impl Assignments {
    /// The next event; `None` when the node shuts down or a newer stream took over.
    pub async fn next(&mut self) -> Option<StreamEvent> {
        self.events.recv().await
    }
}

/// Unbinds when dropped.
struct Bound {
    engine: Engine,
    session: SessionId,
    epoch: i64,
    reverts: bool,
    assigns: bool,
}

impl Drop for Bound {
    fn drop(&mut self) {
        let engine = self.engine.clone();
        let (session, epoch) = (self.session, self.epoch);
        // The worker has not left us; we leave it.
        let is_left = !self.assigns && engine.phase() != Phase::Running;
        let reverts = self.reverts && !is_left;
        engine.inner.held.close(session, epoch);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let current = engine.inner.sessions.unbind(session, epoch).await;
            if !matches!(current, Ok(true)) || !reverts {
                return;
            }
            engine.inner.dispatcher.dismiss(session);
            match engine.inner.tasks.lose_session(&session.to_string()).await {
                Ok(report) => engine.noticed(&report),
                // The session's expiry and the lease see to it.
                Err(error) => tracing::warn!(%session, %error, "inference was not given back"),
            }
        });
    }
}

impl Engine {
    /// Opens a session's stream; an older stream of the session ends.
    pub async fn open_stream(&self, id: SessionId) -> Result<Assignments> {
        self.open(id, true).await
    }

    /// Opens the stream of a session that claims by itself: it tells what is cancelled or lost, and
    /// its end says that the session is gone.
    pub async fn open_presence(&self, id: SessionId) -> Result<Assignments> {
        self.open(id, false).await
    }

    async fn open(&self, id: SessionId, assigns: bool) -> Result<Assignments> {
        if *self.inner.phase.borrow() != Phase::Running {
            return Err(Error::ShuttingDown);
        }
        let Some(bound) = self.inner.sessions.bind(id, self.inner.node).await? else {
            self.open_session(id).await?;
            return Err(Error::UnknownSession(id));
        };
        let (sender, events) = mpsc::channel(bound.slots.try_into().unwrap_or(1) + 16);
        let epoch = bound.stream_epoch;
        let reverts = bound.routes.profiles().contains(&Profile::Inference);
        let held = &self.inner.held;
        let mut signals = held.open(id, epoch, assigns, bound.lease_ms, sender.clone());
        self.inner.log.needed();
        let engine = self.clone();
        tokio::spawn(async move {
            let fed = match assigns {
                true => engine.feed(&bound, &sender, &mut signals).await,
                false => engine.attend(&bound, &sender, &mut signals).await,
            };
            if let Err(error) = fed {
                tracing::warn!(session = %bound.id, %error, "a stream ended");
            }
            engine.inner.held.close(bound.id, bound.stream_epoch);
        });
        let engine = self.clone();
        let _bound = Bound { engine, session: id, epoch, reverts, assigns };
        Ok(Assignments { events, _bound })
    }

    /// Gives nothing out; what the session holds is known, so that its end is told.
    async fn attend(
        &self,
        session: &Session,
        events: &mpsc::Sender<StreamEvent>,
        Signals { closed, .. }: &mut Signals,
    ) -> Result<()> {
        let mut phase = self.inner.phase.subscribe();
        let held = self.inner.tasks.held_by(&session.id.to_string()).await?;
        self.inner.held.add(session.id, held);
        tokio::select! {
            () = events.closed() => {}
            _ = &mut *closed => {}
            _ = phase.wait_for(|phase| *phase != Phase::Running) => {}
        }
        Ok(())
    }

    /// Claims whenever a slot is free, until nobody reads any more or a newer stream is there.
    async fn feed(
        &self,
        session: &Session,
        events: &mpsc::Sender<StreamEvent>,
        Signals { freed, closed }: &mut Signals,
    ) -> Result<()> {
        let slots = session.slots.try_into().unwrap_or(1);
        // In parts, so that a node does not have the payloads of all at once.
        let holder = session.id.to_string();
        for part in self.inner.tasks.held_by(&holder).await?.chunks(HELD_PART) {
            let part = part.iter().map(|(task, _)| *task).collect();
            let held = self.inner.tasks.held_of(&holder, part).await?;
            match self.inner.held.add_to(session.id, Some(session.stream_epoch), held) {
                Ok((held, events)) => self.tell(held, &events).await?,
                // Whatever has taken its place tells the same.
                Err(_) => return Ok(()),
            }
        }
        let mut phase = self.inner.phase.subscribe();
        loop {
            let free = usize::saturating_sub(slots, self.inner.held.count(session.id));
            if *phase.borrow() != Phase::Running {
                return Ok(());
            }
            if free == 0 {
                tokio::select! {
                    () = freed.notified() => continue,
                    () = events.closed() => return Ok(()),
                    _ = &mut *closed => return Ok(()),
                    _ = phase.wait_for(|phase| *phase != Phase::Running) => return Ok(()),
                }
            }
            let claim = self.claim_of(session, None, free, false);
            let claiming = self.inner.dispatcher.claim(self, claim, WAIT);
            // A slot that is freed meanwhile waits for the next claim: leaving this one while it is
            // at the database would strand what it takes.
            let taken = tokio::select! {
                taken = claiming => taken,
                () = events.closed() => return Ok(()),
                _ = &mut *closed => return Ok(()),
            };
            match taken.map(Handover::accept) {
                Ok(taken) if taken.is_empty() => {}
                Ok(taken) => {
                    self.tell_event();
                    self.assign(session, taken).await?;
                }
                Err(error) => {
                    tracing::debug!(session = %session.id, %error, "no work for now");
                    tokio::time::sleep(self.inner.options.poll).await;
                }
            }
        }
    }

    /// Tells a session what was claimed for it: by this stream, or by the one that has taken its
    /// place meanwhile and does not know of it. If there is none here any more, it goes back.
    async fn assign(&self, session: &Session, assignments: Vec<Assignment>) -> Result<()> {
        let id = session.id;
        let held = &self.inner.held;
        self.inner.deltas.handed(id, session.lease_ms, &assignments);
        let told = held.add_to(id, Some(session.stream_epoch), assignments);
        let (new, events) = match told.or_else(|unread| held.add_to(id, None, unread)) {
            Ok(told) => told,
            Err(unread) => {
                let unread = unread.iter().map(|a| (a.task.id, a.lease_id)).collect();
                return self.release(id, unread, "its stream has ended").await;
            }
        };
        self.tell(new, &events).await
    }

    async fn tell(
        &self,
        assignments: Vec<Assignment>,
        events: &mpsc::Sender<StreamEvent>,
    ) -> Result<()> {
        for assignment in self.inner.tasks.fill_steps(assignments).await? {
            // Nobody reads: the worker finds it by its next stream or heartbeat, or the lease ends.
            let _ = events.send(StreamEvent::Assign(Box::new(assignment))).await;
        }
        Ok(())
    }

    /// The sessions that get their work by streams of this node are alive. One that claims by
    /// itself has to say so by itself: a connection outlives a worker that hangs, or whose machine
    /// is gone, and nobody else would get what that holds. One that has opened a stream on another
    /// node, or was closed, gets nothing through this one any more.
    pub(super) async fn renew_streams(&self) -> Result<()> {
        let sessions = &self.inner.sessions;
        let (fed, attended) = (self.inner.held.sessions(true), self.inner.held.sessions(false));
        let mut open = sessions.renew(fed.clone()).await?;
        self.inner.alive.renewed_streams();
        open.extend(sessions.epochs(attended.clone()).await?);
        for session in fed.into_iter().chain(attended) {
            let current = open.iter().find(|(id, _)| *id == session);
            let epoch = current.map_or(i64::MAX, |(_, epoch)| *epoch);
            self.inner.held.close_older(session, epoch);
            if current.is_none() {
                self.leave_nothing_to(session).await?;
            }
        }
        Ok(())
    }

    /// A session that another node has closed was given what that node gave back, and more, by its
    /// stream here. Leases decide over what one that fell silent holds.
    async fn leave_nothing_to(&self, id: SessionId) -> Result<()> {
        let session = self.inner.sessions.show(id).await?;
        match session.and_then(|session| session.close_reason) {
            Some(reason) if reason == CLOSED => {
                self.release_held(id, "the session was closed").await
            }
            _ => Ok(()),
        }
    }

    /// The same, if nobody has done it lately: whoever is about to judge renews its own first.
    pub(super) async fn renew_overdue_streams(&self) -> Result<()> {
        match self.inner.alive.has_renewed_streams() {
            true => Ok(()),
            false => self.renew_streams().await,
        }
    }
}
