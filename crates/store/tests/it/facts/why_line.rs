//! Why a task does not run: its line, and those who would take from it.

use super::why::{codes, of, pause, put, rule, the_reason, why, worker};
use crate::world::*;
use uuid::Uuid;
use windlass_domain::id::{SessionId, TaskId};
use windlass_domain::limit::{Mode, Rule, Scope};
use windlass_domain::profile::Kind;
use windlass_domain::task::NewTask;
use windlass_domain::why::{MOST_HELD, Reason};
use windlass_store::session::{NewSession, Routes, Sessions};
use windlass_store::statement::Dialect;

conformance!(
    workers_that_hold_all_their_type_allows_are_named,
    workers_that_hold_more_than_a_lowered_limit_are_told_as_they_are,
    the_place_in_line_is_counted_within_its_lane,
    more_than_a_thousand_before_it_are_not_counted,
    where_not_all_lanes_are_looked_at_more_may_stand_before_it,
    the_start_is_estimated_from_the_pace_of_its_queue,
    a_pace_is_that_of_the_last_minute_as_far_as_something_waited,
    no_free_slot_is_a_reason_until_one_is_free,
    those_who_hold_longest_are_named_whichever_worker_it_is,
    a_worker_that_goes_beyond_its_slots_is_not_busy,
    ten_thousand_tasks_of_one_worker_are_counted_and_no_more,
    busy_workers_of_different_types_are_told_together,
    what_no_such_worker_takes_stands_before_nobody,
    what_is_stopped_stands_before_nobody_who_is_not,
);

/// A session that is alive and takes queue `q`, with so many slots.
async fn typed(world: &World, worker_type: Option<&str>, slots: i32) -> String {
    let routes = Routes { queues: vec!["q".into()], ..Routes::default() };
    let id = SessionId(Uuid::now_v7());
    let (name, worker_type) = ("ann".to_owned(), worker_type.map(str::to_owned));
    let new = NewSession { id, name, worker_type, routes, slots, lease_ms: None };
    Sessions::new(world.store.clone()).register(new).await.unwrap();
    id.to_string()
}

/// How many stand before a ready task, and how many ventures take turns.
async fn place(world: &World, id: TaskId) -> (i64, i64) {
    let told = the_reason(world, id).await;
    let Reason::Ready { ahead, ahead_at_least, ventures, .. } = told else { panic!("{told:?}") };
    assert!(!ahead_at_least);
    (ahead, ventures)
}

async fn workers_that_hold_all_their_type_allows_are_named(dialect: Dialect) {
    let world = World::new(dialect).await;
    let typed = Rule { max_active: Some(1), ..rule(Scope::WorkerType, "crew") };
    put(&world, typed).await;
    let sessions = Sessions::new(world.store.clone());
    let register = async |worker_type: Option<&str>| {
        let routes = Routes { queues: vec!["q".into()], ..Routes::default() };
        let id = SessionId(Uuid::now_v7());
        let (name, worker_type) = ("ann".to_owned(), worker_type.map(str::to_owned));
        let new = NewSession { id, name, worker_type, routes, slots: 1, lease_ms: None };
        sessions.register(new).await.unwrap();
        id.to_string()
    };
    let session = register(Some("crew")).await;
    let first = world.submit(job()).await;
    assert_eq!(codes(&world, first).await, ["ready"]);
    world.claim(&session, 1).await;
    let next = world.submit(job()).await;
    let mut told = why(&world, next).await;
    assert!(matches!(told[1..], [Reason::InLine { ahead: 0, .. }]), "{told:?}");
    let Reason::LimitReached { scope, name, limit, held, holders } = told.remove(0) else {
        panic!("{told:?}")
    };
    assert_eq!((scope, name.as_deref(), limit, held), (Scope::WorkerType, Some("crew"), 1, 1));
    assert_eq!((holders[0].task_id, holders[0].session.as_str()), (first, session.as_str()));
    // Somebody else is free.
    register(None).await;
    assert_eq!(codes(&world, next).await, ["ready"]);
}

