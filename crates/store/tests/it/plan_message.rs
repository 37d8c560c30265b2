//! Among very many messages that have ended every statement about messages uses its index, and a
//! claim costs what a claim among few costs.

use crate::hand;
use crate::plan::{buffers, explain_postgres, explain_sqlite, steps};
use crate::plan_case::{Case, by_number, in_both_orders, reads, writes};
use crate::world::*;
use windlass_store::statement::Dialect;

/// So many have ended, for a hundred agents.
const MANY: usize = 100_000;

#[test]
fn postgres_uses_its_indexes_among_many_messages() {
    run(postgres_plans, Dialect::Postgres);
}

#[test]
fn sqlite_uses_its_indexes_among_many_messages() {
    run(sqlite_plans, Dialect::Sqlite);
}

const AGENT: &str = "'agent-7'";
const NOW: &str = "'2026-06-01Z'";
const ID: &str = "'00000000-0000-4000-8000-000000000100'";

fn cases() -> Vec<Case> {
    let inbox: &[&str] = &["message_inbox"];
    let agents = "ARRAY['agent-7', 'agent-8']";
    let taken = [(1, AGENT), (2, ID), (3, NOW), (4, "'me'"), (5, NOW)];
    let fixed = vec![
        reads("message/heads_of_handler", &[(1, "'vp_handler'"), (2, NOW), (3, "1")], inbox, inbox),
        reads("message/heads_of_agents", &[(1, agents), (2, NOW), (3, "1")], inbox, inbox),
        writes("message/take", &taken, inbox, inbox),
        writes("message/take_turn", &taken, inbox, inbox),
        writes(
            "message/expired",
            &[(1, NOW), (2, "100")],
            &["message_expiry"],
            &["message_expiry"],
        ),
        writes("message/lost", &[(1, NOW), (2, "100")], &["message_lease"], &["message_lease"]),
        writes("message/stray", &[(1, "100")], inbox, inbox),
        reads("message/held", &[(1, ID)], &[], &["message_lease_id"]),
        reads(
            "message/consider",
            &[(1, ID), (2, AGENT), (3, "'k'"), (4, AGENT), (5, "TRUE"), (7, "100")],
            &["message_pkey", "message_key"],
            &["message_key"],
        ),
        reads("audit/export", &[(1, "100"), (2, "100")], &["audit_pkey"], &[]),
    ];
    fixed.into_iter().chain(lists().into_iter().flatten()).collect()
}

/// Lists, each in both orders.
fn lists() -> Vec<[Case; 2]> {
    let page = (3, "51");
    let by = |name, value, index| in_both_orders(name, &[page, value], index, index);
    let audit =
        |name, value, postgres, sqlite| by_number(name, 1, &[(2, "51"), value], postgres, sqlite);
    vec![
        in_both_orders("message/list", &[page], &["message_recent"], &["message_recent"]),
        by("message/list_to", (4, AGENT), &["message_to"]),
        by("message/list_from", (5, AGENT), &["message_from"]),
        by("message/list_correlation", (8, "'c7'"), &["message_correlation"]),
        in_both_orders("message/list_own", &[page, (8, ID)], &["message_pkey"], &[]),
        by_number("audit/list", 1, &[(2, "51")], &["audit_pkey"], &["INTEGER PRIMARY KEY"]),
        audit("audit/list_of_actor", (3, AGENT), &["audit_actor"], &["audit_actor"]),
        audit("audit/list_of_event", (4, "'event-7'"), &["audit_event"], &["audit_event"]),
        audit("audit/list_of_subject", (5, "'bob'"), &["audit_subject"], &["audit_subject"]),
    ]
}

