//! An engine over an empty database, on either engine.

use crate::cluster::TestDatabase;
use crate::template;
use serde_json::json;
use std::future::Future;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;
use tempfile::TempDir;
use uuid::Uuid;
use windlass::domain::id::{ChangeId, ClaimId, SessionId, TaskId};
use windlass::domain::request::SubmitRequest;
use windlass::domain::state::State;
use windlass::domain::validate;
use windlass::engine::{ClaimRequest, SessionRequest};
use windlass::store::clock::Clock;
use windlass::store::session::Routes;
use windlass::store::statement::Dialect;
use windlass::store::store::Store;
use windlass::store::task::{Assignment, Finish, Finishing};
use windlass::store::{self, migration};
use windlass::{Engine, Options};

/// How long a fact may take before it is called untrue.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub enum Place {
    Sqlite(TempDir),
    Postgres(TestDatabase),
}

pub struct World {
    pub engine: Engine,
    pub place: Place,
}

/// Options whose polling cannot be the reason that something happened in time.
pub fn without_polling() -> Options {
    Options { poll: Duration::from_secs(3_600), ..Options::default() }
}

impl World {
    pub async fn new(dialect: Dialect) -> World {
        World::with(dialect, Options::default()).await
    }

    pub async fn with(dialect: Dialect, options: Options) -> World {
        let place = Place::with_schema(dialect);
        let engine = start(&place.url(), options).await;
        World { engine, place }
    }

    /// Another node on the same database.
    pub async fn another(&self, options: Options) -> Engine {
        start(&self.place.url(), options).await
    }
}

impl Place {
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

    pub fn url(&self) -> String {
        match self {
            Place::Sqlite(folder) => format!("sqlite:{}", file(folder).display()),
            Place::Postgres(database) => database.url(),
        }
    }

    /// What somebody writes past the service.
    pub fn by_hand(&self, sql: &str) {
        let written = match self {
            Place::Sqlite(folder) => {
                let patience = ["-cmd", ".timeout 10000"];
                Command::new("sqlite3").args(patience).arg(file(folder)).arg(sql).status()
            }
            Place::Postgres(database) => {
                Command::new("psql").args(["-q", "-d", &database.url(), "-c", sql]).status()
            }
        };
        assert!(written.unwrap().success(), "{sql}");
    }
}

/// Whoever submits waits until this is opened.
pub struct Gate(Child);

impl Gate {
    pub fn open(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Place {
    /// From now on submits to PostgreSQL wait: somebody else's transaction stands before them.
    pub fn stop_submits(&self) -> Gate {
        let Place::Postgres(database) = self else { panic!("SQLite's writer waits for nobody") };
        let sql = "BEGIN; LOCK TABLE task_spec IN SHARE MODE;\nSELECT 'stopped';\n";
        let mut command = Command::new("psql");
        command.args(["-qtA", "-d", &database.url()]);
        let mut gate = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        gate.stdin.as_mut().unwrap().write_all(sql.as_bytes()).unwrap();
        let mut told = String::new();
        BufReader::new(gate.stdout.as_mut().unwrap()).read_line(&mut told).unwrap();
        assert_eq!(told.trim(), "stopped");
        Gate(gate)
    }
}

fn file(folder: &TempDir) -> PathBuf {
    folder.path().join("w.db")
}

pub async fn start(url: &str, options: Options) -> Engine {
    let store = windlass::database::open(url).unwrap();
    migration::up(&store).await.unwrap();
    Engine::start(store, options).await.unwrap()
}

/// Where the clocks of tests begin that have them in their hands.
pub const NOON: i64 = 1_769_860_800_000;

/// An engine over an empty database whose clock is in the test's hand.
pub async fn start_at(dialect: Dialect, clock: &Arc<AtomicI64>) -> (Engine, Place) {
    let fixed = Clock::Fixed(Arc::clone(clock));
    let place = Place::with_schema(dialect);
    let store = match &place {
        Place::Sqlite(folder) => {
            let options = store::sqlite::Options { clock: fixed, ..Default::default() };
            Store::new(store::sqlite::open(file(folder), options).unwrap())
        }
        Place::Postgres(database) => {
            let options = store::postgres::Options { clock: fixed, ..Default::default() };
            Store::new(store::postgres::open(&database.url(), options).unwrap())
        }
    };
    migration::up(&store).await.unwrap();
    (Engine::start(store, Options::default()).await.unwrap(), place)
}

/// Runs a fact; it must end.
pub fn run<F: Future<Output = ()>>(fact: fn(Dialect) -> F, dialect: Dialect) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let done = tokio::time::timeout(PATIENCE * 3, fact(dialect)).await;
        assert!(done.is_ok(), "the fact did not come true in time");
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
}

/// Turns each fact into two tests: it is written once and holds on both databases.
macro_rules! conformance {
    ($($fact:ident),* $(,)?) => {
        mod sqlite {
            $(#[test] fn $fact() {
                crate::world::run(super::$fact, windlass::store::statement::Dialect::Sqlite);
            })*
        }
        mod postgres {
            $(#[test] fn $fact() {
                crate::world::run(super::$fact, windlass::store::statement::Dialect::Postgres);
            })*
        }
    };
}
pub(crate) use conformance;

/// Submits a job to a queue.
pub async fn submit(engine: &Engine, queue: &str, change: impl Fn(&mut SubmitRequest)) -> TaskId {
    let mut request = SubmitRequest {
        queue: Some(queue.into()),
        payload: json!({ "hello": "world" }),
        ..SubmitRequest::default()
    };
    change(&mut request);
    let task = validate::new_task(&request, TaskId(Uuid::now_v7()), "", "tester").unwrap();
    let outcome = engine.submit(vec![task]).await.pop().unwrap();
    outcome.unwrap().id
}

/// Registers a worker of one queue.
pub async fn register(engine: &Engine, queue: &str, slots: i32, lease_ms: i64) -> SessionId {
    let request = SessionRequest {
        name: "worker".into(),
        routes: Routes { queues: vec![queue.into()], ..Routes::default() },
        slots: Some(slots),
        lease_ms: Some(lease_ms),
        ..SessionRequest::default()
    };
    engine.register(request).await.unwrap().id
}

pub fn claim(max: usize, wait: Duration) -> ClaimRequest {
    let claim = Some(ClaimId(Uuid::now_v7()));
    ClaimRequest { max, wait, start: true, claim, tasks: None }
}

/// The end of an attempt.
pub fn finish(assignment: &Assignment, how: Finishing) -> Finish {
    Finish {
        task: assignment.task.id,
        lease: assignment.lease_id,
        how,
        usage: None,
        actor: "tester".into(),
        reason: None,
        change: ChangeId(Uuid::now_v7()),
    }
}

pub async fn complete(engine: &Engine, assignment: &Assignment) -> State {
    let how = Finishing::Complete(Some("true".into()));
    engine.finish(vec![finish(assignment, how)]).await.pop().unwrap().unwrap()
}

pub async fn status(engine: &Engine, task: TaskId) -> State {
    engine.tasks().show(task).await.unwrap().unwrap().status
}

/// What happened to a task, as words.
pub async fn story(engine: &Engine, task: TaskId) -> Vec<String> {
    let history = engine.tasks().history(task, 0, 100).await.unwrap();
    history.iter().map(|h| format!("{} {}", h.event, h.to_status)).collect()
}

/// Waits until something is true.
pub async fn eventually<F: Future<Output = bool>>(what: &str, is: impl Fn() -> F) {
    let until = tokio::time::Instant::now() + PATIENCE;
    while !is().await {
        assert!(tokio::time::Instant::now() < until, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
