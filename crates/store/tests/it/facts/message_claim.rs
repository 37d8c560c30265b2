//! Messages are handed out by urgency, to the handlers of their agent's role, one conversation at a
//! time.

use super::message::{agent, deliver, member, new};
use crate::world::*;
use windlass_domain::agent::AgentSpec;
use windlass_domain::message::{LEASE_MS, NewMessage};
use windlass_store::message::{Claim, Delivery, Ending, Messages, Speaker, Whose};
use windlass_store::statement::Dialect;

conformance!(
    an_inbox_is_drained_by_urgency_then_by_age,
    a_conversing_agent_has_one_conversation_at_a_time,
    a_conversing_agent_with_a_pool_of_its_own_has_one_conversation_at_a_time,
    crew_is_pulled_for_by_many,
    messages_go_to_the_pool_of_the_role,
    what_was_written_by_hand_is_found,
    what_is_not_due_or_expired_is_not_handed_out,
    no_read_shows_a_lease,
);

pub async fn role(world: &World, name: &str, role: &str) {
    let spec = AgentSpec { role: Some(role.to_owned()), ..AgentSpec::default() };
    member(world, name, spec).await;
}

pub fn messages(world: &World) -> Messages {
    Messages::new(world.store.clone())
}

pub async fn take(world: &World, whose: Whose, max: usize) -> Vec<Delivery> {
    messages(world).claim(Claim::new(whose, "handler-1", LEASE_MS, max)).await.unwrap()
}

pub fn pool(name: &str) -> Whose {
    Whose::Pool(name.to_owned())
}

pub fn of(name: &str) -> Whose {
    Whose::Agents(vec![name.to_owned()])
}

async fn ack(world: &World, held: &Delivery) {
    messages(world).end(held.message.id, held.lease, Ending::Acknowledge).await.unwrap();
}

async fn an_inbox_is_drained_by_urgency_then_by_age(dialect: Dialect) {
    let world = World::new(dialect).await;
    role(&world, "ceo", "ceo").await;
    let mut sent = Vec::new();
    for priority in [0, 5, 0, -1, 5] {
        let message = NewMessage { priority, ..new("ceo") };
        deliver(&world, &message).await;
        sent.push(message.id);
        world.pass_ms(1);
    }
    let mut got = Vec::new();
    while let Some(held) = take(&world, pool("ceo_handler"), 1).await.pop() {
        got.push(held.message.id);
        ack(&world, &held).await;
    }
    assert_eq!(got, [1, 4, 0, 2, 3].map(|index| sent[index]));
}

async fn a_conversing_agent_has_one_conversation_at_a_time(dialect: Dialect) {
    let world = World::new(dialect).await;
    role(&world, "vp-1", "vp").await;
    role(&world, "vp-2", "vp").await;
    for to in ["vp-1", "vp-1", "vp-2", "vp-1"] {
        deliver(&world, &new(to)).await;
    }
    let held = take(&world, pool("vp_handler"), 10).await;
    let mut agents: Vec<_> = held.iter().map(|held| held.message.to.as_str()).collect();
    agents.sort();
    assert_eq!(agents, ["vp-1", "vp-2"]);
    assert!(take(&world, pool("vp_handler"), 10).await.is_empty());
    assert!(take(&world, of("vp-1"), 10).await.is_empty());
    // Also by hand.
    let now = crate::refusal::instant(dialect, NOON);
    let sql = format!(
        "UPDATE message SET status = 'delivered', deliveries = 1, converses = TRUE,
             lease_id = '11111111-1111-4111-8111-111111111111', lease_expires_at = {now},
             handled_by = 'me', delivered_at = {now}
         WHERE id = (SELECT id FROM message WHERE to_agent = 'vp-1' AND status = 'pending' LIMIT 1)"
    );
    assert!(world.by_hand(&sql).is_err());
    for held in &held {
        ack(&world, held).await;
    }
    assert_eq!(take(&world, pool("vp_handler"), 10).await.len(), 1);
}

