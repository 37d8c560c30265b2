//! Workers' sessions and their streams.

use crate::world::{
    PATIENCE, World, claim, complete, conformance, eventually, finish, register, status, story,
    submit, without_polling,
};
use std::collections::HashSet;
use std::time::Duration;
use uuid::Uuid;
use windlass::domain::id::{LeaseId, SessionId};
use windlass::domain::state::State;
use windlass::engine::{Beat, ClaimRequest, Error, Leased, SessionRequest, StreamEvent};
use windlass::store::session::Routes;
use windlass::store::statement::Dialect;
use windlass::store::task::{Finishing, UNNAMED_LIMIT};

conformance!(
    a_heartbeat_tells_what_is_renewed_cancelled_lost_and_unnamed,
    what_a_heartbeat_does_not_name_is_told_in_parts_and_given_back_as_a_whole,
    the_same_claim_again_gives_the_same_tasks,
    a_closed_session_gives_back_what_it_held,
    a_closed_session_takes_nothing_back_through_its_stream,
    a_closed_session_is_refused_until_it_registers_again,
    a_stream_drains_what_waits_up_to_its_slots,
    a_stream_tells_of_a_cancelled_task,
    losing_a_stream_releases_no_job,
    the_close_of_an_older_stream_changes_nothing,
    nothing_is_lost_between_an_older_stream_and_a_newer_one,
    a_stream_shows_again_what_its_session_holds,
    a_worker_types_slots_are_clamped,
    a_worker_of_a_type_holds_no_more_than_its_slots,
    a_claim_may_name_its_tasks,
);

fn beat(task: windlass::domain::id::TaskId, lease: LeaseId) -> Beat {
    Beat { task, lease, checkpoint: None, progress: None }
}

async fn a_heartbeat_tells_what_is_renewed_cancelled_lost_and_unnamed(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let session = register(&engine, "q", 4, 60_000).await;
    for _ in 0..4 {
        submit(&engine, "q", |_| {}).await;
    }
    let held = engine.claim(session, claim(4, Duration::ZERO)).await.unwrap();
    engine.cancel(held[1].task.id, "tester", None).await.unwrap();
    let stranger = LeaseId(Uuid::new_v4());
    let answer = engine
        .heartbeat(
            session,
            vec![
                beat(held[0].task.id, held[0].lease_id),
                beat(held[1].task.id, held[1].lease_id),
                beat(held[2].task.id, stranger),
            ],
        )
        .await
        .unwrap();
    let leased = |n: usize| Leased { task: held[n].task.id, lease: held[n].lease_id };
    assert_eq!(answer.renewed.iter().map(|r| r.0).collect::<Vec<_>>(), [leased(0)]);
    assert!(answer.renewed[0].1 >= held[0].lease_expires_at);
    assert_eq!(answer.cancelled, [leased(1)]);
    assert_eq!(answer.lost, [Leased { task: held[2].task.id, lease: stranger }]);
    let unnamed: Vec<_> = answer.unnamed.iter().map(|a| a.lease_id).collect();
    assert_eq!(unnamed, [held[2].lease_id, held[3].lease_id]);
}

async fn what_a_heartbeat_does_not_name_is_told_in_parts_and_given_back_as_a_whole(
    dialect: Dialect,
) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let many = UNNAMED_LIMIT + 25;
    let session = register(&engine, "q", many as i32, 60_000).await;
    for _ in 0..many {
        submit(&engine, "q", |_| {}).await;
    }
    let held = engine.claim(session, claim(many, Duration::ZERO)).await.unwrap();
    assert_eq!(held.len(), many);
    let first = engine.heartbeat(session, Vec::new()).await.unwrap().unnamed;
    assert_eq!(first.len(), UNNAMED_LIMIT);
    let named = first.iter().map(|held| beat(held.task.id, held.lease_id)).collect();
    let answer = engine.heartbeat(session, named).await.unwrap();
    assert_eq!((answer.renewed.len(), answer.unnamed.len()), (UNNAMED_LIMIT, 25));
    // A stream begins with all of it.
    let mut stream = engine.open_stream(session).await.unwrap();
    let mut shown = HashSet::new();
    for _ in 0..many {
        let next = tokio::time::timeout(PATIENCE, stream.next()).await;
        shown.insert(assigned(next.expect("an assignment in time")).task.id);
    }
    assert_eq!(shown, held.iter().map(|held| held.task.id).collect());
    drop(stream);
    eventually("the stream is unbound", || async {
        engine.open_session(session).await.unwrap().node.is_none()
    })
    .await;
    engine.close_session(session).await.unwrap();
    for held in &held {
        assert_eq!(status(&engine, held.task.id).await, State::Pending);
    }
}

