//! Retention: what is kept for ever, and what goes when its time is over.

use crate::world::*;
use uuid::Uuid;
use windlass_domain::approval::Choice;
use windlass_domain::approval::token::Token;
use windlass_domain::id::{ApprovalId, StepId, TaskId};
use windlass_domain::replay::ReplayFrom;
use windlass_domain::state::State;
use windlass_domain::step::{StepInput, check};
use windlass_domain::task::NewTask;
use windlass_domain::time::Timestamp;
use windlass_domain::wait::Until;
use windlass_store::approval::{Issue, ReplayRequest, Requested};
use windlass_store::statement::Dialect;
use windlass_store::task::{BeginStep, Begun, Consent, Holder, Parked, Replay, Resolution};

conformance!(
    a_finished_inference_is_removed_with_all_its_traces_after_seven_days,
    what_ended_a_moment_ago_is_removed_when_it_is_kept_for_no_longer,
    jobs_and_delegations_are_kept_for_ever,
    what_a_living_replay_must_know_of_is_kept,
    a_family_of_replays_is_kept_while_any_of_it_lives,
    a_replay_stays_as_long_as_a_person_must_look_at_its_family,
    what_a_person_has_still_to_decide_is_kept,
    what_another_task_waits_for_is_kept_until_that_is_told,
    a_family_goes_in_one_transaction_and_what_stays_holds_up_nobody,
    families_go_one_after_the_other_when_a_transaction_has_enough,
    a_family_whose_root_is_gone_is_one_all_the_same,
    a_family_with_a_member_that_is_kept_for_ever_stays,
);

pub const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

async fn a_finished_inference_is_removed_with_all_its_traces_after_seven_days(dialect: Dialect) {
    let world = World::new(dialect).await;
    // PostgreSQL compares with its own clock, too.
    world.set_now(Timestamp::from_ms(NOON - 3_650 * DAY_MS));
    let mut tagged = inference();
    tagged.tags = [("team".to_owned(), "x".to_owned())].into();
    let held = world.running(tagged).await;
    let asked = world.asked(&held, question("gate", None)).await.id;
    let token = Token::new(Uuid::now_v7(), [1, 2, 3].map(Uuid::from_u128));
    let (approver, issued_by) = ("ann".to_owned(), "ops".to_owned());
    let issue = Issue { approval: asked, approver, expires_ms: 1, issued_by, token };
    world.approvals().issue(issue).await.unwrap();
    world.vote(asked, "bob", Choice::Deny).await.unwrap();
    let responses = windlass_store::response::Responses::new(world.store.clone());
    assert!(!responses.is_deleted(held.task.id).await.unwrap());
    assert!(responses.delete(held.task.id, "ann").await.unwrap());
    assert!(!responses.delete(held.task.id, "ann").await.unwrap(), "once");
    assert!(responses.is_deleted(held.task.id).await.unwrap());
    let alive = world.submit(inference()).await;
    let late = world.running(job()).await;
    world.pass_ms(7 * DAY_MS - 1);
    assert_eq!(world.tasks.remove_expired(None, 100).await.unwrap(), 0);
    world.pass_ms(1);
    world.finish(&late, complete()).await.unwrap();
    assert_eq!(world.tasks.remove_expired(None, 100).await.unwrap(), 1);
    assert_eq!(world.tasks.show(held.task.id).await.unwrap(), None);
    assert_eq!(world.status(alive).await, State::Pending);
    for table in [
        "task_spec",
        "task_state",
        "task_progress",
        "task_history",
        "task_tag",
        "approval_vote",
        "approval_token",
        "deleted_response",
    ] {
        let column =
            if table.ends_with("spec") || table.ends_with("state") { "id" } else { "task_id" };
        let sql = format!("SELECT count(*) FROM {table} WHERE {column} = '{}'", held.task.id);
        assert_eq!(world.by_hand(&sql).unwrap(), "0", "{table}");
    }
    let approvals = format!("SELECT count(*) FROM approval WHERE id = '{asked}'");
    assert_eq!(world.by_hand(&approvals).unwrap(), "0");
    // Three of its transitions stood in the log, and the last of them is the last place removed.
    let removed = world.tasks.removed().await.unwrap();
    let kept = world.tasks.history(late.task.id, 0, 1).await.unwrap()[0].seq;
    assert!(removed.seq > 0 && removed.seq != kept, "{removed:?}");
    // The gate is closed again, and the audit knows how many they were.
    let audit = "SELECT event, detail ->> 'tasks' FROM audit WHERE event = 'retention'";
    assert_eq!(world.by_hand(audit).unwrap(), "retention|1");
    assert!(world.by_hand("DELETE FROM audit").is_err());
    assert!(world.by_hand("UPDATE audit SET detail = '{}'").is_err());
    assert!(world.by_hand("DELETE FROM task_history").is_err());
}

