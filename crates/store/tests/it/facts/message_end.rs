//! How deliveries end: acknowledged once, back into the inbox, or among the dead letters.

use super::message::{deliver, new};
use super::message_claim::{messages, of, role, take};
use crate::world::*;
use windlass_domain::id::LeaseId;
use windlass_domain::message::{Failure, LEASE_MS, MAX_DELIVERIES, NewMessage, Status};
use windlass_domain::refusal::Refusal;
use windlass_store::agent::Agents;
use windlass_store::error::Rejection;
use windlass_store::message::{Delivery, Ending, Filter, Message};
use windlass_store::statement::Dialect;

conformance!(
    the_same_word_again_is_answered_like_the_first,
    another_word_after_a_message_was_given_back_is_refused,
    a_lease_that_was_taken_over_ends_nothing,
    a_late_word_counts_until_a_sweep_has_taken_the_lease,
    what_failed_comes_back_later_and_is_given_up_in_the_end,
    a_silent_handler_loses_its_message_at_once_and_not_for_ever,
    what_can_never_be_handled_is_given_up_at_once,
    a_message_that_expires_in_failing_hands_is_not_tried_again,
    a_lease_is_extended_only_while_it_holds,
    inboxes_that_nobody_reads_are_emptied,
    messages_are_listed_newest_first,
);

fn failed() -> Ending {
    let failure = Failure::Failed { chance: 1.0, retry_after_ms: None };
    Ending::Return { failure, error: Some("no luck".into()) }
}

async fn end(world: &World, held: &Delivery, ending: Ending) -> Result<Message, Rejection> {
    messages(world).end(held.message.id, held.lease, ending).await
}

