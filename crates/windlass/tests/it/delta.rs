//! The text of inference, piece by piece, and those who watch it.

use crate::world::{
    PATIENCE, World, claim, conformance, eventually, finish, register, status, submit,
};
use futures_util::StreamExt;
use serde_json::{Value, json};
use std::time::Duration;
use uuid::Uuid;
use windlass::domain::delta::Place;
use windlass::domain::id::{LeaseId, SessionId, TaskId};
use windlass::domain::profile::Kind;
use windlass::domain::request::SubmitRequest;
use windlass::domain::state::State;
use windlass::engine::{SessionRequest, Watched, Watching};
use windlass::store::session::Routes;
use windlass::store::statement::Dialect;
use windlass::store::task::{Assignment, Finishing};
use windlass::{Engine, Options};

conformance!(
    a_watcher_gets_each_delta_once_and_in_order_and_then_the_end,
    a_late_watcher_gets_everything_so_far,
    a_finished_task_is_told_at_once,
    a_repeated_delta_is_ignored_and_a_gap_refused,
    deltas_under_a_lost_lease_are_refused,
    a_watcher_of_a_lost_attempt_is_told_that_the_text_begins_anew,
    a_watcher_goes_on_where_it_stood,
    an_attempts_text_is_bounded,
    the_first_delta_starts_the_task_and_tells_when,
    a_delta_keeps_the_lease,
    a_delta_keeps_the_session,
    thousands_of_watchers_share_one_text,
    nothing_of_a_text_is_left_when_its_attempt_is_over,
    a_watcher_of_a_task_that_does_not_exist_is_told_so,
    a_cancelled_task_ends_its_watchers,
    a_node_that_is_full_of_texts_refuses_the_post_beyond_and_nobody_elses,
    a_result_is_bounded_by_its_kind,
);

async fn a_node_that_is_full_of_texts_refuses_the_post_beyond_and_nobody_elses(dialect: Dialect) {
    let options = Options { inference_memory: 8 << 20, ..Options::default() };
    let world = World::with(dialect, options).await;
    let engine = &world.engine;
    let (one, two) = (held(engine).await, held(engine).await);
    let mebibytes = |count: usize| vec![json!("x".repeat(1 << 20)); count];
    let posted = |held: &Assignment, from, deltas| {
        engine.post_deltas(held.task.id, held.lease_id, from, deltas)
    };
    assert_eq!(posted(&one, 0, mebibytes(5)).await.unwrap(), 5);
    assert_eq!(posted(&two, 0, mebibytes(2)).await.unwrap(), 2);
    let told = refused(engine, &two, 2, mebibytes(3)).await;
    assert!(told.starts_with("too_large ") && told.contains("`inference_memory`"), "{told}");
    // What fits is taken, also of the one that was refused, and what is there stays.
    assert_eq!(posted(&one, 5, vec![json!("y")]).await.unwrap(), 6);
    assert_eq!(posted(&two, 2, vec![json!("z")]).await.unwrap(), 3);
    let mut watching = engine.watch(one.task.id).await.unwrap();
    for index in 0..6 {
        assert!(next(&mut watching).await.starts_with(&format!("1.{index} ")));
    }
    completed(engine, &one).await;
    assert_eq!(next(&mut watching).await, "finished completed");
    drop(watching);
    assert_eq!(posted(&two, 3, mebibytes(3)).await.unwrap(), 6, "there is room again");
}

async fn a_result_is_bounded_by_its_kind(dialect: Dialect) {
    let options = Options { inference_max_body: 2_000, ..Options::default() };
    let world = World::with(dialect, options).await;
    let engine = &world.engine;
    let (one, two) = (held(engine).await, held(engine).await);
    submit(engine, "q", |_| {}).await;
    let worker = register(engine, "q", 1, 60_000).await;
    let job = engine.claim(worker, claim(1, PATIENCE)).await.unwrap().pop().unwrap();
    let of = |bytes: usize| Finishing::Complete(Some(format!("\"{}\"", "x".repeat(bytes - 2))));
    let items = vec![
        finish(&one, of(2_001)),
        finish(&job, of(2_001)),
        finish(&two, of(2_000)),
        finish(&one, of(2_001)),
    ];
    let told: Vec<String> = (engine.finish(items).await.into_iter())
        .map(|outcome| outcome.map_or_else(|no| no.to_string(), |state| state.to_string()))
        .collect();
    assert_eq!([&told[1][..], &told[2][..]], ["completed", "completed"], "{told:?}");
    for refused in [&told[0], &told[3]] {
        assert!(refused.contains("`inference_max_body`"), "{told:?}");
    }
    // Beyond every kind's bound the setting is named as well.
    let huge = engine.result(&json!("x".repeat(2 << 20))).unwrap_err().to_string();
    assert!(huge.contains("`inference_max_body`"), "{huge}");
    assert_eq!(status(engine, one.task.id).await, State::Running);
    let request = |payload: usize| SubmitRequest {
        kind: Some(Kind::Inference),
        pool: Some("fast".into()),
        payload: json!("x".repeat(payload - 2)),
        ..SubmitRequest::default()
    };
    let new = |payload| engine.new_task(&request(payload), TaskId(Uuid::now_v7()), "", "me");
    assert!(new(2_000).is_ok() && new(2_001).is_err());
}

