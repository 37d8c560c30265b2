//! Steps: done once, kept for ever, and never run twice without a person's word.

use crate::world::*;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use windlass_domain::failure::TaskError;
use windlass_domain::id::StepId;
use windlass_domain::state::State;
use windlass_domain::step::{
    CheckedStep, Effect, RESULT_RETENTION_MS, StepInput, StepState, check,
};
use windlass_store::group::Outcome;
use windlass_store::statement::Dialect;
use windlass_store::step::Steps;
use windlass_store::task::{
    Assignment, BeginStep, Begun, Finishing, Holder, RecordStep, Recorded, Resolution, StepEnd,
};

conformance!(
    a_step_is_recorded_once_and_keeps_its_first_result,
    the_same_name_with_other_inputs_or_repetition_is_another_step,
    the_first_step_of_a_claimed_task_starts_it,
    a_step_under_another_lease_is_refused,
    a_step_is_kept_while_nobody_has_taken_the_task,
    a_step_repeated_after_the_task_moved_on_is_answered_like_the_first,
    a_checkpoint_comes_with_its_step,
    many_steps_of_many_tasks_share_a_transaction,
    an_intent_is_written_once_and_may_be_repeated,
    an_intent_of_a_lost_lease_parks_the_task,
    a_person_records_what_a_step_in_doubt_has_done,
    a_person_allows_a_step_in_doubt_to_run_again,
    a_person_fails_a_step_in_doubt,
    a_step_that_failed_without_effect_runs_again,
    a_step_that_failed_with_an_unknown_effect_is_in_doubt,
    an_end_under_another_lease_is_refused,
    an_end_told_twice_is_answered_like_the_first,
    an_end_with_another_checkpoint_is_another_end,
    a_failure_told_twice_is_answered_like_the_first_and_another_one_is_refused,
    a_persons_word_is_not_that_of_the_lease_that_began,
    results_are_cleared_long_after_the_end_and_rows_stay,
    a_done_step_cannot_be_changed_by_hand,
    a_late_call_about_an_earlier_run_ends_nothing,
);

fn step(name: &str, inputs: Value, occurrence: i32) -> CheckedStep {
    let input = StepInput { name, kind: None, inputs: Some(&inputs), occurrence: Some(occurrence) };
    check(&input).unwrap()
}

fn holder(held: &Assignment) -> Holder {
    Holder::new(held.task.id, held.lease_id, "w1")
}

pub(crate) fn done(held: &Assignment, name: &str, result: Value) -> RecordStep {
    RecordStep {
        holder: holder(held),
        step: step(name, json!({}), 0),
        result: result.to_string(),
        checkpoint: None,
    }
}

pub(crate) async fn record(world: &World, item: RecordStep) -> Outcome<Recorded> {
    world.tasks.record_steps(vec![item]).await.pop().unwrap()
}

async fn begin(world: &World, held: &Assignment, name: &str) -> Outcome<Begun> {
    let item = BeginStep { holder: holder(held), step: step(name, json!({}), 0) };
    world.tasks.begin_step(item).await
}

async fn begun(world: &World, held: &Assignment, name: &str) -> StepId {
    match begin(world, held, name).await.unwrap() {
        Begun::New(id, _) => id,
        Begun::Ended(step) => panic!("{step:?}"),
    }
}

async fn end(world: &World, held: &Assignment, id: StepId, end: StepEnd) -> Outcome<State> {
    let ended = world.tasks.end_step(id, held.lease_id, None, "w1".into(), end).await;
    ended.map(|_| State::Running)
}

fn completed(result: &str) -> StepEnd {
    StepEnd::Complete { result: result.into(), checkpoint: None }
}

fn failed(effect: Effect) -> StepEnd {
    StepEnd::Fail { error: TaskError::new("BROKEN", "it broke"), effect }
}

/// The lease runs out, and somebody else takes the task.
async fn taken_over(world: &World, held: &Assignment) -> Assignment {
    world.pass_ms(60_000);
    world.tasks.expire_leases(10).await.unwrap();
    let mut claim = claim_of("w2", &["q"], 1);
    claim.start = true;
    let next = world.tasks.claim(claim).await.unwrap().pop().unwrap();
    assert_eq!(next.task.id, held.task.id);
    next
}