/// PostgreSQL compared with the seven days of the profile, by its own clock, and refused to remove
/// what was to be kept for a shorter time.
async fn what_ended_a_moment_ago_is_removed_when_it_is_kept_for_no_longer(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let removed = async |keep_ms| world.tasks.remove_expired(keep_ms, 100).await.unwrap();
    for keep_ms in [0, 1] {
        let mut tagged = inference();
        tagged.tags = [("team".to_owned(), "x".to_owned())].into();
        let held = world.running(tagged).await;
        let asked = world.asked(&held, question("gate", None)).await.id;
        world.vote(asked, "bob", Choice::Deny).await.unwrap();
        let done = world.running(job()).await;
        world.finish(&done, complete()).await.unwrap();
        for longer in [None, Some(30 * DAY_MS), Some(DAY_MS / 24)] {
            assert_eq!(removed(longer).await, 0, "{longer:?}");
        }
        assert!(world.tasks.show(held.task.id).await.unwrap().is_some());
        let ended = world.show(held.task.id).await.finished_at.unwrap();
        let now = async || world.store.read("now", |tx| tx.now()).await.unwrap();
        while now().await.since_ms(ended) < keep_ms {}
        assert_eq!(removed(Some(keep_ms)).await, 1);
        assert_eq!(world.tasks.show(held.task.id).await.unwrap(), None);
        assert_eq!(world.status(done.task.id).await, State::Completed, "a job is kept for ever");
        // The gate is closed behind it.
        assert!(world.by_hand("DELETE FROM task_history").is_err());
    }
}

async fn jobs_and_delegations_are_kept_for_ever(dialect: Dialect) {
    let world = World::new(dialect).await;
    for new in [job(), delegation(|_| {})] {
        let held = world.running(new).await;
        world.finish(&held, complete()).await.unwrap();
    }
    world.pass_ms(3_650 * DAY_MS);
    assert_eq!(world.tasks.remove_expired(None, 100).await.unwrap(), 0);
}

/// An inference that has failed.
pub async fn failed(world: &World) -> TaskId {
    let held = world.running(inference()).await;
    world.finish(&held, fail("INVALID_INPUT")).await.unwrap();
    held.task.id
}

/// A replay from the beginning.
pub fn replay_of_all(origin: TaskId) -> Replay {
    Replay {
        origin,
        id: TaskId(Uuid::now_v7()),
        from: ReplayFrom::Beginning,
        allow_non_idempotent: false,
        actor: "olga".into(),
    }
}

/// A replay that nobody is asked about.
pub async fn again(world: &World, origin: TaskId) -> TaskId {
    let replay = replay_of_all(origin);
    let id = replay.id;
    world.tasks.replay(replay, Consent::Given).await.unwrap();
    id
}

async fn what_a_living_replay_must_know_of_is_kept(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.set_now(Timestamp::from_ms(NOON - 3_650 * DAY_MS));
    let removed = async || world.tasks.remove_expired(None, 100).await.unwrap();
    let root = failed(&world).await;
    let living = again(&world, root).await;
    let beside = again(&world, root).await;
    world.cancel(beside).await.unwrap();
    // Something newer, because on SQLite the newest entry of the log stays.
    world.pass_ms(8 * DAY_MS);
    world.submit(job()).await;
    assert_eq!(removed().await, 0);
    world.cancel(living).await.unwrap();
    world.pass_ms(8 * DAY_MS);
    world.submit(job()).await;
    assert_eq!((removed().await, removed().await), (3, 0));
}

