//! The delegation sweeper: its rules, their order, and what it reports.

use crate::world::*;
use windlass_domain::command::Command;
use windlass_domain::id::TaskId;
use windlass_domain::state::State;
use windlass_store::statement::Dialect;
use windlass_store::task::{Ask, DelegationSweep, Finishing};

conformance!(
    a_sweep_over_nothing_is_a_clean_no_op,
    a_delegation_past_its_deadline_is_failed,
    a_delegation_whose_beats_stopped_is_marked_stuck,
    a_delegation_without_a_beat_is_left_alone,
    a_delegation_that_beat_before_any_report_and_fell_silent_is_stuck,
    a_healthy_delegation_is_left_alone,
    a_delegation_that_is_overdue_and_silent_is_failed,
    in_a_mixed_set_each_rule_meets_its_own,
    a_completion_while_being_swept_stands,
    a_beat_while_being_swept_saves_it,
    sweeps_that_race_completions_agree_with_them,
    executed_delegations_are_swept_too,
    a_delegation_of_an_archived_caller_is_swept,
    the_threshold_of_this_sweep_counts,
    jobs_are_not_the_sweepers,
    a_sweep_goes_on_behind_a_full_batch,
    one_that_cannot_be_read_is_counted_and_stops_nobody,
);

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

async fn sweep(world: &World) -> DelegationSweep {
    world.tasks.sweep_delegations(100).await.unwrap()
}

async fn ask(world: &World, id: TaskId, command: Command) {
    world.tasks.report(Ask::new(id, command, "boss")).await.unwrap();
}

async fn report(world: &World, id: TaskId, to: State) {
    let command = Command::Report { to, result: None, error: None, holder: "boss".into() };
    ask(world, id, command).await;
}

async fn beat(world: &World, id: TaskId) {
    ask(world, id, Command::ReportBeat).await;
}

/// A running ledger delegation.
async fn running(world: &World) -> TaskId {
    let id = world.submit(ledger()).await;
    report(world, id, State::Running).await;
    id
}

fn scanned(scanned: usize) -> DelegationSweep {
    DelegationSweep { scanned, ..DelegationSweep::default() }
}

async fn a_sweep_over_nothing_is_a_clean_no_op(dialect: Dialect) {
    let world = World::new(dialect).await;
    assert_eq!(sweep(&world).await, scanned(0));
    world.submit(job()).await;
    let ended = running(&world).await;
    report(&world, ended, State::Completed).await;
    assert_eq!(sweep(&world).await, scanned(0), "neither jobs nor what has ended");
}

async fn a_delegation_past_its_deadline_is_failed(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = running(&world).await;
    world.pass_ms(6 * HOUR - 1);
    assert_eq!(sweep(&world).await, scanned(1));
    world.pass_ms(1);
    let changed = vec![(id, State::Failed)];
    assert_eq!(sweep(&world).await, DelegationSweep { failed_deadline: 1, changed, ..scanned(1) });
    let error = world.show(id).await.error.unwrap();
    assert_eq!(error.code, "DEADLINE_EXCEEDED");
    assert_eq!(error.message, "deadline exceeded by sweeper");
    let history = world.tasks.history(id, 0, 10).await.unwrap();
    assert_eq!(history.last().unwrap().actor, "duty:delegation_sweeper");
    assert_eq!(sweep(&world).await, scanned(0), "once is enough");
}

async fn a_delegation_whose_beats_stopped_is_marked_stuck(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = running(&world).await;
    beat(&world, id).await;
    world.pass_ms(10 * MINUTE - 1);
    assert_eq!(sweep(&world).await, scanned(1));
    world.pass_ms(1);
    let changed = vec![(id, State::Stuck)];
    assert_eq!(sweep(&world).await, DelegationSweep { marked_stuck: 1, changed, ..scanned(1) });
    assert_eq!(world.show(id).await.error.unwrap().code, "STALE");
    assert_eq!(world.story(id).await.pop().unwrap(), "lose_lease:stuck");
}

async fn a_delegation_without_a_beat_is_left_alone(dialect: Dialect) {
    let world = World::new(dialect).await;
    running(&world).await;
    world.submit(ledger()).await;
    world.running(delegation(|_| {})).await;
    world.pass_ms(5 * HOUR);
    assert_eq!(sweep(&world).await, scanned(3));
}