fn refusal(said: Result<Message, Rejection>) -> Refusal {
    match said {
        Err(Rejection::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

async fn held(world: &World) -> Delivery {
    role(world, "ceo", "ceo").await;
    deliver(world, &new("ceo")).await;
    take(world, of("ceo"), 1).await.remove(0)
}

async fn the_same_word_again_is_answered_like_the_first(dialect: Dialect) {
    let world = World::new(dialect).await;
    let one = held(&world).await;
    for _ in 0..2 {
        let done = end(&world, &one, Ending::Acknowledge).await.unwrap();
        assert_eq!((done.status, done.finished_at), (Status::Acknowledged, Some(world.now())));
    }
    let ended = Refusal::DeliveryEnded { status: Status::Acknowledged };
    assert_eq!(refusal(end(&world, &one, failed()).await), ended);
    let two = held(&world).await;
    for _ in 0..2 {
        assert_eq!(end(&world, &two, failed()).await.unwrap().status, Status::Pending);
    }
    let ended = Refusal::DeliveryEnded { status: Status::Pending };
    assert_eq!(refusal(end(&world, &two, Ending::Acknowledge).await), ended);
}

/// A second `nack` was answered like the first, whatever it said.
async fn another_word_after_a_message_was_given_back_is_refused(dialect: Dialect) {
    let world = World::new(dialect).await;
    let said = |error: &str, retry_after_ms| Ending::Return {
        failure: Failure::Failed { chance: 0.5, retry_after_ms },
        error: Some(error.to_owned()),
    };
    let rejected = Ending::Return { failure: Failure::Rejected, error: Some("no luck".to_owned()) };
    let one = held(&world).await;
    end(&world, &one, failed()).await.unwrap();
    for other in [said("another", None), said("no luck", Some(5)), rejected.clone()] {
        let ended = Refusal::DeliveryEnded { status: Status::Pending };
        assert_eq!(refusal(end(&world, &one, other).await), ended);
    }
    let again = end(&world, &one, said("no luck", None)).await.unwrap();
    assert_eq!(again.status, Status::Pending, "chance is no part of the word");
    let two = held(&world).await;
    end(&world, &two, rejected.clone()).await.unwrap();
    assert_eq!(end(&world, &two, rejected).await.unwrap().status, Status::DeadLettered);
    let ended = Refusal::DeliveryEnded { status: Status::DeadLettered };
    assert_eq!(refusal(end(&world, &two, failed()).await), ended);
}

async fn a_lease_that_was_taken_over_ends_nothing(dialect: Dialect) {
    let world = World::new(dialect).await;
    let one = held(&world).await;
    end(&world, &one, failed()).await.unwrap();
    world.pass_ms(1_000);
    let two = take(&world, of("ceo"), 1).await.remove(0);
    assert_eq!((two.message.id, two.message.deliveries), (one.message.id, 2));
    for ending in [Ending::Acknowledge, failed()] {
        let lost = Refusal::MessageLost { status: Status::Delivered };
        assert_eq!(refusal(end(&world, &one, ending).await), lost);
    }
    let stranger = Delivery { lease: LeaseId(uuid::Uuid::now_v7()), ..two.clone() };
    let lost = Refusal::MessageLost { status: Status::Delivered };
    assert_eq!(refusal(end(&world, &stranger, Ending::Acknowledge).await), lost);
    end(&world, &two, Ending::Acknowledge).await.unwrap();
}

async fn a_late_word_counts_until_a_sweep_has_taken_the_lease(dialect: Dialect) {
    let world = World::new(dialect).await;
    let one = held(&world).await;
    world.pass_ms(LEASE_MS + 100);
    end(&world, &one, Ending::Acknowledge).await.unwrap();
    let two = held(&world).await;
    world.pass_ms(LEASE_MS);
    assert_eq!(messages(&world).expire_leases(10).await.unwrap().len(), 1);
    let lost = Refusal::MessageLost { status: Status::Pending };
    assert_eq!(refusal(end(&world, &two, Ending::Acknowledge).await), lost);
}

async fn what_failed_comes_back_later_and_is_given_up_in_the_end(dialect: Dialect) {
    let world = World::new(dialect).await;
    let first = held(&world).await;
    let id = first.message.id;
    let mut one = first;
    for wait_ms in [1_000, 2_000, 4_000, 8_000] {
        let back = end(&world, &one, failed()).await.unwrap();
        assert_eq!(back.due_at, world.now().plus_ms(wait_ms));
        world.pass_ms(wait_ms - 1);
        assert!(take(&world, of("ceo"), 1).await.is_empty());
        world.pass_ms(1);
        one = take(&world, of("ceo"), 1).await.remove(0);
        assert_eq!(one.message.last_error.as_deref(), Some("no luck"));
    }
    assert_eq!(one.message.deliveries, MAX_DELIVERIES);
    let dead = end(&world, &one, failed()).await.unwrap();
    assert_eq!(dead.status, Status::DeadLettered);
    let sql = format!("SELECT reason, deliveries FROM dead_letter WHERE message_id = '{id}'");
    assert_eq!(world.by_hand(&sql).unwrap(), "delivery_limit|5");
    assert!(take(&world, of("ceo"), 1).await.is_empty());
}

async fn a_silent_handler_loses_its_message_at_once_and_not_for_ever(dialect: Dialect) {
    let world = World::new(dialect).await;
    held(&world).await;
    for _ in 1..MAX_DELIVERIES {
        assert!(messages(&world).expire_leases(10).await.unwrap().is_empty());
        world.pass_ms(LEASE_MS);
        let swept = messages(&world).expire_leases(10).await.unwrap();
        assert_eq!((swept[0].status, swept[0].due_at), (Status::Pending, world.now()));
        assert_eq!(take(&world, of("ceo"), 1).await.len(), 1);
    }
    world.pass_ms(LEASE_MS);
    let swept = messages(&world).expire_leases(10).await.unwrap();
    assert_eq!(swept[0].status, Status::DeadLettered);
}

async fn what_can_never_be_handled_is_given_up_at_once(dialect: Dialect) {
    let world = World::new(dialect).await;
    let one = held(&world).await;
    let never = Ending::Return { failure: Failure::Rejected, error: Some("gibberish".into()) };
    for _ in 0..2 {
        let dead = end(&world, &one, never.clone()).await.unwrap();
        assert_eq!(dead.status, Status::DeadLettered);
    }
    let sql = "SELECT reason, detail FROM dead_letter";
    let told = world.by_hand(sql).unwrap();
    assert!(told.starts_with("rejected|") && told.ends_with("gibberish"), "{told}");
}

async fn a_message_that_expires_in_failing_hands_is_not_tried_again(dialect: Dialect) {
    let world = World::new(dialect).await;
    role(&world, "ceo", "ceo").await;
    deliver(&world, &NewMessage { ttl_ms: Some(500), ..new("ceo") }).await;
    let one = take(&world, of("ceo"), 1).await.remove(0);
    world.pass_ms(500);
    assert_eq!(messages(&world).expire(10).await.unwrap().len(), 0, "its handler may go on");
    assert_eq!(end(&world, &one, failed()).await.unwrap().status, Status::Expired);
}

async fn a_lease_is_extended_only_while_it_holds(dialect: Dialect) {
    let world = World::new(dialect).await;
    let one = held(&world).await;
    let (id, lease) = (one.message.id, one.lease);
    world.pass_ms(LEASE_MS - 1);
    let until = messages(&world).extend(id, lease, LEASE_MS).await.unwrap();
    assert_eq!(until, world.now().plus_ms(LEASE_MS));
    world.pass_ms(LEASE_MS);
    let said = messages(&world).extend(id, lease, LEASE_MS).await.unwrap_err();
    let lost = Refusal::MessageLost { status: Status::Delivered };
    assert!(matches!(said, Rejection::Refused(refusal) if refusal == lost));
}

async fn inboxes_that_nobody_reads_are_emptied(dialect: Dialect) {
    let world = World::new(dialect).await;
    role(&world, "vp", "vp").await;
    deliver(&world, &new("vp")).await;
    let agents = Agents::new(world.store.clone());
    agents.archive("vp", true, "tester").await.unwrap();
    assert!(take(&world, of("vp"), 1).await.is_empty());
    world.by_hand("INSERT INTO message (to_agent, type) VALUES ('ghost', 'boo')").unwrap();
    assert_eq!(messages(&world).bury_strays(10).await.unwrap().len(), 2);
    assert_eq!(messages(&world).bury_strays(10).await.unwrap().len(), 0);
    let sql = "SELECT to_agent, reason FROM dead_letter ORDER BY to_agent";
    assert_eq!(world.by_hand(sql).unwrap(), "ghost|unknown_agent\nvp|archived_agent");
}

async fn messages_are_listed_newest_first(dialect: Dialect) {
    let world = World::new(dialect).await;
    role(&world, "ceo", "ceo").await;
    role(&world, "vp", "vp").await;
    let mut ids = Vec::new();
    for (from, to) in [("vp", "ceo"), ("ceo", "vp"), ("vp", "ceo"), ("vp", "ceo")] {
        let correlation_id = Some(format!("about {to}"));
        let message = NewMessage { from: from.into(), correlation_id, ..new(to) };
        deliver(&world, &message).await;
        ids.push(message.id);
        world.pass_ms(1);
    }
    let list = async |filter: Filter| {
        let (page, next) = messages(&world).list(filter.clone(), None, 2).await.unwrap();
        let (rest, end) = match next {
            Some(_) => messages(&world).list(filter, next, 2).await.unwrap(),
            None => (Vec::new(), None),
        };
        assert_eq!(end, None);
        page.into_iter().chain(rest).map(|message| message.id).collect::<Vec<_>>()
    };
    let none = Filter::default;
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(list(none()).await, [ids[3], ids[2], ids[1], ids[0]]);
    assert_eq!(list(Filter { to: text("ceo"), ..none() }).await, [ids[3], ids[2], ids[0]]);
    assert_eq!(list(Filter { from: text("ceo"), ..none() }).await, [ids[1]]);
    let about = Filter { correlation_id: text("about vp"), ..none() };
    assert_eq!(list(about).await, [ids[1]]);
    let since = Filter { since: Some(world.now().plus_ms(-2)), ..none() };
    assert_eq!(list(since).await, [ids[3], ids[2]]);
    let done = Filter { status: Some(Status::Acknowledged), kind: text("report"), ..none() };
    assert!(list(done).await.is_empty());
}
