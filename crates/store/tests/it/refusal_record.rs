//! The record: history and what was submitted can be neither forged, rewritten nor removed.

use crate::hand::{Attempt, all_accepted, all_refused};
use crate::refusal::{CHANGE, instant};
use crate::world::*;
use windlass_domain::id::TaskId;
use windlass_domain::task::NewTask;
use windlass_domain::time::Timestamp;
use windlass_store::statement::Dialect;

conformance!(
    history_is_append_only_and_writes_itself,
    the_view_of_tasks_is_read_only_and_says_what_to_do,
    the_machine_in_the_database_is_fixed,
    retention_removes_finished_tasks_only,
);

fn refused(sql: &str, words: &'static str) -> (Attempt, &'static str) {
    (Attempt::new(sql), words)
}

async fn history_is_append_only_and_writes_itself(dialect: Dialect) {
    let world = World::new(dialect).await;
    let held = world.running(job()).await;
    let id = held.task.id;
    let now = instant(dialect, NOON);
    let written = "the database writes it";
    let last = "SELECT task_id, change_id, from_status, to_status, event, actor, reason, lease_id,
                metadata, at FROM task_history ORDER BY seq DESC LIMIT 1";
    let columns = "task_id, change_id, from_status, to_status, event, actor, reason, lease_id,
                   metadata, at";
    let forged = |values: &str| {
        format!(
            "INSERT INTO task_history (task_id, change_id, to_status, event, actor, at) {values}"
        )
    };
    let of_state =
        forged(&format!("SELECT id, change_id, status, 'complete', 'me', {now} FROM task_state"));
    let mut attempts = vec![
        refused("DELETE FROM task_history", "only the retention duty"),
        refused("DELETE FROM task_history WHERE seq = 1", "only the retention duty"),
        refused("UPDATE task_history SET actor = 'me'", "history is append-only"),
        refused("UPDATE task_history SET seq = seq + 100", "history is append-only"),
        refused(
            &forged(&format!(
                "VALUES ('{CHANGE}', '{CHANGE}', 'completed', 'complete', 'me', {now})"
            )),
            written,
        ),
        refused(
            &forged(&format!("VALUES ('{id}', '{CHANGE}', 'completed', 'complete', 'me', {now})")),
            written,
        ),
        // The last change once more, as it was or embellished.
        refused(&of_state, written),
        refused(&format!("INSERT INTO task_history ({columns}) {last}"), written),
        refused(
            &format!(
                "INSERT INTO task_history (seq, {columns}) SELECT -7, {columns} FROM task_history"
            ),
            written,
        ),
    ];
    // After a touch the row's change is one that no history row has.
    let touched = Attempt::new(of_state.clone())
        .after(format!("UPDATE task_state SET order_key = 1 WHERE id = '{id}'"));
    attempts.push((touched, written));
    let touched = Attempt::new(
        "INSERT INTO task_history (task_id, change_id, from_status, to_status, event, actor, reason,
            lease_id, metadata, at)
         SELECT id, change_id, from_status, status, event, actor, reason, change_lease_id, metadata,
            updated_at FROM task_state",
    );
    attempts.push((touched.clone(), written));
    let before = format!("UPDATE task_state SET order_key = 1 WHERE id = '{id}'");
    attempts.push((touched.after(before), written));
    all_refused(&world, &attempts);
    assert_eq!(world.story(id).await, ["submit:pending", "claim:running"]);
}

async fn the_view_of_tasks_is_read_only_and_says_what_to_do(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(job()).await;
    let words = match dialect {
        Dialect::Postgres => "HINT:  Use the API or the windlass command",
        Dialect::Sqlite => "use the API or task_state",
    };
    let mut attempts = vec![
        refused("UPDATE task SET status = 'completed'", words),
        refused("DELETE FROM task", words),
        refused(&format!("INSERT INTO task (id, queue) VALUES ('{id}', 'q')"), words),
    ];
    if dialect == Dialect::Sqlite {
        attempts.push(refused("REPLACE INTO task (id, queue) VALUES ('x', 'q')", words));
        attempts.push(refused("UPDATE task_failure SET seq = 1", "cannot modify task_failure"));
    } else {
        // A plain view of one table: what is done to it is done to the table.
        attempts.push(refused("DELETE FROM task_failure", "only the retention duty"));
        attempts.push(refused("UPDATE task_failure SET seq = 1", "append-only"));
        let insert = format!("INSERT INTO task_failure (task_id, seq) VALUES ('{id}', 1)");
        attempts.push(refused(&insert, "the database writes it"));
    }
    all_refused(&world, &attempts);
}

