//! When the write-ahead log is copied back into the file.
//!
//! The writer does it, after its answers are sent, so that no caller waits for it. A reader's
//! snapshot keeps the log from being reset: short overlaps are normal, a log that grows past its
//! bound because of one is logged.
//!
//! The log's file keeps its length, up to the bound: a commit that writes over what is there syncs
//! faster than one that makes a file longer.

use super::options::Options;
use super::stats::Counters;
use rusqlite::Connection;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Beyond this many times its bound the log is worth a short wait for the readers in its way.
const INSIST_AT: i64 = 8;
const INSIST_FOR: Duration = Duration::from_millis(100);
const WARN_EVERY: Duration = Duration::from_secs(60);

const LOOK: &str = "PRAGMA wal_checkpoint(NOOP)";
const PASSIVE: &str = "PRAGMA wal_checkpoint(PASSIVE)";
const TRUNCATE: &str = "PRAGMA wal_checkpoint(TRUNCATE)";

pub(super) struct Checkpointer<'a> {
    connection: &'a Connection,
    counters: &'a Counters,
    options: &'a Options,
    bound_pages: i64,
    /// Pages in the log when last seen.
    log_pages: i64,
    /// Whether all of them are in the file.
    is_copied: bool,
    /// How long the log must be for the next try.
    next_at_pages: i64,
    blocked_in_a_row: u32,
    warned: Option<Instant>,
}

impl<'a> Checkpointer<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        counters: &'a Counters,
        options: &'a Options,
    ) -> Self {
        let bound_pages = i64::from(options.checkpoint.pages.max(1));
        Checkpointer {
            connection,
            counters,
            options,
            bound_pages,
            // A log that the last server left behind is copied at the first idle moment.
            log_pages: 1,
            is_copied: false,
            next_at_pages: bound_pages,
            blocked_in_a_row: 0,
            warned: None,
        }
    }

    /// How long the writer may wait for work before it should call `when_idle`.
    pub(super) fn patience(&self) -> Option<Duration> {
        (!self.is_copied).then_some(self.options.checkpoint.idle)
    }

    /// Copies the log if it has grown long.
    pub(super) fn after_group(&mut self) -> rusqlite::Result<()> {
        let (_, log_pages, copied_pages) = self.pragma(LOOK)?;
        if log_pages < self.log_pages {
            // The log was reset since.
            self.next_at_pages = self.bound_pages;
        }
        self.saw(log_pages, copied_pages);
        if log_pages < self.next_at_pages {
            return Ok(());
        }
        if log_pages < INSIST_AT * self.bound_pages {
            return self.run(PASSIVE);
        }
        self.waiting_at_most(INSIST_FOR.min(self.options.busy_timeout), TRUNCATE)
    }

    /// Copies the log, without waiting for anybody, and makes a file that grew too long empty.
    pub(super) fn when_idle(&mut self) -> rusqlite::Result<()> {
        let is_long = self.log_pages > self.bound_pages;
        self.waiting_at_most(Duration::ZERO, if is_long { TRUNCATE } else { PASSIVE })
    }

    fn waiting_at_most(&mut self, wait: Duration, mode: &str) -> rusqlite::Result<()> {
        self.connection.busy_timeout(wait)?;
        let ran = self.run(mode);
        self.connection.busy_timeout(self.options.busy_timeout)?;
        ran
    }

    fn run(&mut self, mode: &str) -> rusqlite::Result<()> {
        let (busy, log_pages, copied_pages) = self.pragma(mode)?;
        self.saw(log_pages, copied_pages);
        self.next_at_pages = log_pages + self.bound_pages;
        if !busy && copied_pages == log_pages {
            self.blocked_in_a_row = 0;
            self.counters.checkpoints.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        self.blocked_in_a_row += 1;
        let blocked = &self.counters.blocked_checkpoints;
        blocked.fetch_add(1, Ordering::Relaxed);
        let quiet = self.warned.is_some_and(|last| last.elapsed() < WARN_EVERY);
        if self.blocked_in_a_row > 1 && !quiet {
            self.warned = Some(Instant::now());
            tracing::warn!(
                log_mib = log_pages * 4 / 1024,
                log_pages,
                copied_pages,
                "a long read keeps the write-ahead log from being reset"
            );
        }
        Ok(())
    }

    fn saw(&mut self, log_pages: i64, copied_pages: i64) {
        self.log_pages = log_pages;
        self.is_copied = copied_pages == log_pages;
        let shown = u64::try_from(log_pages).unwrap_or(0);
        self.counters.wal_pages.store(shown, Ordering::Relaxed);
    }

    /// Whether somebody was in the way, pages in the log, pages of it that are in the file.
    fn pragma(&self, mode: &str) -> rusqlite::Result<(bool, i64, i64)> {
        let mut statement = self.connection.prepare_cached(mode)?;
        statement.query_one([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
    }
}
