//! Waiting for a task's end.
//!
//! Invariant: a waiter subscribes before it reads the task, so that an end between the two is not
//! missed; it is woken by this node's own finishes at once and by the log for all others. When the
//! tail of the log begins, all look again: it does not tell what was committed before.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use windlass_domain::id::TaskId;
use windlass_domain::refusal::Refusal;
use windlass_domain::state::State;
use windlass_store::task::Task;

use super::{Engine, Error, Result};

/// A look at a task after waiting for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Waited {
    /// The task as it stands.
    pub task: Task,
    /// Whether it has ended; otherwise the time was up.
    pub done: bool,
}

impl Waited {
    /// The result of a task that was completed; an error that says how it ended instead.
    pub fn result(self) -> Result<serde_json::Value> {
        match self.task.status {
            _ if !self.done => Err(Error::WaitTimedOut),
            State::Completed => Ok(self.task.result.unwrap_or_default()),
            ended => {
                let why = self.task.error.map(|error| format!("{} {}", error.code, error.message));
                Err(Error::TaskEnded(ended, why.unwrap_or_else(|| "no reason was given".into())))
            }
        }
    }
}

/// Who waits for which task, each under a number of its own.
type ByTask = HashMap<TaskId, Vec<(u64, oneshot::Sender<()>)>>;

#[derive(Default)]
pub(super) struct Waiters {
    by_task: Mutex<ByTask>,
    next: AtomicU64,
    /// Waits that go on, also while one of them looks again.
    open: AtomicUsize,
}

impl Waiters {
    fn lock(&self) -> MutexGuard<'_, ByTask> {
        self.by_task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn begin(&self) -> Open<'_> {
        self.open.fetch_add(1, Ordering::SeqCst);
        Open(self)
    }

    /// A task has ended.
    pub(super) fn wake(&self, task: TaskId) {
        for (_, waiter) in self.lock().remove(&task).unwrap_or_default() {
            let _ = waiter.send(());
        }
    }

    /// Any task may have ended.
    pub(super) fn wake_all(&self) {
        for (_, waiter) in self.lock().drain().flat_map(|(_, waiters)| waiters) {
            let _ = waiter.send(());
        }
    }

    fn subscribe(&self, task: TaskId) -> (Subscription<'_>, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().entry(task).or_default().push((id, sender));
        (Subscription { waiters: self, task, id }, receiver)
    }
}

/// One wait, from its call to its answer.
struct Open<'a>(&'a Waiters);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Ends with its waiter, also when the waiter is dropped.
struct Subscription<'a> {
    waiters: &'a Waiters,
    task: TaskId,
    id: u64,
}

impl Drop for Subscription<'_> {
    fn drop(&mut self) {
        let mut by_task = self.waiters.lock();
        if let Some(waiters) = by_task.get_mut(&self.task) {
            waiters.retain(|(id, _)| *id != self.id);
            if waiters.is_empty() {
                by_task.remove(&self.task);
            }
        }
    }
}

impl Engine {
    /// Waits until the task has ended, at most for `timeout`.
    pub async fn wait_for(&self, task: TaskId, timeout: Duration) -> Result<Waited> {
        let until = tokio::time::Instant::now() + timeout;
        let _open = self.inner.waiters.begin();
        let mut phase = self.inner.phase.subscribe();
        loop {
            let (subscription, woken) = self.inner.waiters.subscribe(task);
            self.inner.log.needed();
            // Thousands may wait: each keeps neither the task nor room for another look at it.
            match Box::pin(self.look_at(task)).await? {
                found if found.done || timeout.is_zero() => return Ok(found),
                _ => {}
            }
            tokio::select! {
                // It has ended, or it may have: look again.
                _ = woken => continue,
                () = tokio::time::sleep_until(until) => {}
                _ = phase.wait_for(|phase| *phase != super::Phase::Running) => {}
            }
            drop(subscription);
            return Box::pin(self.look_at(task)).await;
        }
    }

    pub(super) async fn look_at(&self, id: TaskId) -> Result<Waited> {
        let task = self.inner.tasks.look(id).await?.ok_or(Refusal::UnknownTask)?;
        Ok(Waited { done: task.status.is_terminal(), task })
    }
}