/// An uncle and a nephew of a living replay were removed, and with them what they ran.
async fn a_family_of_replays_is_kept_while_any_of_it_lives(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.set_now(Timestamp::from_ms(NOON - 3_650 * DAY_MS));
    let removed = async || world.tasks.remove_expired(None, 100).await.unwrap();
    let later = async || {
        world.pass_ms(8 * DAY_MS);
        world.submit(job()).await;
    };
    let root = failed(&world).await;
    let ended = async |origin| {
        let id = again(&world, origin).await;
        world.cancel(id).await.unwrap();
        id
    };
    // root -> uncle; root -> father -> (living, brother -> nephew)
    let (uncle, father) = (ended(root).await, ended(root).await);
    let brother = ended(father).await;
    let nephew = ended(brother).await;
    let stranger = ended(failed(&world).await).await;
    let living = again(&world, father).await;
    later().await;
    assert_eq!(removed().await, 2, "a family that has ended");
    assert_eq!(world.tasks.show(stranger).await.unwrap(), None);
    for kept in [root, uncle, father, brother, nephew, living] {
        assert!(world.tasks.show(kept).await.unwrap().is_some());
    }
    assert_eq!(removed().await, 0);
    world.cancel(living).await.unwrap();
    assert_eq!(removed().await, 0, "one of them ended a moment ago");
    later().await;
    assert_eq!((removed().await, removed().await), (6, 0), "all of them at once");
}

/// A finished replay was removed while its root stayed for a person, and what it had run could be
/// run once more by the next replay, without anybody's word.
async fn a_replay_stays_as_long_as_a_person_must_look_at_its_family(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.set_now(Timestamp::from_ms(NOON - 3_650 * DAY_MS));
    let held = world.running(inference()).await;
    world.finish(&held, fail("POISON_TASK")).await.unwrap();
    let root = held.task.id;
    assert_eq!(world.status(root).await, State::Poisoned);
    let replay = again(&world, root).await;
    world.cancel(replay).await.unwrap();
    world.pass_ms(8 * DAY_MS);
    world.submit(job()).await;
    assert_eq!(world.tasks.remove_expired(None, 100).await.unwrap(), 0);
    assert!(world.tasks.show(replay).await.unwrap().is_some());
}

async fn what_a_person_has_still_to_decide_is_kept(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.set_now(Timestamp::from_ms(NOON - 3_650 * DAY_MS));
    let removed = async || world.tasks.remove_expired(None, 100).await.unwrap();
    // A step that began, and nobody knows whether it ran: alone, and in a family.
    let (alone, _) = (left_begun(&world).await, failed(&world).await);
    let root = left_begun(&world).await;
    let replay = replay_of_all(root.0);
    world.tasks.resolve_step(root.1, Resolution::AllowRerun, "olga".into(), None).await.unwrap();
    world.pass_ms(8 * DAY_MS);
    let request = ReplayRequest {
        replay,
        consent: Consent::UpTo { threshold: 1, is_required: true },
        approval: ApprovalId(Uuid::now_v7()),
        requested_by: "olga".into(),
        announce: None,
        resolves: None,
    };
    let asked = world.approvals().replay(request).await.unwrap();
    let Requested::Waits(question) = asked else { panic!("nobody was asked") };
    world.submit(job()).await;
    assert_eq!(removed().await, 1, "of one nobody has to decide anything");
    world.tasks.resolve_step(alone.1, Resolution::Fail, "olga".into(), None).await.unwrap();
    assert_eq!(removed().await, 1);
    assert!(world.tasks.show(root.0).await.unwrap().is_some(), "its replay was asked for");
    world.vote(question.id, "bob", Choice::Deny).await.unwrap();
    assert_eq!(removed().await, 1);
}

/// Whoever waited for it found nothing to be woken by, and waited for ever.
async fn what_another_task_waits_for_is_kept_until_that_is_told(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.set_now(Timestamp::from_ms(NOON - 3_650 * DAY_MS));
    let removed = async || world.tasks.remove_expired(None, 100).await.unwrap();
    let (alone, root) = (world.running(inference()).await, failed(&world).await);
    let replay = again(&world, root).await;
    let [waits, other] = [world.running(job()).await, world.running(job()).await];
    for (held, child) in [(&waits, alone.task.id), (&other, replay)] {
        let waiting = super::wait::park(&world, held, Until::Task(child)).await.unwrap();
        assert!(matches!(waiting, Parked::Waiting(_)));
    }
    world.finish(&alone, complete()).await.unwrap();
    world.cancel(replay).await.unwrap();
    world.pass_ms(8 * DAY_MS);
    world.submit(job()).await;
    assert_eq!(removed().await, 0);
    assert_eq!(world.tasks.wake_parents(None, 10).await.unwrap().changed.len(), 2);
    assert_eq!(world.status(waits.task.id).await, State::Pending);
    assert_eq!(removed().await, 3);
}

