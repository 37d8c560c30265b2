//! Steps that ended tasks left behind: a person lists them, decides, and a replay sees it.

use crate::world::*;
use serde_json::json;
use uuid::Uuid;
use windlass_domain::failure::TaskError;
use windlass_domain::id::{StepId, TaskId};
use windlass_domain::replay::{Fate, ReplayFrom};
use windlass_domain::state::State;
use windlass_domain::step::{Effect, StepInput, StepState, check};
use windlass_store::audit::{Audit, Filter};
use windlass_store::statement::Dialect;
use windlass_store::step::Steps;
use windlass_store::task::{
    Assignment, BeginStep, Begun, Consent, Holder, Replay, Replayed, Resolution, StepEnd, Task,
};

conformance!(
    what_an_ended_task_left_begun_is_listed_as_in_doubt,
    a_failure_with_an_unknown_effect_is_in_doubt_when_its_task_has_ended,
    what_living_tasks_are_at_is_not_in_doubt,
    a_result_recorded_after_the_end_is_taken_along_by_a_replay,
    a_step_allowed_after_the_end_runs_again_in_a_replay,
    a_step_failed_after_the_end_never_runs_in_a_replay,
    a_decision_over_a_left_step_is_made_once,
    every_decision_is_audited_once_whether_its_task_lives_or_has_ended,
);

async fn begun(world: &World, held: &Assignment, name: &str) -> Begun {
    let input = StepInput { name, kind: None, inputs: None, occurrence: None };
    let holder = Holder::new(held.task.id, held.lease_id, "w1");
    let item = BeginStep { holder, step: check(&input).unwrap() };
    world.tasks.begin_step(item).await.unwrap()
}

async fn new_step(world: &World, held: &Assignment, name: &str) -> StepId {
    let Begun::New(id, _) = begun(world, held, name).await else { panic!("it has run before") };
    id
}

async fn failed_step(world: &World, held: &Assignment, name: &str, effect: Effect) -> StepId {
    let id = new_step(world, held, name).await;
    let end = StepEnd::Fail { error: TaskError::new("BROKEN", "it broke"), effect };
    world.tasks.end_step(id, held.lease_id, None, "w1".into(), end).await.unwrap();
    id
}

/// A task that failed while it charged a card.
async fn left_begun(world: &World) -> (TaskId, StepId) {
    let held = world.running(job()).await;
    let id = new_step(world, &held, "charge").await;
    world.finish(&held, fail("INVALID_INPUT")).await.unwrap();
    (held.task.id, id)
}

async fn doubts(world: &World) -> Vec<(StepId, StepState)> {
    let found = Steps::new(world.store.clone()).in_doubt(0, 10).await.unwrap();
    found.into_iter().map(|step| (step.id, step.status)).collect()
}

async fn decide(world: &World, id: StepId, resolution: Resolution) -> StepState {
    let why = Some("the bank shows it".into());
    world.tasks.resolve_step(id, resolution, "olga".into(), why).await.unwrap().status
}

fn replay(origin: TaskId) -> Replay {
    Replay {
        origin,
        id: TaskId(Uuid::now_v7()),
        from: ReplayFrom::LastCheckpoint,
        allow_non_idempotent: false,
        actor: "olga".into(),
    }
}

async fn fates(world: &World, origin: TaskId) -> Vec<Fate> {
    let plan = world.tasks.plan_replay(replay(origin)).await.unwrap();
    plan.steps.iter().map(|step| step.fate).collect()
}

/// The replay, in its worker's hands.
async fn replayed(world: &World, origin: TaskId) -> Assignment {
    let nobody = Consent::UpTo { threshold: 1, is_required: false };
    let new = world.tasks.replay(replay(origin), nobody).await.unwrap();
    assert!(matches!(new, Replayed::New(..)), "{new:?}");
    let mut claim = claim_of("w2", &["q"], 1);
    claim.start = true;
    world.tasks.claim(claim).await.unwrap().pop().expect("the replay")
}

/// Everything of a task, so that a change of anything is seen.
async fn all_of(world: &World, task: TaskId) -> (Task, Vec<String>) {
    (world.show(task).await, world.story(task).await)
}

async fn what_an_ended_task_left_begun_is_listed_as_in_doubt(dialect: Dialect) {
    let world = World::new(dialect).await;
    let (task, id) = left_begun(&world).await;
    assert_eq!(doubts(&world).await, [(id, StepState::InDoubt)]);
    // Wherever a person looks, it is the same.
    let steps = Steps::new(world.store.clone());
    assert_eq!(steps.list(task, 0, 10).await.unwrap()[0].status, StepState::InDoubt);
    assert_eq!(steps.page(task, 0, 10).await.unwrap().steps[0].status, StepState::InDoubt);
    assert_eq!(steps.show(task, id).await.unwrap().unwrap().status, StepState::InDoubt);
    assert_eq!(steps.intent(id).await.unwrap().unwrap().status, StepState::InDoubt);
    // However the task ended.
    let held = world.running(job()).await;
    let other = new_step(&world, &held, "mail").await;
    world.cancel(held.task.id).await.unwrap();
    assert_eq!(doubts(&world).await, [(id, StepState::InDoubt), (other, StepState::InDoubt)]);
    let second = steps.in_doubt(steps.in_doubt(0, 1).await.unwrap()[0].seq, 1).await.unwrap();
    assert_eq!(second[0].id, other, "in pages");
}

