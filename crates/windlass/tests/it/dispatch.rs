//! How tasks find workers.

use crate::world::{
    PATIENCE, World, claim, complete, conformance, eventually, finish, register, story, submit,
    without_polling,
};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;
use uuid::Uuid;
use windlass::Options;
use windlass::domain::id::ClaimId;
use windlass::domain::profile::Kind;
use windlass::domain::state::{Event, State};
use windlass::engine::{ClaimRequest, SessionRequest};
use windlass::store::session::Routes;
use windlass::store::statement::Dialect;
use windlass::store::task::Finishing;
use windlass::worker::WorkerOptions;

conformance!(
    a_waiting_claim_gets_a_new_task_without_polling,
    a_task_is_handed_over_in_the_transaction_that_submits_it,
    the_oldest_task_is_handed_over_first,
    without_eager_dispatch_a_waiting_claim_is_woken_all_the_same,
    who_cannot_take_a_task_is_not_woken_in_the_place_of_who_can,
    many_submits_and_many_workers_do_every_task_once,
    a_task_given_to_nobody_goes_back_at_once,
    a_caller_that_goes_away_leaves_nothing_behind_wherever_its_claim_stands,
    what_a_claim_took_that_may_come_again_is_kept_for_it,
    what_a_claim_took_whose_session_was_closed_meanwhile_goes_back,
    a_claim_without_work_ends_with_its_time,
    a_bulk_submit_wakes_everybody_who_is_needed,
);

async fn a_waiting_claim_gets_a_new_task_without_polling(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let session = register(&engine, "q", 1, 60_000).await;
    let waiting = engine.clone();
    let got = tokio::spawn(async move { waiting.claim(session, claim(1, PATIENCE)).await });
    eventually("it waits", || async { engine.idle_workers() == 1 }).await;
    let id = submit(&engine, "q", |_| {}).await;
    let got = got.await.unwrap().unwrap();
    assert_eq!(got[0].task.id, id);
    assert_eq!(story(&engine, id).await, ["submit pending", "claim running"]);
}

async fn a_task_is_handed_over_in_the_transaction_that_submits_it(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let session = register(&engine, "q", 1, 60_000).await;
    let waiting = engine.clone();
    let got = tokio::spawn(async move { waiting.claim(session, claim(1, PATIENCE)).await });
    eventually("it waits", || async { engine.idle_workers() == 1 }).await;
    let before = engine.tasks().head().await.unwrap();
    let id = submit(&engine, "q", |_| {}).await;
    got.await.unwrap().unwrap();
    // On PostgreSQL one transaction has one number; on SQLite there is no number, but the answer
    // of the submit came after the claim.
    eventually("both are in the log", || async {
        engine.tasks().tail(before, 10).await.unwrap().len() == 2
    })
    .await;
    let log = engine.tasks().tail(before, 10).await.unwrap();
    assert_eq!(log[0].0.transaction, log[1].0.transaction);
    assert!(log.iter().all(|(_, history)| history.task_id == id));
}

async fn the_oldest_task_is_handed_over_first(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let session = register(&engine, "q", 1, 60_000).await;
    let waiting = engine.clone();
    let got = tokio::spawn(async move { waiting.claim(session, claim(1, PATIENCE)).await });
    eventually("it waits", || async { engine.idle_workers() == 1 }).await;
    // Behind the engine's back, so that nobody is woken.
    let older = {
        use windlass::domain::{id::TaskId, request::SubmitRequest, validate};
        let request = SubmitRequest { queue: Some("q".into()), ..SubmitRequest::default() };
        let id = TaskId(uuid::Uuid::now_v7());
        let task = validate::new_task(&request, id, "", "tester").unwrap();
        let tasks = windlass::store::task::Tasks::new(engine.store().clone());
        tasks.submit(vec![task]).await.pop().unwrap().unwrap().id
    };
    let newer = submit(&engine, "q", |_| {}).await;
    assert_eq!(got.await.unwrap().unwrap()[0].task.id, older);
    assert_eq!(story(&engine, newer).await, ["submit pending"]);
}

