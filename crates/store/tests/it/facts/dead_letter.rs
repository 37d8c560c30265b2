//! Dead letters go from pending to their end, once, and may be delivered again.

use super::message::{deliver, new};
use super::message_claim::{of, role, take};
use crate::world::*;
use serde_json::json;
use uuid::Uuid;
use windlass_domain::id::MessageId;
use windlass_domain::message::{NewMessage, Reason};
use windlass_domain::refusal::Refusal;
use windlass_domain::trouble::{Event, Status};
use windlass_store::dead_letter::{DeadLetters, Deed, Filter, Redelivery};
use windlass_store::error::Rejection;
use windlass_store::statement::Dialect;

conformance!(
    a_dead_letter_follows_the_workflow_of_trouble,
    of_two_who_close_it_one_is_refused,
    it_is_delivered_again_as_a_new_message_once,
    nobody_is_there_so_it_stays_as_it_was,
    dead_letters_are_listed_oldest_first,
);

fn letters(world: &World) -> DeadLetters {
    DeadLetters::new(world.store.clone())
}

async fn dead(world: &World) -> MessageId {
    let lost = NewMessage { priority: 4, correlation_id: Some("deal".into()), ..new("nobody") };
    deliver(world, &lost).await;
    lost.id
}

fn again(message: MessageId, to: Option<&str>) -> Redelivery {
    let new = MessageId(Uuid::now_v7());
    Redelivery { message, new, to: to.map(Into::into), deed: Deed::new(Event::Resolve, "ann") }
}

async fn a_dead_letter_follows_the_workflow_of_trouble(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = dead(&world).await;
    world.pass_ms(5);
    let act = async |event, note: Option<&str>| {
        let deed = Deed { note: note.map(Into::into), ..Deed::new(event, "ann") };
        letters(&world).act(id, deed).await.unwrap()
    };
    assert_eq!(act(Event::Investigate, None).await.assignee.as_deref(), Some("ann"));
    act(Event::Note, Some("who is nobody?")).await;
    let done = act(Event::Abandon, Some("nobody is nobody")).await;
    assert_eq!((done.status, done.closed_at), (Status::Abandoned, Some(world.now())));
    act(Event::Note, Some("still nobody")).await;
    let said = letters(&world).act(id, Deed::new(Event::Resolve, "bob")).await.unwrap_err();
    assert!(said.to_string().starts_with("a dead letter that is abandoned"), "{said}");
    let (letter, notes) = letters(&world).show(id).await.unwrap().unwrap();
    assert_eq!((letter.reason, letter.status), (Reason::UnknownAgent, Status::Abandoned));
    assert_eq!(letter.original["payload"], json!({ "n": 1 }));
    let events: Vec<_> = notes.iter().map(|note| note.event).collect();
    assert_eq!(events, [Event::Investigate, Event::Note, Event::Abandon, Event::Note]);
    let sql = "SELECT count(*) FROM audit WHERE event = 'dead_letter_act'";
    assert_eq!(world.by_hand(sql).unwrap(), "4");
    for sql in ["UPDATE dead_letter SET assignee = 'x'", "UPDATE dead_letter_note SET note = 'x'"] {
        assert!(world.by_hand(sql).is_err(), "{sql}");
    }
}

async fn of_two_who_close_it_one_is_refused(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = dead(&world).await;
    let (one, two) = (letters(&world), letters(&world));
    let (first, second) = tokio::join!(
        one.act(id, Deed::new(Event::Resolve, "ann")),
        two.act(id, Deed::new(Event::Abandon, "bob")),
    );
    assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
}

async fn it_is_delivered_again_as_a_new_message_once(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = dead(&world).await;
    role(&world, "ceo", "ceo").await;
    let redelivery = again(id, Some("ceo"));
    let sent = letters(&world).redeliver(redelivery.clone()).await.unwrap();
    assert_eq!((sent.id, sent.redelivery_of), (redelivery.new, Some(id)));
    assert_eq!((sent.priority, sent.correlation_id.as_str()), (4, "deal"));
    // A commit in doubt runs the same call again.
    assert_eq!(letters(&world).redeliver(redelivery).await.unwrap().id, sent.id);
    let said = letters(&world).redeliver(again(id, Some("ceo"))).await.unwrap_err();
    assert!(matches!(said, Rejection::Refused(Refusal::IllegalStep { .. })), "{said:?}");
    let (letter, _) = letters(&world).show(id).await.unwrap().unwrap();
    assert_eq!((letter.status, letter.resolved_by_message), (Status::Resolved, Some(sent.id)));
    let held = take(&world, of("ceo"), 10).await;
    assert_eq!((held.len(), &held[0].message.payload), (1, &json!({ "n": 1 })));
}

async fn nobody_is_there_so_it_stays_as_it_was(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = dead(&world).await;
    let said = letters(&world).redeliver(again(id, None)).await.unwrap_err();
    assert!(said.to_string().contains("/to nobody reads the inbox"), "{said}");
    let (letter, notes) = letters(&world).show(id).await.unwrap().unwrap();
    assert_eq!((letter.status, notes.len()), (Status::Pending, 0));
    // It reads by now.
    role(&world, "nobody", "crew").await;
    letters(&world).redeliver(again(id, None)).await.unwrap();
}

async fn dead_letters_are_listed_oldest_first(dialect: Dialect) {
    let world = World::new(dialect).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(dead(&world).await);
        world.pass_ms(1);
    }
    letters(&world).act(ids[0], Deed::new(Event::Abandon, "ann")).await.unwrap();
    let (page, next) = letters(&world).list(Filter::default(), None, 1).await.unwrap();
    assert_eq!((page[0].message, page.len()), (ids[1], 1));
    let (page, next) = letters(&world).list(Filter::default(), next, 1).await.unwrap();
    assert_eq!((page[0].message, next), (ids[2], None));
    let closed = Filter { status: vec![Status::Abandoned], ..Filter::default() };
    let (page, _) = letters(&world).list(closed, None, 10).await.unwrap();
    assert_eq!(page.iter().map(|letter| letter.message).collect::<Vec<_>>(), [ids[0]]);
    let other = Filter { reason: Some(Reason::Rejected), ..Filter::default() };
    assert!(letters(&world).list(other, None, 10).await.unwrap().0.is_empty());
}
