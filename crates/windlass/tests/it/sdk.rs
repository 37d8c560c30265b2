//! Handlers with steps, in process: what is done stays done, and what waits holds nobody.

use crate::world::*;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use windlass::Engine;
use windlass::domain::id::TaskId;
use windlass::domain::retry::Backoff;
use windlass::domain::state::State;
use windlass::domain::step::StepState;
use windlass::domain::usage::Usage;
use windlass::sdk::{Ctx, Failure, Handlers, Result, Retry, Steps};
use windlass::store::statement::Dialect;
use windlass::store::task::{Resolution, Task};
use windlass::worker::{Worker, WorkerOptions};

conformance!(
    a_handler_gets_its_input_and_its_output_is_the_result,
    a_payload_that_does_not_fit_is_invalid_input,
    a_task_without_a_handler_says_which_there_are,
    a_retried_handler_goes_past_what_is_done,
    a_repeated_step_runs_every_time,
    a_step_that_must_not_run_twice_is_in_doubt_after_a_crash,
    a_rejected_step_ends_its_task,
    a_step_is_tried_again_within_its_attempt,
    a_step_that_takes_too_long_fails,
    a_handler_that_changed_gets_step_mismatch,
    a_step_that_became_one_that_may_run_twice_is_a_mismatch,
    a_lenient_worker_does_not_mind,
    parallel_steps_may_come_in_any_order,
    a_checkpoint_and_progress_are_kept,
    what_a_handler_took_is_told_with_its_end,
    ordered_steps_go_on_where_they_stopped,
    a_cancelled_handler_is_told,
    a_handler_that_hears_of_its_cancel_by_a_call_has_its_time_too,
    more_steps_than_an_assignment_carries_are_known,
    more_bytes_than_an_assignment_carries_are_known,
);

fn options() -> WorkerOptions {
    WorkerOptions { lease_ms: Some(1_000), ..WorkerOptions::queue("sdk", "q", 4) }
}

pub(crate) async fn run(engine: &Engine, handlers: Handlers) -> Worker {
    engine.run(options(), handlers).await.unwrap()
}

pub(crate) async fn named(engine: &Engine, name: &str, payload: Value) -> TaskId {
    submit(engine, "q", |request| {
        (request.name, request.payload) = (Some(name.into()), payload.clone());
        let soon = Backoff { base_ms: 1, max_ms: 1, ..Backoff::default() };
        request.backoff = Some(soon);
    })
    .await
}

/// A task that is tried once.
pub(crate) async fn tried_once(engine: &Engine, name: &str, payload: Value) -> TaskId {
    submit(engine, "q", |request| {
        (request.name, request.payload) = (Some(name.into()), payload.clone());
        request.max_retries = Some(0);
    })
    .await
}

/// The task when it has ended.
pub(crate) async fn ended(engine: &Engine, id: TaskId) -> Task {
    let waited = engine.wait_for(id, PATIENCE).await.unwrap();
    assert!(waited.done, "{:?}", waited.task.status);
    waited.task
}