async fn the_machine_in_the_database_is_fixed(dialect: Dialect) {
    let world = World::new(dialect).await;
    let row = "(99, 'job', 'completed', 'wake', 'pending')";
    let (machine, profiles) = ("changes the state machine", "changes the profiles");
    all_refused(
        &world,
        &[
            refused(&format!("INSERT INTO transition VALUES {row}"), machine),
            refused("UPDATE transition SET to_status = 'completed'", machine),
            refused("DELETE FROM transition", machine),
            refused("INSERT INTO profile VALUES ('job', 9, NULL, NULL)", profiles),
            refused("UPDATE profile SET max_retries = 9", profiles),
            refused("DELETE FROM profile", profiles),
        ],
    );
}

/// Whoever opened the gate could remove anything: the first line of a running job's history, too.
async fn retention_removes_finished_tasks_only(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let old = World::new(dialect).await;
    old.set_now(Timestamp::from_ms(NOON - 3_650 * 24 * 3_600_000));
    let open = match dialect {
        Dialect::Postgres => "SELECT set_config('windlass.retention', 'on', true)",
        Dialect::Sqlite => "INSERT INTO retention_gate (open) VALUES (1)",
    };
    let tables = ["task_history", "task_tag", "task_progress", "task_state", "task_spec"];
    let words =
        if dialect == Dialect::Postgres { "must be kept" } else { "only the retention duty" };
    let tagged = |mut new: NewTask| {
        new.tags = [("team".to_owned(), "x".to_owned())].into();
        new
    };
    for world in [&world, &old] {
        // A living job, and one that is kept for ever.
        let held = world.running(tagged(job())).await;
        world.tell(&held, Some("1"), None).await.unwrap();
        let done = world.running(tagged(job())).await;
        world.tell(&done, Some("1"), None).await.unwrap();
        world.finish(&done, complete()).await.unwrap();
    }
    // An inference that has just ended.
    let held = world.running(tagged(inference())).await;
    world.tell(&held, Some("1"), None).await.unwrap();
    world.finish(&held, complete()).await.unwrap();
    for world in [&world, &old] {
        let attempts =
            tables.map(|table| (Attempt::new(format!("DELETE FROM {table}")).after(open), words));
        all_refused(world, &attempts);
    }
    if dialect == Dialect::Postgres {
        what_the_gate_was_told_is_held_to(&world, &old, held.task.id, &tables);
    }
    // Years after an inference ended the duty would remove it, in this order.
    let held = old.running(tagged(inference())).await;
    old.finish(&held, complete()).await.unwrap();
    old.submit(job()).await;
    let id = held.task.id;
    let of = |table: &str| {
        let key =
            if table.ends_with("spec") || table.ends_with("state") { "id" } else { "task_id" };
        format!("DELETE FROM {table} WHERE {key} = '{id}'")
    };
    let mut before = vec![open.to_owned()];
    before.extend(tables[..4].iter().map(|table| of(table)));
    let look = format!("SELECT 'left', count(*) FROM task_history WHERE task_id = '{id}'");
    let seen = all_accepted(&old, &[Attempt { before, tried: of("task_spec"), look }]);
    assert!(seen[0].ends_with("left|0"), "{seen:?}");
}

