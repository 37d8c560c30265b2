//! Delegations on a running engine: handlers that delegate, results that arrive, the sweeper.

use crate::sdk::ended;
use crate::world::*;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use windlass::domain::agent::AgentSpec;
use windlass::domain::command::Command;
use windlass::domain::delegation::SweeperSettings;
use windlass::domain::id::TaskId;
use windlass::domain::request::{Mode, SubmitRequest};
use windlass::domain::state::State;
use windlass::engine::{MessageClaim, SWEEPER};
use windlass::sdk::{Ctx, Failure, Handlers, NewChild};
use windlass::store::message::Whose;
use windlass::store::session::Routes;
use windlass::store::statement::Dialect;
use windlass::store::task::Ask;
use windlass::worker::WorkerOptions;
use windlass::{Engine, Options};

conformance!(
    a_handler_delegates_once_and_waits_without_a_worker,
    a_delegation_that_fails_is_a_failure_of_its_handler,
    a_result_wakes_whoever_reads_the_callers_inbox,
    a_task_goes_where_its_agent_works,
    the_sweeper_looks_by_itself,
    the_sweeper_is_switched_off_by_its_name,
    a_sweep_is_asked_for_alone,
);

fn handlers() -> Handlers {
    let boss = |ctx: Ctx, n: i64| async move {
        let first: i64 = ctx.delegate("crew", &n).await?;
        let again = NewChild::callee("crew").name("again");
        let second: i64 = ctx.spawn(again, &first).await?.result().await?;
        Ok(second)
    };
    let crew = |ctx: Ctx, n: i64| async move {
        assert_eq!(ctx.task().callee.as_deref(), Some("crew"));
        assert_eq!(ctx.task().caller.as_deref(), Some("ada"));
        if n < 0 { Err(Failure::invalid_input("negative")) } else { Ok(n + 1) }
    };
    Handlers::new().on("boss", boss).on("again", crew).otherwise(crew)
}

/// One slot for both: a boss that kept it would never hear from its crew.
async fn work(engine: &Engine) -> windlass::worker::Worker {
    let queues = vec!["q".to_owned(), "crew".to_owned()];
    let routes = Routes { queues, ..Routes::default() };
    let options = WorkerOptions { name: "w".into(), routes, slots: 1, lease_ms: None };
    engine.run(options, handlers()).await.unwrap()
}

fn boss(payload: i64) -> impl Fn(&mut SubmitRequest) {
    move |request| {
        (request.name, request.agent) = (Some("boss".into()), Some("ada".into()));
        (request.payload, request.max_retries) = (json!(payload), Some(0));
    }
}

async fn a_handler_delegates_once_and_waits_without_a_worker(dialect: Dialect) {
    let world = World::new(dialect).await;
    let _worker = work(&world.engine).await;
    let id = submit(&world.engine, "q", boss(40)).await;
    let task = ended(&world.engine, id).await;
    assert_eq!(task.result, Some(json!(42)));
    let made = windlass::store::task::Filter { parent_id: Some(id), ..Default::default() };
    let order = windlass::store::task::Order::Ascending;
    let made = world.engine.tasks().list(made, order, None, 10).await.unwrap().items;
    let callers: Vec<_> = made.iter().map(|task| task.caller.as_deref()).collect();
    assert_eq!(callers, [Some("ada"), Some("ada")]);
    assert!(made.iter().all(|task| task.status == State::Completed));
}

async fn a_delegation_that_fails_is_a_failure_of_its_handler(dialect: Dialect) {
    let world = World::new(dialect).await;
    let _worker = work(&world.engine).await;
    let id = submit(&world.engine, "q", boss(-1)).await;
    let error = ended(&world.engine, id).await.error.unwrap();
    assert_eq!(error.code, "CHILD_FAILED");
    assert_eq!(error.detail.unwrap()["error"]["code"], "INVALID_INPUT");
}

fn ledger(request: &mut SubmitRequest) {
    (request.caller, request.callee) = (Some("ada".into()), Some("crew".into()));
    request.mode = Some(Mode::Ledger);
}

