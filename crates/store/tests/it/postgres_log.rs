//! The log on PostgreSQL, where transactions overlap and databases are restored elsewhere.

use crate::world::*;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use uuid::Uuid;
use windlass_domain::id::TaskId;
use windlass_domain::state::State;
use windlass_store::migration;
use windlass_store::statement::Dialect;
use windlass_store::task::{Finishing, History, Position};

/// A session of somebody else's application.
pub async fn application(world: &World) -> tokio_postgres::Client {
    let Place::Postgres(database) = &world.place else { panic!("PostgreSQL only") };
    let (client, connection) =
        tokio_postgres::connect(&database.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Until `count` backends of this database wait for a lock.
pub async fn until_waiting(world: &World, count: &str) {
    let sql = "SELECT count(*) FROM pg_stat_activity
               WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let patience = Instant::now() + Duration::from_secs(30);
    while world.by_hand(sql).unwrap() != count {
        assert!(Instant::now() < patience, "nobody waits");
        tokio::task::yield_now().await;
    }
}

async fn tail(world: &World, after: Position, count: usize) -> Vec<(Position, History)> {
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        let entries = world.tasks.tail(after, 10_000).await.unwrap();
        if entries.len() >= count {
            return entries;
        }
        assert!(Instant::now() < patience, "{} of {count} entries came", entries.len());
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_task_that_is_changed_by_an_older_transaction_keeps_its_order() {
    run(changed_by_an_older_transaction, Dialect::Postgres);
}

/// A batch has its number from the first row it locks; while it waits for the second, a younger
/// transaction changes the third. The log used to show the batch's change of it first.
async fn changed_by_an_older_transaction(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let mut ids: Vec<TaskId> = (0..3).map(|_| TaskId(Uuid::now_v7())).collect();
    ids.sort();
    for id in &ids {
        world.submit(job_id(*id)).await;
    }
    let mut held = world.claim("w1", 3).await;
    held.sort_by_key(|a| a.task.id);
    let bystander = application(&world).await;
    let lock = format!("BEGIN; SELECT 1 FROM task_state WHERE id = '{}' FOR UPDATE", ids[1]);
    bystander.batch_execute(&lock).await.unwrap();
    let (tasks, items) = (world.tasks.clone(), held.iter().map(|a| finish_of(a, complete())));
    let items: Vec<_> = items.collect();
    let batch = tokio::spawn(async move { tasks.finish(items).await });
    until_waiting(&world, "1").await;
    world.beat(&held[2]).await.unwrap();
    bystander.batch_execute("ROLLBACK").await.unwrap();
    for outcome in batch.await.unwrap() {
        assert_eq!(outcome.unwrap(), State::Completed);
    }
    let entries = tail(&world, Position::default(), 10).await;
    let of_last = entries.iter().filter(|(_, h)| h.task_id == ids[2]);
    let events: Vec<_> = of_last.map(|(_, h)| h.event.as_str()).collect();
    assert_eq!(events, ["submit", "claim", "start", "complete"]);
    for (i, (position, _)) in entries.iter().enumerate() {
        assert_eq!(world.tasks.tail(*position, 100).await.unwrap(), entries[i + 1..]);
    }
}

#[test]
fn every_task_s_changes_come_in_order_while_batches_overlap() {
    run(batches_overlap, Dialect::Postgres);
}

async fn batches_overlap(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    world.submit_all((0..40).map(|_| job()).collect()).await;
    let workers: Vec<_> = (0..6)
        .map(|worker| {
            let tasks = world.tasks.clone();
            tokio::spawn(async move {
                for _ in 0..12 {
                    let claim = claim_of(&format!("w{worker}"), &["q"], 7);
                    let held = tasks.claim(claim).await.unwrap();
                    let beats = held.iter().map(beat_of).collect();
                    let ends = held.iter().map(|a| finish_of(a, Finishing::Release)).collect();
                    tokio::join!(tasks.heartbeat(beats), tasks.finish(ends));
                }
            })
        })
        .collect();
    let mut seen: Vec<(Position, History)> = Vec::new();
    let mut running = true;
    while running {
        running = workers.iter().any(|worker| !worker.is_finished());
        let after = seen.last().map_or(Position::default(), |(position, _)| *position);
        seen.extend(world.tasks.tail(after, 50).await.unwrap());
    }
    let count: usize = world.by_hand("SELECT count(*) FROM task_history").unwrap().parse().unwrap();
    let after = seen.last().map_or(Position::default(), |(position, _)| *position);
    seen.extend(tail(&world, after, count - seen.len()).await);
    assert_eq!(seen.len(), count);
    let mut last: HashMap<TaskId, State> = HashMap::new();
    for (_, history) in &seen {
        assert_eq!(last.insert(history.task_id, history.to_status), history.from_status);
    }
}

#[test]
fn a_database_restored_into_a_younger_cluster_goes_on_where_its_log_ended() {
    run(restored_into_a_younger_cluster, Dialect::Postgres);
}

/// The tail was dead until the new cluster had counted as far as the old one.
async fn restored_into_a_younger_cluster(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let held = world.running(job()).await;
    world.cancel(world.submit(job()).await).await.unwrap();
    world.tasks.fold_tally().await.unwrap();
    // What a dump from a cluster that is a billion transactions older leaves here.
    let tables = ["task_history", "task_state", "task_tally_position", "audit"];
    let shift: String = (tables.iter())
        .map(|table| {
            format!(
                "ALTER TABLE {table} DISABLE TRIGGER USER;
                 UPDATE {table} SET xid = xid + 1000000000;
                 ALTER TABLE {table} ENABLE TRIGGER USER;"
            )
        })
        .collect();
    world.by_hand(&shift).unwrap();
    assert!(world.tasks.tail(Position::default(), 10).await.unwrap().is_empty());
    let said = migration::require_current(&world.store).await.unwrap_err().to_string();
    assert!(said.contains("restored from a dump"), "{said}");
    assert!(said.contains("windlass migrate up"), "{said}");

    assert!(migration::up(&world.store).await.unwrap().is_empty());
    migration::require_current(&world.store).await.unwrap();
    let old = tail(&world, Position::default(), 4).await;
    assert_eq!(old.len(), 4);
    let kept = old.last().unwrap().0;
    world.finish(&held, complete()).await.unwrap();
    let new = tail(&world, kept, 1).await;
    assert_eq!(new.iter().map(|(_, h)| h.event.as_str()).collect::<Vec<_>>(), ["complete"]);
    world.tasks.fold_tally().await.unwrap();
    let ended = world.tasks.counts().await.unwrap().by_status;
    assert_eq!((ended[&State::Completed], ended[&State::Cancelled]), (1, 1));
    // Once is enough.
    migration::up(&world.store).await.unwrap();
    assert_eq!(tail(&world, Position::default(), 5).await.len(), 5);
}