pub(crate) async fn until_status(engine: &Engine, id: TaskId, wanted: State) -> Task {
    loop {
        let task = engine.tasks().show(id).await.unwrap().unwrap();
        if task.status == wanted {
            return task;
        }
        assert!(!task.status.is_terminal(), "{:?} {:?}", task.status, task.error);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn a_handler_gets_its_input_and_its_output_is_the_result(dialect: Dialect) {
    let world = World::new(dialect).await;
    let double = |_: Ctx, n: i64| async move { Ok(n * 2) };
    let _worker = run(&world.engine, Handlers::new().on("double", double)).await;
    let id = named(&world.engine, "double", json!(21)).await;
    assert_eq!(ended(&world.engine, id).await.result, Some(json!(42)));
}

async fn a_payload_that_does_not_fit_is_invalid_input(dialect: Dialect) {
    let world = World::new(dialect).await;
    let double = |_: Ctx, n: i64| async move { Ok(n * 2) };
    let _worker = run(&world.engine, Handlers::new().on("double", double)).await;
    let id = named(&world.engine, "double", json!("x")).await;
    let task = ended(&world.engine, id).await;
    assert_eq!((task.status, task.error.unwrap().code.as_str()), (State::Failed, "INVALID_INPUT"));
}

async fn a_task_without_a_handler_says_which_there_are(dialect: Dialect) {
    let world = World::new(dialect).await;
    let one = |_: Ctx, (): ()| async move { Ok(1) };
    let _worker = run(&world.engine, Handlers::new().on("one", one)).await;
    let id = tried_once(&world.engine, "two", json!(null)).await;
    let error = ended(&world.engine, id).await.error.unwrap();
    assert_eq!(error.code, "NO_HANDLER");
    assert!(error.message.contains("it has: one"), "{}", error.message);
}

/// Counts how often each of its steps ran.
#[derive(Clone, Default)]
pub(crate) struct Ran(Arc<std::sync::Mutex<Vec<String>>>);

impl Ran {
    pub(crate) fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

async fn a_retried_handler_goes_past_what_is_done(dialect: Dialect) {
    let world = World::new(dialect).await;
    let ran = Ran::default();
    let noted = ran.clone();
    let handler = move |ctx: Ctx, (): ()| {
        let ran = noted.clone();
        async move {
            let mut sum = 0;
            for name in ["a", "b", "c"] {
                sum += ctx
                    .step(name, || async {
                        ran.note(name);
                        Ok(1)
                    })
                    .await?;
                if ctx.task().attempt == 1 && name == "b" {
                    return Err(Failure::new("TIMEOUT", "the first attempt breaks after b"));
                }
            }
            Ok(sum)
        }
    };
    let _worker = run(&world.engine, Handlers::new().on("t", handler)).await;
    let id = named(&world.engine, "t", json!(null)).await;
    let task = ended(&world.engine, id).await;
    assert_eq!((task.result, task.attempt), (Some(json!(3)), 2));
    assert_eq!(ran.all(), ["a", "b", "c"]);
    let steps = world.engine.steps().list(id, 0, 10).await.unwrap();
    let attempts: Vec<_> = steps.iter().map(|step| (step.name.as_str(), step.attempt)).collect();
    assert_eq!(attempts, [("a", 1), ("b", 1), ("c", 2)]);
}

async fn a_repeated_step_runs_every_time(dialect: Dialect) {
    let world = World::new(dialect).await;
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&ran);
    let handler = move |ctx: Ctx, (): ()| {
        let ran = Arc::clone(&counted);
        async move {
            let mut seen = Vec::new();
            for _ in 0..3 {
                let poll = || async { Ok(ran.fetch_add(1, Ordering::SeqCst)) };
                seen.push(ctx.step("poll", poll).await?);
            }
            if ctx.task().attempt == 1 {
                return Err(Failure::new("TIMEOUT", "again"));
            }
            Ok(seen)
        }
    };
    let _worker = run(&world.engine, Handlers::new().on("t", handler)).await;
    let id = named(&world.engine, "t", json!(null)).await;
    assert_eq!(ended(&world.engine, id).await.result, Some(json!([0, 1, 2])));
    assert_eq!(ran.load(Ordering::SeqCst), 3);
}

/// A handler whose first attempt dies in the middle of a step that must not run twice.
fn dies_in_charge(ran: Ran, began: Arc<Notify>) -> Handlers {
    let dead = Arc::new(AtomicBool::new(false));
    Handlers::new().on("t", move |ctx: Ctx, (): ()| {
        let (ran, began, dead) = (ran.clone(), Arc::clone(&began), Arc::clone(&dead));
        async move {
            let charge = || async {
                ran.note("charge");
                if !dead.swap(true, Ordering::SeqCst) {
                    began.notify_one();
                    std::future::pending::<()>().await;
                }
                Ok("paid".to_owned())
            };
            ctx.step("charge", charge).once().await
        }
    })
}

/// The task waits for a person, because its worker died in `charge`.
async fn in_doubt(world: &World, ran: &Ran) -> TaskId {
    let began = Arc::new(Notify::new());
    let handlers = dies_in_charge(ran.clone(), Arc::clone(&began));
    let dying = world.another(windlass::Options::default());
    // SQLite has one engine: there the worker falls silent instead.
    let id = match &world.place {
        Place::Postgres(_) => {
            let node = dying.await;
            let _worker = run(&node, handlers.clone()).await;
            let id = named(&world.engine, "t", json!(null)).await;
            began.notified().await;
            node.shutdown(Duration::ZERO).await;
            id
        }
        Place::Sqlite(_) => {
            drop(dying);
            let worker = run(&world.engine, handlers.clone()).await;
            let id = named(&world.engine, "t", json!(null)).await;
            began.notified().await;
            world.engine.close_session(worker.session()).await.unwrap();
            id
        }
    };
    let _worker = run(&world.engine, handlers).await;
    until_status(&world.engine, id, State::Waiting).await;
    assert_eq!(ran.all(), ["charge"]);
    std::mem::forget(_worker);
    id
}

async fn a_step_that_must_not_run_twice_is_in_doubt_after_a_crash(dialect: Dialect) {
    let world = World::new(dialect).await;
    let ran = Ran::default();
    let id = in_doubt(&world, &ran).await;
    let step = world.engine.steps().in_doubt(0, 10).await.unwrap().pop().unwrap();
    assert_eq!((step.task_id, step.status), (id, StepState::InDoubt));
    let resolution = Resolution::RecordResult("\"paid by hand\"".into());
    world.engine.resolve_step(step.id, resolution, "olga", None).await.unwrap();
    assert_eq!(ended(&world.engine, id).await.result, Some(json!("paid by hand")));
    assert_eq!(ran.all(), ["charge"]);
}

async fn a_rejected_step_ends_its_task(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = in_doubt(&world, &Ran::default()).await;
    let step = world.engine.steps().in_doubt(0, 10).await.unwrap().pop().unwrap();
    world.engine.resolve_step(step.id, Resolution::Fail, "olga", None).await.unwrap();
    let task = ended(&world.engine, id).await;
    assert_eq!((task.status, task.error.unwrap().code.as_str()), (State::Failed, "STEP_REJECTED"));
}

async fn a_step_is_tried_again_within_its_attempt(dialect: Dialect) {
    let world = World::new(dialect).await;
    let handler = |ctx: Ctx, once: bool| async move {
        let tried = AtomicUsize::new(0);
        let work = || async {
            match tried.fetch_add(1, Ordering::SeqCst) {
                2 => Ok("done"),
                _ => Err(Failure::new("RATE_LIMITED", "slow down").no_effect()),
            }
        };
        let work = || async { work().await.map(str::to_owned) };
        let soon = Backoff { base_ms: 1, ..Backoff::default() };
        let call = ctx.step("call", work).retry(Retry { times: 3, backoff: soon });
        if once { call.once().await } else { call.await }
    };
    let _worker = run(&world.engine, Handlers::new().on("t", handler)).await;
    for once in [false, true] {
        let id = named(&world.engine, "t", json!(once)).await;
        let task = ended(&world.engine, id).await;
        assert_eq!((task.result, task.attempt), (Some(json!("done")), 1));
    }
}

async fn a_step_that_takes_too_long_fails(dialect: Dialect) {
    let world = World::new(dialect).await;
    let handler = |ctx: Ctx, (): ()| async move {
        let forever = || async { std::future::pending::<Result<()>>().await };
        ctx.step("call", forever).timeout(Duration::from_millis(5)).await
    };
    let _worker = run(&world.engine, Handlers::new().on("t", handler)).await;
    let id = tried_once(&world.engine, "t", json!(null)).await;
    assert_eq!(ended(&world.engine, id).await.error.unwrap().code, "TIMEOUT");
}

/// The first attempt records `old`; the next ones are of a handler without it.
fn changed() -> Handlers {
    Handlers::new().on("t", |ctx: Ctx, (): ()| async move {
        if ctx.task().attempt == 1 {
            ctx.step("old", || async { Ok(1) }).await?;
            return Err(Failure::new("TIMEOUT", "again"));
        }
        ctx.step("new", || async { Ok(2) }).await
    })
}

async fn a_handler_that_changed_gets_step_mismatch(dialect: Dialect) {
    let world = World::new(dialect).await;
    let _worker = run(&world.engine, changed()).await;
    let id = named(&world.engine, "t", json!(null)).await;
    let task = ended(&world.engine, id).await;
    let error = task.error.unwrap();
    assert_eq!((task.status, error.code.as_str()), (State::Poisoned, "STEP_MISMATCH"));
    assert!(error.message.contains("`old`"), "{}", error.message);
    assert_eq!(world.engine.steps().list(id, 0, 10).await.unwrap().len(), 1);
}

/// The first attempt dies in a step that must not run twice; the next handler would run it again.
async fn a_step_that_became_one_that_may_run_twice_is_a_mismatch(dialect: Dialect) {
    let world = World::new(dialect).await;
    let ran = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&ran);
    let handler = move |ctx: Ctx, (): ()| {
        let seen = Arc::clone(&seen);
        async move {
            let work = || async {
                seen.fetch_add(1, Ordering::Relaxed);
                Err::<(), _>(Failure::new("TIMEOUT", "no answer"))
            };
            match ctx.task().attempt {
                1 => ctx.step("charge", work).once().await,
                _ => ctx.step("charge", work).await,
            }
        }
    };
    let _worker = run(&world.engine, Handlers::new().on("t", handler)).await;
    let id = named(&world.engine, "t", json!(null)).await;
    let error = ended(&world.engine, id).await.error.unwrap();
    assert_eq!(error.code, "STEP_MISMATCH");
    assert_eq!(ran.load(Ordering::Relaxed), 1);
}

async fn a_lenient_worker_does_not_mind(dialect: Dialect) {
    let world = World::new(dialect).await;
    let _worker = run(&world.engine, changed().lenient()).await;
    let id = named(&world.engine, "t", json!(null)).await;
    assert_eq!(ended(&world.engine, id).await.result, Some(json!(2)));
}

async fn parallel_steps_may_come_in_any_order(dialect: Dialect) {
    let world = World::new(dialect).await;
    let ran = Ran::default();
    let noted = ran.clone();
    let handler = move |ctx: Ctx, (): ()| {
        let ran = noted.clone();
        async move {
            let first = ctx.task().attempt == 1;
            let step = |name: &'static str| {
                let ran = ran.clone();
                let fails = first && name == "b";
                ctx.step(name, move || {
                    let ran = ran.clone();
                    async move {
                        if fails {
                            return Err(Failure::new("TIMEOUT", "b breaks"));
                        }
                        ran.note(name);
                        Ok(name.to_owned())
                    }
                })
            };
            let (a, b) = match first {
                true => {
                    ctx.parallel(async {
                        tokio::join!(step("a").into_future(), step("b").into_future())
                    })
                    .await
                }
                false => {
                    let both =
                        async { tokio::join!(step("b").into_future(), step("a").into_future()) };
                    let (b, a) = ctx.parallel(both).await;
                    (a, b)
                }
            };
            Ok(format!("{}{}", a?, b?))
        }
    };
    let _worker = run(&world.engine, Handlers::new().on("t", handler)).await;
    let id = named(&world.engine, "t", json!(null)).await;
    assert_eq!(ended(&world.engine, id).await.result, Some(json!("ab")));
    assert_eq!(ran.all(), ["a", "b"]);
}

