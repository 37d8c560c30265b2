//! Waits: a parked task holds nothing, and nothing that may wake it is lost.

use crate::world::*;
use serde_json::{Value, json};
use uuid::Uuid;
use windlass_domain::id::{SignalId, TaskId};
use windlass_domain::state::State;
use windlass_domain::step::StepState;
use windlass_domain::wait::Until;
use windlass_store::group::Outcome;
use windlass_store::signal::{NewSignal, Target};
use windlass_store::statement::Dialect;
use windlass_store::step::Steps;
use windlass_store::task::{Assignment, Holder, Park, Parked, Signalled};

conformance!(
    a_sleeping_task_holds_no_lease_and_wakes_when_its_time_comes,
    a_wait_that_is_over_does_not_park,
    a_wait_that_was_woken_is_answered_with_what_came,
    a_signal_wakes_the_task_that_waits_for_it,
    a_signal_that_came_early_is_taken_by_the_wait,
    a_signal_is_taken_by_one_wait,
    a_signal_with_a_key_goes_to_whoever_has_waited_longest,
    a_signal_with_a_key_passes_over_a_wait_that_is_over,
    a_signal_to_a_task_is_not_for_its_key,
    a_task_cannot_wait_for_itself,
    a_signal_sent_twice_is_one_signal,
    a_signal_to_a_finished_or_unknown_task_is_refused,
    a_wait_for_a_signal_may_time_out,
    a_task_wakes_when_the_other_ends,
    a_wait_for_a_finished_task_does_not_park,
    a_wait_for_an_unknown_task_does_not_park,
    parking_twice_is_answered_like_the_first,
    parking_again_for_something_else_is_refused,
    parking_under_a_lost_lease_is_refused,
    a_cancelled_wait_is_forgotten,
    a_task_moved_out_of_its_wait_by_hand_parks_on_it_again,
    a_wait_taken_up_again_keeps_its_clock,
    what_came_meanwhile_ends_a_wait_that_is_taken_up_again,
    repeated_waits_are_told_apart,
    signals_and_waits_that_race_always_meet,
    a_taken_signal_cannot_be_changed_by_hand,
);

fn park_of(held: &Assignment, until: Until) -> Park {
    Park {
        holder: Holder::new(held.task.id, held.lease_id, "w1"),
        until,
        occurrence: Some(0),
        timeout_ms: None,
        checkpoint: None,
    }
}

fn signal(name: &str) -> Until {
    Until::Signal { name: name.into(), key: None }
}

pub(crate) fn with_key(name: &str, key: &str) -> Until {
    Until::Signal { name: name.into(), key: Some(key.into()) }
}

pub(crate) async fn park(world: &World, held: &Assignment, until: Until) -> Outcome<Parked> {
    world.tasks.park(park_of(held, until)).await
}

async fn parked(world: &World, until: Until) -> Assignment {
    let held = world.running(job()).await;
    assert!(matches!(park(world, &held, until).await.unwrap(), Parked::Waiting(_)));
    held
}

async fn send(world: &World, name: &str, target: Target, payload: Value) -> Outcome<Signalled> {
    let id = SignalId(Uuid::now_v7());
    send_as(world, id, name, target, payload).await
}

pub(crate) async fn send_as(
    world: &World,
    id: SignalId,
    name: &str,
    target: Target,
    payload: Value,
) -> Outcome<Signalled> {
    let payload = payload.to_string();
    let new = NewSignal { id, name: name.into(), target, payload, sent_by: "tester".into() };
    world.tasks.signal(new).await
}

/// What the task's last wait was woken by.
async fn came(world: &World, task: TaskId) -> Value {
    let steps = Steps::new(world.store.clone()).list(task, 0, 100).await.unwrap();
    let last = steps.into_iter().last().expect("a wait is a step");
    assert_eq!(last.status, StepState::Done);
    last.result.unwrap()
}

async fn claim_again(world: &World, task: TaskId) -> Assignment {
    let mut claim = claim_of("w2", &["q"], 1);
    claim.start = true;
    let held = world.tasks.claim(claim).await.unwrap().pop().expect("the task is back in line");
    assert_eq!(held.task.id, task);
    held
}

