//! Attempts that this node has handed out a moment ago, so that their first deltas can be passed on
//! before the database is asked.
//!
//! Invariant: a hint that errs on the safe side. What is known here was committed by a claim that
//! went through this node; whatever this node hears of the attempt's end takes it off, and half of
//! its lease is the longest that it is believed. The database is asked all the same, right after
//! the readers have the delta, and has the last word.

use std::collections::HashMap;
use std::time::{Duration, Instant};
use windlass_domain::id::{LeaseDigest, LeaseId, SessionId, TaskId};
use windlass_domain::profile::Kind;
use windlass_store::task::Assignment;

/// How long a first delta may take to be passed on at once; later ones are asked for.
const LONGEST: Duration = Duration::from_secs(60);
/// How many are remembered; the deltas of others are asked for.
const REMEMBERED: usize = 10_000;

/// What the node knows of an attempt that it has handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) number: i32,
    pub(super) lease: LeaseId,
    /// How long its lease is.
    pub(super) lease_ms: i64,
    /// That of its session, if it asked for leases of its own length.
    pub(super) asked_ms: Option<i64>,
    pub(super) session: SessionId,
}

/// Those that have posted no delta yet.
#[derive(Default)]
pub(super) struct Handed {
    by_task: HashMap<TaskId, (Instant, Attempt)>,
}

impl Handed {
    /// A session was given this; other kinds of tasks than inference stream seldom.
    pub(super) fn add(
        &mut self,
        session: SessionId,
        asked_ms: Option<i64>,
        assignment: &Assignment,
        now: Instant,
    ) {
        let Assignment { task, lease_id, attempt, lease_expires_at, .. } = assignment;
        let (Some(expires), Some(claimed)) = (*lease_expires_at, task.claimed_at) else { return };
        let lease_ms = expires.since_ms(claimed);
        if task.profile.kind() != Kind::Inference || lease_ms <= 0 {
            return;
        }
        let believed = Duration::from_millis(lease_ms.unsigned_abs() / 2).min(LONGEST);
        if self.by_task.len() >= REMEMBERED {
            self.forget(now);
        }
        if self.by_task.len() < REMEMBERED {
            let (number, lease) = (*attempt, *lease_id);
            let known = Attempt { number, lease, lease_ms, asked_ms, session };
            self.by_task.insert(task.id, (now + believed, known));
        }
    }

    /// The attempt under this lease, if it may be believed; it is asked for once.
    pub(super) fn take(&mut self, task: TaskId, lease: LeaseId, now: Instant) -> Option<Attempt> {
        let (until, attempt) = *self.by_task.get(&task)?;
        if attempt.lease != lease {
            return None;
        }
        self.by_task.remove(&task);
        (now < until).then_some(attempt)
    }

    /// The attempt under this lease (`None`: whichever) is over.
    pub(super) fn end(&mut self, task: TaskId, lease: Option<LeaseDigest>) {
        let is_meant = |attempt: &Attempt| lease.is_none_or(|it| it == attempt.lease.digest());
        if self.by_task.get(&task).is_some_and(|(_, attempt)| is_meant(attempt)) {
            self.by_task.remove(&task);
        }
    }

    /// Forgets what is not believed any more.
    pub(super) fn forget(&mut self, now: Instant) {
        self.by_task.retain(|_, (until, _)| now < *until);
    }
}
