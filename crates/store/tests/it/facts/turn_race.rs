//! Priorities between nodes that outrun each other, which only PostgreSQL has.

use crate::postgres_log::{application, until_waiting};
use crate::world::*;
use windlass_domain::limit::{Limits, Rule, Scope};
use windlass_domain::task::NewTask;
use windlass_store::statement::Dialect;
use windlass_store::task::Tasks;

on_postgres!(
    a_claim_that_is_outrun_each_time_still_goes_by_priority,
    what_comes_while_a_claim_of_several_waits_for_its_lock_makes_none_of_them_pass_by_another,
);

const TAKE_THE_LOCK: &str = "BEGIN; SELECT * FROM windlass_hold(2, '{}')";

/// The stage's tasks, of these priorities.
fn stage(name: &str, priorities: &[i32]) -> Vec<NewTask> {
    let new = |priority: &i32| {
        task(|r| {
            r.venture = Some("v".into());
            r.stage = Some(name.into());
            r.priority = Some(*priority);
        })
    };
    priorities.iter().map(new).collect()
}

/// At so low a limit claims have the lock for themselves.
fn bind(node: &Tasks) {
    let (scope, max_active) = (Scope::Venture, Some(3));
    let rule = Rule { scope, name: None, max_active, max_pending: None, rate: None };
    node.bind(Some(Limits::new([rule])));
}

/// It used to give up after three times, and to take what came behind the head that was gone.
async fn a_claim_that_is_outrun_each_time_still_goes_by_priority(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let heads = [9, 8, 7, 6];
    let mut gone = Vec::new();
    for (n, head) in heads.iter().enumerate() {
        let tasks = stage(&format!("s{n}"), &[*head, 0]);
        gone.push(tasks[0].id);
        world.submit_all(tasks).await;
    }
    world.submit_all(stage("last", &[5, 0])).await;
    // Another node.
    let node = Tasks::new(world.store.clone());
    bind(&node);
    let mut lock = application(&world).await;
    lock.batch_execute(TAKE_THE_LOCK).await.unwrap();
    let claim = tokio::spawn(async move { node.claim(claim_of("w1", &["q"], 1)).await.unwrap() });
    for (n, head) in gone.iter().enumerate() {
        until_waiting(&world, "1").await;
        // Whatever the claim has seen by now is gone when it has the lock.
        world.cancel(*head).await.unwrap();
        if n + 1 == gone.len() {
            break;
        }
        let next = application(&world).await;
        let behind = tokio::spawn(async move {
            next.batch_execute(TAKE_THE_LOCK).await.unwrap();
            next
        });
        until_waiting(&world, "2").await;
        lock.batch_execute("COMMIT").await.unwrap();
        lock = behind.await.unwrap();
    }
    lock.batch_execute("COMMIT").await.unwrap();
    let held = claim.await.unwrap();
    assert_eq!(held.iter().map(|held| held.task.priority).collect::<Vec<_>>(), [5]);
}

/// It used to count on what it had seen before it had the lock, so the newcomer took the place of
/// the task behind it, and a less urgent one of another lane went before that.
async fn what_comes_while_a_claim_of_several_waits_for_its_lock_makes_none_of_them_pass_by_another(
    dialect: Dialect,
) {
    let world = World::with_real_clock(dialect).await;
    for (name, priorities) in [("a", &[5, 0]), ("b", &[5, 0]), ("c", &[1, 0])] {
        world.submit_all(stage(name, priorities)).await;
    }
    bind(&world.tasks);
    let lock = application(&world).await;
    lock.batch_execute(TAKE_THE_LOCK).await.unwrap();
    let node = world.tasks.clone();
    let claim = tokio::spawn(async move { node.claim(claim_of("w1", &["q"], 3)).await.unwrap() });
    until_waiting(&world, "1").await;
    world.submit_all(stage("a", &[9])).await;
    lock.batch_execute("COMMIT").await.unwrap();
    let mut held: Vec<i32> = claim.await.unwrap().iter().map(|held| held.task.priority).collect();
    held.sort_unstable();
    assert_eq!(held, [5, 5, 9]);
}
