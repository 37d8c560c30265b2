//! The first delta of an attempt: readers have it before anything is written, and what the
//! database says afterwards holds.

use crate::delta::{ask, completed, next, post, provider};
use crate::world::{PATIENCE, World, claim, conformance, finish, without_polling};
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use uuid::Uuid;
use windlass::Engine;
use windlass::domain::id::TaskId;
use windlass::domain::profile::Kind;
use windlass::domain::request::SubmitRequest;
use windlass::engine::Watched;
use windlass::store::statement::Dialect;
use windlass::store::task::Finishing;

conformance!(
    readers_have_the_first_delta_before_anything_is_written,
    the_first_delta_of_an_attempt_that_was_lost_is_taken_back,
    a_first_delta_that_could_not_be_noted_is_noted_with_the_next_post,
    a_watch_that_begins_before_its_task_sees_all_of_it,
    a_watch_that_begins_before_its_task_is_told_of_a_cancel,
);

/// Keeps everybody from writing until it is dropped.
struct Busy {
    gate: Arc<(Mutex<bool>, Condvar)>,
}

impl Busy {
    async fn begin(engine: &Engine, dialect: Dialect) -> Busy {
        let writers = if dialect == Dialect::Sqlite { 1 } else { 4 };
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let begun = Arc::new(AtomicUsize::new(0));
        for _ in 0..writers {
            let (gate, begun, store) = (gate.clone(), begun.clone(), engine.store().clone());
            tokio::spawn(async move {
                let body = move |_: &mut dyn windlass::store::tx::Tx| {
                    begun.fetch_add(1, Ordering::SeqCst);
                    let (is_open, opened) = &*gate;
                    let open = is_open.lock().unwrap();
                    drop(opened.wait_while(open, |open| !*open).unwrap());
                    Ok(())
                };
                store.write("busy", body).await.unwrap();
            });
        }
        while begun.load(Ordering::SeqCst) < writers {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Busy { gate }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        *self.gate.0.lock().unwrap() = true;
        self.gate.1.notify_all();
    }
}

async fn readers_have_the_first_delta_before_anything_is_written(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let id = ask(&engine, "fast").await;
    let session = provider(&engine, "fast", 1).await;
    let held = engine.claim(session, claim(1, PATIENCE)).await.unwrap().pop().unwrap();
    let mut watching = engine.watch(id).await.unwrap();
    let busy = Busy::begin(&engine, dialect).await;
    let poster = (engine.clone(), held.clone());
    let posting = tokio::spawn(async move { post(&poster.0, &poster.1, 0, &["a"]).await });
    assert_eq!(next(&mut watching).await, "1.0 \"a\"");
    assert!(!posting.is_finished(), "it was acknowledged before it was written that text comes");
    drop(busy);
    assert_eq!(posting.await.unwrap(), 1);
    let task = engine.tasks().show(id).await.unwrap().unwrap();
    assert!(task.stream_started_at.is_some());
    completed(&engine, &held).await;
    assert_eq!(next(&mut watching).await, "finished completed");
}

async fn the_first_delta_of_an_attempt_that_was_lost_is_taken_back(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let id = ask(&engine, "fast").await;
    let session = provider(&engine, "fast", 1).await;
    let held = engine.claim(session, claim(1, PATIENCE)).await.unwrap().pop().unwrap();
    let mut watching = engine.watch(id).await.unwrap();
    let busy = Busy::begin(&engine, dialect).await;
    // As another node would: nobody here is told.
    let (tasks, lost) = (engine.tasks().clone(), held.clone());
    let losing = tokio::spawn(async move {
        tasks.finish(vec![finish(&lost, Finishing::Release)]).await.pop().unwrap()
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let (poster, lease) = (engine.clone(), held.lease_id);
    let posting =
        tokio::spawn(async move { poster.post_deltas(id, lease, 0, vec![json!("a")]).await });
    assert_eq!(next(&mut watching).await, "1.0 \"a\"");
    drop(busy);
    losing.await.unwrap().unwrap();
    // On PostgreSQL either may be the first; a file has one writer, so there the release is.
    let posted = posting.await.unwrap();
    if dialect == Dialect::Sqlite {
        assert_eq!(posted.unwrap_err().code(), "lease_lost");
    }
    let told = engine.post_deltas(id, lease, 1, vec![json!("b")]).await;
    assert!(told.is_err() || dialect == Dialect::Postgres);
    let other = provider(&engine, "fast", 1).await;
    let again = engine.claim(other, claim(1, PATIENCE)).await.unwrap().pop().unwrap();
    post(&engine, &again, 0, &["x"]).await;
    let mut seen = next(&mut watching).await;
    if dialect == Dialect::Postgres && seen == "1.1 \"b\"" {
        seen = next(&mut watching).await;
    }
    assert_eq!(seen, "reset 1");
    assert_eq!(next(&mut watching).await, "2.0 \"x\"");
    completed(&engine, &again).await;
    assert_eq!(next(&mut watching).await, "finished completed");
}

async fn a_first_delta_that_could_not_be_noted_is_noted_with_the_next_post(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let id = ask(&engine, "fast").await;
    let session = provider(&engine, "fast", 1).await;
    let held = engine.claim(session, claim(1, PATIENCE)).await.unwrap().pop().unwrap();
    let mut watching = engine.watch(id).await.unwrap();
    let busy = Busy::begin(&engine, dialect).await;
    // Its caller goes away before the answer.
    let posting = engine.post_deltas(id, held.lease_id, 0, vec![json!("a")]);
    assert!(tokio::time::timeout(Duration::from_millis(50), posting).await.is_err());
    assert_eq!(next(&mut watching).await, "1.0 \"a\"");
    drop(busy);
    assert_eq!(post(&engine, &held, 0, &["a", "b"]).await, 2);
    let task = engine.tasks().show(id).await.unwrap().unwrap();
    assert!(task.stream_started_at.is_some());
    assert_eq!(next(&mut watching).await, "1.1 \"b\"");
}

/// Submits an inference under an id.
async fn ask_as(engine: &Engine, id: TaskId) {
    let request = SubmitRequest {
        kind: Some(Kind::Inference),
        pool: Some("fast".into()),
        payload: json!({}),
        ..SubmitRequest::default()
    };
    let task = engine.new_task(&request, id, "", "me").unwrap();
    assert!(!engine.submit(vec![task]).await.pop().unwrap().unwrap().duplicate);
}

async fn a_watch_that_begins_before_its_task_sees_all_of_it(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let id = TaskId(Uuid::now_v7());
    let mut watching = engine.watch_new(id);
    ask_as(&engine, id).await;
    let session = provider(&engine, "fast", 1).await;
    let held = engine.claim(session, claim(1, PATIENCE)).await.unwrap().pop().unwrap();
    post(&engine, &held, 0, &["a"]).await;
    assert_eq!(next(&mut watching).await, "1.0 \"a\"");
    completed(&engine, &held).await;
    assert_eq!(next(&mut watching).await, "finished completed");
    assert_eq!(next(&mut watching).await, "over");
    drop(watching);
    assert_eq!(engine.watchers(), 0);
}

async fn a_watch_that_begins_before_its_task_is_told_of_a_cancel(dialect: Dialect) {
    use futures_util::StreamExt;
    let World { engine, place: _place } = World::new(dialect).await;
    let id = TaskId(Uuid::now_v7());
    let mut watching = engine.watch_new(id);
    ask_as(&engine, id).await;
    let (told, ()) = tokio::join!(watching.next(), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        // As another node would: the log alone tells.
        engine.tasks().cancel(id, "tester", None).await.unwrap();
    });
    assert!(matches!(told, Some(Watched::Finished(_))), "{told:?}");
}
