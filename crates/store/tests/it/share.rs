//! On PostgreSQL, claims and submits share their lock where limits leave plenty of room.

use crate::postgres_log::application;
use crate::world::{World, claim_of, job, run};
use std::time::Duration;
use windlass_domain::limit::{Limits, Rule, Scope};
use windlass_store::statement::Dialect;
use windlass_store::task::Tasks;

macro_rules! facts {
    ($($fact:ident),* $(,)?) => {
        mod postgres {
            $(#[test] fn $fact() {
                super::run(super::$fact, windlass_store::statement::Dialect::Postgres);
            })*
        }
    };
}

facts!(
    with_plenty_of_room_nobody_waits_for_a_claim_that_is_open,
    near_a_limit_the_lock_is_held_alone,
    what_nearly_fills_a_large_limit_is_counted_to_the_last_task,
    too_little_room_gives_the_shared_lock_back,
    a_transaction_that_adds_much_has_the_lock_alone,
);

/// What all who may share the lock can add at most: 1,000 for each connection.
fn margin(world: &World) -> i64 {
    let most: i64 = world.by_hand("SHOW max_connections").unwrap().parse().unwrap();
    1_000 * most
}

fn bind(tasks: &Tasks, most: i64) {
    let (max_active, max_pending) = (Some(most), Some(most));
    let rule = Rule { scope: Scope::Global, name: None, max_active, max_pending, rate: None };
    tasks.bind(Some(Limits::new([rule])));
}

/// As if so many were held already: counted by connections that are gone.
fn hold(world: &World, active: i64) {
    let add = format!("INSERT INTO limit_count VALUES ('global:', 0, {active}, {active})");
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
    let most = margin(&world) + 10;
    bind(&world.tasks, most);
    let other = application(&world).await;
    other.batch_execute(&share(most)).await.unwrap();
    assert!(comes_through(&world).await);
}

async fn near_a_limit_the_lock_is_held_alone(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let most = margin(&world) + 10;
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
    let most = margin(&world) + 10;
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
    let most = margin(&world) + 10;
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

async fn a_transaction_that_adds_much_has_the_lock_alone(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let most = margin(&world) + 10;
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
