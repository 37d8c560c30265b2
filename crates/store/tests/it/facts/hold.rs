//! Keeping a task: start and heartbeat, each only under a live lease.

use crate::world::*;
use serde_json::json;
use uuid::Uuid;
use windlass_domain::id::{LeaseId, TaskId};
use windlass_domain::state::State;
use windlass_store::statement::Dialect;
use windlass_store::task::{Assignment, Beat, Finishing};

conformance!(
    a_claimed_task_is_started_once,
    a_task_is_not_started_under_an_expired_lease,
    a_task_is_not_started_under_another_lease,
    nobody_starts_or_beats_an_unknown_task,
    the_first_beat_of_a_claimed_task_starts_it,
    later_beats_write_no_history,
    a_beat_renews_only_the_lease_it_names,
    a_beat_under_an_expired_lease_is_refused_before_any_sweep,
    a_beat_under_a_lost_lease_is_refused,
    checkpoint_and_progress_are_kept_until_new_ones_come,
    a_checkpoint_under_another_lease_changes_nothing,
    a_checkpoint_under_an_expired_lease_is_kept_until_somebody_takes_the_task,
    a_checkpoint_survives_a_retry,
    two_beats_of_one_task_in_one_batch_both_count,
    a_batch_of_beats_gives_each_its_own_answer,
);

async fn claimed(world: &World) -> Assignment {
    world.submit(job()).await;
    world.claim("w1", 1).await.pop().unwrap()
}

fn under_another_lease(held: &Assignment) -> Assignment {
    Assignment { lease_id: LeaseId(Uuid::new_v4()), ..held.clone() }
}

async fn a_claimed_task_is_started_once(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = claimed(&world).await;
    world.pass_ms(5);
    let started = world.now();
    assert_eq!(world.start(&held).await.unwrap(), State::Running);
    world.pass_ms(5);
    assert_eq!(world.start(&held).await.unwrap(), State::Running);
    let story = world.story(held.task.id).await;
    assert_eq!(story, ["submit:pending", "claim:claimed", "start:running"]);
    let shown = world.show(held.task.id).await;
    assert_eq!(shown.started_at, Some(started));
    assert_eq!(shown.lease_expires_at, held.lease_expires_at);
}

async fn a_task_is_not_started_under_an_expired_lease(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = claimed(&world).await;
    world.pass_ms(60_000);
    assert_eq!(refused(world.start(&held).await), "lease_lost");
    assert_eq!(world.status(held.task.id).await, State::Claimed);
}

async fn a_task_is_not_started_under_another_lease(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = claimed(&world).await;
    assert_eq!(refused(world.start(&under_another_lease(&held)).await), "lease_lost");
    assert_eq!(refused(world.beat(&under_another_lease(&held)).await), "lease_lost");
    assert_eq!(world.show(held.task.id).await, held.task);
}

async fn nobody_starts_or_beats_an_unknown_task(dialect: Dialect) {
    let world = World::new(dialect).await;
    let mut held = claimed(&world).await;
    held.task.id = TaskId(Uuid::new_v4());
    assert_eq!(refused(world.start(&held).await), "not_found");
    assert_eq!(refused(world.beat(&held).await), "not_found");
}

async fn the_first_beat_of_a_claimed_task_starts_it(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = claimed(&world).await;
    world.pass_ms(5);
    let beat = Beat { actor: "beater".into(), ..beat_of(&held) };
    world.tasks.heartbeat(vec![beat]).await.pop().unwrap().unwrap();
    let shown = world.show(held.task.id).await;
    assert_eq!(shown.status, State::Running);
    assert_eq!(shown.started_at, Some(world.now()));
    assert_eq!(shown.last_heartbeat_at, Some(world.now()));
    let history = world.tasks.history(held.task.id, 0, 10).await.unwrap();
    assert_eq!(history.len(), 3);
    assert_eq!(history[2].event.as_str(), "start");
    assert_eq!(history[2].actor, "beater");
    assert_eq!(history[2].lease_id, Some(held.lease_id.digest()));
}

async fn later_beats_write_no_history(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    for _ in 0..3 {
        world.pass_ms(59_999);
        assert_eq!(world.beat(&held).await.unwrap(), Some(world.now().plus_ms(60_000)));
    }
    assert_eq!(world.story(held.task.id).await, ["submit:pending", "claim:running"]);
    let shown = world.show(held.task.id).await;
    assert_eq!(shown.last_heartbeat_at, Some(world.now()));
    assert_eq!(shown.started_at, held.task.started_at);
}

async fn a_beat_renews_only_the_lease_it_names(dialect: Dialect) {
    let world = World::new(dialect).await;
    let [one, other] = [world.running(job()).await, world.running(job()).await];
    world.pass_ms(1_000);
    world.beat(&one).await.unwrap();
    assert_eq!(world.show(other.task.id).await, other.task);
    let expiry = world.show(one.task.id).await.lease_expires_at;
    assert_eq!(expiry, Some(world.now().plus_ms(60_000)));
}

