//! Group commit: who is told what, and what is in the file then.

use crate::sqlite::{Fixture, empty, insert, sql, with_table};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use windlass_store::error::{Error, Result};
use windlass_store::sqlite::Options;
use windlass_store::statement::Statement;
use windlass_store::store::{Database, Job, Lane, Store};
use windlass_store::tx::Call;

static ROLLING_BACK: Statement = sql("INSERT OR ROLLBACK INTO item (key) VALUES ('a')");

fn told(answer: &Receiver<Result<()>>) -> Result<()> {
    answer.recv().expect("every job is told")
}

#[test]
fn jobs_that_wait_share_one_commit() {
    let store = with_table(Options::default());
    let before = store.database.stats();
    let (release, first) = store.occupy(Lane::Write);
    let answers: Vec<_> =
        (0..10).map(|n| store.submit(Lane::Write, move |tx| insert(tx, &n.to_string()))).collect();
    release.send(()).unwrap();
    told(&first).unwrap();
    answers.iter().for_each(|answer| told(answer).unwrap());
    let after = store.database.stats();
    assert_eq!(after.groups - before.groups, 1);
    assert_eq!(after.jobs - before.jobs, 11);
    assert_eq!(after.largest_group, 11);
    assert_eq!(store.keys().len(), 10);
}

#[test]
fn a_failing_job_leaves_the_others_of_its_group() {
    let store = with_table(Options::default());
    let (release, _first) = store.occupy(Lane::Write);
    let good = store.submit(Lane::Write, |tx| insert(tx, "a"));
    let bad = store.submit(Lane::Write, |tx| {
        insert(tx, "b")?;
        insert(tx, "a")
    });
    let late = store.submit(Lane::Write, |tx| insert(tx, "c"));
    release.send(()).unwrap();
    told(&good).unwrap();
    told(&late).unwrap();
    assert!(matches!(told(&bad), Err(Error::Constraint { .. })));
    assert_eq!(store.keys(), ["a", "c"]);
}

#[test]
fn a_failing_job_that_follows_only_reads_takes_nobody_along() {
    static COUNT: Statement = sql("SELECT count(*) FROM item");
    let store = with_table(Options::default());
    store.write(|tx| insert(tx, "a")).unwrap();
    let (release, first) = store.occupy(Lane::Write);
    // It writes nothing, so the next one has no savepoint: when that fails, all is undone.
    let look = store.submit(Lane::Write, |tx| tx.run(Call::one(&COUNT, vec![])).map(drop));
    let bad = store.submit(Lane::Write, |tx| {
        insert(tx, "b")?;
        insert(tx, "a")
    });
    let late = store.submit(Lane::Write, |tx| insert(tx, "c"));
    release.send(()).unwrap();
    told(&first).unwrap();
    told(&look).unwrap();
    assert!(matches!(told(&bad), Err(Error::Constraint { .. })));
    told(&late).unwrap();
    assert_eq!(store.keys(), ["a", "c"]);
}

#[test]
fn a_panicking_body_is_rolled_back_and_the_writer_lives() {
    let store = with_table(Options::default());
    let (release, _first) = store.occupy(Lane::Write);
    let good = store.submit(Lane::Write, |tx| insert(tx, "a"));
    let bad = store.submit(Lane::Write, |tx| {
        insert(tx, "b")?;
        panic!("the {}th straw", 7)
    });
    release.send(()).unwrap();
    told(&good).unwrap();
    let error = told(&bad).unwrap_err().to_string();
    assert_eq!(error, "internal error in test: panicked: the 7th straw");
    let alone = store.write(|tx| -> Result<()> {
        insert(tx, "c")?;
        panic!("again")
    });
    assert!(matches!(alone, Err(Error::Internal { .. })));
    store.write(|tx| insert(tx, "d")).unwrap();
    assert_eq!(store.keys(), ["a", "d"]);
}

#[test]
fn a_panicking_read_leaves_its_thread_alive() {
    let options = Options { readers: 1, ..Options::default() };
    let store = with_table(options);
    let bad = store.read(|_| -> Result<()> { panic!("no") });
    assert!(matches!(bad, Err(Error::Internal { .. })));
    assert!(store.keys().is_empty());
}

#[test]
fn nothing_is_acknowledged_when_commit_fails() {
    let store = empty(Options::default());
    let schema = "CREATE TABLE item (key TEXT PRIMARY KEY, note TEXT);
        CREATE TABLE child (id TEXT REFERENCES item DEFERRABLE INITIALLY DEFERRED);";
    store.write(|tx| tx.script(schema)).unwrap();
    let orphan = "INSERT INTO child VALUES ('nobody')";
    let alone = store.write(move |tx| {
        insert(tx, "lost")?;
        tx.script(orphan)
    });
    assert!(matches!(alone, Err(Error::Constraint { .. })));
    let (release, first) = store.occupy(Lane::Write);
    let good = store.submit(Lane::Write, |tx| insert(tx, "kept"));
    let bad = store.submit(Lane::Write, move |tx| tx.script(orphan));
    release.send(()).unwrap();
    told(&first).unwrap();
    told(&good).unwrap();
    assert!(matches!(told(&bad), Err(Error::Constraint { .. })));
    assert_eq!(store.keys(), ["kept"]);
}

