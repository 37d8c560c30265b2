//! Limits on active tasks and rates: what claims hand out when rules bind them.

use crate::world::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use windlass_domain::limit::{Limits, Mode, Pause, Rate, Rule, Scope};
use windlass_domain::refusal::Refusal;
use windlass_domain::task::NewTask;
use windlass_store::error::Rejection;
use windlass_store::statement::Dialect;
use windlass_store::task::{Assignment, Finishing, Tasks};

conformance!(
    no_more_become_active_than_a_limit_allows,
    what_ends_makes_room_however_it_ends,
    a_venture_at_its_limit_holds_nobody_else_up,
    what_has_room_is_found_behind_hundreds_that_have_none,
    lanes_that_were_emptied_hide_nothing,
    a_delegation_is_bound_like_the_agent_it_is_for,
    a_task_that_names_no_scope_is_not_bound,
    a_named_rule_stands_before_the_rule_for_each,
    a_lowered_limit_takes_nothing_away,
    a_claim_by_id_keeps_to_the_limits,
    an_eager_hand_over_keeps_to_the_limits,
    a_ledger_counts_for_nothing,
    a_rate_lets_so_many_through_in_each_period,
    a_place_that_a_claim_kept_in_vain_is_free,
    a_lane_that_a_node_learns_of_late_is_bound,
    many_nodes_at_once_never_exceed_a_limit,
);

pub fn rule(scope: Scope, max_active: Option<i64>, max_pending: Option<i64>) -> Rule {
    Rule { scope, name: None, max_active, max_pending, rate: None }
}

pub fn bind(tasks: &Tasks, rules: impl IntoIterator<Item = Rule>) {
    tasks.bind(Some(Limits::new(rules)));
}

pub fn of(venture: &str) -> NewTask {
    task(|r| r.venture = Some(venture.into()))
}

pub fn many(venture: &str, count: usize) -> Vec<NewTask> {
    (0..count).map(|_| of(venture)).collect()
}

pub fn ventures(held: &[Assignment]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for assignment in held {
        *counts.entry(assignment.task.venture.clone().unwrap_or_default()).or_default() += 1;
    }
    counts
}

pub async fn complete_all(world: &World, held: &[Assignment]) {
    for assignment in held {
        world.finish(assignment, Finishing::Complete(None)).await.unwrap();
    }
}

/// How many tasks stand in these states.
pub fn count(world: &World, states: &str) -> usize {
    let sql = format!("SELECT count(*) FROM task WHERE status IN ({states})");
    world.by_hand(&sql).unwrap().parse().unwrap()
}

async fn no_more_become_active_than_a_limit_allows(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.submit_all((0..10).map(|_| job()).collect()).await;
    bind(&world.tasks, [rule(Scope::Global, Some(3), None)]);
    assert_eq!(world.claim("w1", 2).await.len(), 2);
    let third = world.claim("w2", 5).await;
    assert_eq!(third.len(), 1);
    assert_eq!(world.claim("w3", 5).await.len(), 0);
    complete_all(&world, &third).await;
    assert_eq!(world.claim("w3", 5).await.len(), 1);
    world.tasks.bind(None);
    assert_eq!(world.claim("w3", 10).await.len(), 6);
}

async fn what_ends_makes_room_however_it_ends(dialect: Dialect) {
    let world = World::new(dialect).await;
    bind(&world.tasks, [rule(Scope::Venture, Some(1), None)]);
    world.submit_all(many("a", 8)).await;
    let mut next = world.claim("w1", 5).await;
    for turn in 0..6 {
        assert_eq!(next.len(), 1, "before turn {turn}");
        let held = next.pop().unwrap();
        match turn {
            0 => drop(world.finish(&held, Finishing::Complete(None)).await.unwrap()),
            1 => drop(world.finish(&held, Finishing::Release).await.unwrap()),
            2 => drop(world.finish(&held, fail("BOOM")).await.unwrap()),
            3 => drop(world.cancel(held.task.id).await.unwrap()),
            4 => {
                world.start(&held).await.unwrap();
                world.ask_approval(&held).await.unwrap();
            }
            _ => {
                world.pass_ms(3_600_000);
                assert_eq!(world.tasks.expire_leases(10).await.unwrap().changed.len(), 1);
            }
        }
        next = world.claim("w1", 5).await;
    }
    assert_eq!(next.len(), 1);
}

