//! Replay: a new task that takes done steps along.

use crate::world::*;
use serde_json::json;
use uuid::Uuid;
use windlass_domain::failure::TaskError;
use windlass_domain::id::TaskId;
use windlass_domain::replay::{Fate, ReplayFrom};
use windlass_domain::state::State;
use windlass_domain::step::{Effect, StepInput, StepState, check};
use windlass_store::group::Outcome;
use windlass_store::statement::Dialect;
use windlass_store::step::Steps;
use windlass_store::task::{
    Assignment, BeginStep, Begun, Consent, Holder, RecordStep, Replay, Replayed, Resolution,
    StepEnd,
};

conformance!(
    a_replay_is_a_new_task_with_the_steps_before_its_beginning,
    a_replay_from_the_last_checkpoint_takes_everything_along,
    a_replay_from_the_beginning_takes_nothing_along,
    what_must_not_run_twice_is_refused_unless_allowed,
    a_plan_changes_nothing,
    only_a_finished_task_is_replayed,
    the_second_replay_needs_a_person,
    a_chain_of_replays_needs_a_person_as_well,
    a_replay_is_counted_with_the_whole_family,
    replays_of_one_family_at_once_are_counted_one_after_the_other,
    a_replay_sent_twice_is_one_task,
    a_replay_carries_no_idempotency_key,
    one_permission_covers_one_further_run,
    what_only_an_earlier_replay_ran_is_not_run_again_unasked,
    of_two_replays_that_live_at_once_one_runs_what_must_not_run_twice,
    a_step_that_failed_without_effect_is_not_run_after_another_replay_ran_it,
    a_step_that_another_replay_began_again_is_in_doubt,
    a_plan_knows_what_another_replay_began_again,
    what_ran_first_is_told_without_a_clock,
    a_plan_takes_no_checkpoint_along_that_is_not_there,
);

const NOBODY: Consent = Consent::UpTo { threshold: 1, is_required: false };

fn replay(origin: TaskId, from: ReplayFrom) -> Replay {
    Replay {
        origin,
        id: TaskId(Uuid::now_v7()),
        from,
        allow_non_idempotent: false,
        actor: "olga".into(),
    }
}

/// Done: read, charge (must not run twice), write; with a checkpoint; then failed.
pub async fn failed_task(world: &World) -> Assignment {
    let held = world.running(task(|r| r.idempotency_key = Some("k".into()))).await;
    for name in ["read", "charge", "write"] {
        let holder = Holder::new(held.task.id, held.lease_id, "w1");
        let input = StepInput { name, kind: None, inputs: None, occurrence: None };
        let step = check(&input).unwrap();
        if name == "charge" {
            let begun = world.tasks.begin_step(BeginStep { holder, step }).await.unwrap();
            let Begun::New(id, _) = begun else { panic!() };
            let end = StepEnd::Complete { result: "\"paid\"".into(), checkpoint: None };
            world.tasks.end_step(id, held.lease_id, None, "w1".into(), end).await.unwrap();
            continue;
        }
        let checkpoint = Some(json!({ "after": name }).to_string());
        let item = RecordStep { holder, step, result: json!(name).to_string(), checkpoint };
        world.tasks.record_steps(vec![item]).await.pop().unwrap().unwrap();
    }
    world.finish(&held, fail("INVALID_INPUT")).await.unwrap();
    held
}

async fn run(world: &World, item: Replay) -> Outcome<Replayed> {
    world.tasks.replay(item, NOBODY).await
}

async fn steps(world: &World, task: TaskId) -> Vec<(String, serde_json::Value)> {
    let steps = Steps::new(world.store.clone()).list(task, 0, 100).await.unwrap();
    steps.into_iter().map(|step| (step.name, step.result.unwrap_or_default())).collect()
}

