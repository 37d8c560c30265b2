//! The write-ahead log: who copies it, and who keeps it from being reset.

use crate::sqlite::{Fixture, insert, with_table};
use std::fs;
use std::time::{Duration, Instant};
use windlass_store::sqlite::{Checkpoint, Options, Stats};
use windlass_store::store::Lane;

fn with_checkpoints(pages: u32, idle: Duration) -> Fixture {
    with_table(Options {
        checkpoint: Checkpoint { pages, idle },
        long_read: Duration::ZERO,
        ..Options::default()
    })
}

const NEVER: Duration = Duration::from_secs(3_600);

/// Writes some pages. The checkpoint that follows has run when the next write is answered.
fn write(store: &Fixture, name: &str) {
    let name = name.to_owned();
    store.write(move |tx| insert(tx, &format!("{name}{}", "x".repeat(40_000)))).unwrap();
    store.write(|_| Ok(())).unwrap();
}

fn log_bytes(store: &Fixture) -> u64 {
    let wal = format!("{}-wal", store.path.display());
    fs::metadata(wal).map_or(0, |found| found.len())
}

/// Waits until the counters say so: what happens when the writer is idle has no other signal.
fn wait_for(store: &Fixture, reached: impl Fn(&Stats) -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !reached(&store.database.stats()) {
        assert!(Instant::now() < until, "{:?}", store.database.stats());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn the_log_is_copied_when_it_is_long_and_then_used_again() {
    let store = with_checkpoints(20, NEVER);
    for round in 0..20 {
        write(&store, &round.to_string());
    }
    let stats = store.database.stats();
    assert!(stats.checkpoints >= 5, "{stats:?}");
    assert_eq!(stats.blocked_checkpoints, 0);
    assert!(stats.wal_pages < 60, "{stats:?}");
    assert!(log_bytes(&store) < 60 * 4_200, "{}", log_bytes(&store));
}

#[test]
fn an_idle_writer_copies_the_log_once_and_keeps_its_file() {
    let store = with_checkpoints(1_000, Duration::from_millis(1));
    write(&store, "a");
    // The counter alone would not do: the table's own pages may be copied only now.
    wait_for(&store, |_| fs::metadata(&store.path).unwrap().len() > 40_000);
    let size = log_bytes(&store);
    assert!(size > 40_000, "{size}");
    // What comes next is written over it.
    let before = store.database.stats().checkpoints;
    write(&store, "b");
    wait_for(&store, |stats| stats.checkpoints > before);
    assert_eq!(log_bytes(&store), size);
    std::thread::sleep(Duration::from_millis(20));
    let after = store.database.stats().checkpoints;
    assert!(after <= before + 3, "it copies again although nothing was written: {after}");
}

#[test]
fn an_idle_writer_makes_a_log_empty_that_grew_too_long() {
    let store = with_checkpoints(8, Duration::from_millis(1));
    let (release, reading) = store.occupy(Lane::Read);
    for round in 0..10 {
        write(&store, &round.to_string());
    }
    assert!(log_bytes(&store) > 100 * 4_096);
    release.send(()).unwrap();
    reading.recv().unwrap().unwrap();
    wait_for(&store, |stats| stats.wal_pages == 0);
    assert_eq!(log_bytes(&store), 0);
}

#[test]
fn a_held_snapshot_blocks_the_checkpoint_until_it_ends() {
    let store = with_checkpoints(8, NEVER);
    let (release, reading) = store.occupy(Lane::Read);
    for round in 0..10 {
        write(&store, &round.to_string());
    }
    let held = store.database.stats();
    assert!(held.blocked_checkpoints >= 2, "{held:?}");
    assert!(held.wal_pages >= 100, "{held:?}");
    release.send(()).unwrap();
    reading.recv().unwrap().unwrap();
    write(&store, "after");
    let free = store.database.stats();
    assert!(free.checkpoints > held.checkpoints, "{free:?}");
    assert!(free.wal_pages < 30, "{free:?}");
    assert!(log_bytes(&store) < held.wal_pages * 4_096, "the log was made short");
    assert_eq!(free.blocked_checkpoints, held.blocked_checkpoints);
    assert_eq!(free.long_reads, 1);
}

#[test]
fn closing_leaves_everything_in_the_file_itself() {
    let store = with_checkpoints(1_000, NEVER);
    write(&store, "a");
    assert!(log_bytes(&store) > 0);
    windlass_store::store::Database::close(&*store.database);
    assert_eq!(log_bytes(&store), 0);
    assert!(fs::metadata(&store.path).unwrap().len() > 40_000);
}
