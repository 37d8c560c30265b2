//! Waiting for a task's end.

use crate::world::{
    PATIENCE, World, claim, conformance, finish, register, submit, without_polling,
};
use futures_util::future::join_all;
use std::time::Duration;
use windlass::Engine;
use windlass::domain::failure::TaskError;
use windlass::domain::id::TaskId;
use windlass::domain::state::State;
use windlass::domain::time::Timestamp;
use windlass::domain::wait::Until;
use windlass::engine::Error;
use windlass::store::statement::Dialect;
use windlass::store::task::{Assignment, Finishing, Holder, Park};

conformance!(
    a_wait_ends_at_once_when_the_task_has_ended,
    a_wait_is_woken_by_the_end,
    a_wait_says_how_the_task_ended,
    a_wait_for_an_unknown_task_is_refused,
    a_wait_ends_with_its_time_and_shows_the_task,
    however_many_tasks_wait_for_another_its_end_wakes_all_of_them,
);

async fn a_wait_ends_at_once_when_the_task_has_ended(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let id = submit(&engine, "q", |_| {}).await;
    engine.cancel(id, "tester", Some("no longer needed".into())).await.unwrap();
    let waited = engine.wait_for(id, PATIENCE).await.unwrap();
    assert!(waited.done);
    assert_eq!(waited.task.status, State::Cancelled);
}

async fn a_wait_is_woken_by_the_end(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let session = register(&engine, "q", 1, 60_000).await;
    let id = submit(&engine, "q", |_| {}).await;
    let waiting = engine.clone();
    let waited = tokio::spawn(async move { waiting.wait_for(id, PATIENCE).await });
    let held = engine.claim(session, claim(1, Duration::ZERO)).await.unwrap();
    let how = Finishing::Complete(Some("{\"n\":1}".into()));
    engine.finish(vec![finish(&held[0], how)]).await.pop().unwrap().unwrap();
    let waited = waited.await.unwrap().unwrap();
    assert_eq!(waited.result().unwrap(), serde_json::json!({ "n": 1 }));
    assert_eq!(engine.open_waits(), 0);
}

async fn a_wait_says_how_the_task_ended(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let session = register(&engine, "q", 1, 60_000).await;
    let cancelled = submit(&engine, "other", |_| {}).await;
    engine.cancel(cancelled, "tester", None).await.unwrap();
    let told = engine.wait_for(cancelled, PATIENCE).await.unwrap().result().unwrap_err();
    assert!(matches!(told, Error::TaskEnded(State::Cancelled, _)), "{told}");

    let failed = submit(&engine, "q", |_| {}).await;
    let held = engine.claim(session, claim(1, Duration::ZERO)).await.unwrap();
    let error = TaskError::new("INVALID_INPUT", "no such address");
    let how = Finishing::Fail { error, retry_after_ms: None, chance: 0.5 };
    engine.finish(vec![finish(&held[0], how)]).await.pop().unwrap().unwrap();
    let told = engine.wait_for(failed, PATIENCE).await.unwrap().result().unwrap_err();
    assert!(told.to_string().contains("INVALID_INPUT no such address"), "{told}");

    let pending = submit(&engine, "other", |_| {}).await;
    let told = engine.wait_for(pending, Duration::ZERO).await.unwrap().result().unwrap_err();
    assert!(matches!(told, Error::WaitTimedOut), "{told}");
}

async fn a_wait_for_an_unknown_task_is_refused(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let told = engine.wait_for(TaskId(uuid::Uuid::now_v7()), PATIENCE).await.unwrap_err();
    assert_eq!(told.code(), "not_found");
}

async fn a_wait_ends_with_its_time_and_shows_the_task(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let id = submit(&engine, "q", |_| {}).await;
    let waited = engine.wait_for(id, Duration::from_millis(50)).await.unwrap();
    assert!(!waited.done);
    assert_eq!(waited.task.status, State::Pending);
    assert_eq!(engine.open_waits(), 0);
}

/// More than are woken in two transactions. The others were found every five seconds, five hundred
/// at a time.
async fn however_many_tasks_wait_for_another_its_end_wakes_all_of_them(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let child = submit(&engine, "child", |_| {}).await;
    let session = register(&engine, "q", 101, 60_000).await;
    let park = |held: Assignment| {
        let holder = Holder::new(held.task.id, held.lease_id, "tester");
        let until = Until::Task(child);
        engine.park(Park { holder, until, occurrence: None, timeout_ms: None, checkpoint: None })
    };
    let mut parents = Vec::new();
    while parents.len() < 1_010 {
        parents.extend(join_all((0..101).map(|_| submit(&engine, "q", |_| {}))).await);
        let mut parked = 0;
        while parked < 101 {
            let held = engine.claim(session, claim(101, Duration::ZERO)).await.unwrap();
            parked += held.len();
            join_all(held.into_iter().map(park)).await.into_iter().for_each(|p| drop(p.unwrap()));
        }
    }
    engine.cancel(child, "tester", None).await.unwrap();
    let mut woken = Vec::new();
    for parent in parents {
        woken.push(until_woken(&engine, parent).await);
    }
    woken.sort_unstable();
    let pauses = woken.windows(2).map(|pair| pair[1].as_ms() - pair[0].as_ms());
    let longest = pauses.max().unwrap();
    assert!(longest < 4_500, "some were woken {longest} ms after the others");
}

/// When a task went on that had waited.
async fn until_woken(engine: &Engine, task: TaskId) -> Timestamp {
    let woken = async {
        loop {
            let task = engine.tasks().show(task).await.unwrap().unwrap();
            if task.status != State::Waiting {
                return task.updated_at;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, woken).await.expect("it waits still")
}