async fn a_replay_is_a_new_task_with_the_steps_before_its_beginning(dialect: Dialect) {
    let world = World::new(dialect).await;
    let origin = failed_task(&world).await.task.id;
    let item = replay(origin, ReplayFrom::Step("write".into()));
    let Replayed::New(id, plan) = run(&world, item.clone()).await.unwrap() else { panic!() };
    assert_eq!(id, item.id);
    let fates: Vec<_> = plan.steps.iter().map(|step| step.fate).collect();
    assert_eq!(fates, [Fate::Reused, Fate::Reused, Fate::Rerun]);
    assert_eq!(
        steps(&world, id).await,
        [("read".into(), json!("read")), ("charge".into(), json!("paid"))]
    );
    let shown = world.show(id).await;
    assert_eq!((shown.replay_of, shown.status), (Some(origin), State::Pending));
    assert_eq!((shown.checkpoint, shown.payload), (None, json!({"n": 1})));
    let mut claim = claim_of("w2", &["q"], 1);
    claim.start = true;
    let held = world.tasks.claim(claim).await.unwrap().pop().unwrap();
    let input = StepInput { name: "charge", kind: None, inputs: None, occurrence: None };
    let holder = Holder::new(held.task.id, held.lease_id, "w2");
    let begun = world.tasks.begin_step(BeginStep { holder, step: check(&input).unwrap() }).await;
    let Begun::Ended(step) = begun.unwrap() else { panic!("a copied step is done") };
    assert!(step.copied_from.is_some());
    assert_eq!(world.status(origin).await, State::Failed);
}

async fn a_replay_from_the_last_checkpoint_takes_everything_along(dialect: Dialect) {
    let world = World::new(dialect).await;
    let origin = failed_task(&world).await.task.id;
    let item = replay(origin, ReplayFrom::LastCheckpoint);
    let Replayed::New(id, _) = run(&world, item).await.unwrap() else { panic!() };
    assert_eq!(steps(&world, id).await, steps(&world, origin).await);
    assert_eq!(world.show(id).await.checkpoint, Some(json!({"after": "write"})));
}

async fn a_replay_from_the_beginning_takes_nothing_along(dialect: Dialect) {
    let world = World::new(dialect).await;
    let origin = failed_task(&world).await.task.id;
    let item = Replay { allow_non_idempotent: true, ..replay(origin, ReplayFrom::Beginning) };
    let Replayed::New(id, _) = run(&world, item).await.unwrap() else { panic!() };
    assert_eq!(steps(&world, id).await, []);
    assert_eq!(world.show(id).await.checkpoint, None);
}

async fn what_must_not_run_twice_is_refused_unless_allowed(dialect: Dialect) {
    let world = World::new(dialect).await;
    let origin = failed_task(&world).await.task.id;
    let item = replay(origin, ReplayFrom::Beginning);
    assert_eq!(refused(run(&world, item.clone()).await), "not_idempotent");
    assert!(world.tasks.show(item.id).await.unwrap().is_none());
    let allowed = Replay { allow_non_idempotent: true, ..item };
    assert!(matches!(run(&world, allowed).await.unwrap(), Replayed::New(..)));
}

async fn a_plan_changes_nothing(dialect: Dialect) {
    let world = World::new(dialect).await;
    let origin = failed_task(&world).await.task.id;
    let item = replay(origin, ReplayFrom::Beginning);
    let plan = world.tasks.plan_replay(item.clone()).await.unwrap();
    assert_eq!(plan.steps[1].fate, Fate::Refused);
    assert!(world.tasks.show(item.id).await.unwrap().is_none());
    let unknown = replay(origin, ReplayFrom::Step("nope".into()));
    assert_eq!(refused(world.tasks.plan_replay(unknown).await), "no_such_step");
}

async fn only_a_finished_task_is_replayed(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let item = replay(held.task.id, ReplayFrom::Beginning);
    assert_eq!(refused(run(&world, item).await), "not_finished");
    let unknown = replay(TaskId(Uuid::new_v4()), ReplayFrom::Beginning);
    assert_eq!(refused(run(&world, unknown).await), "not_found");
}

async fn the_second_replay_needs_a_person(dialect: Dialect) {
    let world = World::new(dialect).await;
    let origin = failed_task(&world).await.task.id;
    let next = || replay(origin, ReplayFrom::LastCheckpoint);
    let wanted = Consent::UpTo { threshold: 1, is_required: true };
    let asked = world.tasks.replay(next(), wanted).await.unwrap();
    assert!(matches!(asked, Replayed::NeedsApproval(_)));
    assert!(matches!(run(&world, next()).await.unwrap(), Replayed::New(..)));
    assert!(matches!(run(&world, next()).await.unwrap(), Replayed::NeedsApproval(_)));
    let given = world.tasks.replay(next(), Consent::Given).await.unwrap();
    assert!(matches!(given, Replayed::New(..)));
}

/// Replays a task under a threshold, and lets the new one end.
async fn replayed(world: &World, origin: TaskId, threshold: i64) -> Option<TaskId> {
    let consent = Consent::UpTo { threshold, is_required: false };
    let item = replay(origin, ReplayFrom::LastCheckpoint);
    let Replayed::New(id, _) = world.tasks.replay(item, consent).await.unwrap() else {
        return None;
    };
    let held = world.claim("w1", 1).await.pop().unwrap();
    assert_eq!(held.task.id, id);
    world.finish(&held, fail("INVALID_INPUT")).await.unwrap();
    Some(id)
}

