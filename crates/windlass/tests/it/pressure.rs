//! Backpressure as the engine tells it.

use crate::world::{World, claim, complete, conformance, eventually, register, submit};
use std::time::Duration;
use windlass::domain::limit::{Level, Mode, Pause, Rule, Scope};
use windlass::store::statement::Dialect;

conformance!(
    an_empty_system_is_calm,
    what_waits_is_told_without_being_asked_for,
    the_pace_of_other_nodes_counts,
    the_level_follows_the_limits,
    a_pause_of_everything_is_told,
    tasks_of_a_paused_queue_keep_nobody_waiting,
);

async fn an_empty_system_is_calm(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let told = engine.measure_pressure().await.unwrap();
    assert_eq!((told.level, engine.pressure_level()), (Level::Normal, Level::Normal));
    assert_eq!((told.active, told.queue_depth, told.estimated_wait_ms), (0, 0, Some(0)));
    assert!(told.recommendations.is_empty());
}

async fn what_waits_is_told_without_being_asked_for(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    submit(&engine, "q", |_| {}).await;
    eventually("a task waits", || async { engine.backpressure().queue_depth == 1 }).await;
    let told = engine.backpressure();
    assert_eq!(told.estimated_wait_ms, None, "nothing has moved yet");
    assert_eq!(told.recommendations, ["start a worker: tasks wait and none runs"]);
}

async fn the_pace_of_other_nodes_counts(dialect: Dialect) {
    let World { engine, place } = World::new(dialect).await;
    engine.measure_pressure().await.unwrap();
    // On an embedded database there is one node; it has to do for both.
    let other = match dialect {
        Dialect::Sqlite => engine.clone(),
        Dialect::Postgres => start_another(&place).await,
    };
    let session = register(&other, "q", 1, 60_000).await;
    for _ in 0..3 {
        submit(&other, "q", |_| {}).await;
    }
    for _ in 0..2 {
        let held = other.claim(session, claim(1, Duration::ZERO)).await.unwrap();
        complete(&other, &held[0]).await;
    }
    eventually("two have left", || async {
        let told = engine.backpressure();
        told.queue_depth == 1 && told.drained_per_second > 0.0
    })
    .await;
    assert!(engine.backpressure().estimated_wait_ms.is_some_and(|ms| ms > 0));
}

async fn the_level_follows_the_limits(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let everything = |max_active, max_pending| Rule {
        scope: Scope::Global,
        name: None,
        max_active: Some(max_active),
        max_pending: Some(max_pending),
        rate: None,
    };
    engine.put_limit(everything(1, 10), "ann").await.unwrap();
    submit(&engine, "q", |_| {}).await;
    let session = register(&engine, "q", 1, 60_000).await;
    engine.claim(session, claim(1, Duration::ZERO)).await.unwrap();
    let told = engine.measure_pressure().await.unwrap();
    assert_eq!((told.level, engine.pressure_level()), (Level::Critical, Level::Critical));
    assert_eq!((told.max_active, told.global_utilization), (Some(1), 100.0));
    engine.put_limit(everything(100, 10), "ann").await.unwrap();
    for _ in 0..6 {
        submit(&engine, "q", |_| {}).await;
    }
    let told = engine.measure_pressure().await.unwrap();
    assert_eq!((told.level, told.max_pending), (Level::Elevated, Some(10)));
}

async fn a_pause_of_everything_is_told(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let (scope, mode, reason) = (Scope::Global, Mode::Pause, Some("a move".to_owned()));
    engine.pause(Pause { scope, name: None, mode, reason }, "ann").await.unwrap();
    submit(&engine, "q", |_| {}).await;
    let told = engine.measure_pressure().await.unwrap();
    assert_eq!((told.queue_depth, told.estimated_wait_ms), (1, None));
    assert_eq!(told.recommendations.len(), 1, "no worker would help: {told:?}");
    let words = &told.recommendations[0];
    assert!(words.contains("paused by `ann`") && words.contains("(a move)"), "{words}");
    engine.resume(Scope::Global, None, "ann").await.unwrap();
    let told = engine.measure_pressure().await.unwrap();
    assert_eq!(told.recommendations, ["start a worker: tasks wait and none runs"]);
}

async fn tasks_of_a_paused_queue_keep_nobody_waiting(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let (scope, mode, name) = (Scope::Queue, Mode::Pause, Some("held".to_owned()));
    engine.pause(Pause { scope, name: name.clone(), mode, reason: None }, "ann").await.unwrap();
    for _ in 0..3 {
        submit(&engine, "held", |_| {}).await;
    }
    let told = engine.measure_pressure().await.unwrap();
    assert_eq!((told.queue_depth, told.estimated_wait_ms), (3, Some(0)));
    let words = told.recommendations.concat();
    assert!(words.starts_with("3 of the pending tasks may not begin"), "{words}");
    engine.resume(scope, name, "ann").await.unwrap();
    let told = engine.measure_pressure().await.unwrap();
    assert_eq!(told.estimated_wait_ms, None, "they wait for a worker");
    assert_eq!(told.recommendations, ["start a worker: tasks wait and none runs"]);
}

async fn start_another(place: &crate::world::Place) -> windlass::Engine {
    crate::world::start(&place.url(), windlass::Options::default()).await
}
