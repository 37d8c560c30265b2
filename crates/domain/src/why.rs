//! Why a task is not running: every reason that holds it back now, the most important first.
//!
//! Invariant: the order below is the order of the answer. What only time or a person can change
//! comes before what a worker changes by itself; a task that nothing holds back is ready, and says
//! where it stands in line. Whatever people read of a reason is said by [`Reason::detail`].
//! Absent: reading. The caller brings the facts, all of one moment.

mod start;
mod words;

#[cfg(test)]
mod tests;

use crate::approval::Choice;
use crate::failure::TaskError;
use crate::id::{ApprovalId, StepId, TaskId};
use crate::limit::{Bound, Counts, Key, Scope, room};
use crate::pins::Pins;
use crate::profile::{Kind, Profile};
use crate::state::State;
use crate::time::Timestamp;
use crate::validate::MAX_SLOTS;
use serde::Serialize;
pub use start::{Sharing, Slots};
use std::collections::BTreeMap;

/// How many of those who stand before a task are counted; more are told as "more".
pub const MOST_COUNTED: i64 = 1_000;
/// How many of those who hold a limit's slots are named.
pub const MOST_HOLDERS: i64 = 5;
/// How many are named of those who voted on an approval, and of those who have a token for it.
pub const MOST_NAMED: usize = 10;
/// How many of the tasks in one worker's hands are counted. Its slots do not bound them, because a
/// session may claim beyond what it said; so this is ten times the slots that one may have.
pub const MOST_HELD: i64 = 10 * MAX_SLOTS as i64;

/// What is known of a task at one moment.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // Named like the columns of `task`.
pub struct Facts {
    pub now: Timestamp,
    pub status: State,
    pub profile: Profile,
    pub queue: String,
    pub run_at: Timestamp,
    pub attempt: i32,
    pub retry_count: i32,
    pub max_retries: i32,
    pub error: Option<TaskError>,
    pub caller: Option<String>,
    pub pins: Pins,
    pub finished_at: Option<Timestamp>,
    /// Who holds it, if somebody does.
    pub holder: Option<Holder>,
    pub lease_expires_at: Option<Timestamp>,
    pub last_heartbeat_at: Option<Timestamp>,
    /// What it waits for, if it is parked.
    pub awaited: Option<Awaited>,
    /// What people have stopped of all that it belongs to.
    pub stops: Vec<Stop>,
    /// The limits that bind it, and what is held of each.
    pub bounds: Vec<Bound>,
    pub counts: Counts,
    /// When the period that runs ends, for each rate that is reached.
    pub rates_until: BTreeMap<Key, Timestamp>,
    /// Some of those who hold the slots of each limit that is reached.
    pub holders: BTreeMap<Key, Vec<Holder>>,
    /// How long slots are held of each limit that is reached.
    pub slots: BTreeMap<Key, Slots>,
    /// Who takes turns with it under each limit and rate that is reached, of those that are neither
    /// its queue's nor its venture's nor everything's: those the line tells.
    pub sharing: BTreeMap<Key, Sharing>,
    /// Whether all who would take it have their hands full.
    pub busy: Option<Busy>,
    /// Its line, if it stands in one.
    pub line: Line,
}

/// Workers that hold as many tasks as they have slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy {
    /// How many tasks they hold together: of each at most [`MOST_HELD`] are counted.
    pub held: i64,
    /// Some of those: at most [`MOST_HOLDERS`].
    pub holders: Vec<Holder>,
}

/// A task in somebody's hands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// Which task.
    pub task_id: TaskId,
    /// In whose hands: a session's id.
    pub session: String,
    /// The session's name, if it is still known.
    pub worker: Option<String>,
    /// Since when.
    pub since: Option<Timestamp>,
}

/// Somebody who voted on an approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Voter {
    /// Who.
    pub actor: String,
    /// What they said.
    pub choice: Choice,
    /// When.
    pub at: Timestamp,
}

/// Somebody who has a token for an approval that is good, and has not used it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TokenHolder {
    /// Who.
    pub approver: String,
    /// Until when it is good.
    pub expires_at: Timestamp,
}

/// Who has answered a question, and who may with a token: of each [`MOST_NAMED`] by name, in the
/// order in which they did or got it, and how many more there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs)] // docs/http-api.md describes each field once.
pub struct Voices {
    pub voters: Vec<Voter>,
    pub more_voters: i64,
    pub token_holders: Vec<TokenHolder>,
    pub more_token_holders: i64,
}

