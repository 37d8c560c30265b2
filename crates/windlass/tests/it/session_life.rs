//! How long sessions live: without a sign of life for fifteen seconds, in which their database was
//! there to take one.

use crate::cluster::{Cluster, ClusterOptions};
use crate::world::{
    NOON, PATIENCE, World, claim, conformance, eventually, register, run, start_at, status, submit,
};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use windlass::domain::id::{SessionId, TaskId};
use windlass::domain::state::State;
use windlass::engine::ClaimRequest;
use windlass::sdk::{Ctx, Handlers};
use windlass::store::clock::Clock;
use windlass::store::session::TTL_MS;
use windlass::store::statement::Dialect;
use windlass::store::store::Store;
use windlass::store::{self, migration};
use windlass::worker::WorkerOptions;
use windlass::{Engine, Options};

conformance!(
    a_silent_session_is_closed,
    sessions_outlive_a_node_that_was_stopped_and_goes_on,
    a_node_that_has_just_started_closes_nothing,
    what_a_crash_leaves_with_a_closed_session_goes_back,
    a_worker_in_process_goes_on_when_its_session_has_ended,
);

const SECOND: i64 = 1_000;

async fn is_open(engine: &Engine, session: SessionId) -> bool {
    match engine.open_session(session).await {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.code(), "session_closed");
            false
        }
    }
}

/// Passes a session's whole life, second by second, in which every node looks after the sessions
/// and some give signs of life.
async fn pass_a_life(clock: &AtomicI64, nodes: &[&Engine], alive: &[SessionId]) {
    for _ in 0..=TTL_MS / SECOND {
        clock.fetch_add(SECOND, Ordering::SeqCst);
        for session in alive {
            nodes[0].renew(*session).await.unwrap();
        }
        for node in nodes {
            node.expire_sessions().await.unwrap();
        }
    }
}

async fn a_silent_session_is_closed(dialect: Dialect) {
    let clock = Arc::new(AtomicI64::new(NOON));
    let (engine, _place) = start_at(dialect, &clock).await;
    engine.expire_sessions().await.unwrap();
    let silent = register(&engine, "q", 1, 60_000).await;
    let alive = register(&engine, "q", 1, 60_000).await;
    clock.fetch_add(SECOND, Ordering::SeqCst);
    engine.renew(alive).await.unwrap();
    for _ in 1..TTL_MS / SECOND {
        assert!(is_open(&engine, silent).await);
        engine.expire_sessions().await.unwrap();
        clock.fetch_add(SECOND, Ordering::SeqCst);
    }
    engine.expire_sessions().await.unwrap();
    assert!(!is_open(&engine, silent).await);
    assert!(is_open(&engine, alive).await, "it was heard a second later");
}

/// As of a machine that sleeps: its clock has gone on, and nobody could be heard.
async fn sessions_outlive_a_node_that_was_stopped_and_goes_on(dialect: Dialect) {
    let clock = Arc::new(AtomicI64::new(NOON));
    let (engine, _place) = start_at(dialect, &clock).await;
    let [alive, silent] =
        [register(&engine, "q", 1, 60_000).await, register(&engine, "q", 1, 60_000).await];
    engine.renew(silent).await.unwrap();
    clock.fetch_add(2 * TTL_MS, Ordering::SeqCst);
    engine.expire_sessions().await.unwrap();
    assert!(is_open(&engine, alive).await && is_open(&engine, silent).await);
    pass_a_life(&clock, &[&engine], &[alive]).await;
    assert!(is_open(&engine, alive).await && !is_open(&engine, silent).await);
}

async fn a_node_that_has_just_started_closes_nothing(dialect: Dialect) {
    let clock = Arc::new(AtomicI64::new(NOON));
    let (engine, _place) = start_at(dialect, &clock).await;
    let session = register(&engine, "q", 1, 60_000).await;
    clock.fetch_add(TTL_MS, Ordering::SeqCst);
    // Whatever this node has seen before is too long ago, as if it had seen nothing.
    engine.expire_sessions().await.unwrap();
    engine.expire_sessions().await.unwrap();
    assert!(is_open(&engine, session).await);
}

/// A worker is given a delegation that it has not begun, and a job that it has.
async fn give(engine: &Engine) -> (SessionId, TaskId, TaskId) {
    let delegated = |request: &mut windlass::domain::request::SubmitRequest| {
        (request.caller, request.callee) = (Some("ada".into()), Some("crew".into()));
    };
    let session = register(engine, "q", 2, 600_000).await;
    let delegation = submit(engine, "q", delegated).await;
    let waiting = ClaimRequest { start: false, ..claim(1, Duration::ZERO) };
    assert_eq!(engine.claim(session, waiting).await.unwrap().len(), 1);
    let job = submit(engine, "q", |_| {}).await;
    assert_eq!(engine.claim(session, claim(1, Duration::ZERO)).await.unwrap().len(), 1);
    (session, delegation, job)
}

