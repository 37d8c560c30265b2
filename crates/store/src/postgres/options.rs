//! How to connect and how long to wait.

use crate::clock::Clock;
use crate::error::{Error, Result};
use std::time::Duration;

/// When the server answers COMMIT; each connection sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SynchronousCommit {
    /// After its disk and that of the synchronous standbys, if there are any.
    #[default]
    On,
    /// After the synchronous standbys show the change.
    RemoteApply,
    /// After the standbys' operating systems have it.
    RemoteWrite,
    /// After its own disk only: a failover may lose it. Needs `unsafe_durability`.
    Local,
    /// Before any disk: a crash loses it. Needs `unsafe_durability`.
    Off,
}

impl SynchronousCommit {
    /// The setting's name as the server spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            SynchronousCommit::On => "on",
            SynchronousCommit::RemoteApply => "remote_apply",
            SynchronousCommit::RemoteWrite => "remote_write",
            SynchronousCommit::Local => "local",
            SynchronousCommit::Off => "off",
        }
    }
}

/// Settings of an open database. `Default` is what production uses.
#[derive(Clone, Debug)]
pub struct Options {
    /// Connections (and threads) for ordinary writes.
    pub write_connections: usize,
    /// Connections for heartbeats and session renewal.
    pub heartbeat_connections: usize,
    /// Connections for reads.
    pub read_connections: usize,
    /// How many jobs may wait per lane; more are told `Busy`.
    pub queue_limit: usize,
    /// Which clock decides.
    pub clock: Clock,
    /// When the server answers COMMIT.
    pub synchronous_commit: SynchronousCommit,
    /// Run on a server that may lose acknowledged commits. For tests and throw-away data.
    pub unsafe_durability: bool,
    /// How long the server may work on one statement.
    pub statement_timeout: Duration,
    /// How long a statement may wait for a lock.
    pub lock_timeout: Duration,
    /// How long a body may think between two statements. Much shorter than `lock_timeout`: a
    /// process that stands still has its locks for so long, and again for each of its transactions
    /// that stands in line behind others, and those who wait for them get them then.
    pub idle_in_transaction_timeout: Duration,
    /// How long we wait for the server's answer. Longer than `statement_timeout`: it is for a
    /// silent network and for a COMMIT that waits for a standby, which the server never cuts off.
    pub answer_timeout: Duration,
    /// How long one attempt to connect may take.
    pub connect_timeout: Duration,
    /// How long a job waits for a connection, and a doubtful commit for its settlement.
    pub unavailable_after: Duration,
    /// Make the write and heartbeat lanes prefer indexes and generic plans.
    pub hot_planner: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            write_connections: 4,
            heartbeat_connections: 1,
            read_connections: 2,
            queue_limit: 10_000,
            clock: Clock::System,
            synchronous_commit: SynchronousCommit::On,
            unsafe_durability: false,
            statement_timeout: Duration::from_secs(30),
            lock_timeout: Duration::from_secs(10),
            idle_in_transaction_timeout: Duration::from_secs(3),
            answer_timeout: Duration::from_secs(35),
            connect_timeout: Duration::from_secs(5),
            unavailable_after: Duration::from_secs(5),
            hot_planner: true,
        }
    }
}

impl Options {
    /// Refuses settings that cannot work or that break the promise.
    pub(super) fn check(&self) -> Result<()> {
        let weak =
            matches!(self.synchronous_commit, SynchronousCommit::Local | SynchronousCommit::Off);
        if weak && !self.unsafe_durability {
            return Err(Error::Configuration(format!(
                "synchronous_commit = {} may lose acknowledged work; use `on`, or allow it with \
                 --unsafe-durability",
                self.synchronous_commit.as_str()
            )));
        }
        let lanes = [self.write_connections, self.heartbeat_connections, self.read_connections];
        if lanes.contains(&0) || self.queue_limit == 0 {
            return Err(Error::Configuration(
                "each lane needs at least one connection and room in its queue".into(),
            ));
        }
        Ok(())
    }
}
