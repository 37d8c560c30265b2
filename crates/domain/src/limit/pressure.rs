//! How close the system is to its limits, in figures and in words.
//!
//! Invariant: the levels are compared in whole numbers, so that exactly 70, 90, 50 and 80 per cent
//! belong to the lower level on every machine.

use super::Mode;
use crate::state::named;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

named! {
    /// How hard the system is pressed.
    Level {
        /// There is room.
        Normal = "normal",
        /// More than 70 % active or more than 50 % pending.
        Elevated = "elevated",
        /// More than 90 % active or more than 80 % pending.
        Critical = "critical",
    }
}

/// Everything was stopped by somebody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// What of it.
    pub mode: Mode,
    /// By whom.
    pub by: String,
    /// Since when.
    pub since: Timestamp,
    /// Why.
    pub reason: Option<String>,
}

/// What is held against what is allowed; `None` is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Claimed and running tasks.
    pub active: i64,
    /// The most active tasks.
    pub max_active: Option<i64>,
    /// Pending and retry tasks.
    pub pending: i64,
    /// The most pending tasks.
    pub max_pending: Option<i64>,
    /// How many of those may not begin: what they belong to is paused, or may have no active task.
    pub held_back: i64,
    /// How many of the others stand in line: their time has come.
    pub in_line: i64,
    /// Whether everything is stopped.
    pub stop: Option<Stop>,
    /// How many tasks left the queue lately…
    pub drained: i64,
    /// …and how long that took.
    pub drained_over_ms: i64,
    /// For how long tasks have been pending and none has left, as far as somebody has watched.
    pub still_ms: i64,
}

/// The answer to "how busy are you?".
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Backpressure {
    /// How hard the system is pressed.
    pub level: Level,
    /// Active tasks in per cent of those allowed.
    pub global_utilization: f64,
    /// Claimed and running tasks.
    pub active: i64,
    /// The most active tasks; `null` is no limit.
    pub max_active: Option<i64>,
    /// Pending tasks, those that wait for a retry or for their time included.
    pub queue_depth: i64,
    /// The most pending tasks; `null` is no limit.
    pub max_pending: Option<i64>,
    /// Tasks that left the queue in a second, while others waited; over the last minute.
    pub drained_per_second: f64,
    /// How long a task submitted now would wait, unless something holds it back; `null` when
    /// nothing moves or all is paused.
    pub estimated_wait_ms: Option<i64>,
    /// For how long tasks have been pending and none has left, as far as somebody has watched.
    #[serde(skip)]
    pub still_ms: i64,
    /// What to do, in words.
    pub recommendations: Vec<String>,
}

/// The longest time for which a caller is told to stay away from a full queue: a pace may pick up.
pub const LONGEST_AWAY_MS: i64 = 60_000;
/// For how long it is told to stay away where nothing moves: a person has to do something first,
/// and who asks every second is in their way.
pub const STILL_AWAY_MS: i64 = 30_000;
/// The same where nobody has watched for so long yet, because the node has just started or the
/// queue has just filled up: whether anything moves is known when the caller comes back.
pub const UNKNOWN_AWAY_MS: i64 = 5_000;
/// After so many times the usual time from one task to the next nothing moves any more.
const STILL_AFTER: i64 = 10;
/// The shortest time: the header that tells it counts in seconds.
pub const SHORTEST_AWAY_MS: i64 = 1_000;

impl Backpressure {
    /// When to submit again after a limit on pending tasks has refused it: when those who wait now
    /// have begun, as far as anybody can tell. The pace is that of the whole system; `is_stopped`
    /// says that nothing of what the limit is for may begin.
    pub fn come_back_after_ms(&self, is_stopped: bool) -> i64 {
        let moves = self.drained_per_second > 0.0;
        match self.estimated_wait_ms.filter(|_| moves && !is_stopped) {
            Some(wait_ms) => wait_ms.clamp(SHORTEST_AWAY_MS, LONGEST_AWAY_MS),
            None if is_stopped || self.still_ms >= UNKNOWN_AWAY_MS => STILL_AWAY_MS,
            None => UNKNOWN_AWAY_MS,
        }
    }
}

/// Everything there is to say about a load.
pub fn backpressure(load: &Load) -> Backpressure {
    // Where nothing may begin, what left lately was cancelled: that is no pace. Nor is one that
    // has come to an end.
    let is_over = load.max_active == Some(0) || stands_still(load);
    let drained = if is_over { 0 } else { load.drained };
    let wait = match is_paused(load) {
        true => None,
        false => estimated_wait_ms(load.in_line, drained, load.drained_over_ms),
    };
    Backpressure {
        level: level(load),
        global_utilization: utilization(load.active, load.max_active),
        active: load.active,
        max_active: load.max_active,
        queue_depth: load.pending,
        max_pending: load.max_pending,
        drained_per_second: per_second(drained, load.drained_over_ms),
        estimated_wait_ms: wait,
        still_ms: load.still_ms,
        recommendations: recommendations(load, wait),
    }
}

