//! Counts: right after every story, also after the tally was folded.

use crate::world::*;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use windlass_domain::command::Command;
use windlass_domain::profile::Profile;
use windlass_domain::state::State;
use windlass_store::statement::Dialect;
use windlass_store::task::{Claim, Counts, Finishing};

conformance!(
    an_empty_world_counts_nothing,
    a_mixed_story_is_counted_by_state,
    what_can_be_claimed_is_counted_by_lane,
    folding_the_tally_changes_no_count,
    a_long_history_is_folded_bit_by_bit_to_its_end,
    what_is_held_in_all_is_what_the_states_say,
);

async fn an_empty_world_counts_nothing(dialect: Dialect) {
    let world = World::new(dialect).await;
    assert_eq!(world.tasks.counts().await.unwrap(), Counts::default());
    world.tasks.fold_tally().await.unwrap();
    assert_eq!(world.tasks.counts().await.unwrap(), Counts::default());
}

/// Something in every state; what must be counted.
async fn mixed_story(world: &World) -> BTreeMap<State, i64> {
    world.submit_all((0..20).map(|_| job()).collect()).await;
    let claim = Claim { start: true, ..claim_of("w1", &["q"], 14) };
    let held = world.tasks.claim(claim).await.unwrap();
    let batch = vec![
        finish_of(&held[0], complete()),
        finish_of(&held[1], complete()),
        finish_of(&held[2], complete()),
        finish_of(&held[3], fail("INVALID_INPUT")),
        finish_of(&held[4], fail("INVALID_INPUT")),
        finish_of(&held[5], fail("POISON_TASK")),
        finish_of(&held[6], fail("TIMEOUT")),
        finish_of(&held[7], Finishing::Release),
    ];
    assert!(world.tasks.finish(batch).await.iter().all(Result::is_ok));
    world.cancel(held[8].task.id).await.unwrap();
    let lease_id = held[9].lease_id;
    world.ask(held[9].task.id, Command::Wait { lease_id }).await.unwrap();
    world.ask_approval(&held[10]).await.unwrap();
    world.submit(task(|r| r.delay_ms = Some(60_000))).await;
    let stuck = world.submit(ledger()).await;
    let (to, holder) = (State::Stuck, "boss".to_owned());
    world.ask(stuck, Command::Report { to, result: None, error: None, holder }).await.unwrap();
    world.claim("w2", 2).await;
    [
        (State::Pending, 6),
        (State::Claimed, 2),
        (State::Running, 3),
        (State::WaitingForApproval, 1),
        (State::Waiting, 1),
        (State::Retry, 1),
        (State::Completed, 3),
        (State::Failed, 2),
        (State::Cancelled, 1),
        (State::Stuck, 1),
        (State::Poisoned, 1),
    ]
    .into()
}

async fn a_mixed_story_is_counted_by_state(dialect: Dialect) {
    let world = World::new(dialect).await;
    let expected = mixed_story(&world).await;
    assert_eq!(world.tasks.counts().await.unwrap().by_status, expected);
}

async fn what_can_be_claimed_is_counted_by_lane(dialect: Dialect) {
    let world = World::new(dialect).await;
    let elsewhere = || task(|r| r.queue = Some("other".into()));
    // The urgent one is claimed: of two kinds that are due at the same moment either may be first.
    let urgent = task(|r| r.priority = Some(1));
    let batch = vec![urgent, job(), inference(), elsewhere(), ledger()];
    world.submit_all(batch).await;
    world.submit(task(|r| r.delay_ms = Some(1_000))).await;
    world.claim("w1", 1).await;
    let expected = [
        ("other".to_owned(), Profile::Job, 1),
        ("q".to_owned(), Profile::Job, 1),
        ("q".to_owned(), Profile::Inference, 1),
    ];
    assert_eq!(world.tasks.counts().await.unwrap().ready, expected);
}

async fn folding_the_tally_changes_no_count(dialect: Dialect) {
    let world = World::new(dialect).await;
    mixed_story(&world).await;
    let before = world.tasks.counts().await.unwrap();
    for _ in 0..2 {
        world.tasks.fold_tally().await.unwrap();
        assert_eq!(world.tasks.counts().await.unwrap(), before);
    }
    let held = world.running(job()).await;
    world.finish(&held, complete()).await.unwrap();
    let after = world.tasks.counts().await.unwrap();
    assert_eq!(after.by_status[&State::Completed], before.by_status[&State::Completed] + 1);
}

async fn a_long_history_is_folded_bit_by_bit_to_its_end(dialect: Dialect) {
    let world = World::new(dialect).await;
    mixed_story(&world).await;
    let before = world.tasks.counts().await.unwrap();
    let sum = "SELECT coalesce(sum(ended), 0) FROM task_tally";
    let ended = before.by_status.iter().filter(|(state, _)| state.is_terminal());
    let ended: i64 = ended.map(|(_, count)| count).sum();
    // Nothing is left that a count would have to read. A fold goes as far as the log stands: before
    // whatever any transaction of the whole cluster may still write, so those of other tests must
    // have ended first. SQLite has no such others: there one fold does it.
    let patience_s = if dialect == Dialect::Postgres { 30 } else { 0 };
    let until = Instant::now() + Duration::from_secs(patience_s);
    loop {
        world.tasks.fold_tally_by(3).await.unwrap();
        assert_eq!(world.tasks.counts().await.unwrap(), before);
        let folded = world.by_hand(sum).unwrap();
        if folded.trim() == ended.to_string() {
            break;
        }
        assert!(Instant::now() < until, "{folded} of {ended}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn what_is_held_in_all_is_what_the_states_say(dialect: Dialect) {
    let world = World::new(dialect).await;
    assert_eq!(world.tasks.in_all().await.unwrap(), (0, 0));
    let states = mixed_story(&world).await;
    let of = |wanted: &[State]| -> i64 { wanted.iter().map(|state| states[state]).sum() };
    let active = of(&[State::Claimed, State::Running]);
    let pending = of(&[State::Pending, State::Retry]);
    assert_eq!(world.tasks.in_all().await.unwrap(), (active, pending));
}
