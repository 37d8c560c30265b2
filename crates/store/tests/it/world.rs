//! A store with an empty schema and a clock in the test's hand, on either engine.
//!
//! `conformance!` turns each fact into two tests: a fact is written once and holds on both.

use crate::cluster::TestDatabase;
use crate::template;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tempfile::TempDir;
use uuid::Uuid;
use windlass_domain::approval::{Choice, Question, QuestionRequest};
use windlass_domain::command::Command as Ask;
use windlass_domain::id::{ApprovalId, ChangeId, ClaimId, TaskId};
use windlass_domain::pins::Serves;
use windlass_domain::profile::Profile;
use windlass_domain::request::SubmitRequest;
use windlass_domain::state::State;
use windlass_domain::task::NewTask;
use windlass_domain::time::Timestamp;
use windlass_domain::validate;
use windlass_store::approval::{Approval, Approvals, Asking, Decided, Deciding, Right};
use windlass_store::clock::Clock;
use windlass_store::error::Rejection;
use windlass_store::group::Outcome;
use windlass_store::migration;
use windlass_store::postgres;
use windlass_store::sqlite;
use windlass_store::statement::Dialect;
use windlass_store::store::Store;
use windlass_store::task::{
    Assignment, Beat, Claim, Finish, Finishing, Start, Submitted, Task, Tasks,
};

/// Noon of some day.
pub const NOON: i64 = 1_769_860_800_000;

pub struct World {
    pub tasks: Tasks,
    pub store: Store,
    pub place: Place,
    clock: Option<Arc<AtomicI64>>,
}

pub enum Place {
    Sqlite(TempDir),
    Postgres(TestDatabase),
}

impl World {
    /// With the test's clock at noon.
    pub async fn new(dialect: Dialect) -> World {
        World::with_clock(dialect, Some(Arc::new(AtomicI64::new(NOON)))).await
    }

    /// With the database's own clock.
    pub async fn with_real_clock(dialect: Dialect) -> World {
        World::with_clock(dialect, None).await
    }

    /// With a clock that several worlds share, and without waiting for the disk: for runs of
    /// thousands of commands that are not about crashes.
    pub async fn quick(dialect: Dialect, clock: Arc<AtomicI64>) -> World {
        let place = Place::with_schema(dialect);
        let shared = Clock::Fixed(Arc::clone(&clock));
        let store = match &place {
            Place::Sqlite(folder) => {
                let synchronous = sqlite::Synchronous::Normal;
                let options = sqlite::Options { clock: shared, synchronous, ..Default::default() };
                Store::new(sqlite::open(file(folder), options).unwrap())
            }
            Place::Postgres(database) => {
                let options = postgres::Options {
                    clock: shared,
                    synchronous_commit: postgres::SynchronousCommit::Off,
                    unsafe_durability: true,
                    ..Default::default()
                };
                Store::new(postgres::open(&database.url(), options).unwrap())
            }
        };
        migration::up(&store).await.unwrap();
        World { tasks: Tasks::new(store.clone()), store, place, clock: Some(clock) }
    }

    /// Without any schema yet.
    pub fn empty(dialect: Dialect) -> World {
        World::at(Place::new(dialect), None)
    }

    async fn with_clock(dialect: Dialect, clock: Option<Arc<AtomicI64>>) -> World {
        let world = World::at(Place::with_schema(dialect), clock);
        migration::up(&world.store).await.unwrap();
        world
    }

    fn at(place: Place, clock: Option<Arc<AtomicI64>>) -> World {
        let store = place.open(clock.clone());
        World { tasks: Tasks::new(store.clone()), store, place, clock }
    }

    pub fn dialect(&self) -> Dialect {
        self.store.dialect()
    }

    pub fn now(&self) -> Timestamp {
        let clock = self.clock.as_ref().expect("a world with the test's clock");
        Timestamp::from_ms(clock.load(Ordering::SeqCst))
    }

