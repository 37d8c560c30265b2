//! Who may write to whom, and what a refusal leaves behind.

use super::message::{agent, member, new};
use crate::world::*;
use serde_json::json;
use uuid::Uuid;
use windlass_domain::agent::{AgentSpec, Authority, Unit};
use windlass_domain::id::{LeaseId, MessageId};
use windlass_domain::message::authority::Rule;
use windlass_domain::message::{NewMessage, Status};
use windlass_domain::refusal::Refusal;
use windlass_store::agent::Agents;
use windlass_store::audit::{Audit, Filter};
use windlass_store::error::Rejection;
use windlass_store::message::{Claim, Ending, Messages, Sent, Speaker, Whose};
use windlass_store::statement::Dialect;
use windlass_store::venture::Ventures;

conformance!(
    the_own_line_is_open_up_and_down,
    a_refused_send_writes_nothing_but_the_audit,
    across_ventures_only_a_grant_counts,
    a_repeated_send_is_answered_like_the_first_whatever_has_changed,
    a_handler_that_waits_gets_the_message_with_its_send,
    a_handler_of_others_gets_nothing,
    what_lies_before_a_message_goes_first,
    a_message_for_a_handler_that_waits_is_written_once,
    a_way_that_was_open_is_closed_at_once,
    by_a_known_way_a_send_is_what_it_was,
);

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

async fn company(dialect: Dialect) -> World {
    let world = World::new(dialect).await;
    let ventures = Ventures::new(world.store.clone());
    for name in ["acme", "bolt"] {
        ventures.put(Unit::Venture, name, None, true, "tester").await.unwrap();
    }
    let spec = |role: &str, parent: Option<&str>, venture: Option<&str>| AgentSpec {
        role: text(role),
        parent: parent.map(str::to_owned),
        venture: venture.map(str::to_owned),
        ..AgentSpec::default()
    };
    member(&world, "ceo", spec("ceo", None, None)).await;
    member(&world, "vp-a", spec("vp", Some("ceo"), Some("acme"))).await;
    member(&world, "vp-b", spec("vp", Some("ceo"), Some("bolt"))).await;
    member(&world, "crew-a", spec("crew", Some("vp-a"), Some("acme"))).await;
    member(&world, "crew-a2", spec("crew", Some("vp-a"), Some("acme"))).await;
    member(&world, "crew-b", spec("crew", Some("vp-b"), Some("bolt"))).await;
    world
}

fn from(from: &str, to: &str) -> NewMessage {
    NewMessage { from: from.into(), sent_by: "key-7".into(), ..new(to) }
}

async fn send(world: &World, new: &NewMessage) -> Result<Sent, Rejection> {
    let messages = Messages::new(world.store.clone());
    messages.send(new.clone(), Speaker::Agent, Vec::new()).await
}

async fn refused(world: &World, new: &NewMessage) -> Rule {
    match send(world, new).await.unwrap_err() {
        Rejection::Refused(Refusal::NotPermitted { rule, .. }) => rule,
        other => panic!("{other:?}"),
    }
}

async fn the_own_line_is_open_up_and_down(dialect: Dialect) {
    let world = company(dialect).await;
    for (one, other) in [("ceo", "vp-a"), ("ceo", "crew-b"), ("vp-a", "crew-a")] {
        for (from_agent, to) in [(one, other), (other, one)] {
            let sent = send(&world, &from(from_agent, to)).await.unwrap();
            assert_eq!((sent.message.status, sent.duplicate), (Status::Pending, false));
        }
    }
    let person = Messages::new(world.store.clone());
    person.send(from("ann", "ceo"), Speaker::Person, Vec::new()).await.unwrap();
    let told = Audit::new(world.store.clone());
    let told = told.list(Filter::of_event("message_sent"), None, 10).await.unwrap();
    assert_eq!(told.len(), 7);
    assert!(told.iter().all(|entry| entry.actor == "key-7"));
}