async fn a_chain_of_replays_needs_a_person_as_well(dialect: Dialect) {
    let world = World::new(dialect).await;
    let origin = failed_task(&world).await.task.id;
    let first = replayed(&world, origin, 1).await.expect("the first needs nobody");
    assert_eq!(replayed(&world, first, 1).await, None);
    assert_eq!(world.tasks.count_replays(first, 10).await.unwrap(), 1);
    let item = replay(first, ReplayFrom::LastCheckpoint);
    let given = world.tasks.replay(item, Consent::Given).await.unwrap();
    assert!(matches!(given, Replayed::New(..)));
}

async fn a_replay_is_counted_with_the_whole_family(dialect: Dialect) {
    let world = World::new(dialect).await;
    let origin = failed_task(&world).await.task.id;
    let mut family = vec![origin];
    for of in [0, 0, 1, 3] {
        family.push(replayed(&world, family[of], 4).await.expect("not yet four"));
    }
    for member in family {
        assert_eq!(world.tasks.count_replays(member, 10).await.unwrap(), 4);
        assert_eq!(world.tasks.count_replays(member, 2).await.unwrap(), 2, "no further than asked");
        assert_eq!(replayed(&world, member, 4).await, None);
    }
    let other = world.running(job()).await;
    world.finish(&other, complete()).await.unwrap();
    assert_eq!(world.tasks.count_replays(other.task.id, 10).await.unwrap(), 0);
    assert!(replayed(&world, other.task.id, i64::MAX).await.is_some());
}

async fn replays_of_one_family_at_once_are_counted_one_after_the_other(dialect: Dialect) {
    let world = World::new(dialect).await;
    // Several families: two that come at once do not always meet.
    for _ in 0..5 {
        let held = world.running(job()).await;
        world.finish(&held, complete()).await.unwrap();
        let origin = held.task.id;
        let first = replayed(&world, origin, 1).await.unwrap();
        let second = replayed(&world, first, 2).await.unwrap();
        let asks = [origin, first, second, origin, first, second].map(|of| {
            let (tasks, item) = (world.tasks.clone(), replay(of, ReplayFrom::LastCheckpoint));
            let consent = Consent::UpTo { threshold: 3, is_required: false };
            tokio::spawn(async move { tasks.replay(item, consent).await.unwrap() })
        });
        let mut made = 0;
        for ask in asks {
            made += usize::from(matches!(ask.await.unwrap(), Replayed::New(..)));
        }
        assert_eq!(made, 1);
        let left = world.claim("w1", 10).await.pop().unwrap();
        world.finish(&left, complete()).await.unwrap();
    }
}

async fn a_replay_sent_twice_is_one_task(dialect: Dialect) {
    let world = World::new(dialect).await;
    let origin = failed_task(&world).await.task.id;
    let item = replay(origin, ReplayFrom::LastCheckpoint);
    assert!(matches!(run(&world, item.clone()).await.unwrap(), Replayed::New(..)));
    assert_eq!(run(&world, item.clone()).await.unwrap(), Replayed::Existing(item.id));
    let other = Replay { from: ReplayFrom::Step("write".into()), ..item };
    assert_eq!(refused(run(&world, other).await), "idempotency_key_reused");
}

async fn a_replay_carries_no_idempotency_key(dialect: Dialect) {
    let world = World::new(dialect).await;
    let origin = failed_task(&world).await.task.id;
    let item = replay(origin, ReplayFrom::LastCheckpoint);
    run(&world, item.clone()).await.unwrap();
    assert_eq!(world.show(item.id).await.idempotency_key, None);
}

/// Whoever holds the task begins to charge.
async fn charge(world: &World, held: &Assignment) -> Outcome<Begun> {
    let input = StepInput { name: "charge", kind: None, inputs: None, occurrence: None };
    let holder = Holder::new(held.task.id, held.lease_id, "w1");
    world.tasks.begin_step(BeginStep { holder, step: check(&input).unwrap() }).await
}

/// The same, to its end.
async fn charged(world: &World, held: &Assignment) {
    let Begun::New(id, _) = charge(world, held).await.unwrap() else { panic!("it may run") };
    let end = StepEnd::Complete { result: "1".into(), checkpoint: None };
    world.tasks.end_step(id, held.lease_id, None, "w1".into(), end).await.unwrap();
}

