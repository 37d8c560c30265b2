//! Waits of handlers, in process: they hold no worker, and what wakes them reaches them.

use crate::sdk::{Ran, ended, named, run, tried_once, until_status};
use crate::world::*;
use serde_json::{Value, json};
use std::time::Duration;
use uuid::Uuid;
use windlass::Engine;
use windlass::domain::id::{SignalId, TaskId};
use windlass::domain::state::State;
use windlass::engine::{By, DecisionRequest};
use windlass::sdk::{Ctx, Failure, Handlers, NewChild};
use windlass::store::signal::{NewSignal, Target};
use windlass::store::statement::Dialect;
use windlass::worker::WorkerOptions;

conformance!(
    a_wait_in_a_parallel_section_is_refused,
    a_sleep_holds_no_worker,
    a_signal_reaches_its_handler,
    a_signal_that_does_not_come_is_none,
    a_child_is_submitted_once_and_its_result_comes_back,
    a_child_that_fails_is_a_failure,
    an_approval_lets_the_handler_go_on,
);

async fn send(engine: &Engine, task: TaskId, name: &str, payload: Value) {
    let new = NewSignal {
        id: SignalId(Uuid::now_v7()),
        name: name.into(),
        target: Target::Task(task),
        payload: payload.to_string(),
        sent_by: "tester".into(),
    };
    engine.signal(new).await.unwrap();
}

async fn a_wait_in_a_parallel_section_is_refused(dialect: Dialect) {
    let world = World::new(dialect).await;
    let handler =
        |ctx: Ctx, (): ()| async move { ctx.parallel(ctx.sleep(Duration::from_secs(1))).await };
    let _worker = run(&world.engine, Handlers::new().on("t", handler)).await;
    let id = named(&world.engine, "t", json!(null)).await;
    assert_eq!(ended(&world.engine, id).await.error.unwrap().code, "WAIT_IN_PARALLEL");
}

async fn a_sleep_holds_no_worker(dialect: Dialect) {
    let world = World::new(dialect).await;
    let ran = Ran::default();
    let noted = ran.clone();
    let handler = move |ctx: Ctx, (): ()| {
        let ran = noted.clone();
        async move {
            let note = |what| {
                let ran = ran.clone();
                async move {
                    ran.note(what);
                    Ok(())
                }
            };
            ctx.step("before", || note("before")).await?;
            ctx.sleep(Duration::from_millis(300)).await?;
            ctx.step("after", || note("after")).await?;
            Ok(ctx.task().attempt)
        }
    };
    let options = WorkerOptions::queue("sdk", "q", 1);
    let _worker = world.engine.run(options, Handlers::new().on("t", handler)).await.unwrap();
    // One slot, three tasks asleep at once.
    let ids = [
        named(&world.engine, "t", json!(null)).await,
        named(&world.engine, "t", json!(null)).await,
        named(&world.engine, "t", json!(null)).await,
    ];
    for id in ids {
        assert_eq!(ended(&world.engine, id).await.result, Some(json!(2)));
    }
    assert_eq!(ran.all()[..3], ["before", "before", "before"]);
    let story = world.engine.tasks().history(ids[0], 0, 100).await.unwrap();
    let story: Vec<_> = story.iter().map(|h| h.event.as_str()).collect();
    assert_eq!(story, ["submit", "claim", "wait", "wake", "claim", "complete"]);
}

fn asks() -> Handlers {
    Handlers::new().on("t", |ctx: Ctx, (): ()| async move {
        let first: i64 = ctx.wait_signal("number").await?;
        let second: i64 = ctx.wait_signal("number").await?;
        Ok(first * 10 + second)
    })
}

async fn a_signal_reaches_its_handler(dialect: Dialect) {
    let world = World::with(dialect, without_polling()).await;
    let _worker = run(&world.engine, asks()).await;
    let id = named(&world.engine, "t", json!(null)).await;
    until_status(&world.engine, id, State::Waiting).await;
    for n in [4, 2] {
        send(&world.engine, id, "number", json!(n)).await;
    }
    assert_eq!(ended(&world.engine, id).await.result, Some(json!(42)));
}