async fn the_same_claim_again_gives_the_same_tasks(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let session = register(&engine, "q", 4, 60_000).await;
    for _ in 0..4 {
        submit(&engine, "q", |_| {}).await;
    }
    let request = claim(2, Duration::ZERO);
    let first = engine.claim(session, request.clone()).await.unwrap();
    let again = engine.claim(session, request).await.unwrap();
    let leases = |held: &[windlass::store::task::Assignment]| {
        held.iter().map(|a| a.lease_id).collect::<Vec<_>>()
    };
    assert_eq!(leases(&first), leases(&again));
}

async fn a_closed_session_gives_back_what_it_held(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let session = register(&engine, "q", 1, 60_000).await;
    let id = submit(&engine, "q", |_| {}).await;
    engine.claim(session, claim(1, Duration::ZERO)).await.unwrap();
    engine.close_session(session).await.unwrap();
    assert_eq!(status(&engine, id).await, State::Pending);
    // Closing again is no error.
    engine.close_session(session).await.unwrap();
    let unknown = engine.close_session(SessionId(Uuid::now_v7())).await.unwrap_err();
    assert_eq!(unknown.code(), "session_not_found");
}

/// Its stream had a free slot for each task that went back, and claimed them again.
async fn a_closed_session_takes_nothing_back_through_its_stream(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let session = register(&engine, "q", 40, 60_000).await;
    let mut ids = Vec::new();
    for _ in 0..40 {
        ids.push(submit(&engine, "q", |_| {}).await);
    }
    let mut stream = engine.open_stream(session).await.unwrap();
    for _ in 0..40 {
        assigned(stream.next().await);
    }
    engine.close_session(session).await.unwrap();
    let end = tokio::time::timeout(PATIENCE, stream.next()).await;
    assert_eq!(end.expect("the stream ends"), None);
    for id in ids {
        assert_eq!(
            story(&engine, id).await,
            ["submit pending", "claim claimed", "release pending"]
        );
    }
}

async fn a_closed_session_is_refused_until_it_registers_again(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let session = register(&engine, "q", 1, 60_000).await;
    engine.close_session(session).await.unwrap();
    let told = engine.claim(session, claim(1, Duration::ZERO)).await.unwrap_err();
    assert!(matches!(told, Error::SessionClosed(..)), "{told}");
    let told = engine.heartbeat(session, Vec::new()).await.unwrap_err();
    assert_eq!(told.code(), "session_closed");
    let request = SessionRequest {
        id: Some(session),
        name: "worker".into(),
        routes: Routes { queues: vec!["q".into()], ..Routes::default() },
        ..SessionRequest::default()
    };
    engine.register(request).await.unwrap();
    engine.claim(session, claim(1, Duration::ZERO)).await.unwrap();
}

async fn a_stream_drains_what_waits_up_to_its_slots(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let session = register(&engine, "q", 2, 60_000).await;
    for _ in 0..3 {
        submit(&engine, "q", |_| {}).await;
    }
    let mut stream = engine.open_stream(session).await.unwrap();
    let first = assigned(stream.next().await);
    let second = assigned(stream.next().await);
    assert_eq!(status(&engine, second.task.id).await, State::Claimed);
    let third = tokio::time::timeout(Duration::from_millis(100), stream.next()).await;
    assert!(third.is_err(), "a third task for two slots");
    complete(&engine, &first).await;
    let third = assigned(stream.next().await);
    assert_ne!(third.task.id, second.task.id);
}

fn assigned(event: Option<StreamEvent>) -> windlass::store::task::Assignment {
    match event {
        Some(StreamEvent::Assign(assignment)) => *assignment,
        other => panic!("no assignment but {other:?}"),
    }
}

async fn a_stream_tells_of_a_cancelled_task(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let session = register(&engine, "q", 1, 60_000).await;
    let id = submit(&engine, "q", |_| {}).await;
    let mut stream = engine.open_stream(session).await.unwrap();
    let lease_id = assigned(stream.next().await).lease_id;
    engine.cancel(id, "tester", None).await.unwrap();
    assert_eq!(stream.next().await, Some(StreamEvent::Cancel { task_id: id, lease_id }));
}

async fn losing_a_stream_releases_no_job(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let session = register(&engine, "q", 1, 60_000).await;
    let id = submit(&engine, "q", |_| {}).await;
    let mut stream = engine.open_stream(session).await.unwrap();
    let held = assigned(stream.next().await);
    drop(stream);
    eventually("the stream is unbound", || async {
        engine.open_session(session).await.unwrap().node.is_none()
    })
    .await;
    assert_eq!(status(&engine, id).await, State::Claimed);
    assert_eq!(complete(&engine, &held).await, State::Completed);
}