async fn a_checkpoint_and_progress_are_kept(dialect: Dialect) {
    let world = World::new(dialect).await;
    let handler = |ctx: Ctx, (): ()| async move {
        if let Some(page) = ctx.last_checkpoint::<i64>()? {
            return Ok(page);
        }
        ctx.checkpoint(&7).await?;
        ctx.progress(&json!({"done": "half"})).await?;
        Err(Failure::new("TIMEOUT", "again"))
    };
    let _worker = run(&world.engine, Handlers::new().on("t", handler)).await;
    let id = named(&world.engine, "t", json!(null)).await;
    let task = ended(&world.engine, id).await;
    assert_eq!((task.result, task.progress), (Some(json!(7)), Some(json!({"done": "half"}))));
}

async fn what_a_handler_took_is_told_with_its_end(dialect: Dialect) {
    let world = World::new(dialect).await;
    let handler = |ctx: Ctx, (): ()| async move {
        let called = || async {
            ctx.add_usage(&Usage { total_tokens: 10, ..Usage::default() });
            Ok(1)
        };
        ctx.step("call", called).await?;
        ctx.add_usage(&Usage { total_tokens: 1, ..Usage::default() });
        if ctx.task().retry_count == 0 {
            return Err(Failure::new("TIMEOUT", "again"));
        }
        Ok(())
    };
    let _worker = run(&world.engine, Handlers::new().on("t", handler)).await;
    let id = named(&world.engine, "t", json!(null)).await;
    // The step ran in the first attempt only; each attempt took one more.
    assert_eq!(ended(&world.engine, id).await.usage.unwrap().total_tokens, 12);
}

