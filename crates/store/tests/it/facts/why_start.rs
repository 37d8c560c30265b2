//! Why a task does not run: when it starts that a rate or a limit holds back, and that it does.

use super::why::{of, put, rule, why, worker};
use crate::world::*;
use windlass_domain::id::TaskId;
use windlass_domain::limit::{Limits, Rate, Rule, Scope};
use windlass_domain::task::NewTask;
use windlass_domain::why::Reason;
use windlass_store::statement::Dialect;
use windlass_store::task::{Assignment, Claim};

conformance!(
    behind_a_rate_those_of_the_same_key_have_their_periods_first,
    behind_a_rate_of_an_agent_its_ventures_take_turns,
    behind_a_limit_its_own_slots_tell_the_start,
    runs_that_ended_tell_the_start_before_those_that_have_just_begun,
    of_a_limit_that_nobody_knows_of_no_start_is_told,
);

/// A rule that claims enforce as well.
async fn bind(world: &World, limit: Rule) {
    put(world, limit.clone()).await;
    world.tasks.bind(Some(Limits::new([limit])));
}

/// A task that counts for `x` in a scope, or for another one.
fn named(scope: Scope, name: &str) -> NewTask {
    task(|r| {
        let name = Some(name.to_owned());
        match scope {
            Scope::Portfolio => r.portfolio = name,
            Scope::Venture => r.venture = name,
            Scope::Stage => r.stage = name,
            _ => r.agent = name,
        }
    })
}

/// The code of the first reason; how many stand before a task, and in how long it starts.
async fn told(world: &World, id: TaskId) -> (String, i64, Option<i64>) {
    // Others have fallen silent while time passed.
    worker(world, |_| {}).await;
    let reasons = why(world, id).await;
    let [first, Reason::InLine { ahead, estimated_wait_ms, estimated_start_at, .. }] = &reasons[..]
    else {
        panic!("{reasons:?}")
    };
    assert_eq!(*estimated_start_at, estimated_wait_ms.map(|ms| world.now().plus_ms(ms)));
    let code = serde_json::to_value(first).unwrap()["code"].as_str().unwrap().to_owned();
    (code, *ahead, *estimated_wait_ms)
}

fn has(claimed: &[Assignment], id: TaskId) -> bool {
    claimed.iter().any(|assignment| assignment.task.id == id)
}

/// The fifth of five was told to start with the next period, as if it were the only one.
async fn behind_a_rate_those_of_the_same_key_have_their_periods_first(dialect: Dialect) {
    for scope in [Scope::Portfolio, Scope::Venture, Scope::Stage, Scope::Agent] {
        let world = World::new(dialect).await;
        let rate = Some(Rate { count: 1, period_ms: 5_000 });
        bind(&world, Rule { rate, ..rule(scope, "x") }).await;
        let mut mine = Vec::new();
        for _ in 0..5 {
            mine.push(world.submit(named(scope, "x")).await);
            // Of those before it, these are not bound.
            world.submit(named(scope, "other")).await;
        }
        let first = world.claim("w1", 1).await;
        assert!(has(&first, mine[0]) || scope == Scope::Venture, "{scope:?}");
        if scope == Scope::Venture {
            // Whose turn it is between two ventures is not to be known.
            world.claim("w1", 1).await;
        }
        let (second, last) = (mine[1], mine[4]);
        let reached = "rate_reached".to_owned();
        let (code, _, wait) = told(&world, second).await;
        assert_eq!((code, wait), (reached.clone(), Some(5_000)), "{scope:?}");
        let (code, _, wait) = told(&world, last).await;
        assert_eq!((code, wait), (reached, Some(20_000)), "{scope:?}");
        // And so it is.
        for period in 1..=4 {
            world.pass_ms(5_000);
            let claimed = world.claim("w1", 100).await;
            assert_eq!(has(&claimed, last), period == 4, "{scope:?} after {period}");
        }
    }
}