/// Submits an inference to a pool.
pub async fn ask(engine: &Engine, pool: &str) -> TaskId {
    crate::world::submit(engine, pool, |request| {
        request.queue = None;
        request.kind = Some(Kind::Inference);
        request.pool = Some(pool.into());
    })
    .await
}

/// Registers a provider of one pool.
pub async fn provider(engine: &Engine, pool: &str, slots: i32) -> SessionId {
    provider_with(engine, pool, slots, None).await
}

async fn provider_with(
    engine: &Engine,
    pool: &str,
    slots: i32,
    lease_ms: Option<i64>,
) -> SessionId {
    let request = SessionRequest {
        name: "provider".into(),
        routes: Routes { pools: vec![pool.into()], ..Routes::default() },
        slots: Some(slots),
        lease_ms,
        ..SessionRequest::default()
    };
    engine.register(request).await.unwrap().id
}

/// An inference in a provider's hands.
async fn held(engine: &Engine) -> Assignment {
    ask(engine, "fast").await;
    let session = provider(engine, "fast", 8).await;
    let mut taken = engine.claim(session, claim(1, PATIENCE)).await.unwrap();
    taken.pop().unwrap()
}

pub async fn post(engine: &Engine, held: &Assignment, from: u64, texts: &[&str]) -> u64 {
    let deltas = texts.iter().map(|text| json!(text)).collect();
    engine.post_deltas(held.task.id, held.lease_id, from, deltas).await.unwrap()
}

async fn refused(engine: &Engine, held: &Assignment, from: u64, deltas: Vec<Value>) -> String {
    let told = engine.post_deltas(held.task.id, held.lease_id, from, deltas).await.unwrap_err();
    format!("{} {told}", told.code())
}

pub async fn end(engine: &Engine, held: &Assignment, how: Finishing) -> State {
    engine.finish(vec![finish(held, how)]).await.pop().unwrap().unwrap()
}

pub async fn completed(engine: &Engine, held: &Assignment) {
    end(engine, held, Finishing::Complete(Some("\"done\"".into()))).await;
}

/// What comes next, in words.
pub async fn next(watching: &mut Watching) -> String {
    let next = tokio::time::timeout(PATIENCE, watching.next()).await;
    match next.expect("nothing came in time") {
        Some(Watched::Delta { attempt, index, value }) => format!("{attempt}.{index} {value}"),
        Some(Watched::Reset { attempt }) => format!("reset {attempt}"),
        Some(Watched::Finished(task)) => format!("finished {}", task.status),
        None => "over".into(),
    }
}

async fn all(watching: &mut Watching, count: usize) -> Vec<String> {
    let mut seen = Vec::new();
    for _ in 0..count {
        seen.push(next(watching).await);
    }
    seen
}

async fn a_watcher_gets_each_delta_once_and_in_order_and_then_the_end(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let held = held(&engine).await;
    let mut watching = engine.watch(held.task.id).await.unwrap();
    assert_eq!(post(&engine, &held, 0, &["a", "b"]).await, 2);
    assert_eq!(all(&mut watching, 2).await, ["1.0 \"a\"", "1.1 \"b\""]);
    assert_eq!(post(&engine, &held, 2, &["c"]).await, 3);
    completed(&engine, &held).await;
    assert_eq!(all(&mut watching, 3).await, ["1.2 \"c\"", "finished completed", "over"]);
}

async fn a_late_watcher_gets_everything_so_far(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let held = held(&engine).await;
    post(&engine, &held, 0, &["a", "b"]).await;
    let mut watching = engine.watch(held.task.id).await.unwrap();
    assert_eq!(all(&mut watching, 2).await, ["1.0 \"a\"", "1.1 \"b\""]);
    post(&engine, &held, 2, &["c"]).await;
    assert_eq!(next(&mut watching).await, "1.2 \"c\"");
}

