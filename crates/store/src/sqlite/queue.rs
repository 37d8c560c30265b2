//! Jobs that wait for a thread.
//!
//! Invariant: a job that was pushed is taken exactly once, also after `close`. Urgent jobs
//! (heartbeats) are taken before all others and have a bound of their own, so that a full write
//! lane cannot keep them out.

use crate::error::Error;
use crate::store::{Job, Lane};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

pub(super) struct Queue {
    state: Mutex<State>,
    ready: Condvar,
    bound: usize,
}

#[derive(Default)]
struct State {
    urgent: VecDeque<Job>,
    ordinary: VecDeque<Job>,
    /// Nothing more comes in.
    refusing: bool,
    /// The threads may go once nothing is left.
    closed: bool,
}

/// What a thread got for waiting.
pub(super) enum Taken {
    Job(Job),
    /// Nothing came in time.
    Idle,
    /// Nothing is left, and nothing will come.
    Closed,
}

impl Queue {
    pub(super) fn new(bound: usize) -> Queue {
        Queue { state: Mutex::default(), ready: Condvar::new(), bound }
    }

    /// Queues a job, or gives it back with the reason.
    pub(super) fn push(&self, job: Job) -> Result<(), (Job, Error)> {
        let mut state = self.lock();
        if state.refusing {
            return Err((job, closed()));
        }
        let lane = match job.lane {
            Lane::Heartbeat => &mut state.urgent,
            Lane::Write | Lane::Read => &mut state.ordinary,
        };
        if lane.len() >= self.bound {
            let waiting = lane.len();
            return Err((job, Error::Busy(format!("{waiting} transactions wait"))));
        }
        lane.push_back(job);
        drop(state);
        self.ready.notify_one();
        Ok(())
    }

    /// A job that was taken and not begun is the next of its lane again.
    pub(super) fn put_back(&self, job: Job) {
        let mut state = self.lock();
        match job.lane {
            Lane::Heartbeat => state.urgent.push_front(job),
            Lane::Write | Lane::Read => state.ordinary.push_front(job),
        }
    }

    /// The next job, if one waits.
    pub(super) fn try_take(&self) -> Option<Job> {
        self.lock().pop()
    }

    /// The next job; waits for it, at most for `patience`.
    pub(super) fn take(&self, patience: Option<Duration>) -> Taken {
        let until = patience.map(|patience| Instant::now() + patience);
        let mut state = self.lock();
        loop {
            if let Some(job) = state.pop() {
                return Taken::Job(job);
            }
            if state.closed {
                return Taken::Closed;
            }
            state = match until {
                None => self.ready.wait(state).unwrap_or_else(|e| e.into_inner()),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Taken::Idle;
                    }
                    let waited = self.ready.wait_timeout(state, left);
                    waited.unwrap_or_else(|e| e.into_inner()).0
                }
            };
        }
    }

    /// Takes no further jobs. Those that wait are still run.
    pub(super) fn refuse(&self) {
        self.lock().refusing = true;
    }

    /// Takes no further jobs and lets the threads go when those that wait are done.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        (state.refusing, state.closed) = (true, true);
        drop(state);
        self.ready.notify_all();
    }

    // A poisoned lock is no reason to stop: no code that may panic runs while it is held.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl State {
    fn pop(&mut self) -> Option<Job> {
        let urgent = self.urgent.pop_front();
        urgent.or_else(|| self.ordinary.pop_front())
    }
}

pub(super) fn closed() -> Error {
    Error::Unavailable("it was closed".into())
}

/// Closes a queue when its thread ends, however it ends: nobody waits for a thread that is gone.
pub(super) struct CloseAtEnd<'a>(pub(super) &'a Queue);

impl Drop for CloseAtEnd<'_> {
    fn drop(&mut self) {
        self.0.close();
        while let Some(job) = self.0.try_take() {
            answer(job, Err(closed()));
        }
    }
}

/// Tells a job's caller. A caller that panics must not take the thread of all others with it.
pub(super) fn answer(job: Job, result: Result<(), Error>) {
    let (name, done) = (job.name, job.done);
    if catch_unwind(AssertUnwindSafe(move || done(result))).is_err() {
        tracing::error!(transaction = name, "the answer's receiver panicked");
    }
}