async fn a_sleeping_task_holds_no_lease_and_wakes_when_its_time_comes(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = parked(&world, Until::DelayMs(5_000)).await;
    let shown = world.show(held.task.id).await;
    assert_eq!((shown.status, shown.claimed_by), (State::Waiting, None));
    assert_eq!(refused(world.beat(&held).await), "lease_lost");
    world.pass_ms(4_999);
    assert_eq!(world.tasks.wake_due(10).await.unwrap().changed, []);
    world.pass_ms(1);
    let swept = world.tasks.wake_due(10).await.unwrap();
    assert_eq!(swept.changed, [(held.task.id, State::Pending)]);
    assert_eq!(came(&world, held.task.id).await, json!({"woken": "time"}));
    let again = claim_again(&world, held.task.id).await;
    assert_eq!(again.attempt, 2);
    assert_eq!(again.task.retry_count, 0);
    let story = world.story(held.task.id).await;
    assert_eq!(story[2..], ["wait:waiting", "wake:pending", "claim:running"]);
}

async fn a_wait_that_is_over_does_not_park(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let Parked::Woken(_, came) = park(&world, &held, Until::Time(world.now())).await.unwrap()
    else {
        panic!()
    };
    assert_eq!(came, json!({"woken": "time"}));
    world.finish(&held, complete()).await.unwrap();
}

async fn a_wait_that_was_woken_is_answered_with_what_came(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = parked(&world, signal("go")).await;
    send(&world, "go", Target::Task(held.task.id), json!({"n": 1})).await.unwrap();
    let again = claim_again(&world, held.task.id).await;
    for _ in 0..2 {
        let Parked::Woken(_, came) = park(&world, &again, signal("go")).await.unwrap() else {
            panic!()
        };
        assert_eq!((&came["woken"], &came["payload"]), (&json!("signal"), &json!({"n": 1})));
    }
    assert_eq!(world.status(held.task.id).await, State::Running);
}

async fn a_signal_wakes_the_task_that_waits_for_it(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = parked(&world, signal("go")).await;
    let target = Target::Task(held.task.id);
    let other = send(&world, "stop", target.clone(), json!(1)).await.unwrap();
    assert_eq!(other.woke, None);
    let sent = send(&world, "go", target, json!({"ok": true})).await.unwrap();
    assert_eq!(sent, Signalled { duplicate: false, woke: Some(held.task.id) });
    assert_eq!(came(&world, held.task.id).await["payload"], json!({"ok": true}));
    assert_eq!(world.status(held.task.id).await, State::Pending);
}

async fn a_signal_that_came_early_is_taken_by_the_wait(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    for n in [1, 2] {
        world.pass_ms(1);
        send(&world, "go", Target::Task(held.task.id), json!(n)).await.unwrap();
    }
    for (occurrence, n) in [(0, 1), (1, 2)] {
        let item = Park { occurrence: Some(occurrence), ..park_of(&held, signal("go")) };
        let Parked::Woken(_, came) = world.tasks.park(item).await.unwrap() else { panic!() };
        assert_eq!(came["payload"], json!(n));
    }
    let item = Park { occurrence: Some(2), ..park_of(&held, signal("go")) };
    assert!(matches!(world.tasks.park(item).await.unwrap(), Parked::Waiting(_)));
}

async fn a_signal_is_taken_by_one_wait(dialect: Dialect) {
    let world = World::new(dialect).await;
    let first = parked(&world, with_key("go", "k")).await;
    world.pass_ms(1);
    let second = parked(&world, with_key("go", "k")).await;
    let sent = send(&world, "go", Target::Key("k".into()), json!(1)).await.unwrap();
    assert_eq!(sent.woke, Some(first.task.id));
    assert_eq!(world.status(second.task.id).await, State::Waiting);
}

async fn a_signal_with_a_key_goes_to_whoever_has_waited_longest(dialect: Dialect) {
    let world = World::new(dialect).await;
    let elsewhere = parked(&world, with_key("go", "other")).await;
    world.pass_ms(1);
    let first = parked(&world, with_key("go", "k")).await;
    world.pass_ms(1);
    let second = parked(&world, with_key("go", "k")).await;
    for wanted in [Some(first.task.id), Some(second.task.id), None] {
        let sent = send(&world, "go", Target::Key("k".into()), json!(1)).await.unwrap();
        assert_eq!(sent.woke, wanted);
    }
    assert_eq!(world.status(elsewhere.task.id).await, State::Waiting);
    // The third one waits for somebody.
    let held = world.running(job()).await;
    assert!(matches!(park(&world, &held, with_key("go", "k")).await.unwrap(), Parked::Woken(..)));
}

