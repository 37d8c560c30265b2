//! Migrations: up, down and up again, many nodes at once, programs that are too old, crashes.

use crate::world::*;
use std::collections::BTreeSet;
use windlass_domain::profile::{PROFILES, Profile};
use windlass_domain::state::{Event, State};
use windlass_domain::transition::TRANSITIONS;
use windlass_store::error::Error;
use windlass_store::migration;
use windlass_store::statement::Dialect;
use windlass_store::store::Store;

conformance!(
    up_down_and_up_again_gives_the_committed_schema,
    of_many_nodes_one_migrates_and_all_succeed,
    an_empty_database_says_to_migrate,
    a_newer_schema_is_served_unless_it_is_breaking_and_never_migrated,
    a_migration_that_was_changed_is_refused,
    a_migration_that_fails_half_way_leaves_nothing,
    the_database_knows_the_machine_of_the_domain,
);

/// Every object of the schema, one after the other, in a fixed order.
fn schema(world: &World) -> String {
    let sql = match world.dialect() {
        Dialect::Sqlite => {
            "SELECT type || ' ' || name || char(10) || coalesce(sql, '(made by SQLite)') || char(10)
             FROM sqlite_master ORDER BY type, name"
        }
        Dialect::Postgres => include_str!("../schema/postgres.query.sql"),
    };
    world.by_hand(sql).unwrap() + "\n"
}

async fn up_down_and_up_again_gives_the_committed_schema(dialect: Dialect) {
    let world = World::new(dialect).await;
    let name = if dialect == Dialect::Sqlite { "sqlite" } else { "postgres" };
    let path = format!("{}/tests/schema/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let first = schema(&world);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &first).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    assert!(
        first == committed,
        "{path} is not what the migrations make; with UPDATE_DOCS=1 this test rewrites it"
    );
    world.submit(job()).await;
    let count = migration::MIGRATIONS.len();
    assert_eq!(migration::down(&world.store, 0).await.unwrap().len(), count);
    let left = schema(&world);
    let objects: Vec<_> =
        left.lines().filter(|l| l.contains("task") || l.contains("windlass")).collect();
    assert!(objects.is_empty(), "{objects:?}");
    let status = migration::status(&world.store).await.unwrap();
    assert_eq!((status.applied.len(), status.missing.len()), (0, count));
    assert_eq!(migration::up(&world.store).await.unwrap().len(), count);
    assert!(schema(&world) == first, "the second way up leads elsewhere");
    assert!(migration::up(&world.store).await.unwrap().is_empty());
    migration::require_current(&world.store).await.unwrap();
    world.submit(job()).await;
    assert_eq!(world.claim("w1", 10).await.len(), 1);
}

async fn of_many_nodes_one_migrates_and_all_succeed(dialect: Dialect) {
    let world = World::empty(dialect);
    // SQLite has one server a file; its nodes are the tasks of one process.
    let stores: Vec<Store> = (0..8)
        .map(|_| match dialect {
            Dialect::Sqlite => world.store.clone(),
            Dialect::Postgres => world.place.open(None),
        })
        .collect();
    let runs: Vec<_> = stores
        .iter()
        .map(|store| {
            let store = store.clone();
            tokio::spawn(async move {
                let done = migration::up(&store).await;
                migration::require_current(&store).await.map(|()| done)
            })
        })
        .collect();
    let mut applied = 0;
    for run in runs {
        applied += run.await.unwrap().unwrap().unwrap().len();
    }
    assert_eq!(applied, migration::MIGRATIONS.len());
    if dialect == Dialect::Postgres {
        stores.iter().for_each(Store::close);
    }
}

async fn an_empty_database_says_to_migrate(dialect: Dialect) {
    let world = World::empty(dialect);
    let said = migration::require_current(&world.store).await.unwrap_err();
    assert!(matches!(said, Error::OlderSchema { found: 0, .. }), "{said:?}");
    assert!(said.to_string().contains("windlass migrate up"), "{said}");
}

