//! Delegations as a ledger: the cases that a ledger of delegations is held to. What the states may
//! do is in `ledger`; here is what callers are told.

use crate::world::*;
use serde_json::json;
use std::collections::BTreeSet;
use uuid::Uuid;
use windlass_domain::command::Command;
use windlass_domain::delegation::{PREVIEW_CHARS, Unchanged, preview};
use windlass_domain::failure::TaskError;
use windlass_domain::id::TaskId;
use windlass_domain::profile::Profile;
use windlass_domain::refusal::Refusal;
use windlass_domain::request::{Mode, SubmitRequest};
use windlass_domain::state::State;
use windlass_domain::transition::TRANSITIONS;
use windlass_domain::validate;
use windlass_store::error::Rejection;
use windlass_store::group::Outcome;
use windlass_store::statement::Dialect;
use windlass_store::task::{Ask, Reported};

conformance!(
    a_delegation_begins_pending_with_six_hours_and_no_beat,
    a_delegation_without_a_caller_is_refused,
    a_delegation_without_a_callee_is_refused,
    an_empty_name_is_refused,
    a_preview_ends_at_a_character_and_the_whole_is_kept,
    a_repeat_by_id_is_a_no_op_that_tells_of_a_difference,
    what_is_not_the_callers_own_is_not_repeated,
    a_key_is_unique_per_caller_and_not_across_callers,
    a_delegation_goes_through_its_life,
    a_delegation_may_fail_from_every_living_state,
    a_completed_delegation_is_not_revised,
    a_failed_delegation_is_not_revised,
    a_stuck_delegation_is_not_revised,
    the_same_status_again_changes_nothing_and_says_so,
    a_report_of_a_missing_delegation_changes_nothing_and_says_so,
    a_beat_touches_only_what_is_in_flight,
    a_beat_of_a_missing_delegation_changes_nothing_and_says_so,
    the_table_of_a_ledger_leads_only_forward,
    a_report_never_goes_back_and_says_so,
    an_executed_delegation_is_its_workers_to_report,
    deleting_both_agents_keeps_the_delegation,
    a_beats_promise_is_the_threshold_of_the_node,
);

const HOUR: i64 = 3_600_000;

async fn tell(world: &World, id: TaskId, to: State) -> Reported {
    let result = (to == State::Completed).then(|| "{\"done\":true}".to_owned());
    let error = to.needs_error().then(|| TaskError::new("THEIRS", "it broke there"));
    let command = Command::Report { to, result, error, holder: "boss".into() };
    world.tasks.report(Ask::new(id, command, "boss")).await.unwrap()
}

async fn beat(world: &World, id: TaskId) -> Reported {
    world.tasks.report(Ask::new(id, Command::ReportBeat, "boss")).await.unwrap()
}

fn changed(to: State) -> Reported {
    Reported { status: Some(to), unchanged: None }
}

fn unchanged(status: Option<State>, why: Unchanged) -> Reported {
    Reported { status, unchanged: Some(why) }
}

async fn a_delegation_begins_pending_with_six_hours_and_no_beat(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(ledger()).await;
    let shown = world.show(id).await;
    assert_eq!((shown.status, shown.profile), (State::Pending, Profile::Ledger));
    assert_eq!((shown.caller.as_deref(), shown.callee.as_deref()), (Some("boss"), Some("crew")));
    assert_eq!(shown.deadline_at, Some(world.now().plus_ms(6 * HOUR)));
    assert_eq!((shown.last_heartbeat_at, shown.result, shown.error), (None, None, None));
    assert_eq!(world.claim("w1", 1).await, [], "nobody can take it");
}

fn required(change: impl FnOnce(&mut SubmitRequest), pointer: &str) {
    let mut request = SubmitRequest {
        caller: Some("boss".into()),
        callee: Some("crew".into()),
        mode: Some(Mode::Ledger),
        kind: Some(windlass_domain::profile::Kind::Delegation),
        ..SubmitRequest::default()
    };
    change(&mut request);
    let refused = validate::new_task(&request, TaskId(Uuid::now_v7()), "", "tester").unwrap_err();
    let windlass_domain::refusal::Refusal::Invalid(errors) = refused else { panic!("{refused}") };
    assert_eq!((errors[0].pointer.as_str(), errors[0].code), (pointer, "required"));
}