async fn names(world: &World, held: &Assignment) -> Vec<(String, StepState)> {
    let steps = Steps::new(world.store.clone()).list(held.task.id, 0, 100).await.unwrap();
    steps.into_iter().map(|step| (step.name, step.status)).collect()
}

async fn a_step_is_recorded_once_and_keeps_its_first_result(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let first = record(&world, done(&held, "read", json!({"n": 1}))).await.unwrap();
    assert_eq!(first.earlier, None);
    let second = record(&world, done(&held, "read", json!({"n": 2}))).await.unwrap();
    assert_eq!((second.id, second.earlier), (first.id, Some(json!({"n": 1}))));
    let steps = Steps::new(world.store.clone()).list(held.task.id, 0, 100).await.unwrap();
    assert_eq!(steps.len(), 1);
    assert_eq!((steps[0].result.clone(), steps[0].attempt), (Some(json!({"n": 1})), 1));
    assert_eq!(steps[0].ended_at, Some(world.now()));
}

async fn the_same_name_with_other_inputs_or_repetition_is_another_step(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    for (inputs, occurrence) in [(json!({}), 0), (json!({"a": 1}), 0), (json!({}), 1)] {
        let step = step("poll", inputs, occurrence);
        let item = RecordStep { step, ..done(&held, "poll", json!(occurrence)) };
        assert_eq!(record(&world, item).await.unwrap().earlier, None);
    }
    assert_eq!(names(&world, &held).await.len(), 3);
}

async fn the_first_step_of_a_claimed_task_starts_it(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit(job()).await;
    let held = world.claim("w1", 1).await.pop().unwrap();
    record(&world, done(&held, "read", json!(1))).await.unwrap();
    let story = world.story(held.task.id).await;
    assert_eq!(story, ["submit:pending", "claim:claimed", "start:running"]);
}

async fn a_step_under_another_lease_is_refused(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let next = taken_over(&world, &held).await;
    assert_eq!(refused(record(&world, done(&held, "read", json!(1))).await), "lease_lost");
    assert_eq!(refused(begin(&world, &held, "charge").await), "lease_lost");
    assert_eq!(names(&world, &held).await, []);
    record(&world, done(&next, "read", json!(2))).await.unwrap();
}

async fn a_step_is_kept_while_nobody_has_taken_the_task(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    world.pass_ms(60_100);
    record(&world, done(&held, "read", json!(1))).await.unwrap();
    assert_eq!(refused(begin(&world, &held, "charge").await), "lease_lost");
}

async fn a_step_repeated_after_the_task_moved_on_is_answered_like_the_first(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    record(&world, done(&held, "read", json!(1))).await.unwrap();
    world.finish(&held, complete()).await.unwrap();
    let again = record(&world, done(&held, "read", json!(1))).await.unwrap();
    assert_eq!(again.earlier, Some(json!(1)));
    assert_eq!(refused(record(&world, done(&held, "write", json!(1))).await), "lease_lost");
}

async fn a_checkpoint_comes_with_its_step(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let item = RecordStep { checkpoint: Some("{\"at\":1}".into()), ..done(&held, "a", json!(1)) };
    record(&world, item).await.unwrap();
    record(&world, done(&held, "b", json!(1))).await.unwrap();
    assert_eq!(world.show(held.task.id).await.checkpoint, Some(json!({"at": 1})));
    // A step that was there before brings no checkpoint along.
    let again = RecordStep { checkpoint: Some("{\"at\":0}".into()), ..done(&held, "a", json!(1)) };
    record(&world, again).await.unwrap();
    assert_eq!(world.show(held.task.id).await.checkpoint, Some(json!({"at": 1})));
}

async fn many_steps_of_many_tasks_share_a_transaction(dialect: Dialect) {
    let world = World::new(dialect).await;
    let mut items = Vec::new();
    for _ in 0..20 {
        let held = world.running(job()).await;
        for name in ["a", "b", "a"] {
            let checkpoint = Some(json!({ "step": name }).to_string());
            items.push(RecordStep { checkpoint, ..done(&held, name, json!(name)) });
        }
        let lost =
            Assignment { lease_id: windlass_domain::id::LeaseId(uuid::Uuid::new_v4()), ..held };
        items.push(done(&lost, "c", json!(1)));
    }
    let outcomes = world.tasks.record_steps(items).await;
    for four in outcomes.chunks(4) {
        let earlier: Vec<_> =
            four[..3].iter().map(|o| o.as_ref().unwrap().earlier.clone()).collect();
        assert_eq!(earlier, [None, None, Some(json!("a"))]);
        assert_eq!(refused(four[3].clone()), "lease_lost");
    }
}

