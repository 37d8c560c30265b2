//! How many tasks a session of a worker type holds, whoever hands them to it.

use super::eager::Waiting;
use crate::world::*;
use windlass_domain::limit::{Limits, Rule, Scope};
use windlass_store::statement::Dialect;
use windlass_store::task::{Claim, Tasks};

conformance!(
    a_session_holds_no_more_than_its_type_allows,
    claims_of_one_session_on_many_nodes_share_what_it_may_hold,
    an_eager_hand_over_keeps_to_the_type,
    a_type_without_a_rule_holds_what_it_asks_for,
);

fn limits(most: i64) -> Limits {
    let name = Some("crew".to_owned());
    let (max_active, max_pending, rate) = (Some(most), None, None);
    Limits::new([Rule { scope: Scope::WorkerType, name, max_active, max_pending, rate }])
}

fn of_type(session: &str, worker_type: &str, max: usize) -> Claim {
    Claim { worker_type: Some(worker_type.into()), ..claim_of(session, &["q"], max) }
}

async fn a_session_holds_no_more_than_its_type_allows(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.tasks.bind(Some(limits(2)));
    world.submit_all((0..8).map(|_| job()).collect()).await;
    let claim = |max| world.tasks.claim(of_type("w1", "crew", max));
    let first = claim(1).await.unwrap();
    assert_eq!((first.len(), claim(5).await.unwrap().len()), (1, 1));
    assert_eq!(claim(5).await.unwrap().len(), 0);
    let one = vec![world.submit(job()).await];
    let named = world.tasks.claim_tasks(&of_type("w1", "crew", 5), one).await.unwrap();
    assert_eq!(named.len(), 0);
    // Each session for itself.
    assert_eq!(world.tasks.claim(of_type("w2", "crew", 5)).await.unwrap().len(), 2);
    // What ends makes room; a lower rule takes nothing away, a higher one gives more.
    world.finish(&first[0], complete()).await.unwrap();
    assert_eq!(claim(5).await.unwrap().len(), 1);
    world.tasks.bind(Some(limits(1)));
    assert_eq!(claim(5).await.unwrap().len(), 0);
    world.tasks.bind(Some(limits(3)));
    assert_eq!(claim(5).await.unwrap().len(), 1);
}

async fn claims_of_one_session_on_many_nodes_share_what_it_may_hold(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let nodes: Vec<Tasks> = match dialect {
        Dialect::Sqlite => vec![world.tasks.clone()],
        Dialect::Postgres => (0..3).map(|_| Tasks::new(world.place.open(None))).collect(),
    };
    nodes.iter().for_each(|node| node.bind(Some(limits(2))));
    world.submit_all((0..60).map(|_| job()).collect()).await;
    for round in 0..10 {
        let mut claims = Vec::new();
        for node in nodes.iter().cycle().take(9) {
            let node = node.clone();
            claims.push(tokio::spawn(async move {
                node.claim(of_type("w1", "crew", 2)).await.unwrap()
            }));
        }
        let mut held = Vec::new();
        for claim in claims {
            held.extend(claim.await.unwrap());
        }
        assert_eq!(held.len(), 2, "round {round}");
        let ends = held.iter().map(|a| finish_of(a, complete())).collect();
        for outcome in world.tasks.finish(ends).await {
            outcome.unwrap();
        }
    }
}

async fn an_eager_hand_over_keeps_to_the_type(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.tasks.bind(Some(limits(1)));
    let waiting = Waiting::of(&world);
    for expected in [1, 0] {
        waiting.enter(of_type("w1", "crew", 1));
        world.submit(job()).await;
        assert_eq!(waiting.got().pop().unwrap().len(), expected);
    }
}

async fn a_type_without_a_rule_holds_what_it_asks_for(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.tasks.bind(Some(limits(1)));
    world.submit_all((0..6).map(|_| job()).collect()).await;
    assert_eq!(world.tasks.claim(of_type("w1", "other", 4)).await.unwrap().len(), 4);
    assert_eq!(world.claim("w2", 2).await.len(), 2);
}