async fn behind_a_rate_of_an_agent_its_ventures_take_turns(dialect: Dialect) {
    let world = World::new(dialect).await;
    let rate = Some(Rate { count: 1, period_ms: 5_000 });
    bind(&world, Rule { rate, ..rule(Scope::Agent, "x") }).await;
    let by = |venture: &str, agent: &str| {
        task(|r| (r.agent, r.venture) = (Some(agent.into()), Some(venture.into())))
    };
    let mut last = Vec::new();
    for venture in ["a", "b"] {
        for _ in 0..3 {
            last.push(world.submit(by(venture, "x")).await);
        }
    }
    // A third venture takes turns in the queue, and not under the rate.
    world.submit(by("c", "other")).await;
    assert_eq!(world.claim("w1", 100).await.len(), 2);
    let lasts = [last[2], last[5]];
    let mut waits = Vec::new();
    for id in lasts {
        waits.push(told(&world, id).await.2.expect("a start"));
    }
    for period in 1..=5 {
        world.pass_ms(5_000);
        let claimed = world.claim("w1", 100).await;
        assert_eq!(claimed.len(), 1, "one in each period");
        for (id, wait) in lasts.iter().zip(&waits) {
            let late = wait - period * 5_000;
            // Whose turn is next is not known, so it may be one period earlier.
            assert!(!has(&claimed, *id) || (0..=5_000).contains(&late), "{waits:?}: {period}");
        }
    }
    let left = world.claim("w1", 100).await;
    assert!(left.is_empty(), "all have begun");
}

/// Five of a venture that may have one active task, and many of others that are done at once: it
/// was told the pace of the whole queue.
async fn behind_a_limit_its_own_slots_tell_the_start(dialect: Dialect) {
    let world = World::new(dialect).await;
    bind(&world, Rule { max_active: Some(1), ..rule(Scope::Venture, "acme") }).await;
    let mut held = world.running(of("acme")).await;
    let mut mine = Vec::new();
    for _ in 0..5 {
        mine.push(world.submit(of("acme")).await);
    }
    // Others go through the queue, ten in a second, and are no holders of this limit.
    for _ in 0..4 {
        world.submit_all((0..10).map(|_| of("other")).collect()).await;
        world.pass_ms(1_000);
        for other in world.claim("w2", 100).await {
            assert_ne!(other.task.venture.as_deref(), Some("acme"));
            world.start(&other).await.unwrap();
            world.finish(&other, complete()).await.unwrap();
        }
    }
    let reached = "limit_reached".to_owned();
    // It has run for four seconds, which is half of its time as far as anybody can know.
    assert_eq!(told(&world, mine[0]).await, (reached.clone(), 0, Some(4_000)));
    assert_eq!(told(&world, mine[4]).await, (reached, 4, Some(36_000)));
    let asked_at = world.now();
    world.pass_ms(4_000);
    for id in &mine {
        world.finish(&held, complete()).await.unwrap();
        let claim = Claim { start: true, ..claim_of("w1", &["q"], 1) };
        held = world.tasks.claim(claim).await.unwrap().pop().expect("the next");
        assert_eq!(held.task.id, *id);
        if *id != mine[4] {
            world.pass_ms(8_000);
        }
    }
    assert_eq!(world.now(), asked_at.plus_ms(36_000), "and so it is");
}

async fn runs_that_ended_tell_the_start_before_those_that_have_just_begun(dialect: Dialect) {
    let world = World::new(dialect).await;
    bind(&world, Rule { max_active: Some(2), ..rule(Scope::Agent, "x") }).await;
    let run = async |agent: &str, ms: i64| {
        let held = world.running(named(Scope::Agent, agent)).await;
        world.pass_ms(ms);
        world.finish(&held, complete()).await.unwrap();
    };
    run("x", 6_000).await;
    run("other", 60_000).await;
    run("x", 10_000).await;
    world.running(named(Scope::Agent, "x")).await;
    world.pass_ms(3_000);
    world.running(named(Scope::Agent, "x")).await;
    let mut mine = Vec::new();
    for _ in 0..4 {
        mine.push(world.submit(named(Scope::Agent, "x")).await);
    }
    // Eight seconds each; one has five left and the other has just begun.
    for (id, seconds) in mine.into_iter().zip([5, 8, 13, 16]) {
        let (code, _, wait) = told(&world, id).await;
        assert_eq!((code.as_str(), wait), ("limit_reached", Some(seconds * 1_000)));
    }
}

async fn of_a_limit_that_nobody_knows_of_no_start_is_told(dialect: Dialect) {
    let world = World::new(dialect).await;
    bind(&world, Rule { max_active: Some(1), ..rule(Scope::Venture, "acme") }).await;
    // The queue moves, but that says nothing of a holder that has just begun.
    world.submit_all((0..10).map(|_| of("other")).collect()).await;
    world.pass_ms(1_000);
    world.claim("w1", 10).await;
    world.running(of("acme")).await;
    let id = world.submit(of("acme")).await;
    assert_eq!(told(&world, id).await, ("limit_reached".to_owned(), 0, None));
    world.pass_ms(2_000);
    assert_eq!(told(&world, id).await, ("limit_reached".to_owned(), 0, Some(2_000)));
}
