//! Ledger delegations: the caller runs them elsewhere and only reports.

use crate::world::*;
use serde_json::json;
use windlass_domain::command::Command;
use windlass_domain::failure::TaskError;
use windlass_domain::id::TaskId;
use windlass_domain::state::State;
use windlass_store::group::Outcome;
use windlass_store::statement::Dialect;

conformance!(
    a_report_moves_a_delegation_forward,
    a_report_may_skip_states,
    a_report_never_goes_back,
    the_same_status_again_is_nothing_new,
    an_ended_delegation_is_never_revised,
    a_pending_delegation_may_fail,
    a_failure_without_an_error_says_so,
    a_report_of_something_else_is_refused,
    a_beat_is_noted_and_writes_no_history,
    a_beat_of_an_ended_delegation_is_nothing,
    a_delegation_that_never_beat_is_not_stuck,
    a_delegation_is_stuck_when_its_beats_stop,
    a_deadline_ends_a_delegation,
    a_ledger_delegation_can_be_cancelled,
    nobody_reports_on_an_unknown_delegation,
    a_beat_before_it_was_running_counts,
);

const MINUTE: i64 = 60_000;

async fn report(world: &World, id: TaskId, to: State) -> Outcome<State> {
    let result = (to == State::Completed).then(|| "{\"done\":true}".to_owned());
    let error = to.needs_error().then(|| TaskError::new("THEIRS", "it broke there"));
    let command = Command::Report { to, result, error, holder: "boss".into() };
    world.ask(id, command).await
}

async fn beat(world: &World, id: TaskId) -> Outcome<State> {
    world.ask(id, Command::ReportBeat).await
}

async fn a_report_moves_a_delegation_forward(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(ledger()).await;
    for to in [State::Claimed, State::Running, State::Completed] {
        world.pass_ms(10);
        assert_eq!(report(&world, id, to).await.unwrap(), to);
        let shown = world.show(id).await;
        assert_eq!(shown.status, to);
        assert_eq!(shown.claimed_by.as_deref(), Some("boss"));
        assert_eq!(shown.lease_expires_at, None);
    }
    let shown = world.show(id).await;
    assert_eq!(shown.result, Some(json!({"done": true})));
    assert_eq!(shown.claimed_at, Some(shown.created_at.plus_ms(10)));
    assert_eq!(shown.started_at, Some(shown.created_at.plus_ms(20)));
    assert_eq!(shown.finished_at, Some(world.now()));
    let story = ["submit:pending", "report:claimed", "report:running", "report:completed"];
    assert_eq!(world.story(id).await, story);
}

async fn a_report_may_skip_states(dialect: Dialect) {
    let world = World::new(dialect).await;
    for to in [State::Running, State::Completed, State::Failed, State::Stuck] {
        let id = world.submit(ledger()).await;
        assert_eq!(report(&world, id, to).await.unwrap(), to);
        assert_eq!(world.story(id).await.len(), 2);
    }
}

async fn a_report_never_goes_back(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(ledger()).await;
    report(&world, id, State::Running).await.unwrap();
    let before = world.show(id).await;
    for to in [State::Claimed, State::Pending] {
        assert_eq!(refused(report(&world, id, to).await), "illegal_transition");
    }
    assert_eq!(world.show(id).await, before);
}

async fn the_same_status_again_is_nothing_new(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(ledger()).await;
    for to in [State::Pending, State::Claimed, State::Running, State::Completed] {
        report(&world, id, to).await.unwrap();
        let before = world.show(id).await;
        world.pass_ms(10);
        assert_eq!(report(&world, id, to).await.unwrap(), to);
        assert_eq!(world.show(id).await, before);
    }
    assert_eq!(world.story(id).await.len(), 4);
}

async fn an_ended_delegation_is_never_revised(dialect: Dialect) {
    let world = World::new(dialect).await;
    let ends = [State::Completed, State::Failed, State::Stuck];
    for end in ends {
        let id = world.submit(ledger()).await;
        report(&world, id, end).await.unwrap();
        let before = world.show(id).await;
        world.pass_ms(10);
        for to in ends.into_iter().chain([State::Running]).filter(|&to| to != end) {
            assert_eq!(refused(report(&world, id, to).await), "illegal_transition");
        }
        assert_eq!(world.show(id).await, before);
    }
}

async fn a_pending_delegation_may_fail(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(ledger()).await;
    assert_eq!(report(&world, id, State::Failed).await.unwrap(), State::Failed);
    let shown = world.show(id).await;
    assert_eq!(shown.error, Some(TaskError::new("THEIRS", "it broke there")));
    let failures = world.tasks.failures(id, 0, 10).await.unwrap();
    assert_eq!((failures.len(), failures[0].attempt), (1, 0));
}

async fn a_failure_without_an_error_says_so(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(ledger()).await;
    let (to, holder) = (State::Failed, "boss".to_owned());
    let command = Command::Report { to, result: None, error: None, holder };
    world.ask(id, command).await.unwrap();
    assert_eq!(world.show(id).await.error.unwrap().code, "UNKNOWN");
}