/// Nor does either database keep one, whoever writes it.
async fn without(dialect: Dialect, column: &str) {
    let world = World::new(dialect).await;
    world.submit(ledger()).await;
    let sql = format!("UPDATE task_spec SET {column} = NULL");
    assert!(world.by_hand(&sql).is_err());
}

async fn a_delegation_without_a_caller_is_refused(dialect: Dialect) {
    required(|r| r.caller = None, "/caller");
    without(dialect, "caller").await;
}

async fn a_delegation_without_a_callee_is_refused(dialect: Dialect) {
    required(|r| r.callee = None, "/callee");
    without(dialect, "callee").await;
}

async fn an_empty_name_is_refused(dialect: Dialect) {
    required(|r| r.caller = Some(String::new()), "/caller");
    required(|r| r.callee = Some(String::new()), "/callee");
    required(|r| r.idempotency_key = Some(String::new()), "/idempotency_key");
    let world = World::new(dialect).await;
    let nobody = TaskId(Uuid::nil());
    assert_eq!(beat(&world, nobody).await, unchanged(None, Unchanged::NotFound));
}

async fn a_preview_ends_at_a_character_and_the_whole_is_kept(dialect: Dialect) {
    let world = World::new(dialect).await;
    let text = "日本🦀é".repeat(400);
    let new = delegation(|r| (r.mode, r.payload) = (Some(Mode::Ledger), json!(text)));
    let shown = world.show(world.submit(new).await).await;
    assert_eq!(shown.payload, json!(text));
    let cut = preview(&shown.payload);
    assert_eq!(cut.chars().count(), PREVIEW_CHARS);
    assert!(text.starts_with(&cut));
}

async fn a_repeat_by_id_is_a_no_op_that_tells_of_a_difference(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = TaskId(Uuid::new_v4());
    let new = |payload: serde_json::Value| {
        delegation(|r| (r.id, r.mode, r.payload) = (Some(id), Some(Mode::Ledger), payload))
    };
    let once = async |payload| world.submit_all(vec![new(payload)]).await.pop().unwrap().unwrap();
    let first = once(json!(1)).await;
    assert_eq!((first.id, first.duplicate, first.payload_differs), (id, false, false));
    tell(&world, id, State::Running).await;
    let before = world.show(id).await;
    for (payload, differs) in [(json!(1), false), (json!(2), true)] {
        let again = once(payload).await;
        assert_eq!((again.id, again.duplicate, again.payload_differs), (id, true, differs));
        assert_eq!(again.status, State::Running);
    }
    assert_eq!(world.show(id).await, before);
}

/// Whoever guessed an id, or had the key of a job, was answered with what is not his.
async fn what_is_not_the_callers_own_is_not_repeated(dialect: Dialect) {
    let world = World::new(dialect).await;
    let (theirs, a_job) = (TaskId(Uuid::new_v4()), TaskId(Uuid::new_v4()));
    let delegate = |caller: &str, id: Option<TaskId>, key: Option<&str>| {
        delegation(|r| {
            (r.id, r.caller) = (id, Some(caller.to_owned()));
            r.idempotency_key = key.map(str::to_owned);
        })
    };
    world.submit(delegate("boss", Some(theirs), None)).await;
    // A job of a principal that is called like a caller: its keys are in the same scope.
    let request = SubmitRequest {
        id: Some(a_job),
        queue: Some("q".into()),
        idempotency_key: Some("k".into()),
        ..SubmitRequest::default()
    };
    world.submit(validate::new_task(&request, a_job, "boss", "tester").unwrap()).await;
    for (what, new) in [
        ("another caller's", delegate("rival", Some(theirs), None)),
        ("a job, by its id", delegate("boss", Some(a_job), None)),
        ("a job, by its key", delegate("boss", None, Some("k"))),
    ] {
        let said = world.submit_all(vec![new.clone()]).await.pop().unwrap();
        assert_eq!(refused(said), "idempotency_key_reused", "{what}");
        let (index, said) = world.tasks.submit_atomic(vec![new]).await.unwrap_err();
        assert_eq!((index, refused::<()>(Err(said))), (0, "idempotency_key_reused"), "{what}");
    }
    // Executed or as a ledger, it is the same caller's: told, and left as it is.
    let ledger = delegation(|r| (r.id, r.mode) = (Some(theirs), Some(Mode::Ledger)));
    let again = world.submit_all(vec![ledger]).await.pop().unwrap().unwrap();
    assert_eq!((again.id, again.duplicate, again.payload_differs), (theirs, true, true));
}