/// The same, without effect.
async fn charged_in_vain(world: &World, held: &Assignment) {
    let Begun::New(id, _) = charge(world, held).await.unwrap() else { panic!("it may run") };
    let error = TaskError { code: "TIMEOUT".into(), message: "no".into(), detail: None };
    let end = StepEnd::Fail { error, effect: Effect::None };
    world.tasks.end_step(id, held.lease_id, None, "w1".into(), end).await.unwrap();
}

/// Makes a replay that a person agreed to, and claims it.
async fn next(world: &World, origin: TaskId, from: ReplayFrom, allow: bool) -> Outcome<Assignment> {
    let item = Replay { allow_non_idempotent: allow, ..replay(origin, from) };
    let id = item.id;
    world.tasks.replay(item, Consent::Given).await?;
    let mut claim = claim_of("w1", &["q"], 1);
    claim.start = true;
    let held = world.tasks.claim(claim).await.unwrap().pop().unwrap();
    assert_eq!(held.task.id, id);
    Ok(held)
}

async fn one_permission_covers_one_further_run(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let origin = held.task.id;
    let Begun::New(step, _) = charge(&world, &held).await.unwrap() else { panic!() };
    world.finish(&held, fail("INVALID_INPUT")).await.unwrap();
    let last = || ReplayFrom::LastCheckpoint;
    assert_eq!(refused(next(&world, origin, last(), false).await), "not_idempotent");
    let allow = Resolution::AllowRerun;
    world.tasks.resolve_step(step, allow, "olga".into(), None).await.unwrap();
    let first = next(&world, origin, last(), false).await.unwrap();
    charged(&world, &first).await;
    world.finish(&first, fail("INVALID_INPUT")).await.unwrap();
    // The permission stands with the origin's step still, but it was used.
    let plan = world.tasks.plan_replay(replay(origin, last())).await.unwrap();
    let line = &plan.steps[0];
    assert_eq!((line.fate, line.run_in), (Fate::Refused, Some(first.task.id)));
    let again = world.tasks.replay(replay(origin, last()), Consent::Given).await;
    let told = again.as_ref().unwrap_err().to_string();
    assert!(told.contains("charge") && told.contains(&first.task.id.to_string()), "{told}");
    assert_eq!(refused(again), "not_idempotent");
    let second = next(&world, origin, last(), true).await.unwrap();
    charged(&world, &second).await;
    world.finish(&second, fail("INVALID_INPUT")).await.unwrap();
    assert_eq!(refused(next(&world, origin, last(), false).await), "not_idempotent");
    // A replay of the replay takes the result along, and runs nothing twice.
    let third = next(&world, first.task.id, last(), false).await.unwrap();
    assert!(matches!(charge(&world, &third).await.unwrap(), Begun::Ended(_)));
}

async fn what_only_an_earlier_replay_ran_is_not_run_again_unasked(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    world.finish(&held, fail("INVALID_INPUT")).await.unwrap();
    let origin = held.task.id;
    let first = next(&world, origin, ReplayFrom::Beginning, false).await.unwrap();
    let Begun::New(_, _) = charge(&world, &first).await.unwrap() else { panic!() };
    let plan = world.tasks.plan_replay(replay(origin, ReplayFrom::Beginning)).await.unwrap();
    let line = &plan.steps[0];
    assert_eq!((line.name.as_str(), line.fate), ("charge", Fate::Refused), "also while it lives");
    world.finish(&first, fail("INVALID_INPUT")).await.unwrap();
    for from in [ReplayFrom::Beginning, ReplayFrom::LastCheckpoint] {
        assert_eq!(refused(next(&world, origin, from, false).await), "not_idempotent");
    }
    let second = next(&world, origin, ReplayFrom::Beginning, true).await.unwrap();
    charged(&world, &second).await;
}

