//! Messages written by hand: what no reader understands is refused, and what came past that keeps
//! nobody from the rest.

use super::message::{deliver, new};
use super::message_claim::{messages, of, pool, role, take};
use crate::hand::{Attempt, all_accepted, all_refused};
use crate::world::*;
use serde_json::json;
use uuid::Uuid;
use windlass_domain::id::MessageId;
use windlass_domain::message::{LEASE_MS, NewMessage, Reason, Status};
use windlass_domain::page::{Order, Part};
use windlass_domain::refusal::Refusal;
use windlass_domain::trouble::{self, Event};
use windlass_store::dead_letter::{DeadLetters, Deed, Filter as Letters, Redelivery};
use windlass_store::error::Rejection;
use windlass_store::message::{Claim, Ending, Filter, Message, Speaker};
use windlass_store::statement::Dialect;

conformance!(
    a_message_that_no_reader_understands_is_refused,
    an_id_that_no_reader_finds_again_is_refused,
    an_id_from_before_it_was_refused_is_mended,
    a_message_that_nobody_can_read_is_a_dead_letter_and_the_others_are_handed_out,
    a_send_gives_what_can_be_read_past_what_cannot,
    what_nobody_can_read_stops_no_list_and_no_duty,
    a_message_as_deep_as_allowed_becomes_a_dead_letter_like_any_other,
    a_text_that_is_not_utf_8_keeps_nobody_from_the_rest,
    what_nobody_can_read_is_not_delivered_again,
    a_damaged_copy_is_delivered_again_as_it_was_sent,
    what_a_message_shows_as_its_correlation_finds_it,
    what_was_written_within_a_millisecond_is_on_one_page_each,
);

/// Written past the checks, as before there were any.
fn smuggle(world: &World, columns: &str, values: &str) {
    let insert = format!("INSERT INTO message ({columns}) VALUES ({values})");
    let sql = match world.dialect() {
        Dialect::Postgres => format!(
            "ALTER TABLE message DISABLE TRIGGER message_can_be_read; {insert};
             ALTER TABLE message ENABLE TRIGGER message_can_be_read"
        ),
        Dialect::Sqlite => {
            let sql = "SELECT sql FROM sqlite_schema WHERE name = 'message_can_be_read'";
            let trigger = world.by_hand(sql).unwrap();
            format!("DROP TRIGGER message_can_be_read; {insert}; {trigger}")
        }
    };
    world.by_hand(&sql).unwrap();
}

/// At the head of the inbox of `to`.
fn unreadable(world: &World, to: &str) {
    let now = crate::refusal::instant(world.dialect(), NOON);
    let values = format!("'{to}', 'x', 9, '[1e999]', {now}, {now}");
    smuggle(world, "to_agent, type, priority, payload, created_at, due_at", &values);
}

/// Ann delivers a dead letter again.
async fn redeliver(world: &World, message: MessageId) -> Result<Message, Rejection> {
    let (new, deed) = (MessageId(Uuid::now_v7()), Deed::new(Event::Resolve, "ann"));
    let redelivery = Redelivery { message, new, to: Some("ceo".into()), deed };
    DeadLetters::new(world.store.clone()).redeliver(redelivery).await
}