async fn without_eager_dispatch_a_waiting_claim_is_woken_all_the_same(dialect: Dialect) {
    let options = Options { eager: false, ..without_polling() };
    let World { engine, place: _place } = World::with(dialect, options).await;
    let session = register(&engine, "q", 1, 60_000).await;
    let waiting = engine.clone();
    let got = tokio::spawn(async move { waiting.claim(session, claim(1, PATIENCE)).await });
    eventually("it waits", || async { engine.idle_workers() == 1 }).await;
    let id = submit(&engine, "q", |_| {}).await;
    assert_eq!(got.await.unwrap().unwrap()[0].task.id, id);
}

async fn who_cannot_take_a_task_is_not_woken_in_the_place_of_who_can(dialect: Dialect) {
    // With eager dispatch the right one is picked by the submit; without, by the wake-up.
    for eager in [true, false] {
        let options = Options { eager, ..without_polling() };
        let World { engine, place: _place } = World::with(dialect, options).await;
        let mut waiting = Vec::new();
        // Those who wait longest do not have the model, or take another kind.
        for (model, kind) in [
            ("a", Kind::Inference),
            ("b", Kind::Inference),
            ("c", Kind::Job),
            ("m", Kind::Inference),
        ] {
            let pools = vec!["fast".into()];
            let (models, kinds) = (vec![model.into()], vec![kind]);
            let routes = Routes { pools, models, kinds, ..Routes::default() };
            let request =
                SessionRequest { name: model.into(), routes, ..SessionRequest::default() };
            let session = engine.register(request).await.unwrap().id;
            let idle = engine.idle_workers();
            let claiming = engine.clone();
            let wait = claim(1, PATIENCE);
            waiting.push(tokio::spawn(async move { claiming.claim(session, wait).await }));
            eventually("it waits", || async { engine.idle_workers() == idle + 1 }).await;
        }
        let id = submit(&engine, "fast", |request| {
            request.kind = Some(Kind::Inference);
            (request.pool, request.model) = (Some("fast".into()), Some("m".into()));
        })
        .await;
        let got = waiting.pop().unwrap().await.unwrap().unwrap();
        assert_eq!(got[0].task.id, id);
        waiting.iter().for_each(|task| task.abort());
    }
}

async fn many_submits_and_many_workers_do_every_task_once(dialect: Dialect) {
    const TASKS: usize = 400;
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let done = Arc::new(AtomicUsize::new(0));
    let mut workers = Vec::new();
    for _ in 0..8 {
        let done = Arc::clone(&done);
        let worker = engine.work(WorkerOptions::queue("w", "q", 4), move |_| {
            let done = Arc::clone(&done);
            async move {
                done.fetch_add(1, Ordering::SeqCst);
                Ok(serde_json::Value::Null)
            }
        });
        workers.push(worker.await.unwrap());
    }
    let mut submits = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let engine = engine.clone();
        submits.spawn(async move {
            let mut ids = Vec::new();
            for _ in 0..TASKS / 20 {
                ids.push(submit(&engine, "q", |_| {}).await);
            }
            ids
        });
    }
    let ids: HashSet<_> = submits.join_all().await.into_iter().flatten().collect();
    assert_eq!(ids.len(), TASKS);
    for id in ids {
        let waited = engine.wait_for(id, PATIENCE).await.unwrap();
        assert_eq!(waited.task.status, State::Completed, "{id}");
        assert_eq!(waited.task.attempt, 1);
    }
    assert_eq!(done.load(Ordering::SeqCst), TASKS);
    for worker in workers {
        worker.stop().await;
    }
}

