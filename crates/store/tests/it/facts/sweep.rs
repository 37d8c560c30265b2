//! What time does to tasks: lost leases and sessions, deadlines, the pending timeout.

use crate::world::*;
use windlass_domain::id::TaskId;
use windlass_domain::profile::Profile;
use windlass_domain::state::State;
use windlass_domain::task::NewTask;
use windlass_store::statement::Dialect;
use windlass_store::task::{Assignment, Claim, Finishing, SweepReport};

conformance!(
    a_live_lease_is_not_swept,
    a_running_job_that_lost_its_lease_retries_at_once,
    a_job_that_loses_its_lease_too_often_is_poisoned,
    a_claimed_task_that_lost_its_lease_goes_back_as_a_release,
    a_silent_delegation_is_stuck,
    a_delegation_that_never_beat_is_never_stuck,
    an_inference_that_lost_its_lease_goes_back_without_a_retry,
    twenty_lost_leases_of_an_inference_poison_it,
    a_deadline_ends_a_task_in_every_living_state,
    a_deadline_wins_over_a_lost_lease,
    a_delegation_has_six_hours,
    a_job_has_no_deadline_by_default,
    an_inference_is_pending_for_an_hour_at_most,
    the_pending_hour_counts_from_the_last_entry,
    only_inference_times_out_in_pending,
    a_completed_task_is_not_swept,
    a_sweep_takes_at_most_its_limit,
    a_sweep_names_its_duty_in_the_history,
    a_lost_session_gives_inference_back_at_once,
    a_lost_session_leaves_jobs_to_their_lease,
    a_lost_session_gives_back_a_delegation_before_its_first_beat,
    a_lost_session_touches_nothing_of_others,
    a_finish_after_the_session_was_lost_is_lease_lost,
    leases_that_run_out_after_one_another_are_all_taken_back,
);

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

async fn expire(world: &World) -> SweepReport {
    world.tasks.expire_leases(1_000).await.unwrap()
}

fn moved(held: &Assignment, to: State) -> SweepReport {
    let changed = vec![(held.task.id, to)];
    SweepReport { scanned: 1, changed, ..SweepReport::default() }
}

async fn claimed(world: &World, new: NewTask) -> Assignment {
    let id = world.submit(new).await;
    let held = world.claim("w1", 1).await.pop().unwrap();
    assert_eq!(held.task.id, id);
    held
}

async fn error_code(world: &World, task: TaskId) -> Option<String> {
    world.show(task).await.error.map(|e| e.code)
}

async fn a_live_lease_is_not_swept(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    world.pass_ms(MINUTE - 1);
    assert_eq!(expire(&world).await, SweepReport::default());
    world.beat(&held).await.unwrap();
    world.pass_ms(MINUTE - 1);
    assert_eq!(expire(&world).await, SweepReport::default());
    world.pass_ms(1);
    assert_eq!(expire(&world).await, moved(&held, State::Retry));
    assert_eq!(expire(&world).await, SweepReport::default());
}

async fn a_running_job_that_lost_its_lease_retries_at_once(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    world.pass_ms(MINUTE);
    assert_eq!(expire(&world).await, moved(&held, State::Retry));
    let shown = world.show(held.task.id).await;
    assert_eq!((shown.run_at, shown.retry_count, shown.release_count), (world.now(), 1, 0));
    assert_eq!(shown.error.as_ref().unwrap().code, "LEASE_EXPIRED");
    assert_eq!((&shown.claimed_by, shown.lease_expires_at), (&None, None));
    let failures = world.tasks.failures(held.task.id, 0, 10).await.unwrap();
    assert_eq!((failures[0].attempt, failures[0].session.as_deref()), (1, Some("w1")));
    let again = world.claim("w2", 1).await.pop().unwrap();
    assert_eq!((again.task.id, again.attempt), (held.task.id, 2));
}

async fn a_job_that_loses_its_lease_too_often_is_poisoned(dialect: Dialect) {
    let world = World::new(dialect).await;
    let mut held = world.running(job()).await;
    for _ in 0..3 {
        world.pass_ms(MINUTE);
        assert_eq!(expire(&world).await, moved(&held, State::Retry));
        let claim = Claim { start: true, ..claim_of("w1", &["q"], 1) };
        held = world.tasks.claim(claim).await.unwrap().pop().unwrap();
    }
    world.pass_ms(MINUTE);
    assert_eq!(expire(&world).await, moved(&held, State::Poisoned));
    assert_eq!(error_code(&world, held.task.id).await.as_deref(), Some("LEASE_EXPIRED"));
    assert_eq!(world.tasks.failures(held.task.id, 0, 10).await.unwrap().len(), 4);
}

