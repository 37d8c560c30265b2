//! What the workers of this node hold, as far as this node knows: to size the next claim, and to
//! tell a stream that its task was cancelled or lost.
//!
//! Invariant: a hint. A task that was finished through another node is taken off when the log
//! shows it. What becomes of one lease is nothing to a later one: a session may hold a task again
//! before it is told that it had lost it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, mpsc, oneshot};
use windlass_domain::id::{LeaseDigest, LeaseId, SessionId, TaskId};

use super::stream::StreamEvent;
use windlass_store::task::Assignment;

#[derive(Default)]
pub(super) struct Held {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    streams: HashMap<SessionId, Stream>,
    holders: HashMap<TaskId, SessionId>,
}

struct Stream {
    epoch: i64,
    /// Whether it gives work out; otherwise the session claims by itself.
    assigns: bool,
    /// How long the session's leases are, if it asked for that.
    lease_ms: Option<i64>,
    tasks: HashMap<TaskId, LeaseId>,
    freed: Arc<Notify>,
    notices: mpsc::Sender<StreamEvent>,
    /// Dropped with the stream: whoever feeds it stops.
    _open: oneshot::Sender<()>,
}

/// What feeds a stream knows of it.
pub(super) struct Signals {
    /// A slot was freed.
    pub freed: Arc<Notify>,
    /// Resolves when the stream is closed, or a newer one of the session has taken its place.
    pub closed: oneshot::Receiver<()>,
}

/// Why a task is no longer held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// Its holder said so.
    Finished,
    /// Somebody cancelled it.
    Cancelled,
    /// A sweep took the lease.
    Lost,
}

impl Held {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream was opened; an older one of the session is forgotten.
    pub(super) fn open(
        &self,
        session: SessionId,
        epoch: i64,
        assigns: bool,
        lease_ms: Option<i64>,
        notices: mpsc::Sender<StreamEvent>,
    ) -> Signals {
        let freed = Arc::new(Notify::new());
        let (_open, closed) = oneshot::channel();
        let tasks = HashMap::new();
        let mut state = self.lock();
        // Two streams that open at once may arrive here in either order.
        if state.streams.get(&session).is_none_or(|stream| stream.epoch < epoch) {
            state.close(session);
            let freed = Arc::clone(&freed);
            let stream = Stream { epoch, assigns, lease_ms, tasks, freed, notices, _open };
            state.streams.insert(session, stream);
        }
        Signals { freed, closed }
    }

    /// The stream of this epoch ended.
    pub(super) fn close(&self, session: SessionId, epoch: i64) {
        let mut state = self.lock();
        if state.streams.get(&session).is_some_and(|stream| stream.epoch == epoch) {
            state.close(session);
        }
    }

    /// The session's current stream has this epoch: an older one that is still here ends.
    pub(super) fn close_older(&self, session: SessionId, epoch: i64) {
        let mut state = self.lock();
        if state.streams.get(&session).is_some_and(|stream| stream.epoch < epoch) {
            state.close(session);
        }
    }

    /// Tasks went out on a stream.
    pub(super) fn add(
        &self,
        session: SessionId,
        tasks: impl IntoIterator<Item = (TaskId, LeaseId)>,
    ) {
        let mut state = self.lock();
        for (task, lease) in tasks {
            let Some(stream) = state.streams.get_mut(&session) else { return };
            stream.tasks.insert(task, lease);
            state.holders.insert(task, session);
        }
    }

    /// The session that got a task under this lease by way of this node, and how long its leases
    /// are if it asked for that. The database knows those that are not known here.
    pub(super) fn holder(&self, task: TaskId, lease: LeaseId) -> Option<(SessionId, Option<i64>)> {
        let state = self.lock();
        let session = *state.holders.get(&task)?;
        let stream = state.streams.get(&session)?;
        (stream.tasks.get(&task) == Some(&lease)).then_some((session, stream.lease_ms))
    }