/// The name of the pool decided: a vp whose messages went elsewhere was in many conversations.
async fn a_conversing_agent_with_a_pool_of_its_own_has_one_conversation_at_a_time(
    dialect: Dialect,
) {
    let world = World::new(dialect).await;
    for (name, role, pool_of, at_once) in [
        ("vp", "vp", "night_handler", 1),
        ("ceo", "ceo", "crew_executor", 1),
        ("bot", "bot", "vp_handler", 1),
        ("scout", "scout", "gpu_handler", 3),
    ] {
        let spec = AgentSpec {
            role: Some(role.to_owned()),
            worker_type: Some(pool_of.to_owned()),
            ..AgentSpec::default()
        };
        member(&world, name, spec).await;
        for _ in 0..4 {
            deliver(&world, &new(name)).await;
        }
        assert_eq!(take(&world, pool(pool_of), 3).await.len(), at_once, "{name}");
        // Nor by its own name, nor with what a send takes along.
        let offer = Claim::new(of(name), "handler-2", LEASE_MS, 1);
        let sent = messages(&world).send(new(name), Speaker::Person, vec![offer]).await.unwrap();
        assert_eq!(sent.delivery.is_some(), at_once > 1, "{name}");
        assert_eq!(take(&world, of(name), 1).await.is_empty(), at_once == 1, "{name}");
    }
}

async fn crew_is_pulled_for_by_many(dialect: Dialect) {
    let world = World::new(dialect).await;
    role(&world, "scout", "scout").await;
    for _ in 0..5 {
        deliver(&world, &new("scout")).await;
    }
    assert_eq!(take(&world, of("scout"), 2).await.len(), 2);
    assert_eq!(take(&world, pool("crew_executor"), 2).await.len(), 2);
    assert_eq!(take(&world, pool("crew_executor"), 2).await.len(), 1);
    assert!(take(&world, pool("crew_executor"), 2).await.is_empty());
}

async fn messages_go_to_the_pool_of_the_role(dialect: Dialect) {
    let world = World::new(dialect).await;
    role(&world, "ceo", "ceo").await;
    role(&world, "vp", "vp").await;
    agent(&world, "free").await;
    let own = AgentSpec {
        role: Some("crew".into()),
        worker_type: Some("gpu".into()),
        ..AgentSpec::default()
    };
    member(&world, "trainer", own).await;
    for to in ["trainer", "free", "vp", "ceo"] {
        deliver(&world, &new(to)).await;
    }
    for (name, to) in [
        ("ceo_handler", "ceo"),
        ("vp_handler", "vp"),
        ("crew_executor", "free"),
        ("gpu", "trainer"),
    ] {
        let held = take(&world, pool(name), 10).await;
        assert_eq!(held.len(), 1, "{name}");
        assert_eq!(held[0].message.to, to);
    }
    // Another role, another pool, for what lies there as well.
    deliver(&world, &new("free")).await;
    role(&world, "free", "vp").await;
    assert!(take(&world, pool("crew_executor"), 10).await.is_empty());
    let held = take(&world, pool("vp_handler"), 10).await;
    assert!(held.is_empty(), "the message in hand is a conversation now");
}

async fn what_was_written_by_hand_is_found(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    role(&world, "ceo", "ceo").await;
    let sql = "INSERT INTO message (to_agent, type, payload) VALUES ('ceo', 'note', '{\"a\": 1}')";
    world.by_hand(sql).unwrap();
    let held = take(&world, pool("ceo_handler"), 10).await;
    assert_eq!(held.len(), 1);
    let message = &held[0].message;
    assert!(message.from.starts_with("sql:"), "{}", message.from);
    assert_eq!(message.correlation_id, message.id.to_string());
    ack(&world, &held[0]).await;
}

async fn what_is_not_due_or_expired_is_not_handed_out(dialect: Dialect) {
    let world = World::new(dialect).await;
    role(&world, "ceo", "ceo").await;
    let short = NewMessage { ttl_ms: Some(10), priority: 9, ..new("ceo") };
    let long = new("ceo");
    deliver(&world, &short).await;
    deliver(&world, &long).await;
    world.pass_ms(10);
    let held = take(&world, of("ceo"), 1).await;
    assert_eq!(held[0].message.id, long.id, "what has expired holds up nobody");
    assert_eq!(messages(&world).expire(10).await.unwrap().len(), 1);
    assert_eq!(messages(&world).expire(10).await.unwrap().len(), 0);
    let sql = format!("SELECT status FROM message WHERE id = '{}'", short.id);
    assert_eq!(world.by_hand(&sql).unwrap(), "expired");
    let sql = "SELECT count(*) FROM audit WHERE event = 'message_expired'";
    assert_eq!(world.by_hand(sql).unwrap(), "1");
}

async fn no_read_shows_a_lease(dialect: Dialect) {
    let world = World::new(dialect).await;
    role(&world, "ceo", "ceo").await;
    deliver(&world, &new("ceo")).await;
    let held = take(&world, of("ceo"), 1).await.remove(0);
    let shown = messages(&world).show(held.message.id).await.unwrap().unwrap();
    let text = serde_json::to_string(&shown).unwrap();
    assert!(!text.contains(&held.lease.to_string()), "{text}");
}