fn nested(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

async fn a_message_that_no_reader_understands_is_refused(dialect: Dialect) {
    let world = World::new(dialect).await;
    let payload = |json: &str| {
        Attempt::new(format!(
            "INSERT INTO message (to_agent, type, payload) VALUES ('ceo', 'x', '{json}')"
        ))
    };
    let named = |name: &str| {
        Attempt::new(format!("INSERT INTO message (to_agent, type) VALUES ('{name}', 'x')"))
    };
    let future = match dialect {
        Dialect::Postgres => "'infinity'".to_owned(),
        Dialect::Sqlite => i64::MAX.to_string(),
    };
    let due = format!("INSERT INTO message (to_agent, type, due_at) VALUES ('ceo', 'x', {future})");
    let large = format!("\"{}\"", "x".repeat(1 << 20));
    all_refused(
        &world,
        &[
            (payload("[1e999]"), "64-bit float"),
            (payload("{\"n\": -1e400}"), "64-bit float"),
            (payload("100000000000000000000000000000001"), "64-bit float"),
            (payload(&nested(65)), "deep"),
            (payload(&nested(600)), "deep"),
            (payload(&large), "1048576 bytes"),
            (payload("\"a\\u0000b\""), if dialect == Dialect::Postgres { "u0000" } else { "NUL" }),
            (payload("{\"a\\u0000b\": 1}"), "u0000"),
            (payload("\"\\ud83d\""), "surrogate"),
            (payload("\"\\ude00\""), "surrogate"),
            (payload("{\"\\ud83d\\u0041\": 1}"), "surrogate"),
            (payload("\"\\ud83d\\\\\\ude00\""), "surrogate"),
            (named(" ceo"), "trim"),
            (named("\u{2003}ceo"), "trim"),
            (named("a\u{202e}b"), if dialect == Dialect::Postgres { "control" } else { "plain" }),
            (Attempt::new(due), "1970 to 9999"),
        ],
    );
    let dots = format!("{{\"{}\": [[\"[[[\"]]}}", ".[".repeat(100));
    let mut fine = vec![
        payload("[1e300, -0.5, 9223372036854775807, 18446744073709551615]"),
        payload(&nested(64)),
        payload(&dots),
        payload(
            "[\"\\ud83d\\ude00\\uD83D\\uDE00\", {\"\\ud83d\\ude00\": \"\\\\ud83d \\\\u0000\"}]",
        ),
        payload("[{\"a\": 1}, {\"a\": {\"a\": \"\u{fffd}\u{ffff}\"}}]"),
        named("é x"),
    ];
    let twice = payload("{\"b\": {\"a\": 1, \"\\u0061\": 2}}");
    match dialect {
        // It keeps the last one, and says nothing.
        Dialect::Postgres => fine.push(twice),
        Dialect::Sqlite => {
            let nul = "INSERT INTO message (to_agent, type) VALUES ('a' || char(0) || 'b', 'x')";
            let bytes = "INSERT INTO message (to_agent, type, payload)
                 VALUES ('ceo', 'x', CAST(x'22ff22' AS TEXT))";
            let refused = [
                (twice, "twice"),
                (Attempt::new(nul), "NUL"),
                (Attempt::new(bytes), "UTF-8"),
                (payload("18446744073709551616"), "64-bit float"),
            ];
            all_refused(&world, &refused);
        }
    }
    all_accepted(&world, &fine);
    let letter = |json: &str| {
        let now = crate::refusal::instant(dialect, NOON);
        Attempt::new(format!(
            "INSERT INTO dead_letter (message_id, original, from_agent, to_agent, type, reason,
                 detail, deliveries, entered_at, updated_at)
             VALUES ('01890a5d-ac96-774b-bcce-b302099a8057', '{json}', 'vp', 'ceo', 'x', 'invalid',
                 'no', 0, {now}, {now})"
        ))
    };
    all_refused(&world, &[(letter("{\"n\": 1e999}"), "64-bit float")]);
    all_accepted(&world, &[letter("{}")]);
}

/// SQLite keeps ids as text. One in upper case was handed out and could not be ended: the inbox of
/// a conversing agent stood still for ever.
async fn an_id_that_no_reader_finds_again_is_refused(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = |id: &str| {
        Attempt::new(format!(
            "INSERT INTO message (id, to_agent, type) VALUES ('{id}', 'ceo', 'x')"
        ))
    };
    let upper = "01890A5D-AC96-774B-BCCE-B302099A8057";
    let (words, text) = match dialect {
        Dialect::Postgres => {
            ("invalid input syntax for type uuid", "of no uuid, and 36 bytes, too")
        }
        Dialect::Sqlite => ("lower case", "thirty-six characters and no uuid..!"),
    };
    all_refused(&world, &[(id(text), words), (id(&"-".repeat(36)), words)]);
    all_accepted(&world, &[id(&upper.to_lowercase())]);
    if dialect == Dialect::Postgres {
        // It knows what an id is, in whatever case.
        all_accepted(&world, &[id(upper)]);
        return;
    }
    let again = format!(
        "INSERT INTO message (to_agent, type, redelivery_of) VALUES ('ceo', 'x', '{upper}')"
    );
    let leased = Attempt::new(format!("UPDATE message SET lease_id = '{upper}'"))
        .after(id(&upper.to_lowercase()).tried);
    all_refused(&world, &[(id(upper), words), (Attempt::new(again), words), (leased, words)]);
}

