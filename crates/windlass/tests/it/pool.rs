//! Providers of pools: what they hold, how they lose it, and what becomes of what nobody takes.

use crate::delta::{ask, completed, end, next, post, provider};
use crate::world::{
    NOON, PATIENCE, World, claim, conformance, eventually, start_at, status, without_polling,
};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use windlass::Options;
use windlass::domain::state::State;
use windlass::engine::{Assignments, StreamEvent, Watched};
use windlass::store::statement::Dialect;
use windlass::store::task::{Assignment, Finishing};

conformance!(
    a_provider_whose_stream_closes_gives_back_at_once_and_watchers_are_reset,
    a_claim_that_waits_gets_nothing_of_what_its_lost_provider_gives_back,
    a_provider_that_is_deleted_gives_back_at_once_and_watchers_are_reset,
    a_provider_that_binds_drains_what_waits_up_to_its_slots,
    an_attempt_without_a_sign_of_life_is_lost_although_its_session_lives,
    what_nobody_takes_in_time_fails_with_a_clear_message,
    what_is_finished_is_removed_when_its_time_is_over,
    what_is_finished_is_removed_after_the_configured_time,
    a_result_and_its_usage_are_there_for_whoever_waits,
    an_inference_is_in_line_as_soon_as_it_is_asked,
    of_many_providers_that_claim_at_once_one_gets_it,
    a_provider_completes_fails_or_loses_to_a_cancel,
    the_same_end_twice_is_one_end_and_another_is_refused,
    whoever_waits_for_what_has_ended_is_answered_at_once,
    whoever_waits_is_woken_by_the_end,
    whoever_waits_gets_the_deltas_meanwhile_and_the_body_at_the_end,
    whoever_waits_for_what_is_cancelled_is_told_so,
    whoever_waits_for_what_fails_gets_the_providers_words,
    whoever_waits_too_short_is_told_so_and_nothing_is_lost,
    two_thousand_watchers_are_all_answered_once_although_the_only_provider_dies,
);

async fn assigned(stream: &mut Assignments) -> Assignment {
    let next = tokio::time::timeout(PATIENCE, stream.next()).await;
    match next.expect("an assignment in time") {
        Some(StreamEvent::Assign(assignment)) => *assignment,
        other => panic!("no assignment: {other:?}"),
    }
}

