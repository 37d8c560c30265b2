//! Shutting down: no new work, time for what runs, then the rest goes back.

use std::time::Duration;
use tokio::sync::watch;

use super::Engine;

/// Where an engine is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It takes work.
    Running,
    /// It takes no new work; what runs may finish.
    Draining,
    /// It does nothing any more.
    Stopped,
}

/// How long giving back may take before the leases have to do it.
const GIVING_BACK: Duration = Duration::from_secs(5);

/// The workers in process.
pub(crate) struct Workers {
    count: watch::Sender<usize>,
    /// Handlers that still run are dropped, and their tasks given back.
    pub(crate) abandon: watch::Sender<bool>,
}

impl Default for Workers {
    fn default() -> Self {
        Workers { count: watch::Sender::new(0), abandon: watch::Sender::new(false) }
    }
}

impl Workers {
    async fn gone(&self) {
        let mut count = self.count.subscribe();
        let _ = count.wait_for(|count| *count == 0).await;
    }
}

/// Counts a worker for as long as it lives.
pub(crate) struct Counted(Engine);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.inner.workers.count.send_modify(|count| *count -= 1);
    }
}

impl Engine {
    pub(crate) fn count_worker(&self) -> Counted {
        self.inner.workers.count.send_modify(|count| *count += 1);
        Counted(self.clone())
    }

    /// Resolves when handlers must not go on.
    pub(crate) async fn abandoned(&self) {
        let mut abandon = self.inner.workers.abandon.subscribe();
        let _ = abandon.wait_for(|abandon| *abandon).await;
    }

    /// Where the engine is in its life.
    pub fn phase(&self) -> Phase {
        *self.inner.phase.borrow()
    }

    /// Takes no new work from now on: claims, streams and waits end; finishes are still taken.
    pub fn drain(&self) {
        self.inner.phase.send_if_modified(|phase| {
            let begins = *phase == Phase::Running;
            if begins {
                *phase = Phase::Draining;
            }
            begins
        });
    }

    /// Resolves when the engine takes no new work any more.
    pub async fn draining(&self) {
        let mut phase = self.inner.phase.subscribe();
        let _ = phase.wait_for(|phase| *phase != Phase::Running).await;
    }

    /// Drains, waits until the workers in process have finished, at most for `limit` (they give
    /// the rest back), and closes the database.
    pub async fn shutdown(&self, limit: Duration) {
        self.drain();
        let workers = &self.inner.workers;
        if tokio::time::timeout(limit, workers.gone()).await.is_err() {
            tracing::warn!("some handlers did not finish in time; their tasks go back");
            workers.abandon.send_replace(true);
            let _ = tokio::time::timeout(GIVING_BACK, workers.gone()).await;
        }
        if let Err(error) = self.inner.nodes.leave(self.inner.node).await {
            tracing::warn!(%error, "this node could not take itself off the list");
        }
        self.inner.phase.send_replace(Phase::Stopped);
        let store = self.inner.store.clone();
        // It waits for the threads that own the connections.
        let _ = tokio::task::spawn_blocking(move || store.close()).await;
    }
}