/// PostgreSQL's gate is told for how long tasks are kept; what is kept for ever, or has not ended,
/// is not removed by a gate that was told of no time at all.
fn what_the_gate_was_told_is_held_to(
    world: &World,
    old: &World,
    just_ended: TaskId,
    tables: &[&str],
) {
    let open = "SELECT set_config('windlass.retention', 'on', true)";
    let keep = |ms: &str| format!("SELECT set_config('windlass.retention_keep_ms', '{ms}', true)");
    let all = |table: &&str| Attempt::new(format!("DELETE FROM {table}"));
    for world in [world, old] {
        for ms in ["0", "-1"] {
            let told = |table| (all(table).after(open).after(keep(ms)), "must be kept");
            all_refused(world, &tables.iter().map(told).collect::<Vec<_>>());
        }
        // Nothing is open by that alone.
        let told = |table| (all(table).after(keep("0")), "only the retention duty");
        all_refused(world, &tables.iter().map(told).collect::<Vec<_>>());
    }
    let one = format!("DELETE FROM task_history WHERE task_id = '{just_ended}'");
    let told = |ms| Attempt::new(one.clone()).after(open).after(keep(ms));
    all_refused(
        world,
        &[
            // An hour; nothing, which is what the profile says; and no time.
            (told("3600000"), "must be kept"),
            (told(""), "must be kept"),
            (told("soon"), "invalid input syntax"),
        ],
    );
    let look = format!("SELECT 'left', count(*) FROM task_history WHERE task_id = '{just_ended}'");
    let seen = all_accepted(world, &[told("0").look(look)]);
    assert!(seen[0].ends_with("left|0"), "{seen:?}");
}

/// SQLite's conflict clauses delete and skip rows behind the triggers' back.
#[test]
fn sqlite_replaces_and_ignores_nothing() {
    run(replaces_and_ignores_nothing, Dialect::Sqlite);
}

async fn replaces_and_ignores_nothing(dialect: Dialect) {
    let world = World::new(dialect).await;
    let keyed = task(|r| r.idempotency_key = Some("k".into()));
    let id = world.submit(keyed).await;
    let running = world.running(task(|r| r.queue = Some("r".into()))).await.task.id;
    let truth = format!("from_status = status, change_id = '{CHANGE}'");
    let attempts = conflicts(id, running, &truth);
    let attempts: Vec<_> = attempts.into_iter().map(|(sql, w)| (Attempt::new(sql), w)).collect();
    all_refused(&world, &attempts);
    // A skipped row is skipped whole, and a default that replaces a null is a change like any.
    let look = format!(
        "SELECT s.status, (SELECT count(*) FROM task_history h WHERE h.task_id = s.id)
         FROM task_state s WHERE s.id = '{running}'"
    );
    let skip = Attempt::new(format!(
        "UPDATE OR IGNORE task_state SET status = 'failed' WHERE id = '{running}'"
    ));
    let null = Attempt::new(format!(
        "UPDATE OR REPLACE task_state SET status = NULL, event = 'release', lease_id = NULL,
         claimed_by = NULL, lease_expires_at = NULL, {truth} WHERE id = '{running}'"
    ));
    let seen = all_accepted(&world, &[skip.look(look.clone()), null.look(look)]);
    assert_eq!(seen, ["running|2", "pending|3"]);
}