async fn an_id_from_before_it_was_refused_is_mended(dialect: Dialect) {
    let world = World::new(dialect).await;
    role(&world, "ceo", "ceo").await;
    windlass_store::migration::down(&world.store, 46).await.unwrap();
    let now = crate::refusal::instant(dialect, NOON);
    let mut ids = vec!["01890A5D-AC96-774B-BCCE-B302099A8057"];
    if dialect == Dialect::Sqlite {
        ids.push("thirty-six characters and no uuid..!");
    }
    for id in &ids {
        let sql = format!(
            "INSERT INTO message (id, to_agent, type, created_at, due_at)
             VALUES ('{id}', 'ceo', 'x', {now}, {now})"
        );
        world.by_hand(&sql).unwrap();
    }
    windlass_store::migration::up(&world.store).await.unwrap();
    for _ in &ids {
        let held = take(&world, pool("ceo_handler"), 1).await.pop().expect("the next one");
        let ended = messages(&world).end(held.message.id, held.lease, Ending::Acknowledge).await;
        assert_eq!(ended.unwrap().status, Status::Acknowledged);
    }
}

async fn a_message_that_nobody_can_read_is_a_dead_letter_and_the_others_are_handed_out(
    dialect: Dialect,
) {
    let world = World::new(dialect).await;
    role(&world, "ceo", "ceo").await;
    role(&world, "scout", "crew").await;
    for (agent, handler) in [("ceo", "ceo_handler"), ("scout", "crew_executor")] {
        let message = new(agent);
        deliver(&world, &message).await;
        unreadable(&world, agent);
        unreadable(&world, agent);
        let taken = take(&world, pool(handler), 5).await;
        let ids: Vec<_> = taken.iter().map(|held| held.message.id).collect();
        assert_eq!(ids, [message.id]);
    }
    let letters = DeadLetters::new(world.store.clone());
    let (found, _) = letters.list(Letters::default(), None, 10).await.unwrap();
    assert_eq!(found.len(), 4);
    assert!(found.iter().all(|letter| letter.reason == Reason::Invalid), "{found:?}");
    assert_eq!(found[0].original["type"], "x");
}

async fn a_send_gives_what_can_be_read_past_what_cannot(dialect: Dialect) {
    let world = World::new(dialect).await;
    role(&world, "ceo", "ceo").await;
    unreadable(&world, "ceo");
    let offer = Claim::new(of("ceo"), "handler-1", LEASE_MS, 1);
    let message = new("ceo");
    let sent = messages(&world).send(message.clone(), Speaker::Person, vec![offer]).await.unwrap();
    let (_, delivery) = sent.delivery.expect("it waits for it");
    assert_eq!(delivery.message.id, message.id);
    assert_eq!(sent.message.status, Status::Delivered);
}

async fn what_nobody_can_read_stops_no_list_and_no_duty(dialect: Dialect) {
    let world = World::new(dialect).await;
    role(&world, "ceo", "ceo").await;
    unreadable(&world, "ceo");
    unreadable(&world, "nobody");
    let past = crate::refusal::instant(dialect, NOON);
    let values = format!("'ceo', 'x', '{}', {past}", nested(600));
    smuggle(&world, "to_agent, type, payload, expires_at", &values);
    let (found, _) = messages(&world).list(Filter::default(), None, 10).await.unwrap();
    assert_eq!(found.len(), 3);
    assert!(found.iter().all(|message| message.payload["omitted"].is_string()));
    assert_eq!(messages(&world).expire(10).await.unwrap().len(), 1);
    assert_eq!(messages(&world).bury_strays(10).await.unwrap().len(), 1);
    // An audit that was written by hand is read as far as it can be.
    let insert = format!(
        "INSERT INTO audit (at, actor, event, detail) VALUES ({past}, 'ann', 'x', '[1e999]')"
    );
    world.by_hand(&insert).unwrap();
    let audit = windlass_store::audit::Audit::new(world.store.clone());
    let entries = audit.list(Default::default(), None, 10).await.unwrap();
    assert!(entries[0].detail["omitted"].is_string(), "{entries:?}");
}