async fn workers_that_hold_more_than_a_lowered_limit_are_told_as_they_are(dialect: Dialect) {
    let world = World::new(dialect).await;
    let routes = Routes { queues: vec!["q".into()], ..Routes::default() };
    let id = SessionId(Uuid::now_v7());
    let (name, worker_type) = ("ann".to_owned(), Some("crew".to_owned()));
    let new = NewSession { id, name, worker_type, routes, slots: 5, lease_ms: None };
    Sessions::new(world.store.clone()).register(new).await.unwrap();
    world.submit_all((0..5).map(|_| job()).collect()).await;
    assert_eq!(world.claim(&id.to_string(), 5).await.len(), 5);
    let next = world.submit(job()).await;
    for lowered in [2, 0] {
        put(&world, Rule { max_active: Some(lowered), ..rule(Scope::WorkerType, "crew") }).await;
        let mut told = why(&world, next).await;
        assert!(matches!(told[1..], [Reason::InLine { ahead: 0, .. }]), "{told:?}");
        let Reason::LimitReached { limit, held, holders, .. } = told.remove(0) else {
            panic!("{told:?}")
        };
        assert_eq!((limit, held, holders.len()), (lowered, 5, 5));
    }
}

async fn the_place_in_line_is_counted_within_its_lane(dialect: Dialect) {
    let world = World::new(dialect).await;
    worker(&world, |_| {}).await;
    let mut mine = Vec::new();
    for _ in 0..3 {
        mine.push(world.submit(of("acme")).await);
        world.pass_ms(1);
    }
    world.submit_all((0..5).map(|n| of(&format!("other {}", n % 2))).collect()).await;
    let urgent = world.submit(task(|r| {
        r.venture = Some("acme".into());
        r.priority = Some(5);
    }));
    let urgent = urgent.await;
    let place = async |id: TaskId| {
        let told = the_reason(&world, id).await;
        let Reason::Ready { ahead, ahead_at_least, ventures, .. } = told else {
            panic!("{told:?}")
        };
        assert!(!ahead_at_least);
        (ahead, ventures)
    };
    assert_eq!(place(urgent).await, (0, 3));
    assert_eq!(place(mine[0]).await, (1, 3));
    assert_eq!(place(mine[2]).await, (3, 3));
}

async fn more_than_a_thousand_before_it_are_not_counted(dialect: Dialect) {
    let world = World::new(dialect).await;
    worker(&world, |_| {}).await;
    for _ in 0..3 {
        world.submit_all((0..500).map(|_| job()).collect()).await;
    }
    world.pass_ms(1);
    let id = world.submit(job()).await;
    let told = the_reason(&world, id).await;
    assert!(matches!(told, Reason::Ready { ahead: 1_000, ahead_at_least: true, .. }), "{told:?}");
}

/// Two stand before it, among lanes of which its worker takes nothing.
async fn where_not_all_lanes_are_looked_at_more_may_stand_before_it(dialect: Dialect) {
    let world = World::new(dialect).await;
    worker(&world, |_| {}).await;
    let pinned = |n: usize| inference_with(|r| r.model = Some(format!("m{n}")));
    world.submit_all((0..999).map(pinned).collect()).await;
    world.submit_all(vec![job(), job()]).await;
    world.pass_ms(1);
    let id = world.submit(job()).await;
    assert_eq!(place(&world, id).await, (2, 1));
    // Before all of these, so that the lanes that are looked at may be any.
    let first = |n| NewTask { priority: 5, ..pinned(n) };
    world.submit_all((1_000..1_100).map(first).collect()).await;
    let told = the_reason(&world, id).await;
    let Reason::Ready { ahead, ahead_at_least, .. } = told else { panic!("{told:?}") };
    assert!(ahead <= 2 && ahead_at_least, "{told:?}");
}

async fn the_start_is_estimated_from_the_pace_of_its_queue(dialect: Dialect) {
    let world = World::new(dialect).await;
    let wait = async |id: TaskId| {
        let told = the_reason(&world, id).await;
        let Reason::Ready { estimated_wait_ms, estimated_start_at, .. } = told else {
            panic!("{told:?}")
        };
        assert_eq!(estimated_start_at, estimated_wait_ms.map(|ms| world.now().plus_ms(ms)));
        estimated_wait_ms
    };
    worker(&world, |_| {}).await;
    world.submit_all((0..10).map(|_| job()).collect()).await;
    world.submit_all((0..5).map(|_| task(|r| r.queue = Some("fast".into()))).collect()).await;
    world.tasks.claim(claim_of("w2", &["fast"], 5)).await.unwrap();
    world.pass_ms(10_000);
    let last = world.submit(job()).await;
    assert_eq!(wait(last).await, None, "nothing has left its queue");
    world.claim("w1", 5).await;
    // Five in ten seconds; five stand before it.
    assert_eq!(wait(last).await, Some(12_000));
    // And no more in the next ten, although tasks waited. Once the pace counted from the first move
    // of the last minute on, whatever that was.
    world.pass_ms(10_000);
    worker(&world, |_| {}).await;
    assert_eq!(wait(last).await, Some(24_000));
    world.pass_ms(60_001);
    worker(&world, |_| {}).await;
    assert_eq!(wait(last).await, None, "nothing has left it lately");
}

