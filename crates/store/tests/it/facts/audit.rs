//! The audit can be asked about an actor, an event, a subject and a time, and be read as a whole.

use crate::world::*;
use serde_json::json;
use windlass_store::audit::{self, Audit, Entry, Filter};
use windlass_store::statement::Dialect;

conformance!(
    everything_that_is_given_must_hold,
    the_subject_is_what_an_entry_is_about,
    an_export_goes_on_where_an_earlier_one_ended,
    nobody_changes_what_was_written,
);

async fn write(world: &World, actor: &'static str, event: &'static str, detail: serde_json::Value) {
    let body = move |tx: &mut dyn windlass_store::tx::Tx| audit::write(tx, actor, event, &detail);
    world.store.write("test", body).await.unwrap();
    world.pass_ms(1_000);
}

async fn some(dialect: Dialect) -> World {
    let world = World::new(dialect).await;
    write(&world, "ann", "message_sent", json!({ "message": "m1", "to": "ceo" })).await;
    write(&world, "bob", "message_sent", json!({ "message": "m2", "to": "ceo" })).await;
    write(&world, "ann", "message_refused", json!({ "message": "m3", "rule": "x" })).await;
    write(&world, "ann", "message_sent", json!({ "message": "m4", "to": "vp" })).await;
    world
}

async fn seen(world: &World, filter: Filter) -> Vec<String> {
    let entries = Audit::new(world.store.clone()).list(filter, None, 10).await.unwrap();
    entries.into_iter().map(|entry| entry.subject.unwrap()).collect()
}

async fn everything_that_is_given_must_hold(dialect: Dialect) {
    let world = some(dialect).await;
    let none = Filter::default;
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(seen(&world, none()).await, ["m4", "m3", "m2", "m1"]);
    assert_eq!(seen(&world, Filter { actor: text("ann"), ..none() }).await, ["m4", "m3", "m1"]);
    assert_eq!(seen(&world, Filter::of_event("message_sent")).await, ["m4", "m2", "m1"]);
    assert_eq!(seen(&world, Filter { subject: text("m2"), ..none() }).await, ["m2"]);
    let both = Filter { actor: text("ann"), ..Filter::of_event("message_sent") };
    assert_eq!(seen(&world, both).await, ["m4", "m1"]);
    let since = Some(world.now().plus_ms(-3_000));
    let until = Some(world.now().plus_ms(-1_000));
    assert_eq!(seen(&world, Filter { since, until, ..none() }).await, ["m3", "m2"]);
    let audit = Audit::new(world.store.clone());
    let first = audit.list(none(), None, 2).await.unwrap();
    let rest = audit.list(none(), first.last().map(|entry| entry.seq), 2).await.unwrap();
    let subjects: Vec<_> = rest.iter().filter_map(|entry| entry.subject.as_deref()).collect();
    assert_eq!(subjects, ["m2", "m1"]);
}

async fn the_subject_is_what_an_entry_is_about(dialect: Dialect) {
    let world = World::new(dialect).await;
    for (detail, subject) in [
        (json!({ "task": "t", "step": "s" }), Some("t")),
        (json!({ "approval": "a", "approver": "x" }), Some("a")),
        (json!({ "agent": "vp", "before": null }), Some("vp")),
        (json!({ "before": null, "after": { "scope": "queue", "name": "q" } }), Some("queue:q")),
        (json!({ "before": { "scope": "global" }, "after": null }), Some("global")),
        (json!({ "route": "/v1/audit" }), None),
    ] {
        write(&world, "ann", "something", detail.clone()).await;
        let last = Audit::new(world.store.clone()).list(Filter::default(), None, 1).await.unwrap();
        assert_eq!(last[0].subject.as_deref(), subject, "{detail}");
        assert_eq!(last[0].detail, detail);
    }
}

async fn an_export_goes_on_where_an_earlier_one_ended(dialect: Dialect) {
    let world = some(dialect).await;
    let audit = Audit::new(world.store.clone());
    let ann = Filter { actor: Some("ann".into()), ..Filter::default() };
    let subjects = |entries: &[Entry]| -> Vec<String> {
        entries.iter().filter_map(|entry| entry.subject.clone()).collect()
    };
    let first = exported(&audit, ann.clone(), 0, 2).await;
    assert_eq!(subjects(&first), ["m1", "m3"]);
    let rest = exported(&audit, ann.clone(), first[1].seq, 1).await;
    assert_eq!(subjects(&rest), ["m4"]);
    assert_eq!(audit.export(ann, rest[0].seq, 2).await.unwrap(), []);
}

/// So many entries: on PostgreSQL an entry is shown when every older transaction is over, also
/// those of the tests beside this one.
async fn exported(audit: &Audit, filter: Filter, after: i64, count: i64) -> Vec<Entry> {
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let entries = audit.export(filter.clone(), after, count).await.unwrap();
        if entries.len() as i64 == count {
            return entries;
        }
        assert!(std::time::Instant::now() < patience, "{entries:?}");
        tokio::task::yield_now().await;
    }
}

/// A sequence gives its numbers when they are asked for. The entry of a transaction that commits
/// late was below the number at which an export had ended, and nobody ever exported it.
#[test]
fn an_entry_that_commits_late_is_exported_all_the_same() {
    crate::world::run(commits_late, Dialect::Postgres);
}

async fn commits_late(dialect: Dialect) {
    let world = World::new(dialect).await;
    let audit = Audit::new(world.store.clone());
    let late = crate::postgres_log::application(&world).await;
    late.batch_execute(
        "BEGIN; INSERT INTO audit (at, actor, event, detail)
         VALUES ('2026-01-01Z', 'ann', 'late', '{\"task\": \"late\"}')",
    )
    .await
    .unwrap();
    write(&world, "bob", "early", json!({ "task": "early" })).await;
    // Whatever an export gives before the late one commits, going on after it gives the rest.
    let before = audit.export(Filter::default(), 0, 10).await.unwrap();
    late.batch_execute("COMMIT").await.unwrap();
    let after = before.last().map_or(0, |entry| entry.seq);
    let rest = exported(&audit, Filter::default(), after, 2 - before.len() as i64).await;
    let all: Vec<_> = before.iter().chain(&rest).filter_map(|e| e.subject.as_deref()).collect();
    assert_eq!(all, ["late", "early"]);
}

async fn nobody_changes_what_was_written(dialect: Dialect) {
    let world = some(dialect).await;
    for sql in ["UPDATE audit SET actor = 'x'", "DELETE FROM audit"] {
        assert!(world.by_hand(sql).is_err(), "{sql}");
    }
    assert_eq!(world.by_hand("SELECT count(*) FROM audit").unwrap(), "4");
}