async fn ordered_steps_go_on_where_they_stopped(dialect: Dialect) {
    let world = World::new(dialect).await;
    let ran = Ran::default();
    let noted = ran.clone();
    let handler = move |ctx: Ctx, state: Value| {
        let ran = noted.clone();
        async move {
            let step = |name: &'static str| {
                let ran = ran.clone();
                move |ctx: Ctx, state: Value| {
                    let ran = ran.clone();
                    async move {
                        if name == "c" && ctx.task().attempt == 1 {
                            return Err(Failure::new("TIMEOUT", "again"));
                        }
                        ran.note(name);
                        Ok(json!({ name: state["n"].as_i64(), "last": name }))
                    }
                }
            };
            let steps =
                Steps::new().then("a", step("a")).then_once("b", step("b")).then("c", step("c"));
            ctx.run_steps(state, &steps).await
        }
    };
    let _worker = run(&world.engine, Handlers::new().on("t", handler)).await;
    let id = named(&world.engine, "t", json!({"n": 1})).await;
    let task = ended(&world.engine, id).await;
    assert_eq!(task.result, Some(json!({"n": 1, "a": 1, "b": 1, "c": 1, "last": "c"})));
    assert_eq!(ran.all(), ["a", "b", "c"]);
    let checkpoint = task.checkpoint.unwrap();
    assert_eq!(checkpoint["step"], "c");
    assert_eq!(checkpoint["step_index"], 3);
    assert_eq!(checkpoint["completed_steps"], json!(["a", "b", "c"]));
    assert_eq!(checkpoint["state"], task.result.unwrap());
}