async fn a_finished_task_is_told_at_once(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let held = held(&engine).await;
    post(&engine, &held, 0, &["a"]).await;
    completed(&engine, &held).await;
    let mut watching = engine.watch(held.task.id).await.unwrap();
    let Some(Watched::Finished(task)) = watching.next().await else { panic!("not the end") };
    assert_eq!(task.result, Some(json!("done")));
    assert_eq!(next(&mut watching).await, "over");
}

async fn a_repeated_delta_is_ignored_and_a_gap_refused(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let held = held(&engine).await;
    let told = refused(&engine, &held, 1, vec![json!("b")]).await;
    assert!(told.contains("delta_gap") && told.contains("delta 0 is expected"), "{told}");
    assert_eq!(post(&engine, &held, 0, &["a", "b"]).await, 2);
    assert_eq!(post(&engine, &held, 1, &["other", "c"]).await, 3);
    assert_eq!(post(&engine, &held, 0, &["a"]).await, 3);
    let told = refused(&engine, &held, 4, vec![json!("e")]).await;
    assert!(told.contains("delta_gap") && told.contains("delta 3 is expected"), "{told}");
    let mut watching = engine.watch(held.task.id).await.unwrap();
    assert_eq!(all(&mut watching, 3).await, ["1.0 \"a\"", "1.1 \"b\"", "1.2 \"c\""]);
}

async fn deltas_under_a_lost_lease_are_refused(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let held = held(&engine).await;
    let stranger = LeaseId(Uuid::new_v4());
    let told = engine.post_deltas(held.task.id, stranger, 0, vec![json!("x")]).await.unwrap_err();
    assert_eq!(told.code(), "lease_lost");
    post(&engine, &held, 0, &["a"]).await;
    let told = engine.post_deltas(held.task.id, stranger, 1, vec![json!("x")]).await.unwrap_err();
    assert_eq!(told.code(), "lease_lost");
    end(&engine, &held, Finishing::Release).await;
    for from in [0, 1] {
        let told = refused(&engine, &held, from, vec![json!("b")]).await;
        assert!(told.starts_with("lease_lost"), "{told}");
    }
    let unknown = TaskId(Uuid::now_v7());
    let told = engine.post_deltas(unknown, held.lease_id, 0, Vec::new()).await.unwrap_err();
    assert_eq!(told.code(), "not_found");
}

async fn a_watcher_of_a_lost_attempt_is_told_that_the_text_begins_anew(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let held = held(&engine).await;
    let mut watching = engine.watch(held.task.id).await.unwrap();
    let mut silent = engine.watch(held.task.id).await.unwrap();
    post(&engine, &held, 0, &["a", "b"]).await;
    assert_eq!(all(&mut watching, 2).await, ["1.0 \"a\"", "1.1 \"b\""]);
    end(&engine, &held, Finishing::Release).await;
    assert_eq!(next(&mut watching).await, "reset 1");
    let other = provider(&engine, "fast", 1).await;
    let again = engine.claim(other, claim(1, PATIENCE)).await.unwrap();
    post(&engine, &again[0], 0, &["x"]).await;
    completed(&engine, &again[0]).await;
    assert_eq!(all(&mut watching, 2).await, ["2.0 \"x\"", "finished completed"]);
    // One that was given nothing of the first attempt sees nothing of it.
    assert_eq!(all(&mut silent, 2).await, ["2.0 \"x\"", "finished completed"]);
}

async fn a_watcher_goes_on_where_it_stood(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let held = held(&engine).await;
    post(&engine, &held, 0, &["a", "b", "c"]).await;
    let place = Some(Place { attempt: 1, next: 2 });
    let mut watching = engine.watch_from(held.task.id, place).await.unwrap();
    assert_eq!(next(&mut watching).await, "1.2 \"c\"");
    end(&engine, &held, Finishing::Release).await;
    // Whoever comes back after the attempt was lost is told, too.
    let mut back = engine.watch_from(held.task.id, place).await.unwrap();
    assert_eq!(next(&mut back).await, "reset 1");
}