impl Voices {
    /// Names the first of them.
    pub fn new(mut voters: Vec<Voter>, mut token_holders: Vec<TokenHolder>) -> Voices {
        let more = |all: usize| all.saturating_sub(MOST_NAMED) as i64;
        let (more_voters, more_token_holders) = (more(voters.len()), more(token_holders.len()));
        voters.truncate(MOST_NAMED);
        token_holders.truncate(MOST_NAMED);
        Voices { voters, more_voters, token_holders, more_token_holders }
    }
}

/// What a parked task waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The reasons below say what each is.
pub enum Awaited {
    Approval {
        approval_id: ApprovalId,
        gate: String,
        action: String,
        required: i64,
        approvals: i64,
        until: Option<Timestamp>,
        voices: Voices,
    },
    Person {
        step_id: StepId,
        step: Option<String>,
    },
    Signal {
        signal: String,
        key: Option<String>,
        until: Option<Timestamp>,
    },
    Task {
        task_id: TaskId,
        status: Option<State>,
        until: Option<Timestamp>,
    },
    Time {
        until: Timestamp,
    },
}

/// What people have stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// What.
    pub key: Key,
    /// Whether it only takes nothing in; otherwise it hands nothing out.
    pub drains: bool,
    /// Who did it.
    pub by: String,
    /// When.
    pub since: Timestamp,
    /// Why.
    pub reason: Option<String>,
}

/// What is known of the line in which a task stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Sessions that are alive, take this queue and kind, and have what it is pinned to.
    pub workers: i64,
    /// How many tasks those may hold at once.
    pub slots: i64,
    /// Ready tasks of its venture that such a session would take before it, and that nothing stops
    /// which does not stop the task as well; counted to one more than [`MOST_COUNTED`].
    pub ahead: i64,
    /// Whether more may stand before it than were counted: not all lanes were looked at.
    pub more_ahead: bool,
    /// Ventures that have such tasks in this queue, itself included; counted likewise.
    pub ventures: i64,
    /// Pending tasks of the whole queue.
    pub pending: i64,
    /// Tasks that left this queue lately…
    pub drained: i64,
    /// …and in how long.
    pub drained_over_ms: i64,
}

/// The last error of a task, without its detail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LastError {
    /// What kind of error.
    pub code: String,
    /// What happened, in words.
    pub message: String,
}

impl From<&TaskError> for LastError {
    fn from(error: &TaskError) -> LastError {
        LastError { code: error.code.clone(), message: error.message.clone() }
    }
}

/// One reason. The names of the variants are the codes that programs decide by.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "code", rename_all = "snake_case")]
#[allow(missing_docs)] // docs/why.md describes each field once.
pub enum Reason {
    /// It has ended.
    Finished { status: State, since: Option<Timestamp>, error: Option<LastError> },
    /// It is in a worker's hands.
    Held {
        status: State,
        session: Option<String>,
        worker: Option<String>,
        since: Option<Timestamp>,
        attempt: i32,
        lease_expires_at: Option<Timestamp>,
        last_heartbeat_at: Option<Timestamp>,
        lease_expired: bool,
    },
    /// It waits for people to answer a question.
    WaitingForApproval {
        approval_id: ApprovalId,
        gate: String,
        action: String,
        required: i64,
        approvals: i64,
        until: Option<Timestamp>,
        #[serde(flatten)]
        voices: Voices,
    },
    /// It waits for a person's decision over a step of which nobody knows whether it ran.
    InDoubt { step_id: StepId, step: Option<String> },
    /// It waits for a signal.
    WaitingForSignal { signal: String, key: Option<String>, until: Option<Timestamp> },
    /// It waits for another task's end.
    WaitingForTask { task_id: TaskId, status: Option<State>, until: Option<Timestamp> },
    /// It waits for a time.
    WaitingForTime { until: Timestamp },
    /// It is parked and nobody knows for what: it was moved by hand.
    Waiting {},
    /// Its caller runs it elsewhere and reports; nobody is given it.
    RunElsewhere { caller: Option<String> },
    /// It failed and is tried again later.
    BackingOff {
        until: Timestamp,
        attempt: i32,
        retry_count: i32,
        max_retries: i32,
        error: Option<LastError>,
    },
    /// It was submitted for later.
    Scheduled { until: Timestamp },
    /// Somebody has stopped something that it belongs to.
    Paused {
        scope: Scope,
        name: Option<String>,
        by: String,
        since: Timestamp,
        reason: Option<String>,
    },
    /// As many tasks as a limit allows are active.
    LimitReached {
        scope: Scope,
        name: Option<String>,
        limit: i64,
        held: i64,
        /// Some of them: at most [`MOST_HOLDERS`].
        holders: Vec<Holder>,
    },
    /// As many tasks as a rate allows were handed out in the period that runs.
    RateReached {
        scope: Scope,
        name: Option<String>,
        limit: i64,
        period_ms: i64,
        until: Option<Timestamp>,
    },
    /// Nobody is there to take it.
    NoWorker {
        queue: String,
        kind: Kind,
        /// What it is pinned to.
        #[serde(flatten)]
        pins: Pins,
    },
    /// Those who would take it hold as many tasks as they have slots.
    WorkersBusy {
        queue: String,
        workers: i64,
        slots: i64,
        held: i64,
        /// Some of them: at most [`MOST_HOLDERS`].
        holders: Vec<Holder>,
    },
    /// Something that it belongs to takes nothing new in; this task is handed out all the same.
    Draining {
        scope: Scope,
        name: Option<String>,
        by: String,
        since: Timestamp,
        reason: Option<String>,
    },
    /// Others stand before it, who are held back as it is.
    InLine {
        ahead: i64,
        ahead_at_least: bool,
        ventures: i64,
        estimated_wait_ms: Option<i64>,
        estimated_start_at: Option<Timestamp>,
    },
    /// Nothing holds it back: it stands in line.
    Ready {
        ahead: i64,
        ahead_at_least: bool,
        ventures: i64,
        workers: i64,
        slots: i64,
        estimated_wait_ms: Option<i64>,
        estimated_start_at: Option<Timestamp>,
    },
}

