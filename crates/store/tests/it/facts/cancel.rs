//! Cancelling: from every living state, once, and for good.

use crate::world::*;
use uuid::Uuid;
use windlass_domain::command::Command;
use windlass_domain::id::TaskId;
use windlass_domain::refusal::Refusal;
use windlass_domain::state::{Event, State};
use windlass_store::error::Rejection;
use windlass_store::statement::Dialect;
use windlass_store::task::Finishing;

conformance!(
    a_task_is_cancelled_in_every_living_state,
    cancelling_twice_is_cancelling_once,
    a_finished_task_cannot_be_cancelled,
    nobody_cancels_an_unknown_task,
    late_writes_after_a_cancel_are_lease_lost,
    a_cancelled_task_shows_who_held_it,
    a_cancelled_task_is_not_claimed_nor_swept,
    the_history_says_who_cancelled_and_why,
);

async fn a_task_is_cancelled_in_every_living_state(dialect: Dialect) {
    let world = World::new(dialect).await;
    let running = world.running(job()).await.task.id;
    let waiting = world.running(job()).await;
    world.ask(waiting.task.id, Command::Wait { lease_id: waiting.lease_id }).await.unwrap();
    let asking = world.running(job()).await;
    world.ask_approval(&asking).await.unwrap();
    let retrying = world.running(job()).await;
    world.finish(&retrying, fail("TIMEOUT")).await.unwrap();
    let claimed = world.submit(job()).await;
    world.claim("w1", 1).await;
    let pending = world.submit(job()).await;
    let tasks = [
        (pending, State::Pending),
        (claimed, State::Claimed),
        (running, State::Running),
        (waiting.task.id, State::Waiting),
        (asking.task.id, State::WaitingForApproval),
        (retrying.task.id, State::Retry),
    ];
    world.pass_ms(1);
    for (id, before) in tasks {
        assert_eq!(world.status(id).await, before);
        assert_eq!(world.cancel(id).await.unwrap(), State::Cancelled);
        let shown = world.show(id).await;
        assert_eq!(shown.status, State::Cancelled);
        assert_eq!(shown.finished_at, Some(world.now()));
        assert_eq!(shown.lease_expires_at, None);
        assert_eq!(world.story(id).await.pop().unwrap(), "cancel:cancelled");
    }
    assert_eq!(world.claim("w1", 10).await, []);
}

async fn cancelling_twice_is_cancelling_once(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(job()).await;
    world.cancel(id).await.unwrap();
    let first = world.show(id).await;
    world.pass_ms(1_000);
    assert_eq!(world.cancel(id).await.unwrap(), State::Cancelled);
    assert_eq!(world.show(id).await, first);
    assert_eq!(world.story(id).await, ["submit:pending", "cancel:cancelled"]);
}

async fn a_finished_task_cannot_be_cancelled(dialect: Dialect) {
    let world = World::new(dialect).await;
    for how in [complete(), fail("INVALID_INPUT"), fail("POISON_TASK")] {
        let held = world.running(job()).await;
        let state = world.finish(&held, how).await.unwrap();
        let before = world.show(held.task.id).await;
        let Err(Rejection::Refused(refusal)) = world.cancel(held.task.id).await else {
            panic!("a {state} task was cancelled")
        };
        let expected = Refusal::IllegalTransition { state, event: Event::Cancel, allowed: vec![] };
        assert_eq!(refusal, expected);
        assert_eq!(refusal.code(), "illegal_transition");
        assert_eq!(world.show(held.task.id).await, before);
    }
    // What a living task cannot do is refused with what it can.
    let id = world.submit(job()).await;
    let Err(Rejection::Refused(refusal)) = world.ask(id, Command::Wake).await else {
        panic!("a pending task was woken")
    };
    let Refusal::IllegalTransition { state, event, allowed } = refusal else { panic!("{refusal}") };
    assert_eq!((state, event), (State::Pending, Event::Wake));
    assert!(allowed.contains(&Event::Claim) && allowed.contains(&Event::Cancel), "{allowed:?}");
}

async fn nobody_cancels_an_unknown_task(dialect: Dialect) {
    let world = World::new(dialect).await;
    assert_eq!(refused(world.cancel(TaskId(Uuid::new_v4())).await), "not_found");
}

async fn late_writes_after_a_cancel_are_lease_lost(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    world.tell(&held, Some("1"), None).await.unwrap();
    world.cancel(held.task.id).await.unwrap();
    let before = world.show(held.task.id).await;
    for how in [complete(), fail("TIMEOUT"), Finishing::Release] {
        assert_eq!(refused(world.finish(&held, how).await), "lease_lost");
    }
    assert_eq!(refused(world.start(&held).await), "lease_lost");
    assert_eq!(refused(world.tell(&held, Some("2"), None).await), "lease_lost");
    let wait = Command::Wait { lease_id: held.lease_id };
    assert_eq!(refused(world.ask(held.task.id, wait).await), "lease_lost");
    assert_eq!(world.show(held.task.id).await, before);
}

async fn a_cancelled_task_shows_who_held_it(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    world.cancel(held.task.id).await.unwrap();
    let shown = world.show(held.task.id).await;
    assert_eq!(shown.claimed_by.as_deref(), Some("w1"));
    assert_eq!(shown.claimed_at, held.task.claimed_at);
}

async fn a_cancelled_task_is_not_claimed_nor_swept(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(task(|r| r.deadline_ms = Some(1_000))).await;
    let delayed = world.submit(task(|r| r.delay_ms = Some(1_000))).await;
    for id in [held.task.id, delayed] {
        world.cancel(id).await.unwrap();
    }
    world.pass_ms(3_600_000);
    assert_eq!(world.claim("w1", 10).await, []);
    assert_eq!(world.tasks.expire_leases(10).await.unwrap().scanned, 0);
    assert_eq!(world.tasks.expire_deadlines(10).await.unwrap().scanned, 0);
}

async fn the_history_says_who_cancelled_and_why(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    world.cancel(held.task.id).await.unwrap();
    let last = world.tasks.history(held.task.id, 0, 10).await.unwrap().pop().unwrap();
    assert_eq!(
        (last.actor.as_str(), last.reason.as_deref()),
        ("operator", Some("no longer needed"))
    );
    let lease = Some(held.lease_id.digest());
    assert_eq!((last.from_status, last.lease_id), (Some(State::Running), lease));
}