async fn a_report_of_something_else_is_refused(dialect: Dialect) {
    let world = World::new(dialect).await;
    let ours = world.submit(ledger()).await;
    for to in [State::Retry, State::Waiting, State::WaitingForApproval, State::Poisoned] {
        assert_eq!(refused(report(&world, ours, to).await), "illegal_transition");
    }
    let executed = world.submit(delegation(|_| {})).await;
    assert_eq!(refused(report(&world, executed, State::Running).await), "illegal_transition");
    assert_eq!(refused(beat(&world, executed).await), "illegal_transition");
}

async fn a_beat_is_noted_and_writes_no_history(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(ledger()).await;
    beat(&world, id).await.unwrap();
    assert_eq!(world.show(id).await.last_heartbeat_at, Some(world.now()));
    report(&world, id, State::Running).await.unwrap();
    world.pass_ms(MINUTE);
    assert_eq!(beat(&world, id).await.unwrap(), State::Running);
    assert_eq!(world.show(id).await.last_heartbeat_at, Some(world.now()));
    assert_eq!(world.story(id).await, ["submit:pending", "report:running"]);
}

async fn a_beat_of_an_ended_delegation_is_nothing(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(ledger()).await;
    report(&world, id, State::Completed).await.unwrap();
    let before = world.show(id).await;
    world.pass_ms(10);
    assert_eq!(beat(&world, id).await.unwrap(), State::Completed);
    assert_eq!(world.show(id).await, before);
}

async fn a_delegation_that_never_beat_is_not_stuck(dialect: Dialect) {
    let world = World::new(dialect).await;
    for to in [State::Pending, State::Claimed, State::Running] {
        let id = world.submit(ledger()).await;
        report(&world, id, to).await.unwrap();
    }
    world.pass_ms(5 * 60 * MINUTE);
    assert_eq!(world.tasks.expire_leases(10).await.unwrap().scanned, 0);
}

async fn a_delegation_is_stuck_when_its_beats_stop(dialect: Dialect) {
    let world = World::new(dialect).await;
    for to in [State::Claimed, State::Running] {
        let id = world.submit(ledger()).await;
        report(&world, id, to).await.unwrap();
        for _ in 0..3 {
            beat(&world, id).await.unwrap();
            world.pass_ms(10 * MINUTE - 1);
            assert_eq!(world.tasks.expire_leases(10).await.unwrap().scanned, 0);
        }
        world.pass_ms(1);
        let report = world.tasks.expire_leases(10).await.unwrap();
        assert_eq!(report.changed, [(id, State::Stuck)]);
        let shown = world.show(id).await;
        assert_eq!(shown.error.unwrap().code, "STALE");
        assert_eq!(world.story(id).await.pop().unwrap(), "lose_lease:stuck");
    }
}

async fn a_deadline_ends_a_delegation(dialect: Dialect) {
    let world = World::new(dialect).await;
    let mut ids = Vec::new();
    for to in [State::Pending, State::Claimed, State::Running] {
        let id = world.submit(ledger()).await;
        report(&world, id, to).await.unwrap();
        ids.push(id);
    }
    beat(&world, ids[2]).await.unwrap();
    world.pass_ms(6 * 60 * MINUTE);
    // The one that beat is stale too; the deadline wins.
    world.tasks.expire_leases(10).await.unwrap();
    world.tasks.expire_deadlines(10).await.unwrap();
    for id in ids {
        let shown = world.show(id).await;
        assert_eq!(shown.status, State::Failed);
        assert_eq!(shown.error.unwrap().code, "DEADLINE_EXCEEDED");
    }
}

async fn a_ledger_delegation_can_be_cancelled(dialect: Dialect) {
    let world = World::new(dialect).await;
    for to in [State::Pending, State::Claimed, State::Running] {
        let id = world.submit(ledger()).await;
        report(&world, id, to).await.unwrap();
        beat(&world, id).await.unwrap();
        assert_eq!(world.cancel(id).await.unwrap(), State::Cancelled);
        assert_eq!(refused(report(&world, id, State::Completed).await), "illegal_transition");
    }
}

async fn nobody_reports_on_an_unknown_delegation(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = TaskId(uuid::Uuid::new_v4());
    assert_eq!(refused(report(&world, id, State::Running).await), "not_found");
    assert_eq!(refused(beat(&world, id).await), "not_found");
}

/// It never became stuck: a beat of a pending delegation set no expiry, and the report forgot it.
async fn a_beat_before_it_was_running_counts(dialect: Dialect) {
    let world = World::new(dialect).await;
    for to in [State::Claimed, State::Running] {
        let id = world.submit(ledger()).await;
        world.ask(id, Command::ReportBeat).await.unwrap();
        let beat = world.now();
        world.pass_ms(1_000);
        let holder = "boss".to_owned();
        let report = Command::Report { to, result: None, error: None, holder };
        assert_eq!(world.ask(id, report).await.unwrap(), to);
        let expiry = beat.plus_ms(600_000);
        assert_eq!(world.show(id).await.lease_expires_at, Some(expiry));
        world.set_now(expiry.plus_ms(-1));
        assert_eq!(world.tasks.expire_leases(10).await.unwrap().changed, []);
        world.pass_ms(1);
        assert_eq!(world.tasks.expire_leases(10).await.unwrap().changed, [(id, State::Stuck)]);
    }
}
