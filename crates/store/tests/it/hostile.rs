//! One statement written by hand must not stop a queue, a sweep or a batch, nor forge the record.

use crate::hand::{Attempt, all_accepted, all_refused};
use crate::postgres_log::{application, until_waiting};
use crate::refusal::instant;
use crate::world::*;
use std::time::Duration;
use windlass_domain::state::State;
use windlass_store::migration;
use windlass_store::statement::Dialect;
use windlass_store::task::{Assignment, Claim, Filter, Finishing, Order};

conformance!(
    a_number_at_its_end_stops_no_queue,
    a_task_given_back_too_often_by_hand_stops_no_sweep,
    what_no_reader_understands_is_not_submitted,
    what_no_reader_understands_is_not_told,
    a_row_that_cannot_be_read_fails_alone,
    half_a_task_is_refused,
    a_copied_protocol_forges_neither_time_nor_lease,
    a_failure_by_hand_is_among_the_failures,
    a_repeated_claim_gets_no_more_than_it_got,
    a_reader_of_the_history_cannot_finish_the_task,
    the_view_counts_replays,
);

async fn a_number_at_its_end_stops_no_queue(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let held = world.running(job()).await;
    let id = held.task.id;
    let release = |attempt: i64| {
        format!(
            "UPDATE task_state SET status = 'pending', attempt = {attempt}, lease_id = NULL,
             lease_expires_at = NULL, claimed_by = NULL, ready = TRUE WHERE id = '{id}'"
        )
    };
    let said = world.by_hand(&release(2_147_483_647)).unwrap_err();
    assert!(said.contains("counters_are_bounded"), "{said}");
    // The last number that is allowed still leaves the task claimable.
    world.by_hand(&release(1_000_000_000)).unwrap();
    world.submit_all((0..5).map(|_| job()).collect()).await;
    let held = world.claim("w2", 10).await;
    assert_eq!(held.len(), 6);
    assert!(held.iter().any(|a| a.attempt == 1_000_000_000));
    for held in &held {
        assert_eq!(world.finish(held, complete()).await.unwrap(), State::Completed);
    }
}

async fn a_task_given_back_too_often_by_hand_stops_no_sweep(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    world.submit_all((0..2).map(|_| job()).collect()).await;
    let held = world.claim("w1", 2).await;
    let past = instant(dialect, NOON - 1_000_000_000_000);
    let set = |count: i64| {
        format!("UPDATE task_state SET release_count = {count}, lease_expires_at = {past}")
    };
    assert!(world.by_hand(&set(2_147_483_647)).is_err());
    world.by_hand(&set(20)).unwrap();
    let report = world.tasks.expire_leases(10).await.unwrap();
    assert_eq!(report.changed.len(), 2);
    for held in &held {
        assert_eq!(world.status(held.task.id).await, State::Poisoned);
    }
}

const ID: &str = "99999999-2222-4111-8111-111111111111";

/// A hand-written task with these columns beside the usual ones.
fn spec(dialect: Dialect, columns: &str, values: &str) -> String {
    let now = instant(dialect, NOON);
    let id = if columns.starts_with("id,") { String::new() } else { format!("'{ID}', ") };
    let columns = if id.is_empty() { columns.to_owned() } else { format!("id, {columns}") };
    format!(
        "INSERT INTO task_spec ({columns}, profile, queue, run_at, max_retries, submitted_by,
             created_at) VALUES ({id}{values}, 'job', 'q', {now}, 3, 'me', {now})"
    )
}

