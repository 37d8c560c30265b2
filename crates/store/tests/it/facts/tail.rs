//! The log of all transitions: in commit order, resumable anywhere, nothing skipped.

use crate::world::*;
use std::time::{Duration, Instant};
use windlass_domain::id::TaskId;
use windlass_store::statement::Dialect;
use windlass_store::task::{Finishing, History, Position};

conformance!(
    the_tail_shows_every_transition_in_order,
    the_tail_can_be_resumed_at_every_position,
    the_tail_while_many_write_loses_and_repeats_nothing,
);

type Entry = (Position, History);

/// Reads on from `after` until there are `count` entries: on PostgreSQL whatever runs anywhere in
/// the cluster, other tests too, may hold the tail back for a moment.
async fn read(world: &World, after: Position, count: usize) -> Vec<Entry> {
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

/// A few tasks with a few transitions each: 16 in all.
async fn busy(world: &World) -> Vec<TaskId> {
    let mut ids = Vec::new();
    for _ in 0..4 {
        let held = world.running(job()).await;
        world.beat(&held).await.unwrap();
        ids.push(held.task.id);
        world.finish(&held, Finishing::Release).await.unwrap();
        world.cancel(held.task.id).await.unwrap();
    }
    ids
}

async fn the_tail_shows_every_transition_in_order(dialect: Dialect) {
    let world = World::new(dialect).await;
    let ids = busy(&world).await;
    let entries = read(&world, Position::default(), 16).await;
    assert_eq!(entries.len(), 16);
    assert!(entries.windows(2).all(|pair| pair[0].0 < pair[1].0));
    let mut expected = Vec::new();
    for id in ids {
        expected.extend(world.tasks.history(id, 0, 100).await.unwrap());
    }
    // One after the other, so the order of the tasks is the order of the commits.
    let shown: Vec<_> = entries.into_iter().map(|(_, history)| history).collect();
    assert_eq!(shown, expected);
}

async fn the_tail_can_be_resumed_at_every_position(dialect: Dialect) {
    let world = World::new(dialect).await;
    // Many transitions in one transaction, too: a position may lie within it.
    world.submit_all((0..10).map(|_| job()).collect()).await;
    busy(&world).await;
    let all = read(&world, Position::default(), 26).await;
    for (i, (position, _)) in all.iter().enumerate() {
        assert_eq!(world.tasks.tail(*position, 10_000).await.unwrap(), all[i + 1..]);
    }
    for size in [1, 3, 7] {
        let (mut after, mut paged) = (Position::default(), Vec::new());
        loop {
            let page = world.tasks.tail(after, size).await.unwrap();
            assert!(page.len() <= size as usize);
            let Some((last, _)) = page.last() else { break };
            after = *last;
            paged.extend(page);
        }
        assert_eq!(paged, all);
    }
}

async fn the_tail_while_many_write_loses_and_repeats_nothing(dialect: Dialect) {
    let world = World::new(dialect).await;
    let writers: Vec<_> = (0..8)
        .map(|_| {
            let tasks = world.tasks.clone();
            tokio::spawn(async move {
                for _ in 0..10 {
                    tasks.submit(vec![job(), job()]).await;
                    tasks.claim(claim_of("w1", &["q"], 1)).await.unwrap();
                }
            })
        })
        .collect();
    let mut seen: Vec<Entry> = Vec::new();
    let mut running = true;
    while running {
        running = writers.iter().any(|writer| !writer.is_finished());
        let after = seen.last().map_or(Position::default(), |(position, _)| *position);
        seen.extend(world.tasks.tail(after, 5).await.unwrap());
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let after = seen.last().map_or(Position::default(), |(position, _)| *position);
    seen.extend(read(&world, after, 240 - seen.len()).await);
    assert_eq!(seen, read(&world, Position::default(), 240).await);
}

mod late {
    //! On PostgreSQL transactions overlap: one may take its place early and commit late.

    use super::*;

    #[test]
    fn a_transaction_that_commits_late_is_not_skipped() {
        run(commits_late, Dialect::Postgres);
    }

    #[test]
    fn a_transaction_that_rolls_back_holds_nothing_back_for_ever() {
        run(rolls_back, Dialect::Postgres);
    }

    /// A session of somebody else's application.
    async fn application(world: &World) -> tokio_postgres::Client {
        let Place::Postgres(database) = &world.place else { panic!("PostgreSQL only") };
        let url = database.url();
        let (client, connection) =
            tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    const SUBMIT: &str = "SELECT windlass_submit('q', '{\"by\": \"sql\"}')::text";

    fn tasks(entries: &[Entry]) -> Vec<TaskId> {
        entries.iter().map(|(_, history)| history.task_id).collect()
    }

    async fn commits_late(dialect: Dialect) {
        let world = World::with_real_clock(dialect).await;
        let before = world.submit(job()).await;
        let read_so_far = read(&world, Position::default(), 1).await;
        assert_eq!(tasks(&read_so_far), [before]);
        let place = read_so_far[0].0;
        let application = application(&world).await;
        application.batch_execute("BEGIN").await.unwrap();
        let row = application.query_one(SUBMIT, &[]).await.unwrap();
        let late: TaskId = row.get::<_, &str>(0).parse().unwrap();
        let others = [world.submit(job()).await, world.submit(job()).await];
        // They are committed and can be claimed, but the tail holds them back.
        assert_eq!(world.claim("w1", 10).await.len(), 3);
        assert_eq!(world.tasks.show(late).await.unwrap(), None);
        assert_eq!(world.tasks.tail(place, 100).await.unwrap(), []);
        application.batch_execute("COMMIT").await.unwrap();
        let entries = read(&world, place, 6).await;
        assert_eq!(entries.len(), 6);
        assert_eq!(tasks(&entries)[..3], [late, others[0], others[1]]);
        assert!(entries.iter().all(|(position, _)| *position > place));
        assert!(entries[0].1.actor.starts_with("sql:"), "{}", entries[0].1.actor);
        let claimed = world.claim("w1", 10).await.pop().unwrap();
        assert_eq!(claimed.task.id, late);
        assert_eq!(claimed.task.payload, serde_json::json!({"by": "sql"}));
    }

    async fn rolls_back(dialect: Dialect) {
        let world = World::with_real_clock(dialect).await;
        let application = application(&world).await;
        application.batch_execute("BEGIN").await.unwrap();
        application.query_one(SUBMIT, &[]).await.unwrap();
        let other = world.submit(job()).await;
        assert_eq!(world.tasks.tail(Position::default(), 100).await.unwrap(), []);
        application.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(tasks(&read(&world, Position::default(), 1).await), [other]);
    }
}