/// Every reason that holds a task back, the most important first; never empty.
pub fn why(facts: &Facts) -> Vec<Reason> {
    match facts.status {
        status if status.is_terminal() => {
            let error = facts.error.as_ref().map(LastError::from);
            vec![Reason::Finished { status, since: facts.finished_at, error }]
        }
        status if status.is_held() => vec![held(facts, status)],
        State::Waiting | State::WaitingForApproval => vec![parked(facts.awaited.as_ref())],
        _ if facts.profile == Profile::Ledger => {
            vec![Reason::RunElsewhere { caller: facts.caller.clone() }]
        }
        _ => in_line(facts),
    }
}

fn held(facts: &Facts, status: State) -> Reason {
    let holder = facts.holder.as_ref();
    Reason::Held {
        status,
        session: holder.map(|holder| holder.session.clone()),
        worker: holder.and_then(|holder| holder.worker.clone()),
        since: holder.and_then(|holder| holder.since),
        attempt: facts.attempt,
        lease_expires_at: facts.lease_expires_at,
        last_heartbeat_at: facts.last_heartbeat_at,
        lease_expired: facts.lease_expires_at.is_some_and(|at| at <= facts.now),
    }
}

fn parked(awaited: Option<&Awaited>) -> Reason {
    let Some(awaited) = awaited else { return Reason::Waiting {} };
    match awaited.clone() {
        Awaited::Approval { approval_id, gate, action, required, approvals, until, voices } => {
            Reason::WaitingForApproval {
                approval_id,
                gate,
                action,
                required,
                approvals,
                until,
                voices,
            }
        }
        Awaited::Person { step_id, step } => Reason::InDoubt { step_id, step },
        Awaited::Signal { signal, key, until } => Reason::WaitingForSignal { signal, key, until },
        Awaited::Task { task_id, status, until } => {
            Reason::WaitingForTask { task_id, status, until }
        }
        Awaited::Time { until } => Reason::WaitingForTime { until },
    }
}

/// A task that a claim would take if nothing kept it.
fn in_line(facts: &Facts) -> Vec<Reason> {
    let mut reasons = Vec::new();
    reasons.extend(not_yet(facts));
    reasons.extend(facts.stops.iter().filter(|stop| !stop.drains).map(stopped));
    reasons.extend(facts.bounds.iter().filter_map(|bound| limit_reached(facts, bound)));
    reasons.extend(facts.bounds.iter().filter_map(|bound| rate_reached(facts, bound)));
    if facts.line.workers == 0 {
        let (queue, kind, pins) = (facts.queue.clone(), facts.profile.kind(), facts.pins.clone());
        reasons.push(Reason::NoWorker { queue, kind, pins });
    }
    let is_ready = reasons.is_empty() && facts.busy.is_none();
    // Whoever is first where nothing moves has no place worth telling.
    let stands =
        |reason: &Reason| matches!(reason, Reason::Paused { .. } | Reason::NoWorker { .. });
    let has_place = facts.line.ahead > 0 || !reasons.iter().any(stands);
    reasons.extend(busy(facts));
    reasons.extend(facts.stops.iter().filter(|stop| stop.drains).map(stopped));
    if is_ready {
        reasons.push(ready(facts));
    } else if has_place && facts.run_at <= facts.now {
        reasons.push(behind(facts, &reasons));
    }
    reasons
}