async fn a_venture_at_its_limit_holds_nobody_else_up(dialect: Dialect) {
    let world = World::new(dialect).await;
    bind(&world.tasks, [rule(Scope::Venture, Some(2), None)]);
    world.submit_all(many("a", 50)).await;
    assert_eq!(world.claim("w1", 10).await.len(), 2);
    world.pass_ms(1);
    world.submit_all(many("b", 5)).await;
    world.submit(job()).await;
    let held = world.claim("w1", 10).await;
    assert_eq!(ventures(&held), BTreeMap::from([(String::new(), 1), ("b".into(), 2)]));
}

async fn what_has_room_is_found_behind_hundreds_that_have_none(dialect: Dialect) {
    let world = World::new(dialect).await;
    bind(&world.tasks, [rule(Scope::Venture, Some(1), None)]);
    for _ in 0..2 {
        world.submit_all((0..400).map(|n| of(&format!("v{n}"))).collect()).await;
    }
    assert_eq!(world.claim("w1", 400).await.len(), 400);
    let last = world.submit(of("z")).await;
    assert_eq!(world.claim("w2", 1).await[0].task.id, last);
    assert_eq!(world.claim("w2", 1).await.len(), 0);
    // Paused, not full.
    let pause = |n: usize| Pause {
        scope: Scope::Venture,
        name: Some(format!("v{n}")),
        mode: Mode::Pause,
        reason: None,
    };
    world.tasks.bind(Some(Limits::new([]).with_pauses((0..400).map(pause))));
    let last = world.submit(of("z")).await;
    assert_eq!(world.claim("w2", 1).await[0].task.id, last);
}

async fn lanes_that_were_emptied_hide_nothing(dialect: Dialect) {
    let world = World::new(dialect).await;
    let new = |agent: String, priority: i32| {
        task(|r| {
            (r.venture, r.agent) = (Some("v".into()), Some(agent));
            (r.priority, r.queue) = (Some(priority), Some("q".into()));
        })
    };
    let tasks = (0..20).map(|n| new(format!("a{n}"), 5)).chain((0..3).map(|_| new("z".into(), 0)));
    world.submit_all(tasks.collect()).await;
    for nth in 0..23 {
        assert_eq!(world.claim("w1", 1).await.len(), 1, "claim {nth}");
    }
}

async fn a_delegation_is_bound_like_the_agent_it_is_for(dialect: Dialect) {
    let world = World::new(dialect).await;
    let bob = |most| Rule { name: Some("bob".into()), ..rule(Scope::Agent, Some(most), Some(2)) };
    bind(&world.tasks, [bob(0)]);
    let to = |callee: &str| delegation(|r| r.callee = Some(callee.to_owned()));
    for callee in ["bob", "bob", "eve"] {
        world.submit(to(callee)).await;
    }
    let refused = world.tasks.submit(vec![to("bob")]).await.pop().unwrap();
    assert!(matches!(refused, Err(Rejection::Refused(Refusal::QueueFull(_)))), "{refused:?}");
    let held = world.claim("w1", 5).await;
    let callees: Vec<_> = held.iter().map(|held| held.task.callee.as_deref()).collect();
    assert_eq!(callees, [Some("eve")]);
    bind(&world.tasks, [bob(1)]);
    assert_eq!(world.claim("w1", 5).await.len(), 1);
}

async fn a_task_that_names_no_scope_is_not_bound(dialect: Dialect) {
    let world = World::new(dialect).await;
    bind(&world.tasks, [rule(Scope::Stage, Some(1), Some(1))]);
    world.submit_all((0..4).map(|_| job()).collect()).await;
    let staged = || task(|r| r.stage = Some("build".into()));
    let outcomes = world.submit_all(vec![staged(), staged()]).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    assert_eq!(world.claim("w1", 10).await.len(), 5);
}

