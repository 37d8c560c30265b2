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

impl Attempt {
    /// What a session was given; other kinds of tasks than inference stream seldom.
    pub(super) fn of(
        session: SessionId,
        asked_ms: Option<i64>,
        assignment: &Assignment,
    ) -> Option<Attempt> {
        let Assignment { task, lease_id, attempt, lease_expires_at, .. } = assignment;
        let lease_ms = (*lease_expires_at)?.since_ms(task.claimed_at?);
        let (number, lease) = (*attempt, *lease_id);
        let is_inference = task.profile.kind() == Kind::Inference;
        is_inference.then_some(Attempt { number, lease, lease_ms, asked_ms, session })
    }
}

/// Those that have posted no delta yet.
#[derive(Default)]
pub(super) struct Handed {
    by_task: HashMap<TaskId, (Instant, Attempt)>,
}

impl Handed {
    /// An attempt of this task was handed out.
    pub(super) fn add(&mut self, task: TaskId, attempt: Attempt, now: Instant) {
        let lease_ms = u64::try_from(attempt.lease_ms).unwrap_or(0);
        let believed = Duration::from_millis(lease_ms / 2).min(LONGEST);
        if self.by_task.len() >= REMEMBERED {
            self.forget(now);
        }
        if self.by_task.len() < REMEMBERED {
            self.by_task.insert(task, (now + believed, attempt));
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

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn attempt(lease_ms: i64) -> Attempt {
        let (lease, session) = (LeaseId(Uuid::new_v4()), SessionId(Uuid::now_v7()));
        Attempt { number: 1, lease, lease_ms, asked_ms: None, session }
    }

    #[test]
    fn an_attempt_is_believed_for_half_of_its_lease_and_a_minute_at_most() {
        for (lease_ms, believed_ms) in [(2_000, 1_000), (600_000, 60_000)] {
            let (now, task, given) = (Instant::now(), TaskId(Uuid::now_v7()), attempt(lease_ms));
            let after = |ms| now + Duration::from_millis(ms);
            let mut handed = Handed::default();
            handed.add(task, given, now);
            assert_eq!(handed.take(task, attempt(1).lease, now), None, "another's lease");
            assert_eq!(handed.take(task, given.lease, after(believed_ms - 1)), Some(given));
            assert_eq!(handed.take(task, given.lease, now), None, "once");
            handed.add(task, given, now);
            assert_eq!(handed.take(task, given.lease, after(believed_ms)), None);
            handed.add(task, given, now);
            handed.forget(after(believed_ms));
            assert!(handed.by_task.is_empty());
        }
    }

    #[test]
    fn an_attempt_that_has_ended_is_not_believed() {
        let (now, task) = (Instant::now(), TaskId(Uuid::now_v7()));
        let (older, newer) = (attempt(600_000), attempt(600_000));
        let mut handed = Handed::default();
        handed.add(task, newer, now);
        handed.end(task, Some(older.lease.digest()));
        assert_eq!(handed.take(task, newer.lease, now), Some(newer), "an older one ended");
        for end in [Some(newer.lease.digest()), None] {
            handed.add(task, newer, now);
            handed.end(task, end);
            assert_eq!(handed.take(task, newer.lease, now), None);
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let now = Instant::now();
        let mut handed = Handed::default();
        for _ in 0..REMEMBERED + 10 {
            handed.add(TaskId(Uuid::now_v7()), attempt(600_000), now);
        }
        assert_eq!(handed.by_task.len(), REMEMBERED);
        handed.add(TaskId(Uuid::now_v7()), attempt(600_000), now + LONGEST);
        assert_eq!(handed.by_task.len(), 1);
    }
}
