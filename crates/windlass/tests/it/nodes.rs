//! Several nodes on one PostgreSQL.

use crate::world::{
    PATIENCE, World, claim, complete, eventually, register, run, status, submit, without_polling,
};
use std::time::Duration;
use windlass::domain::limit::{Rule, Scope};
use windlass::domain::state::State;
use windlass::engine::{Error, StreamEvent};
use windlass::store::statement::Dialect;

#[test]
fn a_task_submitted_on_one_node_wakes_a_worker_on_another() {
    run(wakes, Dialect::Postgres);
}

async fn wakes(dialect: Dialect) {
    let world = World::with(dialect, without_polling()).await;
    let other = world.another(without_polling()).await;
    hear_each_other(&[&world.engine, &other]).await;
    let session = register(&other, "q", 1, 60_000).await;
    let waiting = other.clone();
    let got = tokio::spawn(async move { waiting.claim(session, claim(1, PATIENCE)).await });
    eventually("it waits", || async { other.idle_workers() == 1 }).await;
    let id = submit(&world.engine, "q", |_| {}).await;
    assert_eq!(got.await.unwrap().unwrap()[0].task.id, id);
}

/// Nobody polls here, so everybody must listen before it begins.
async fn hear_each_other(engines: &[&windlass::Engine]) {
    eventually("the nodes hear each other", || async {
        engines.iter().all(|engine| engine.store().hears())
    })
    .await;
}

#[test]
fn room_under_a_limit_that_one_node_makes_wakes_a_worker_on_another() {
    run(makes_room, Dialect::Postgres);
}

/// What waits there is not the other's to take, so nobody is told that it is ready.
async fn makes_room(dialect: Dialect) {
    let world = World::with(dialect, without_polling()).await;
    let other = world.another(without_polling()).await;
    hear_each_other(&[&world.engine, &other]).await;
    let (scope, max_active) = (Scope::Venture, Some(1));
    let rule = Rule { scope, name: None, max_active, max_pending: None, rate: None };
    other.put_limit(rule, "ann").await.unwrap();
    eventually("both know", || async {
        [&world.engine, &other].iter().all(|node| node.flow().version == other.flow().version)
    })
    .await;
    submit(&world.engine, "p", |r| r.venture = Some("v".into())).await;
    let session = register(&world.engine, "p", 1, 60_000).await;
    let held = world.engine.claim(session, claim(1, Duration::ZERO)).await.unwrap();
    let id = submit(&other, "q", |r| r.venture = Some("v".into())).await;
    let session = register(&other, "q", 1, 60_000).await;
    let waiting = other.clone();
    let got = tokio::spawn(async move { waiting.claim(session, claim(1, PATIENCE)).await });
    eventually("it waits", || async { other.idle_workers() == 1 }).await;
    complete(&world.engine, &held[0]).await;
    assert_eq!(got.await.unwrap().unwrap()[0].task.id, id);
}

#[test]
fn a_wait_on_one_node_is_woken_by_a_finish_on_another() {
    run(waits, Dialect::Postgres);
}

async fn waits(dialect: Dialect) {
    let world = World::with(dialect, without_polling()).await;
    let other = world.another(without_polling()).await;
    hear_each_other(&[&world.engine, &other]).await;
    let session = register(&other, "q", 1, 60_000).await;
    let id = submit(&world.engine, "q", |_| {}).await;
    let waiting = world.engine.clone();
    let waited = tokio::spawn(async move { waiting.wait_for(id, PATIENCE).await });
    eventually("it waits", || async { world.engine.open_waits() == 1 }).await;
    let held = other.claim(session, claim(1, Duration::ZERO)).await.unwrap();
    complete(&other, &held[0]).await;
    assert!(waited.await.unwrap().unwrap().done);
}

#[test]
fn a_cancel_on_one_node_reaches_a_stream_on_another() {
    run(cancels, Dialect::Postgres);
}