/// It was never found: the sweeper looked for a lease, which a ledger delegation gets with its
/// first report only.
async fn a_delegation_that_beat_before_any_report_and_fell_silent_is_stuck(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(ledger()).await;
    beat(&world, id).await;
    world.pass_ms(10 * MINUTE - 1);
    assert_eq!(sweep(&world).await, scanned(1));
    world.pass_ms(1);
    let changed = vec![(id, State::Stuck)];
    assert_eq!(sweep(&world).await, DelegationSweep { marked_stuck: 1, changed, ..scanned(1) });
    assert_eq!(world.show(id).await.error.unwrap().code, "STALE");
    assert_eq!(world.story(id).await, ["submit:pending", "report:stuck"]);
    // An executed delegation that went back has beaten under a lease that is over.
    let held = world.running(delegation(|_| {})).await;
    world.beat(&held).await.unwrap();
    world.finish(&held, Finishing::Release).await.unwrap();
    world.pass_ms(5 * HOUR);
    assert_eq!(sweep(&world).await, scanned(1));
}

async fn a_healthy_delegation_is_left_alone(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = running(&world).await;
    for _ in 0..5 {
        beat(&world, id).await;
        world.pass_ms(9 * MINUTE);
        assert_eq!(sweep(&world).await, scanned(1));
    }
    assert_eq!(world.status(id).await, State::Running);
}

async fn a_delegation_that_is_overdue_and_silent_is_failed(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = running(&world).await;
    beat(&world, id).await;
    world.pass_ms(6 * HOUR);
    let changed = vec![(id, State::Failed)];
    assert_eq!(sweep(&world).await, DelegationSweep { failed_deadline: 1, changed, ..scanned(1) });
}

async fn in_a_mixed_set_each_rule_meets_its_own(dialect: Dialect) {
    let world = World::new(dialect).await;
    let overdue = running(&world).await;
    world.pass_ms(5 * HOUR);
    let (silent, healthy, quiet) =
        (running(&world).await, running(&world).await, running(&world).await);
    beat(&world, silent).await;
    world.pass_ms(HOUR - MINUTE);
    beat(&world, healthy).await;
    world.pass_ms(MINUTE);
    let report = sweep(&world).await;
    assert_eq!((report.scanned, report.failed_deadline, report.marked_stuck), (4, 1, 1));
    assert_eq!((report.lost_races, report.errors), (0, 0));
    for (id, state) in [
        (overdue, State::Failed),
        (silent, State::Stuck),
        (healthy, State::Running),
        (quiet, State::Running),
    ] {
        assert_eq!(world.status(id).await, state);
    }
}

/// Somebody completes between the look and the act.
async fn a_completion_while_being_swept_stands(dialect: Dialect) {
    let world = World::new(dialect).await;
    let (done, silent) = (running(&world).await, running(&world).await);
    beat(&world, done).await;
    beat(&world, silent).await;
    world.pass_ms(10 * MINUTE);
    let mut found = world.tasks.find_stuck(10).await.unwrap();
    found.sort();
    let mut wanted = vec![done, silent];
    wanted.sort();
    assert_eq!(found, wanted);
    report(&world, done, State::Completed).await;
    let before = world.show(done).await;
    let swept = world.tasks.sweep_found(found).await;
    assert_eq!((swept.lost_races, swept.marked_stuck, swept.errors), (1, 1, 0));
    assert_eq!(swept.changed, [(silent, State::Stuck)]);
    assert_eq!(world.show(done).await, before);
}

async fn a_beat_while_being_swept_saves_it(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = running(&world).await;
    beat(&world, id).await;
    world.pass_ms(10 * MINUTE);
    let found = world.tasks.find_stuck(10).await.unwrap();
    beat(&world, id).await;
    let swept = world.tasks.sweep_found(found).await;
    assert_eq!((swept.lost_races, swept.marked_stuck), (1, 0));
    assert_eq!(world.status(id).await, State::Running);
}

async fn sweeps_that_race_completions_agree_with_them(dialect: Dialect) {
    let world = World::new(dialect).await;
    let mut ids = Vec::new();
    for _ in 0..20 {
        let id = running(&world).await;
        beat(&world, id).await;
        ids.push(id);
    }
    world.pass_ms(10 * MINUTE);
    let complete = async {
        let mut completed = Vec::new();
        for &id in &ids {
            let (to, holder) = (State::Completed, "boss".to_owned());
            let command = Command::Report { to, result: None, error: None, holder };
            let told = world.tasks.report(Ask::new(id, command, "boss")).await.unwrap();
            completed.extend(told.unchanged.is_none().then_some(id));
        }
        completed
    };
    let (completed, swept) = tokio::join!(complete, world.tasks.sweep_delegations(3));
    let swept = swept.unwrap();
    assert_eq!((completed.len() + swept.marked_stuck, swept.errors), (20, 0));
    for id in ids {
        let wanted = if completed.contains(&id) { State::Completed } else { State::Stuck };
        assert_eq!(world.status(id).await, wanted);
    }
}