async fn a_claimed_task_that_lost_its_lease_goes_back_as_a_release(dialect: Dialect) {
    let world = World::new(dialect).await;
    for new in [job(), inference()] {
        let held = claimed(&world, new).await;
        world.pass_ms(10 * MINUTE);
        assert_eq!(expire(&world).await, moved(&held, State::Pending));
        let shown = world.show(held.task.id).await;
        assert_eq!((shown.release_count, shown.retry_count, shown.error), (1, 0, None));
        assert_eq!(shown.claimed_by, None);
        assert_eq!(world.story(held.task.id).await.pop().unwrap(), "lose_lease:pending");
        world.cancel(held.task.id).await.unwrap();
    }
}

async fn a_silent_delegation_is_stuck(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(delegation(|_| {})).await;
    world.pass_ms(MINUTE);
    world.beat(&held).await.unwrap();
    world.pass_ms(10 * MINUTE - 1);
    assert_eq!(expire(&world).await, SweepReport::default());
    world.pass_ms(1);
    assert_eq!(expire(&world).await, moved(&held, State::Stuck));
    let shown = world.show(held.task.id).await;
    assert_eq!(shown.error.as_ref().unwrap().code, "STALE");
    assert_eq!(shown.finished_at, Some(world.now()));
    assert_eq!(shown.claimed_by.as_deref(), Some("w1"));
    assert_eq!(refused(world.finish(&held, complete()).await), "lease_lost");
}

async fn a_delegation_that_never_beat_is_never_stuck(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(delegation(|_| {})).await;
    let waiting = claimed(&world, delegation(|_| {})).await;
    world.pass_ms(6 * HOUR - 1);
    assert_eq!(expire(&world).await, SweepReport::default());
    assert_eq!(world.status(waiting.task.id).await, State::Claimed);
    assert_eq!(world.finish(&held, complete()).await.unwrap(), State::Completed);
}

async fn an_inference_that_lost_its_lease_goes_back_without_a_retry(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(inference()).await;
    world.pass_ms(10 * MINUTE);
    assert_eq!(expire(&world).await, moved(&held, State::Pending));
    let shown = world.show(held.task.id).await;
    assert_eq!((shown.release_count, shown.retry_count, shown.error), (1, 0, None));
    assert_eq!(world.claim("w2", 1).await.pop().unwrap().attempt, 2);
}

async fn twenty_lost_leases_of_an_inference_poison_it(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(inference()).await;
    for time in 1..=20 {
        let claim = Claim { start: true, ..claim_of("w1", &["q"], 1) };
        let held = world.tasks.claim(claim).await.unwrap().pop().unwrap();
        world.pass_ms(10 * MINUTE);
        let expected = if time == 20 { State::Poisoned } else { State::Pending };
        assert_eq!(expire(&world).await, moved(&held, expected));
    }
    assert_eq!(error_code(&world, id).await.as_deref(), Some("RELEASED_TOO_OFTEN"));
}

async fn a_deadline_ends_a_task_in_every_living_state(dialect: Dialect) {
    let world = World::new(dialect).await;
    let dated = || task(|r| r.deadline_ms = Some(1_000));
    let running = world.running(dated()).await;
    let waiting = world.running(dated()).await;
    let lease_id = waiting.lease_id;
    let command = windlass_domain::command::Command::Wait { lease_id };
    world.ask(waiting.task.id, command).await.unwrap();
    let retrying = world.running(dated()).await;
    world.finish(&retrying, fail("TIMEOUT")).await.unwrap();
    let claimed = claimed(&world, dated()).await;
    let pending = world.submit(dated()).await;
    let delayed = world.submit(task(|r| {
        r.deadline_ms = Some(1_000);
        r.delay_ms = Some(5_000);
    }));
    let delayed = delayed.await;
    world.pass_ms(999);
    assert_eq!(world.tasks.expire_deadlines(100).await.unwrap(), SweepReport::default());
    world.pass_ms(1);
    let report = world.tasks.expire_deadlines(100).await.unwrap();
    assert_eq!((report.scanned, report.changed.len(), report.lost_races), (6, 6, 0));
    let held = [running.task.id, waiting.task.id, retrying.task.id, claimed.task.id];
    for id in held.into_iter().chain([pending, delayed]) {
        let shown = world.show(id).await;
        assert_eq!(shown.status, State::Failed);
        let error = shown.error.unwrap();
        assert_eq!(error.code, "DEADLINE_EXCEEDED");
        assert_eq!(error.message, "deadline exceeded by sweeper");
        assert_eq!(world.story(id).await.pop().unwrap(), "exceed_deadline:failed");
    }
    assert_eq!(refused(world.finish(&running, complete()).await), "lease_lost");
    assert_eq!(world.claim("w2", 10).await, []);
}