async fn a_signal_with_a_key_passes_over_a_wait_that_is_over(dialect: Dialect) {
    let world = World::new(dialect).await;
    let gone = parked(&world, with_key("go", "k")).await;
    world.pass_ms(1);
    let second = parked(&world, with_key("go", "k")).await;
    world.cancel(gone.task.id).await.unwrap();
    let sent = send(&world, "go", Target::Key("k".into()), json!(1)).await.unwrap();
    assert_eq!(sent.woke, Some(second.task.id));
}

async fn a_signal_to_a_task_is_not_for_its_key(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = parked(&world, with_key("go", "k")).await;
    let sent = send(&world, "go", Target::Task(held.task.id), json!(1)).await.unwrap();
    assert_eq!(sent.woke, None);
    assert_eq!(world.status(held.task.id).await, State::Waiting);
}

async fn a_task_cannot_wait_for_itself(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let own = park(&world, &held, Until::Task(held.task.id)).await;
    assert_eq!(refused(own), "validation_failed");
    assert_eq!(world.status(held.task.id).await, State::Running);
}

async fn a_signal_sent_twice_is_one_signal(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = parked(&world, signal("go")).await;
    let (id, target) = (SignalId(Uuid::now_v7()), Target::Task(held.task.id));
    let sent = send_as(&world, id, "go", target.clone(), json!(1)).await.unwrap();
    assert!(!sent.duplicate);
    let again = send_as(&world, id, "go", target.clone(), json!(1)).await.unwrap();
    assert!(again.duplicate);
    let other = send_as(&world, id, "go", target, json!(2)).await;
    assert_eq!(refused(other), "idempotency_key_reused");
}

async fn a_signal_to_a_finished_or_unknown_task_is_refused(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    world.finish(&held, complete()).await.unwrap();
    let finished = send(&world, "go", Target::Task(held.task.id), json!(1)).await;
    assert_eq!(refused(finished), "task_finished");
    let unknown = send(&world, "go", Target::Task(TaskId(Uuid::new_v4())), json!(1)).await;
    assert_eq!(refused(unknown), "not_found");
}

async fn a_wait_for_a_signal_may_time_out(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let item = Park { timeout_ms: Some(1_000), ..park_of(&held, signal("go")) };
    world.tasks.park(item).await.unwrap();
    world.pass_ms(1_000);
    assert_eq!(world.tasks.wake_due(10).await.unwrap().changed.len(), 1);
    assert_eq!(came(&world, held.task.id).await, json!({"woken": "timeout"}));
    // What comes later waits for the next wait.
    let late = send(&world, "go", Target::Task(held.task.id), json!(1)).await.unwrap();
    assert_eq!(late.woke, None);
}

async fn a_task_wakes_when_the_other_ends(dialect: Dialect) {
    let world = World::new(dialect).await;
    let child = world.running(task(|r| r.queue = Some("child".into()))).await;
    let parent = parked(&world, Until::Task(child.task.id)).await;
    let ids = || Some(vec![child.task.id]);
    assert_eq!(world.tasks.wake_parents(ids(), 10).await.unwrap().changed, []);
    world.finish(&child, complete()).await.unwrap();
    let swept = world.tasks.wake_parents(ids(), 10).await.unwrap();
    assert_eq!(swept.changed, [(parent.task.id, State::Pending)]);
    let came = came(&world, parent.task.id).await;
    assert_eq!((&came["status"], &came["result"]), (&json!("completed"), &json!({"ok": true})));
    // The safety net finds what nobody was told of.
    let child = world.running(task(|r| r.queue = Some("child".into()))).await;
    let held = claim_again(&world, parent.task.id).await;
    park(&world, &held, Until::Task(child.task.id)).await.unwrap();
    world.cancel(child.task.id).await.unwrap();
    assert_eq!(world.tasks.wake_parents(None, 10).await.unwrap().changed.len(), 1);
}

