//! What a replay may do, and what it must not.

use super::*;
use uuid::Uuid;

fn key(name: &str) -> StepKey {
    StepKey::new(name, &serde_json::Value::Null, 0)
}

fn plan(state: State, from: &ReplayFrom, steps: &[Past], allow: bool) -> Result<Plan, Refused> {
    let origin = Origin { state, has_checkpoint: true, steps, elsewhere: &[] };
    super::plan(&origin, from, allow)
}

fn past(n: u128, name: &str, idempotent: bool, status: StepState) -> Past {
    Past {
        id: StepId(Uuid::from_u128(n)),
        key: key(name),
        place: Place { run: Some(n as i64), seq: n as i64 },
        begun_at: Timestamp::from_ms(n as i64),
        idempotent,
        status,
        effect: None,
        expired: false,
    }
}

fn four() -> Vec<Past> {
    vec![
        past(1, "read", true, StepState::Done),
        past(2, "charge", false, StepState::Done),
        past(3, "write", true, StepState::Done),
        past(4, "mail", false, StepState::Begun),
    ]
}

fn fates(plan: &Plan) -> Vec<Fate> {
    plan.steps.iter().map(|step| step.fate).collect()
}

#[test]
fn a_replay_takes_along_what_was_done_before_its_beginning() {
    use Fate::{Refused, Rerun, Reused};
    for (from, allow, wanted) in [
        (ReplayFrom::Beginning, false, [Rerun, Refused, Rerun, Refused]),
        (ReplayFrom::Beginning, true, [Rerun, Rerun, Rerun, Rerun]),
        (ReplayFrom::LastCheckpoint, false, [Reused, Reused, Reused, Refused]),
        (ReplayFrom::Step("write".into()), false, [Reused, Reused, Rerun, Refused]),
        (ReplayFrom::Step("charge".into()), true, [Reused, Rerun, Rerun, Rerun]),
    ] {
        let plan = plan(State::Failed, &from, &four(), allow).unwrap();
        assert_eq!(fates(&plan), wanted, "{from:?} {allow}");
        assert_eq!(plan.checkpoint, from == ReplayFrom::LastCheckpoint);
    }
}

#[test]
fn what_must_not_run_twice_is_named() {
    let plan = plan(State::Poisoned, &ReplayFrom::Beginning, &four(), false).unwrap();
    let refused = plan.permit().unwrap_err();
    assert_eq!(refused.code(), "not_idempotent");
    assert!(refused.to_string().contains("charge, mail"), "{refused}");
}

#[test]
fn a_cleared_result_is_not_taken_along() {
    let mut steps = four();
    steps[0].expired = true;
    steps[1].expired = true;
    let plan = plan(State::Failed, &ReplayFrom::LastCheckpoint, &steps, false).unwrap();
    assert_eq!(fates(&plan)[..2], [Fate::Expired, Fate::Refused]);
}

#[test]
fn a_failure_without_effect_may_run_again() {
    let failed = Past { effect: Some(Effect::None), ..past(1, "a", false, StepState::Failed) };
    let plan = plan(State::Failed, &ReplayFrom::LastCheckpoint, &[failed], false).unwrap();
    assert_eq!(fates(&plan), [Fate::Rerun]);
}

#[test]
fn a_persons_decision_is_part_of_the_plan() {
    for (status, before, after) in [
        (StepState::InDoubt, Fate::Refused, Fate::Refused),
        (StepState::Done, Fate::Reused, Fate::Refused),
        (StepState::Allowed, Fate::Rerun, Fate::Rerun),
        (StepState::Rejected, Fate::Reused, Fate::Refused),
    ] {
        let steps = [past(1, "charge", false, status)];
        for (from, wanted) in [(ReplayFrom::LastCheckpoint, before), (ReplayFrom::Beginning, after)]
        {
            let plan = plan(State::Failed, &from, &steps, false).unwrap();
            assert_eq!(fates(&plan), [wanted], "{status} {from:?}");
        }
    }
}

fn elsewhere(n: u128, name: &str, status: StepState) -> Elsewhere {
    Elsewhere {
        id: StepId(Uuid::from_u128(n)),
        task: TaskId(Uuid::from_u128(1_000 + n)),
        key: key(name),
        place: Place { run: Some(n as i64), seq: n as i64 },
        status,
        effect: None,
        ended_at: None,
    }
}