async fn a_beat_under_an_expired_lease_is_refused_before_any_sweep(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    world.pass_ms(60_000);
    assert_eq!(refused(world.beat(&held).await), "lease_lost");
    assert_eq!(world.show(held.task.id).await, held.task);
}

async fn a_beat_under_a_lost_lease_is_refused(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    world.pass_ms(60_000);
    world.tasks.expire_leases(10).await.unwrap();
    assert_eq!(refused(world.beat(&held).await), "lease_lost");
    let next = world.claim("w2", 1).await.pop().unwrap();
    assert_eq!(refused(world.beat(&held).await), "lease_lost");
    assert_eq!(refused(world.start(&held).await), "lease_lost");
    assert_eq!(world.show(held.task.id).await, next.task);
}

async fn checkpoint_and_progress_are_kept_until_new_ones_come(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let told = async || {
        let shown = world.show(held.task.id).await;
        (shown.checkpoint, shown.progress)
    };
    assert_eq!(told().await, (None, None));
    world.tell(&held, Some("{\"step\":1}"), None).await.unwrap();
    assert_eq!(told().await, (Some(json!({"step": 1})), None));
    world.tell(&held, None, Some("0.5")).await.unwrap();
    assert_eq!(told().await, (Some(json!({"step": 1})), Some(json!(0.5))));
    world.beat(&held).await.unwrap();
    world.tell(&held, Some("[2]"), None).await.unwrap();
    assert_eq!(told().await, (Some(json!([2])), Some(json!(0.5))));
    world.finish(&held, complete()).await.unwrap();
    assert_eq!(told().await, (Some(json!([2])), Some(json!(0.5))));
}

async fn a_checkpoint_under_another_lease_changes_nothing(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let stranger = under_another_lease(&held);
    assert_eq!(refused(world.tell(&stranger, Some("1"), Some("1")).await), "lease_lost");
    assert_eq!(world.show(held.task.id).await, held.task);
    world.finish(&held, complete()).await.unwrap();
    assert_eq!(refused(world.tell(&held, Some("1"), Some("1")).await), "lease_lost");
    assert_eq!(world.show(held.task.id).await.checkpoint, None);
}

async fn a_checkpoint_under_an_expired_lease_is_kept_until_somebody_takes_the_task(
    dialect: Dialect,
) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    world.pass_ms(60_000);
    assert_eq!(refused(world.tell(&held, Some("\"late\""), None).await), "lease_lost");
    world.tasks.expire_leases(10).await.unwrap();
    assert_eq!(refused(world.tell(&held, Some("\"too late\""), None).await), "lease_lost");
    let next = world.claim("w2", 1).await.pop().unwrap();
    assert_eq!(next.task.checkpoint, Some(json!("late")));
    assert_eq!(refused(world.tell(&held, Some("\"too late\""), None).await), "lease_lost");
    assert_eq!(world.show(held.task.id).await.checkpoint, Some(json!("late")));
}

async fn a_checkpoint_survives_a_retry(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    world.tell(&held, Some("{\"next\":4}"), Some("\"half\"")).await.unwrap();
    assert_eq!(world.finish(&held, fail("TIMEOUT")).await.unwrap(), State::Retry);
    world.pass_ms(500);
    let again = world.claim("w2", 1).await.pop().unwrap();
    assert_eq!(again.task.checkpoint, Some(json!({"next": 4})));
    assert_eq!(again.task.progress, Some(json!("half")));
}

async fn two_beats_of_one_task_in_one_batch_both_count(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    world.pass_ms(1_000);
    let told = |checkpoint: &str| Beat { checkpoint: Some(checkpoint.into()), ..beat_of(&held) };
    let stranger = Beat { lease: LeaseId(Uuid::new_v4()), ..told("0") };
    let mut beats = world.tasks.heartbeat(vec![stranger, told("1"), told("2")]).await.into_iter();
    assert_eq!(refused(beats.next().unwrap()), "lease_lost");
    let expiry = Some(world.now().plus_ms(60_000));
    for beat in beats {
        assert_eq!(beat.unwrap().lease_expires_at, expiry);
    }
    assert_eq!(world.show(held.task.id).await.checkpoint, Some(json!(2)));
}

async fn a_batch_of_beats_gives_each_its_own_answer(dialect: Dialect) {
    let world = World::new(dialect).await;
    let [job, call] = [world.running(job()).await, world.running(inference()).await];
    let gone = world.running(self::job()).await;
    world.finish(&gone, Finishing::Release).await.unwrap();
    let unknown = Beat { task: TaskId(Uuid::new_v4()), ..beat_of(&gone) };
    let beats = vec![beat_of(&gone), beat_of(&call), unknown, beat_of(&job)];
    let mut answers = world.tasks.heartbeat(beats).await;
    assert_eq!(answers.pop().unwrap().unwrap().lease_expires_at, job.lease_expires_at);
    assert_eq!(refused(answers.pop().unwrap()), "not_found");
    assert_eq!(answers.pop().unwrap().unwrap().lease_expires_at, call.lease_expires_at);
    assert_eq!(refused(answers.pop().unwrap()), "lease_lost");
}
