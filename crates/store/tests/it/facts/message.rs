//! Messages reach their inbox with whatever makes them, or become dead letters there and then.

use crate::world::*;
use serde_json::{Value as Json, json};
use uuid::Uuid;
use windlass_domain::agent::AgentSpec;
use windlass_domain::id::MessageId;
use windlass_domain::message::{NewMessage, Reason, Status, TRANSITIONS};
use windlass_store::agent::Agents;
use windlass_store::error::Error;
use windlass_store::message::{self, Outcome};
use windlass_store::statement::Dialect;
use windlass_store::tx::Tx;

conformance!(
    a_message_comes_with_its_transaction_or_not_at_all,
    the_same_id_or_key_is_the_same_message,
    what_nobody_can_read_becomes_a_dead_letter_in_the_same_transaction,
    what_is_no_message_becomes_a_dead_letter_and_fails_nothing,
    the_database_knows_the_machine_of_messages,
    by_hand_only_what_the_machine_permits_is_possible,
    what_was_said_is_kept,
);

/// An agent without a place.
pub async fn agent(world: &World, name: &str) {
    member(world, name, AgentSpec::default()).await;
}

/// An agent with a place in the company.
pub async fn member(world: &World, name: &str, spec: AgentSpec) {
    Agents::new(world.store.clone()).put(name, spec, "tester").await.unwrap();
}

pub fn new(to: &str) -> NewMessage {
    NewMessage::new(MessageId(Uuid::now_v7()), "vp", to, "report", json!({ "n": 1 }))
}

pub async fn deliver(world: &World, new: &NewMessage) -> Outcome {
    let new = new.clone();
    world.store.write("test", move |tx| message::deliver(tx, &new)).await.unwrap()
}

async fn a_message_comes_with_its_transaction_or_not_at_all(dialect: Dialect) {
    let world = World::new(dialect).await;
    agent(&world, "ceo").await;
    let lost = new("ceo");
    let body = move |tx: &mut dyn Tx| -> Result<(), Error> {
        message::deliver(tx, &lost)?;
        Err(Error::Data("rolled back".into()))
    };
    assert!(world.store.write("test", body).await.is_err());
    assert_eq!(world.by_hand("SELECT count(*) FROM message").unwrap(), "0");
    let kept = new("ceo");
    assert_eq!(deliver(&world, &kept).await, Outcome::InInbox);
    let sql = "SELECT id, from_agent, to_agent, status, deliveries FROM message";
    assert_eq!(world.by_hand(sql).unwrap(), format!("{}|vp|ceo|pending|0", kept.id));
    assert_eq!(world.by_hand("SELECT agent FROM inbox").unwrap(), "ceo");
    let sql = "SELECT actor, event FROM audit WHERE event LIKE 'message%'";
    assert_eq!(world.by_hand(sql).unwrap(), "windlass|message_sent");
}

async fn the_same_id_or_key_is_the_same_message(dialect: Dialect) {
    let world = World::new(dialect).await;
    agent(&world, "ceo").await;
    let first = NewMessage { idempotency_key: Some("k".into()), ..new("ceo") };
    assert_eq!(deliver(&world, &first).await, Outcome::InInbox);
    let id = first.id;
    assert_eq!(deliver(&world, &first).await, Outcome::Duplicate { id, same: true });
    let again = NewMessage { id: MessageId(Uuid::now_v7()), ..first.clone() };
    assert_eq!(deliver(&world, &again).await, Outcome::Duplicate { id, same: true });
    let other = NewMessage { payload: json!(2), ..again.clone() };
    assert_eq!(deliver(&world, &other).await, Outcome::Duplicate { id, same: false });
    // Keys belong to their sender.
    let elsewhere = NewMessage { from: "another".into(), ..again };
    assert_eq!(deliver(&world, &elsewhere).await, Outcome::InInbox);
    assert_eq!(world.by_hand("SELECT count(*) FROM message").unwrap(), "2");
}

async fn what_nobody_can_read_becomes_a_dead_letter_in_the_same_transaction(dialect: Dialect) {
    let world = World::new(dialect).await;
    let lost = NewMessage { correlation_id: Some("deal".into()), ..new("nobody") };
    let dead = Outcome::DeadLettered(Reason::UnknownAgent);
    assert_eq!(deliver(&world, &lost).await, dead);
    // The body of a transaction may run twice.
    let id = lost.id;
    assert_eq!(deliver(&world, &lost).await, Outcome::Duplicate { id, same: true });
    let sql = "SELECT status FROM message";
    assert_eq!(world.by_hand(sql).unwrap(), "dead_lettered");
    let sql = "SELECT message_id, reason, status, deliveries, correlation_id FROM dead_letter";
    assert_eq!(world.by_hand(sql).unwrap(), format!("{id}|unknown_agent|pending|0|deal"));
    let original = world.by_hand("SELECT original FROM dead_letter").unwrap();
    let original: Json = serde_json::from_str(&original).unwrap();
    assert_eq!((&original["payload"], &original["to"]), (&json!({ "n": 1 }), &json!("nobody")));
    let sql = "SELECT type, severity FROM alert";
    assert_eq!(world.by_hand(sql).unwrap(), "dead_letter|warning");
    let sql = "SELECT count(*) FROM audit WHERE event = 'message_dead_lettered'";
    assert_eq!(world.by_hand(sql).unwrap(), "1");
}