async fn an_intent_is_written_once_and_may_be_repeated(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let id = begun(&world, &held, "charge").await;
    assert_eq!(begun(&world, &held, "charge").await, id);
    end(&world, &held, id, completed("{\"paid\":true}")).await.unwrap();
    let Begun::Ended(step) = begin(&world, &held, "charge").await.unwrap() else { panic!() };
    assert_eq!((step.status, step.result), (StepState::Done, Some(json!({"paid": true}))));
    assert!(!step.idempotent);
}

async fn an_intent_of_a_lost_lease_parks_the_task(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    begun(&world, &held, "charge").await;
    let next = taken_over(&world, &held).await;
    assert_eq!(refused(begin(&world, &next, "charge").await), "in_doubt");
    assert_eq!(refused(begin(&world, &next, "charge").await), "in_doubt");
    assert_eq!(world.status(held.task.id).await, State::Waiting);
    assert_eq!(names(&world, &held).await, [("charge".into(), StepState::InDoubt)]);
    let doubts = Steps::new(world.store.clone()).in_doubt(0, 10).await.unwrap();
    assert_eq!(doubts.len(), 1);
    let waiting = world.tasks.history(held.task.id, 0, 100).await.unwrap().pop().unwrap();
    assert_eq!(waiting.metadata.unwrap()["until"], "person");
    // The worker that left the intent comes back too late.
    let late = end(&world, &held, doubts[0].id, completed("1")).await;
    assert_eq!(refused(late), "lease_lost");
}

async fn in_doubt(world: &World) -> (Assignment, StepId) {
    let held = world.running(job()).await;
    let id = begun(world, &held, "charge").await;
    let next = taken_over(world, &held).await;
    assert_eq!(refused(begin(world, &next, "charge").await), "in_doubt");
    (next, id)
}

async fn resolve(world: &World, id: StepId, resolution: Resolution) -> Outcome<StepState> {
    let reason = Some("looked at the account".into());
    let resolved = world.tasks.resolve_step(id, resolution, "olga".into(), reason).await;
    resolved.map(|step| step.status)
}

async fn go_on(world: &World) -> Assignment {
    let mut claim = claim_of("w3", &["q"], 1);
    claim.start = true;
    world.tasks.claim(claim).await.unwrap().pop().expect("the task is back in line")
}

async fn a_person_records_what_a_step_in_doubt_has_done(dialect: Dialect) {
    let world = World::new(dialect).await;
    let (_, id) = in_doubt(&world).await;
    let recorded = resolve(&world, id, Resolution::RecordResult("{\"paid\":1}".into())).await;
    assert_eq!(recorded.unwrap(), StepState::Done);
    let held = go_on(&world).await;
    let Begun::Ended(step) = begin(&world, &held, "charge").await.unwrap() else { panic!() };
    assert_eq!((step.result, step.actor.as_str()), (Some(json!({"paid": 1})), "olga"));
    let history = world.tasks.history(held.task.id, 0, 100).await.unwrap();
    let woken = history.iter().find(|h| h.event.as_str() == "wake").unwrap();
    assert_eq!(
        (woken.actor.as_str(), woken.reason.as_deref()),
        ("olga", Some("looked at the account"))
    );
    assert_eq!(refused(resolve(&world, id, Resolution::AllowRerun).await), "illegal_step");
}

async fn a_person_allows_a_step_in_doubt_to_run_again(dialect: Dialect) {
    let world = World::new(dialect).await;
    let (_, id) = in_doubt(&world).await;
    assert_eq!(resolve(&world, id, Resolution::AllowRerun).await.unwrap(), StepState::Allowed);
    let held = go_on(&world).await;
    assert_eq!(begun(&world, &held, "charge").await, id);
    end(&world, &held, id, completed("2")).await.unwrap();
    world.finish(&held, complete()).await.unwrap();
}

async fn a_person_fails_a_step_in_doubt(dialect: Dialect) {
    let world = World::new(dialect).await;
    let (_, id) = in_doubt(&world).await;
    assert_eq!(resolve(&world, id, Resolution::Fail).await.unwrap(), StepState::Rejected);
    let held = go_on(&world).await;
    let Begun::Ended(step) = begin(&world, &held, "charge").await.unwrap() else { panic!() };
    assert_eq!(step.status, StepState::Rejected);
}