/// An inference that failed while a step of it ran that must not run twice.
async fn left_begun(world: &World) -> (TaskId, StepId) {
    let held = world.running(inference()).await;
    let input = StepInput { name: "charge", kind: None, inputs: None, occurrence: None };
    let holder = Holder::new(held.task.id, held.lease_id, "w1");
    let begun = world.tasks.begin_step(BeginStep { holder, step: check(&input).unwrap() }).await;
    let Begun::New(id, _) = begun.unwrap() else { panic!("it has run before") };
    world.finish(&held, fail("INVALID_INPUT")).await.unwrap();
    (held.task.id, id)
}

/// A family went from its leaves on, in as many transactions as it had generations, and whoever
/// made a replay in between was not told what those had run that were gone.
async fn a_family_goes_in_one_transaction_and_what_stays_holds_up_nobody(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.set_now(Timestamp::from_ms(NOON - 3_650 * DAY_MS));
    // Two families, the older one with somebody who lives: more of each than a page has.
    let roots = [failed(&world).await, failed(&world).await];
    failed(&world).await;
    let mut living = None;
    for mut origin in roots {
        for n in 0..7 {
            let id = again(&world, origin).await;
            if n == 3 && living.is_none() {
                living = Some(id);
                continue;
            }
            world.cancel(id).await.unwrap();
            // Brothers and generations.
            origin = if n % 2 == 0 { id } else { origin };
        }
    }
    world.pass_ms(8 * DAY_MS);
    world.submit(job()).await;
    assert_eq!(world.tasks.remove_expired(None, 3).await.unwrap(), 8 + 1);
    assert_eq!(at_once(&world), "9");
    world.cancel(living.unwrap()).await.unwrap();
    world.pass_ms(8 * DAY_MS);
    world.submit(job()).await;
    assert_eq!(world.tasks.remove_expired(None, 3).await.unwrap(), 8);
    assert_eq!(at_once(&world), "9\n8");
}

/// How many tasks went with each transaction.
fn at_once(world: &World) -> String {
    let audit = "SELECT detail ->> 'tasks' FROM audit WHERE event = 'retention' ORDER BY seq";
    world.by_hand(audit).unwrap()
}

async fn families_go_one_after_the_other_when_a_transaction_has_enough(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.set_now(Timestamp::from_ms(NOON - 3_650 * DAY_MS));
    let roots = [failed(&world).await, failed(&world).await, failed(&world).await];
    for root in roots {
        let id = again(&world, root).await;
        world.cancel(id).await.unwrap();
    }
    world.pass_ms(8 * DAY_MS);
    world.submit(job()).await;
    // Each page has two of the roots, and the first of them has enough.
    assert_eq!(world.tasks.remove_expired(None, 2).await.unwrap(), 6);
    assert_eq!(at_once(&world), "2\n2\n2");
}

/// A task that has ended and repeats another, as a database may have it from earlier times.
async fn replay_of(world: &World, new: NewTask, origin: TaskId) -> TaskId {
    let new = NewTask { replay_of: Some(origin), ..new };
    let id = world.submit(new).await;
    world.cancel(id).await.unwrap();
    id
}

async fn a_family_whose_root_is_gone_is_one_all_the_same(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.set_now(Timestamp::from_ms(NOON - 3_650 * DAY_MS));
    let gone = TaskId(Uuid::now_v7());
    let first = replay_of(&world, inference(), gone).await;
    let second = replay_of(&world, inference(), gone).await;
    let living = again(&world, second).await;
    world.pass_ms(8 * DAY_MS);
    world.submit(job()).await;
    assert_eq!(world.tasks.remove_expired(None, 100).await.unwrap(), 0);
    assert!(world.tasks.show(first).await.unwrap().is_some());
    world.cancel(living).await.unwrap();
    world.pass_ms(8 * DAY_MS);
    world.submit(job()).await;
    assert_eq!(world.tasks.remove_expired(None, 100).await.unwrap(), 3);
}

/// Nobody makes such a family but by hand; removing half of it would be refused every time, and
/// with it everything else on the page.
async fn a_family_with_a_member_that_is_kept_for_ever_stays(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.set_now(Timestamp::from_ms(NOON - 3_650 * DAY_MS));
    let root = failed(&world).await;
    replay_of(&world, job(), root).await;
    failed(&world).await;
    world.pass_ms(8 * DAY_MS);
    world.submit(job()).await;
    assert_eq!(world.tasks.remove_expired(None, 100).await.unwrap(), 1);
    assert!(world.tasks.show(root).await.unwrap().is_some());
}
