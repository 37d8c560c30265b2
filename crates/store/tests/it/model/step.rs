//! The commands of a run, as data: they name tasks by number and leases by task and attempt, so
//! that one command means the same to the model and to both databases, and still means something
//! when the commands before it are taken away.

use super::random::numbered;
use uuid::Uuid;
use windlass_domain::command::Command;
use windlass_domain::failure::TaskError;
use windlass_domain::id::{ClaimId, LeaseId, TaskId};
use windlass_domain::profile::{Kind, Profile};
use windlass_domain::request::{Mode, SubmitRequest};
use windlass_domain::retry::Backoff;
use windlass_domain::state::State;
use windlass_domain::task::NewTask;
use windlass_domain::time::Timestamp;
use windlass_domain::usage::Usage;
use windlass_domain::validate;
use windlass_store::task::Finishing;

/// A lease by whose it is: the attempt of a task. An attempt that never was is a wrong lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease {
    pub task: usize,
    pub attempt: i32,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Pass { ms: i64 },
    Submit(Vec<New>),
    Claim(Take),
    Start(Vec<Hold>),
    Beat(Vec<BeatOf>),
    Finish(Vec<End>),
    Ask { task: usize, what: What },
    Sweep(Sweep),
}

impl Step {
    /// How many commands this is.
    pub fn commands(&self) -> usize {
        match self {
            Step::Submit(items) => items.len(),
            Step::Start(items) => items.len(),
            Step::Beat(items) => items.len(),
            Step::Finish(items) => items.len(),
            Step::Pass { .. } | Step::Claim(_) | Step::Ask { .. } | Step::Sweep(_) => 1,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct New {
    pub task: usize,
    pub profile: Profile,
    pub queue: usize,
    pub priority: i32,
    pub at_ms: Option<i64>,
    pub delay_ms: Option<i64>,
    pub deadline_ms: Option<i64>,
    pub key: Option<usize>,
    pub payload: usize,
    pub max_retries: Option<i32>,
    pub steady: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Take {
    pub claim: usize,
    pub session: usize,
    pub queues: Vec<usize>,
    pub profiles: Vec<Profile>,
    pub max: usize,
    pub lease_ms: Option<i64>,
    pub start: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hold {
    pub task: usize,
    pub lease: Lease,
}

#[derive(Clone, Debug, PartialEq)]
pub struct BeatOf {
    pub hold: Hold,
    pub lease_ms: Option<i64>,
    pub checkpoint: Option<usize>,
    pub progress: Option<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct End {
    pub hold: Hold,
    pub how: How,
}

#[derive(Clone, Debug, PartialEq)]
pub enum How {
    Complete { result: Option<usize> },
    Fail { code: &'static str, retry_after_ms: Option<i64>, chance: f64 },
    Release,
}

/// What is asked of one task without a hot statement of its own.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    Cancel,
    Wait { lease: Lease },
    Wake,
    Report { to: State, failed: bool },
    ReportBeat,
    ReleaseTooOften,
    Approve,
    Deny,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sweep {
    Leases,
    Deadlines,
    Pending,
    Session(usize),
}

pub fn task_id(number: usize) -> TaskId {
    TaskId(numbered(1, number as u64))
}

pub fn claim_id(number: usize) -> ClaimId {
    ClaimId(numbered(2, number as u64))
}

/// The lease as the model knows it.
pub fn lease_id(lease: Lease) -> LeaseId {
    lease_of(task_id(lease.task), lease.attempt)
}

pub fn lease_of(task: TaskId, attempt: i32) -> LeaseId {
    LeaseId(Uuid::from_u128(task.0.as_u128().rotate_left(29) ^ u128::from(attempt as u32)))
}

pub fn queue(number: usize) -> String {
    format!("queue-{number}")
}

pub fn session(number: usize) -> String {
    format!("session-{number}")
}

pub fn json(number: usize) -> String {
    format!("{{\"n\":{number}}}")
}

/// Who stands in the history for commands that name nobody.
pub const ACTOR: &str = "tester";

impl New {
    /// As validation hands it to the store.
    pub fn task(&self, now: Timestamp) -> NewTask {
        let delegated = matches!(self.profile, Profile::Delegation | Profile::Ledger);
        let request = SubmitRequest {
            queue: Some(queue(self.queue)),
            payload: serde_json::json!({ "n": self.payload }),
            kind: Some(self.profile.kind()),
            mode: (self.profile == Profile::Ledger).then_some(Mode::Ledger),
            caller: delegated.then(|| "boss".to_owned()),
            callee: delegated.then(|| "crew".to_owned()),
            pool: (self.profile.kind() == Kind::Inference).then(|| "fast".to_owned()),
            priority: Some(self.priority),
            run_at: self.at_ms.map(|ms| now.plus_ms(ms)),
            delay_ms: self.delay_ms,
            deadline_ms: self.deadline_ms,
            idempotency_key: self.key.map(|key| format!("key-{key}")),
            max_retries: self.max_retries,
            backoff: self.steady.then(|| Backoff { jitter: false, ..Backoff::default() }),
            ..SubmitRequest::default()
        };
        validate::new_task(&request, task_id(self.task), "", ACTOR).expect("a valid request")
    }
}

impl How {
    pub fn finishing(&self) -> Finishing {
        match *self {
            How::Complete { result } => Finishing::Complete(result.map(json)),
            How::Fail { code, retry_after_ms, chance } => {
                Finishing::Fail { error: TaskError::new(code, "it broke"), retry_after_ms, chance }
            }
            How::Release => Finishing::Release,
        }
    }

    /// Some tell what they took.
    pub fn usage(&self) -> Option<Usage> {
        let total_tokens = match *self {
            How::Complete { result } => result.filter(|n| n % 2 == 0).map(|n| n as u64),
            How::Fail { retry_after_ms, .. } => retry_after_ms.map(|ms| ms as u64),
            How::Release => None,
        }?;
        Some(Usage { total_tokens, ..Usage::default() })
    }

    pub fn command(&self, lease_id: LeaseId) -> Command {
        match self.finishing() {
            Finishing::Complete(result) => {
                Command::Complete { lease_id, result, usage: self.usage() }
            }
            Finishing::Fail { error, retry_after_ms, chance } => {
                Command::Fail { lease_id, error, retry_after_ms, chance, usage: self.usage() }
            }
            Finishing::Release => Command::Release { lease_id },
        }
    }
}

impl What {
    pub fn command(&self, lease: impl FnOnce(Lease) -> LeaseId) -> Command {
        match *self {
            What::Cancel => Command::Cancel,
            What::Wait { lease: of } => Command::Wait { lease_id: lease(of) },
            What::Wake => Command::Wake,
            What::Report { to, failed } => Command::Report {
                to,
                result: (to == State::Completed).then(|| json(7)),
                error: failed.then(|| TaskError::new("REMOTE", "it broke elsewhere")),
                holder: "elsewhere".into(),
            },
            What::ReportBeat => Command::ReportBeat,
            What::ReleaseTooOften => Command::ReleaseTooOften,
            What::Approve => Command::Approve(Default::default()),
            What::Deny => Command::Deny(Default::default()),
        }
    }
}