async fn a_refused_send_writes_nothing_but_the_audit(dialect: Dialect) {
    let world = company(dialect).await;
    let beside = NewMessage { correlation_id: text("deal"), ..from("crew-a", "crew-a2") };
    assert_eq!(refused(&world, &beside).await, Rule::OtherLine);
    assert_eq!(refused(&world, &from("nobody", "ceo")).await, Rule::UnknownSender);
    let agents = Agents::new(world.store.clone());
    agents.archive("crew-a2", true, "tester").await.unwrap();
    assert_eq!(refused(&world, &from("crew-a2", "vp-a")).await, Rule::ArchivedSender);
    for to in ["crew-a2", "nobody"] {
        let said = send(&world, &from("vp-a", to)).await.unwrap_err();
        assert!(matches!(said, Rejection::Refused(Refusal::Unknown { .. })), "{said:?}");
    }
    assert_eq!(world.by_hand("SELECT count(*) FROM message").unwrap(), "0");
    assert_eq!(world.by_hand("SELECT count(*) FROM dead_letter").unwrap(), "0");
    let audit = Audit::new(world.store.clone());
    let told = audit.list(Filter::of_event("message_refused"), None, 10).await.unwrap();
    let rules: Vec<_> = told.iter().map(|entry| entry.detail["rule"].clone()).collect();
    let unknown = "unknown_receiver";
    let wanted = [unknown, unknown, "archived_sender", "unknown_sender", "other_line"];
    assert_eq!(rules, wanted);
    let first = &told[4];
    assert_eq!((first.actor.as_str(), &first.detail["from"]), ("key-7", &json!("crew-a")));
    assert_eq!(first.subject, Some(beside.id.to_string()));
    assert_eq!(first.detail["correlation_id"], json!("deal"));
}

async fn across_ventures_only_a_grant_counts(dialect: Dialect) {
    let world = company(dialect).await;
    assert_eq!(refused(&world, &from("vp-a", "vp-b")).await, Rule::OtherVenture);
    assert_eq!(refused(&world, &from("vp-a", "crew-b")).await, Rule::OtherVenture);
    let grant = |authority: Authority| AgentSpec {
        role: text("vp"),
        parent: text("ceo"),
        venture: text("acme"),
        authority,
        ..AgentSpec::default()
    };
    let agents = Authority { agents: vec!["vp-b".into()], ..Authority::default() };
    member(&world, "vp-a", grant(agents)).await;
    send(&world, &from("vp-a", "vp-b")).await.unwrap();
    assert_eq!(refused(&world, &from("vp-a", "crew-b")).await, Rule::OtherVenture);
    // A grant goes one way.
    assert_eq!(refused(&world, &from("vp-b", "vp-a")).await, Rule::OtherVenture);
    let ventures = Authority { ventures: vec!["bolt".into()], ..Authority::default() };
    member(&world, "vp-a", grant(ventures)).await;
    send(&world, &from("vp-a", "crew-b")).await.unwrap();
}

async fn a_repeated_send_is_answered_like_the_first_whatever_has_changed(dialect: Dialect) {
    let world = company(dialect).await;
    let first = NewMessage { idempotency_key: text("k"), ..from("vp-a", "crew-a") };
    send(&world, &first).await.unwrap();
    let agents = Agents::new(world.store.clone());
    agents.archive("crew-a", true, "tester").await.unwrap();
    let again = NewMessage { id: MessageId(Uuid::now_v7()), ..first.clone() };
    let sent = send(&world, &again).await.unwrap();
    assert_eq!((sent.duplicate, sent.message.id), (true, first.id));
    let other = NewMessage { payload: json!("other"), ..again };
    let said = send(&world, &other).await.unwrap_err();
    let reused = Refusal::IdempotencyKeyReused { what: "the idempotency key" };
    assert!(matches!(said, Rejection::Refused(refusal) if refusal == reused));
    let sql = "SELECT count(*) FROM audit WHERE event = 'message_sent'";
    assert_eq!(world.by_hand(sql).unwrap(), "1");
}

async fn a_handler_that_waits_gets_the_message_with_its_send(dialect: Dialect) {
    let world = company(dialect).await;
    let messages = Messages::new(world.store.clone());
    let offers = || {
        let pool = |name: &str| Claim::new(Whose::Pool(name.into()), "h", 60_000, 1);
        vec![pool("ceo_handler"), pool("vp_handler")]
    };
    let one = from("ceo", "vp-a");
    let sent = messages.send(one.clone(), Speaker::Agent, offers()).await.unwrap();
    let (index, held) = sent.delivery.unwrap();
    assert_eq!((index, held.message.id, held.message.deliveries), (1, one.id, 1));
    assert_eq!(sent.message.status, Status::Delivered);
    // Its conversation goes on: the next one waits in the inbox.
    let next = messages.send(from("ceo", "vp-a"), Speaker::Agent, offers()).await.unwrap();
    assert_eq!((next.delivery, next.message.status), (None, Status::Pending));
}