async fn an_attempts_text_is_bounded(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let held = held(&engine).await;
    let megabyte = "x".repeat(1 << 20);
    let seven = vec![json!(megabyte); 7];
    assert_eq!(engine.post_deltas(held.task.id, held.lease_id, 0, seven).await.unwrap(), 7);
    let told = refused(&engine, &held, 7, vec![json!(megabyte)]).await;
    assert!(told.starts_with("too_large"), "{told}");
    assert_eq!(post(&engine, &held, 7, &["the rest"]).await, 8);
}

async fn the_first_delta_starts_the_task_and_tells_when(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let id = ask(&engine, "fast").await;
    let session = provider(&engine, "fast", 1).await;
    let mut stream = engine.open_stream(session).await.unwrap();
    let Some(windlass::engine::StreamEvent::Assign(held)) = stream.next().await else {
        panic!("no assignment")
    };
    assert_eq!(status(&engine, id).await, State::Claimed);
    post(&engine, &held, 0, &["a"]).await;
    let first = engine.tasks().show(id).await.unwrap().unwrap();
    assert_eq!(first.status, State::Running);
    assert!(first.stream_started_at.is_some_and(|at| Some(at) == first.started_at));
    post(&engine, &held, 1, &["b"]).await;
    let later = engine.tasks().show(id).await.unwrap().unwrap();
    assert_eq!(later.updated_at, first.updated_at, "a delta was written");
}

async fn a_delta_keeps_the_lease(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let id = ask(&engine, "fast").await;
    let session = provider_with(&engine, "fast", 1, Some(2_000)).await;
    let held = engine.claim(session, claim(1, PATIENCE)).await.unwrap();
    let first = held[0].lease_expires_at.unwrap();
    let mut next = 0;
    // Longer than the lease, by its own clock.
    eventually("the lease would have run out twice", || async {
        let task = engine.tasks().show(id).await.unwrap().unwrap();
        task.lease_expires_at.is_some_and(|expiry| expiry.since_ms(first) > 4_000) || {
            let posted = engine.post_deltas(id, held[0].lease_id, 0, vec![json!("x"); 1_000]).await;
            posted.is_err()
        }
    })
    .await;
    next += 1_000;
    assert_eq!(post(&engine, &held[0], next, &["y"]).await, next + 1);
    assert_eq!(status(&engine, id).await, State::Running);
}

async fn a_delta_keeps_the_session(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let id = ask(&engine, "fast").await;
    let session = provider(&engine, "fast", 1).await;
    let held = engine.claim(session, claim(1, PATIENCE)).await.unwrap();
    let expires_at =
        || async { engine.sessions().show(session).await.unwrap().unwrap().expires_at };
    let first = expires_at().await;
    eventually("the session lives longer", || async {
        engine.post_deltas(id, held[0].lease_id, 0, vec![json!("x")]).await.unwrap();
        expires_at().await > first
    })
    .await;
}

async fn thousands_of_watchers_share_one_text(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let held = held(&engine).await;
    let mut watchers = Vec::new();
    for _ in 0..2_000 {
        let mut watching = engine.watch(held.task.id).await.unwrap();
        watchers.push(tokio::spawn(async move {
            let mut seen = Vec::new();
            while let Some(watched) = watching.next().await {
                if let Watched::Delta { index, .. } = watched {
                    seen.push(index);
                }
            }
            seen
        }));
    }
    for index in 0..50 {
        post(&engine, &held, index, &["x"]).await;
    }
    completed(&engine, &held).await;
    for watcher in watchers {
        assert_eq!(watcher.await.unwrap(), (0..50).collect::<Vec<_>>());
    }
    assert_eq!(engine.watchers(), 0);
}

async fn nothing_of_a_text_is_left_when_its_attempt_is_over(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let held = held(&engine).await;
    post(&engine, &held, 0, &["a"]).await;
    assert_eq!(engine.open_texts(), 1);
    completed(&engine, &held).await;
    assert_eq!(engine.open_texts(), 0);
}

async fn a_watcher_of_a_task_that_does_not_exist_is_told_so(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let told = engine.watch(TaskId(Uuid::now_v7())).await.err().unwrap();
    assert_eq!(told.code(), "not_found");
    assert_eq!(engine.watchers(), 0);
}

async fn a_cancelled_task_ends_its_watchers(dialect: Dialect) {
    let World { engine, place: _place } = World::new(dialect).await;
    let id = ask(&engine, "fast").await;
    let mut watching = engine.watch(id).await.unwrap();
    let (told, ()) = tokio::join!(next(&mut watching), async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        engine.cancel(id, "tester", None).await.unwrap();
    });
    assert_eq!(told, "finished cancelled");
}