async fn the_close_of_an_older_stream_changes_nothing(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let session = register(&engine, "q", 1, 60_000).await;
    let older = engine.open_stream(session).await.unwrap();
    let mut newer = engine.open_stream(session).await.unwrap();
    drop(older);
    let id = submit(&engine, "q", |_| {}).await;
    let got = tokio::time::timeout(PATIENCE, newer.next()).await.unwrap();
    assert_eq!(assigned(got).task.id, id);
    assert!(engine.open_session(session).await.unwrap().node.is_some());
}

/// A stream that has been replaced was given a task before it noticed, and told nobody: the task
/// waited for the end of its lease.
async fn nothing_is_lost_between_an_older_stream_and_a_newer_one(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let session = register(&engine, "q", 1, 60_000).await;
    let mut older = Some(engine.open_stream(session).await.unwrap());
    for _ in 0..20 {
        // The older stream waits for a task, and there is one at the moment when it is replaced.
        let (newer, id) = tokio::join!(
            async { engine.open_stream(session).await.unwrap() },
            submit(&engine, "q", |_| {})
        );
        let mut newer = newer;
        loop {
            let told = tokio::time::timeout(PATIENCE, newer.next()).await.unwrap();
            // What the older one was about to take may be told and lost; then it comes again.
            let Some(StreamEvent::Assign(got)) = told else { continue };
            assert_eq!(got.task.id, id);
            let how = Finishing::Complete(None);
            if engine.finish(vec![finish(&got, how)]).await.pop().unwrap().is_ok() {
                break;
            }
        }
        older = Some(newer);
    }
    drop(older);
}

async fn a_stream_shows_again_what_its_session_holds(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let session = register(&engine, "q", 2, 60_000).await;
    let id = submit(&engine, "q", |_| {}).await;
    let mut stream = engine.open_stream(session).await.unwrap();
    let first = assigned(stream.next().await);
    let mut again = engine.open_stream(session).await.unwrap();
    assert_eq!(assigned(again.next().await).lease_id, first.lease_id);
    assert_eq!(story(&engine, id).await, ["submit pending", "claim claimed"]);
}

async fn a_worker_types_slots_are_clamped(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let request = SessionRequest {
        name: "w".into(),
        worker_type: Some("crew_executor".into()),
        routes: Routes { queues: vec!["q".into()], ..Routes::default() },
        slots: Some(100),
        ..SessionRequest::default()
    };
    assert_eq!(engine.register(request).await.unwrap().slots, 1);
}

async fn a_worker_of_a_type_holds_no_more_than_its_slots(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let request = SessionRequest {
        name: "w".into(),
        worker_type: Some("crew_executor".into()),
        routes: Routes { queues: vec!["q".into()], ..Routes::default() },
        ..SessionRequest::default()
    };
    let session = engine.register(request).await.unwrap().id;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(submit(&engine, "q", |_| {}).await);
    }
    let now = || claim(5, Duration::ZERO);
    // Also of claims at the same time.
    let (first, second) = (now(), now());
    let (one, two) =
        tokio::join!(engine.claim(session, first.clone()), engine.claim(session, second.clone()));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(one.len() + two.len(), 1);
    let (given, asked) = if one.is_empty() { (two, second) } else { (one, first) };
    assert!(engine.claim(session, now()).await.unwrap().is_empty());
    let named = ClaimRequest { tasks: Some(ids), ..now() };
    assert!(engine.claim(session, named).await.unwrap().is_empty());
    // The call that filled its slots is answered like the first time.
    assert_eq!(engine.claim(session, asked).await.unwrap(), given);
    complete(&engine, &given[0]).await;
    assert_eq!(engine.claim(session, now()).await.unwrap().len(), 1);
}

async fn a_claim_may_name_its_tasks(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let session = register(&engine, "q", 4, 60_000).await;
    let first = submit(&engine, "q", |_| {}).await;
    let second = submit(&engine, "q", |_| {}).await;
    let elsewhere = submit(&engine, "other", |_| {}).await;
    let later = submit(&engine, "q", |request| request.delay_ms = Some(60_000)).await;
    let tasks = vec![second, elsewhere, later];
    let request = ClaimRequest { tasks: Some(tasks), ..claim(4, Duration::ZERO) };
    let held = engine.claim(session, request).await.unwrap();
    assert_eq!(held.iter().map(|held| held.task.id).collect::<Vec<_>>(), [second]);
    assert_eq!(status(&engine, first).await, State::Pending);
    assert_eq!(status(&engine, elsewhere).await, State::Pending);
}
