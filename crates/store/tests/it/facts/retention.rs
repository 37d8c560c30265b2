//! Retention: what is kept for ever, and what goes when its time is over.

use crate::world::*;
use uuid::Uuid;
use windlass_domain::approval::Choice;
use windlass_domain::approval::token::Token;
use windlass_domain::id::TaskId;
use windlass_domain::replay::ReplayFrom;
use windlass_domain::state::State;
use windlass_domain::time::Timestamp;
use windlass_store::approval::Issue;
use windlass_store::statement::Dialect;
use windlass_store::task::{Consent, Replay};

conformance!(
    a_finished_inference_is_removed_with_all_its_traces_after_seven_days,
    jobs_and_delegations_are_kept_for_ever,
    what_a_living_replay_must_know_of_is_kept,
    a_family_of_replays_is_kept_while_any_of_it_lives,
    a_replay_stays_as_long_as_a_person_must_look_at_its_family,
);

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

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
async fn failed(world: &World) -> TaskId {
    let held = world.running(inference()).await;
    world.finish(&held, fail("INVALID_INPUT")).await.unwrap();
    held.task.id
}

/// A replay that nobody is asked about.
async fn again(world: &World, origin: TaskId) -> TaskId {
    let replay = Replay {
        origin,
        id: TaskId(Uuid::now_v7()),
        from: ReplayFrom::Beginning,
        allow_non_idempotent: false,
        actor: "olga".into(),
    };
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
    // The replays first, then what they repeat.
    assert_eq!(removed().await, 2);
    assert_eq!(removed().await, 1);
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
    assert_eq!(removed().await, 1, "the leaf of a family that has ended");
    assert_eq!(world.tasks.show(stranger).await.unwrap(), None);
    for kept in [root, uncle, father, brother, nephew, living] {
        assert!(world.tasks.show(kept).await.unwrap().is_some());
    }
    assert_eq!(removed().await, 1, "and its root");
    assert_eq!(removed().await, 0);
    world.cancel(living).await.unwrap();
    assert_eq!(removed().await, 0, "one of them ended a moment ago");
    later().await;
    // From the leaves on, because nothing is removed that others repeat: uncle, nephew and the one
    // that lived longest, then the brother, the father and the root.
    assert_eq!((removed().await, removed().await, removed().await), (3, 1, 1));
    assert_eq!((removed().await, removed().await), (1, 0));
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