async fn what_is_no_message_becomes_a_dead_letter_and_fails_nothing(dialect: Dialect) {
    let world = World::new(dialect).await;
    agent(&world, "ceo").await;
    let dead = Outcome::DeadLettered(Reason::Invalid);
    for bad in [
        NewMessage { from: String::new(), ..new("ceo") },
        NewMessage { to: "é".repeat(200), ..new("ceo") },
        NewMessage { kind: "a\0b".into(), ..new("ceo") },
        NewMessage { payload: json!("x".repeat(1 << 20)), ..new("ceo") },
        NewMessage { payload: json!("a\0b"), ..new("ceo") },
        NewMessage { priority: i32::MAX, correlation_id: Some(String::new()), ..new("ceo") },
        NewMessage { idempotency_key: Some("k".repeat(300)), ttl_ms: Some(-1), ..new("ceo") },
    ] {
        assert_eq!(deliver(&world, &bad).await, dead, "{bad:?}");
    }
    let sql = "SELECT count(*) FROM dead_letter WHERE reason = 'invalid'";
    assert_eq!(world.by_hand(sql).unwrap(), "7");
}

async fn the_database_knows_the_machine_of_messages(dialect: Dialect) {
    let world = World::new(dialect).await;
    let sql = "SELECT from_status, to_status FROM message_transition";
    let mut found: Vec<_> = world.by_hand(sql).unwrap().lines().map(str::to_owned).collect();
    let mut wanted: Vec<_> =
        TRANSITIONS.iter().map(|(from, _, to)| format!("{from}|{to}")).collect();
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted);
}

/// What a row in `to` looks like: everything but the transition is right.
fn shape(dialect: Dialect, to: Status, lease: MessageId) -> String {
    let at = crate::refusal::instant(dialect, NOON);
    let (expiry, finished) = match to {
        Status::Delivered => (at.as_str(), "NULL"),
        Status::Pending => ("NULL", "NULL"),
        _ => ("NULL", at.as_str()),
    };
    format!(
        "status = '{to}', lease_expires_at = {expiry}, finished_at = {finished}, \
         lease_id = '{lease}', handled_by = 'a person', delivered_at = {at}, deliveries = 1"
    )
}

async fn by_hand_only_what_the_machine_permits_is_possible(dialect: Dialect) {
    let world = World::new(dialect).await;
    agent(&world, "ceo").await;
    for &from in Status::ALL {
        for &to in Status::ALL {
            let message = new("ceo");
            deliver(&world, &message).await;
            let id = message.id;
            let now = crate::refusal::instant(dialect, NOON);
            let letter = format!(
                "INSERT INTO dead_letter (message_id, original, from_agent, to_agent, type, reason,
                     detail, deliveries, entered_at, updated_at)
                 VALUES ('{id}', '{{}}', 'vp', 'ceo', 'report', 'rejected', 'no', 1, {now}, {now})"
            );
            world.by_hand(&letter).unwrap();
            let step = |to| {
                // Any id that nobody else has will do for a lease.
                let shape = shape(dialect, to, id);
                world.by_hand(&format!("UPDATE message SET {shape} WHERE id = '{id}'"))
            };
            let way: &[Status] = match from {
                Status::Pending => &[],
                Status::Acknowledged => &[Status::Delivered, Status::Acknowledged],
                _ => &[from],
            };
            way.iter().for_each(|&to| drop(step(to).unwrap()));
            let is_legal = TRANSITIONS.iter().any(|(f, _, t)| (*f, *t) == (from, to))
                || from == to && !from.is_terminal();
            assert_eq!(step(to).is_ok(), is_legal, "{from} to {to}");
        }
    }
}

async fn what_was_said_is_kept(dialect: Dialect) {
    let world = World::new(dialect).await;
    agent(&world, "ceo").await;
    deliver(&world, &new("ceo")).await;
    deliver(&world, &new("nobody")).await;
    for sql in [
        "UPDATE message SET payload = '2' WHERE status = 'pending'",
        "UPDATE message SET to_agent = 'x' WHERE status = 'pending'",
        "UPDATE message SET last_error = 'x' WHERE status = 'dead_lettered'",
        "DELETE FROM message",
        "DELETE FROM inbox",
        "DELETE FROM dead_letter",
        "UPDATE dead_letter SET detail = 'x'",
        "UPDATE dead_letter SET status = 'resolved', assignee = 'a', closed_at = entered_at",
        "INSERT INTO message (to_agent, type, status, finished_at)
         SELECT 'ceo', 'x', 'acknowledged', created_at FROM message LIMIT 1",
        "INSERT INTO message (to_agent, type, deliveries) VALUES ('ceo', 'x', 1)",
        "INSERT INTO message_transition VALUES ('expired', 'pending')",
    ] {
        assert!(world.by_hand(sql).is_err(), "{sql}");
    }
    if dialect == Dialect::Sqlite {
        let sql = "INSERT OR REPLACE INTO message (id, to_agent, type)
                   SELECT id, 'ceo', 'x' FROM message";
        assert!(world.by_hand(sql).is_err());
    }
    world.by_hand("INSERT INTO message (to_agent, type) VALUES ('ceo', 'note')").unwrap();
    let sql = "SELECT count(*) FROM message WHERE status = 'pending'";
    assert_eq!(world.by_hand(sql).unwrap(), "2");
}
