//! Rules that change while somebody waits for a lock, which only PostgreSQL has.

use super::eager::Waiting;
use super::flow::{bind, many, of, rule};
use crate::postgres_log::{application, until_waiting};
use crate::world::*;
use std::time::{Duration, Instant};
use windlass_domain::limit::{Mode, Pause, Scope};
use windlass_domain::state::State;
use windlass_domain::task::NewTask;
use windlass_store::error::{Error, Rejection};
use windlass_store::limit::LimitRules;
use windlass_store::statement::Dialect;
use windlass_store::task::{Submitted, Tasks};

on_postgres!(
    a_submit_that_waited_for_its_lock_goes_by_the_rules_of_now,
    a_flight_that_waited_for_its_lock_submits_by_the_rules_of_now,
    a_flight_that_waited_for_its_lock_hands_over_by_the_rules_of_now,
    a_flight_that_waited_for_its_lock_claims_by_the_rules_of_now,
    after_a_task_that_cannot_be_kept_flights_still_go_by_the_rules_of_now,
    by_rules_that_the_database_calls_old_nothing_is_done,
);

const SUBMITS: i32 = 1;
const CLAIMS: i32 = 2;

/// Somebody else has the lock, until it is dropped.
async fn locked(world: &World, lock: i32) -> tokio_postgres::Client {
    let client = application(world).await;
    let take = format!("BEGIN; SELECT * FROM windlass_hold({lock}, '{{}}')");
    client.batch_execute(&take).await.unwrap();
    client
}

/// The rules are read long before the lock is had, if others have it.
async fn a_submit_that_waited_for_its_lock_goes_by_the_rules_of_now(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    bind(&world.tasks, [rule(Scope::Venture, None, Some(2))]);
    // So that the lanes are known, and nobody waits for them.
    world.submit(of("a")).await;
    let lock = locked(&world, SUBMITS).await;
    let tasks = world.tasks.clone();
    let submit = tokio::spawn(async move { tasks.submit(vec![of("a")]).await });
    until_waiting(&world, "1").await;
    bind(&world.tasks, [rule(Scope::Venture, None, Some(1))]);
    lock.batch_execute("COMMIT").await.unwrap();
    let refused: Vec<bool> = submit.await.unwrap().iter().map(Result::is_err).collect();
    assert_eq!(refused, [true]);
}

fn rules_of(tasks: &Tasks) -> LimitRules {
    LimitRules::new(tasks.store().clone())
}

/// As a node does it.
async fn read_rules(tasks: &Tasks) {
    let flow = rules_of(tasks).read().await.unwrap();
    tasks.bind_version(flow.limits(), flow.version);
    tasks.rules_hold_until(Instant::now() + Duration::from_secs(3_600));
}

/// One task of the venture `a`, and so much room that a lock is taken in the flight that commits.
async fn roomy(dialect: Dialect) -> World {
    let world = World::with_real_clock(dialect).await;
    let rules = rules_of(&world.tasks);
    for kept in rules.read().await.unwrap().rules {
        rules.delete(kept.rule.scope, kept.rule.name, "boss").await.unwrap();
    }
    let wide = rule(Scope::Venture, Some(100_000), Some(100_000));
    rules.put(wide, "boss").await.unwrap();
    read_rules(&world.tasks).await;
    world.submit(of("a")).await;
    world
}

/// Reads the rules whenever the database has newer ones.
fn keeps_up(world: &World) {
    let tasks = world.tasks.clone();
    tokio::spawn(async move {
        loop {
            tasks.rules_doubted().notified().await;
            read_rules(&tasks).await;
        }
    });
}

/// Another node stops the venture.
async fn pause(world: &World, mode: Mode) {
    let pause = Pause { scope: Scope::Venture, name: Some("a".into()), mode, reason: None };
    rules_of(&world.tasks).pause(pause, "boss").await.unwrap();
}