async fn a_wait_for_a_finished_task_does_not_park(dialect: Dialect) {
    let world = World::new(dialect).await;
    let child = world.running(job()).await;
    world.finish(&child, fail("INVALID_INPUT")).await.unwrap();
    let held = world.running(job()).await;
    let parked = park(&world, &held, Until::Task(child.task.id)).await.unwrap();
    let Parked::Woken(_, came) = parked else { panic!() };
    assert_eq!(
        (&came["status"], &came["error"]["code"]),
        (&json!("failed"), &json!("INVALID_INPUT"))
    );
}

async fn a_wait_for_an_unknown_task_does_not_park(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let parked = park(&world, &held, Until::Task(TaskId(Uuid::new_v4()))).await.unwrap();
    let Parked::Woken(_, came) = parked else { panic!() };
    assert_eq!(came["woken"], "unknown_task");
}

async fn parking_twice_is_answered_like_the_first(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let item = park_of(&held, signal("go"));
    let first = world.tasks.park(item.clone()).await.unwrap();
    assert_eq!(world.tasks.park(item).await.unwrap(), first);
    assert_eq!(park(&world, &held, signal("go")).await.unwrap(), first);
    assert_eq!(world.story(held.task.id).await.len(), 3);
}

async fn parking_again_for_something_else_is_refused(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let first = || Park {
        timeout_ms: Some(5_000),
        checkpoint: Some("{\"at\":1}".into()),
        occurrence: None,
        ..park_of(&held, signal("go"))
    };
    let waiting = world.tasks.park(first()).await.unwrap();
    assert!(matches!(waiting, Parked::Waiting(_)));
    world.pass_ms(1_000);
    assert_eq!(world.tasks.park(first()).await.unwrap(), waiting, "the same call again");
    let plain = Park { checkpoint: None, ..first() };
    assert_eq!(world.tasks.park(plain).await.unwrap(), waiting, "absent means keep");
    let others = [
        Park { until: signal("stop"), ..first() },
        Park { until: with_key("go", "k"), ..first() },
        Park { until: Until::DelayMs(5_000), timeout_ms: None, ..first() },
        Park { timeout_ms: Some(6_000), ..first() },
        Park { timeout_ms: None, ..first() },
        Park { occurrence: Some(1), ..first() },
        Park { checkpoint: Some("{\"at\":2}".into()), ..first() },
    ];
    for other in others {
        let told = format!("{other:?}");
        assert_eq!(refused(world.tasks.park(other).await), "already_finished", "{told}");
    }
    let shown = world.show(held.task.id).await;
    assert_eq!((shown.status, shown.checkpoint), (State::Waiting, Some(json!({ "at": 1 }))));
    // Once it goes on, its lease is simply lost.
    send(&world, "go", Target::Task(held.task.id), json!(1)).await.unwrap();
    assert_eq!(refused(world.tasks.park(first()).await), "lease_lost");
}

async fn parking_under_a_lost_lease_is_refused(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    world.pass_ms(60_000);
    assert_eq!(refused(park(&world, &held, signal("go")).await), "lease_lost");
    world.tasks.expire_leases(10).await.unwrap();
    assert_eq!(refused(park(&world, &held, signal("go")).await), "lease_lost");
    assert!(Steps::new(world.store.clone()).list(held.task.id, 0, 9).await.unwrap().is_empty());
}

async fn a_cancelled_wait_is_forgotten(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = parked(&world, Until::DelayMs(1_000)).await;
    world.cancel(held.task.id).await.unwrap();
    world.pass_ms(1_000);
    assert_eq!(world.tasks.wake_due(10).await.unwrap().changed, []);
    assert_eq!(world.by_hand("SELECT count(*) FROM wait").unwrap(), "0");
}

/// A person takes the task out of its wait, and a worker takes it.
async fn moved_by_hand(world: &World, task: TaskId) -> Assignment {
    world
        .by_hand(&format!("UPDATE task_state SET status = 'pending' WHERE id = '{task}'"))
        .unwrap();
    claim_again(world, task).await
}