async fn a_step_that_failed_without_effect_runs_again(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let id = begun(&world, &held, "charge").await;
    end(&world, &held, id, failed(Effect::None)).await.unwrap();
    assert_eq!(begun(&world, &held, "charge").await, id);
    end(&world, &held, id, completed("1")).await.unwrap();
}

async fn a_step_that_failed_with_an_unknown_effect_is_in_doubt(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let id = begun(&world, &held, "charge").await;
    end(&world, &held, id, failed(Effect::Unknown)).await.unwrap();
    assert_eq!(refused(begin(&world, &held, "charge").await), "in_doubt");
    assert_eq!(world.status(held.task.id).await, State::Waiting);
}

async fn an_end_under_another_lease_is_refused(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let id = begun(&world, &held, "charge").await;
    let next = taken_over(&world, &held).await;
    assert_eq!(refused(end(&world, &held, id, completed("1")).await), "lease_lost");
    assert_eq!(refused(end(&world, &next, id, completed("1")).await), "illegal_step");
    let unknown = StepId(uuid::Uuid::new_v4());
    assert_eq!(refused(end(&world, &next, unknown, completed("1")).await), "not_found");
}

async fn an_end_told_twice_is_answered_like_the_first(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let id = begun(&world, &held, "charge").await;
    end(&world, &held, id, completed("{\"b\":1,\"a\":2}")).await.unwrap();
    end(&world, &held, id, completed("{\"a\":2,\"b\":1}")).await.unwrap();
    let before = Steps::new(world.store.clone()).intent(id).await.unwrap();
    for other in [completed("3"), failed(Effect::None)] {
        assert_eq!(refused(end(&world, &held, id, other).await), "already_finished");
    }
    world.finish(&held, complete()).await.unwrap();
    end(&world, &held, id, completed("{\"a\":2,\"b\":1}")).await.unwrap();
    assert_eq!(refused(end(&world, &held, id, completed("3")).await), "already_finished");
    assert_eq!(Steps::new(world.store.clone()).intent(id).await.unwrap(), before);
}

async fn an_end_with_another_checkpoint_is_another_end(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let told = |checkpoint: Option<&str>| StepEnd::Complete {
        result: "1".into(),
        checkpoint: checkpoint.map(Into::into),
    };
    let id = begun(&world, &held, "charge").await;
    end(&world, &held, id, told(Some("{\"at\":1}"))).await.unwrap();
    end(&world, &held, id, told(Some("{\"at\":1}"))).await.unwrap();
    // It was answered like the first, and its checkpoint was lost.
    for other in [Some("{\"at\":2}"), None] {
        assert_eq!(refused(end(&world, &held, id, told(other)).await), "already_finished");
    }
    assert_eq!(world.show(held.task.id).await.checkpoint, Some(json!({ "at": 1 })));
    // Also after the task has come further: the step knows with what it was ended.
    world.tell(&held, Some("{\"at\":2}"), None).await.unwrap();
    end(&world, &held, id, told(Some("{\"at\":1}"))).await.unwrap();
    assert_eq!(refused(end(&world, &held, id, told(Some("{\"at\":2}"))).await), "already_finished");
    assert_eq!(world.show(held.task.id).await.checkpoint, Some(json!({ "at": 2 })));
    let bare = begun(&world, &held, "mail").await;
    end(&world, &held, bare, told(None)).await.unwrap();
    end(&world, &held, bare, told(None)).await.unwrap();
    assert_eq!(refused(end(&world, &held, bare, told(Some("3"))).await), "already_finished");
}

async fn a_failure_told_twice_is_answered_like_the_first_and_another_one_is_refused(
    dialect: Dialect,
) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let id = begun(&world, &held, "charge").await;
    let broke = |message: &str, effect| {
        let detail = Some(json!({ "b": 1.0, "a": [message] }));
        StepEnd::Fail {
            error: TaskError { detail, ..TaskError::new("BROKEN", "it broke") },
            effect,
        }
    };
    end(&world, &held, id, broke("here", Effect::Unknown)).await.unwrap();
    end(&world, &held, id, broke("here", Effect::Unknown)).await.unwrap();
    let before = Steps::new(world.store.clone()).intent(id).await.unwrap();
    let others =
        [broke("there", Effect::Unknown), broke("here", Effect::None), completed("\"after all\"")];
    for other in others {
        assert_eq!(refused(end(&world, &held, id, other).await), "already_finished");
    }
    assert_eq!(Steps::new(world.store.clone()).intent(id).await.unwrap(), before);
    // A failure that was replaced by nothing still decides: nobody knows whether it ran.
    assert_eq!(refused(begin(&world, &held, "charge").await), "in_doubt");
}

