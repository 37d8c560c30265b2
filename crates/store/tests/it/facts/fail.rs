//! Failing: the code decides, every failure is kept, and the same failure again is one failure.

use crate::world::*;
use serde_json::json;
use windlass_domain::failure::TaskError;
use windlass_domain::retry::Backoff;
use windlass_domain::state::State;
use windlass_domain::task::NewTask;
use windlass_store::statement::Dialect;
use windlass_store::task::{Assignment, Finishing};

conformance!(
    a_retryable_failure_waits_for_its_backoff,
    the_backoff_of_the_task_counts,
    without_jitter_the_delays_double,
    a_failure_may_name_its_own_delay,
    a_failure_of_a_claimed_task_counts_too,
    every_failure_is_kept_with_its_attempt_and_session,
    failures_come_in_pages,
    a_job_without_retries_left_is_poisoned,
    a_delegation_without_retries_left_fails,
    an_inference_without_retries_left_fails,
    a_failure_that_is_not_retryable_ends_the_task,
    a_poisonous_task_is_poisoned_at_once,
    the_lists_of_the_policy_decide,
    the_same_failure_again_is_answered_like_the_first,
    the_detail_of_a_failure_is_kept_and_recognised,
);

fn steady(max_retries: i32) -> NewTask {
    task(|r| {
        r.max_retries = Some(max_retries);
        r.backoff = Some(Backoff { jitter: false, ..Backoff::default() });
    })
}

async fn claim_again(world: &World, session: &str) -> Assignment {
    world.claim(session, 1).await.pop().expect("the task is due")
}

async fn a_retryable_failure_waits_for_its_backoff(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    world.beat(&held).await.unwrap();
    world.pass_ms(10);
    assert_eq!(world.finish(&held, fail("TIMEOUT")).await.unwrap(), State::Retry);
    let shown = world.show(held.task.id).await;
    assert_eq!(shown.status, State::Retry);
    // Half of the first delay: the chance was 0.5.
    assert_eq!(shown.run_at, world.now().plus_ms(500));
    assert_eq!((shown.retry_count, shown.release_count, shown.attempt), (1, 0, 1));
    assert_eq!(shown.error, Some(TaskError::new("TIMEOUT", "it broke")));
    assert_eq!((&shown.claimed_by, shown.claimed_at), (&None, None));
    assert_eq!((shown.lease_expires_at, shown.last_heartbeat_at), (None, None));
}

async fn the_backoff_of_the_task_counts(dialect: Dialect) {
    let world = World::new(dialect).await;
    let backoff = Backoff { base_ms: 10_000, multiplier: 3.0, ..Backoff::default() };
    let held = world.running(task(|r| r.backoff = Some(backoff))).await;
    world.finish(&held, fail("TIMEOUT")).await.unwrap();
    assert_eq!(world.show(held.task.id).await.run_at, world.now().plus_ms(5_000));
    world.pass_ms(5_000);
    let again = claim_again(&world, "w1").await;
    world.finish(&again, fail("TIMEOUT")).await.unwrap();
    assert_eq!(world.show(held.task.id).await.run_at, world.now().plus_ms(15_000));
}

async fn without_jitter_the_delays_double(dialect: Dialect) {
    let world = World::new(dialect).await;
    let mut held = world.running(steady(10)).await;
    for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300] {
        world.finish(&held, fail("ANYTHING")).await.unwrap();
        assert_eq!(world.show(held.task.id).await.run_at, world.now().plus_ms(seconds * 1_000));
        world.pass_ms(seconds * 1_000);
        held = claim_again(&world, "w1").await;
    }
    assert_eq!(world.finish(&held, fail("ANYTHING")).await.unwrap(), State::Poisoned);
}

async fn a_failure_may_name_its_own_delay(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let error = TaskError::new("RATE_LIMITED", "slow down");
    let how = Finishing::Fail { error, retry_after_ms: Some(77_777), chance: 0.5 };
    world.finish(&held, how).await.unwrap();
    assert_eq!(world.show(held.task.id).await.run_at, world.now().plus_ms(77_777));
    world.pass_ms(77_776);
    assert_eq!(world.claim("w1", 1).await, []);
    world.pass_ms(1);
    claim_again(&world, "w1").await;
}

async fn a_failure_of_a_claimed_task_counts_too(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(job()).await;
    let held = claim_again(&world, "w1").await;
    assert_eq!(world.finish(&held, fail("TIMEOUT")).await.unwrap(), State::Retry);
    assert_eq!(world.story(id).await, ["submit:pending", "claim:claimed", "fail:retry"]);
}

async fn every_failure_is_kept_with_its_attempt_and_session(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(job()).await;
    let mut expected = Vec::new();
    for (attempt, code) in (1..).zip(["A", "B", "INVALID_INPUT"]) {
        let session = format!("worker-{attempt}");
        let held = claim_again(&world, &session).await;
        world.pass_ms(1);
        expected.push((code.to_owned(), attempt, Some(session), world.now()));
        world.finish(&held, fail(code)).await.unwrap();
        world.pass_ms(300_000);
    }
    let failures = world.tasks.failures(id, 0, 10).await.unwrap();
    let kept: Vec<_> =
        failures.into_iter().map(|f| (f.error.code, f.attempt, f.session, f.at)).collect();
    assert_eq!(kept, expected);
    let shown = world.show(id).await;
    assert_eq!((shown.status, shown.retry_count), (State::Failed, 2));
    assert_eq!(shown.error.unwrap().code, "INVALID_INPUT");
}