async fn a_cancelled_handler_is_told(dialect: Dialect) {
    let world = World::new(dialect).await;
    let (told, mut telling) = mpsc::channel(1);
    let handler = move |ctx: Ctx, (): ()| {
        let told = told.clone();
        async move {
            told.send("began").await?;
            ctx.cancelled().await;
            told.send("cleaned up").await?;
            Ok(())
        }
    };
    let _worker = run(&world.engine, Handlers::new().on("t", handler)).await;
    let id = named(&world.engine, "t", json!(null)).await;
    assert_eq!(telling.recv().await, Some("began"));
    world.engine.cancel(id, "olga", None).await.unwrap();
    assert_eq!(telling.recv().await, Some("cleaned up"));
    assert_eq!(ended(&world.engine, id).await.status, State::Cancelled);
}

/// It was dropped at once, because the call came before the heartbeat that tells of the cancel.
async fn a_handler_that_hears_of_its_cancel_by_a_call_has_its_time_too(dialect: Dialect) {
    async fn keep(ctx: &Ctx) -> Result<()> {
        loop {
            ctx.checkpoint(&1).await?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let world = World::new(dialect).await;
    let (told, mut telling) = mpsc::channel(1);
    let handler = move |ctx: Ctx, (): ()| {
        let told = told.clone();
        async move {
            told.send("began").await?;
            tokio::select! {
                failed = keep(&ctx) => return failed,
                () = ctx.cancelled() => {}
            }
            told.send("cleaned up").await?;
            Ok(())
        }
    };
    // Its heartbeats come seconds apart.
    let options = WorkerOptions::queue("sdk", "q", 4);
    let _worker = world.engine.run(options, Handlers::new().on("t", handler)).await.unwrap();
    let id = named(&world.engine, "t", json!(null)).await;
    assert_eq!(telling.recv().await, Some("began"));
    world.engine.cancel(id, "olga", None).await.unwrap();
    let told = tokio::time::timeout(Duration::from_secs(4), telling.recv()).await;
    assert_eq!(told.expect("the handler was dropped"), Some("cleaned up"));
}

async fn more_steps_than_an_assignment_carries_are_known(dialect: Dialect) {
    const STEPS: i64 = 2 * windlass::store::task::STEPS_LIMIT + 1;
    let world = World::new(dialect).await;
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&ran);
    let handler = move |ctx: Ctx, (): ()| {
        let ran = Arc::clone(&counted);
        async move {
            for n in 0..STEPS {
                let work = || async { Ok(ran.fetch_add(1, Ordering::SeqCst)) };
                ctx.step("n", work).inputs(&n).await?;
            }
            if ctx.task().attempt == 1 {
                return Err(Failure::new("TIMEOUT", "again"));
            }
            Ok(())
        }
    };
    let _worker = run(&world.engine, Handlers::new().on("t", handler)).await;
    let id = named(&world.engine, "t", json!(null)).await;
    assert_eq!(ended(&world.engine, id).await.status, State::Completed);
    assert_eq!(ran.load(Ordering::SeqCst) as i64, STEPS);
}

async fn more_bytes_than_an_assignment_carries_are_known(dialect: Dialect) {
    const STEPS: usize = 12;
    let world = World::new(dialect).await;
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&ran);
    let handler = move |ctx: Ctx, (): ()| {
        let ran = Arc::clone(&counted);
        async move {
            let mut bytes = 0;
            for n in 0..STEPS {
                let work = || async {
                    ran.fetch_add(1, Ordering::SeqCst);
                    Ok("x".repeat(900_000))
                };
                bytes += ctx.step("n", work).inputs(&n).await?.len();
            }
            if ctx.task().attempt == 1 {
                return Err(Failure::new("TIMEOUT", "again"));
            }
            Ok(bytes)
        }
    };
    let _worker = run(&world.engine, Handlers::new().on("t", handler)).await;
    let id = named(&world.engine, "t", json!(null)).await;
    assert_eq!(ended(&world.engine, id).await.result, Some(json!(STEPS * 900_000)));
    assert_eq!(ran.load(Ordering::SeqCst), STEPS);
}
