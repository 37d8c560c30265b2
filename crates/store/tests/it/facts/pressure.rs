//! What is held and what left the line, in figures.

use crate::world::*;
use windlass_store::statement::Dialect;
use windlass_store::task::{Finishing, Position, Traffic};

conformance!(
    what_is_held_is_counted,
    what_left_the_line_is_counted_once,
    what_waits_for_its_time_is_not_ready,
    a_ledger_never_stood_in_line,
);

async fn traffic(world: &World, after: Position) -> Traffic {
    world.tasks.traffic(after).await.unwrap()
}

async fn what_is_held_is_counted(dialect: Dialect) {
    let world = World::new(dialect).await;
    let empty = traffic(&world, Position::default()).await;
    assert_eq!(empty, Traffic::default());
    world.submit_all((0..5).map(|_| job()).collect()).await;
    let held = world.claim("w1", 2).await;
    world.finish(&held[0], complete()).await.unwrap();
    let now = traffic(&world, Position::default()).await;
    assert_eq!((now.active, now.pending, now.in_line), (1, 3, 3));
}

async fn what_left_the_line_is_counted_once(dialect: Dialect) {
    let world = World::new(dialect).await;
    let ids = world.submit_all((0..6).map(|_| job()).collect()).await;
    let held = world.claim("w1", 3).await;
    world.finish(&held[0], complete()).await.unwrap();
    world.finish(&held[1], Finishing::Release).await.unwrap();
    world.cancel(ids[5].as_ref().unwrap().id).await.unwrap();
    // Three were claimed and one was cancelled; what came back did not leave.
    let first = traffic(&world, Position::default()).await;
    assert_eq!(first.left, 4);
    let second = traffic(&world, first.position).await;
    assert_eq!((second.left, second.position), (0, first.position));
    world.claim("w1", 1).await;
    assert_eq!(traffic(&world, first.position).await.left, 1);
    // From where the log stands now, nothing has left.
    let head = world.tasks.head().await.unwrap();
    assert_eq!(traffic(&world, head).await.left, 0);
}

async fn what_waits_for_its_time_is_not_ready(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit(task(|r| r.delay_ms = Some(60_000))).await;
    let before = traffic(&world, Position::default()).await;
    assert_eq!((before.pending, before.in_line), (1, 0));
    // Nobody has ripened it, and it could start all the same.
    world.pass_ms(60_000);
    assert_eq!(traffic(&world, Position::default()).await.in_line, 1);
    // What waits for its time is pending and no part of the line.
    world.submit(job()).await;
    world.submit(task(|r| r.delay_ms = Some(60_000))).await;
    let mixed = traffic(&world, Position::default()).await;
    assert_eq!((mixed.pending, mixed.in_line), (3, 2));
}

async fn a_ledger_never_stood_in_line(dialect: Dialect) {
    use windlass_domain::command::Command;
    use windlass_domain::state::State;
    let world = World::new(dialect).await;
    let id = world.submit(ledger()).await;
    let (to, holder) = (State::Running, "boss".to_owned());
    world.ask(id, Command::Report { to, result: None, error: None, holder }).await.unwrap();
    let now = traffic(&world, Position::default()).await;
    assert_eq!((now.active, now.pending, now.left, now.in_line), (0, 0, 0, 0));
}
