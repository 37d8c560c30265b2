//! When a task that is held back is likely to start.
//!
//! Invariant: what is told is the slowest of all that the task waits for: the pace of its queue,
//! the periods of a rate, and the slots of a limit. Under a rate or a limit those come first who
//! share it and stand before the task, and no others. Where one of them cannot be known, nothing is
//! told rather than something wrong.
//! Absent: others of the same rate or limit who stand in other queues. They show in the pace alone.

use super::{Facts, Line, Reason};
use crate::limit::{Key, Scope, estimated_wait_ms};

/// Who takes turns with a task under one limit or rate, in the task's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sharing {
    /// Ready tasks of its venture that stand before it and are bound by the same.
    pub ahead: i64,
    /// Ventures that have ready tasks bound by the same, itself included.
    pub ventures: i64,
}

/// How long those hold a slot who are bound by one limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// For how long those have theirs who hold one now; of many, some.
    pub held_ms: Vec<i64>,
    /// How long those held one, on average, who ended lately; `None`: none did.
    pub run_ms: Option<i64>,
}

/// When a task's turn comes at the pace of its queue.
pub(super) fn at_pace_ms(line: &Line) -> Option<i64> {
    estimated_wait_ms(depth_of_line(line), line.drained, line.drained_over_ms)
}

/// When a task's turn comes that these reasons hold back.
pub(super) fn behind_ms(facts: &Facts, reasons: &[Reason]) -> Option<i64> {
    let pace = at_pace_ms(&facts.line);
    let mut least = None;
    let mut needs_pace = false;
    for reason in reasons {
        let wait = match reason {
            // What is stopped, or has nobody to take it, does not move.
            Reason::Paused { .. } | Reason::NoWorker { .. } => return None,
            Reason::LimitReached { limit: 0, .. } => return None,
            // When a worker is free only the queue can tell.
            Reason::WorkersBusy { .. } | Reason::LimitReached { scope: Scope::WorkerType, .. } => {
                needs_pace = true;
                continue;
            }
            Reason::LimitReached { scope, name, limit, held, .. } => {
                let key = key(*scope, name);
                match slot_ms(facts, &key, *limit, *held) {
                    // The queue's own pace is that of such a limit too, and no other one's.
                    None if matches!(scope, Scope::Global | Scope::Queue) => {
                        needs_pace = true;
                        continue;
                    }
                    wait => wait?,
                }
            }
            Reason::RateReached { scope, name, limit, period_ms, until } => {
                let before = depth(facts, &key(*scope, name))? - 1;
                let periods = period_ms.saturating_mul(before / (*limit).max(1));
                (*until)?.since_ms(facts.now).saturating_add(periods)
            }
            _ => continue,
        };
        least = least.max(Some(wait));
    }
    match (pace, least) {
        (Some(pace), least) => Some(pace.max(least.unwrap_or_default())),
        (None, least) => least.filter(|_| !needs_pace),
    }
}

/// When a slot of a limit is the task's: those who hold one go on for what is left of a run, and
/// after that each slot is free once in a run.
fn slot_ms(facts: &Facts, key: &Key, limit: i64, held: i64) -> Option<i64> {
    let slots = facts.slots.get(key)?;
    let run = run_ms(slots)?;
    let mut left: Vec<i64> = slots.held_ms.iter().map(|held| (run - held).max(0)).collect();
    left.sort_unstable();
    // Those beyond a lowered limit end without making room.
    let (limit, held) = (limit.max(1), held.max(limit).max(1));
    let before = depth(facts, key)? - 1;
    let end = (held - limit) + before % limit;
    // Of many who hold one some are known, and they stand for the others.
    let known = i128::from(end) * left.len() as i128 / i128::from(held);
    let first = *left.get(usize::try_from(known).ok()?)?;
    Some(first.saturating_add(run.saturating_mul(before / limit)))
}

/// How long a slot is held. While one ends whenever another begins, those who hold one are on
/// average halfway through; so where none has ended yet, a run is twice what they have held so far.
/// Whoever has just begun says nothing.
fn run_ms(slots: &Slots) -> Option<i64> {
    let many = i128::try_from(slots.held_ms.len()).ok().filter(|many| *many > 0)?;
    let sum: i128 = slots.held_ms.iter().map(|held| i128::from(*held)).sum();
    let mean = i64::try_from(sum / many).unwrap_or(i64::MAX);
    let run = match slots.run_ms {
        Some(run) => run.max(mean),
        None => mean.saturating_mul(2),
    };
    Some(run).filter(|run| *run > 0)
}

/// How many begin of those who share a limit or rate until a task has begun, itself included;
/// `None`: nobody has counted.
fn depth(facts: &Facts, key: &Key) -> Option<i64> {
    let line = &facts.line;
    let sharing = match key.scope {
        Scope::Global | Scope::Queue => return Some(depth_of_line(line)),
        Scope::Venture => Sharing { ahead: line.ahead, ventures: 1 },
        _ => *facts.sharing.get(key)?,
    };
    let pending = facts.counts.get(key).map_or(0, |count| count.pending);
    Some(by_turns(sharing.ahead, sharing.ventures, pending))
}

fn depth_of_line(line: &Line) -> i64 {
    by_turns(line.ahead, line.ventures, line.pending)
}

/// How many begin until a task has begun, itself included: ventures take turns, so each task before
/// it in its venture lets one of every other venture go first, as far as there are so many.
fn by_turns(ahead: i64, ventures: i64, pending: i64) -> i64 {
    let own = ahead.saturating_add(1);
    own.saturating_mul(ventures.max(1)).min(pending.max(own))
}

/// A key of which a reason tells the scope and the name.
fn key(scope: Scope, name: &Option<String>) -> Key {
    Key { scope, name: name.clone().unwrap_or_default() }
}
