//! Rules that change while somebody waits for a lock, which only PostgreSQL has.

use super::flow::{bind, of, rule};
use crate::postgres_log::{application, until_waiting};
use crate::world::*;
use windlass_domain::limit::Scope;
use windlass_store::statement::Dialect;

on_postgres!(a_submit_that_waited_for_its_lock_goes_by_the_rules_of_now);

/// The rules are read long before the lock is had, if others have it.
async fn a_submit_that_waited_for_its_lock_goes_by_the_rules_of_now(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    bind(&world.tasks, [rule(Scope::Venture, None, Some(2))]);
    // So that the lanes are known, and nobody waits for them.
    world.submit(of("a")).await;
    let lock = application(&world).await;
    lock.batch_execute("BEGIN; SELECT * FROM windlass_hold(1, '{}')").await.unwrap();
    let tasks = world.tasks.clone();
    let submit = tokio::spawn(async move { tasks.submit(vec![of("a")]).await });
    until_waiting(&world, "1").await;
    bind(&world.tasks, [rule(Scope::Venture, None, Some(1))]);
    lock.batch_execute("COMMIT").await.unwrap();
    let refused: Vec<bool> = submit.await.unwrap().iter().map(Result::is_err).collect();
    assert_eq!(refused, [true]);
}
