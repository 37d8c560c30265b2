//! Following the log.

use crate::world::{World, claim, complete, conformance, register, submit, without_polling};
use std::time::Duration;
use windlass::Options;
use windlass::store::statement::Dialect;
use windlass::store::task::Position;

conformance!(
    a_reader_sees_every_transition_in_order,
    a_slow_reader_loses_nothing_and_blocks_nobody,
    a_reader_resumes_where_it_stopped,
);

async fn a_reader_sees_every_transition_in_order(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let mut reader = engine.follow(None).await.unwrap();
    let session = register(&engine, "q", 1, 60_000).await;
    let id = submit(&engine, "q", |_| {}).await;
    let held = engine.claim(session, claim(1, Duration::ZERO)).await.unwrap();
    complete(&engine, &held[0]).await;
    let mut events = Vec::new();
    for _ in 0..3 {
        let entry = reader.next().await.unwrap();
        assert_eq!(entry.history.task_id, id);
        events.push(entry.history.event.as_str());
    }
    assert_eq!(events, ["submit", "claim", "complete"]);
}

async fn a_slow_reader_loses_nothing_and_blocks_nobody(dialect: Dialect) {
    let options = Options { log_entries: 16, ..without_polling() };
    let World { engine, place: _place } = World::with(dialect, options).await;
    let mut slow = engine.follow(None).await.unwrap();
    let mut quick = engine.follow(None).await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..100 {
        ids.push(submit(&engine, "q", |_| {}).await);
    }
    for id in &ids {
        assert_eq!(quick.next().await.unwrap().history.task_id, *id);
    }
    for id in &ids {
        assert_eq!(slow.next().await.unwrap().history.task_id, *id);
    }
}

async fn a_reader_resumes_where_it_stopped(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let mut ids = Vec::new();
    for _ in 0..10 {
        ids.push(submit(&engine, "q", |_| {}).await);
    }
    let mut seen = Vec::new();
    let mut at = Position::default();
    for _ in 0..5 {
        let mut reader = engine.follow(Some(at)).await.unwrap();
        for _ in 0..2 {
            seen.push(reader.next().await.unwrap().history.task_id);
        }
        at = reader.position();
    }
    assert_eq!(seen, ids);
}