async fn a_deadline_wins_over_a_lost_lease(dialect: Dialect) {
    let world = World::new(dialect).await;
    for profile in [Profile::Job, Profile::Delegation] {
        let change = |r: &mut windlass_domain::request::SubmitRequest| {
            r.deadline_ms = Some(5 * MINUTE);
        };
        let new = if profile == Profile::Job { task(change) } else { delegation(change) };
        let held = world.running(new).await;
        world.beat(&held).await.unwrap();
        world.pass_ms(10 * MINUTE);
        assert_eq!(expire(&world).await, moved(&held, State::Failed));
        let code = error_code(&world, held.task.id).await;
        assert_eq!(code.as_deref(), Some("DEADLINE_EXCEEDED"));
    }
}

async fn a_delegation_has_six_hours(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(delegation(|_| {})).await;
    world.pass_ms(6 * HOUR - 1);
    assert_eq!(world.tasks.expire_deadlines(10).await.unwrap().scanned, 0);
    world.pass_ms(1);
    let report = world.tasks.expire_deadlines(10).await.unwrap();
    assert_eq!(report.changed, [(id, State::Failed)]);
}

async fn a_job_has_no_deadline_by_default(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(job()).await;
    world.pass_ms(365 * 24 * HOUR);
    assert_eq!(world.tasks.expire_deadlines(10).await.unwrap(), SweepReport::default());
    assert_eq!(world.show(id).await.deadline_at, None);
}

async fn time_out(world: &World) -> SweepReport {
    world.tasks.time_out_pending(None, 1_000).await.unwrap()
}

async fn an_inference_is_pending_for_an_hour_at_most(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(inference()).await;
    world.pass_ms(HOUR - 1);
    assert_eq!(time_out(&world).await, SweepReport::default());
    world.pass_ms(1);
    assert_eq!(time_out(&world).await.changed, [(id, State::Failed)]);
    assert_eq!(error_code(&world, id).await.as_deref(), Some("PENDING_TIMEOUT"));
    assert_eq!(world.claim("w1", 1).await, []);
}

async fn the_pending_hour_counts_from_the_last_entry(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(inference()).await;
    world.pass_ms(5 * MINUTE);
    world.finish(&held, Finishing::Release).await.unwrap();
    world.pass_ms(HOUR - 1);
    assert_eq!(time_out(&world).await, SweepReport::default());
    world.pass_ms(1);
    assert_eq!(time_out(&world).await, moved(&held, State::Failed));
}

async fn only_inference_times_out_in_pending(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit_all(vec![job(), delegation(|_| {}), ledger()]).await;
    let held = world.running(inference()).await;
    world.pass_ms(2 * HOUR);
    assert_eq!(time_out(&world).await, SweepReport::default());
    assert_eq!(world.status(held.task.id).await, State::Running);
}

async fn a_completed_task_is_not_swept(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(task(|r| r.deadline_ms = Some(1_000))).await;
    world.pass_ms(HOUR);
    world.finish(&held, complete()).await.unwrap();
    assert_eq!(expire(&world).await, SweepReport::default());
    assert_eq!(world.tasks.expire_deadlines(10).await.unwrap(), SweepReport::default());
    assert_eq!(world.tasks.lose_session("w1").await.unwrap(), SweepReport::default());
    assert_eq!(world.status(held.task.id).await, State::Completed);
}

