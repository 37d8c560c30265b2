//! Providers of pools: what they hold, how they lose it, and what becomes of what nobody takes.

use crate::delta::{ask, completed, end, next, post, provider};
use crate::world::{
    NOON, PATIENCE, World, claim, conformance, eventually, start_at, status, without_polling,
};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use windlass::domain::state::State;
use windlass::engine::{Assignments, StreamEvent};
use windlass::store::statement::Dialect;
use windlass::store::task::{Assignment, Finishing};

conformance!(
    a_provider_whose_stream_closes_gives_back_at_once_and_watchers_are_reset,
    a_provider_that_is_deleted_gives_back_at_once_and_watchers_are_reset,
    a_provider_that_binds_drains_what_waits_up_to_its_slots,
    an_attempt_without_a_sign_of_life_is_lost_although_its_session_lives,
    what_nobody_takes_in_time_fails_with_a_clear_message,
    what_is_finished_is_removed_when_its_time_is_over,
    a_result_and_its_usage_are_there_for_whoever_waits,
);

async fn assigned(stream: &mut Assignments) -> Assignment {
    let next = tokio::time::timeout(PATIENCE, stream.next()).await;
    match next.expect("an assignment in time") {
        Some(StreamEvent::Assign(assignment)) => *assignment,
        other => panic!("no assignment: {other:?}"),
    }
}

async fn a_provider_whose_stream_closes_gives_back_at_once_and_watchers_are_reset(
    dialect: Dialect,
) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let id = ask(&engine, "fast").await;
    let mut watching = engine.watch(id).await.unwrap();
    let mut first = engine.open_stream(provider(&engine, "fast", 1).await).await.unwrap();
    let held = assigned(&mut first).await;
    post(&engine, &held, 0, &["a"]).await;
    assert_eq!(next(&mut watching).await, "1.0 \"a\"");
    let mut second = engine.open_stream(provider(&engine, "fast", 1).await).await.unwrap();
    drop(first);
    // Nobody polls here: the lease of ten minutes has nothing to do with it.
    assert_eq!(next(&mut watching).await, "reset 1");
    let again = assigned(&mut second).await;
    assert_eq!((again.task.id, again.attempt), (id, 2));
    assert_eq!(again.task.stream_started_at, None);
    let late = engine.post_deltas(id, held.lease_id, 1, vec![json!("b")]).await.unwrap_err();
    assert_eq!(late.code(), "lease_lost");
    post(&engine, &again, 0, &["x"]).await;
    completed(&engine, &again).await;
    assert_eq!(next(&mut watching).await, "2.0 \"x\"");
    assert_eq!(next(&mut watching).await, "finished completed");
}

async fn a_provider_that_is_deleted_gives_back_at_once_and_watchers_are_reset(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let id = ask(&engine, "fast").await;
    let first = provider(&engine, "fast", 1).await;
    let held = engine.claim(first, claim(1, Duration::ZERO)).await.unwrap();
    let mut watching = engine.watch(id).await.unwrap();
    post(&engine, &held[0], 0, &["a"]).await;
    assert_eq!(next(&mut watching).await, "1.0 \"a\"");
    engine.close_session(first).await.unwrap();
    assert_eq!(next(&mut watching).await, "reset 1");
    let second = provider(&engine, "fast", 1).await;
    let again = engine.claim(second, claim(1, PATIENCE)).await.unwrap();
    completed(&engine, &again[0]).await;
    assert_eq!(next(&mut watching).await, "finished completed");
}

async fn a_provider_that_binds_drains_what_waits_up_to_its_slots(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let ids = [ask(&engine, "fast").await, ask(&engine, "fast").await, ask(&engine, "slow").await];
    ask(&engine, "fast").await;
    let mut stream = engine.open_stream(provider(&engine, "fast", 2).await).await.unwrap();
    let taken = [assigned(&mut stream).await, assigned(&mut stream).await];
    assert_eq!([taken[0].task.id, taken[1].task.id], ids[..2]);
    let third = tokio::time::timeout(Duration::from_millis(100), stream.next()).await;
    assert!(third.is_err(), "a third task for two slots");
    completed(&engine, &taken[0]).await;
    assigned(&mut stream).await;
    assert_eq!(status(&engine, ids[2]).await, State::Pending, "of another pool");
}