async fn of_two_replays_that_live_at_once_one_runs_what_must_not_run_twice(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    world.finish(&held, fail("INVALID_INPUT")).await.unwrap();
    // Nothing was charged when both were made, so nobody could be asked.
    let first = next(&world, held.task.id, ReplayFrom::Beginning, false).await.unwrap();
    let second = next(&world, held.task.id, ReplayFrom::Beginning, false).await.unwrap();
    let (one, other) = tokio::join!(charge(&world, &first), charge(&world, &second));
    let (mut ran, mut doubted) = (0, None);
    for (begun, held) in [(one, &first), (other, &second)] {
        match begun {
            Ok(Begun::New(_, _)) => ran += 1,
            in_doubt => {
                assert_eq!(refused(in_doubt), "in_doubt");
                doubted = Some(held);
            }
        }
    }
    assert_eq!(ran, 1);
    let doubted = doubted.unwrap();
    let task = doubted.task.id;
    assert_eq!(world.status(task).await, State::Waiting);
    assert_eq!(refused(charge(&world, doubted).await), "in_doubt", "the same call again");
    let found = Steps::new(world.store.clone()).in_doubt(0, 10).await.unwrap();
    assert_eq!(found.iter().map(|step| step.task_id).collect::<Vec<_>>(), [task]);
    let allow = Resolution::AllowRerun;
    world.tasks.resolve_step(found[0].id, allow, "olga".into(), None).await.unwrap();
    let mut claim = claim_of("w1", &["q"], 1);
    claim.start = true;
    let again = world.tasks.claim(claim).await.unwrap().pop().unwrap();
    assert_eq!(again.task.id, task);
    charged(&world, &again).await;
}

async fn a_step_that_failed_without_effect_is_not_run_after_another_replay_ran_it(
    dialect: Dialect,
) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    world.finish(&held, fail("INVALID_INPUT")).await.unwrap();
    let first = next(&world, held.task.id, ReplayFrom::Beginning, false).await.unwrap();
    let second = next(&world, held.task.id, ReplayFrom::Beginning, false).await.unwrap();
    charged_in_vain(&world, &first).await;
    // Nothing has happened, so the other one may.
    charged(&world, &second).await;
    assert_eq!(refused(charge(&world, &first).await), "in_doubt");
    let steps = Steps::new(world.store.clone()).list(first.task.id, 0, 10).await.unwrap();
    assert_eq!(steps[0].status, StepState::InDoubt);
}

/// It was begun before the other replay was made, in vain, and again after.
async fn a_step_that_another_replay_began_again_is_in_doubt(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    world.finish(&held, fail("INVALID_INPUT")).await.unwrap();
    let first = next(&world, held.task.id, ReplayFrom::Beginning, false).await.unwrap();
    charged_in_vain(&world, &first).await;
    world.pass_ms(1);
    let second = next(&world, held.task.id, ReplayFrom::Beginning, false).await.unwrap();
    world.pass_ms(1);
    charged(&world, &first).await;
    assert_eq!(refused(charge(&world, &second).await), "in_doubt");
}

async fn a_plan_knows_what_another_replay_began_again(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    charged_in_vain(&world, &held).await;
    world.finish(&held, fail("INVALID_INPUT")).await.unwrap();
    let first = next(&world, held.task.id, ReplayFrom::Beginning, false).await.unwrap();
    charged_in_vain(&world, &first).await;
    let second = next(&world, held.task.id, ReplayFrom::Beginning, false).await.unwrap();
    charged_in_vain(&world, &second).await;
    world.finish(&second, fail("INVALID_INPUT")).await.unwrap();
    charged(&world, &first).await;
    for origin in [held.task.id, second.task.id] {
        let plan = world.tasks.plan_replay(replay(origin, ReplayFrom::Beginning)).await.unwrap();
        let line = &plan.steps[0];
        assert_eq!((line.fate, line.run_in), (Fate::Refused, Some(first.task.id)));
    }
}

async fn what_ran_first_is_told_without_a_clock(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    world.finish(&held, fail("INVALID_INPUT")).await.unwrap();
    let first = next(&world, held.task.id, ReplayFrom::Beginning, false).await.unwrap();
    let second = next(&world, held.task.id, ReplayFrom::Beginning, false).await.unwrap();
    // Less than the lease, or nobody could begin anything.
    world.pass_ms(-20_000);
    charged(&world, &first).await;
    assert_eq!(refused(charge(&world, &second).await), "in_doubt");
}

async fn a_plan_takes_no_checkpoint_along_that_is_not_there(dialect: Dialect) {
    let world = World::new(dialect).await;
    let bare = world.running(job()).await;
    world.finish(&bare, fail("INVALID_INPUT")).await.unwrap();
    let kept = failed_task(&world).await;
    for (origin, wanted) in [(bare.task.id, false), (kept.task.id, true)] {
        let item = replay(origin, ReplayFrom::LastCheckpoint);
        let plan = world.tasks.plan_replay(item.clone()).await.unwrap();
        assert_eq!(plan.checkpoint, wanted);
        let Replayed::New(id, plan) = run(&world, item).await.unwrap() else { panic!() };
        assert_eq!((plan.checkpoint, world.show(id).await.checkpoint.is_some()), (wanted, wanted));
    }
}