async fn report(engine: &Engine, id: TaskId, to: State) {
    let command = Command::Report { to, result: None, error: None, holder: "ada".into() };
    let reported = engine.report(Ask::new(id, command, "ada")).await.unwrap();
    assert_eq!((reported.status, reported.unchanged), (Some(to), None));
}

async fn a_result_wakes_whoever_reads_the_callers_inbox(dialect: Dialect) {
    let options = Options { poll: Duration::from_secs(3_600), ..Options::default() };
    let world = World::with(dialect, options).await;
    let engine = &world.engine;
    engine.put_agent("ada", AgentSpec::default(), "tester").await.unwrap();
    let id = submit(engine, "q", ledger).await;
    let claim = MessageClaim {
        whose: Whose::Agents(vec!["ada".into()]),
        handler: "h".into(),
        max: 1,
        lease_ms: None,
        wait: PATIENCE,
    };
    let waiting = engine.clone();
    let read = tokio::spawn(async move { waiting.claim_messages(claim).await.unwrap() });
    report(engine, id, State::Completed).await;
    let delivered = read.await.unwrap();
    assert_eq!(delivered[0].message.kind, "delegation_result");
    assert_eq!(delivered[0].message.payload["delegation_id"], json!(id));
}

async fn a_task_goes_where_its_agent_works(dialect: Dialect) {
    let world = World::new(dialect).await;
    let engine = &world.engine;
    let spec = AgentSpec { role: Some("crew".into()), ..AgentSpec::default() };
    engine.put_agent("bob", spec, "tester").await.unwrap();
    let request = SubmitRequest { agent: Some("bob".into()), ..SubmitRequest::default() };
    engine.know_agents(std::iter::once(&request)).await.unwrap();
    let id = TaskId(uuid::Uuid::now_v7());
    let task = engine.new_task(&request, id, "", "tester").unwrap();
    assert_eq!(task.queue, "crew");
}

fn quick() -> Options {
    let sweeper = SweeperSettings { interval_ms: 50, stuck_ms: 1 };
    Options { sweeper, ..Options::default() }
}

async fn the_sweeper_looks_by_itself(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, quick()).await;
    let id = submit(&engine, "q", ledger).await;
    report(&engine, id, State::Running).await;
    let beat = Ask::new(id, Command::ReportBeat, "ada");
    engine.report(beat).await.unwrap();
    let waited = engine.wait_for(id, PATIENCE).await.unwrap();
    assert_eq!(waited.task.status, State::Stuck);
    let stats = engine.duty_stats();
    assert!(stats.iter().any(|stats| stats.name == SWEEPER));
}

async fn the_sweeper_is_switched_off_by_its_name(dialect: Dialect) {
    let options = Options { without_duties: vec![SWEEPER.into()], ..quick() };
    let World { engine, place: _place } = World::with(dialect, options).await;
    let id = submit(&engine, "q", ledger).await;
    report(&engine, id, State::Running).await;
    engine.report(Ask::new(id, Command::ReportBeat, "ada")).await.unwrap();
    eventually("other duties ran", || async {
        engine.duty_stats().iter().any(|stats| stats.name == "leases" && stats.runs > 1)
    })
    .await;
    assert_eq!(status(&engine, id).await, State::Running);
    assert!(engine.duty_stats().iter().all(|stats| stats.name != SWEEPER));
    let swept = engine.sweep_delegations().await.unwrap();
    assert_eq!((swept.scanned, swept.marked_stuck), (1, 1), "but a person may ask for it");
}

async fn a_sweep_is_asked_for_alone(dialect: Dialect) {
    let clock = Arc::new(AtomicI64::new(NOON));
    let (engine, _place) = start_at(dialect, &clock).await;
    let id = submit(&engine, "q", ledger).await;
    let swept = engine.sweep_delegations().await.unwrap();
    assert_eq!((swept.scanned, swept.failed_deadline), (1, 0));
    clock.fetch_add(6 * 3_600_000, Ordering::SeqCst);
    engine.sweep_delegations().await.unwrap();
    assert_eq!(status(&engine, id).await, State::Failed);
}