async fn a_task_given_to_nobody_goes_back_at_once(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let session = register(&engine, "q", 1, 60_000).await;
    // Claims that stop waiting at any moment; some are dropped while a submit takes them along.
    for round in 0..30u64 {
        let waiting = engine.clone();
        let nameless = ClaimRequest { claim: None, ..claim(1, PATIENCE) };
        let wait = tokio::spawn(async move { waiting.claim(session, nameless).await });
        eventually("it waits", || async { engine.idle_workers() == 1 }).await;
        let submitting = engine.clone();
        let submitted = tokio::spawn(async move { submit(&submitting, "q", |_| {}).await });
        tokio::time::sleep(Duration::from_micros(round * 40)).await;
        wait.abort();
        let id = submitted.await.unwrap();
        let taken = match wait.await {
            Ok(taken) => taken.unwrap(),
            Err(_) => Vec::new(),
        };
        match taken.first() {
            Some(assignment) => assert_eq!(complete(&engine, assignment).await, State::Completed),
            None => {
                eventually("it is in line again", || async {
                    let status = crate::world::status(&engine, id).await;
                    matches!(status, State::Pending | State::Retry)
                })
                .await;
                engine.cancel(id, "tester", None).await.unwrap();
            }
        }
    }
}

/// What a claim by names took stayed with a caller that was gone until the lease ran out, which
/// cost a retry; and so did any task whose earlier steps were just read for the answer.
async fn a_caller_that_goes_away_leaves_nothing_behind_wherever_its_claim_stands(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let session = register(&engine, "q", 1, 60_000).await;
    for is_named in [false, true] {
        for polls in 1.. {
            let id = submit(&engine, "q", |_| {}).await;
            // From the second attempt on, the answer has the steps of those before.
            let first = engine.claim(session, claim(1, PATIENCE)).await.unwrap();
            engine
                .finish(vec![finish(&first[0], Finishing::Release)])
                .await
                .pop()
                .unwrap()
                .unwrap();
            let tasks = is_named.then(|| vec![id]);
            let nameless = ClaimRequest { claim: None, tasks, ..claim(1, Duration::ZERO) };
            let mut claiming = Box::pin(engine.claim(session, nameless));
            let mut polled = 0;
            let answer = std::future::poll_fn(|context| {
                polled += 1;
                match claiming.as_mut().poll(context) {
                    Poll::Pending if polled < polls => Poll::Pending,
                    answer => Poll::Ready(answer),
                }
            });
            let answer = answer.await;
            drop(claiming);
            if let Poll::Ready(taken) = answer {
                complete(&engine, &taken.unwrap()[0]).await;
                break;
            }
            let next = engine.claim(session, claim(1, PATIENCE)).await.unwrap();
            assert_eq!(next.len(), 1, "it was stranded after {polls} polls, named: {is_named}");
            complete(&engine, &next[0]).await;
        }
    }
}

/// Its connection was cut, perhaps while the claim was at the database: the repeat must not be
/// given leases that are released under its hands.
async fn what_a_claim_took_that_may_come_again_is_kept_for_it(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let session = register(&engine, "q", 1, 60_000).await;
    for round in 0..30u64 {
        let named = move || ClaimRequest {
            claim: Some(ClaimId(Uuid::from_u128(round.into()))),
            ..claim(1, PATIENCE)
        };
        let waiting = engine.clone();
        let wait = tokio::spawn(async move { waiting.claim(session, named()).await });
        eventually("it waits", || async { engine.idle_workers() == 1 }).await;
        let submitting = engine.clone();
        let submitted = tokio::spawn(async move { submit(&submitting, "q", |_| {}).await });
        tokio::time::sleep(Duration::from_micros(round * 40)).await;
        wait.abort();
        let again = engine.claim(session, named()).await.unwrap();
        assert_eq!(again[0].task.id, submitted.await.unwrap());
        // Whatever the first call leaves behind has come to its end by then.
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(complete(&engine, &again[0]).await, State::Completed);
        let history = engine.tasks().history(again[0].task.id, 0, 100).await.unwrap();
        assert!(history.iter().all(|line| line.event != Event::Release), "{history:?}");
    }
}