async fn an_attempt_without_a_sign_of_life_is_lost_although_its_session_lives(dialect: Dialect) {
    let clock = Arc::new(AtomicI64::new(NOON));
    let (engine, _place) = start_at(dialect, &clock).await;
    let id = ask(&engine, "fast").await;
    let session = provider(&engine, "fast", 1).await;
    let held = engine.claim(session, claim(1, Duration::ZERO)).await.unwrap();
    clock.fetch_add(5 * 60_000, Ordering::SeqCst);
    post(&engine, &held[0], 0, &["a"]).await;
    clock.fetch_add(10 * 60_000 - 1, Ordering::SeqCst);
    let alive = provider(&engine, "fast", 1).await;
    engine.expire_leases().await.unwrap();
    assert_eq!(status(&engine, id).await, State::Running, "ten minutes from the delta");
    clock.fetch_add(1, Ordering::SeqCst);
    engine.renew(alive).await.unwrap();
    eventually("it is lost", || async { status(&engine, id).await == State::Pending }).await;
    let task = engine.tasks().show(id).await.unwrap().unwrap();
    assert_eq!((task.release_count, task.retry_count), (1, 0));
}

async fn what_nobody_takes_in_time_fails_with_a_clear_message(dialect: Dialect) {
    let clock = Arc::new(AtomicI64::new(NOON));
    let (engine, _place) = start_at(dialect, &clock).await;
    let id = ask(&engine, "fast").await;
    let mut watching = engine.watch(id).await.unwrap();
    clock.fetch_add(60 * 60_000 - 1, Ordering::SeqCst);
    engine.time_out_pending().await.unwrap();
    assert_eq!(status(&engine, id).await, State::Pending);
    clock.fetch_add(1, Ordering::SeqCst);
    engine.time_out_pending().await.unwrap();
    assert_eq!(next(&mut watching).await, "finished failed");
    let error = engine.tasks().show(id).await.unwrap().unwrap().error.unwrap();
    assert_eq!(error.code, "PENDING_TIMEOUT");
    assert!(error.message.contains("check that its pool has providers"), "{error:?}");
}

async fn what_is_finished_is_removed_when_its_time_is_over(dialect: Dialect) {
    let clock = Arc::new(AtomicI64::new(NOON));
    let (engine, _place) = start_at(dialect, &clock).await;
    let id = ask(&engine, "fast").await;
    let session = provider(&engine, "fast", 1).await;
    let held = engine.claim(session, claim(1, Duration::ZERO)).await.unwrap();
    completed(&engine, &held[0]).await;
    // The newest transition of all is kept, so that its place is not given out again.
    ask(&engine, "fast").await;
    clock.fetch_add(7 * 24 * 60 * 60_000 - 1, Ordering::SeqCst);
    assert_eq!(engine.remove_expired().await.unwrap().changed, 0);
    clock.fetch_add(1, Ordering::SeqCst);
    assert_eq!(engine.remove_expired().await.unwrap().changed, 1);
    assert_eq!(engine.tasks().show(id).await.unwrap(), None);
}

async fn a_result_and_its_usage_are_there_for_whoever_waits(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let id = ask(&engine, "fast").await;
    let session = provider(&engine, "fast", 1).await;
    let held = engine.claim(session, claim(1, Duration::ZERO)).await.unwrap();
    let body = json!({ "choices": [], "usage": { "prompt_tokens": 3, "completion_tokens": 4 } });
    end(&engine, &held[0], Finishing::Complete(Some(body.to_string()))).await;
    let result = engine.wait_for(id, PATIENCE).await.unwrap().result().unwrap();
    let usage = windlass::domain::usage::Usage::of(&result).unwrap();
    assert_eq!((usage.prompt_tokens, usage.completion_tokens, usage.total_tokens), (3, 4, 7));
}