fn beside(
    steps: &[Past],
    elsewhere: &[Elsewhere],
    from: &ReplayFrom,
    allow: bool,
) -> Result<Plan, Refused> {
    let origin = Origin { state: State::Failed, has_checkpoint: false, steps, elsewhere };
    super::plan(&origin, from, allow)
}

#[test]
fn a_permission_is_good_for_one_further_run() {
    let last = ReplayFrom::LastCheckpoint;
    let no_effect =
        Past { effect: Some(Effect::None), ..past(5, "charge", false, StepState::Failed) };
    for own in [past(5, "charge", false, StepState::Allowed), no_effect] {
        let own = [own];
        for status in [
            StepState::Begun,
            StepState::Done,
            StepState::Failed,
            StepState::InDoubt,
            StepState::Allowed,
            StepState::Rejected,
        ] {
            let earlier = [elsewhere(4, "charge", status)];
            let before = beside(&own, &earlier, &last, false).unwrap();
            assert_eq!(fates(&before), [Fate::Rerun], "what was permitted since: {status}");
            let later = [elsewhere(6, "charge", status), elsewhere(7, "mail", status)];
            let after = beside(&own, &later[..1], &last, false).unwrap();
            assert_eq!(fates(&after), [Fate::Refused], "{status}");
            assert_eq!(after.steps[0].run_in, Some(later[0].task));
            let refused = after.permit().unwrap_err().to_string();
            assert!(refused.contains(&format!("charge (run in task {}", later[0].task)));
            let allowed = beside(&own, &later, &last, true).unwrap();
            assert_eq!(fates(&allowed), [Fate::Rerun, Fate::Rerun], "allowed again");
        }
        let vain =
            Elsewhere { effect: Some(Effect::None), ..elsewhere(6, "charge", StepState::Failed) };
        let after = beside(&own, &[vain], &last, false).unwrap();
        assert_eq!(fates(&after), [Fate::Rerun], "nothing has happened there");
    }
}

#[test]
fn what_only_another_of_the_family_ran_is_part_of_the_plan() {
    let own = [past(1, "read", true, StepState::Done)];
    let others = [
        elsewhere(5, "charge", StepState::Done),
        elsewhere(6, "mail", StepState::Begun),
        elsewhere(7, "charge", StepState::Done),
    ];
    let last = ReplayFrom::LastCheckpoint;
    let planned = beside(&own, &others, &last, false).unwrap();
    let lines: Vec<_> = planned.steps.iter().map(|s| (s.name.as_str(), s.run_in)).collect();
    let (fifth, seventh) = (Some(others[1].task), Some(others[2].task));
    assert_eq!(lines, [("read", None), ("charge", seventh), ("mail", fifth)]);
    assert_eq!(fates(&planned), [Fate::Reused, Fate::Refused, Fate::Refused]);
    assert_eq!(planned.permit().unwrap_err().code(), "not_idempotent");
    let allowed = beside(&own, &others, &last, true).unwrap();
    let again: Vec<_> = allowed.runs_again().map(|step| step.id).collect();
    assert_eq!(again, [others[0].id, others[1].id]);
    let agreed = allowed.agreed();
    assert_eq!((&agreed.steps, agreed.last_run), (&again, Some(7)));
    assert!(allowed.stay_within(&agreed).is_ok());
    let of_older = Agreed { steps: again.clone(), last_run: None };
    assert!(allowed.stay_within(&of_older).is_ok());
    let less = |steps: &[StepId], last_run| {
        let less = Agreed { steps: steps.to_vec(), last_run: Some(last_run) };
        allowed.stay_within(&less).unwrap_err().to_string()
    };
    let refused = less(&again[..1], 7);
    assert!(refused.contains("mail") && !refused.contains("charge"), "{refused}");
    // The seventh run came between.
    let refused = less(&again, 6);
    assert!(refused.contains("charge") && !refused.contains("mail"), "{refused}");
    let done = [past(1, "charge", false, StepState::Done)];
    let reused = beside(&done, &others[..1], &last, false).unwrap();
    assert_eq!(fates(&reused), [Fate::Reused], "what does not run, runs no second time");
}

#[test]
fn a_plan_takes_a_checkpoint_along_only_if_there_is_one() {
    for (has_checkpoint, from, wanted) in [
        (true, ReplayFrom::LastCheckpoint, true),
        (false, ReplayFrom::LastCheckpoint, false),
        (true, ReplayFrom::Beginning, false),
    ] {
        let origin = Origin { state: State::Failed, has_checkpoint, steps: &[], elsewhere: &[] };
        assert_eq!(super::plan(&origin, &from, false).unwrap().checkpoint, wanted);
    }
}