async fn a_key_is_unique_per_caller_and_not_across_callers(dialect: Dialect) {
    let world = World::new(dialect).await;
    let by = |caller: &str, payload: i32| {
        delegation(|r| {
            (r.caller, r.payload) = (Some(caller.into()), json!(payload));
            r.idempotency_key = Some("k".into());
        })
    };
    let once = async |new| world.submit_all(vec![new]).await.pop().unwrap().unwrap();
    let ada = once(by("ada", 1)).await;
    let again = once(by("ada", 2)).await;
    assert_eq!((again.id, again.duplicate, again.payload_differs), (ada.id, true, true));
    let bob = once(by("bob", 1)).await;
    assert_ne!(bob.id, ada.id);
    assert!(!bob.duplicate);
}

async fn a_delegation_goes_through_its_life(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(ledger()).await;
    for to in [State::Claimed, State::Running, State::Completed] {
        assert_eq!(tell(&world, id, to).await, changed(to));
    }
    assert_eq!(world.show(id).await.result, Some(json!({ "done": true })));
}

async fn a_delegation_may_fail_from_every_living_state(dialect: Dialect) {
    let world = World::new(dialect).await;
    for from in [State::Pending, State::Claimed, State::Running] {
        let id = world.submit(ledger()).await;
        tell(&world, id, from).await;
        assert_eq!(tell(&world, id, State::Failed).await, changed(State::Failed));
        assert_eq!(world.show(id).await.error.unwrap().code, "THEIRS");
    }
}

async fn not_revised(dialect: Dialect, end: State) {
    let world = World::new(dialect).await;
    let id = world.submit(ledger()).await;
    tell(&world, id, end).await;
    let (before, story) = (world.show(id).await, world.story(id).await);
    world.pass_ms(10);
    let all = [State::Pending, State::Claimed, State::Running];
    let ends = [State::Completed, State::Failed, State::Stuck];
    for to in all.into_iter().chain(ends).filter(|&to| to != end) {
        let wanted = unchanged(Some(end), Unchanged::Terminal);
        assert_eq!(tell(&world, id, to).await, wanted, "{to}");
    }
    assert_eq!((world.show(id).await, world.story(id).await), (before, story));
}

async fn a_completed_delegation_is_not_revised(dialect: Dialect) {
    not_revised(dialect, State::Completed).await;
}

async fn a_failed_delegation_is_not_revised(dialect: Dialect) {
    not_revised(dialect, State::Failed).await;
}

async fn a_stuck_delegation_is_not_revised(dialect: Dialect) {
    not_revised(dialect, State::Stuck).await;
}

async fn the_same_status_again_changes_nothing_and_says_so(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(ledger()).await;
    for to in [State::Pending, State::Claimed, State::Running, State::Completed] {
        tell(&world, id, to).await;
        let before = world.show(id).await;
        world.pass_ms(10);
        let wanted = unchanged(Some(to), Unchanged::SameStatus);
        assert_eq!(tell(&world, id, to).await, wanted);
        assert_eq!(world.show(id).await, before);
    }
}

async fn a_report_of_a_missing_delegation_changes_nothing_and_says_so(dialect: Dialect) {
    let world = World::new(dialect).await;
    let nobody = TaskId(Uuid::new_v4());
    let wanted = unchanged(None, Unchanged::NotFound);
    assert_eq!(tell(&world, nobody, State::Completed).await, wanted);
    let job = world.submit(job()).await;
    assert_eq!(tell(&world, job, State::Completed).await, wanted, "a job is no delegation");
    assert_eq!(world.status(job).await, State::Pending);
}

async fn a_beat_touches_only_what_is_in_flight(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(ledger()).await;
    for at in [State::Pending, State::Claimed, State::Running] {
        tell(&world, id, at).await;
        world.pass_ms(10);
        assert_eq!(beat(&world, id).await, changed(at));
        assert_eq!(world.show(id).await.last_heartbeat_at, Some(world.now()));
    }
    tell(&world, id, State::Completed).await;
    let before = world.show(id).await;
    world.pass_ms(10);
    let wanted = unchanged(Some(State::Completed), Unchanged::Terminal);
    assert_eq!(beat(&world, id).await, wanted);
    assert_eq!(world.show(id).await, before);
}