async fn a_message_as_deep_as_allowed_becomes_a_dead_letter_like_any_other(dialect: Dialect) {
    let world = World::new(dialect).await;
    let deep = nested(64);
    let insert = format!(
        "INSERT INTO message (to_agent, type, payload) VALUES ('ghost', 'x', '{deep}'), \
         ('other', 'x', '1')"
    );
    world.by_hand(&insert).unwrap();
    assert_eq!(messages(&world).bury_strays(10).await.unwrap().len(), 2);
}

async fn a_text_that_is_not_utf_8_keeps_nobody_from_the_rest(dialect: Dialect) {
    let world = World::new(dialect).await;
    role(&world, "ceo", "ceo").await;
    let bytes = match dialect {
        Dialect::Sqlite => "CAST(x'74ff' AS TEXT)",
        // It keeps such bytes out by itself.
        Dialect::Postgres => "convert_from('\\x74ff', 'UTF8')",
    };
    let now = crate::refusal::instant(dialect, NOON);
    let written = world.by_hand(&format!(
        "INSERT INTO message (to_agent, type, payload, created_at, due_at) \
         VALUES ('ceo', {bytes}, '1', {now}, {now})"
    ));
    assert_eq!(written.is_ok(), dialect == Dialect::Sqlite, "{written:?}");
    let message = new("ceo");
    deliver(&world, &message).await;
    let (found, _) = messages(&world).list(Filter::default(), None, 10).await.unwrap();
    assert_eq!(found.len(), 1 + usize::from(dialect == Dialect::Sqlite));
    let mut handed = Vec::new();
    while let Some(held) = take(&world, pool("ceo_handler"), 1).await.pop() {
        messages(&world).end(held.message.id, held.lease, Ending::Acknowledge).await.unwrap();
        handed.push(held.message.id);
    }
    assert_eq!(handed.len(), found.len());
    assert!(handed.contains(&message.id), "{handed:?}");
}

/// Other words went out in its place, and the dead letter was closed as if it had been delivered.
async fn what_nobody_can_read_is_not_delivered_again(dialect: Dialect) {
    let world = World::new(dialect).await;
    role(&world, "ceo", "ceo").await;
    // Given up when its turn came, because nobody reads it, and because it could not be kept.
    unreadable(&world, "ceo");
    unreadable(&world, "nobody");
    assert!(take(&world, pool("ceo_handler"), 1).await.is_empty());
    messages(&world).bury_strays(10).await.unwrap();
    deliver(&world, &NewMessage { payload: json!("a\0b"), ..new("ceo") }).await;
    let letters = DeadLetters::new(world.store.clone());
    let (found, _) = letters.list(Letters::default(), None, 10).await.unwrap();
    assert_eq!(found.len(), 3);
    for letter in found {
        let said = redeliver(&world, letter.message).await.unwrap_err();
        assert!(matches!(said, Rejection::Refused(Refusal::Unreadable { .. })), "{said:?}");
        let (now, notes) = letters.show(letter.message).await.unwrap().unwrap();
        assert_eq!((now.status, notes.len()), (trouble::Status::Pending, 0));
        let abandoned = letters.act(letter.message, Deed::new(Event::Abandon, "ann")).await;
        assert_eq!(abandoned.unwrap().status, trouble::Status::Abandoned);
    }
    assert!(take(&world, pool("ceo_handler"), 1).await.is_empty());
}

/// What was sent is still there, whatever became of the copy.
async fn a_damaged_copy_is_delivered_again_as_it_was_sent(dialect: Dialect) {
    let world = World::new(dialect).await;
    let lost = NewMessage { priority: 3, ..new("nobody") };
    deliver(&world, &lost).await;
    role(&world, "ceo", "ceo").await;
    let update =
        format!("UPDATE dead_letter SET original = '[1e999]' WHERE message_id = '{}'", lost.id);
    let (off, on) = match dialect {
        Dialect::Postgres => (
            "ALTER TABLE dead_letter DISABLE TRIGGER USER".to_owned(),
            "ALTER TABLE dead_letter ENABLE TRIGGER USER".to_owned(),
        ),
        Dialect::Sqlite => {
            let name = "dead_letter_follows_its_workflow";
            let sql = format!("SELECT sql FROM sqlite_schema WHERE name = '{name}'");
            (format!("DROP TRIGGER {name}"), world.by_hand(&sql).unwrap())
        }
    };
    world.by_hand(&format!("{off}; {update}; {on}")).unwrap();
    let sent = redeliver(&world, lost.id).await.unwrap();
    assert_eq!((sent.payload, sent.priority), (lost.payload, 3));
}

