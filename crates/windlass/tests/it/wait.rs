//! Waiting for a task's end.

use crate::world::{
    PATIENCE, World, claim, conformance, finish, register, submit, without_polling,
};
use std::time::Duration;
use windlass::domain::failure::TaskError;
use windlass::domain::id::TaskId;
use windlass::domain::state::State;
use windlass::engine::Error;
use windlass::store::statement::Dialect;
use windlass::store::task::Finishing;

conformance!(
    a_wait_ends_at_once_when_the_task_has_ended,
    a_wait_is_woken_by_the_end,
    a_wait_says_how_the_task_ended,
    a_wait_for_an_unknown_task_is_refused,
    a_wait_ends_with_its_time_and_shows_the_task,
);

async fn a_wait_ends_at_once_when_the_task_has_ended(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let id = submit(&engine, "q", |_| {}).await;
    engine.cancel(id, "tester", Some("no longer needed".into())).await.unwrap();
    let waited = engine.wait_for(id, PATIENCE).await.unwrap();
    assert!(waited.done);
    assert_eq!(waited.task.status, State::Cancelled);
}

async fn a_wait_is_woken_by_the_end(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let session = register(&engine, "q", 1, 60_000).await;
    let id = submit(&engine, "q", |_| {}).await;
    let waiting = engine.clone();
    let waited = tokio::spawn(async move { waiting.wait_for(id, PATIENCE).await });
    let held = engine.claim(session, claim(1, Duration::ZERO)).await.unwrap();
    let how = Finishing::Complete(Some("{\"n\":1}".into()));
    engine.finish(vec![finish(&held[0], how)]).await.pop().unwrap().unwrap();
    let waited = waited.await.unwrap().unwrap();
    assert_eq!(waited.result().unwrap(), serde_json::json!({ "n": 1 }));
    assert_eq!(engine.open_waits(), 0);
}

async fn a_wait_says_how_the_task_ended(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let session = register(&engine, "q", 1, 60_000).await;
    let cancelled = submit(&engine, "other", |_| {}).await;
    engine.cancel(cancelled, "tester", None).await.unwrap();
    let told = engine.wait_for(cancelled, PATIENCE).await.unwrap().result().unwrap_err();
    assert!(matches!(told, Error::TaskEnded(State::Cancelled, _)), "{told}");

    let failed = submit(&engine, "q", |_| {}).await;
    let held = engine.claim(session, claim(1, Duration::ZERO)).await.unwrap();
    let error = TaskError::new("INVALID_INPUT", "no such address");
    let how = Finishing::Fail { error, retry_after_ms: None, chance: 0.5 };
    engine.finish(vec![finish(&held[0], how)]).await.pop().unwrap().unwrap();
    let told = engine.wait_for(failed, PATIENCE).await.unwrap().result().unwrap_err();
    assert!(told.to_string().contains("INVALID_INPUT no such address"), "{told}");

    let pending = submit(&engine, "other", |_| {}).await;
    let told = engine.wait_for(pending, Duration::ZERO).await.unwrap().result().unwrap_err();
    assert!(matches!(told, Error::WaitTimedOut), "{told}");
}

async fn a_wait_for_an_unknown_task_is_refused(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let told = engine.wait_for(TaskId(uuid::Uuid::now_v7()), PATIENCE).await.unwrap_err();
    assert_eq!(told.code(), "not_found");
}

async fn a_wait_ends_with_its_time_and_shows_the_task(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let id = submit(&engine, "q", |_| {}).await;
    let waited = engine.wait_for(id, Duration::from_millis(50)).await.unwrap();
    assert!(!waited.done);
    assert_eq!(waited.task.status, State::Pending);
    assert_eq!(engine.open_waits(), 0);
}