async fn what_no_reader_understands_is_not_submitted(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let deep = format!("'{}1{}'", "[".repeat(300), "]".repeat(300));
    let mut cases = vec![
        ("payload, backoff", "'1', '7'".to_owned(), "backoff"),
        ("payload, backoff", "'1', '{\"x\": 1}'".to_owned(), "backoff"),
        ("payload, backoff", "'1', '{\"base_ms\": -1}'".to_owned(), "backoff"),
        ("payload, backoff", "'1', '{\"retryable\": [\"a b\"]}'".to_owned(), "backoff"),
        ("payload", "'1e400'".to_owned(), "64-bit float"),
        ("payload", "'[123456789012345678901234567890]'".to_owned(), "64-bit float"),
        ("payload", deep, "deep"),
        ("payload, name", "'1', ' n '".to_owned(), "windlass: "),
        ("payload, agent", "'1', ''".to_owned(), "windlass: "),
    ];
    if dialect == Dialect::Sqlite {
        cases.extend([
            ("payload", "'\"\\ud800\"'".to_owned(), "windlass: "),
            ("payload", "'\"\\u0000\"'".to_owned(), "windlass: "),
            ("payload", "'{\"a\": 1, \"a\": 2}'".to_owned(), "twice"),
            ("payload, tags", "'1', '{\"a\": \"1\", \"a\": \"2\"}'".to_owned(), "twice"),
            ("payload, tags", "'1', '{\"a\": \"\\u0000\"}'".to_owned(), "NUL"),
            ("payload, name", "'1', 'a' || char(0) || 'b'".to_owned(), "NUL"),
            ("payload, parent_id", "'1', 'junk'".to_owned(), "an id is"),
            ("payload, replay_of", "'1', 'junk'".to_owned(), "an id is"),
            ("id, payload", "'zzzzzzzz-2222-4111-8111-111111111111', '1'".to_owned(), "an id is"),
            ("id, payload", "'AAAAAAAA-2222-4111-8111-111111111111', '1'".to_owned(), "an id is"),
        ]);
    }
    let attempts: Vec<_> = (cases.iter())
        .map(|(columns, values, words)| (Attempt::new(spec(dialect, columns, values)), *words))
        .collect();
    all_refused(&world, &attempts);
    let fine = [
        spec(dialect, "payload, backoff", "'[1e300, 18446744073709551615]', '{\"base_ms\": 5}'"),
        spec(dialect, "payload, name", "'{\"a\": [{}]}', 'Ünïcode name'"),
        spec(dialect, "payload, backoff", "'1', '{\"on_exhausted\": \"failed\"}'"),
        // A whole pair, in a text and in a key, and what only looks like half of one.
        spec(dialect, "payload", "'{\"\\ud83d\\ude00\": \"\\uD83D\\uDE00 \\\\ud83d\"}'"),
        // Dots and brackets in a key are no depth.
        spec(dialect, "payload", &format!("'{{\"{}\": [1]}}'", ".[".repeat(100))),
    ];
    all_accepted(&world, &fine.map(Attempt::new));
}

async fn what_no_reader_understands_is_not_told(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let held = world.running(job()).await;
    world.tell(&held, Some("{\"n\":1}"), None).await.unwrap();
    let deep = format!("{}1{}", "[".repeat(65), "]".repeat(65));
    let mut attempts = Vec::new();
    for json in ["1e400", "-1e999", "[123456789012345678901234567890]", &deep] {
        for column in ["checkpoint", "progress"] {
            let sql = format!("UPDATE task_progress SET {column} = '{json}'");
            attempts.push((Attempt::new(sql), "64-bit float"));
        }
    }
    if dialect == Dialect::Sqlite {
        let ids = ["lease_id", "claim_id"];
        attempts.extend(ids.map(|column| {
            let end = "status = 'pending', lease_expires_at = NULL, claimed_by = NULL";
            let lease = if column == "claim_id" { ", lease_id = NULL" } else { "" };
            let sql = format!("UPDATE task_state SET {end}{lease}, {column} = 'junk'");
            (Attempt::new(sql), "windlass: task_state: an id is")
        }));
    }
    all_refused(&world, &attempts);
    let fits = format!("{}{}", "[".repeat(64), "]".repeat(64));
    let update = format!("UPDATE task_progress SET checkpoint = '{fits}'");
    all_accepted(&world, &[Attempt::new(update)]);
    // The holder's own word comes through as before.
    world.tell(&held, Some("[2]"), Some("{\"done\":1}")).await.unwrap();
    assert_eq!(world.show(held.task.id).await.checkpoint, Some(serde_json::json!([2])));
}

