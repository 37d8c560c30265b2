//! What a sweep of delegations costs: what is in flight, whatever has ended.

use crate::plan::{buffers, steps};
use crate::plan_case::{Case, reads};
use crate::world::*;
use std::time::{Duration, Instant};
use windlass_domain::command::Command;
use windlass_domain::state::State;
use windlass_domain::time::Timestamp;
use windlass_store::statement::Dialect;
use windlass_store::task::Ask;

/// So many that beat.
const BEATING: usize = 1_000;
/// What is loaded has been submitted by then, and is not overdue yet: 2026-01-01T03:00:00Z.
const THEN: i64 = 1_767_236_400_000;

/// Delegations that run elsewhere: so many, of which a thousand beat.
async fn fly(world: &World, many: usize) {
    let mut beating = 0;
    for begun in (0..many).step_by(500) {
        let new = (begun..many.min(begun + 500)).map(|_| ledger()).collect();
        for submitted in world.submit_all(new).await {
            let id = submitted.unwrap().id;
            if beating < BEATING {
                let (to, holder) = (State::Running, "boss".to_owned());
                let command = Command::Report { to, result: None, error: None, holder };
                world.tasks.report(Ask::new(id, command, "boss")).await.unwrap();
                world.tasks.report(Ask::new(id, Command::ReportBeat, "boss")).await.unwrap();
                beating += 1;
            }
        }
    }
}

/// The quickest of some sweeps that find nothing wrong.
async fn quickest(world: &World, flying: usize) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..15 {
        let begun = Instant::now();
        let report = world.tasks.sweep_delegations(500).await.unwrap();
        best = best.min(begun.elapsed());
        assert_eq!((report.scanned, report.changed, report.errors), (flying, Vec::new(), 0));
    }
    best
}

/// What the statements of a sweep that finds nothing wrong touch: pages, or steps on SQLite.
fn touched(world: &World) -> i64 {
    let then = "'2026-01-01T03:00Z'";
    let cases: [(Case, usize); 2] = [
        (
            reads(
                "task/sweep_delegations",
                &[(1, then), (2, "'2026-01-01T02:50Z'"), (3, "500")],
                &[],
                &[],
            ),
            0,
        ),
        (reads("task/count_delegations", &[], &[], &[]), 1),
    ];
    let one = |(case, rows): &(Case, usize)| match world.dialect() {
        Dialect::Postgres => buffers(world, case, *rows),
        Dialect::Sqlite => {
            let silent = Timestamp::from_ms(THEN).plus_ms(-600_000).as_ms();
            steps(world, case.name, &[&THEN, &silent, &500])
        }
    };
    cases.iter().map(one).sum()
}

/// A sweep over what is in flight among a million that ended finds just that, and touches at most
/// twice as much as the same number alone. How long it takes beside it is printed and not asserted.
pub async fn costs_what_is_in_flight(loaded: &World) {
    let small = World::new(loaded.dialect()).await;
    small.set_now(Timestamp::from_ms(THEN));
    loaded.set_now(Timestamp::from_ms(THEN));
    loaded.tasks.bind(None);
    fly(loaded, BEATING).await;
    let flying = loaded.tasks.count_delegations().await.unwrap();
    assert!(flying >= BEATING, "{flying}");
    fly(&small, flying).await;
    if loaded.dialect() == Dialect::Postgres {
        // As autovacuum does by itself, sooner or later: where little is dead it leaves it for now.
        for world in [&small, loaded] {
            world.by_hand("VACUUM (ANALYZE, INDEX_CLEANUP ON) task_state").unwrap();
        }
    }
    let (alone, among) = (touched(&small), touched(loaded));
    println!("a sweep of {flying} in flight touches {alone} alone, {among} among a million");
    // A few pages more are a deeper tree.
    assert!(among <= 2 * alone + 16, "{among} among a million, {alone} alone");
    let (alone, among) = (quickest(&small, flying).await, quickest(loaded, flying).await);
    println!("a sweep of {flying} in flight: {alone:?} alone, {among:?} among a million");
}