async fn cancels(dialect: Dialect) {
    let world = World::with(dialect, without_polling()).await;
    let other = world.another(without_polling()).await;
    hear_each_other(&[&world.engine, &other]).await;
    let session = register(&other, "q", 1, 60_000).await;
    let mut stream = other.open_stream(session).await.unwrap();
    let id = submit(&world.engine, "q", |_| {}).await;
    let Some(StreamEvent::Assign(assigned)) = stream.next().await else { panic!("no assignment") };
    world.engine.cancel(id, "tester", None).await.unwrap();
    let cancelled = StreamEvent::Cancel { task_id: id, lease_id: assigned.lease_id };
    assert_eq!(stream.next().await, Some(cancelled));
}

#[test]
fn nodes_know_each_other_and_a_duty_runs_on_one_of_them() {
    run(knows, Dialect::Postgres);
}

async fn knows(dialect: Dialect) {
    let world = World::with(dialect, Default::default()).await;
    let other = world.another(Default::default()).await;
    let (first, next) = world.engine.nodes().list(None, 1).await.unwrap();
    let (second, end) = world.engine.nodes().list(next, 1).await.unwrap();
    assert_eq!(end, None);
    let ids: Vec<_> = first.iter().chain(&second).map(|node| node.id).collect();
    assert_eq!(ids, [world.engine.node(), other.node()]);
    let first = world.engine.nodes().take_duty("some", ids[0], 60_000).await.unwrap().0;
    let second = world.engine.nodes().take_duty("some", ids[1], 60_000).await.unwrap().0;
    assert!(first && !second);
    other.shutdown(Duration::ZERO).await;
    assert_eq!(world.engine.nodes().list(None, 10).await.unwrap().0.len(), 1);
}

#[test]
fn a_session_that_is_closed_through_another_node_keeps_nothing() {
    run(closes, Dialect::Postgres);
}

/// Its stream took what had gone back and what came, for nobody: until the leases ran out, and a
/// delegation, which has no expiry before its first beat, for ever.
async fn closes(dialect: Dialect) {
    let world = World::with(dialect, without_polling()).await;
    let other = world.another(without_polling()).await;
    let session = register(&world.engine, "q", 2, 60_000).await;
    let mut stream = world.engine.open_stream(session).await.unwrap();
    let before = submit(&world.engine, "q", |_| {}).await;
    assert!(stream.next().await.is_some());
    other.close_session(session).await.unwrap();
    let after = submit(&world.engine, "q", |_| {}).await;
    // Noticed with the next renewal.
    let ends = async { while stream.next().await.is_some() {} };
    tokio::time::timeout(PATIENCE, ends).await.unwrap();
    for task in [before, after] {
        eventually("it is in line again", || async {
            status(&world.engine, task).await == State::Pending
        })
        .await;
    }
}

#[test]
fn a_claim_that_waits_ends_when_its_session_is_closed_through_another_node() {
    run(claims_and_closes, Dialect::Postgres);
}

async fn claims_and_closes(dialect: Dialect) {
    let world = World::with(dialect, without_polling()).await;
    let other = world.another(without_polling()).await;
    let session = register(&world.engine, "q", 1, 60_000).await;
    let waiting = world.engine.clone();
    let wait = Duration::from_secs(60);
    let got = tokio::spawn(async move { waiting.claim(session, claim(1, wait)).await });
    eventually("it waits", || async { world.engine.idle_workers() == 1 }).await;
    other.close_session(session).await.unwrap();
    let got = tokio::time::timeout(PATIENCE, got).await.unwrap().unwrap();
    assert!(matches!(got, Err(Error::SessionClosed(..))), "{got:?}");
    assert_eq!(world.engine.idle_workers(), 0);
}

#[test]
fn a_stream_on_another_node_ends_the_older_one() {
    run(moves, Dialect::Postgres);
}

async fn moves(dialect: Dialect) {
    let world = World::with(dialect, without_polling()).await;
    let other = world.another(without_polling()).await;
    let session = register(&world.engine, "q", 1, 60_000).await;
    let mut older = world.engine.open_stream(session).await.unwrap();
    let mut newer = other.open_stream(session).await.unwrap();
    // Noticed with the next renewal.
    assert_eq!(tokio::time::timeout(PATIENCE, older.next()).await.unwrap(), None);
    let id = submit(&other, "q", |_| {}).await;
    let Some(StreamEvent::Assign(assignment)) = newer.next().await else { panic!("no task") };
    assert_eq!(assignment.task.id, id);
}
