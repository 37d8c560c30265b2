//! Ending an attempt: what counts, what is kept, and the same call again.

use crate::world::*;
use serde_json::json;
use uuid::Uuid;
use windlass_domain::failure::TaskError;
use windlass_domain::id::{LeaseId, TaskId};
use windlass_domain::state::State;
use windlass_store::statement::Dialect;
use windlass_store::task::{Assignment, Finishing};

conformance!(
    a_completed_task_shows_its_result,
    a_task_may_be_completed_without_a_result_or_without_a_start,
    a_late_completion_is_kept_while_nobody_took_the_lease,
    a_completion_after_a_sweep_is_lease_lost,
    a_completion_under_another_lease_is_lease_lost,
    nobody_finishes_an_unknown_task,
    the_same_completion_again_is_answered_like_the_first,
    another_outcome_after_the_first_is_already_finished,
    a_batch_gives_each_item_its_outcome_in_order,
    of_two_items_for_one_task_the_first_counts,
    the_holder_stays_on_a_finished_task,
    a_completion_keeps_its_reason,
    a_completed_task_shows_no_error_of_an_earlier_attempt,
    finished_at_is_set_exactly_in_terminal_states,
    a_released_task_has_no_holder_and_is_claimed_first_again,
    a_claimed_task_may_be_released,
    a_repeated_release_counts_once,
    twenty_releases_poison_a_task,
    a_release_right_before_the_twentieth_does_not,
);

fn result(json: &str) -> Finishing {
    Finishing::Complete(Some(json.into()))
}

async fn a_completed_task_shows_its_result(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    world.pass_ms(7);
    let text = "{\"a\":[1,2.5,null],\"ä\":\"x\"}";
    assert_eq!(world.finish(&held, result(text)).await.unwrap(), State::Completed);
    let shown = world.show(held.task.id).await;
    assert_eq!(shown.result, Some(json!({"a": [1, 2.5, null], "ä": "x"})));
    assert_eq!(shown.status, State::Completed);
    assert_eq!((shown.error, shown.lease_expires_at), (None, None));
    let story = world.story(held.task.id).await;
    assert_eq!(story, ["submit:pending", "claim:running", "complete:completed"]);
}

async fn a_task_may_be_completed_without_a_result_or_without_a_start(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit(job()).await;
    let held = world.claim("w1", 1).await.pop().unwrap();
    assert_eq!(world.finish(&held, Finishing::Complete(None)).await.unwrap(), State::Completed);
    assert_eq!(world.finish(&held, Finishing::Complete(None)).await.unwrap(), State::Completed);
    let shown = world.show(held.task.id).await;
    assert_eq!((shown.result, shown.started_at), (None, None));
}

async fn a_late_completion_is_kept_while_nobody_took_the_lease(dialect: Dialect) {
    let world = World::new(dialect).await;
    let [slow, failing] = [world.running(job()).await, world.running(job()).await];
    world.pass_ms(60_100);
    assert_eq!(world.finish(&slow, complete()).await.unwrap(), State::Completed);
    assert_eq!(world.finish(&failing, fail("TIMEOUT")).await.unwrap(), State::Retry);
    assert_eq!(world.tasks.expire_leases(10).await.unwrap().scanned, 0);
}

async fn a_completion_after_a_sweep_is_lease_lost(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    world.pass_ms(60_000);
    world.tasks.expire_leases(10).await.unwrap();
    for how in [complete(), fail("TIMEOUT"), Finishing::Release] {
        assert_eq!(refused(world.finish(&held, how).await), "lease_lost");
    }
    assert_eq!(world.status(held.task.id).await, State::Retry);
    let next = world.claim("w2", 1).await.pop().unwrap();
    for how in [complete(), fail("TIMEOUT"), Finishing::Release] {
        assert_eq!(refused(world.finish(&held, how).await), "lease_lost");
    }
    assert_eq!(world.show(held.task.id).await, next.task);
    world.finish(&next, complete()).await.unwrap();
    assert_eq!(refused(world.finish(&held, complete()).await), "lease_lost");
}

async fn a_completion_under_another_lease_is_lease_lost(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let stranger = Assignment { lease_id: LeaseId(Uuid::new_v4()), ..held.clone() };
    for how in [complete(), fail("TIMEOUT"), Finishing::Release] {
        assert_eq!(refused(world.finish(&stranger, how).await), "lease_lost");
    }
    assert_eq!(world.show(held.task.id).await, held.task);
    let waiting = world.submit(job()).await;
    let early = Assignment { task: world.show(waiting).await, ..held };
    assert_eq!(refused(world.finish(&early, complete()).await), "lease_lost");
}

async fn nobody_finishes_an_unknown_task(dialect: Dialect) {
    let world = World::new(dialect).await;
    let mut held = world.running(job()).await;
    held.task.id = TaskId(Uuid::new_v4());
    for how in [complete(), fail("TIMEOUT"), Finishing::Release] {
        assert_eq!(refused(world.finish(&held, how).await), "not_found");
    }
}

