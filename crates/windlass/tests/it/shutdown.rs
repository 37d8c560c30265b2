//! The end of a node.

use crate::world::{World, conformance, eventually, register, start, status, submit};
use std::time::Duration;
use windlass::domain::state::State;
use windlass::store::statement::Dialect;
use windlass::worker::WorkerOptions;

conformance!(
    running_handlers_may_finish,
    what_does_not_finish_in_time_goes_back,
    a_node_that_shuts_down_takes_no_new_work,
);

async fn running_handlers_may_finish(dialect: Dialect) {
    let World { engine, place } = World::new(dialect).await;
    let ending = engine.clone();
    let _worker = engine
        .work(WorkerOptions::queue("w", "q", 1), move |_| {
            let ending = ending.clone();
            async move {
                // It is still at work when the end begins.
                ending.draining().await;
                Ok(serde_json::json!("done"))
            }
        })
        .await
        .unwrap();
    let id = submit(&engine, "q", |_| {}).await;
    eventually("it runs", || async { status(&engine, id).await == State::Running }).await;
    engine.shutdown(Duration::from_secs(20)).await;
    let engine = start(&place.url(), Default::default()).await;
    assert_eq!(status(&engine, id).await, State::Completed);
}

async fn what_does_not_finish_in_time_goes_back(dialect: Dialect) {
    let World { engine, place } = World::new(dialect).await;
    let _worker = engine
        .work(WorkerOptions::queue("w", "q", 1), |_| async {
            std::future::pending::<()>().await;
            Ok(serde_json::Value::Null)
        })
        .await
        .unwrap();
    let id = submit(&engine, "q", |_| {}).await;
    eventually("it runs", || async { status(&engine, id).await == State::Running }).await;
    engine.shutdown(Duration::from_millis(50)).await;
    let engine = start(&place.url(), Default::default()).await;
    assert_eq!(status(&engine, id).await, State::Pending);
}

async fn a_node_that_shuts_down_takes_no_new_work(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let session = register(&engine, "q", 1, 60_000).await;
    engine.drain();
    let claim = crate::world::claim(1, Duration::from_secs(20));
    assert_eq!(engine.claim(session, claim).await.unwrap_err().code(), "shutting_down");
    let Err(told) = engine.open_stream(session).await else { panic!("a stream was opened") };
    assert_eq!(told.code(), "shutting_down");
}