/// Whether none has left for far longer than it took lately from one to the next.
fn stands_still(load: &Load) -> bool {
    let gap_ms = load.drained_over_ms / load.drained.max(1);
    load.in_line > 0 && load.still_ms >= UNKNOWN_AWAY_MS.max(gap_ms.saturating_mul(STILL_AFTER))
}

/// What is held, in per cent of what is allowed: 0 without a limit, and 100 when something is held
/// although nothing is allowed.
pub fn utilization(held: i64, limit: Option<i64>) -> f64 {
    match limit {
        None => 0.0,
        Some(limit) if limit <= 0 && held <= 0 => 0.0,
        Some(limit) if limit <= 0 => 100.0,
        Some(limit) => held.max(0) as f64 / limit as f64 * 100.0,
    }
}

/// How long the last of `depth` tasks waits when `drained` tasks leave in `over_ms`. Nothing waits
/// in an empty queue; nobody can tell when nothing leaves.
pub fn estimated_wait_ms(depth: i64, drained: i64, over_ms: i64) -> Option<i64> {
    if depth <= 0 {
        Some(0)
    } else if drained <= 0 || over_ms <= 0 {
        None
    } else {
        let ms = i128::from(depth) * i128::from(over_ms) / i128::from(drained);
        Some(i64::try_from(ms).unwrap_or(i64::MAX))
    }
}

/// A pace in words that people know: so many in a second.
fn per_second(drained: i64, over_ms: i64) -> f64 {
    if drained <= 0 || over_ms <= 0 { 0.0 } else { drained as f64 * 1_000.0 / over_ms as f64 }
}

fn level(load: &Load) -> Level {
    let active = |percent| exceeds(load.active, load.max_active, percent);
    let pending = |percent| exceeds(load.pending, load.max_pending, percent);
    if active(90) || pending(80) || load.max_pending == Some(0) {
        Level::Critical
    } else if active(70) || pending(50) {
        Level::Elevated
    } else {
        Level::Normal
    }
}

fn exceeds(held: i64, limit: Option<i64>, percent: i128) -> bool {
    // A limit of 0 is a pause that an operator wants; it is pressed as soon as something is held.
    limit.is_some_and(|limit| i128::from(held) * 100 > percent * i128::from(limit.max(0)))
}

fn is_paused(load: &Load) -> bool {
    load.stop.as_ref().is_some_and(|stop| stop.mode == Mode::Pause)
}

fn stopped(stop: &Stop) -> String {
    let Stop { mode, by, since, reason } = stop;
    let what = match mode {
        Mode::Pause => "nothing begins: everything is paused",
        Mode::Drain => "every submit is refused: everything drains, as ordered",
    };
    let why = reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
    format!("{what} by `{by}` since {since}{why}; `windlass resume --all` lets it go on")
}

fn held_back(held: i64) -> String {
    format!(
        "{held} of the pending tasks may not begin: what they belong to is paused or its active \
         limit is 0; `windlass pause` and `windlass limit list` show it"
    )
}

fn recommendations(load: &Load, wait_ms: Option<i64>) -> Vec<String> {
    let stop = load.stop.as_ref().map(stopped);
    let held = Some(load.held_back).filter(|held| *held > 0 && !is_paused(load)).map(held_back);
    stop.into_iter()
        .chain(held)
        .chain(advice(load, wait_ms).into_iter().map(str::to_owned))
        .collect()
}

fn advice(load: &Load, wait_ms: Option<i64>) -> Vec<&'static str> {
    let mut words = Vec::new();
    if load.max_active == Some(0) && load.pending > 0 {
        words.push("raise the active limit: it is 0, so nothing begins");
    } else if exceeds(load.active, load.max_active, 90) {
        words.push("add workers only with a higher active limit: nearly all of it is in use");
    } else if exceeds(load.active, load.max_active, 70) {
        words.push("plan for a higher active limit: more than 70 % of it is in use");
    }
    if load.max_pending == Some(0) {
        words.push("raise the pending limit: it is 0, so every submit is refused");
    } else if load.max_pending.is_some_and(|most| load.pending >= most) {
        words.push("hold back work that can wait: submits are refused with queue_full now");
    } else if exceeds(load.pending, load.max_pending, 80) {
        words.push("hold back work that can wait: submits will soon be refused with queue_full");
    } else if exceeds(load.pending, load.max_pending, 50) {
        words.push("submit in smaller portions: more than half of the queue is used");
    }
    if wait_ms.is_some() || is_paused(load) {
        return words;
    }
    if load.active == 0 {
        words.push("start a worker: tasks wait and none runs");
    } else {
        words.push("look at the running tasks: tasks wait and none has finished lately");
    }
    words
}