async fn a_task_moved_out_of_its_wait_by_hand_parks_on_it_again(dialect: Dialect) {
    let world = World::new(dialect).await;
    let first = parked(&world, signal("go")).await;
    let task = first.task.id;
    let held = moved_by_hand(&world, task).await;
    let item = park_of(&held, signal("go"));
    let again = world.tasks.park(item.clone()).await.unwrap();
    assert!(matches!(again, Parked::Waiting(_)), "{again:?}");
    assert_eq!(world.tasks.park(item).await.unwrap(), again, "the same call again");
    let steps = Steps::new(world.store.clone()).list(task, 0, 10).await.unwrap();
    assert_eq!((steps.len(), steps[0].status, steps[0].attempt), (1, StepState::Waiting, 2));
    // One that does not say which repetition it is means the one that is not over.
    let held = moved_by_hand(&world, task).await;
    let unnamed = Park { occurrence: None, ..park_of(&held, signal("go")) };
    assert_eq!(world.tasks.park(unnamed).await.unwrap(), again);
    let sent = send(&world, "go", Target::Task(task), json!(1)).await.unwrap();
    assert_eq!(sent.woke, Some(task));
    assert_eq!(came(&world, task).await["payload"], 1);
}

async fn a_wait_taken_up_again_keeps_its_clock(dialect: Dialect) {
    let world = World::new(dialect).await;
    let sleep = || Until::DelayMs(5_000);
    let task = parked(&world, sleep()).await.task.id;
    world.pass_ms(3_000);
    let held = moved_by_hand(&world, task).await;
    assert!(matches!(park(&world, &held, sleep()).await.unwrap(), Parked::Waiting(_)));
    world.pass_ms(2_000);
    assert_eq!(world.tasks.wake_due(10).await.unwrap().changed, [(task, State::Pending)]);
    // And one whose time came while the task was elsewhere is over.
    let held = claim_again(&world, task).await;
    let until = Until::DelayMs(1_000);
    assert!(matches!(park(&world, &held, until.clone()).await.unwrap(), Parked::Waiting(_)));
    let held = moved_by_hand(&world, task).await;
    world.pass_ms(1_000);
    let over = park(&world, &held, until).await.unwrap();
    assert!(matches!(over, Parked::Woken(..)), "{over:?}");
}

async fn what_came_meanwhile_ends_a_wait_that_is_taken_up_again(dialect: Dialect) {
    let world = World::new(dialect).await;
    let task = parked(&world, signal("go")).await.task.id;
    let held = moved_by_hand(&world, task).await;
    let sent = send(&world, "go", Target::Task(task), json!(7)).await.unwrap();
    assert_eq!(sent.woke, None, "it does not wait");
    let woken = park(&world, &held, signal("go")).await.unwrap();
    let Parked::Woken(_, result) = woken else { panic!("{woken:?}") };
    assert_eq!((&result["payload"], came(&world, task).await), (&json!(7), result.clone()));
}

async fn repeated_waits_are_told_apart(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    send(&world, "go", Target::Task(held.task.id), json!(1)).await.unwrap();
    let next = || Park { occurrence: None, ..park_of(&held, signal("go")) };
    assert!(matches!(world.tasks.park(next()).await.unwrap(), Parked::Woken(..)));
    assert!(matches!(world.tasks.park(next()).await.unwrap(), Parked::Waiting(_)));
}

async fn signals_and_waits_that_race_always_meet(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    for round in 0..30 {
        let held = world.running(job()).await;
        let (until, target) = match round % 2 {
            0 => (signal("go"), Target::Task(held.task.id)),
            _ => (with_key("go", "k"), Target::Key("k".into())),
        };
        let (parked, sent) =
            tokio::join!(park(&world, &held, until), send(&world, "go", target, json!(round)));
        let woke = sent.unwrap().woke;
        match parked.unwrap() {
            Parked::Woken(..) => assert_eq!(woke, None),
            Parked::Waiting(_) => assert_eq!(woke, Some(held.task.id), "round {round}"),
        }
        world.cancel(held.task.id).await.unwrap();
    }
}

async fn a_taken_signal_cannot_be_changed_by_hand(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = parked(&world, signal("go")).await;
    send(&world, "go", Target::Task(held.task.id), json!(1)).await.unwrap();
    for sql in [
        "UPDATE signal SET taken_by = NULL, taken_at = NULL",
        "UPDATE signal SET payload = '2'",
        "UPDATE signal SET name = 'stop'",
    ] {
        assert!(world.by_hand(sql).unwrap_err().contains("windlass"), "{sql}");
    }
}
