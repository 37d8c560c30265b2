//! Messages wake their handlers at once, one conversation at a time, and are acknowledged after
//! they were handled.

use crate::world::*;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use windlass::domain::agent::AgentSpec;
use windlass::domain::id::MessageId;
use windlass::domain::message::{SendRequest, Status};
use windlass::engine::MessageClaim;
use windlass::sdk::{Failure, Incoming, MessageOptions};
use windlass::store::agent::Agents;
use windlass::store::message::Whose;
use windlass::store::statement::Dialect;
use windlass::{Engine, Options};

conformance!(
    a_message_wakes_its_handler_at_once,
    an_inbox_is_drained_by_urgency_one_message_at_a_time,
    what_failed_is_tried_again_and_given_up_in_the_end,
    a_long_handler_keeps_its_message,
    a_message_written_by_hand_is_found_within_five_seconds,
    who_stops_waiting_loses_no_message,
    silent_handlers_are_swept,
);

async fn agent(engine: &Engine, name: &str, role: &str) {
    let agents = Agents::new(engine.store().clone());
    let spec = AgentSpec { role: Some(role.to_owned()), ..AgentSpec::default() };
    agents.put(name, spec, "tester").await.unwrap();
}

async fn send(engine: &Engine, to: &str, priority: i32) -> MessageId {
    let request = SendRequest {
        to: to.to_owned(),
        kind: "note".into(),
        payload: json!({ "priority": priority }),
        priority: Some(priority),
        ..SendRequest::default()
    };
    engine.send_message(request, "tester").await.unwrap().message.id
}

async fn status(engine: &Engine, id: MessageId) -> Status {
    engine.messages().show(id).await.unwrap().unwrap().status
}