async fn a_sweep_takes_at_most_its_limit(dialect: Dialect) {
    let world = World::new(dialect).await;
    let new = || task(|r| r.deadline_ms = Some(2 * MINUTE));
    world.submit_all((0..5).map(|_| new()).collect()).await;
    world.tasks.claim(Claim { start: true, ..claim_of("w1", &["q"], 5) }).await.unwrap();
    world.pass_ms(MINUTE);
    let mut counts = Vec::new();
    for _ in 0..4 {
        counts.push(world.tasks.expire_leases(2).await.unwrap().changed.len());
    }
    world.pass_ms(MINUTE);
    for _ in 0..3 {
        counts.push(world.tasks.expire_deadlines(3).await.unwrap().changed.len());
    }
    assert_eq!(counts, [2, 2, 1, 0, 3, 2, 0]);
}

async fn a_sweep_names_its_duty_in_the_history(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    world.pass_ms(MINUTE);
    expire(&world).await;
    let history = world.tasks.history(held.task.id, 0, 10).await.unwrap();
    assert_eq!(history[2].actor, "duty:expire_leases");
    assert_eq!(history[2].lease_id, Some(held.lease_id.digest()));
    assert_eq!(history[2].metadata.as_ref().unwrap()["error"]["code"], "LEASE_EXPIRED");
}

async fn lose(world: &World, session: &str) -> Vec<(TaskId, State)> {
    world.tasks.lose_session(session).await.unwrap().changed
}

async fn a_lost_session_gives_inference_back_at_once(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(inference()).await;
    world.beat(&held).await.unwrap();
    assert_eq!(lose(&world, "w1").await, [(held.task.id, State::Pending)]);
    let shown = world.show(held.task.id).await;
    assert_eq!((shown.release_count, shown.retry_count, shown.claimed_by), (1, 0, None));
    assert_eq!(world.claim("w2", 1).await.pop().unwrap().attempt, 2);
}

async fn a_lost_session_leaves_jobs_to_their_lease(dialect: Dialect) {
    let world = World::new(dialect).await;
    let running = world.running(job()).await;
    let claimed = claimed(&world, job()).await;
    assert_eq!(lose(&world, "w1").await, []);
    for held in [&running, &claimed] {
        assert_eq!(world.show(held.task.id).await, held.task);
    }
    world.beat(&running).await.unwrap();
    assert_eq!(world.finish(&running, complete()).await.unwrap(), State::Completed);
}

async fn a_lost_session_gives_back_a_delegation_before_its_first_beat(dialect: Dialect) {
    let world = World::new(dialect).await;
    let beaten = world.running(delegation(|_| {})).await;
    world.beat(&beaten).await.unwrap();
    let running = world.running(delegation(|_| {})).await;
    let claimed = claimed(&world, delegation(|_| {})).await;
    let mut changed = lose(&world, "w1").await;
    changed.sort_unstable();
    let mut expected = [(running.task.id, State::Pending), (claimed.task.id, State::Pending)];
    expected.sort_unstable();
    assert_eq!(changed, expected);
    assert_eq!(world.status(beaten.task.id).await, State::Running);
    assert_eq!(world.show(running.task.id).await.release_count, 1);
    assert_eq!(world.finish(&beaten, complete()).await.unwrap(), State::Completed);
}

async fn a_lost_session_touches_nothing_of_others(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(inference()).await;
    assert_eq!(lose(&world, "w2").await, []);
    assert_eq!(world.show(held.task.id).await, held.task);
}

async fn a_finish_after_the_session_was_lost_is_lease_lost(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(inference()).await;
    lose(&world, "w1").await;
    for how in [complete(), fail("TIMEOUT")] {
        assert_eq!(refused(world.finish(&held, how).await), "lease_lost");
    }
    assert_eq!(refused(world.beat(&held).await), "lease_lost");
}

/// The duty looks from where the sweep before it ended.
async fn leases_that_run_out_after_one_another_are_all_taken_back(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    for _ in 0..3 {
        let id = world.submit(job()).await;
        let claim = Claim { lease_ms: Some(1), ..claim_of("w1", &["q"], 1) };
        let held = world.tasks.claim(claim).await.unwrap();
        assert_eq!(held[0].task.id, id);
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        let swept = world.tasks.expire_worker_leases(10).await.unwrap();
        assert_eq!(swept.changed.len(), 1, "{swept:?}");
        world.cancel(id).await.unwrap();
        assert_eq!(world.tasks.expire_worker_leases(10).await.unwrap().scanned, 0);
    }
}