#[test]
fn a_signal_sent_to_another_node_wakes_the_worker_at_once() {
    // Once it was only told that something had happened, and the worker came by a second later.
    crate::world::run(from_another_node, Dialect::Postgres);
}

async fn from_another_node(dialect: Dialect) {
    let world = World::with(dialect, without_polling()).await;
    let other = world.another(without_polling()).await;
    let hear = || async { world.engine.store().hears() && other.store().hears() };
    crate::world::eventually("the nodes hear each other", hear).await;
    let _worker = run(&world.engine, asks()).await;
    let id = named(&world.engine, "t", json!(null)).await;
    until_status(&world.engine, id, State::Waiting).await;
    send(&other, id, "number", json!(4)).await;
    until_status(&world.engine, id, State::Waiting).await;
    send(&other, id, "number", json!(2)).await;
    assert_eq!(ended(&world.engine, id).await.result, Some(json!(42)));
}

async fn a_signal_that_does_not_come_is_none(dialect: Dialect) {
    let world = World::new(dialect).await;
    let handler = |ctx: Ctx, (): ()| async move {
        ctx.wait_signal::<i64>("number").within(Duration::from_millis(20)).await
    };
    let _worker = run(&world.engine, Handlers::new().on("t", handler)).await;
    let id = named(&world.engine, "t", json!(null)).await;
    assert_eq!(ended(&world.engine, id).await.result, Some(Value::Null));
}

fn parent_and_child(ran: Ran) -> Handlers {
    let parent = |ctx: Ctx, n: i64| async move {
        let child = ctx.spawn::<i64>(NewChild::queue("q").name("child"), &n).await?;
        child.result().await
    };
    let child = move |ctx: Ctx, n: i64| {
        ran.note(format!("{}", ctx.task().parent_id.is_some()));
        async move { if n < 0 { Err(Failure::invalid_input("negative")) } else { Ok(n + 1) } }
    };
    Handlers::new().on("parent", parent).on("child", child)
}

async fn a_child_is_submitted_once_and_its_result_comes_back(dialect: Dialect) {
    let world = World::with(dialect, without_polling()).await;
    let ran = Ran::default();
    let _worker = run(&world.engine, parent_and_child(ran.clone())).await;
    let id = named(&world.engine, "parent", json!(41)).await;
    let task = ended(&world.engine, id).await;
    assert_eq!(task.result, Some(json!(42)));
    assert_eq!(ran.all(), ["true"]);
}

async fn a_child_that_fails_is_a_failure(dialect: Dialect) {
    let world = World::new(dialect).await;
    let _worker = run(&world.engine, parent_and_child(Ran::default())).await;
    let id = tried_once(&world.engine, "parent", json!(-1)).await;
    let error = ended(&world.engine, id).await.error.unwrap();
    assert_eq!(error.code, "CHILD_FAILED");
    assert_eq!(error.detail.unwrap()["error"]["code"], "INVALID_INPUT");
}

async fn an_approval_lets_the_handler_go_on(dialect: Dialect) {
    let world = World::new(dialect).await;
    let ran = Ran::default();
    let noted = ran.clone();
    let handler = move |ctx: Ctx, (): ()| {
        let ran = noted.clone();
        async move {
            ctx.approve("publish", "publish the report", &json!({"to": "everybody"})).await?;
            ran.note("published");
            ctx.step("publish", || async { Ok(true) }).once().await
        }
    };
    let _worker = run(&world.engine, Handlers::new().on("t", handler)).await;
    let id = named(&world.engine, "t", json!(null)).await;
    until_status(&world.engine, id, State::WaitingForApproval).await;
    assert_eq!(ran.all(), Vec::<String>::new());
    let filter = windlass::store::approval::Filter { task_id: Some(id), ..Default::default() };
    let open = world.engine.approvals().list(filter, None, 10).await.unwrap().0.pop().unwrap();
    let by = By::Operator { approval: open.id, actor: "olga".into() };
    let choice = windlass::domain::approval::Choice::Approve;
    let decision = DecisionRequest { by, choice, comment: None, digest: None };
    world.engine.decide_approval(decision).await.unwrap();
    assert_eq!(ended(&world.engine, id).await.result, Some(json!(true)));
    assert_eq!(ran.all(), ["published"]);
}