/// One that was written by hand shows its own id, and the filter did not find it by that.
async fn what_a_message_shows_as_its_correlation_finds_it(dialect: Dialect) {
    let world = World::new(dialect).await;
    role(&world, "ceo", "ceo").await;
    let now = crate::refusal::instant(dialect, NOON);
    let id = "01890a5d-ac96-774b-bcce-b302099a8057";
    let insert = format!(
        "INSERT INTO message (id, to_agent, type, created_at, due_at) VALUES \
         ('{id}', 'ceo', 'x', {now}, {now}), \
         ('11890a5d-ac96-774b-bcce-b302099a8057', 'ceo', 'x', {now}, {now})"
    );
    world.by_hand(&insert).unwrap();
    world.pass_ms(1);
    let answer = NewMessage { correlation_id: Some(id.into()), ..new("ceo") };
    deliver(&world, &answer).await;
    let of = |kind: Option<&str>| Filter {
        correlation_id: Some(id.into()),
        kind: kind.map(Into::into),
        ..Filter::default()
    };
    let (page, next) = messages(&world).list(of(None), None, 1).await.unwrap();
    assert_eq!((page.len(), page[0].id), (1, answer.id));
    let (page, next) = messages(&world).list(of(None), next, 1).await.unwrap();
    assert_eq!((page[0].id.to_string(), page[0].correlation_id.as_str()), (id.into(), id));
    assert_eq!((page.len(), next), (1, None));
    // The other way round it comes first, and the next page does not show it again.
    let part = |after| Part::new(Order::Ascending, after, 1);
    let (page, next) = messages(&world).page(of(None), part(None)).await.unwrap();
    assert_eq!((page.len(), page[0].id.to_string()), (1, id.into()));
    let (page, next) = messages(&world).page(of(None), part(next)).await.unwrap();
    assert_eq!((page.len(), page[0].id, next), (1, answer.id, None));
    assert!(messages(&world).list(of(Some("y")), None, 9).await.unwrap().0.is_empty());
    assert_eq!(messages(&world).list(of(Some("x")), None, 9).await.unwrap().0.len(), 1);
}

/// PostgreSQL knows microseconds, and a cursor does not: read in pages, the oldest first, a list
/// showed the same message for ever, and the newest first it left out its neighbours.
async fn what_was_written_within_a_millisecond_is_on_one_page_each(dialect: Dialect) {
    let world = World::new(dialect).await;
    let now = crate::refusal::instant(dialect, NOON);
    for n in [3, 0, 2, 1] {
        let at = match dialect {
            Dialect::Postgres => format!("{now} + interval '{n}99 microseconds'"),
            Dialect::Sqlite => now.clone(),
        };
        let columns = "to_agent, type, created_at, due_at, expires_at";
        let values = format!("'ceo', 'x', {at}, {at}, {at}");
        world.by_hand(&format!("INSERT INTO message ({columns}) VALUES ({values})")).unwrap();
    }
    let mut seen = Vec::new();
    for order in [Order::Ascending, Order::Descending] {
        let mut after = None;
        for more in [true, true, true, false] {
            let part = Part::new(order, after, 1);
            let (page, next) = messages(&world).page(Filter::default(), part).await.unwrap();
            seen.push(page[0].id);
            after = next;
            assert_eq!((page.len(), after.is_some()), (1, more));
        }
    }
    let back: Vec<_> = seen.iter().rev().take(4).copied().collect();
    assert_eq!(seen[..4], back);
    seen.sort_unstable_by_key(|id| id.0);
    seen.dedup();
    assert_eq!(seen.len(), 4);
}