async fn a_newer_schema_is_served_unless_it_is_breaking_and_never_migrated(dialect: Dialect) {
    let world = World::new(dialect).await;
    let now = crate::refusal::instant(dialect, NOON);
    let insert = |version: i64, breaking: &str| {
        let sql = format!(
            "INSERT INTO schema_version (version, name, breaking, checksum, applied_at)
             VALUES ({version}, 'future', {breaking}, 'x', {now})"
        );
        world.by_hand(&sql).unwrap();
    };
    insert(1_000, "FALSE");
    migration::require_current(&world.store).await.unwrap();
    let newer = |outcome: Result<Vec<i64>, Error>| {
        let said = outcome.unwrap_err();
        assert!(matches!(said, Error::NewerSchema { .. }), "{said:?}");
        assert!(said.to_string().contains("newer"), "{said}");
    };
    newer(migration::up(&world.store).await);
    newer(migration::down(&world.store, 0).await);
    insert(1_001, "TRUE");
    newer(migration::require_current(&world.store).await.map(|()| vec![]));
    newer(migration::up(&world.store).await);
    assert_eq!(world.by_hand("SELECT count(*) FROM task").unwrap(), "0");
}

async fn a_migration_that_was_changed_is_refused(dialect: Dialect) {
    let world = World::new(dialect).await;
    world.by_hand("UPDATE schema_version SET checksum = 'other' WHERE version = 1").unwrap();
    for said in [
        migration::require_current(&world.store).await.unwrap_err(),
        migration::up(&world.store).await.map(drop).unwrap_err(),
        migration::down(&world.store, 0).await.map(drop).unwrap_err(),
    ] {
        assert!(matches!(said, Error::Foreign(_)), "{said:?}");
        assert!(said.to_string().contains("migration 1 (task)"), "{said}");
    }
}

async fn a_migration_that_fails_half_way_leaves_nothing(dialect: Dialect) {
    let world = World::empty(dialect);
    let empty = schema(&world);
    // Something of the same name is in the way of a late statement.
    world.by_hand("CREATE TABLE approval (id int)").unwrap();
    let in_the_way = schema(&world);
    migration::up(&world.store).await.unwrap_err();
    assert_eq!(schema(&world), in_the_way);
    world.by_hand("DROP TABLE approval").unwrap();
    assert_eq!(schema(&world), empty);
    assert_eq!(migration::up(&world.store).await.unwrap()[0], 1);
}

async fn the_database_knows_the_machine_of_the_domain(dialect: Dialect) {
    let world = World::new(dialect).await;
    let rows = |sql: &str| -> BTreeSet<String> {
        world.by_hand(sql).unwrap().lines().map(str::to_owned).collect()
    };
    let mut machine = BTreeSet::new();
    for (rank, t) in TRANSITIONS.iter().enumerate() {
        let Some(from) = t.from else { continue };
        for profile in Profile::ALL.iter().filter(|p| t.tasks.includes(**p)) {
            machine.insert(format!("{rank}|{profile}|{from}|{}|{}", t.event, t.to));
        }
    }
    let sql = "SELECT rank, profile, from_status, event, to_status FROM transition";
    assert_eq!(rows(sql), machine);
    let number = |n: Option<i64>| n.map(|n| n.to_string()).unwrap_or_default();
    let profiles = PROFILES.iter().map(|r| {
        let (deadline, retention) = (number(r.deadline_ms), number(r.retention_ms));
        format!("{}|{}|{deadline}|{retention}", r.profile, r.max_retries)
    });
    let sql = "SELECT profile, max_retries, deadline_ms, retention_ms FROM profile";
    assert_eq!(rows(sql), profiles.collect());
    if dialect == Dialect::Postgres {
        let labels = |name: &str| {
            let sql = format!("SELECT unnest(enum_range(NULL::{name}))");
            world.by_hand(&sql).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(labels("task_profile"), names(Profile::ALL));
        assert_eq!(labels("task_status"), names(State::ALL));
        assert_eq!(labels("task_event"), names(Event::ALL));
    }
}

fn names<T: std::fmt::Display>(all: &[T]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

/// A backend that dies between two statements of a migration takes all of it along.
#[test]
fn a_killed_migration_leaves_nothing() {
    run(killed, Dialect::Postgres);
}

async fn killed(dialect: Dialect) {
    let world = World::empty(dialect);
    let empty = schema(&world);
    let text = include_str!("../../migrations/postgres/0001_task.up.sql");
    let half = &text[..text.find("CREATE TABLE task_state").expect("the table")];
    let script = format!("BEGIN;\n{half}\nSELECT pg_terminate_backend(pg_backend_pid());\n");
    let (_, errors) = crate::hand::run(&world, &script);
    assert!(errors.contains("terminating connection"), "{errors}");
    assert_eq!(schema(&world), empty);
    assert_eq!(migration::up(&world.store).await.unwrap()[0], 1);
}