async fn a_pace_is_that_of_the_last_minute_as_far_as_something_waited(dialect: Dialect) {
    let world = World::new(dialect).await;
    let wait = async |id: TaskId| match the_reason(&world, id).await {
        Reason::Ready { estimated_wait_ms, .. } => estimated_wait_ms,
        told => panic!("{told:?}"),
    };
    // More have waited for longer than a minute when the first of them leave, all at once.
    world.submit_all((0..20).map(|_| job()).collect()).await;
    world.pass_ms(90_000);
    worker(&world, |_| {}).await;
    world.claim("w1", 10).await;
    let last = world.submit(job()).await;
    // Ten in the last minute, and eleven are to leave: it was told as eleven milliseconds.
    assert_eq!(wait(last).await, Some(66_000));
    // A line that was empty for most of the minute moved as fast as while somebody stood in it.
    world.claim("w1", 11).await;
    world.pass_ms(120_000);
    world.submit_all((0..4).map(|_| job()).collect()).await;
    world.pass_ms(2_000);
    world.claim("w1", 2).await;
    let last = world.submit(job()).await;
    worker(&world, |_| {}).await;
    assert_eq!(wait(last).await, Some(3_000));
}

/// It was told as ready, with nothing said of why it did not start.
async fn no_free_slot_is_a_reason_until_one_is_free(dialect: Dialect) {
    let world = World::new(dialect).await;
    let (one, two) = (typed(&world, None, 1).await, typed(&world, None, 2).await);
    world.submit_all((0..3).map(|_| job()).collect()).await;
    let first = world.claim(&one, 1).await.remove(0);
    let next = world.submit(job()).await;
    assert_eq!(codes(&world, next).await, ["ready"], "the other has slots");
    world.claim(&two, 2).await;
    let told = why(&world, next).await;
    let Reason::WorkersBusy { queue, workers, slots, held, holders } = &told[0] else {
        panic!("{told:?}")
    };
    assert_eq!((queue.as_str(), *workers, *slots, *held), ("q", 2, 3, 3));
    assert_eq!(holders.len(), 3);
    assert!(holders.iter().any(|holder| holder.task_id == first.task.id));
    let words = told[0].detail();
    let start =
        "all 2 workers that would take it are busy: they hold 3 tasks, and no slot is free;";
    assert!(words.starts_with(start), "{words}");
    // Its place and its start are told all the same, also to the first.
    assert!(matches!(told[1], Reason::InLine { ahead: 0, .. }), "{told:?}");
    assert_eq!(told.len(), 2);
    world.finish(&first, complete()).await.unwrap();
    assert_eq!(codes(&world, next).await, ["ready"]);
}

/// They were named session by session, and the first one's tasks alone if it held enough.
async fn those_who_hold_longest_are_named_whichever_worker_it_is(dialect: Dialect) {
    for older_first in [true, false] {
        let world = World::new(dialect).await;
        let older = typed(&world, None, 5).await;
        world.pass_ms(10);
        let newer = typed(&world, None, 5).await;
        world.submit_all((0..10).map(|_| job()).collect()).await;
        let (one, two) = if older_first { (&older, &newer) } else { (&newer, &older) };
        let mut expected = Vec::new();
        // By turns, so that the five oldest are of both, and no session's own order tells them.
        for session in [one, two].into_iter().cycle().take(10) {
            let held = world.claim(session, 1).await.remove(0);
            expected.push((held.task.id, session.clone()));
            world.pass_ms(1);
        }
        let next = world.submit(job()).await;
        let told = why(&world, next).await;
        let Reason::WorkersBusy { held, holders, .. } = &told[0] else { panic!("{told:?}") };
        let named: Vec<_> = holders.iter().map(|h| (h.task_id, h.session.clone())).collect();
        assert_eq!((*held, named), (10, expected[..5].to_vec()));
    }
}

async fn a_worker_that_goes_beyond_its_slots_is_not_busy(dialect: Dialect) {
    let world = World::new(dialect).await;
    let session = typed(&world, None, 1).await;
    world.submit_all((0..2).map(|_| job()).collect()).await;
    world.claim(&session, 2).await;
    let next = world.submit(job()).await;
    assert_eq!(codes(&world, next).await, ["ready"], "it asks for more than it said");
}