/// The connection of a killed provider's claim may not be known to be over yet.
async fn a_claim_that_waits_gets_nothing_of_what_its_lost_provider_gives_back(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let session = provider(&engine, "fast", 2).await;
    let presence = engine.open_presence(session).await.unwrap();
    let id = ask(&engine, "fast").await;
    let held = engine.claim(session, claim(1, PATIENCE)).await.unwrap();
    assert_eq!(held[0].task.id, id);
    let waiting = engine.clone();
    let waiting = tokio::spawn(async move { waiting.claim(session, claim(1, PATIENCE)).await });
    eventually("it waits", || async { engine.idle_workers() == 1 }).await;
    drop(presence);
    assert_eq!(waiting.await.unwrap().unwrap(), Vec::new());
    eventually("it is given back", || async { status(&engine, id).await == State::Pending }).await;
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

/// With the clock that everybody has: PostgreSQL looks at it by itself.
async fn what_is_finished_is_removed_after_the_configured_time(dialect: Dialect) {
    let keep = |time| Options { inference_retention: Some(time), ..without_polling() };
    let world = World::with(dialect, keep(Duration::from_secs(3_600))).await;
    let engine = &world.engine;
    let id = ask(engine, "fast").await;
    let session = provider(engine, "fast", 1).await;
    let held = engine.claim(session, claim(1, Duration::ZERO)).await.unwrap();
    completed(engine, &held[0]).await;
    ask(engine, "fast").await;
    assert_eq!(engine.remove_expired().await.unwrap().changed, 0);
    engine.shutdown(PATIENCE).await;
    let engine = world.another(keep(Duration::from_millis(1))).await;
    eventually("it is removed", || async {
        engine.remove_expired().await.unwrap();
        engine.tasks().show(id).await.unwrap().is_none()
    })
    .await;
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

async fn an_inference_is_in_line_as_soon_as_it_is_asked(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let id = ask(&engine, "fast").await;
    let task = engine.tasks().show(id).await.unwrap().unwrap();
    assert_eq!((task.status, task.queue.as_str()), (State::Pending, "fast"));
    assert_eq!(task.pool.as_deref(), Some("fast"));
}

async fn of_many_providers_that_claim_at_once_one_gets_it(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    ask(&engine, "fast").await;
    let mut claims = Vec::new();
    for _ in 0..8 {
        let session = provider(&engine, "fast", 1).await;
        let engine = engine.clone();
        claims.push(tokio::spawn(async move {
            engine.claim(session, claim(1, Duration::ZERO)).await.unwrap().len()
        }));
    }
    let mut taken = 0;
    for claim in claims {
        taken += claim.await.unwrap();
    }
    assert_eq!(taken, 1);
}

/// An inference and who holds it.
async fn held(engine: &windlass::Engine) -> Assignment {
    ask(engine, "fast").await;
    let session = provider(engine, "fast", 1).await;
    engine.claim(session, claim(1, PATIENCE)).await.unwrap().pop().unwrap()
}

fn failure() -> Finishing {
    let error = windlass::domain::failure::TaskError {
        code: "OVERLOADED".into(),
        message: "the model is overloaded".into(),
        detail: None,
    };
    Finishing::Fail { error, retry_after_ms: None, chance: 0.0 }
}

async fn a_provider_completes_fails_or_loses_to_a_cancel(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let one = held(&engine).await;
    assert_eq!(end(&engine, &one, Finishing::Complete(Some("1".into()))).await, State::Completed);
    let two = held(&engine).await;
    assert_eq!(end(&engine, &two, failure()).await, State::Failed, "without a retry");
    let three = held(&engine).await;
    engine.cancel(three.task.id, "ann", None).await.unwrap();
    let late = crate::world::finish(&three, Finishing::Complete(None));
    let late = engine.finish(vec![late]).await.pop().unwrap();
    assert_eq!(windlass::engine::Error::from(late.unwrap_err()).code(), "lease_lost");
}

async fn the_same_end_twice_is_one_end_and_another_is_refused(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let held = held(&engine).await;
    completed(&engine, &held).await;
    completed(&engine, &held).await;
    let other = crate::world::finish(&held, failure());
    let other = engine.finish(vec![other]).await.pop().unwrap();
    assert_eq!(windlass::engine::Error::from(other.unwrap_err()).code(), "already_finished");
    let id = held.task.id;
    assert_eq!(crate::world::story(&engine, id).await.len(), 3, "one end in the history");
    engine.cancel(id, "ann", None).await.unwrap_err();
    assert_eq!(status(&engine, id).await, State::Completed);
}

async fn whoever_waits_for_what_has_ended_is_answered_at_once(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let held = held(&engine).await;
    completed(&engine, &held).await;
    let waited = engine.wait_for(held.task.id, Duration::ZERO).await.unwrap();
    assert_eq!(waited.result().unwrap(), json!("done"));
    let mut watching = engine.watch(held.task.id).await.unwrap();
    assert_eq!(next(&mut watching).await, "finished completed");
}

async fn whoever_waits_is_woken_by_the_end(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let held = held(&engine).await;
    let waiting = engine.clone();
    let id = held.task.id;
    let waited = tokio::spawn(async move { waiting.wait_for(id, PATIENCE).await.unwrap() });
    eventually("it waits", || async { engine.open_waits() == 1 }).await;
    completed(&engine, &held).await;
    assert_eq!(waited.await.unwrap().result().unwrap(), json!("done"));
}

async fn whoever_waits_gets_the_deltas_meanwhile_and_the_body_at_the_end(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let held = held(&engine).await;
    let mut watching = engine.watch(held.task.id).await.unwrap();
    post(&engine, &held, 0, &["do", "ne"]).await;
    assert_eq!(next(&mut watching).await, "1.0 \"do\"");
    assert_eq!(next(&mut watching).await, "1.1 \"ne\"");
    completed(&engine, &held).await;
    assert_eq!(next(&mut watching).await, "finished completed");
}

async fn whoever_waits_for_what_is_cancelled_is_told_so(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let id = ask(&engine, "fast").await;
    let waiting = engine.clone();
    let waited = tokio::spawn(async move { waiting.wait_for(id, PATIENCE).await.unwrap() });
    eventually("it waits", || async { engine.open_waits() == 1 }).await;
    engine.cancel(id, "ann", None).await.unwrap();
    let told = waited.await.unwrap().result().unwrap_err().to_string();
    assert!(told.contains("ended cancelled"), "{told}");
}

async fn whoever_waits_for_what_fails_gets_the_providers_words(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let held = held(&engine).await;
    end(&engine, &held, failure()).await;
    let waited = engine.wait_for(held.task.id, PATIENCE).await.unwrap();
    let told = waited.result().unwrap_err().to_string();
    assert!(told.contains("the model is overloaded"), "{told}");
}

async fn whoever_waits_too_short_is_told_so_and_nothing_is_lost(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let held = held(&engine).await;
    let waited = engine.wait_for(held.task.id, Duration::from_millis(1)).await.unwrap();
    assert_eq!(waited.result().unwrap_err().code(), "wait_timed_out");
    completed(&engine, &held).await;
    assert!(engine.wait_for(held.task.id, Duration::ZERO).await.unwrap().done);
}

const MANY: usize = 2_000;

/// As much as there is at once.
async fn without_limits(engine: &windlass::Engine) {
    let rules = engine.limits_in_use().await.unwrap().0.rules;
    for rule in rules {
        engine.delete_limit(rule.rule.scope, rule.rule.name, "tester").await.unwrap();
    }
}

async fn two_thousand_watchers_are_all_answered_once_although_the_only_provider_dies(
    dialect: Dialect,
) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    without_limits(&engine).await;
    let mut answered = Vec::new();
    // Many at once: so many commits one after the other take long on a busy machine.
    let asked = futures_util::future::join_all((0..MANY).map(|_| ask(&engine, "fast"))).await;
    for id in asked {
        let mut watching = engine.watch(id).await.unwrap();
        answered.push(tokio::spawn(async move {
            let (mut text, mut resets, mut ends) = (String::new(), 0, 0);
            while let Some(watched) = futures_util::StreamExt::next(&mut watching).await {
                match watched {
                    Watched::Delta { value, .. } => text += value.as_str().unwrap(),
                    Watched::Reset { .. } => (text, resets) = (String::new(), resets + 1),
                    Watched::Finished(task) => {
                        assert_eq!(task.status, State::Completed);
                        ends += 1;
                    }
                }
            }
            (id, text, resets, ends)
        }));
    }
    // The first one begins some of them and dies.
    let mut first = engine.open_stream(provider(&engine, "fast", 100).await).await.unwrap();
    for _ in 0..100 {
        let held = assigned(&mut first).await;
        post(&engine, &held, 0, &["lost "]).await;
    }
    drop(first);
    let second = provider(&engine, "fast", 500).await;
    let mut done = 0;
    while done < MANY {
        let held = engine.claim(second, claim(500, PATIENCE)).await.unwrap();
        let answers = held.iter().map(|held| async {
            post(&engine, held, 0, &["answer ", &held.task.id.to_string()]).await;
            completed(&engine, held).await;
        });
        done += futures_util::future::join_all(answers).await.len();
    }
    let mut resets = 0;
    for answered in answered {
        let (id, text, reset, ends) = answered.await.unwrap();
        assert_eq!((text, ends), (format!("answer {id}"), 1));
        resets += reset;
    }
    assert!(resets <= 100, "{resets}");
    assert_eq!(engine.watchers(), 0);
}