/// Spoils one row behind all guards, as a damaged page or an older program might.
fn spoil(world: &World, id: &str) {
    let sql = match world.dialect() {
        Dialect::Postgres => format!(
            "ALTER TABLE task_spec DISABLE TRIGGER USER;
             UPDATE task_spec SET backoff = '7' WHERE id = '{id}';
             ALTER TABLE task_spec ENABLE TRIGGER USER;
             INSERT INTO task_progress (task_id, checkpoint, change_id, updated_at)
             VALUES ('{id}', '1e400', gen_random_uuid(), now());"
        ),
        Dialect::Sqlite => format!(
            "DROP TRIGGER task_spec_is_immutable; DROP TRIGGER task_progress_can_be_read_i;
             UPDATE task_spec SET backoff = '7' WHERE id = '{id}';
             INSERT INTO task_progress (task_id, checkpoint, updated_at)
             VALUES ('{id}', '1e400', 1);"
        ),
    };
    world.by_hand(&sql).unwrap();
}

async fn a_row_that_cannot_be_read_fails_alone(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    world.submit_all((0..5).map(|_| job()).collect()).await;
    let held = world.claim("w1", 5).await;
    let bad = held[2].task.id;
    spoil(&world, &bad.to_string());
    let items = held.iter().map(|a| finish_of(a, fail("TIMEOUT"))).collect();
    for (held, outcome) in held.iter().zip(world.tasks.finish(items).await) {
        assert_eq!(outcome.is_ok(), held.task.id != bad, "{outcome:?}");
    }
    // Of those who look at once, only who looks at it is told so.
    let (good, spoilt) = tokio::join!(world.tasks.look(held[0].task.id), world.tasks.look(bad));
    assert_eq!(good.unwrap().map(|task| task.id), Some(held[0].task.id));
    assert!(spoilt.is_err(), "{spoilt:?}");
    // A list shows the others, a sweep passes over it, and a claim hands the others over.
    let page = world.tasks.list(Filter::default(), Order::Descending, None, 10).await.unwrap();
    assert_eq!(page.items.len(), 4);
    let past = instant(dialect, NOON - 1_000_000_000_000);
    let expire = format!("UPDATE task_state SET lease_expires_at = {past} WHERE id = '{bad}'");
    world.by_hand(&expire).unwrap();
    let other = world.running(job()).await;
    let expire = expire.replace(&bad.to_string(), &other.task.id.to_string());
    world.by_hand(&expire).unwrap();
    let report = world.tasks.expire_leases(10).await.unwrap();
    assert_eq!((report.scanned, report.changed.len(), report.unreadable), (2, 1, 1));
    let release = format!(
        "UPDATE task_state SET status = 'pending', ready = TRUE, lease_id = NULL, claimed_by = NULL,
         lease_expires_at = NULL WHERE id = '{bad}'"
    );
    world.by_hand(&release).unwrap();
    let next = world.submit(job()).await;
    let claimed = world.claim("w2", 10).await;
    assert!(claimed.iter().any(|a| a.task.id == next), "{claimed:?}");
    assert!(claimed.iter().all(|a| a.task.id != bad));
}

