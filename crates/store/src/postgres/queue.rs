//! The bounded queue in front of a lane's threads.
//!
//! Invariant: `push` never blocks and never holds more than the limit. After `close` what is
//! queued is still handed out, then every `pop` answers `None`.

use crate::store::Job;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;
use tokio::sync::Notify;

/// A job and when it came.
pub(super) struct Queued {
    pub job: Job,
    pub since: Instant,
}

impl Queued {
    pub fn now(job: Job) -> Queued {
        Queued { job, since: Instant::now() }
    }
}

/// Why a job was not queued.
pub(super) enum Refusal {
    Full,
    Closed,
}

struct State {
    jobs: VecDeque<Queued>,
    closed: bool,
}

/// Jobs of one lane, first come first served.
pub(super) struct Queue {
    limit: usize,
    state: Mutex<State>,
    changed: Notify,
}

impl Queue {
    pub fn new(limit: usize) -> Queue {
        let state = State { jobs: VecDeque::new(), closed: false };
        Queue { limit, state: Mutex::new(state), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Queues a job, or gives it back.
    pub fn push(&self, queued: Queued) -> Result<(), (Queued, Refusal)> {
        let mut state = self.state();
        if state.closed {
            return Err((queued, Refusal::Closed));
        }
        if state.jobs.len() >= self.limit {
            return Err((queued, Refusal::Full));
        }
        state.jobs.push_back(queued);
        drop(state);
        // The thread that fell asleep last: under light load one connection does all the work
        // and its prepared statements and caches stay warm.
        self.changed.notify_last();
        Ok(())
    }

    /// The next job; `None` once closed and empty.
    pub async fn pop(&self) -> Option<Queued> {
        loop {
            // Subscribed before the look: a job pushed between the two is not missed.
            let changed = self.changed.notified();
            {
                let mut state = self.state();
                if let Some(queued) = state.jobs.pop_front() {
                    return Some(queued);
                }
                if state.closed {
                    return None;
                }
            }
            changed.await;
        }
    }

    /// Takes no more jobs and wakes every thread.
    pub fn close(&self) {
        self.state().closed = true;
        self.changed.notify_waiters();
    }
}
