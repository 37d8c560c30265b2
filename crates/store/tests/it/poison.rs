//! One bad item in a merged batch of a thousand fails alone, in every operation: the others are
//! carried out, and the bad one is told what is wrong with it. What is bad here never passes
//! validation; the database must refuse it by itself.

use crate::world::*;
use uuid::Uuid;
use windlass_domain::id::ChangeId;
use windlass_domain::state::State;
use windlass_store::error::Rejection;
use windlass_store::group::Outcome;
use windlass_store::statement::Dialect;
use windlass_store::task::{Ask, Assignment, Finish, Finishing, Start};

conformance!(
    one_poisoned_start_fails_alone,
    one_heartbeat_with_a_poisoned_actor_fails_alone,
    one_heartbeat_with_a_poisoned_checkpoint_fails_alone,
    one_poisoned_result_fails_alone,
    one_poisoned_failure_fails_alone,
    one_poisoned_release_fails_alone,
    one_poisoned_cancel_fails_alone,
    a_poisoned_item_leaves_its_task_as_it_was,
);

const BATCH: usize = 1_000;
/// Not the first, not the last, not a power of two.
const BAD: usize = 617;

fn too_long() -> String {
    "a".repeat(300)
}

/// A thousand tasks in one worker's hands.
async fn held(world: &World) -> Vec<Assignment> {
    let outcomes = world.submit_all((0..BATCH).map(|_| job()).collect()).await;
    assert!(outcomes.iter().all(Result::is_ok));
    let held = world.claim("w1", BATCH).await;
    assert_eq!(held.len(), BATCH);
    held
}

/// All but the bad one succeeded, and the bad one's own data is to blame.
fn alone<T: std::fmt::Debug>(outcomes: Vec<Outcome<T>>) {
    let failed: Vec<usize> = (0..BATCH).filter(|&i| outcomes[i].is_err()).collect();
    assert_eq!(failed, [BAD]);
    let Err(Rejection::Failed(error)) = &outcomes[BAD] else { panic!("{:?}", outcomes[BAD]) };
    assert!(error.is_about_data(), "{error}");
}

async fn counts(world: &World, status: State) -> i64 {
    let sql = format!("SELECT count(*) FROM task_state WHERE status = '{status}'");
    world.by_hand(&sql).unwrap().parse().unwrap()
}

fn start_of(held: &Assignment) -> Start {
    Start {
        task: held.task.id,
        lease: held.lease_id,
        actor: "w1".into(),
        change: ChangeId(Uuid::now_v7()),
    }
}

async fn one_poisoned_start_fails_alone(dialect: Dialect) {
    let world = World::new(dialect).await;
    let mut starts: Vec<Start> = held(&world).await.iter().map(start_of).collect();
    starts[BAD].actor = too_long();
    alone(world.tasks.start(starts).await);
    assert_eq!(counts(&world, State::Running).await, 999);
}

async fn one_heartbeat_with_a_poisoned_actor_fails_alone(dialect: Dialect) {
    let world = World::new(dialect).await;
    let mut beats: Vec<_> = held(&world).await.iter().map(beat_of).collect();
    beats[BAD].actor = too_long();
    alone(world.tasks.heartbeat(beats).await);
    assert_eq!(counts(&world, State::Running).await, 999);
}

async fn one_heartbeat_with_a_poisoned_checkpoint_fails_alone(dialect: Dialect) {
    let world = World::new(dialect).await;
    let mut beats: Vec<_> = held(&world).await.iter().map(beat_of).collect();
    for beat in &mut beats {
        beat.checkpoint = Some("{\"step\":1}".into());
    }
    beats[BAD].checkpoint = Some("{\"step\":".into());
    alone(world.tasks.heartbeat(beats).await);
    assert_eq!(counts(&world, State::Running).await, 999);
    assert_eq!(world.by_hand("SELECT count(*) FROM task_progress").unwrap(), "999");
}

async fn finish_with(dialect: Dialect, good: fn() -> Finishing, bad: Bad) -> (World, String) {
    let world = World::new(dialect).await;
    let held = held(&world).await;
    let mut finishes: Vec<Finish> = held.iter().map(|a| finish_of(a, good())).collect();
    match bad {
        Bad::Actor => finishes[BAD].actor = too_long(),
        Bad::Result => finishes[BAD].how = Finishing::Complete(Some("not JSON".into())),
    }
    alone(world.tasks.finish(finishes).await);
    let status = world.status(held[BAD].task.id).await.to_string();
    (world, status)
}

enum Bad {
    Actor,
    Result,
}

async fn one_poisoned_result_fails_alone(dialect: Dialect) {
    let (world, status) = finish_with(dialect, complete, Bad::Result).await;
    assert_eq!(status, "claimed");
    assert_eq!(counts(&world, State::Completed).await, 999);
}

async fn one_poisoned_failure_fails_alone(dialect: Dialect) {
    let (world, status) = finish_with(dialect, || fail("TIMEOUT"), Bad::Actor).await;
    assert_eq!(status, "claimed");
    assert_eq!(counts(&world, State::Retry).await, 999);
}

async fn one_poisoned_release_fails_alone(dialect: Dialect) {
    let (world, status) = finish_with(dialect, || Finishing::Release, Bad::Actor).await;
    assert_eq!(status, "claimed");
    assert_eq!(counts(&world, State::Pending).await, 999);
}

async fn one_poisoned_cancel_fails_alone(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = held(&world).await;
    let calls = held.iter().enumerate().map(|(index, a)| {
        let actor = if index == BAD { too_long() } else { "boss".into() };
        let (tasks, id) = (world.tasks.clone(), a.task.id);
        // Concurrent calls meet in one transaction.
        tokio::spawn(async move {
            tasks.ask(Ask::new(id, windlass_domain::command::Command::Cancel, actor)).await
        })
    });
    let calls: Vec<_> = calls.collect();
    let mut outcomes = Vec::with_capacity(BATCH);
    for call in calls {
        outcomes.push(call.await.unwrap());
    }
    alone(outcomes);
    assert_eq!(counts(&world, State::Cancelled).await, 999);
}

async fn a_poisoned_item_leaves_its_task_as_it_was(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let bad = Finishing::Complete(Some("{".into()));
    assert!(world.finish(&held, bad).await.is_err());
    assert_eq!(world.story(held.task.id).await, ["submit:pending", "claim:running"]);
    assert_eq!(world.finish(&held, complete()).await.unwrap(), State::Completed);
}