async fn a_named_rule_stands_before_the_rule_for_each(dialect: Dialect) {
    let world = World::new(dialect).await;
    let named = Rule { name: Some("big".into()), ..rule(Scope::Venture, Some(4), None) };
    bind(&world.tasks, [rule(Scope::Venture, Some(1), None), named]);
    world.submit_all([many("big", 9), many("small", 9)].concat()).await;
    let held = world.claim("w1", 18).await;
    assert_eq!(ventures(&held), BTreeMap::from([("big".into(), 4), ("small".into(), 1)]));
}

async fn a_lowered_limit_takes_nothing_away(dialect: Dialect) {
    let world = World::new(dialect).await;
    bind(&world.tasks, [rule(Scope::Global, Some(5), None)]);
    world.submit_all((0..9).map(|_| job()).collect()).await;
    let held = world.claim("w1", 5).await;
    bind(&world.tasks, [rule(Scope::Global, Some(2), None)]);
    complete_all(&world, &held[..3]).await;
    assert_eq!(world.claim("w1", 5).await.len(), 0);
    complete_all(&world, &held[3..4]).await;
    assert_eq!(world.claim("w1", 5).await.len(), 1);
}

async fn a_claim_by_id_keeps_to_the_limits(dialect: Dialect) {
    let world = World::new(dialect).await;
    bind(&world.tasks, [rule(Scope::Global, Some(2), None)]);
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(world.submit(job()).await);
    }
    // Neither what has ended nor what comes twice takes the room of others.
    let ended = world.submit(job()).await;
    world.cancel(ended).await.unwrap();
    let named = vec![ended, ids[0], ids[0], ids[1], ids[2]];
    let held = world.tasks.claim_tasks(&claim_of("w1", &["q"], 4), named).await.unwrap();
    assert_eq!(held.len(), 2);
    assert_eq!(world.claim("w2", 4).await.len(), 0);
    complete_all(&world, &held).await;
    // Nor does it use up what the claim may take.
    let named = vec![ended, ids[0], ids[2], ids[3]];
    let held = world.tasks.claim_tasks(&claim_of("w3", &["q"], 1), named).await.unwrap();
    assert_eq!(held.iter().map(|held| held.task.id).collect::<Vec<_>>(), [ids[2]]);
}

async fn an_eager_hand_over_keeps_to_the_limits(dialect: Dialect) {
    let world = World::new(dialect).await;
    let waiting = super::eager::Waiting::of(&world);
    bind(&world.tasks, [rule(Scope::Global, Some(2), None)]);
    for _ in 0..4 {
        waiting.enter(claim_of("w1", &["q"], 1));
        world.submit(job()).await;
    }
    // And many at once.
    waiting.enter(claim_of("w2", &["q"], 8));
    world.submit_all((0..4).map(|_| job()).collect()).await;
    assert_eq!(count(&world, "'claimed', 'running'"), 2);
}

async fn a_ledger_counts_for_nothing(dialect: Dialect) {
    let world = World::new(dialect).await;
    bind(&world.tasks, [rule(Scope::Global, Some(1), Some(1))]);
    for _ in 0..3 {
        world.submit(ledger()).await;
    }
    world.submit(job()).await;
    assert_eq!(world.claim("w1", 5).await.len(), 1);
}

async fn a_rate_lets_so_many_through_in_each_period(dialect: Dialect) {
    let world = World::new(dialect).await;
    let rate = Some(Rate { count: 3, period_ms: 60_000 });
    bind(&world.tasks, [Rule { rate, ..rule(Scope::Queue, None, None) }]);
    world.submit_all((0..10).map(|_| job()).collect()).await;
    let held = world.claim("w1", 2).await;
    complete_all(&world, &held).await;
    assert_eq!(world.claim("w1", 5).await.len(), 1);
    world.pass_ms(59_999);
    assert_eq!(world.claim("w1", 5).await.len(), 0);
    world.pass_ms(1);
    assert_eq!(world.claim("w1", 1).await.len(), 1);
    assert_eq!(world.claim("w1", 5).await.len(), 2);
    world.pass_ms(60_000);
    assert_eq!(world.claim("w1", 5).await.len(), 3);
    // A period that begins in the future, because a clock was wrong, keeps nobody waiting for it.
    world.pass_ms(-3_600_000);
    assert_eq!(world.claim("w1", 1).await.len(), 1);
    world.pass_ms(3_600_000);
    // Whoever names its tasks takes from the same measure.
    world.pass_ms(60_000);
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(world.submit(job()).await);
    }
    let rest = ids.split_off(2);
    let named = async |ids: Vec<_>| {
        world.tasks.claim_tasks(&claim_of("w1", &["q"], 4), ids).await.unwrap().len()
    };
    assert_eq!((named(ids).await, named(rest).await), (2, 1));
    assert_eq!(world.claim("w1", 5).await.len(), 0);
}

