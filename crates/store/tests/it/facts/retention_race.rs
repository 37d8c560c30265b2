//! Retention and replays at the same time: on PostgreSQL a statement sees what was there when it
//! began, and a replay may be committed while it runs.

use super::retention::{DAY_MS, again, failed};
use crate::postgres_log::{application, until_waiting};
use crate::world::*;
use windlass_domain::id::TaskId;
use windlass_domain::replay::ReplayFrom;
use windlass_domain::step::RESULT_RETENTION_MS;
use windlass_domain::time::Timestamp;
use windlass_domain::trouble::Event;
use windlass_store::statement::Dialect;
use windlass_store::step::Steps;
use windlass_store::store::Store;
use windlass_store::task::{Replay, Tasks};
use windlass_store::trouble::{Act, Troubles};

on_postgres!(
    a_replay_of_a_lone_task_that_is_made_while_retention_looks_keeps_it,
    a_replay_of_a_leaf_that_is_made_while_retention_looks_keeps_the_family,
    a_replay_that_is_under_way_when_retention_locks_keeps_the_family,
    a_replay_that_comes_while_its_origin_is_removed_finds_nothing,
    a_replay_whose_results_are_cleared_while_it_is_made_is_planned_anew,
);

/// Another node over the same database, with connections of its own.
struct Other(Store);

impl Other {
    fn of(world: &World) -> Other {
        Other(world.place.open(None))
    }

    /// As [`again`], here.
    async fn again(&self, origin: TaskId) -> Result<TaskId, String> {
        self.replay(super::retention::replay_of_all(origin)).await
    }