    pub fn set_now(&self, now: Timestamp) {
        let clock = self.clock.as_ref().expect("a world with the test's clock");
        clock.store(now.as_ms(), Ordering::SeqCst);
    }

    pub fn pass_ms(&self, ms: i64) {
        self.set_now(self.now().plus_ms(ms));
    }

    /// Runs SQL as a person would, with psql or sqlite3: the answer, or the database's words.
    pub fn by_hand(&self, sql: &str) -> Result<String, String> {
        let output = match &self.place {
            Place::Postgres(database) => Command::new("psql")
                .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &database.url()])
                .args(["-c", sql])
                .output(),
            Place::Sqlite(folder) => {
                // It waits for the writer, as a person would.
                let patience = ["-bail", "-cmd", ".timeout 10000"];
                Command::new("sqlite3").args(patience).arg(file(folder)).arg(sql).output()
            }
        };
        let output = output.expect("psql and sqlite3 are installed");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    pub async fn submit(&self, task: NewTask) -> TaskId {
        self.submit_all(vec![task]).await.pop().unwrap().unwrap().id
    }

    pub async fn submit_all(&self, tasks: Vec<NewTask>) -> Vec<Outcome<Submitted>> {
        self.tasks.submit(tasks).await
    }

    pub async fn claim(&self, session: &str, max: usize) -> Vec<Assignment> {
        self.tasks.claim(claim_of(session, &["q"], max)).await.unwrap()
    }

    /// A running task and its lease.
    pub async fn running(&self, task: NewTask) -> Assignment {
        let (queue, profile) = (task.queue.clone(), task.profile);
        self.submit(task).await;
        let mut claim = claim_of("w1", &[&queue], 1);
        claim.profiles = vec![profile];
        claim.start = true;
        self.tasks.claim(claim).await.unwrap().pop().expect("a ready task")
    }

    pub async fn finish(&self, held: &Assignment, how: Finishing) -> Outcome<State> {
        self.tasks.finish(vec![finish_of(held, how)]).await.pop().unwrap()
    }

    pub async fn start(&self, held: &Assignment) -> Outcome<State> {
        let item = Start {
            task: held.task.id,
            lease: held.lease_id,
            actor: "w1".into(),
            change: ChangeId(Uuid::now_v7()),
        };
        self.tasks.start(vec![item]).await.pop().unwrap()
    }

    pub async fn beat(&self, held: &Assignment) -> Outcome<Option<Timestamp>> {
        let outcome = self.tasks.heartbeat(vec![beat_of(held)]).await.pop().unwrap();
        outcome.map(|beaten| beaten.lease_expires_at)
    }

    pub async fn ask(&self, task: TaskId, command: Ask) -> Outcome<State> {
        self.tasks.ask(windlass_store::task::Ask::new(task, command, "tester")).await
    }

    /// A heartbeat that may tell how far the holder is; JSON text.
    pub async fn tell(
        &self,
        held: &Assignment,
        checkpoint: Option<&str>,
        progress: Option<&str>,
    ) -> Outcome<Option<Timestamp>> {
        let (checkpoint, progress) = (checkpoint.map(Into::into), progress.map(Into::into));
        let beat = Beat { checkpoint, progress, ..beat_of(held) };
        let outcome = self.tasks.heartbeat(vec![beat]).await.pop().unwrap();
        outcome.map(|beaten| beaten.lease_expires_at)
    }

    pub async fn cancel(&self, task: TaskId) -> Outcome<State> {
        self.tasks.cancel(task, "operator", Some("no longer needed".into())).await
    }

    /// Opens an approval as a person would and parks the task on it.
    pub async fn ask_approval(&self, held: &Assignment) -> Outcome<ApprovalId> {
        let (lease_id, approval_id) = (held.lease_id, ApprovalId(Uuid::now_v7()));
        let question = Box::new(question("gate", Some(60_000)));
        let command = Ask::AskApproval { lease_id, approval_id, question };
        self.ask(held.task.id, command).await.map(|_| approval_id)
    }

    pub fn approvals(&self) -> Approvals {
        Approvals::new(self.tasks.clone())
    }

    /// Asks as a worker would, and parks.
    pub async fn asked(&self, held: &Assignment, question: Question) -> Approval {
        let asked = self.approvals().ask(asking(held, question)).await.unwrap();
        assert!(asked.parked);
        asked.approval
    }

    /// An operator's voice.
    pub async fn vote(
        &self,
        approval: ApprovalId,
        actor: &str,
        choice: Choice,
    ) -> Outcome<Decided> {
        self.approvals().decide(deciding(approval, actor, choice)).await
    }

    pub async fn show(&self, task: TaskId) -> Task {
        self.tasks.show(task).await.unwrap().expect("the task")
    }

    pub async fn status(&self, task: TaskId) -> State {
        self.show(task).await.status
    }

    /// `event:to` of each transition, oldest first.
    pub async fn story(&self, task: TaskId) -> Vec<String> {
        let history = self.tasks.history(task, 0, 1_000).await.unwrap();
        history.iter().map(|h| format!("{}:{}", h.event, h.to_status)).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.store.close();
    }
}

