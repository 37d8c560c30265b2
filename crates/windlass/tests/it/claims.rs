//! What a worker with many slots has under way.

use crate::world::{World, conformance, eventually, submit, without_polling};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Semaphore;
use windlass::Engine;
use windlass::domain::state::State;
use windlass::store::statement::Dialect;
use windlass::worker::{Worker, WorkerOptions};

conformance!(
    slots_that_are_free_again_wait_for_work_beside_those_that_waited,
    few_slots_wait_in_one_claim,
    two_claims_together_take_no_more_than_there_are_slots,
);

/// A worker whose handlers end when they may, and the most that ever ran at once.
struct Crew {
    worker: Worker,
    may_end: Arc<Semaphore>,
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

async fn crew(engine: &Engine, slots: i32) -> Crew {
    let may_end = Arc::new(Semaphore::new(0));
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (ending, counted, highest) =
        (Arc::clone(&may_end), Arc::clone(&running), Arc::clone(&most));
    let worker = engine.work(WorkerOptions::queue("w", "q", slots), move |_| {
        highest.fetch_max(counted.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let (ending, counted) = (Arc::clone(&ending), Arc::clone(&counted));
        async move {
            ending.acquire().await.unwrap().forget();
            counted.fetch_sub(1, Ordering::SeqCst);
            Ok(serde_json::Value::Null)
        }
    });
    Crew { worker: worker.await.unwrap(), may_end, running, most }
}

async fn all_end(engine: &Engine, tasks: usize) {
    let has_ended = || async {
        let counts = engine.tasks().counts().await.unwrap();
        counts.by_status.get(&State::Completed).is_some_and(|count| *count == tasks as i64)
    };
    eventually("all have ended", has_ended).await;
}

/// How many claims wait when half of the slots were taken and are free again.
async fn waiting_at_the_end(dialect: Dialect, slots: i32, wanted: usize) {
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    let crew = crew(&engine, slots).await;
    let half = usize::try_from(slots).unwrap() / 2;
    for _ in 0..half {
        submit(&engine, "q", |_| {}).await;
    }
    let is_half = || async { crew.running.load(Ordering::SeqCst) == half };
    eventually("half of the slots are taken", is_half).await;
    eventually("the others wait", || async { engine.waiting_claims() == 1 }).await;
    crew.may_end.add_permits(half);
    all_end(&engine, half).await;
    eventually("those wait again", || async { engine.waiting_claims() == wanted }).await;
    assert_eq!(engine.idle_workers(), 1, "it is one worker all the same");
    crew.worker.stop().await;
}

async fn slots_that_are_free_again_wait_for_work_beside_those_that_waited(dialect: Dialect) {
    waiting_at_the_end(dialect, 64, 2).await;
}

async fn few_slots_wait_in_one_claim(dialect: Dialect) {
    waiting_at_the_end(dialect, 8, 1).await;
}

async fn two_claims_together_take_no_more_than_there_are_slots(dialect: Dialect) {
    const TASKS: usize = 150;
    let World { engine, place: _place } = World::with(dialect, without_polling()).await;
    for _ in 0..TASKS {
        submit(&engine, "q", |_| {}).await;
    }
    let crew = crew(&engine, 64).await;
    eventually("all slots are taken", || async { crew.most.load(Ordering::SeqCst) == 64 }).await;
    // Bit by bit, so that claims are under way while others end.
    for _ in 0..TASKS / 10 {
        crew.may_end.add_permits(10);
        tokio::task::yield_now().await;
    }
    all_end(&engine, TASKS).await;
    assert_eq!(crew.most.load(Ordering::SeqCst), 64);
    crew.worker.stop().await;
}