async fn a_persons_word_is_not_that_of_the_lease_that_began(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let id = begun(&world, &held, "charge").await;
    let next = taken_over(&world, &held).await;
    assert_eq!(refused(begin(&world, &next, "charge").await), "in_doubt");
    resolve(&world, id, Resolution::RecordResult("1".into())).await.unwrap();
    for late in [completed("1"), completed("2"), failed(Effect::None)] {
        assert_eq!(refused(end(&world, &held, id, late).await), "lease_lost");
    }
}

async fn results_are_cleared_long_after_the_end_and_rows_stay(dialect: Dialect) {
    let world = World::new(dialect).await;
    let steps = Steps::new(world.store.clone());
    let (old, living) = (world.running(job()).await, world.running(job()).await);
    for held in [&old, &living] {
        record(&world, done(held, "read", json!(1))).await.unwrap();
    }
    world.finish(&old, complete()).await.unwrap();
    world.pass_ms(RESULT_RETENTION_MS - 1);
    assert_eq!(steps.expire(100).await.unwrap().1, 0);
    world.pass_ms(1);
    // Other tests' transactions hold the log's horizon back for a while.
    let (mut cleared, until) = (0, Instant::now() + Duration::from_secs(60));
    while cleared == 0 && Instant::now() < until {
        let (walked, now_cleared) = steps.expire(2).await.unwrap();
        cleared += now_cleared;
        if walked == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    assert_eq!(cleared, 1);
    let shown = steps.list(old.task.id, 0, 10).await.unwrap().pop().unwrap();
    assert_eq!((shown.result, shown.expired_at), (None, Some(world.now())));
    let kept = steps.list(living.task.id, 0, 10).await.unwrap().pop().unwrap();
    assert_eq!((kept.result, kept.expired_at), (Some(json!(1)), None));
}

async fn a_done_step_cannot_be_changed_by_hand(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    record(&world, done(&held, "read", json!(1))).await.unwrap();
    let id = begun(&world, &held, "charge").await;
    for sql in [
        "UPDATE step SET result = '2' WHERE name = 'read'".to_owned(),
        "UPDATE step SET status = 'begun', result = NULL WHERE name = 'read'".to_owned(),
        "UPDATE step SET name = 'other' WHERE name = 'read'".to_owned(),
        "UPDATE step SET result = NULL, expired_at = created_at WHERE name = 'read'".to_owned(),
        "DELETE FROM step".to_owned(),
        format!("UPDATE step SET status = 'allowed' WHERE id = '{id}'"),
        "DELETE FROM step_transition".to_owned(),
    ] {
        let refused = world.by_hand(&sql).unwrap_err();
        assert!(refused.contains("windlass"), "{sql}: {refused}");
    }
    world.finish(&held, Finishing::Release).await.unwrap();
    let kept = names(&world, &held).await;
    assert_eq!(kept, [("read".into(), StepState::Done), ("charge".into(), StepState::Begun)]);
}

/// A call that was repeated on the way arrived after the step had begun again, and ended that run.
async fn a_late_call_about_an_earlier_run_ends_nothing(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let end =
        async |id, run, end| world.tasks.end_step(id, held.lease_id, run, "w1".into(), end).await;
    let Begun::New(id, first) = begin(&world, &held, "charge").await.unwrap() else { panic!() };
    end(id, first, failed(Effect::None)).await.unwrap();
    let Begun::New(_, second) = begin(&world, &held, "charge").await.unwrap() else { panic!() };
    assert!(first < second, "{first:?} {second:?}");
    assert_eq!(refused(end(id, first, failed(Effect::None)).await), "already_finished");
    let Begun::New(_, again) = begin(&world, &held, "charge").await.unwrap() else { panic!() };
    assert_eq!(again, second, "the same begin again is the same run");
    let done = end(id, second, completed("1")).await.unwrap();
    assert_eq!((done.status, done.run), (StepState::Done, second));
    assert_eq!(end(id, second, completed("1")).await.unwrap().status, StepState::Done);
}