async fn the_same_completion_again_is_answered_like_the_first(dialect: Dialect) {
    let world = World::new(dialect).await;
    let values = [json!({"z": 1.0, "a": [1e16, -0.5, 1e300]}), json!(null), json!("ä\u{1f600}")];
    for value in values {
        let held = world.running(job()).await;
        let text = windlass_domain::json::canonical(&value);
        for _ in 0..3 {
            assert_eq!(world.finish(&held, result(&text)).await.unwrap(), State::Completed);
            world.pass_ms(60_000);
        }
        assert_eq!(world.story(held.task.id).await.len(), 3);
        let stored =
            world.show(held.task.id).await.result.map(|r| windlass_domain::json::canonical(&r));
        assert_eq!(stored, Some(text));
    }
}

async fn another_outcome_after_the_first_is_already_finished(dialect: Dialect) {
    let world = World::new(dialect).await;
    let ways = || [complete(), result("{\"ok\":false}"), fail("A"), fail("B"), Finishing::Release];
    for first in 0..ways().len() {
        let held = world.running(job()).await;
        let answer = world.finish(&held, ways()[first].clone()).await.unwrap();
        for (second, how) in ways().into_iter().enumerate() {
            let again = world.finish(&held, how).await;
            if first == second {
                assert_eq!(again.unwrap(), answer);
            } else {
                assert_eq!(refused(again), "already_finished", "{first} then {second}");
            }
        }
        assert_eq!(world.story(held.task.id).await.len(), 3);
        world.cancel(held.task.id).await.ok();
    }
}

async fn a_batch_gives_each_item_its_outcome_in_order(dialect: Dialect) {
    let world = World::new(dialect).await;
    let mut held = Vec::new();
    for _ in 0..6 {
        held.push(world.running(job()).await);
    }
    world.finish(&held[5], complete()).await.unwrap();
    let mut unknown = finish_of(&held[0], complete());
    unknown.task = TaskId(Uuid::new_v4());
    let mut wrong = finish_of(&held[4], complete());
    wrong.lease = LeaseId(Uuid::new_v4());
    let batch = vec![
        finish_of(&held[0], fail("TIMEOUT")),
        unknown,
        finish_of(&held[1], complete()),
        finish_of(&held[2], Finishing::Release),
        wrong,
        finish_of(&held[3], fail("INVALID_INPUT")),
        finish_of(&held[5], result("0")),
        finish_of(&held[4], complete()),
    ];
    let outcomes = world.tasks.finish(batch).await;
    let words: Vec<_> = outcomes
        .into_iter()
        .map(|o| if let Ok(state) = &o { state.as_str() } else { refused(o) })
        .collect();
    let expected = [
        "retry",
        "not_found",
        "completed",
        "pending",
        "lease_lost",
        "failed",
        "already_finished",
        "completed",
    ];
    assert_eq!(words, expected);
}

async fn of_two_items_for_one_task_the_first_counts(dialect: Dialect) {
    let world = World::new(dialect).await;
    let ways = || [complete(), result("0"), fail("INVALID_INPUT"), Finishing::Release];
    for first in 0..ways().len() {
        for second in (0..ways().len()).filter(|&second| second != first) {
            let held = world.running(job()).await;
            let item = |way: usize| finish_of(&held, ways()[way].clone());
            let mut outcomes = world.tasks.finish(vec![item(first), item(second)]).await;
            let late = outcomes.pop().unwrap();
            assert_eq!(refused(late), "already_finished", "{first} then {second}");
            let answer = outcomes.pop().unwrap().unwrap();
            assert_eq!(world.status(held.task.id).await, answer);
            world.cancel(held.task.id).await.ok();
        }
    }
}

async fn the_holder_stays_on_a_finished_task(dialect: Dialect) {
    let world = World::new(dialect).await;
    for how in [complete(), fail("INVALID_INPUT"), fail("POISON_TASK")] {
        let held = world.running(job()).await;
        world.beat(&held).await.unwrap();
        world.pass_ms(5);
        world.finish(&held, how).await.unwrap();
        let shown = world.show(held.task.id).await;
        assert_eq!(shown.claimed_by.as_deref(), Some("w1"));
        assert_eq!(shown.claimed_at, held.task.claimed_at);
        assert_eq!(shown.last_heartbeat_at, held.task.claimed_at);
        assert_eq!((shown.lease_expires_at, shown.attempt), (None, 1));
    }
}

async fn a_completion_keeps_its_reason(dialect: Dialect) {
    let world = World::new(dialect).await;
    for how in [complete(), fail("TIMEOUT"), Finishing::Release] {
        let held = world.running(job()).await;
        let mut item = finish_of(&held, how);
        item.reason = Some("because".into());
        world.tasks.finish(vec![item]).await.pop().unwrap().unwrap();
        let history = world.tasks.history(held.task.id, 0, 10).await.unwrap();
        assert_eq!(history[2].reason.as_deref(), Some("because"));
        world.cancel(held.task.id).await.ok();
    }
}