async fn a_failure_with_an_unknown_effect_is_in_doubt_when_its_task_has_ended(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    failed_step(&world, &held, "read", Effect::None).await;
    let unknown = failed_step(&world, &held, "charge", Effect::Unknown).await;
    assert_eq!(doubts(&world).await, []);
    world.finish(&held, fail("INVALID_INPUT")).await.unwrap();
    assert_eq!(doubts(&world).await, [(unknown, StepState::InDoubt)]);
    assert_eq!(fates(&world, held.task.id).await, [Fate::Rerun, Fate::Refused]);
    let recorded = Resolution::RecordResult("1".into());
    assert_eq!(decide(&world, unknown, recorded).await, StepState::Done);
    assert_eq!(fates(&world, held.task.id).await, [Fate::Rerun, Fate::Reused]);
}

async fn what_living_tasks_are_at_is_not_in_doubt(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let id = new_step(&world, &held, "charge").await;
    assert_eq!(doubts(&world).await, []);
    let early = world.tasks.resolve_step(id, Resolution::AllowRerun, "olga".into(), None).await;
    assert_eq!(refused(early), "illegal_step");
    let end = StepEnd::Complete { result: "1".into(), checkpoint: None };
    world.tasks.end_step(id, held.lease_id, None, "w1".into(), end).await.unwrap();
}

async fn a_result_recorded_after_the_end_is_taken_along_by_a_replay(dialect: Dialect) {
    let world = World::new(dialect).await;
    let (origin, id) = left_begun(&world).await;
    assert_eq!(fates(&world, origin).await, [Fate::Refused]);
    let before = all_of(&world, origin).await;
    let decided = decide(&world, id, Resolution::RecordResult("{\"paid\":1}".into())).await;
    assert_eq!(decided, StepState::Done);
    assert_eq!(doubts(&world).await, []);
    assert_eq!(fates(&world, origin).await, [Fate::Reused]);
    let held = replayed(&world, origin).await;
    let Begun::Ended(step) = begun(&world, &held, "charge").await else { panic!("it runs again") };
    assert_eq!((step.status, step.result), (StepState::Done, Some(json!({"paid": 1}))));
    let after = all_of(&world, origin).await;
    assert_eq!((before.0.updated_at, before.0.status), (after.0.updated_at, State::Failed));
    assert_eq!(before.1, after.1, "a finished task never changes");
}

async fn a_step_allowed_after_the_end_runs_again_in_a_replay(dialect: Dialect) {
    let world = World::new(dialect).await;
    let (origin, id) = left_begun(&world).await;
    assert_eq!(decide(&world, id, Resolution::AllowRerun).await, StepState::Allowed);
    assert_eq!(doubts(&world).await, []);
    assert_eq!(fates(&world, origin).await, [Fate::Rerun]);
    let held = replayed(&world, origin).await;
    new_step(&world, &held, "charge").await;
}

async fn a_step_failed_after_the_end_never_runs_in_a_replay(dialect: Dialect) {
    let world = World::new(dialect).await;
    let (origin, id) = left_begun(&world).await;
    assert_eq!(decide(&world, id, Resolution::Fail).await, StepState::Rejected);
    assert_eq!(doubts(&world).await, []);
    assert_eq!(fates(&world, origin).await, [Fate::Reused]);
    let held = replayed(&world, origin).await;
    let Begun::Ended(step) = begun(&world, &held, "charge").await else { panic!("it runs again") };
    assert_eq!((step.status, step.copied_from), (StepState::Rejected, Some(id)));
}

async fn a_decision_over_a_left_step_is_made_once(dialect: Dialect) {
    let world = World::new(dialect).await;
    let (_, id) = left_begun(&world).await;
    assert_eq!(decide(&world, id, Resolution::AllowRerun).await, StepState::Allowed);
    assert_eq!(decide(&world, id, Resolution::AllowRerun).await, StepState::Allowed);
    let other = world.tasks.resolve_step(id, Resolution::Fail, "olga".into(), None).await;
    assert_eq!(refused(other), "illegal_step");
}

async fn every_decision_is_audited_once_whether_its_task_lives_or_has_ended(dialect: Dialect) {
    let world = World::new(dialect).await;
    let audit = Audit::new(world.store.clone());
    let (ended, left) = left_begun(&world).await;
    decide(&world, left, Resolution::AllowRerun).await;
    decide(&world, left, Resolution::AllowRerun).await;
    let held = world.running(job()).await;
    let doubted = failed_step(&world, &held, "charge", Effect::Unknown).await;
    let input = StepInput { name: "charge", kind: None, inputs: None, occurrence: None };
    let holder = Holder::new(held.task.id, held.lease_id, "w1");
    let again = BeginStep { holder, step: check(&input).unwrap() };
    assert_eq!(refused(world.tasks.begin_step(again).await), "in_doubt");
    decide(&world, doubted, Resolution::RecordResult("1".into())).await;
    let late = world.tasks.resolve_step(doubted, Resolution::Fail, "olga".into(), None).await;
    assert_eq!(refused(late), "illegal_step");
    let entries = audit.list(Filter::of_event("step_resolved"), None, 10).await.unwrap();
    let told: Vec<_> = entries.iter().map(|e| (e.actor.as_str(), e.detail.clone())).collect();
    let entry = |step: StepId, task: TaskId, status: &str, action: &str| {
        let detail = json!({
            "step": step, "name": "charge", "task": task, "task_status": status,
            "action": action, "reason": "the bank shows it",
        });
        ("olga", detail)
    };
    assert_eq!(
        told,
        [
            entry(doubted, held.task.id, "waiting", "record_result"),
            entry(left, ended, "failed", "allow_rerun"),
        ]
    );
}
