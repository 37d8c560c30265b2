//! Lanes that hold nothing: many of them make nothing slow, and removing them loses nothing.

use crate::world::*;
use windlass_domain::command::Command;
use windlass_domain::limit::{Limits, Rule, Scope};
use windlass_domain::state::State;
use windlass_domain::task::NewTask;
use windlass_store::statement::Dialect;

conformance!(
    lanes_that_hold_nothing_do_not_pile_up_where_they_are_counted,
    what_lives_keeps_its_lane_and_its_count,
);

fn of(venture: usize) -> NewTask {
    task(|r| r.venture = Some(format!("v{venture}")))
}

fn lanes(world: &World) -> usize {
    world.by_hand("SELECT count(*) FROM lane").unwrap().parse().unwrap()
}

/// Many ventures that came once and went.
async fn pass_by(world: &World, ventures: std::ops::Range<usize>) {
    for outcome in world.submit_all(ventures.map(of).collect()).await {
        world.cancel(outcome.unwrap().id).await.unwrap();
    }
}

async fn lanes_that_hold_nothing_do_not_pile_up_where_they_are_counted(dialect: Dialect) {
    let world = World::new(dialect).await;
    pass_by(&world, 0..1_050).await;
    assert_eq!(lanes(&world), 1_050);
    world.tasks.fold_counts().await.unwrap();
    // On PostgreSQL nobody counts lanes, and other nodes rely on them.
    let kept = if dialect == Dialect::Sqlite { 1_000 } else { 1_050 };
    assert_eq!(lanes(&world), kept);
    // One that is gone is made again, and what stands in it is found at once.
    let id = world.submit(of(3)).await;
    assert_eq!(world.claim("w1", 5).await[0].task.id, id);
}

async fn what_lives_keeps_its_lane_and_its_count(dialect: Dialect) {
    let world = World::new(dialect).await;
    let max_active = Some(1);
    let each =
        Rule { scope: Scope::Venture, name: None, max_active, max_pending: None, rate: None };
    world.tasks.bind(Some(Limits::new([each])));
    let [active, pending, parked] = [of(2_000), of(2_000), of(2_001)];
    let active = world.running(active).await;
    let parked = world.running(parked).await;
    let pending = world.submit(pending).await;
    let command = Command::Wait { lease_id: parked.lease_id };
    world.ask(parked.task.id, command).await.unwrap();
    pass_by(&world, 0..1_050).await;
    world.tasks.fold_counts().await.unwrap();
    assert_eq!(world.claim("w1", 5).await.len(), 0, "its venture is full");
    world.finish(&active, complete()).await.unwrap();
    assert_eq!(world.claim("w1", 5).await[0].task.id, pending);
    assert_eq!(world.ask(parked.task.id, Command::Wake).await.unwrap(), State::Pending);
    assert_eq!(world.claim("w1", 5).await[0].task.id, parked.task.id);
    let wrong = "SELECT count(*) FROM lane WHERE active < 0 OR pending < 0";
    if dialect == Dialect::Sqlite {
        assert_eq!(world.by_hand(wrong).unwrap(), "0");
    }
}