/// Statements that would replace or skip rows, and the words that refuse them.
fn conflicts(id: TaskId, running: TaskId, truth: &str) -> Vec<(String, &'static str)> {
    let spec = "profile, queue, payload, run_at, max_retries, submitted_by, created_at";
    let state = "profile, queue, change_id, actor, ready, order_key, run_at, max_retries,
                 created_at, entered_at, updated_at";
    let mut attempts = Vec::new();
    for or in ["OR REPLACE", "OR IGNORE", "OR FAIL", "OR ROLLBACK"] {
        let exists = "the id or idempotency key exists";
        let insert = |columns: &str, values: &str| {
            format!(
                "INSERT {or} INTO task_spec ({columns}, {spec})
                 SELECT {values}, {spec} FROM task_spec LIMIT 1"
            )
        };
        // A trigger sees each before it is tried; IGNORE changes nothing and says nothing.
        let taken = exists;
        if or != "OR IGNORE" {
            attempts.push((insert("id", &format!("'{id}'")), taken));
        }
        attempts.push((insert("rowid, id", &format!("1, '{CHANGE}'")), "rowid"));
        attempts.push((insert("id, idempotency_key", &format!("'{CHANGE}', 'k'")), exists));
        let begins = "a task begins once";
        let insert = |columns: &str, values: &str| {
            format!(
                "INSERT {or} INTO task_state ({columns}, {state})
                 SELECT {values}, {state} FROM task_state LIMIT 1"
            )
        };
        let taken = begins;
        if or != "OR IGNORE" {
            attempts.push((insert("id", &format!("'{id}'")), taken));
        }
        attempts.push((insert("rowid, id", &format!("1, '{CHANGE}'")), "rowid"));
        let never = "what was submitted never changes";
        let update = |set: &str| format!("UPDATE {or} task_state SET {set} WHERE id = '{running}'");
        attempts.push((update(&format!("id = '{id}'")), never));
        attempts.push((update(&format!("id = '{id}', {truth}")), never));
        attempts.push((update(&format!("rowid = 1, {truth}")), "rowid"));
        let history = format!(
            "INSERT {or} INTO task_history SELECT seq, task_id, change_id, from_status, to_status,
             event, 'me', reason, lease_id, metadata, at FROM task_history"
        );
        attempts.push((history, "the database writes it"));
        attempts.push((format!("UPDATE {or} task_history SET seq = 1"), "append-only"));
        attempts.push((format!("UPDATE {or} task_spec SET payload = '2'"), never));
        let progress = "(task_id, updated_at)";
        attempts.push((
            format!(
                "INSERT {or} INTO task_progress (rowid, task_id, updated_at) VALUES (1, '{id}', 1)"
            ),
            "finished or unknown",
        ));
        attempts.push((
            format!("INSERT {or} INTO task_progress {progress} VALUES ('{CHANGE}', 1)"),
            "finished or unknown",
        ));
        attempts
            .push((format!("INSERT {or} INTO task_tag VALUES ('a', 'b', 1, '{id}')"), "writes it"));
        attempts.push((
            format!(
                "INSERT {or} INTO transition VALUES (1, 'job', 'pending', 'cancel', 'claimed')"
            ),
            "changes the state machine",
        ));
        attempts
            .push((format!("INSERT {or} INTO profile VALUES ('job', 1, 1, 1)"), "the profiles"));
    }
    attempts
}

/// What only PostgreSQL has: TRUNCATE, MERGE, COPY, upserts on every table.
#[test]
fn postgres_truncates_merges_and_copies_nothing() {
    run(truncates_merges_and_copies_nothing, Dialect::Postgres);
}

async fn truncates_merges_and_copies_nothing(dialect: Dialect) {
    let world = World::new(dialect).await;
    let id = world.submit(task(|r| r.tags = Some([("k".into(), "v".into())].into()))).await;
    let tables = [
        "task_spec",
        "task_state",
        "task_tag",
        "task_history",
        "task_progress",
        "approval",
        "audit",
        "transition",
        "profile",
    ];
    let mut attempts = Vec::new();
    for table in tables {
        for how in ["", " CASCADE", " RESTART IDENTITY CASCADE"] {
            attempts.push(refused(&format!("TRUNCATE {table}{how}"), "windlass: truncate of"));
        }
    }
    attempts.push(refused("TRUNCATE task_tally, task_history", "windlass: truncate of"));
    let merge = |table: &str, key: &str, action: &str| {
        format!(
            "MERGE INTO {table} t USING (VALUES ('{id}'::uuid)) AS n (id) ON t.{key} = n.id
             WHEN MATCHED THEN {action}"
        )
    };
    attempts.extend([
        refused(&merge("task_history", "task_id", "UPDATE SET actor = 'me'"), "append-only"),
        refused(&merge("task_history", "task_id", "DELETE"), "only the retention duty"),
        refused(&merge("task_spec", "id", "UPDATE SET payload = '2'"), "never changes"),
        refused(&merge("task_state", "id", "DELETE"), "only the retention duty"),
        refused(
            &merge("task_state", "id", "UPDATE SET status = 'completed', ready = FALSE"),
            "cannot become completed",
        ),
        refused("COPY task_history FROM PROGRAM 'true'", "the database writes it"),
        refused(
            "INSERT INTO task_spec SELECT * FROM task_spec
             ON CONFLICT (id) DO UPDATE SET payload = '2'",
            "never changes",
        ),
        refused(
            "INSERT INTO task_tag SELECT * FROM task_tag ON CONFLICT DO NOTHING",
            "the database writes it",
        ),
        refused(
            "WITH gone AS (DELETE FROM task_history RETURNING *) SELECT count(*) FROM gone",
            "only the retention duty",
        ),
        refused("UPDATE task_state SET finished_at = now()", "finished_at"),
        refused("UPDATE task_state SET status = 'finished'", "invalid input value for enum"),
    ]);
    all_refused(&world, &attempts);
}