async fn failures_come_in_pages(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(steady(4)).await;
    for code in ["A", "B", "C", "D", "E"] {
        let held = claim_again(&world, "w1").await;
        world.finish(&held, fail(code)).await.unwrap();
        world.pass_ms(300_000);
    }
    let (mut after, mut codes) = (0, Vec::new());
    loop {
        let page = world.tasks.failures(id, after, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = last.seq;
        codes.push(page.into_iter().map(|f| f.error.code).collect::<String>());
    }
    assert_eq!(codes, ["AB", "CD", "E"]);
}

/// Fails with a retryable error until the task ends.
async fn exhaust(world: &World, new: NewTask) -> (State, i32) {
    let id = world.submit(new).await;
    loop {
        let held = claim_again(world, "w1").await;
        let state = world.finish(&held, fail("TIMEOUT")).await.unwrap();
        if state.is_terminal() {
            let shown = world.show(id).await;
            assert_eq!((shown.status, shown.error.unwrap().code), (state, "TIMEOUT".to_owned()));
            assert_eq!(shown.retry_count, shown.max_retries);
            return (state, shown.attempt);
        }
        world.pass_ms(300_000);
    }
}

async fn a_job_without_retries_left_is_poisoned(dialect: Dialect) {
    let world = World::new(dialect).await;
    assert_eq!(exhaust(&world, job()).await, (State::Poisoned, 4));
    assert_eq!(exhaust(&world, steady(0)).await, (State::Poisoned, 1));
}

async fn a_delegation_without_retries_left_fails(dialect: Dialect) {
    let world = World::new(dialect).await;
    assert_eq!(exhaust(&world, delegation(|_| {})).await, (State::Failed, 1));
    let twice = delegation(|r| r.max_retries = Some(1));
    assert_eq!(exhaust(&world, twice).await, (State::Failed, 2));
}

async fn an_inference_without_retries_left_fails(dialect: Dialect) {
    let world = World::new(dialect).await;
    assert_eq!(exhaust(&world, inference()).await, (State::Failed, 1));
}

async fn a_failure_that_is_not_retryable_ends_the_task(dialect: Dialect) {
    let world = World::new(dialect).await;
    for code in ["INVALID_INPUT", "PERMISSION_DENIED", "BUDGET_EXCEEDED"] {
        let held = world.running(job()).await;
        assert_eq!(world.finish(&held, fail(code)).await.unwrap(), State::Failed);
        let shown = world.show(held.task.id).await;
        assert_eq!((shown.error.unwrap().code.as_str(), shown.retry_count), (code, 0));
    }
}

async fn a_poisonous_task_is_poisoned_at_once(dialect: Dialect) {
    let world = World::new(dialect).await;
    for new in [job(), delegation(|_| {}), inference()] {
        let held = world.running(new).await;
        assert_eq!(world.finish(&held, fail("POISON_TASK")).await.unwrap(), State::Poisoned);
    }
}

async fn the_lists_of_the_policy_decide(dialect: Dialect) {
    let world = World::new(dialect).await;
    let policy = Backoff {
        retryable: vec!["INVALID_INPUT".into()],
        non_retryable: vec!["TIMEOUT".into()],
        ..Backoff::default()
    };
    for (code, state) in [("INVALID_INPUT", State::Retry), ("TIMEOUT", State::Failed)] {
        let held = world.running(task(|r| r.backoff = Some(policy.clone()))).await;
        assert_eq!(world.finish(&held, fail(code)).await.unwrap(), state);
    }
}

async fn the_same_failure_again_is_answered_like_the_first(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let run_at = world.now().plus_ms(500);
    for _ in 0..2 {
        assert_eq!(world.finish(&held, fail("TIMEOUT")).await.unwrap(), State::Retry);
        assert_eq!(world.show(held.task.id).await.run_at, run_at);
        world.pass_ms(250);
    }
    let next = claim_again(&world, "w2").await;
    assert_eq!(world.finish(&held, fail("TIMEOUT")).await.unwrap(), State::Retry);
    assert_eq!(world.show(held.task.id).await, next.task);
    world.finish(&next, complete()).await.unwrap();
    assert_eq!(world.finish(&held, fail("TIMEOUT")).await.unwrap(), State::Retry);
    assert_eq!(refused(world.finish(&held, fail("OTHER")).await), "already_finished");
    assert_eq!(world.status(held.task.id).await, State::Completed);
    assert_eq!(world.tasks.failures(held.task.id, 0, 10).await.unwrap().len(), 1);
}

async fn the_detail_of_a_failure_is_kept_and_recognised(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let detail = json!({"z": 1.0, "a": [1e16, 1e300, -0.0, 0.1], "stack": "at ä\n"});
    let error = TaskError { detail: Some(detail), ..TaskError::new("ODD", "it broke") };
    let how = || Finishing::Fail { error: error.clone(), retry_after_ms: None, chance: 0.5 };
    for _ in 0..2 {
        assert_eq!(world.finish(&held, how()).await.unwrap(), State::Retry);
    }
    let kept = world.tasks.failures(held.task.id, 0, 10).await.unwrap().remove(0).error;
    let canonical =
        |e: &TaskError| windlass_domain::json::canonical(&serde_json::to_value(e).unwrap());
    assert_eq!(canonical(&kept), canonical(&error));
    assert_eq!(canonical(&world.show(held.task.id).await.error.unwrap()), canonical(&error));
}