async fn until(engine: &Engine, id: MessageId, wanted: Status) {
    let begun = Instant::now();
    while status(engine, id).await != wanted {
        assert!(begun.elapsed() < PATIENCE, "{id} is not {wanted}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn idle(engine: &Engine, count: usize) {
    while engine.idle_handlers() < count {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn a_message_wakes_its_handler_at_once(dialect: Dialect) {
    let world = World::with(dialect, without_polling()).await;
    let engine = &world.engine;
    agent(engine, "ceo", "ceo").await;
    agent(engine, "vp", "vp").await;
    let (told, mut telling) = mpsc::unbounded_channel::<(String, Incoming)>();
    let handle = |name: &'static str| {
        let told = told.clone();
        move |message: Incoming| {
            let told = told.clone();
            async move {
                let _ = told.send((name.to_owned(), message));
                Ok(())
            }
        }
    };
    let ceo = engine.handle_messages(MessageOptions::role("ceo"), handle("ceos"));
    let vp = engine.handle_messages(MessageOptions::agent("vp"), handle("the vp"));
    idle(engine, 4).await;
    for (to, whose) in [("ceo", "ceos"), ("vp", "the vp"), ("ceo", "ceos")] {
        let id = send(engine, to, 1).await;
        let (name, message) = telling.recv().await.unwrap();
        assert_eq!((name.as_str(), message.id, message.deliveries), (whose, id, 1));
        assert_eq!((message.to.as_str(), message.correlation_id), (to, id.to_string()));
        until(engine, id, Status::Acknowledged).await;
    }
    ceo.stop().await;
    vp.stop().await;
    engine.shutdown(PATIENCE).await;
}

async fn an_inbox_is_drained_by_urgency_one_message_at_a_time(dialect: Dialect) {
    let world = World::with(dialect, without_polling()).await;
    let engine = &world.engine;
    agent(engine, "ceo", "ceo").await;
    for priority in [0, 3, 1, 3, 2] {
        send(engine, "ceo", priority).await;
    }
    let (told, mut telling) = mpsc::unbounded_channel();
    let busy = Arc::new(AtomicUsize::new(0));
    let options = MessageOptions::role("ceo").size(5).unwrap();
    let handlers = engine.handle_messages(options, move |message| {
        let (told, busy) = (told.clone(), Arc::clone(&busy));
        async move {
            assert_eq!(busy.fetch_add(1, Ordering::SeqCst), 0, "two conversations at once");
            tokio::time::sleep(Duration::from_millis(10)).await;
            busy.fetch_sub(1, Ordering::SeqCst);
            let _ = told.send(message.priority);
            Ok(())
        }
    });
    let mut seen = Vec::new();
    for _ in 0..5 {
        seen.push(telling.recv().await.unwrap());
    }
    assert_eq!(seen, [3, 3, 2, 1, 0]);
    handlers.stop().await;
    engine.shutdown(PATIENCE).await;
}

async fn what_failed_is_tried_again_and_given_up_in_the_end(dialect: Dialect) {
    let world = World::new(dialect).await;
    let engine = &world.engine;
    agent(engine, "scout", "crew").await;
    let handlers = engine.handle_messages(MessageOptions::agent("scout"), |message| async move {
        match message.payload["priority"].as_i64() {
            Some(0) => panic!("a handler may panic"),
            Some(1) => Err(Failure::invalid_input("gibberish")),
            _ if message.deliveries < 3 => {
                Err(Failure::new("TIMEOUT", "not yet").retry_after(Duration::ZERO))
            }
            _ => Ok(()),
        }
    });
    let fine = send(engine, "scout", 2).await;
    until(engine, fine, Status::Acknowledged).await;
    let never = send(engine, "scout", 1).await;
    until(engine, never, Status::DeadLettered).await;
    let (letter, _) = engine.dead_letters().show(never).await.unwrap().unwrap();
    assert!(letter.detail.contains("INVALID_INPUT: gibberish"), "{}", letter.detail);
    let panics = send(engine, "scout", 0).await;
    let begun = Instant::now();
    while engine.messages().show(panics).await.unwrap().unwrap().last_error.is_none() {
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    handlers.stop().await;
    engine.shutdown(PATIENCE).await;
}

async fn a_long_handler_keeps_its_message(dialect: Dialect) {
    let world = World::new(dialect).await;
    let engine = &world.engine;
    agent(engine, "vp", "vp").await;
    let options = MessageOptions::role("vp").lease(Duration::from_secs(1)).unwrap();
    let handlers = engine.handle_messages(options, |_| async {
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        Ok(())
    });
    let id = send(engine, "vp", 0).await;
    until(engine, id, Status::Acknowledged).await;
    let message = engine.messages().show(id).await.unwrap().unwrap();
    assert_eq!(message.deliveries, 1);
    handlers.stop().await;
    engine.shutdown(PATIENCE).await;
}

async fn a_message_written_by_hand_is_found_within_five_seconds(dialect: Dialect) {
    let world = World::new(dialect).await;
    let engine = &world.engine;
    agent(engine, "ceo", "ceo").await;
    let (told, mut telling) = mpsc::unbounded_channel();
    let handlers = engine.handle_messages(MessageOptions::role("ceo"), move |message| {
        let told = told.clone();
        async move {
            let _ = told.send(message);
            Ok(())
        }
    });
    idle(engine, 3).await;
    let sql = "INSERT INTO message (to_agent, type, payload) VALUES ('ceo', 'note', '\"hello\"')";
    world.place.by_hand(sql);
    let heard = tokio::time::timeout(Duration::from_secs(5), telling.recv()).await;
    let message = heard.expect("within five seconds").unwrap();
    assert_eq!((message.payload, message.kind.as_str()), (json!("hello"), "note"));
    handlers.stop().await;
    engine.shutdown(PATIENCE).await;
}

async fn who_stops_waiting_loses_no_message(dialect: Dialect) {
    let world = World::with(dialect, without_polling()).await;
    let engine = &world.engine;
    agent(engine, "ceo", "ceo").await;
    let claim = |wait| MessageClaim {
        whose: Whose::Agents(vec!["ceo".into()]),
        handler: "h".into(),
        max: 1,
        lease_ms: None,
        wait,
    };
    for _ in 0..5 {
        let waiting = engine.clone();
        let patient = claim(PATIENCE);
        let waiter = tokio::spawn(async move { waiting.claim_messages(patient).await });
        idle(engine, 1).await;
        let sending = send(engine, "ceo", 0);
        waiter.abort();
        let id = sending.await;
        let begun = Instant::now();
        loop {
            let held = engine.claim_messages(claim(Duration::from_millis(50))).await.unwrap();
            if let Some(held) = held.first() {
                assert_eq!(held.message.id, id);
                engine.acknowledge_message(id, held.lease).await.unwrap();
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "the message is lost");
        }
    }
    engine.shutdown(PATIENCE).await;
}

async fn silent_handlers_are_swept(dialect: Dialect) {
    let world = World::with(dialect, Options::default()).await;
    let engine = &world.engine;
    agent(engine, "ceo", "ceo").await;
    let id = send(engine, "ceo", 0).await;
    let claim = |lease_ms| MessageClaim {
        whose: Whose::Pool("ceo_handler".into()),
        handler: "h".into(),
        max: 1,
        lease_ms,
        wait: Duration::from_secs(5),
    };
    let first = engine.claim_messages(claim(Some(1_000))).await.unwrap().remove(0);
    let second = engine.claim_messages(claim(None)).await.unwrap().remove(0);
    assert_eq!((second.message.id, second.message.deliveries), (id, 2));
    assert!(engine.acknowledge_message(id, first.lease).await.is_err());
    engine.acknowledge_message(id, second.lease).await.unwrap();
    engine.shutdown(PATIENCE).await;
}

/// Wake-ups between nodes.
#[test]
fn a_message_on_one_node_wakes_a_handler_on_another() {
    run(between_nodes, Dialect::Postgres);
}

async fn between_nodes(dialect: Dialect) {
    let world = World::with(dialect, without_polling()).await;
    let other = world.another(without_polling()).await;
    for node in [&world.engine, &other] {
        eventually("the nodes hear each other", || async { node.store().hears() }).await;
    }
    agent(&world.engine, "ceo", "ceo").await;
    let (told, mut telling) = mpsc::unbounded_channel();
    let handlers = other.handle_messages(MessageOptions::role("ceo"), move |message| {
        let _ = told.send(message.id);
        async { Ok(()) }
    });
    idle(&other, 3).await;
    let id = send(&world.engine, "ceo", 0).await;
    assert_eq!(telling.recv().await, Some(id));
    handlers.stop().await;
    other.shutdown(PATIENCE).await;
    world.engine.shutdown(PATIENCE).await;
}