async fn a_beat_of_a_missing_delegation_changes_nothing_and_says_so(dialect: Dialect) {
    let world = World::new(dialect).await;
    let nobody = TaskId(Uuid::new_v4());
    assert_eq!(beat(&world, nobody).await, unchanged(None, Unchanged::NotFound));
}

/// Both databases hold the same rows, and none leads back or out of an end.
async fn the_table_of_a_ledger_leads_only_forward(dialect: Dialect) {
    let world = World::new(dialect).await;
    let sql = "SELECT from_status || ' ' || to_status FROM transition
               WHERE profile = 'ledger' AND event = 'report'";
    let kept: BTreeSet<String> = world.by_hand(sql).unwrap().lines().map(str::to_owned).collect();
    let ours = TRANSITIONS
        .iter()
        .filter(|t| t.tasks.includes(Profile::Ledger) && t.event.as_str() == "report");
    let pairs = ours.filter_map(|t| Some(format!("{} {}", t.from?, t.to)));
    assert_eq!(kept, pairs.collect());
    let order = ["pending", "claimed", "running"];
    let place = |state: &str| order.iter().position(|s| *s == state).unwrap_or(order.len());
    for pair in &kept {
        let (from, to) = pair.split_once(' ').unwrap();
        assert!(place(from) < place(to), "{pair}");
    }
    let living = kept.iter().filter(|pair| pair.starts_with("pending ")).count();
    assert_eq!((living, kept.len()), (5, 12));
}

async fn a_report_never_goes_back_and_says_so(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(ledger()).await;
    tell(&world, id, State::Running).await;
    for to in [State::Claimed, State::Pending] {
        let wanted = unchanged(Some(State::Running), Unchanged::NotForward);
        assert_eq!(tell(&world, id, to).await, wanted);
    }
}

async fn an_executed_delegation_is_its_workers_to_report(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(delegation(|_| {})).await;
    let command =
        Command::Report { to: State::Completed, result: None, error: None, holder: "boss".into() };
    let names_the_lease = |told: Outcome<Reported>| match told {
        Err(Rejection::Refused(Refusal::Invalid(errors))) => {
            assert_eq!((errors[0].pointer.as_str(), errors[0].code), ("/lease_id", "required"));
        }
        other => panic!("{other:?}"),
    };
    names_the_lease(world.tasks.report(Ask::new(id, command, "boss")).await);
    names_the_lease(world.tasks.report(Ask::new(id, Command::ReportBeat, "boss")).await);
    // What has ended needs nobody's right to be left alone.
    world.cancel(id).await.unwrap();
    let ended = unchanged(Some(State::Cancelled), Unchanged::Terminal);
    assert_eq!(tell(&world, id, State::Completed).await, ended);
    assert_eq!(beat(&world, id).await, ended);
}

async fn deleting_both_agents_keeps_the_delegation(dialect: Dialect) {
    let world = World::new(dialect).await;
    let agents = windlass_store::agent::Agents::new(world.store.clone());
    for name in ["boss", "crew"] {
        agents.put(name, Default::default(), "ada").await.unwrap();
    }
    let id = world.submit(ledger()).await;
    tell(&world, id, State::Running).await;
    let (before, story) = (world.show(id).await, world.story(id).await);
    world.by_hand("DELETE FROM agent").unwrap();
    assert_eq!((world.show(id).await, world.story(id).await), (before, story));
    assert_eq!(tell(&world, id, State::Completed).await, changed(State::Completed));
}

async fn a_beats_promise_is_the_threshold_of_the_node(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.tasks.stuck_after(30 * 60_000);
    let held = world.running(delegation(|_| {})).await;
    assert_eq!(world.show(held.task.id).await.lease_expires_at, None, "the first-beat free pass");
    let promised = world.beat(&held).await.unwrap();
    assert_eq!(promised, Some(world.now().plus_ms(30 * 60_000)));
    // A job's lease is its own.
    let held = world.running(job()).await;
    assert_eq!(world.beat(&held).await.unwrap(), Some(world.now().plus_ms(60_000)));
    let id = world.submit(ledger()).await;
    tell(&world, id, State::Running).await;
    beat(&world, id).await;
    let promised = world.show(id).await.lease_expires_at;
    assert_eq!(promised, Some(world.now().plus_ms(30 * 60_000)));
}
