//! Signals go when nobody needs them any more: with the results of their task, or, if nobody took
//! them, when they are old.

use super::wait::{park, send_as, with_key};
use crate::world::*;
use serde_json::json;
use std::time::{Duration, Instant};
use uuid::Uuid;
use windlass_domain::id::SignalId;
use windlass_domain::step::RESULT_RETENTION_MS;
use windlass_domain::wait::{SIGNAL_RETENTION_MS, Until};
use windlass_store::signal::{Signals, Target};
use windlass_store::statement::Dialect;
use windlass_store::step::Steps;
use windlass_store::task::Assignment;

conformance!(
    signals_go_with_the_results_of_their_task,
    signals_of_a_living_task_are_kept,
    a_signal_of_a_key_that_nobody_took_is_kept_for_thirty_days,
    signals_are_removed_with_their_task,
);

async fn told(world: &World, name: &str, target: Target) -> SignalId {
    let id = SignalId(Uuid::now_v7());
    send_as(world, id, name, target, json!(1)).await.unwrap();
    id
}

async fn is_kept(world: &World, id: SignalId) -> bool {
    Signals::new(world.store.clone()).show(id).await.unwrap().is_some()
}

/// A signal that the task took, one that it took by a key, and one that it never took.
async fn signals_of(world: &World, held: &Assignment, key: &str) -> [SignalId; 3] {
    let task = Target::Task(held.task.id);
    let taken = told(world, "go", task.clone()).await;
    let by_key = told(world, "go", Target::Key(key.into())).await;
    let never = told(world, "other", task).await;
    let until = Until::Signal { name: "go".into(), key: None };
    park(world, held, until).await.unwrap();
    park(world, held, with_key("go", key)).await.unwrap();
    [taken, by_key, never]
}

/// Walks the log to its end, for as long as other tests' transactions hold it back.
async fn expire(world: &World, wanted: usize) -> usize {
    let steps = Steps::new(world.store.clone());
    let (mut removed, until) = (0, Instant::now() + Duration::from_secs(60));
    while removed < wanted && Instant::now() < until {
        let (walked, now_removed) = steps.expire(10).await.unwrap();
        removed += now_removed;
        if walked == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    removed
}

async fn signals_go_with_the_results_of_their_task(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let signals = signals_of(&world, &held, "k").await;
    world.finish(&held, complete()).await.unwrap();
    world.pass_ms(RESULT_RETENTION_MS - 1);
    assert_eq!(Steps::new(world.store.clone()).expire(100).await.unwrap().1, 0);
    for id in signals {
        assert!(is_kept(&world, id).await);
    }
    world.pass_ms(1);
    // Two waits, which are steps, and three signals.
    assert_eq!(expire(&world, 5).await, 5);
    for id in signals {
        assert!(!is_kept(&world, id).await);
    }
}

async fn signals_of_a_living_task_are_kept(dialect: Dialect) {
    let world = World::new(dialect).await;
    let (living, ended) = (world.running(job()).await, world.running(job()).await);
    let signals = signals_of(&world, &living, "k").await;
    let gone = told(&world, "go", Target::Task(ended.task.id)).await;
    world.finish(&ended, complete()).await.unwrap();
    world.pass_ms(10 * SIGNAL_RETENTION_MS);
    assert_eq!(expire(&world, 1).await, 1);
    assert_eq!(Signals::new(world.store.clone()).forget_untaken(100).await.unwrap(), 0);
    assert!(!is_kept(&world, gone).await);
    for id in signals {
        assert!(is_kept(&world, id).await);
    }
}

async fn a_signal_of_a_key_that_nobody_took_is_kept_for_thirty_days(dialect: Dialect) {
    let world = World::new(dialect).await;
    let repository = Signals::new(world.store.clone());
    let old = [
        told(&world, "go", Target::Key("a".into())).await,
        told(&world, "go", Target::Key("b".into())).await,
    ];
    world.pass_ms(1);
    let young = told(&world, "go", Target::Key("c".into())).await;
    world.pass_ms(SIGNAL_RETENTION_MS - 2);
    assert_eq!(repository.forget_untaken(100).await.unwrap(), 0);
    world.pass_ms(1);
    assert_eq!(repository.forget_untaken(1).await.unwrap(), 1);
    assert_eq!(repository.forget_untaken(100).await.unwrap(), 1);
    assert!(!is_kept(&world, old[0]).await && !is_kept(&world, old[1]).await);
    assert!(is_kept(&world, young).await);
}

async fn signals_are_removed_with_their_task(dialect: Dialect) {
    let world = World::new(dialect).await;
    // PostgreSQL compares with its own clock, too.
    world.set_now(windlass_domain::time::Timestamp::from_ms(NOON - 2 * SIGNAL_RETENTION_MS));
    let held = world.running(inference()).await;
    let signals = signals_of(&world, &held, "k").await;
    world.finish(&held, complete()).await.unwrap();
    // The task of the newest transition stays.
    world.submit(job()).await;
    world.pass_ms(SIGNAL_RETENTION_MS);
    assert_eq!(world.tasks.remove_expired(None, 100).await.unwrap(), 1);
    for id in signals {
        assert!(!is_kept(&world, id).await);
    }
}