async fn a_handler_of_others_gets_nothing(dialect: Dialect) {
    let world = company(dialect).await;
    agent(&world, "free").await;
    let messages = Messages::new(world.store.clone());
    let offer = || vec![Claim::new(Whose::Pool("vp_handler".into()), "h", 60_000, 1)];
    let sent = messages.send(from("ann", "free"), Speaker::Person, offer()).await.unwrap();
    assert_eq!(sent.delivery, None);
    let crew = || vec![Claim::new(Whose::Pool("crew_executor".into()), "h", 60_000, 1)];
    // What lay there before comes first.
    let later = messages.send(from("ann", "free"), Speaker::Person, crew()).await.unwrap();
    assert_eq!(later.delivery.unwrap().1.message.id, sent.message.id);
    assert_eq!(later.message.status, Status::Pending);
}

/// Sent while a handler of this agent waits; what that handler gets.
async fn offered(world: &World, new: &NewMessage) -> (Sent, Option<MessageId>) {
    let whose = Whose::Agents(vec![new.to.clone()]);
    let offer = Claim::new(whose, "me", 60_000, 1);
    let messages = Messages::new(world.store.clone());
    let sent = messages.send(new.clone(), Speaker::Agent, vec![offer]).await.unwrap();
    let given = sent.delivery.as_ref().map(|(_, held)| held.message.id);
    (sent, given)
}

async fn what_lies_before_a_message_goes_first(dialect: Dialect) {
    let world = company(dialect).await;
    for (to, converses) in [("ceo", true), ("crew-a", false)] {
        let earlier = from("vp-a", to);
        send(&world, &earlier).await.unwrap();
        world.pass_ms(1);
        let later = from("vp-a", to);
        let (sent, given) = offered(&world, &later).await;
        assert_eq!((given, sent.message.status), (Some(earlier.id), Status::Pending), "{to}");
        // Its handler is in a conversation now; crew takes whatever there is.
        let last = from("vp-a", to);
        let (sent, given) = offered(&world, &last).await;
        let wanted = (!converses).then_some(later.id);
        assert_eq!((given, sent.message.status), (wanted, Status::Pending), "{to}");
    }
}

/// It was written as pending and changed at once, which made all of its indexes twice.
async fn a_message_for_a_handler_that_waits_is_written_once(dialect: Dialect) {
    let world = company(dialect).await;
    // An inbox is opened by its first message.
    for to in ["ceo", "crew-a"] {
        let first = from("vp-a", to);
        assert_eq!(offered(&world, &first).await.1, Some(first.id), "{to}");
    }
    let held = "SELECT id || ' ' || lease_id FROM message WHERE to_agent = 'ceo'";
    let held = world.by_hand(held).unwrap();
    let (id, lease) = held.split_once(' ').unwrap();
    let (id, lease) = (MessageId(id.parse().unwrap()), LeaseId(lease.parse().unwrap()));
    let messages = Messages::new(world.store.clone());
    messages.end(id, lease, Ending::Acknowledge).await.unwrap();
    if dialect == Dialect::Postgres {
        world
            .by_hand(
                "CREATE TABLE again (id uuid);
                 CREATE FUNCTION note_again() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                     INSERT INTO again VALUES (NEW.id); RETURN NEW; END $$;
                 CREATE TRIGGER note_again BEFORE UPDATE ON message FOR EACH ROW
                     EXECUTE FUNCTION note_again()",
            )
            .unwrap();
    }
    for to in ["ceo", "crew-a"] {
        world.pass_ms(1);
        let message = from("vp-a", to);
        let (sent, given) = offered(&world, &message).await;
        assert_eq!((given, sent.message.status), (Some(message.id), Status::Delivered), "{to}");
        assert_eq!((sent.message.deliveries, sent.message.delivered_at), (1, Some(world.now())));
        // The same again finds what it was answered.
        assert!(send(&world, &message).await.unwrap().duplicate);
    }
    if dialect == Dialect::Postgres {
        assert_eq!(world.by_hand("SELECT count(*) FROM again").unwrap(), "0");
    }
    // Nobody else's message begins in somebody's hands.
    let now = crate::refusal::instant(dialect, NOON);
    let insert = format!(
        "INSERT INTO message (to_agent, type, status, deliveries, lease_id, lease_expires_at, \
             handled_by, delivered_at) \
         VALUES ('ceo', 'x', 'delivered', 1, '11111111-1111-4111-8111-111111111111', {now}, 'me', \
             {now})"
    );
    let said = world.by_hand(&insert).unwrap_err();
    assert!(said.contains("begins pending"), "{said}");
}

