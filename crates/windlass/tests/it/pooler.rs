//! Several nodes behind a transaction pooler: nobody hears anybody, everybody polls.

use crate::bouncer::Bouncer;
use crate::cluster::TestDatabase;
use crate::world::{PATIENCE, claim, complete, register, run, start, submit};
use std::time::Duration;
use windlass::Options;
use windlass::domain::state::State;
use windlass::store::statement::Dialect;

#[test]
fn a_task_submitted_on_one_node_is_done_on_another_by_polling() {
    run(polls, Dialect::Postgres);
}

async fn polls(_: Dialect) {
    let database = TestDatabase::create();
    let bouncer = Bouncer::start(database.port(), "");
    let url = database.url_through(bouncer.port());
    let options = || Options { poll: Duration::from_millis(200), ..Options::default() };
    let (one, other) = tokio::join!(start(&url, options()), start(&url, options()));
    assert!(!one.store().hears() && !other.store().hears());
    let session = register(&other, "q", 1, 60_000).await;
    for _ in 0..3 {
        let waiting = other.clone();
        let got = tokio::spawn(async move { waiting.claim(session, claim(1, PATIENCE)).await });
        let id = submit(&one, "q", |_| {}).await;
        let waiter = one.clone();
        let waited = tokio::spawn(async move { waiter.wait_for(id, PATIENCE).await });
        let held = got.await.unwrap().unwrap();
        assert_eq!(held[0].task.id, id);
        assert_eq!(complete(&other, &held[0]).await, State::Completed);
        assert!(waited.await.unwrap().unwrap().done, "the finish is seen on the first node");
    }
    assert!(!one.store().hears() && !other.store().hears());
    one.shutdown(Duration::ZERO).await;
    other.shutdown(Duration::ZERO).await;
}