async fn a_flight_that_waited_for_its_lock_submits_by_the_rules_of_now(dialect: Dialect) {
    for count in [1, 3] {
        let world = roomy(dialect).await;
        keeps_up(&world);
        let lock = locked(&world, SUBMITS).await;
        let tasks = world.tasks.clone();
        let submit = tokio::spawn(async move { tasks.submit(many("a", count)).await });
        until_waiting(&world, "1").await;
        pause(&world, Mode::Drain).await;
        lock.batch_execute("COMMIT").await.unwrap();
        let refused = submit.await.unwrap().iter().filter(|outcome| outcome.is_err()).count();
        assert_eq!(refused, count);
    }
}

async fn a_flight_that_waited_for_its_lock_hands_over_by_the_rules_of_now(dialect: Dialect) {
    let world = roomy(dialect).await;
    assert_eq!(world.claim("w1", 1).await.len(), 1);
    keeps_up(&world);
    let waiting = Waiting::of(&world);
    waiting.enter(claim_of("w1", &["q"], 1));
    let lock = locked(&world, CLAIMS).await;
    let tasks = world.tasks.clone();
    let submit = tokio::spawn(async move { tasks.submit(vec![of("a")]).await });
    until_waiting(&world, "1").await;
    pause(&world, Mode::Pause).await;
    lock.batch_execute("COMMIT").await.unwrap();
    let told = submit.await.unwrap().pop().unwrap().unwrap();
    assert_eq!((told.status, told.duplicate), (State::Pending, false));
    assert_eq!(waiting.got(), [vec![]]);
}

async fn a_flight_that_waited_for_its_lock_claims_by_the_rules_of_now(dialect: Dialect) {
    let world = roomy(dialect).await;
    keeps_up(&world);
    let lock = locked(&world, CLAIMS).await;
    let tasks = world.tasks.clone();
    let claim = tokio::spawn(async move { tasks.claim(claim_of("w1", &["q"], 1)).await });
    until_waiting(&world, "1").await;
    pause(&world, Mode::Pause).await;
    lock.batch_execute("COMMIT").await.unwrap();
    assert_eq!(claim.await.unwrap().unwrap(), Vec::new());
}

// It made the node forget its lanes, and once the version of its rules with them.
async fn after_a_task_that_cannot_be_kept_flights_still_go_by_the_rules_of_now(dialect: Dialect) {
    let world = roomy(dialect).await;
    keeps_up(&world);
    world.by_hand("ALTER TABLE task_spec ADD CONSTRAINT no_bad CHECK (name <> 'bad')").unwrap();
    let bad = NewTask { name: Some("bad".into()), ..of("a") };
    let outcomes = world.tasks.submit(vec![of("a"), bad, of("a")]).await;
    let is_new = |told: &Submitted| !told.duplicate;
    let kept: Vec<bool> = outcomes.iter().map(|told| told.as_ref().is_ok_and(is_new)).collect();
    // The others are written once, and told so.
    assert_eq!(kept, [true, false, true]);
    let lock = locked(&world, SUBMITS).await;
    let tasks = world.tasks.clone();
    let submit = tokio::spawn(async move { tasks.submit(vec![of("a")]).await });
    until_waiting(&world, "1").await;
    pause(&world, Mode::Drain).await;
    lock.batch_execute("COMMIT").await.unwrap();
    assert!(submit.await.unwrap().iter().all(Result::is_err));
}

async fn by_rules_that_the_database_calls_old_nothing_is_done(dialect: Dialect) {
    let world = roomy(dialect).await;
    pause(&world, Mode::Drain).await;
    // Nobody here reads that.
    let told = world.tasks.submit(vec![of("a")]).await.pop().unwrap().unwrap_err();
    assert!(matches!(told, Rejection::Failed(Error::Busy(_))), "{told}");
    let told = world.tasks.claim(claim_of("w1", &["q"], 1)).await.unwrap_err();
    assert!(matches!(told, Error::Busy(_)), "{told}");
    read_rules(&world.tasks).await;
    assert_eq!(world.claim("w1", 1).await.len(), 1);
}