async fn half_a_task_is_refused(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let now = instant(dialect, NOON);
    let state = format!(
        "INSERT INTO task_state (id, profile, queue, change_id, actor, ready, order_key, run_at,
             max_retries, created_at, entered_at, updated_at)
         VALUES ('{ID}', 'job', 'q', '{ID}', 'me', TRUE, 1, {now}, 3, {now}, {now}, {now})"
    );
    let said = world.by_hand(&state).unwrap_err();
    assert!(said.contains("begin as it was submitted"), "{said}");
    let spec = spec(dialect, "payload", "'1'");
    if dialect == Dialect::Postgres {
        let said = world.by_hand(&spec).unwrap_err();
        assert!(said.contains("half a task"), "{said}");
        // In the lane of another venture its own one's limits would not count it.
        let other = world.submit(task(|r| r.venture = Some("other".into()))).await;
        let lane = format!("(SELECT lane FROM task_state WHERE id = '{other}')");
        let stray = state.replace("updated_at)", "updated_at, lane)");
        let stray = format!("{}, {lane})", stray.strip_suffix(')').unwrap());
        let said = world.by_hand(&format!("BEGIN; {spec}; {stray}; COMMIT;")).unwrap_err();
        assert!(said.contains("begin as it was submitted"), "{said}");
        world.cancel(other).await.unwrap();
        // Both halves, and they fit: a person may.
        world.by_hand(&format!("BEGIN; {spec}; {state}; COMMIT;")).unwrap();
    } else {
        world.by_hand(&spec).unwrap();
    }
    assert_eq!(world.claim("w1", 10).await.len(), 1);
}

async fn a_copied_protocol_forges_neither_time_nor_lease(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let held = world.running(job()).await;
    let fresh = "change_id = 'aaaaaaaa-1111-4111-8111-111111111111', from_status = status";
    let lease = "lease_id = 'bbbbbbbb-1111-4111-8111-111111111111'";
    let past = instant(dialect, 1);
    let later = if dialect == Dialect::Postgres { "cannot change before" } else { "changed later" };
    let with = if dialect == Dialect::Postgres { "change only when" } else { "change only with" };
    let update = |set: String| Attempt::new(format!("UPDATE task_state SET {set}"));
    all_refused(
        &world,
        &[
            (
                update(format!(
                    "status = 'completed', event = 'complete', actor = 'the-ceo', lease_id = NULL,
                     lease_expires_at = NULL, updated_at = {past}, entered_at = {past}, {fresh}"
                )),
                later,
            ),
            (update(format!("updated_at = {past}, {fresh}")), later),
            (update(format!("{lease}, {fresh}")), with),
            (update(lease.to_owned()), with),
            (update(format!("attempt = 7, {fresh}")), with),
            (update("attempt = 7".to_owned()), with),
        ],
    );
    assert_eq!(world.finish(&held, complete()).await.unwrap(), State::Completed);
}

async fn a_failure_by_hand_is_among_the_failures(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let held = world.running(job()).await;
    let error = "'{\"code\":\"BY_HAND\",\"message\":\"m\"}'";
    let update = format!(
        "UPDATE task_state SET status = 'failed', lease_id = NULL, lease_expires_at = NULL,
         error = {error}"
    );
    world.by_hand(&update).unwrap();
    let failures = world.tasks.failures(held.task.id, 0, 10).await.unwrap();
    assert_eq!(failures.len(), 1);
    assert_eq!((failures[0].error.code.as_str(), failures[0].attempt), ("BY_HAND", 1));
    assert_eq!(failures[0].session.as_deref(), Some("w1"));
}

async fn a_repeated_claim_gets_no_more_than_it_got(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    world.submit_all((0..6).map(|_| job()).collect()).await;
    let claim = claim_of("w1", &["q"], 2);
    let first = world.tasks.claim(claim.clone()).await.unwrap();
    // What is told again is told with its steps, as the engine reads them.
    let again = async || {
        let told = world.tasks.claim(claim.clone()).await.unwrap();
        world.tasks.fill_steps(told).await.unwrap()
    };
    assert_eq!(again().await, first);
    world.finish(&first[0], complete()).await.unwrap();
    assert_eq!(again().await, first[1..]);
    // A short claim was answered as well, and what came later belongs to the next one.
    let short = claim_of("w1", &["q"], 10);
    assert_eq!(world.tasks.claim(short.clone()).await.unwrap().len(), 4);
    world.submit(job()).await;
    assert_eq!(world.tasks.claim(short).await.unwrap().len(), 4);
    assert_eq!(world.claim("w1", 10).await.len(), 1);
}