async fn executed_delegations_are_swept_too(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(delegation(|_| {})).await;
    world.beat(&held).await.unwrap();
    world.pass_ms(10 * MINUTE);
    let changed = vec![(held.task.id, State::Stuck)];
    assert_eq!(sweep(&world).await, DelegationSweep { marked_stuck: 1, changed, ..scanned(1) });
    assert_eq!(refused(world.finish(&held, complete()).await), "lease_lost");
    let waiting = world.submit(delegation(|r| r.deadline_ms = Some(5))).await;
    world.pass_ms(5);
    assert_eq!(sweep(&world).await.changed, [(waiting, State::Failed)]);
}

async fn a_delegation_of_an_archived_caller_is_swept(dialect: Dialect) {
    let world = World::new(dialect).await;
    let agents = windlass_store::agent::Agents::new(world.store.clone());
    agents.put("boss", Default::default(), "ada").await.unwrap();
    let (silent, overdue) = (running(&world).await, running(&world).await);
    beat(&world, silent).await;
    agents.archive("boss", true, "ada").await.unwrap();
    world.pass_ms(10 * MINUTE);
    assert_eq!(sweep(&world).await.changed, [(silent, State::Stuck)]);
    // Nor does it matter that nobody remembers the caller.
    world.by_hand("DELETE FROM agent").unwrap();
    world.pass_ms(6 * HOUR);
    assert_eq!(sweep(&world).await.changed, [(overdue, State::Failed)]);
}

async fn the_threshold_of_this_sweep_counts(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = running(&world).await;
    beat(&world, id).await;
    // A longer one spares what was promised less, a shorter one does not wait for more.
    world.pass_ms(10 * MINUTE);
    world.tasks.stuck_after(20 * MINUTE);
    assert_eq!(sweep(&world).await, scanned(1));
    beat(&world, id).await;
    world.pass_ms(MINUTE);
    world.tasks.stuck_after(MINUTE);
    assert_eq!(sweep(&world).await.changed, [(id, State::Stuck)]);
}

async fn jobs_are_not_the_sweepers(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(task(|r| r.deadline_ms = Some(MINUTE))).await;
    world.beat(&held).await.unwrap();
    world.pass_ms(HOUR);
    assert_eq!(sweep(&world).await, scanned(0));
    // Nor are delegations those of whoever looks after workers' leases.
    let id = running(&world).await;
    beat(&world, id).await;
    world.pass_ms(HOUR);
    let report = world.tasks.expire_worker_leases(10).await.unwrap();
    assert_eq!(report.changed.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [held.task.id]);
}

async fn a_sweep_goes_on_behind_a_full_batch(dialect: Dialect) {
    let world = World::new(dialect).await;
    for _ in 0..7 {
        let id = running(&world).await;
        beat(&world, id).await;
    }
    world.pass_ms(10 * MINUTE);
    let report = world.tasks.sweep_delegations(3).await.unwrap();
    assert_eq!((report.scanned, report.marked_stuck, report.changed.len()), (7, 7, 7));
}

async fn one_that_cannot_be_read_is_counted_and_stops_nobody(dialect: Dialect) {
    let world = World::new(dialect).await;
    let (bad, good) = (running(&world).await, running(&world).await);
    for id in [bad, good] {
        beat(&world, id).await;
    }
    // What the database itself would refuse, and only a damaged file has.
    let backoff = "'{\"base_ms\": \"soon\"}'";
    let change = format!("UPDATE task_spec SET backoff = {backoff} WHERE id = '{bad}'");
    let sql = match dialect {
        Dialect::Sqlite => {
            format!("DROP TRIGGER task_spec_is_immutable; {change};")
        }
        Dialect::Postgres => format!(
            "ALTER TABLE task_spec DISABLE TRIGGER ALL; {change};
             ALTER TABLE task_spec ENABLE TRIGGER ALL"
        ),
    };
    world.by_hand(&sql).unwrap();
    world.pass_ms(10 * MINUTE);
    let report = sweep(&world).await;
    assert_eq!((report.scanned, report.marked_stuck, report.errors), (2, 1, 1));
    assert_eq!(report.changed, [(good, State::Stuck)]);
}