/// Its slots do not bound what a worker holds, and `why` counted whatever it was.
async fn ten_thousand_tasks_of_one_worker_are_counted_and_no_more(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.tasks.bind(None);
    let session = typed(&world, Some("crew"), 1).await;
    let mut holding = 0;
    let mut told = Vec::new();
    for more in [MOST_HELD - 1, 1, 1] {
        holding += more;
        for part in (0..more).collect::<Vec<_>>().chunks(1_000) {
            world.submit_all(part.iter().map(|_| job()).collect()).await;
            assert_eq!(world.claim(&session, 1_000).await.len(), part.len());
        }
        put(&world, Rule { max_active: Some(1), ..rule(Scope::WorkerType, "crew") }).await;
        let next = world.submit(job()).await;
        let reasons = why(&world, next).await;
        let of_type = reasons.iter().find_map(|reason| match reason {
            Reason::LimitReached { scope: Scope::WorkerType, held, .. } => Some(*held),
            _ => None,
        });
        told.push((holding, of_type.expect("the limit of its type")));
        world.cancel(next).await.unwrap();
    }
    let most = MOST_HELD;
    assert_eq!(told, [(most - 1, most - 1), (most, most), (most + 1, most)]);
}

async fn busy_workers_of_different_types_are_told_together(dialect: Dialect) {
    let world = World::new(dialect).await;
    put(&world, Rule { max_active: Some(1), ..rule(Scope::WorkerType, "crew") }).await;
    let (crew, other) = (typed(&world, Some("crew"), 1).await, typed(&world, None, 1).await);
    world.submit_all((0..2).map(|_| job()).collect()).await;
    world.claim(&crew, 1).await;
    world.claim(&other, 1).await;
    let next = world.submit(job()).await;
    assert_eq!(codes(&world, next).await, ["workers_busy", "in_line"]);
    // A pause is the more important, and then nobody knows when it starts.
    pause(&world, Scope::Queue, "q", Mode::Pause).await;
    assert_eq!(codes(&world, next).await, ["paused", "workers_busy"]);
}

async fn what_no_such_worker_takes_stands_before_nobody(dialect: Dialect) {
    let world = World::new(dialect).await;
    let of_acme = |mut new: NewTask| {
        new.venture = Some("acme".into());
        new
    };
    world.submit(of_acme(delegation(|_| {}))).await;
    world.submit(delegation(|r| r.venture = Some("other".into()))).await;
    world.submit(of_acme(inference_with(|r| r.model = Some("m".into())))).await;
    world.pass_ms(1);
    let mine = world.submit(of("acme")).await;
    let jobs = worker(&world, |routes| routes.kinds = vec![Kind::Job]).await;
    assert_eq!(place(&world, mine).await, (0, 1));
    // Whoever takes all of it takes them first; not what is pinned to what nobody has.
    worker(&world, |_| {}).await;
    assert_eq!(place(&world, mine).await, (1, 2));
    let all = |routes: &mut Routes| routes.kinds = vec![Kind::Job, Kind::Inference];
    let without = worker(&world, all).await;
    assert_eq!(place(&world, mine).await, (1, 2));
    worker(&world, |routes| {
        all(routes);
        routes.models = vec!["m".into()];
    })
    .await;
    assert_eq!(place(&world, mine).await, (2, 2));
    for gone in [jobs, without] {
        Sessions::new(world.store.clone()).close(gone, "closed").await.unwrap();
    }
    assert_eq!(place(&world, mine).await, (2, 2));
}

async fn what_is_stopped_stands_before_nobody_who_is_not(dialect: Dialect) {
    let world = World::new(dialect).await;
    worker(&world, |_| {}).await;
    let by = |agent: &str, venture: &str| {
        task(|r| (r.agent, r.venture) = (Some(agent.into()), Some(venture.into())))
    };
    let mut bobs = Vec::new();
    for venture in ["acme", "acme", "other"] {
        bobs.push(world.submit(by("bob", venture)).await);
        world.pass_ms(1);
    }
    let mine = world.submit(by("eve", "acme")).await;
    assert_eq!(place(&world, mine).await, (2, 2));
    pause(&world, Scope::Agent, "bob", Mode::Pause).await;
    assert_eq!(place(&world, mine).await, (0, 1));
    // Those who are stopped alike stand before each other.
    let told = why(&world, bobs[1]).await;
    assert!(matches!(told[1], Reason::InLine { ahead: 1, ventures: 2, .. }), "{told:?}");
    pause(&world, Scope::Agent, "bob", Mode::Drain).await;
    assert_eq!(place(&world, mine).await, (2, 2));
    // A limit of 0 stops as well, also that for each one of a scope.
    put(&world, Rule { max_active: Some(0), ..rule(Scope::Agent, "") }).await;
    put(&world, rule(Scope::Agent, "eve")).await;
    assert_eq!(place(&world, mine).await, (0, 1));
}