/// Where it stands while something holds it back.
fn behind(facts: &Facts, reasons: &[Reason]) -> Reason {
    let line = facts.line;
    let wait = start::behind_ms(facts, reasons);
    Reason::InLine {
        ahead: line.ahead.min(MOST_COUNTED),
        ahead_at_least: line.more_ahead || line.ahead > MOST_COUNTED,
        ventures: line.ventures.clamp(1, MOST_COUNTED),
        estimated_wait_ms: wait,
        estimated_start_at: wait.map(|ms| facts.now.plus_ms(ms)),
    }
}

fn not_yet(facts: &Facts) -> Option<Reason> {
    let until = facts.run_at;
    match facts.status {
        _ if until <= facts.now => None,
        State::Retry => Some(Reason::BackingOff {
            until,
            attempt: facts.attempt,
            retry_count: facts.retry_count,
            max_retries: facts.max_retries,
            error: facts.error.as_ref().map(LastError::from),
        }),
        _ => Some(Reason::Scheduled { until }),
    }
}

fn stopped(stop: &Stop) -> Reason {
    let Stop { key, drains, by, since, reason } = stop.clone();
    let (scope, name) = apart(&key);
    match drains {
        true => Reason::Draining { scope, name, by, since, reason },
        false => Reason::Paused { scope, name, by, since, reason },
    }
}

/// A key as its scope and the name that people gave; everything has none.
fn apart(key: &Key) -> (Scope, Option<String>) {
    (key.scope, Some(key.name.clone()).filter(|_| key.scope != Scope::Global))
}

/// Whether a limit on active tasks leaves no room.
pub fn is_full(bound: &Bound, counts: &Counts) -> bool {
    let active = counts.get(&bound.key).map_or(0, |count| count.active);
    bound.max_active.is_some_and(|max| room(max, active) == 0)
}

/// Whether a rate leaves no room in the period that runs.
pub fn is_spent(bound: &Bound, counts: &Counts) -> bool {
    let taken = counts.get(&bound.key).map_or(0, |count| count.taken);
    bound.rate.is_some_and(|rate| room(rate.count, taken) == 0)
}

fn limit_reached(facts: &Facts, bound: &Bound) -> Option<Reason> {
    let limit = bound.max_active.filter(|_| is_full(bound, &facts.counts))?;
    let (scope, name) = apart(&bound.key);
    let held = facts.counts.get(&bound.key).map_or(0, |count| count.active);
    let holders = facts.holders.get(&bound.key).cloned().unwrap_or_default();
    Some(Reason::LimitReached { scope, name, limit, held, holders })
}

fn rate_reached(facts: &Facts, bound: &Bound) -> Option<Reason> {
    let rate = bound.rate.filter(|_| is_spent(bound, &facts.counts))?;
    let (scope, name) = apart(&bound.key);
    let until = facts.rates_until.get(&bound.key).copied();
    Some(Reason::RateReached { scope, name, limit: rate.count, period_ms: rate.period_ms, until })
}

fn busy(facts: &Facts) -> Option<Reason> {
    let Busy { held, holders } = facts.busy.clone()?;
    let Line { workers, slots, .. } = facts.line;
    Some(Reason::WorkersBusy { queue: facts.queue.clone(), workers, slots, held, holders })
}

fn ready(facts: &Facts) -> Reason {
    let line = facts.line;
    let wait = start::at_pace_ms(&line);
    Reason::Ready {
        ahead: line.ahead.min(MOST_COUNTED),
        ahead_at_least: line.more_ahead || line.ahead > MOST_COUNTED,
        ventures: line.ventures.clamp(1, MOST_COUNTED),
        workers: line.workers,
        slots: line.slots,
        estimated_wait_ms: wait,
        estimated_start_at: wait.map(|ms| facts.now.plus_ms(ms)),
    }
}
