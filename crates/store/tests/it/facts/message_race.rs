//! Many handlers on several nodes: every message is handled once, and nobody talks to an agent that
//! somebody else talks to.

use super::message::{deliver, new};
use super::message_claim::{messages, of, pool, role, take};
use crate::postgres_log::application;
use crate::world::*;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use windlass_domain::message::{LEASE_MS, NewMessage};
use windlass_store::message::{Claim, Delivery, Ending, Messages, Speaker};
use windlass_store::statement::Dialect;
use windlass_store::store::Store;

conformance!(
    two_handlers_never_hold_messages_of_one_conversing_agent,
    crew_messages_are_handed_out_once_each,
    sends_with_waiting_handlers_keep_one_conversation,
    the_same_send_at_the_same_time_is_one_message,
    an_inbox_that_somebody_holds_hides_no_other,
);

/// SQLite has one server a file; its nodes are the tasks of one process.
fn nodes(world: &World) -> Vec<Store> {
    (0..3)
        .map(|_| match world.dialect() {
            Dialect::Sqlite => world.store.clone(),
            Dialect::Postgres => world.place.open(None),
        })
        .collect()
}

fn close(world: &World, nodes: &[Store]) {
    if world.dialect() == Dialect::Postgres {
        nodes.iter().for_each(Store::close);
    }
}

/// Who holds what now, and what was handled.
#[derive(Default)]
struct Seen {
    held: HashMap<String, usize>,
    most: usize,
    done: HashSet<windlass_domain::id::MessageId>,
}

impl Seen {
    fn took(&mut self, held: &Delivery) {
        let count = self.held.entry(held.message.to.clone()).or_default();
        *count += 1;
        self.most = self.most.max(*count);
    }

    fn handled(&mut self, held: &Delivery) {
        *self.held.get_mut(&held.message.to).unwrap() -= 1;
        assert!(self.done.insert(held.message.id), "{} was handled twice", held.message.id);
    }
}

async fn drain(store: Store, whose: &'static str, seen: Arc<Mutex<Seen>>, all: usize) {
    let messages = Messages::new(store);
    while seen.lock().unwrap().done.len() < all {
        let claim = Claim::new(pool(whose), "h", LEASE_MS, 2);
        for held in messages.claim(claim).await.unwrap() {
            seen.lock().unwrap().took(&held);
            tokio::task::yield_now().await;
            seen.lock().unwrap().handled(&held);
            messages.end(held.message.id, held.lease, Ending::Acknowledge).await.unwrap();
        }
        tokio::task::yield_now().await;
    }
}

async fn two_handlers_never_hold_messages_of_one_conversing_agent(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let agents = ["vp-1", "vp-2", "vp-3"];
    for name in agents {
        role(&world, name, "vp").await;
    }
    for n in 0..60 {
        deliver(&world, &NewMessage { priority: n % 3, ..new(agents[n as usize % 3]) }).await;
    }
    let seen = Arc::new(Mutex::new(Seen::default()));
    let stores = nodes(&world);
    let handlers: Vec<_> = (0..9)
        .map(|n| {
            let store = stores[n % 3].clone();
            tokio::spawn(drain(store, "vp_handler", Arc::clone(&seen), 60))
        })
        .collect();
    for handler in handlers {
        handler.await.unwrap();
    }
    assert_eq!(seen.lock().unwrap().most, 1);
    assert!(
        messages(&world).claim(Claim::new(pool("vp_handler"), "h", 1, 1)).await.unwrap().is_empty()
    );
    close(&world, &stores);
}

async fn crew_messages_are_handed_out_once_each(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    role(&world, "mailer", "crew").await;
    for _ in 0..60 {
        deliver(&world, &new("mailer")).await;
    }
    let seen = Arc::new(Mutex::new(Seen::default()));
    let stores = nodes(&world);
    let handlers: Vec<_> = (0..9)
        .map(|n| {
            let store = stores[n % 3].clone();
            tokio::spawn(drain(store, "crew_executor", Arc::clone(&seen), 60))
        })
        .collect();
    for handler in handlers {
        handler.await.unwrap();
    }
    assert_eq!(seen.lock().unwrap().done.len(), 60);
    close(&world, &stores);
}

