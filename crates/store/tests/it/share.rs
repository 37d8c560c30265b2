//! On PostgreSQL, claims and submits share their lock where limits leave plenty of room.

use crate::postgres_log::application;
use crate::world::{World, claim_of, job, on_postgres, task};
use std::time::Duration;
use windlass_domain::limit::{Limits, Rate, Rule, Scope};
use windlass_domain::task::NewTask;
use windlass_store::statement::Dialect;
use windlass_store::task::Tasks;

on_postgres!(
    with_plenty_of_room_nobody_waits_for_a_claim_that_is_open,
    near_a_limit_the_lock_is_held_alone,
    what_nearly_fills_a_large_limit_is_counted_to_the_last_task,
    too_little_room_gives_the_shared_lock_back,
    a_transaction_that_adds_much_has_the_lock_alone,
    a_hope_for_room_that_is_vain_writes_nothing_and_is_tried_again,
    a_tight_limit_is_found_behind_lanes_that_have_none,
    nodes_at_once_keep_to_a_rate_behind_lanes_that_have_none,
);

/// What all who may share the lock can add at most: eight of them, 1,000 each.
const MARGIN: i64 = 8_000;

fn bind(tasks: &Tasks, most: i64) {
    let (max_active, max_pending) = (Some(most), Some(most));
    let rule = Rule { scope: Scope::Global, name: None, max_active, max_pending, rate: None };
    tasks.bind(Some(Limits::new([rule])));
}

/// As if so many were held already: counted by connections that are gone.
fn hold(world: &World, active: i64) {
    hold_of(world, 0, active);
}

fn hold_of(world: &World, backend: i64, held: i64) {
    let add = format!("INSERT INTO limit_count VALUES ('global:', {backend}, {held}, {held})");
    world.by_hand(&add).unwrap();
}

fn share(most: i64) -> String {
    format!(
        "BEGIN; SELECT * FROM windlass_share(3, 1000, '{{global:}}', '{{{most}}}', '{{{most}}}')"
    )
}

/// Whether a submit and a claim come through within a moment.
async fn comes_through(world: &World) -> bool {
    let work = async {
        world.submit(job()).await;
        world.tasks.claim(claim_of("w1", &["q"], 1)).await.unwrap().len()
    };
    matches!(tokio::time::timeout(Duration::from_millis(700), work).await, Ok(1))
}

async fn with_plenty_of_room_nobody_waits_for_a_claim_that_is_open(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let most = MARGIN + 10;
    bind(&world.tasks, most);
    let other = application(&world).await;
    other.batch_execute(&share(most)).await.unwrap();
    assert!(comes_through(&world).await);
}

async fn near_a_limit_the_lock_is_held_alone(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let most = MARGIN + 10;
    bind(&world.tasks, most);
    let other = application(&world).await;
    other.batch_execute(&share(most)).await.unwrap();
    hold(&world, 20);
    assert!(!comes_through(&world).await);
    other.batch_execute("COMMIT").await.unwrap();
    assert!(comes_through(&world).await);
}

async fn what_nearly_fills_a_large_limit_is_counted_to_the_last_task(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let most = MARGIN + 10;
    world.submit_all((0..60).map(|_| job()).collect()).await;
    hold(&world, most - 12);
    let nodes: Vec<Tasks> = (0..3).map(|_| Tasks::new(world.place.open(None))).collect();
    let mut claims = Vec::new();
    for (n, node) in nodes.iter().cycle().take(12).enumerate() {
        let node = node.clone();
        bind(&node, most);
        claims.push(tokio::spawn(async move {
            node.claim(claim_of(&format!("w{n}"), &["q"], 5)).await.unwrap().len()
        }));
    }
    let mut taken = 0;
    for claim in claims {
        taken += claim.await.unwrap();
    }
    assert_eq!(taken, 12);
}

