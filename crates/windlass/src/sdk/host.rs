//! Where a handler's calls go: an engine in this process, or a server.

use super::TaskInfo;
use crate::engine::Phase;
use serde::Deserialize;
use serde_json::Value as Json;
use std::pin::Pin;
use std::time::Duration;
use windlass_domain::id::{ClaimId, LeaseId, SessionId, StepId, TaskId};
use windlass_domain::request::SubmitRequest;
use windlass_domain::step::StepState;
use windlass_store::task::{
    Assignment, BeginStep, Finish, Park, Parked, RecordStep, Recorded, StepEnd,
};

/// A call under way.
pub(crate) type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, CallError>> + Send + 'a>>;

/// Why a call gave no answer that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallError {
    /// The stable code.
    pub code: String,
    /// In words.
    pub detail: String,
    /// Whether the same call may succeed a little later.
    pub is_temporary: bool,
}

/// A task in a worker's hands, as a context needs it.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub task: TaskInfo,
    pub lease: LeaseId,
    pub payload: Json,
    pub checkpoint: Option<Json>,
    pub steps: Vec<PastStep>,
    pub steps_complete: bool,
    /// As the engine gave it; for workers in process that want no context.
    pub assignment: Option<Box<Assignment>>,
}

/// A step of an earlier attempt, as a context needs it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PastStep {
    pub id: StepId,
    pub seq: i64,
    pub name: String,
    pub status: StepState,
    pub result: Option<Json>,
}

/// The answer to a begun step.
#[derive(Clone, Debug)]
pub(crate) enum Begun {
    /// It may run; and the number of the run.
    New(StepId, Option<i64>),
    /// It has run.
    Done(Json),
    /// A person decided that it has failed.
    Rejected(String),
}

/// A run of a step that must not run twice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepRun {
    pub step: StepId,
    pub lease: LeaseId,
    /// `None`: it began before runs had numbers.
    pub number: Option<i64>,
}

/// A worker that takes part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registered {
    pub session: SessionId,
    pub slots: usize,
}

/// One lease of a heartbeat.
#[derive(Clone, Debug)]
pub(crate) struct HostBeat {
    pub task: TaskId,
    pub lease: LeaseId,
    pub checkpoint: Option<String>,
    pub progress: Option<String>,
}

/// What a heartbeat learnt of leases that hold no longer, and of those that it did not name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub cancelled: Vec<LeaseId>,
    pub lost: Vec<LeaseId>,
    /// What the session holds all the same.
    pub unnamed: Vec<(TaskId, LeaseId)>,
}

/// A question to a person.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub task: TaskId,
    pub lease: LeaseId,
    pub gate: String,
    pub action: String,
    pub arguments: serde_json::Value,
    pub approvers: Option<i64>,
    pub expires_ms: Option<i64>,
    pub occurrence: i32,
    pub actor: String,
}

/// Whoever runs handlers talks to this.
pub(crate) trait Host: Send + Sync + 'static {
    fn close(&self, session: SessionId) -> Pending<'_, ()>;
    fn claim(
        &self,
        session: SessionId,
        claim: ClaimId,
        max: usize,
        wait: Duration,
    ) -> Pending<'_, Vec<Work>>;
    fn beat(&self, session: SessionId, beats: Vec<HostBeat>) -> Pending<'_, Told>;
    /// One holder tells how far it is; concurrent calls share a transaction.
    fn tell(&self, lease_ms: Option<i64>, beat: HostBeat, actor: String) -> Pending<'_, Told>;
    fn finish(&self, session: SessionId, item: Finish) -> Pending<'_, ()>;
    fn record(&self, item: RecordStep) -> Pending<'_, Recorded>;
    fn begin(&self, item: BeginStep) -> Pending<'_, Begun>;
    /// Tells how a run of a step ended.
    fn end(&self, run: StepRun, actor: String, end: StepEnd) -> Pending<'_, ()>;
    fn park(&self, item: Park) -> Pending<'_, Parked>;
    /// `true`: approved; `false`: the task waits.
    fn ask(&self, question: Question) -> Pending<'_, bool>;
    fn submit(&self, request: SubmitRequest) -> Pending<'_, TaskId>;
    /// The next steps of a task after a place in their list, and whether there are none after them.
    fn steps(&self, task: TaskId, after: i64) -> Pending<'_, (Vec<PastStep>, bool)>;
    /// Resolves when no new work may begin.
    fn draining(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
    /// Resolves when running work is given up.
    fn abandoned(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
    fn phase(&self) -> Phase;
    /// Counts as a worker until it is dropped.
    fn count(&self) -> Box<dyn Send + Sync>;
}