/// The end of a session and its tasks' way back are two transactions; here the second never came.
async fn what_a_crash_leaves_with_a_closed_session_goes_back(dialect: Dialect) {
    let clock = Arc::new(AtomicI64::new(NOON));
    let (engine, _place) = start_at(dialect, &clock).await;
    let (silent, silent_delegation, silent_job) = give(&engine).await;
    let (closed, closed_delegation, closed_job) = give(&engine).await;
    assert!(engine.sessions().close(silent, "expired").await.unwrap());
    assert!(engine.sessions().close(closed, "closed").await.unwrap());
    let settle = || async { engine.settle_sessions().await.unwrap().changed };
    // Whoever closed them may be about to do it.
    assert_eq!(settle().await, 0);
    assert_eq!(status(&engine, silent_delegation).await, State::Claimed);
    clock.fetch_add(TTL_MS + 1, Ordering::SeqCst);
    assert_eq!(settle().await, 2);
    for task in [silent_delegation, closed_delegation, closed_job] {
        assert_eq!(status(&engine, task).await, State::Pending, "{task}");
    }
    // Its lease decides: the worker may only be cut off.
    assert_eq!(status(&engine, silent_job).await, State::Running);
    assert_eq!(settle().await, 0, "once is enough");
}

async fn node(cluster: &Cluster, clock: &Arc<AtomicI64>) -> Engine {
    let clock = Clock::Fixed(Arc::clone(clock));
    let options = store::postgres::Options { clock, ..Default::default() };
    let store = Store::new(store::postgres::open(&cluster.url(), options).unwrap());
    migration::up(&store).await.unwrap();
    Engine::start(store, Options::default()).await.unwrap()
}

/// All sessions were closed in the moment in which the database came back, by whichever node saw
/// it first, although their workers were alive.
async fn outage(_: Dialect) {
    let cluster = Cluster::start(ClusterOptions::default());
    let clock = Arc::new(AtomicI64::new(NOON));
    let (first, second) = (node(&cluster, &clock).await, node(&cluster, &clock).await);
    let alive = register(&first, "q", 1, 60_000).await;
    let streaming = register(&first, "q", 1, 60_000).await;
    let _stream = first.open_stream(streaming).await.unwrap();
    // Both nodes have been in touch for long, and would close what is silent.
    pass_a_life(&clock, &[&first, &second], &[alive, streaming]).await;
    let silent = register(&second, "q", 1, 60_000).await;
    let before = register(&second, "q", 1, 60_000).await;
    clock.fetch_add(SECOND, Ordering::SeqCst);
    cluster.stop("immediate");
    // These have begun with the database away; the nodes' own duties do the same.
    let sweeps = [&first, &second].map(|engine| {
        let engine = engine.clone();
        tokio::spawn(async move { engine.expire_sessions().await })
    });
    clock.fetch_add(2 * TTL_MS, Ordering::SeqCst);
    cluster.run();
    for sweep in sweeps {
        // It is done after all, or it has failed; both are right.
        let _ = sweep.await.unwrap();
    }
    for engine in [&first, &second] {
        eventually("the database is back", || async { engine.expire_sessions().await.is_ok() })
            .await;
        for session in [alive, streaming, silent, before] {
            assert!(is_open(engine, session).await, "{session}");
        }
    }
    let expires_at =
        || async { first.sessions().show(streaming).await.unwrap().unwrap().expires_at };
    eventually("the stream's node renews its session", || async {
        expires_at().await.as_ms() == clock.load(Ordering::SeqCst) + TTL_MS
    })
    .await;
    pass_a_life(&clock, &[&first, &second], &[alive]).await;
    assert!(is_open(&first, alive).await);
    assert!(!is_open(&first, silent).await && !is_open(&second, before).await);
    for engine in [first, second] {
        engine.shutdown(Duration::ZERO).await;
    }
}

#[test]
fn sessions_outlive_an_outage_of_their_database() {
    run(outage, Dialect::Postgres);
}

/// Another node had ended it while this process stood still, and it never took a task again.
async fn a_worker_in_process_goes_on_when_its_session_has_ended(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let handlers = Handlers::new().otherwise(async |_: Ctx, payload: Value| Ok(payload));
    let worker = engine.run(WorkerOptions::queue("sdk", "q", 1), handlers).await.unwrap();
    engine.close_session(worker.session()).await.unwrap();
    eventually("its session is open", || is_open(&engine, worker.session())).await;
    let id = submit(&engine, "q", |_| {}).await;
    assert_eq!(engine.wait_for(id, PATIENCE).await.unwrap().task.status, State::Completed);
    worker.stop().await;
}