    async fn replay(&self, replay: Replay) -> Result<TaskId, String> {
        let (id, tasks) = (replay.id, Tasks::new(self.0.clone()));
        let made = tasks.replay(replay, windlass_store::task::Consent::Given).await;
        made.map(|_| id).map_err(|rejection| format!("{rejection:?}"))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A world in which a poisoned task's time is nearly over, and a person has looked at it.
async fn looked_at(dialect: Dialect) -> (World, TaskId) {
    let world = World::new(dialect).await;
    world.set_now(Timestamp::from_ms(NOON - 3_650 * DAY_MS));
    let held = world.running(inference()).await;
    world.finish(&held, fail("POISON_TASK")).await.unwrap();
    let act = Act::new(held.task.id, Event::Abandon, "ann");
    Troubles::new(world.store.clone()).act(act).await.unwrap();
    (world, held.task.id)
}

/// From now on whoever comes to a trouble in a statement waits there until `gate` is given up: the
/// statement has begun, so it does not see what is committed meanwhile.
async fn stop_within_a_statement(world: &World) -> tokio_postgres::Client {
    let gate = application(world).await;
    gate.batch_execute(
        "ALTER TABLE trouble RENAME TO trouble_kept;
         CREATE FUNCTION wait_at_the_gate() RETURNS boolean LANGUAGE plpgsql AS $$
         BEGIN
             PERFORM pg_advisory_xact_lock_shared(1);
             RETURN TRUE;
         END $$;
         CREATE VIEW trouble AS SELECT * FROM trouble_kept WHERE wait_at_the_gate();
         SELECT pg_advisory_lock(1);",
    )
    .await
    .unwrap();
    gate
}

/// Retention begins and is stopped in its first look; a replay of `origin` is committed.
async fn replay_while_it_looks(world: &World, kept: &[TaskId], origin: TaskId) {
    world.pass_ms(8 * DAY_MS);
    let gate = stop_within_a_statement(world).await;
    let tasks = world.tasks.clone();
    let retention = tokio::spawn(async move { tasks.remove_expired(None, 100).await.unwrap() });
    until_waiting(world, "1").await;
    let new = Other::of(world).again(origin).await.unwrap();
    gate.batch_execute("SELECT pg_advisory_unlock(1)").await.unwrap();
    assert_eq!(retention.await.unwrap(), 0);
    for &id in kept.iter().chain([&new]) {
        assert!(world.tasks.show(id).await.unwrap().is_some(), "{id} was removed");
    }
}

async fn a_replay_of_a_lone_task_that_is_made_while_retention_looks_keeps_it(dialect: Dialect) {
    let (world, task) = looked_at(dialect).await;
    replay_while_it_looks(&world, &[task], task).await;
}

/// The whole family was removed, and what it had run could be run again by the new replay.
async fn a_replay_of_a_leaf_that_is_made_while_retention_looks_keeps_the_family(dialect: Dialect) {
    let (world, root) = looked_at(dialect).await;
    let leaf = again(&world, root).await;
    world.cancel(leaf).await.unwrap();
    replay_while_it_looks(&world, &[root, leaf], leaf).await;
}

async fn a_replay_that_is_under_way_when_retention_locks_keeps_the_family(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.set_now(Timestamp::from_ms(NOON - 3_650 * DAY_MS));
    let (root, stranger) = (failed(&world).await, failed(&world).await);
    let leaf = again(&world, root).await;
    world.cancel(leaf).await.unwrap();
    world.pass_ms(8 * DAY_MS);
    // It has locked what it repeats, and written nothing yet that anybody could see.
    let locks = application(&world).await;
    let lock = format!("BEGIN; SELECT 1 FROM task_state WHERE id = '{leaf}' FOR UPDATE");
    locks.batch_execute(&lock).await.unwrap();
    assert_eq!(world.tasks.remove_expired(None, 100).await.unwrap(), 1, "it waits for nobody");
    assert_eq!(world.tasks.show(stranger).await.unwrap(), None);
    locks.batch_execute("ROLLBACK").await.unwrap();
    assert!(world.tasks.show(root).await.unwrap().is_some());
    assert_eq!(world.tasks.remove_expired(None, 100).await.unwrap(), 2);
}

async fn a_replay_that_comes_while_its_origin_is_removed_finds_nothing(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.set_now(Timestamp::from_ms(NOON - 3_650 * DAY_MS));
    let root = failed(&world).await;
    let leaf = again(&world, root).await;
    world.cancel(leaf).await.unwrap();
    world.pass_ms(8 * DAY_MS);
    // Retention writes to the audit last, when everything is removed and nothing committed.
    let gate = application(&world).await;
    gate.batch_execute("BEGIN; LOCK TABLE audit IN SHARE MODE").await.unwrap();
    let tasks = world.tasks.clone();
    let retention = tokio::spawn(async move { tasks.remove_expired(None, 100).await.unwrap() });
    until_waiting(&world, "1").await;
    let other = Other::of(&world);
    let replay = tokio::spawn(async move { other.again(leaf).await });
    until_waiting(&world, "2").await;
    gate.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(retention.await.unwrap(), 2);
    let refused = replay.await.unwrap().unwrap_err();
    assert!(refused.contains("UnknownTask"), "{refused}");
    assert_eq!(world.by_hand("SELECT count(*) FROM task_spec").unwrap(), "0");
}

/// What must not run twice was missing among the copies, and the new task ran it again.
async fn a_replay_whose_results_are_cleared_while_it_is_made_is_planned_anew(dialect: Dialect) {
    let world = World::new(dialect).await;
    let origin = super::replay::failed_task(&world).await.task.id;
    world.pass_ms(RESULT_RETENTION_MS);
    // It has planned, and is stopped before it writes anything.
    let gate = application(&world).await;
    gate.batch_execute("BEGIN; LOCK TABLE task_spec IN SHARE MODE").await.unwrap();
    let from = ReplayFrom::LastCheckpoint;
    let wanted = Replay { from, ..super::retention::replay_of_all(origin) };
    let (other, first) = (Other::of(&world), wanted.clone());
    let replay = tokio::spawn(async move { other.replay(first).await });
    until_waiting(&world, "1").await;
    let steps = Steps::new(world.store.clone());
    let mut cleared = 0;
    while cleared == 0 {
        // Other tests' transactions hold the log's horizon back for a while.
        cleared = steps.expire(100).await.unwrap().1;
    }
    assert_eq!(cleared, 3);
    gate.batch_execute("ROLLBACK").await.unwrap();
    let refused = replay.await.unwrap().unwrap_err();
    assert!(refused.contains("Busy"), "{refused}");
    assert_eq!(world.by_hand("SELECT count(*) FROM task_spec").unwrap(), "1");
    let refused = Other::of(&world).replay(wanted).await.unwrap_err();
    assert!(refused.contains("charge"), "{refused}");
}
