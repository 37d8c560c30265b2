//! What may be chosen when a SQLite file is opened.

use crate::clock::Clock;
use std::time::Duration;

/// When a commit reaches the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// Every COMMIT is synced before it is acknowledged.
    #[default]
    Full,
    /// COMMIT is acknowledged before it is synced. The file stays sound, but a power loss takes
    /// acknowledged commits with it: only for data that can be made again.
    Normal,
}

/// How a SQLite file is opened. `Options::default()` is what a server wants.
#[derive(Clone, Debug)]
pub struct Options {
    /// When a commit reaches the disk.
    pub synchronous: Synchronous,
    /// How many threads run read transactions, each with a connection of its own.
    pub readers: usize,
    /// How many jobs may wait in each lane before a further one is told `Busy`.
    pub queue_jobs: usize,
    /// What tells the time.
    pub clock: Clock,
    /// When the write-ahead log is copied back into the file.
    pub checkpoint: Checkpoint,
    /// How long to wait for a lock that a foreign tool holds on the file.
    pub busy_timeout: Duration,
    /// A read that holds its snapshot longer is counted and logged.
    pub long_read: Duration,
}

/// When the write-ahead log is copied back into the file.
#[derive(Clone, Copy, Debug)]
pub struct Checkpoint {
    /// Once the log has this many pages, of 4 KiB.
    pub pages: u32,
    /// Once nothing was written for this long.
    pub idle: Duration,
}

impl Default for Checkpoint {
    fn default() -> Checkpoint {
        Checkpoint { pages: 4_000, idle: Duration::from_secs(5) }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            synchronous: Synchronous::Full,
            readers: 2,
            queue_jobs: 10_000,
            clock: Clock::System,
            checkpoint: Checkpoint::default(),
            busy_timeout: Duration::from_secs(5),
            long_read: Duration::from_secs(5),
        }
    }
}