async fn a_reader_of_the_history_cannot_finish_the_task(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let held = world.running(job()).await;
    let last = world.tasks.history(held.task.id, 0, 10).await.unwrap().pop().unwrap();
    let shown = last.lease_id.unwrap();
    assert_eq!(shown, held.lease_id.digest());
    assert!(!held.lease_id.to_string().replace('-', "").contains(&shown.to_string()));
}

async fn the_view_counts_replays(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let origin = world.submit(job()).await;
    for _ in 0..2 {
        let mut replay = job();
        replay.replay_of = Some(origin);
        world.submit(replay).await;
    }
    let count = format!("SELECT replay_count FROM task WHERE id = '{origin}'");
    assert_eq!(world.by_hand(&count).unwrap(), "2");
}

#[test]
fn a_beat_that_waited_is_judged_by_the_time_when_it_has_the_row() {
    run(a_beat_that_waited, Dialect::Postgres);
}

/// A lease that ran out while its beat waited for the row was renewed.
async fn a_beat_that_waited(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    world.submit_all(vec![job(), job()]).await;
    let claim = Claim { lease_ms: Some(700), ..claim_of("w1", &["q"], 2) };
    let held = world.tasks.claim(claim).await.unwrap();
    let bystander = application(&world).await;
    bystander.batch_execute("BEGIN; SELECT 1 FROM task_state FOR UPDATE").await.unwrap();
    let beat = |held: &Assignment| {
        let (tasks, beat) = (world.tasks.clone(), beat_of(held));
        tokio::spawn(async move { tasks.heartbeat(vec![beat]).await.pop().unwrap() })
    };
    let (tasks, start) = (world.tasks.clone(), held[1].clone());
    let (beat, start) = (beat(&held[0]), {
        let item = windlass_store::task::Start {
            task: start.task.id,
            lease: start.lease_id,
            actor: "w1".into(),
            change: windlass_domain::id::ChangeId(uuid::Uuid::now_v7()),
        };
        tokio::spawn(async move { tasks.start(vec![item]).await.pop().unwrap() })
    });
    until_waiting(&world, "2").await;
    tokio::time::sleep(Duration::from_millis(800)).await;
    bystander.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(refused(beat.await.unwrap()), "lease_lost");
    assert_eq!(refused(start.await.unwrap()), "lease_lost");
    assert_eq!(world.finish(&held[0], Finishing::Release).await.unwrap(), State::Pending);
}

#[test]
fn a_node_waits_for_another_s_migration_longer_than_for_a_lock() {
    run(waits_for_a_migration, Dialect::Postgres);
}

async fn waits_for_a_migration(dialect: Dialect) {
    let world = World::empty(dialect);
    let Place::Postgres(database) = &world.place else { panic!("PostgreSQL only") };
    let options = windlass_store::postgres::Options {
        lock_timeout: Duration::from_millis(100),
        statement_timeout: Duration::from_millis(200),
        ..Default::default()
    };
    let opened = windlass_store::postgres::open(&database.url(), options).unwrap();
    let store = windlass_store::store::Store::new(opened);
    let other = application(&world).await;
    other.batch_execute("BEGIN; SELECT pg_advisory_xact_lock(7801934412)").await.unwrap();
    let migrating = store.clone();
    let migrated = tokio::spawn(async move { migration::up(&migrating).await });
    until_waiting(&world, "1").await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    other.batch_execute("ROLLBACK").await.unwrap();
    assert!(!migrated.await.unwrap().unwrap().is_empty());
    store.close();
}