async fn too_little_room_gives_the_shared_lock_back(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let most = MARGIN + 10;
    hold(&world, 20);
    // Two who each found too little room: the second waits for the first, and neither is stuck.
    let (one, two) = (application(&world).await, application(&world).await);
    one.batch_execute(&share(most)).await.unwrap();
    let waits = tokio::spawn(async move { two.batch_execute(&share(most)).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!waits.is_finished());
    one.batch_execute("COMMIT").await.unwrap();
    waits.await.unwrap().unwrap();
}

/// The lock is taken in the flight of the submit where there was plenty of room lately: what that
/// flight did before it failed must not make the task its own duplicate.
async fn a_hope_for_room_that_is_vain_writes_nothing_and_is_tried_again(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let most = MARGIN + 10;
    bind(&world.tasks, most);
    hold(&world, 20);
    let mut outcomes = world.tasks.submit(vec![job(), job()]).await;
    assert!(outcomes.drain(..).all(|outcome| !outcome.unwrap().duplicate));
    assert_eq!(world.by_hand("SELECT count(*) FROM task_history").unwrap(), "2");
    hold_of(&world, 1, most);
    let refused = world.tasks.submit(vec![job()]).await.remove(0).unwrap_err();
    assert!(refused.to_string().contains("pending"), "{refused}");
    assert_eq!(world.by_hand("SELECT count(*) FROM task_spec").unwrap(), "2");
}

/// Thirty ventures with room without end that are full all the same, so that the first look of a
/// claim finds large limits only.
async fn behind_large_limits(world: &World, nodes: &[Tasks], rules: Vec<Rule>) {
    let each = |n: usize| Rule {
        scope: Scope::Venture,
        name: Some(format!("big {n}")),
        max_active: Some(1_000_000),
        max_pending: None,
        rate: None,
    };
    let rules: Vec<Rule> = rules.into_iter().chain((0..30).map(each)).collect();
    for node in nodes {
        node.bind(Some(Limits::new(rules.clone())));
    }
    let backlog = (0..30).map(|n| task(|r| r.venture = Some(format!("big {n}"))));
    world.submit_all(backlog.collect()).await;
    for n in 0..30 {
        let full = format!("INSERT INTO limit_count VALUES ('venture:big {n}', 0, 1000000, 0)");
        world.by_hand(&full).unwrap();
    }
}

async fn a_tight_limit_is_found_behind_lanes_that_have_none(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let (max_active, max_pending) = (Some(1_000_000), None);
    let global = Rule { scope: Scope::Global, name: None, max_active, max_pending, rate: None };
    let tight = Rule { scope: Scope::Venture, max_active: Some(3), ..global.clone() };
    behind_large_limits(&world, std::slice::from_ref(&world.tasks), vec![global, tight]).await;
    world.submit_all((0..5).map(|_| task(|r| r.venture = Some("live".into()))).collect()).await;
    let mut taken = 0;
    for _ in 0..6 {
        taken += world.claim("w1", 1).await.len();
    }
    assert_eq!(taken, 3);
}

async fn nodes_at_once_keep_to_a_rate_behind_lanes_that_have_none(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let (max_active, max_pending) = (Some(1_000_000), None);
    let global = Rule { scope: Scope::Global, name: None, max_active, max_pending, rate: None };
    let rate = Some(Rate { count: 3, period_ms: 3_600_000 });
    let rated = Rule { scope: Scope::Agent, max_active: None, rate, ..global.clone() };
    let nodes: Vec<Tasks> = (0..3).map(|_| Tasks::new(world.place.open(None))).collect();
    behind_large_limits(&world, &nodes, vec![global, rated]).await;
    for round in 0..10 {
        let agent = format!("agent {round}");
        let new = (0..12).map(|_| task(|r| r.agent = Some(agent.clone())));
        // All of one queue, whatever the agent.
        let new = new.map(|task| NewTask { queue: "q".into(), ..task });
        world.submit_all(new.collect()).await;
        let claim = |node: &Tasks, n: usize| {
            let (node, claim) = (node.clone(), claim_of(&format!("w{n}"), &["q"], 3));
            tokio::spawn(async move { node.claim(claim).await.unwrap().len() })
        };
        let claims: Vec<_> = nodes.iter().enumerate().map(|(n, node)| claim(node, n)).collect();
        for claim in claims {
            claim.await.unwrap();
        }
    }
    let most = world.by_hand("SELECT max(taken) FROM limit_rate").unwrap();
    assert_eq!(most, "3");
}

async fn a_transaction_that_adds_much_has_the_lock_alone(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let most = MARGIN + 10;
    bind(&world.tasks, most);
    let other = application(&world).await;
    other.batch_execute(&share(most)).await.unwrap();
    let submit = |count| {
        let (tasks, new) = (world.tasks.clone(), (0..count).map(|_| job()).collect());
        tokio::spawn(async move { tasks.submit_atomic(new).await.map(|each| each.len()) })
    };
    assert_eq!(submit(1_000).await.unwrap().unwrap(), 1_000);
    let too_many = submit(1_001);
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(!too_many.is_finished());
    other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(too_many.await.unwrap().unwrap(), 1_001);
}