async fn a_completed_task_shows_no_error_of_an_earlier_attempt(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    world.finish(&held, fail("TIMEOUT")).await.unwrap();
    let error = TaskError::new("TIMEOUT", "it broke");
    assert_eq!(world.show(held.task.id).await.error, Some(error));
    world.pass_ms(500);
    let again = world.claim("w2", 1).await.pop().unwrap();
    world.finish(&again, complete()).await.unwrap();
    assert_eq!(world.show(held.task.id).await.error, None);
    assert_eq!(world.tasks.failures(held.task.id, 0, 10).await.unwrap().len(), 1);
}

async fn finished_at_is_set_exactly_in_terminal_states(dialect: Dialect) {
    let world = World::new(dialect).await;
    let ways = [
        (complete(), State::Completed),
        (fail("INVALID_INPUT"), State::Failed),
        (fail("POISON_TASK"), State::Poisoned),
        (fail("TIMEOUT"), State::Retry),
        (Finishing::Release, State::Pending),
    ];
    for (how, state) in ways {
        let held = world.running(job()).await;
        assert_eq!(held.task.finished_at, None);
        world.pass_ms(3);
        assert_eq!(world.finish(&held, how).await.unwrap(), state);
        let shown = world.show(held.task.id).await;
        assert_eq!(shown.updated_at, world.now());
        let expected = state.is_terminal().then(|| world.now());
        assert_eq!(shown.finished_at, expected, "{state}");
        if !state.is_terminal() {
            assert_eq!(world.cancel(held.task.id).await.unwrap(), State::Cancelled);
            assert_eq!(world.show(held.task.id).await.finished_at, Some(world.now()));
        }
    }
}

async fn a_released_task_has_no_holder_and_is_claimed_first_again(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    world.beat(&held).await.unwrap();
    world.pass_ms(1_000);
    world.submit_all((0..3).map(|_| job()).collect()).await;
    world.claim("w2", 1).await;
    assert_eq!(world.finish(&held, Finishing::Release).await.unwrap(), State::Pending);
    let shown = world.show(held.task.id).await;
    assert_eq!((&shown.claimed_by, shown.claimed_at), (&None, None));
    assert_eq!((shown.lease_expires_at, shown.last_heartbeat_at), (None, None));
    assert_eq!((shown.release_count, shown.retry_count, shown.error), (1, 0, None));
    assert_eq!(shown.run_at, held.task.run_at);
    let next = world.claim("w2", 1).await.pop().unwrap();
    assert_eq!((next.task.id, next.attempt), (held.task.id, 2));
}

async fn a_claimed_task_may_be_released(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(job()).await;
    let held = world.claim("w1", 1).await.pop().unwrap();
    assert_eq!(world.finish(&held, Finishing::Release).await.unwrap(), State::Pending);
    assert_eq!(world.story(id).await, ["submit:pending", "claim:claimed", "release:pending"]);
}

async fn a_repeated_release_counts_once(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    for _ in 0..2 {
        assert_eq!(world.finish(&held, Finishing::Release).await.unwrap(), State::Pending);
    }
    let next = world.claim("w2", 1).await.pop().unwrap();
    assert_eq!(world.finish(&held, Finishing::Release).await.unwrap(), State::Pending);
    assert_eq!(world.show(held.task.id).await, next.task);
    assert_eq!(next.task.release_count, 1);
}

async fn release(world: &World, times: usize) -> (TaskId, State) {
    let id = world.submit(job()).await;
    let mut state = State::Pending;
    for _ in 0..times {
        let held = world.claim("w1", 1).await.pop().unwrap();
        state = world.finish(&held, Finishing::Release).await.unwrap();
    }
    (id, state)
}

async fn twenty_releases_poison_a_task(dialect: Dialect) {
    let world = World::new(dialect).await;
    let (id, state) = release(&world, 20).await;
    assert_eq!(state, State::Poisoned);
    let shown = world.show(id).await;
    assert_eq!(shown.release_count, 20);
    assert_eq!(shown.error.unwrap().code, "RELEASED_TOO_OFTEN");
    assert_eq!(shown.finished_at, Some(world.now()));
    assert_eq!(world.story(id).await.pop().unwrap(), "release_too_often:poisoned");
    let failures = world.tasks.failures(id, 0, 10).await.unwrap();
    assert_eq!(failures[0].attempt, 20);
}

async fn a_release_right_before_the_twentieth_does_not(dialect: Dialect) {
    let world = World::new(dialect).await;
    let (id, state) = release(&world, 19).await;
    assert_eq!(state, State::Pending);
    assert_eq!(world.claim("w1", 1).await.pop().unwrap().task.id, id);
}
