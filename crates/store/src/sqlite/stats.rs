//! Counters of a SQLite database, for metrics and tests.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a database has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Write transactions that were committed.
    pub groups: u64,
    /// Jobs in them.
    pub jobs: u64,
    /// Jobs in the largest of them.
    pub largest_group: u64,
    /// Checkpoints that copied the whole log.
    pub checkpoints: u64,
    /// Checkpoints that a reader's snapshot kept from it.
    pub blocked_checkpoints: u64,
    /// Pages in the write-ahead log when it was last looked at.
    pub wal_pages: u64,
    /// Reads that held their snapshot longer than `Options::long_read`.
    pub long_reads: u64,
}

#[derive(Default)]
pub(super) struct Counters {
    groups: AtomicU64,
    jobs: AtomicU64,
    largest_group: AtomicU64,
    pub(super) checkpoints: AtomicU64,
    pub(super) blocked_checkpoints: AtomicU64,
    pub(super) wal_pages: AtomicU64,
    pub(super) long_reads: AtomicU64,
}

impl Counters {
    pub(super) fn group(&self, jobs: usize) {
        self.groups.fetch_add(1, Ordering::Relaxed);
        self.jobs.fetch_add(jobs as u64, Ordering::Relaxed);
        self.largest_group.fetch_max(jobs as u64, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            groups: read(&self.groups),
            jobs: read(&self.jobs),
            largest_group: read(&self.largest_group),
            checkpoints: read(&self.checkpoints),
            blocked_checkpoints: read(&self.blocked_checkpoints),
            wal_pages: read(&self.wal_pages),
            long_reads: read(&self.long_reads),
        }
    }
}