#[test]
fn a_full_disk_is_told_and_recovered_from() {
    static FEW: Statement = sql("PRAGMA max_page_count = 12");
    static MANY: Statement = sql("PRAGMA max_page_count = 4294967294");
    let store = with_table(Options::default());
    store.write(|tx| tx.run(Call::one(&FEW, vec![]))).unwrap();
    let (release, first) = store.occupy(Lane::Write);
    let small = store.submit(Lane::Write, |tx| insert(tx, "small"));
    let large = store.submit(Lane::Write, |tx| insert(tx, &"x".repeat(100_000)));
    let late = store.submit(Lane::Write, |tx| insert(tx, "late"));
    release.send(()).unwrap();
    told(&first).unwrap();
    told(&small).unwrap();
    told(&late).unwrap();
    assert!(matches!(told(&large), Err(Error::StorageFull(_))));
    assert_eq!(store.keys(), ["late", "small"]);
    store.write(|tx| tx.run(Call::one(&MANY, vec![]))).unwrap();
    store.write(|tx| insert(tx, &"x".repeat(100_000))).unwrap();
    assert_eq!(store.keys().len(), 3);
    assert!(store.database.failure().is_none());
}

#[test]
fn a_swallowed_error_that_ended_the_transaction_is_told_all_the_same() {
    let store = with_table(Options::default());
    store.write(|tx| insert(tx, "a")).unwrap();
    let (release, first) = store.occupy(Lane::Write);
    let before = store.submit(Lane::Write, |tx| insert(tx, "b"));
    let bad = store.submit(Lane::Write, |tx| {
        insert(tx, "c")?;
        let _ = tx.run(Call::one(&ROLLING_BACK, vec![]));
        // Outside a transaction this would be committed on its own.
        assert!(insert(tx, "d").is_err());
        Ok(())
    });
    let after = store.submit(Lane::Write, |tx| insert(tx, "e"));
    release.send(()).unwrap();
    for answer in [&first, &before, &after] {
        told(answer).unwrap();
    }
    assert!(matches!(told(&bad), Err(Error::Constraint { .. })));
    assert_eq!(store.keys(), ["a", "b", "e"]);
}

#[test]
fn heartbeats_go_first_and_are_not_kept_out_by_a_full_lane() {
    let options = Options { queue_jobs: 1, ..Options::default() };
    let store = with_table(options);
    let (release, _first) = store.occupy(Lane::Write);
    let (order, seen) = channel();
    let note = |name: &'static str| {
        let order = order.clone();
        move |_: &mut dyn windlass_store::tx::Tx| {
            order.send(name).unwrap();
            Ok(())
        }
    };
    let queued = store.submit(Lane::Write, note("write"));
    let refused = store.submit(Lane::Write, note("refused"));
    let heartbeat = store.submit(Lane::Heartbeat, note("heartbeat"));
    assert!(matches!(told(&refused), Err(Error::Busy(_))));
    release.send(()).unwrap();
    told(&heartbeat).unwrap();
    told(&queued).unwrap();
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), ["heartbeat", "write"]);
}

#[test]
fn close_finishes_what_waits_and_refuses_the_rest() {
    let store = with_table(Options::default());
    let (release, first) = store.occupy(Lane::Write);
    let queued = store.submit(Lane::Write, |tx| insert(tx, "a"));
    drop(release);
    store.database.close();
    told(&first).unwrap();
    told(&queued).unwrap();
    for lane in [Lane::Write, Lane::Heartbeat, Lane::Read] {
        let late = store.submit(lane, |_| Ok(()));
        assert!(matches!(told(&late), Err(Error::Unavailable(_))));
    }
    let again = windlass_store::sqlite::open(&store.path, Options::default());
    assert!(again.is_ok(), "the lock is free");
}

#[test]
fn a_receiver_that_panics_harms_nobody() {
    let store = with_table(Options::default());
    store.database.submit(Job {
        name: "test",
        lane: Lane::Write,
        body: Box::new(|tx| insert(tx, "a")),
        done: Box::new(|_| panic!("not interested")),
    });
    store.write(|tx| insert(tx, "b")).unwrap();
    assert_eq!(store.keys(), ["a", "b"]);
}

#[test]
fn a_lock_held_by_a_foreign_tool_is_told_as_busy_to_all_who_wait() {
    // Not zero: a reader that races a writer takes the write lock for a moment, too,
    // which may be long while other tests sync.
    let busy_timeout = Duration::from_secs(1);
    let store = with_table(Options { busy_timeout, ..Options::default() });
    let tool = rusqlite::Connection::open(&store.path).unwrap();
    tool.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = store.write(|tx| insert(tx, "a"));
    assert!(matches!(refused, Err(Error::Busy(_))), "{refused:?}");
    tool.execute_batch("ROLLBACK").unwrap();
    store.write(|tx| insert(tx, "a")).unwrap();
}

#[test]
fn the_last_handle_may_be_dropped_by_the_writer_itself() {
    let Fixture { database, .. } = with_table(Options::default());
    let (dropped, seen) = channel();
    let last = Arc::clone(&database);
    let (release, gate) = channel::<()>();
    database.submit(Job {
        name: "test",
        lane: Lane::Write,
        body: Box::new(move |_| gate.recv().map_or(Ok(()), Ok)),
        done: Box::new(move |_| {
            drop(last);
            dropped.send(()).unwrap();
        }),
    });
    drop(database);
    drop(release);
    seen.recv().expect("the writer does not wait for itself");
}

#[tokio::test]
async fn the_store_returns_what_a_body_returns() {
    let fixture = with_table(Options::default());
    let store = Store::new(fixture.database.clone());
    let written = store.write("test", |tx| insert(tx, "a").map(|()| 7)).await;
    assert_eq!(written.unwrap(), 7);
    assert_eq!(store.dialect(), fixture.database.dialect());
    assert_eq!(fixture.keys(), ["a"]);
}