/// Only on PostgreSQL, where the repeat does not see what a submit is about to hand to the first
/// call: SQLite has one writer, and the repeat stands behind that submit.
#[test]
fn a_repeat_that_waits_is_given_what_the_first_call_takes_late() {
    crate::world::run(repeated_while_it_is_handed_over, Dialect::Postgres);
}

/// It waited to its end and got nothing, and nobody worked on the task.
async fn repeated_while_it_is_handed_over(dialect: Dialect) {
    let World { engine, place } = World::with(dialect, without_polling()).await;
    let session = register(&engine, "q", 1, 60_000).await;
    let named = claim(1, PATIENCE);
    let (waiting, first) = (engine.clone(), named.clone());
    let wait = tokio::spawn(async move { waiting.claim(session, first).await });
    eventually("it waits", || async { engine.idle_workers() == 1 }).await;
    let gate = place.stop_submits();
    let submitting = engine.clone();
    let submitted = tokio::spawn(async move { submit(&submitting, "q", |_| {}).await });
    // It has taken the claim along, and stands at the gate.
    eventually("it is taken along", || async { engine.idle_workers() == 0 }).await;
    wait.abort();
    let repeating = engine.clone();
    let again = tokio::spawn(async move { repeating.claim(session, named).await });
    eventually("the repeat waits", || async { engine.idle_workers() == 1 }).await;
    gate.open();
    let again = again.await.unwrap().unwrap();
    assert_eq!(again[0].task.id, submitted.await.unwrap());
    assert_eq!(complete(&engine, &again[0]).await, State::Completed);
}

/// A worker that stops closes its session while its last claim is under way, and will not ask
/// again. What that took was in nobody's hands until its lease ran out, which cost it a retry.
async fn what_a_claim_took_whose_session_was_closed_meanwhile_goes_back(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    for round in 0..60u64 {
        let session = register(&engine, "q", 1, 60_000).await;
        let waiting = engine.clone();
        let wait =
            tokio::spawn(async move { waiting.claim(session, claim(1, PATIENCE)).await.map(drop) });
        eventually("it waits", || async { engine.idle_workers() == 1 }).await;
        let submitting = engine.clone();
        let submitted = tokio::spawn(async move { submit(&submitting, "q", |_| {}).await });
        tokio::time::sleep(Duration::from_micros(round * 20)).await;
        wait.abort();
        engine.close_session(session).await.unwrap();
        let id = submitted.await.unwrap();
        eventually("it is in line again", || async {
            crate::world::status(&engine, id).await == State::Pending
        })
        .await;
        engine.cancel(id, "tester", None).await.unwrap();
    }
}

async fn a_claim_without_work_ends_with_its_time(dialect: Dialect) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let session = register(&engine, "q", 1, 60_000).await;
    let none = engine.claim(session, claim(1, Duration::from_millis(50))).await.unwrap();
    assert!(none.is_empty());
    assert_eq!(engine.idle_workers(), 0);
}

async fn a_bulk_submit_wakes_everybody_who_is_needed(dialect: Dialect) {
    use windlass::domain::{id::TaskId, request::SubmitRequest, validate};
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let mut waits = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let session = register(&engine, "q", 1, 60_000).await;
        let waiting = engine.clone();
        waits.spawn(async move { waiting.claim(session, claim(1, PATIENCE)).await });
    }
    eventually("all wait", || async { engine.idle_workers() == 20 }).await;
    let request = SubmitRequest { queue: Some("q".into()), ..SubmitRequest::default() };
    let task = || validate::new_task(&request, TaskId(uuid::Uuid::now_v7()), "", "t").unwrap();
    let outcomes = engine.submit((0..20).map(|_| task()).collect()).await;
    assert!(outcomes.iter().all(|outcome| outcome.is_ok()));
    let taken = waits.join_all().await;
    let ids: HashSet<_> = taken.into_iter().map(|taken| taken.unwrap()[0].task.id).collect();
    assert_eq!(ids.len(), 20);
}