/// Agents, what they were told and have handled, and a little that lies in their inboxes.
fn load(world: &World, ended: usize) {
    let (now, later) = match world.dialect() {
        Dialect::Postgres => ("timestamptz '2026-01-01Z'", "timestamptz '2026-01-02Z'"),
        Dialect::Sqlite => ("1767225600000", "1767312000000"),
    };
    let id = |salt: &str| match world.dialect() {
        Dialect::Postgres => {
            format!("('{salt}0000000-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid")
        }
        Dialect::Sqlite => format!("'{salt}0000000-0000-4000-8000-' || printf('%012x', n)"),
    };
    let numbers = |count: usize| match world.dialect() {
        Dialect::Postgres => format!("generate_series(1, {count}) AS n"),
        Dialect::Sqlite => format!(
            "(WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {count})
              SELECT n FROM c)"
        ),
    };
    let (off, on) = match world.dialect() {
        Dialect::Postgres => {
            ("SET session_replication_role = replica;", "RESET session_replication_role;")
        }
        Dialect::Sqlite => ("", ""),
    };
    let columns = "id, from_agent, to_agent, type, correlation_id, created_at, due_at";
    let row = |salt: &str| {
        format!(
            "{}, 'agent-' || (n % 90), 'agent-' || (n % 100), 'x', 'c' || (n % 1000), {now}, {now}",
            id(salt)
        )
    };
    let script = format!(
        "{off}
         INSERT INTO agent (name, role, created_at, updated_at)
         SELECT 'agent-' || (n - 1), CASE WHEN n % 2 = 0 THEN 'vp' ELSE 'crew' END, {now}, {now}
         FROM {agents};
         INSERT INTO inbox (agent, opened_at) SELECT 'agent-' || (n - 1), {now} FROM {agents};
         INSERT INTO message ({columns}, idempotency_key, status, deliveries, handled_by,
             delivered_at, finished_at)
         SELECT {ended_row}, 'key-' || n, 'acknowledged', 1, 'me', {now}, {now} FROM {ended};
         INSERT INTO message ({columns}, expires_at) SELECT {pending_row}, {later} FROM {pending};
         INSERT INTO audit (at, actor, event, detail)
         SELECT {now}, 'agent-' || (n % 90), 'event-' || (n % 50), '{{}}' FROM {ended};
         {on}",
        agents = numbers(100),
        ended = numbers(ended),
        ended_row = row("1"),
        pending = numbers(500),
        pending_row = row("2"),
    );
    // Refusing triggers are about writing; the rows are right, and SQLite has no switch for them.
    let script = match world.dialect() {
        Dialect::Postgres => script,
        Dialect::Sqlite => {
            let sql = "SELECT group_concat('DROP TRIGGER ' || name || ';', '')
                       FROM sqlite_schema WHERE type = 'trigger'";
            format!("{} BEGIN; {script} COMMIT;", world.by_hand(sql).unwrap())
        }
    };
    let (_, errors) = hand::run(world, &script);
    assert_eq!(errors, "");
}

async fn postgres_plans(dialect: Dialect) {
    let (world, few) = (World::new(dialect).await, World::new(dialect).await);
    load(&world, MANY);
    load(&few, 100);
    let cases = cases();
    let mut wrong = explain_postgres(&world, &cases, "without statistics");
    for world in [&world, &few] {
        world.by_hand("VACUUM ANALYZE").unwrap();
    }
    wrong.extend(explain_postgres(&world, &cases, "with statistics"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let costs = |world: &World| -> Vec<i64> {
        let costly = ["message/heads_of_handler", "message/take", "message/take_turn"];
        let case = |name: &str| cases.iter().find(|case| case.name == name).unwrap();
        costly
            .map(|name| buffers(world, case(name), usize::from(name != "message/take_turn")))
            .into()
    };
    let (alone, among) = (costs(&few), costs(&world));
    println!("a claim touches {alone:?} among few, {among:?} among {MANY}");
    for (alone, among) in alone.iter().zip(&among) {
        assert!(*among <= 2 * alone + 16, "{among} among many, {alone} among few");
    }
}

async fn sqlite_plans(dialect: Dialect) {
    let (world, few) = (World::new(dialect).await, World::new(dialect).await);
    load(&world, MANY);
    load(&few, 100);
    let Place::Sqlite(folder) = &world.place else { panic!("a file") };
    let connection = rusqlite::Connection::open(file(folder)).unwrap();
    let cases = cases();
    let mut wrong = explain_sqlite(&connection, &cases, "without statistics");
    connection.execute_batch("PRAGMA analysis_limit = 1000; ANALYZE;").unwrap();
    drop(connection);
    let connection = rusqlite::Connection::open(file(folder)).unwrap();
    wrong.extend(explain_sqlite(&connection, &cases, "with statistics"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // 2026-06-01Z, and a hundred at most.
    let asked: [&dyn rusqlite::ToSql; 2] = [&1_780_272_000_000_i64, &100];
    for name in ["message/expired", "message/lost"] {
        let (alone, among) = (steps(&few, name, &asked), steps(&world, name, &asked));
        assert!(among <= 2 * alone + 16, "{name}: {among} among many, {alone} among few");
    }
}