async fn a_lane_that_a_node_learns_of_late_is_bound(dialect: Dialect) {
    let world = World::new(dialect).await;
    let other = Tasks::new(world.store.clone()).with_full_scan(std::time::Duration::ZERO);
    for node in [&world.tasks, &other] {
        bind(node, [rule(Scope::Venture, Some(1), None)]);
    }
    world.submit(of("a")).await;
    let held = world.claim("w1", 1).await.pop().unwrap();
    // The other node meets the end of a task before it has seen its lane.
    world.submit_all(many("b", 2)).await;
    assert_eq!(other.claim(claim_of("w2", &["q"], 5)).await.unwrap().len(), 1);
    other.cancel(held.task.id, "operator", None).await.unwrap();
    world.submit_all(many("a", 3)).await;
    assert_eq!(other.claim(claim_of("w2", &["q"], 5)).await.unwrap().len(), 1);
}

/// Nodes of one database, each with what it knows for itself; SQLite has one.
fn nodes(world: &World) -> Vec<Tasks> {
    match world.dialect() {
        Dialect::Sqlite => vec![world.tasks.clone()],
        Dialect::Postgres => (0..3).map(|_| Tasks::new(world.place.open(None))).collect(),
    }
}

async fn many_nodes_at_once_never_exceed_a_limit(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let rules = [rule(Scope::Global, Some(12), None), rule(Scope::Venture, Some(3), None)];
    let nodes = nodes(&world);
    nodes.iter().for_each(|node| bind(node, rules.clone()));
    let all: Vec<NewTask> = (0..400).map(|n| of(&format!("v{}", n % 7))).collect();
    world.submit_all(all).await;
    let done = Arc::new(AtomicUsize::new(0));
    let mut workers = Vec::new();
    for (index, node) in nodes.iter().cycle().take(9).enumerate() {
        let (node, done) = (node.clone(), Arc::clone(&done));
        workers.push(tokio::spawn(async move {
            while done.load(Ordering::SeqCst) < 400 {
                let held = node.claim(claim_of(&format!("w{index}"), &["q"], 4)).await.unwrap();
                tokio::task::yield_now().await;
                let ends = held.iter().map(|a| finish_of(a, Finishing::Complete(None))).collect();
                for outcome in node.finish(ends).await {
                    outcome.unwrap();
                    done.fetch_add(1, Ordering::SeqCst);
                }
            }
        }));
    }
    while done.load(Ordering::SeqCst) < 400 {
        let active = "SELECT venture FROM task WHERE status IN ('claimed', 'running')";
        let text = tokio::task::block_in_place(|| world.by_hand(active).unwrap());
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        text.lines().for_each(|venture| *counts.entry(venture).or_default() += 1);
        let all: usize = counts.values().sum();
        assert!(all <= 12 && counts.values().all(|count| *count <= 3), "{counts:?}");
    }
    for worker in workers {
        worker.await.unwrap();
    }
}

/// A claim that found nothing where it expected something had marked the key as full.
async fn a_place_that_a_claim_kept_in_vain_is_free(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    bind(&world.tasks, [rule(Scope::Venture, Some(1), None)]);
    for _ in 0..3 {
        world.submit(of("acme")).await;
        let held = world.claim("w1", 5).await;
        assert_eq!(held.len(), 1);
        world.finish(&held[0], complete()).await.unwrap();
        assert!(world.claim("w1", 5).await.is_empty());
    }
}
