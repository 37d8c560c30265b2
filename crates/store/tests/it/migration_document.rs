//! The documents for people with psql and sqlite3 say what happens: their blocks are run.

use crate::hand::{Attempt, all_refused, run as script};
use crate::world::*;
use windlass_domain::id::TaskId;
use windlass_domain::state::State;
use windlass_store::migration;
use windlass_store::statement::Dialect;
use windlass_store::task::{History, Position};

conformance!(looking_inside_shows_what_the_document_says);

#[test]
fn history_becomes_a_partitioned_table_in_place() {
    run(partition, Dialect::Postgres);
}

/// A fenced block: what stands behind the fence, and its text.
fn blocks(document: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = document;
    while let Some((_, after)) = rest.split_once("\n```") {
        let (marks, after) = after.split_once('\n').expect("a block");
        let (text, after) = after.split_once("\n```").expect("the end of a block");
        found.push((marks.to_owned(), text.to_owned()));
        rest = after;
    }
    found
}

async fn looking_inside_shows_what_the_document_says(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    filled(&world).await;
    let ours = if dialect == Dialect::Postgres { "postgres" } else { "sqlite" };
    let blocks = blocks(include_str!("../../../../docs/looking-inside.md"));
    let mut run = 0;
    for (at, (marks, sql)) in blocks.iter().enumerate() {
        let told = |name: &str| marks.split(' ').any(|mark| mark == name);
        if !told("sql") || !(told(ours) || told("both")) {
            continue;
        }
        run += 1;
        let expected = blocks.get(at + 1).filter(|(marks, _)| marks == "text");
        let said = match world.by_hand(sql) {
            Ok(said) if !told("refused") => said,
            Err(said) if told("refused") => said,
            other => panic!("{sql}\n{other:?}"),
        };
        if let Some((_, words)) = expected {
            assert!(said.contains(words.as_str()), "{sql}\nsaid: {said}\nnot: {words}");
        } else {
            assert!(!told("refused"), "{sql}: a refusal must be shown");
            let writes = sql.starts_with("UPDATE") || sql.starts_with("CREATE");
            assert!(writes || !said.is_empty(), "{sql}\nshows nothing");
        }
    }
    assert!(run > 10, "{run} blocks");
}

/// Some tasks in different states.
async fn filled(world: &World) -> TaskId {
    let done = world.running(job()).await;
    world.finish(&done, complete()).await.unwrap();
    let failed = world.running(task(|r| r.max_retries = Some(0))).await;
    world.finish(&failed, fail("TIMEOUT")).await.unwrap();
    let waiting = world.running(job()).await;
    let wait = windlass_domain::command::Command::Wait { lease_id: waiting.lease_id };
    assert_eq!(world.ask(waiting.task.id, wait).await.unwrap(), State::Waiting);
    world.running(job()).await;
    world.submit(task(|r| r.tags = Some([("team".into(), "x".into())].into()))).await;
    done.task.id
}

async fn partition(dialect: Dialect) {
    let world = World::with_real_clock(dialect).await;
    let done = filled(&world).await;
    let story = world.story(done).await;
    let log = log_of(&world).await;
    let file =
        |name: &str| world.by_hand(&format!("SELECT pg_relation_filenode('{name}')")).unwrap();
    let names = ["task_history", "task_history_task", "task_history_position"];
    let before = names.map(file);
    let steps = blocks(include_str!("../../../../docs/partitioning.md"));
    assert_eq!(steps.len(), 3);
    for (_, sql) in &steps {
        let (_, errors) = script(&world, sql);
        assert!(!errors.contains("ERROR"), "{errors}");
    }
    let first = names.map(|name| file(&name.replace("task_history", "task_history_first")));
    assert_eq!(first, before, "nothing was copied");
    // Again, as in a later month, changes nothing.
    assert_eq!(script(&world, &steps[2].1).1, "");
    assert_eq!(world.story(done).await, story);
    assert_eq!(log_of(&world).await, log);
    works_on(&world, log.len()).await;
    refuses_on(&world);
    assert_eq!(migration::down(&world.store, 0).await.unwrap().len(), migration::MIGRATIONS.len());
    let left = "SELECT count(*) FROM pg_class WHERE relname LIKE 'task%'";
    assert_eq!(world.by_hand(left).unwrap(), "0");
}

/// The whole log. It waits for older transactions, also those of other databases of the server.
async fn log_of(world: &World) -> Vec<(Position, History)> {
    let count = world.by_hand("SELECT count(*) FROM task_history").unwrap();
    for _ in 0..3_000 {
        let log = world.tasks.tail(Position::default(), 1_000).await.unwrap();
        if log.len().to_string() == count {
            return log;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("the log never showed all {count} transitions")
}

/// Submits, claims, failures, history and log go on.
async fn works_on(world: &World, logged: usize) {
    let running = world.running(task(|r| r.queue = Some("later".into()))).await;
    world.finish(&running, fail("TIMEOUT")).await.unwrap();
    let id = running.task.id;
    assert_eq!(world.story(id).await, ["submit:pending", "claim:running", "fail:retry"]);
    assert_eq!(world.tasks.failures(id, 0, 10).await.unwrap().len(), 1);
    let log = log_of(world).await;
    assert_eq!(log.len(), logged + 3);
    let after = world.tasks.tail(log[logged].0, 1_000).await.unwrap();
    assert_eq!(after.len(), 2);
    let failures = "SELECT count(*) FROM task_failure";
    assert_eq!(world.by_hand(failures).unwrap(), "2");
    // What is written in a later month lands in that month's partition.
    let forth = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'task_history'::regclass";
    assert_eq!(world.by_hand(forth).unwrap(), "14");
}

/// The whole and every part are as append-only as before.
fn refuses_on(world: &World) {
    let parts = "SELECT inhrelid::regclass FROM pg_inherits
                 WHERE inhparent = 'task_history'::regclass";
    let mut attempts = Vec::new();
    let parts = world.by_hand(parts).unwrap();
    for table in parts.lines().chain(["task_history"]) {
        let refused = |sql: &str| Attempt::new(sql.replace("TABLE", table));
        attempts.push((refused("DELETE FROM TABLE"), "only the retention duty"));
        attempts.push((refused("UPDATE TABLE SET actor = 'me'"), "append-only"));
        attempts.push((refused("TRUNCATE TABLE"), "append-only"));
        let insert = "INSERT INTO TABLE SELECT * FROM task_history";
        attempts.push((refused(insert), "the database writes it"));
    }
    all_refused(world, &attempts);
}
