//! Rules that may be others by now: what was counted by them is not committed.

use super::flow::{bind, many, rule};
use crate::world::*;
use std::time::{Duration, Instant};
use windlass_domain::limit::Scope;
use windlass_store::statement::Dialect;

conformance!(
    a_claim_by_rules_that_may_be_old_waits_for_those_of_now,
    a_claim_by_name_waits_for_them_too,
    a_submit_by_rules_that_may_be_old_waits_for_those_of_now,
    where_nobody_can_read_the_rules_the_last_known_ones_are_enforced,
    where_every_look_takes_so_long_that_nobody_is_in_time_the_last_try_is_answered,
);

/// As after a process stood still: the rules of before may be others by now.
async fn that_stood_still(dialect: Dialect) -> World {
    let world = World::new(dialect).await;
    bind(&world.tasks, [rule(Scope::Venture, None, None)]);
    world.tasks.rules_hold_until(Instant::now());
    world
}

/// Somebody reads the rules: one task may be active, and one pending.
async fn learn(world: &World) {
    tokio::time::sleep(Duration::from_millis(50)).await;
    bind(&world.tasks, [rule(Scope::Venture, Some(1), Some(1))]);
    world.tasks.rules_hold_until(Instant::now() + Duration::from_secs(3_600));
}

async fn a_claim_by_rules_that_may_be_old_waits_for_those_of_now(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit_all(many("a", 3)).await;
    world.tasks.rules_hold_until(Instant::now());
    let (held, ()) = tokio::join!(world.claim("w1", 3), learn(&world));
    assert_eq!(held.len(), 1);
}

async fn a_claim_by_name_waits_for_them_too(dialect: Dialect) {
    let world = World::new(dialect).await;
    let tasks = many("a", 3);
    let named = tasks.iter().map(|task| task.id).collect();
    world.submit_all(tasks).await;
    world.tasks.rules_hold_until(Instant::now());
    let claim = claim_of("w1", &["q"], 3);
    let (held, ()) = tokio::join!(world.tasks.claim_tasks(&claim, named), learn(&world));
    assert_eq!(held.unwrap().len(), 1);
}

async fn a_submit_by_rules_that_may_be_old_waits_for_those_of_now(dialect: Dialect) {
    let world = that_stood_still(dialect).await;
    let (outcomes, ()) = tokio::join!(world.tasks.submit(many("a", 3)), learn(&world));
    let taken: Vec<bool> = outcomes.iter().map(Result::is_ok).collect();
    assert_eq!(taken, [true, false, false]);
    let world = that_stood_still(dialect).await;
    let (written, ()) = tokio::join!(world.tasks.submit_atomic(many("a", 3)), learn(&world));
    assert_eq!(written.unwrap_err().0, 1);
}

async fn where_nobody_can_read_the_rules_the_last_known_ones_are_enforced(dialect: Dialect) {
    let world = World::new(dialect).await;
    bind(&world.tasks, [rule(Scope::Venture, Some(1), Some(2))]);
    world.tasks.rules_hold_until(Instant::now());
    let outcomes = world.tasks.submit(many("a", 3)).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 2);
    assert!(world.tasks.submit_atomic(many("b", 3)).await.is_err());
    assert_eq!(world.claim("w1", 3).await.len(), 1);
}

async fn where_every_look_takes_so_long_that_nobody_is_in_time_the_last_try_is_answered(
    dialect: Dialect,
) {
    let world = World::new(dialect).await;
    bind(&world.tasks, [rule(Scope::Venture, Some(1), Some(2))]);
    let tasks = world.tasks.clone();
    let looks = tokio::spawn(async move {
        loop {
            // Over as soon as it is told.
            tasks.rules_hold_until(Instant::now() + Duration::from_micros(200));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let outcomes = world.tasks.submit(many("a", 3)).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 2);
    assert!(world.tasks.submit_atomic(many("b", 2)).await.is_ok());
    assert_eq!(world.claim("w1", 3).await.len(), 2);
    looks.abort();
}