impl Place {
    /// A database without a schema.
    pub fn new(dialect: Dialect) -> Place {
        match dialect {
            Dialect::Sqlite => Place::Sqlite(tempfile::tempdir().unwrap()),
            Dialect::Postgres => Place::Postgres(TestDatabase::create()),
        }
    }

    /// A database that has the schema already.
    fn with_schema(dialect: Dialect) -> Place {
        match dialect {
            Dialect::Sqlite => {
                let folder = tempfile::tempdir().unwrap();
                template::sqlite(&file(&folder));
                Place::Sqlite(folder)
            }
            Dialect::Postgres => Place::Postgres(template::postgres()),
        }
    }

    /// Opens the database once more, as another process would.
    pub fn open(&self, clock: Option<Arc<AtomicI64>>) -> Store {
        let clock = clock.map_or(Clock::System, Clock::Fixed);
        match self {
            Place::Sqlite(folder) => {
                let options = sqlite::Options { clock, ..sqlite::Options::default() };
                Store::new(sqlite::open(file(folder), options).unwrap())
            }
            Place::Postgres(database) => {
                let options = postgres::Options { clock, ..postgres::Options::default() };
                Store::new(postgres::open(&database.url(), options).unwrap())
            }
        }
    }
}

pub fn file(folder: &TempDir) -> std::path::PathBuf {
    folder.path().join("windlass.db")
}

/// A question at a gate, asked by nobody in particular.
pub fn question(gate: &str, expires_ms: Option<i64>) -> Question {
    let request = QuestionRequest {
        gate: gate.into(),
        action: "deploy".into(),
        arguments: serde_json::json!({ "to": "production" }),
        expires_ms,
        ..QuestionRequest::default()
    };
    request.validate("").unwrap()
}

/// A job in queue `q`.
pub fn job() -> NewTask {
    task(|_| {})
}

pub fn job_id(id: TaskId) -> NewTask {
    task(|r| r.id = Some(id))
}

/// A job in queue `q`, changed.
pub fn task(change: impl FnOnce(&mut SubmitRequest)) -> NewTask {
    let mut request = SubmitRequest {
        queue: Some("q".into()),
        payload: serde_json::json!({ "n": 1 }),
        ..SubmitRequest::default()
    };
    change(&mut request);
    let id = request.id.unwrap_or(TaskId(Uuid::now_v7()));
    validate::new_task(&request, id, "", "tester").unwrap()
}

pub fn delegation(change: impl FnOnce(&mut SubmitRequest)) -> NewTask {
    task(|r| {
        r.kind = Some(windlass_domain::profile::Kind::Delegation);
        r.caller = Some("boss".into());
        r.callee = Some("crew".into());
        change(r);
    })
}

