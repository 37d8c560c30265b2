//! When to look for waits whose time has come, and whose end is awaited.
//!
//! Invariant: hints, like everything that a node holds in memory. A duty looks every second all the
//! same; a timer here only lets a short sleep end at its time.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use windlass_domain::id::TaskId;

use super::{Engine, Inner, Phase};

/// Later ones are left to the duty.
const FARTHEST: Duration = Duration::from_secs(60);
/// Timers closer to each other than this ring together.
const GRAIN: Duration = Duration::from_millis(5);
/// How many tasks a node watches for others; beyond, the duty alone sees to them.
const MOST_AWAITED: usize = 10_000;
/// How often a node learns what others wait for.
const REFRESH: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct Timers {
    due: Mutex<BTreeSet<Instant>>,
    changed: Notify,
}

impl Timers {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<Instant>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks once at about this time.
    pub(super) fn ring_in(&self, delay: Duration) {
        if delay > FARTHEST {
            return;
        }
        let at = Instant::now() + delay;
        let mut due = self.lock();
        if due.range(at..at + GRAIN).next().is_none() {
            due.insert(at + GRAIN);
            drop(due);
            self.changed.notify_one();
        }
    }

    fn next(&self) -> Option<Instant> {
        self.lock().first().copied()
    }

    fn take(&self, now: Instant) -> bool {
        let mut due = self.lock();
        let later = due.split_off(&(now + Duration::from_nanos(1)));
        !std::mem::replace(&mut *due, later).is_empty()
    }
}

/// Tasks that others wait for.
#[derive(Default)]
pub(super) struct Awaited {
    tasks: Mutex<HashSet<TaskId>>,
}

impl Awaited {
    fn lock(&self) -> MutexGuard<'_, HashSet<TaskId>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, task: TaskId) {
        let mut tasks = self.lock();
        if tasks.len() < MOST_AWAITED {
            tasks.insert(task);
        }
    }

    pub(super) fn all(&self) -> Vec<TaskId> {
        self.lock().iter().copied().collect()
    }

    pub(super) fn take(&self, task: TaskId) -> bool {
        self.lock().remove(&task)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// What the database says; what was added meanwhile stays until the next time.
    fn learn(&self, known: Vec<TaskId>) {
        let mut tasks = self.lock();
        tasks.extend(known.into_iter().take(MOST_AWAITED));
    }
}

impl Engine {
    pub(super) fn spawn_timers(&self) {
        let weak = Arc::downgrade(&self.inner);
        let timers = Arc::clone(&self.inner.timers);
        let mut phase = self.inner.phase.subscribe();
        tokio::spawn(async move {
            loop {
                let next = timers.next();
                tokio::select! {
                    () = timers.changed.notified() => continue,
                    () = sleep_until(next) => {}
                    _ = phase.wait_for(|phase| *phase == Phase::Stopped) => return,
                }
                // It holds the engine only while it looks.
                let Some(inner) = weak.upgrade() else { return };
                if timers.take(Instant::now())
                    && let Err(error) = (Engine { inner }).wake_due().await
                {
                    tracing::debug!(%error, "due waits were not woken yet");
                }
            }
        });
        self.spawn_every("awaited", REFRESH, |inner| async move { inner.learn_awaited().await });
    }
}

impl Inner {
    /// Also at the start, so that a restart delays nobody.
    pub(super) async fn learn_awaited(&self) {
        match self.tasks.awaited(MOST_AWAITED).await {
            Ok(known) if known.is_empty() => {}
            Ok(known) => {
                self.awaited.learn(known);
                self.log.needed();
            }
            Err(error) => tracing::debug!(%error, "what others wait for is not known yet"),
        }
    }
}

async fn sleep_until(next: Option<Instant>) {
    match next {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
