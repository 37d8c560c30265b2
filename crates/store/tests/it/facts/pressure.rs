//! What is held and what left the line, in figures.

use crate::world::*;
use std::time::{Duration, Instant};
use windlass_domain::limit::{Limits, Mode, Pause, Rule, Scope};
use windlass_store::statement::Dialect;
use windlass_store::task::{Finishing, Position, Traffic};

conformance!(
    what_is_held_is_counted,
    what_left_the_line_is_counted_once,
    what_waits_for_its_time_is_not_ready,
    a_ledger_never_stood_in_line,
    what_a_pause_keeps_from_starting_is_no_part_of_the_line,
    many_that_wait_for_a_time_make_no_line,
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
    // From where the log stands now, nothing has left. It stands before whatever any transaction of
    // the whole cluster may still write, so those of other tests must have ended first.
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let head = world.tasks.head().await.unwrap();
        match traffic(&world, head).await.left {
            0 => break,
            left => assert!(Instant::now() < until, "{left} after {head:?}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
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

/// A new task does not wait for tasks that may not begin: their number made the wait too long.
async fn what_a_pause_keeps_from_starting_is_no_part_of_the_line(dialect: Dialect) {
    let world = World::new(dialect).await;
    let of = |queue: &str, venture: &str, delay_ms: Option<i64>| {
        let (queue, venture) = (queue.to_owned(), venture.to_owned());
        task(move |r| {
            r.queue = Some(queue);
            r.venture = Some(venture);
            r.delay_ms = delay_ms;
        })
    };
    for (queue, venture, delay_ms, count) in [
        ("q", "acme", None, 3),
        ("q", "acme", Some(60_000), 2),
        ("q", "bolt", None, 4),
        ("free", "acme", None, 5),
        ("free", "bolt", None, 6),
        ("free", "bolt", Some(60_000), 7),
    ] {
        world.submit_all((0..count).map(|_| of(queue, venture, delay_ms)).collect()).await;
    }
    let pause =
        |scope, name: &str, mode| Pause { scope, name: Some(name.to_owned()), mode, reason: None };
    let line = async |rules: &[Rule], pauses: &[Pause]| {
        let limits = Limits::new(rules.iter().cloned()).with_pauses(pauses.iter().cloned());
        world.tasks.bind(Some(limits));
        let now = traffic(&world, Position::default()).await;
        assert_eq!(now.pending, 27, "what is held back is pending all the same");
        (now.held_back, now.in_line)
    };
    assert_eq!(line(&[], &[]).await, (0, 18));
    let queue = pause(Scope::Queue, "q", Mode::Pause);
    assert_eq!(line(&[], std::slice::from_ref(&queue)).await, (9, 11));
    let acme = pause(Scope::Venture, "acme", Mode::Pause);
    assert_eq!(line(&[], std::slice::from_ref(&acme)).await, (10, 10));
    assert_eq!(line(&[], &[pause(Scope::Queue, "q", Mode::Drain)]).await, (0, 18));
    // An active limit of 0 is a pause.
    let (name, max_active) = (Some("q".to_owned()), Some(0));
    let closed = Rule { scope: Scope::Queue, name, max_active, max_pending: None, rate: None };
    assert_eq!(line(std::slice::from_ref(&closed), &[]).await, (9, 11));
    // Also that of each one of a scope, for those that have no limit of their own.
    let each = Rule { scope: Scope::Venture, name: None, ..closed.clone() };
    assert_eq!(line(std::slice::from_ref(&each), &[]).await, (27, 0));
    let bolt = Rule { name: Some("bolt".into()), max_active: Some(1), ..each.clone() };
    assert_eq!(line(&[each, bolt], &[]).await, (10, 10));
    let types = Rule { scope: Scope::WorkerType, name: None, ..closed };
    assert_eq!(line(&[types], &[]).await, (0, 18), "sessions, and no tasks");
    // PostgreSQL counts by key, so it does not know which tasks two pauses have in common.
    let both = line(&[], &[queue, acme]).await;
    let expected = match dialect {
        Dialect::Sqlite => (14, 6),
        Dialect::Postgres => (10, 10),
    };
    assert_eq!(both, expected);
}

/// More wait for a time than one look counts: the line itself is counted then.
async fn many_that_wait_for_a_time_make_no_line(dialect: Dialect) {
    let world = World::new(dialect).await;
    for _ in 0..11 {
        let later = (0..1_000).map(|_| task(|r| r.delay_ms = Some(60_000)));
        world.submit_all(later.collect()).await;
    }
    world.submit_all((0..3).map(|_| job()).collect()).await;
    let now = traffic(&world, Position::default()).await;
    assert_eq!((now.pending, now.in_line), (11_003, 3));
    let other = Pause {
        scope: Scope::Queue,
        name: Some("elsewhere".into()),
        mode: Mode::Pause,
        reason: None,
    };
    world.tasks.bind(Some(Limits::new([]).with_pauses([other])));
    assert_eq!(traffic(&world, Position::default()).await.in_line, 3);
}