pub fn ledger() -> NewTask {
    delegation(|r| r.mode = Some(windlass_domain::request::Mode::Ledger))
}

pub fn inference() -> NewTask {
    inference_with(|_| {})
}

/// An inference in queue `q`, changed.
pub fn inference_with(change: impl FnOnce(&mut SubmitRequest)) -> NewTask {
    task(|r| {
        r.kind = Some(windlass_domain::profile::Kind::Inference);
        r.pool = Some("fast".into());
        change(r);
    })
}

pub fn claim_of(session: &str, queues: &[&str], max: usize) -> Claim {
    Claim {
        claim: ClaimId(Uuid::now_v7()),
        may_repeat: true,
        session: session.into(),
        worker_type: None,
        queues: queues.iter().map(|q| (*q).to_owned()).collect(),
        profiles: vec![Profile::Job, Profile::Delegation, Profile::Inference],
        serves: Serves::default(),
        max,
        lease_ms: None,
        start: false,
    }
}

pub fn asking(held: &Assignment, question: Question) -> Asking {
    Asking {
        id: ApprovalId(Uuid::now_v7()),
        task: held.task.id,
        lease: held.lease_id,
        question,
        checkpoint: None,
        actor: "w1".into(),
        change: ChangeId(Uuid::now_v7()),
        announce: None,
    }
}

pub fn deciding(approval: ApprovalId, actor: &str, choice: Choice) -> Deciding {
    Deciding {
        right: Right::Key { approval, actor: actor.into() },
        choice,
        comment: None,
        digest: None,
        vote: Uuid::now_v7(),
        change: ChangeId(Uuid::now_v7()),
        audit_unknown: true,
        audit_known: true,
    }
}

pub fn finish_of(held: &Assignment, how: Finishing) -> Finish {
    Finish {
        task: held.task.id,
        lease: held.lease_id,
        how,
        usage: None,
        actor: "w1".into(),
        reason: None,
        change: ChangeId(Uuid::now_v7()),
    }
}

pub fn beat_of(held: &Assignment) -> Beat {
    Beat {
        task: held.task.id,
        lease: held.lease_id,
        lease_ms: None,
        checkpoint: None,
        progress: None,
        actor: "w1".into(),
        change: ChangeId(Uuid::now_v7()),
    }
}

pub fn complete() -> Finishing {
    Finishing::Complete(Some("{\"ok\":true}".into()))
}

pub fn fail(code: &str) -> Finishing {
    let error = windlass_domain::failure::TaskError::new(code, "it broke");
    Finishing::Fail { error, retry_after_ms: None, chance: 0.5 }
}

/// The code of a refusal.
pub fn refused<T: std::fmt::Debug>(outcome: Outcome<T>) -> &'static str {
    match outcome {
        Err(Rejection::Refused(refusal)) => refusal.code(),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

/// Runs a fact to its end on a runtime of its own.
pub fn run<F: Future<Output = ()>>(fact: impl FnOnce(Dialect) -> F, dialect: Dialect) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(fact(dialect));
}

/// Makes two tests of each fact: `async fn fact(dialect: Dialect)`.
macro_rules! conformance {
    ($($fact:ident),* $(,)?) => {
        mod sqlite {
            $(#[test] fn $fact() {
                crate::world::run(super::$fact, windlass_store::statement::Dialect::Sqlite);
            })*
        }
        crate::world::on_postgres!($($fact),*);
    };
}
pub(crate) use conformance;

/// Facts that only PostgreSQL can have.
macro_rules! on_postgres {
    ($($fact:ident),* $(,)?) => {
        mod postgres {
            $(#[test] fn $fact() {
                crate::world::run(super::$fact, windlass_store::statement::Dialect::Postgres);
            })*
        }
    };
}
pub(crate) use on_postgres;