async fn sends_with_waiting_handlers_keep_one_conversation(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    role(&world, "ceo", "ceo").await;
    let stores = nodes(&world);
    let sends: Vec<_> = (0..12)
        .map(|n| {
            let messages = Messages::new(stores[n % 3].clone());
            tokio::spawn(async move {
                let offer = vec![Claim::new(pool("ceo_handler"), "h", LEASE_MS, 1)];
                let message = NewMessage { from: format!("person {n}"), ..new("ceo") };
                let speaker = windlass_store::message::Speaker::Person;
                messages.send(message, speaker, offer).await.unwrap().delivery.is_some()
            })
        })
        .collect();
    let mut given = 0;
    for send in sends {
        given += usize::from(send.await.unwrap());
    }
    assert_eq!(given, 1, "the first has the conversation, the others wait in the inbox");
    let sql = "SELECT count(*) FROM message WHERE status = 'pending'";
    assert_eq!(world.by_hand(sql).unwrap(), "11");
    close(&world, &stores);
}

/// Each looks for an earlier one before it writes: of those that find none one is first, and the
/// others are told so.
async fn the_same_send_at_the_same_time_is_one_message(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    role(&world, "ceo", "ceo").await;
    let nodes = nodes(&world);
    for round in 0..20 {
        let key = Some(format!("k{round}"));
        let sends = (0..6).map(|n| {
            let messages = Messages::new(nodes[n % nodes.len()].clone());
            let message = NewMessage { idempotency_key: key.clone(), ..new("ceo") };
            tokio::spawn(async move { messages.send(message, Speaker::Person, Vec::new()).await })
        });
        let mut ids = HashSet::new();
        let mut firsts = 0;
        for sent in sends.collect::<Vec<_>>() {
            let sent = sent.await.unwrap().unwrap();
            ids.insert(sent.message.id);
            firsts += usize::from(!sent.duplicate);
        }
        assert_eq!((ids.len(), firsts), (1, 1));
    }
    let sql = "SELECT count(*) FROM audit WHERE event = 'message_sent'";
    assert_eq!(world.by_hand(sql).unwrap(), "20");
    close(&world, &nodes);
}

/// A claim for one message looked at the most urgent agent only: where another node was just taking
/// its message, a handler that was free left those of all others alone until the next look.
async fn an_inbox_that_somebody_holds_hides_no_other(dialect: Dialect) {
    let world = World::new(dialect).await;
    let agents = ["vp-1", "vp-2", "crew-1", "crew-2"];
    for (n, name) in (0..).zip(agents) {
        role(&world, name, &name[..name.len() - 2]).await;
        deliver(&world, &NewMessage { priority: 9 - n, ..new(name) }).await;
    }
    // SQLite has one writer: beside it nobody holds anything.
    let other = match dialect {
        Dialect::Postgres => Some(application(&world).await),
        Dialect::Sqlite => None,
    };
    if let Some(other) = &other {
        let hold = "BEGIN; SELECT 1 FROM inbox WHERE agent = 'vp-1' FOR UPDATE;
            SELECT 1 FROM message WHERE to_agent = 'crew-1' FOR UPDATE";
        other.batch_execute(hold).await.unwrap();
    }
    let (pools, free) = (["vp_handler", "crew_executor"], usize::from(other.is_some()));
    for (name, first) in pools.into_iter().zip([0, 2]) {
        let held = take(&world, pool(name), 1).await;
        assert_eq!(held[0].message.to, agents[first + free]);
    }
    let Some(other) = other else { return };
    assert!(take(&world, of("vp-1"), 9).await.is_empty(), "somebody else is taking it");
    other.batch_execute("ROLLBACK").await.unwrap();
    for (name, first) in pools.into_iter().zip([0, 2]) {
        let held = take(&world, pool(name), 9).await;
        assert_eq!((held.len(), held[0].message.to.as_str()), (1, agents[first]));
    }
}