#[test]
fn only_what_was_begun_since_comes_between() {
    let (at, task) = (Timestamp::from_ms, Made { run: Some(7), at: Timestamp::from_ms(5) });
    let begun = |run| Elsewhere {
        place: Place { run, seq: 1 },
        ..elsewhere(1, "charge", StepState::Begun)
    };
    // Numbers say what came first, whatever the clocks said.
    assert!(came_between(&begun(Some(7)), task) && !came_between(&begun(Some(6)), task));
    assert!(came_between(&begun(Some(6)), Made { run: None, ..task }));
    // Without a number it may have begun again at any time before it ended.
    let ended = |at| Elsewhere { status: StepState::Done, ended_at: Some(at), ..begun(None) };
    assert!(came_between(&begun(None), task));
    assert!(came_between(&ended(at(5)), task) && !came_between(&ended(at(4)), task));
    let vain =
        Elsewhere { effect: Some(Effect::None), status: StepState::Failed, ..begun(Some(9)) };
    assert!(!came_between(&vain, task));
}

#[test]
fn of_two_steps_without_numbers_the_other_ran_since_unless_it_was_over() {
    let failed = Past { effect: Some(Effect::None), ..past(2, "charge", false, StepState::Failed) };
    let own = Past { place: Place { run: None, seq: 2 }, ..failed };
    for (ended_at, wanted) in [(None, true), (Some(2), true), (Some(1), false)] {
        let other = Elsewhere {
            place: Place { run: None, seq: 1 },
            ended_at: ended_at.map(Timestamp::from_ms),
            ..elsewhere(1, "charge", StepState::Done)
        };
        assert_eq!(other.ran_after(&own), wanted, "{ended_at:?}");
    }
}

#[test]
fn a_step_that_was_begun_again_has_run_since() {
    let failed = Past { effect: Some(Effect::None), ..past(2, "charge", false, StepState::Failed) };
    let own = Past { place: Place { run: Some(3), seq: 2 }, ..failed };
    let run = |run| Elsewhere {
        place: Place { run: Some(run), seq: 1 },
        ..elsewhere(1, "charge", StepState::Done)
    };
    let fate_of = |other| {
        let plan =
            beside(std::slice::from_ref(&own), &[other], &ReplayFrom::Beginning, false).unwrap();
        (plan.steps[0].fate, plan.steps[0].run_in.is_some())
    };
    // The other step is older, but ran again after the origin's.
    assert_eq!(fate_of(run(4)), (Fate::Refused, true));
    assert_eq!(fate_of(run(2)), (Fate::Rerun, false));
}

#[test]
fn only_a_finished_task_is_replayed_and_only_from_a_step_it_has() {
    let running = plan(State::Running, &ReplayFrom::Beginning, &[], false).unwrap_err();
    assert_eq!(running.code(), "not_finished");
    let from = ReplayFrom::Step("nope".into());
    let unknown = plan(State::Failed, &from, &four(), false).unwrap_err();
    assert!(unknown.to_string().contains("read, charge, write, mail"), "{unknown}");
}

#[test]
fn the_second_replay_needs_an_approval() {
    assert!(!needs_approval(0, DEFAULT_APPROVAL_THRESHOLD, false));
    assert!(needs_approval(1, DEFAULT_APPROVAL_THRESHOLD, false));
    assert!(needs_approval(0, DEFAULT_APPROVAL_THRESHOLD, true));
}

/// A step that was begun first, and again after all others, was hidden by one that began between.
#[test]
fn a_run_without_a_number_is_not_hidden_by_another() {
    let failed = Past { effect: Some(Effect::None), ..past(3, "charge", false, StepState::Failed) };
    let own = Past { place: Place { run: None, seq: 3 }, ..failed };
    let other = |seq, ended_at| Elsewhere {
        place: Place { run: None, seq },
        ended_at: Some(Timestamp::from_ms(ended_at)),
        ..elsewhere(seq as u128, "charge", StepState::Done)
    };
    let others = [other(1, 9), other(2, 2)];
    let from = ReplayFrom::Beginning;
    let plan = beside(std::slice::from_ref(&own), &others, &from, false).unwrap();
    assert_eq!((plan.steps[0].fate, plan.steps[0].run_in), (Fate::Refused, Some(others[0].task)));
}