    /// Adds tasks to the stream of this epoch (`None`: the session's current one), and gives those
    /// that it was not told of yet, with where to tell it. All come back if there is none here.
    pub(super) fn add_to(
        &self,
        session: SessionId,
        epoch: Option<i64>,
        assignments: Vec<Assignment>,
    ) -> Result<(Vec<Assignment>, mpsc::Sender<StreamEvent>), Vec<Assignment>> {
        let mut state = self.lock();
        let State { streams, holders } = &mut *state;
        let is_meant = |stream: &&mut Stream| epoch.is_none_or(|epoch| stream.epoch == epoch);
        let Some(stream) = streams.get_mut(&session).filter(is_meant) else {
            return Err(assignments);
        };
        let new = assignments.into_iter().filter(|assignment| {
            let (task, lease) = (assignment.task.id, assignment.lease_id);
            holders.insert(task, session);
            stream.tasks.insert(task, lease) != Some(lease)
        });
        Ok((new.collect(), stream.notices.clone()))
    }

    pub(super) fn count(&self, session: SessionId) -> usize {
        self.lock().streams.get(&session).map_or(0, |stream| stream.tasks.len())
    }

    /// The sessions whose streams this node holds, of those that give work out or of the others.
    pub(super) fn sessions(&self, assigns: bool) -> Vec<SessionId> {
        let state = self.lock();
        let meant = state.streams.iter().filter(|(_, stream)| stream.assigns == assigns);
        meant.map(|(session, _)| *session).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().streams.is_empty()
    }

    /// A task is no longer held under this lease (`None`: under any); its holder has a free slot,
    /// and may not know yet.
    pub(super) fn remove(&self, task: TaskId, lease: Option<LeaseDigest>, gone: Gone) {
        let mut state = self.lock();
        let State { streams, holders } = &mut *state;
        let Some(session) = holders.get(&task) else { return };
        let Some(stream) = streams.get_mut(session) else { return };
        let Some(&held) = stream.tasks.get(&task) else { return };
        if lease.is_some_and(|lease| lease != held.digest()) {
            return;
        }
        stream.tasks.remove(&task);
        stream.freed.notify_one();
        holders.remove(&task);
        let notice = match gone {
            Gone::Finished => return,
            Gone::Cancelled => StreamEvent::Cancel { task_id: task, lease_id: held },
            Gone::Lost => StreamEvent::Lost { task_id: task, lease_id: held },
        };
        // A reader that is too slow for this learns it by its next heartbeat.
        let _ = stream.notices.try_send(notice);
    }
}

impl State {
    fn close(&mut self, session: SessionId) {
        if let Some(stream) = self.streams.remove(&session) {
            for task in stream.tasks.keys() {
                self.holders.remove(task);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn the_end_of_an_older_lease_takes_nothing_off() {
        let held = Held::default();
        let (session, task) = (SessionId(Uuid::now_v7()), TaskId(Uuid::now_v7()));
        let (older, newer) = (LeaseId(Uuid::now_v7()), LeaseId(Uuid::now_v7()));
        let (sender, mut told) = mpsc::channel(2);
        let _signals = held.open(session, 1, true, Some(5), sender);
        held.add(session, [(task, newer)]);
        assert!(held.add_to(session, Some(0), Vec::new()).is_err(), "an older stream");
        assert!(held.add_to(session, Some(1), Vec::new()).is_ok());
        assert!(held.add_to(session, None, Vec::new()).is_ok());
        assert_eq!(held.holder(task, newer), Some((session, Some(5))));
        assert_eq!(held.holder(task, older), None);
        held.remove(task, Some(older.digest()), Gone::Lost);
        assert_eq!(held.count(session), 1);
        assert!(told.try_recv().is_err(), "nothing is told of it either");
        held.remove(task, Some(newer.digest()), Gone::Lost);
        assert_eq!((held.count(session), held.holder(task, newer)), (0, None));
        let lost = StreamEvent::Lost { task_id: task, lease_id: newer };
        assert_eq!(told.try_recv(), Ok(lost));
    }
}