/// Who sent before knows the way, and must not go it when it is closed: whoever closed it, by hand
/// too.
async fn a_way_that_was_open_is_closed_at_once(dialect: Dialect) {
    let world = company(dialect).await;
    let messages = Messages::new(world.store.clone());
    let agents = Agents::new(world.store.clone());
    let send = async |sender: &str, to: &str| {
        let sent = messages.send(from(sender, to), Speaker::Agent, Vec::new()).await;
        sent.map(|sent| sent.message.status).map_err(|said| match said {
            Rejection::Refused(refusal) => refusal.code(),
            other => panic!("{other:?}"),
        })
    };
    for _ in 0..2 {
        assert_eq!(send("crew-a", "ceo").await, Ok(Status::Pending));
        assert_eq!(send("vp-a", "crew-a").await, Ok(Status::Pending));
    }
    world.by_hand("UPDATE agent SET parent = NULL WHERE name = 'vp-a'").unwrap();
    assert_eq!(send("crew-a", "ceo").await, Err("not_permitted"));
    assert_eq!(send("vp-a", "crew-a").await, Ok(Status::Pending));
    agents.archive("crew-a", true, "tester").await.unwrap();
    assert_eq!(send("vp-a", "crew-a").await, Err("not_found"));
    agents.archive("crew-a", false, "tester").await.unwrap();
    assert_eq!(send("vp-a", "crew-a").await, Ok(Status::Pending));
    world.by_hand("DELETE FROM agent WHERE name = 'crew-a'").unwrap();
    assert_eq!(send("vp-a", "crew-a").await, Err("not_found"));
}

async fn by_a_known_way_a_send_is_what_it_was(dialect: Dialect) {
    let world = company(dialect).await;
    let messages = Messages::new(world.store.clone());
    let offer = || {
        let pool = |name: &str| Claim::new(Whose::Pool(name.into()), "h", 60_000, 1);
        vec![pool("crew_executor"), pool("vp_handler")]
    };
    let send = async |new: &NewMessage, offers: Vec<Claim>| {
        messages.send(new.clone(), Speaker::Agent, offers).await
    };
    let end = async |sent: &Sent| {
        let held = &sent.delivery.as_ref().unwrap().1;
        messages.end(held.message.id, held.lease, Ending::Acknowledge).await.unwrap();
    };
    let first = send(&from("ceo", "vp-a"), offer()).await.unwrap();
    end(&first).await;
    world.pass_ms(5);
    let mut new = from("ceo", "vp-a");
    new.ttl_ms = Some(1_000);
    new.idempotency_key = text("once");
    let sent = send(&new, offer()).await.unwrap();
    let (index, held) = sent.delivery.clone().unwrap();
    assert_eq!((index, held.message.id, held.message.deliveries), (1, new.id, 1));
    assert_eq!(held.lease_expires_at, world.now().plus_ms(60_000));
    let message = &sent.message;
    assert_eq!((message.created_at, message.due_at), (world.now(), world.now()));
    assert_eq!(message.expires_at, Some(world.now().plus_ms(1_000)));
    assert_eq!(message.handled_by.as_deref(), Some("h"));
    // Its conversation goes on; what is said again is said once, and said otherwise refused.
    let next = send(&from("ceo", "vp-a"), offer()).await.unwrap();
    assert_eq!((next.delivery, next.message.status), (None, Status::Pending));
    let again = send(&new, Vec::new()).await.unwrap();
    assert!(again.duplicate && again.message.id == new.id);
    let keyed = NewMessage { id: MessageId(Uuid::now_v7()), ..new.clone() };
    let again = send(&keyed, Vec::new()).await.unwrap();
    assert!(again.duplicate && again.message.id == new.id);
    let other = NewMessage { payload: json!("else"), ..keyed };
    let said = send(&other, Vec::new()).await.unwrap_err();
    assert!(said.to_string().contains("used before"), "{said}");
    let told = "SELECT count(*) FROM audit WHERE event = 'message_sent'";
    assert_eq!(world.by_hand(told).unwrap(), "3");
}
