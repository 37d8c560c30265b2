//! Makes connections: settings, and the check that the server keeps what it acknowledges.
//!
//! Invariants: the check runs on every connection, because after a failover another server answers.
//! Behind a transaction pooler nothing is set for longer than a transaction.

use super::connection::{Connection, Notices};
use super::error::while_connecting;
use super::options::Options;
use super::{pooler, tls, url};
use crate::error::{Error, Result};
use crate::store::Lane;
use std::future::poll_fn;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::timeout;
use tokio_postgres::error::Severity;
use tokio_postgres::{AsyncMessage, Config, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

/// The oldest server version whose behaviour our statements rely on.
const OLDEST_VERSION: u32 = 15;

/// Asks what the server does with an acknowledged commit.
const DURABILITY: &str = "SELECT current_setting('fsync'), current_setting('full_page_writes'),
    current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
    pg_is_in_recovery()";

/// What the server does with an acknowledged commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Durability {
    /// Whether commits reach the disk at all.
    pub fsync: bool,
    /// Whether torn pages are repaired after a crash.
    pub full_page_writes: bool,
    /// As set on our connections.
    pub synchronous_commit: String,
    /// Whether a commit waits for a standby; without one a failover may lose acknowledged work.
    pub synchronous_standby: bool,
}

impl Durability {
    /// Whether an acknowledged commit survives the loss of power.
    pub fn is_synced(&self) -> bool {
        self.check().is_ok()
    }

    fn check(&self) -> Result<()> {
        let off = |name: &str| {
            Err(Error::Configuration(format!(
                "the PostgreSQL server runs with {name}: it may lose acknowledged work; change \
                 that, or allow it with --unsafe-durability"
            )))
        };
        match self.synchronous_commit.as_str() {
            _ if !self.fsync => off("fsync = off"),
            _ if !self.full_page_writes => off("full_page_writes = off"),
            weak @ ("off" | "local") => off(&format!("synchronous_commit = {weak}")),
            _ => Ok(()),
        }
    }
}

/// What drives a raw connection.
pub(super) type RawDriver = tokio_postgres::Connection<
    tokio_postgres::Socket,
    <MakeRustlsConnect as tokio_postgres::tls::MakeTlsConnect<tokio_postgres::Socket>>::Stream,
>;

/// Knows how to reach the server.
pub(super) struct Connector {
    config: Config,
    tls: MakeRustlsConnect,
    options: Options,
    /// Whether a transaction pooler is in between, once it is known.
    pooled: OnceLock<bool>,
}

impl Connector {
    pub fn new(address: &str, options: Options) -> Result<Connector> {
        let target = url::parse(address)?;
        let tls = tls::connector(target.verification, target.root.as_deref())?;
        let mut config = target.config;
        config.connect_timeout(options.connect_timeout);
        // A peer that vanished without a word is noticed by the kernel within about 25 seconds.
        config.keepalives_idle(Duration::from_secs(10));
        config.keepalives_interval(Duration::from_secs(5));
        config.keepalives_retries(3);
        config.tcp_user_timeout(Duration::from_secs(25));
        let pooled = target.pooled.map_or_else(OnceLock::new, OnceLock::from);
        Ok(Connector { config, tls, options, pooled })
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    pub fn tls(&self) -> MakeRustlsConnect {
        self.tls.clone()
    }

    /// Whether a transaction pooler is in between.
    pub fn is_pooled(&self) -> bool {
        self.pooled.get().copied().unwrap_or(false)
    }

    /// Finds out whether a transaction pooler is in between, unless the URL says it.
    pub async fn find_pooler(&self) -> Result<()> {
        if self.pooled.get().is_none() {
            let limit = self.options.connect_timeout * 2 + pooler::FAREWELL_LIMIT;
            let silent = || Error::Unavailable(format!("no answer within {limit:?}"));
            let found = timeout(limit, pooler::detect(self)).await.map_err(|_| silent())??;
            self.pooled.get_or_init(|| found);
        }
        Ok(())
    }

    /// One attempt; the connection is driven by the current runtime.
    pub async fn connect(&self, lane: Lane) -> Result<(Connection, Durability)> {
        let limit = self.options.connect_timeout;
        match timeout(limit, self.connect_unhurried(lane)).await {
            Ok(result) => result,
            Err(_) => Err(Error::Unavailable(format!("no connection within {limit:?}"))),
        }
    }

    async fn connect_unhurried(&self, lane: Lane) -> Result<(Connection, Durability)> {
        let connected = self.config.connect(self.tls.clone()).await;
        let (client, mut driver) = connected.map_err(|error| while_connecting(&error))?;
        check_version(driver.parameter("server_version").unwrap_or_default())?;
        let notices = Arc::new(Notices::default());
        let heard = Arc::clone(&notices);
        let driver = tokio::spawn(async move {
            // A notice is recorded before any later message is handed on: who sees the answer to
            // COMMIT has seen the warnings before it.
            while let Some(Ok(message)) = poll_fn(|cx| driver.poll_message(cx)).await {
                if let AsyncMessage::Notice(notice) = message
                    && matches!(notice.parsed_severity(), Some(Severity::Warning))
                {
                    heard.record(notice.message());
                }
            }
        });
        let begin = self.is_pooled().then(|| self.begin(lane));
        let durability = match &begin {
            Some(begin) => pooler::introduce(&client, begin, DURABILITY).await?,
            None => {
                let messages = client.simple_query(&self.settings(lane)).await;
                read_durability(&messages.map_err(|error| while_connecting(&error))?)?
            }
        };
        if !self.options.unsafe_durability {
            durability.check()?;
        }
        Ok((Connection::new(client, driver, notices, begin), durability))
    }

    /// A connection without settings, which the caller drives: for wake-ups.
    pub async fn raw(&self) -> Result<(tokio_postgres::Client, RawDriver)> {
        let limit = self.options.connect_timeout;
        match timeout(limit, self.config.connect(self.tls.clone())).await {
            Ok(connected) => connected.map_err(|error| while_connecting(&error)),
            Err(_) => Err(Error::Unavailable(format!("no connection within {limit:?}"))),
        }
    }

    /// The settings of a connection and the question what came of them, in one round trip.
    fn settings(&self, lane: Lane) -> String {
        let isolation = match lane {
            Lane::Read => {
                "SET default_transaction_isolation = 'repeatable read';
                 SET default_transaction_read_only = on;"
            }
            _ => "SET default_transaction_isolation = 'read committed';",
        };
        format!("{} {isolation} {DURABILITY}", self.set("SET", lane))
    }

    /// How a transaction begins behind a pooler: with its settings, which end with it.
    fn begin(&self, lane: Lane) -> String {
        let isolation = match lane {
            Lane::Read => "ISOLATION LEVEL REPEATABLE READ READ ONLY",
            _ => "ISOLATION LEVEL READ COMMITTED READ WRITE",
        };
        format!("BEGIN {isolation}; {}", self.set("SET LOCAL", lane))
    }

    fn set(&self, set: &str, lane: Lane) -> String {
        let options = &self.options;
        let mut sql = format!(
            "{set} synchronous_commit = {}; {set} statement_timeout = {}; {set} lock_timeout = {};
             {set} idle_in_transaction_session_timeout = {}; {set} jit = off;
             {set} timezone = 'UTC'; {set} client_min_messages = warning;",
            options.synchronous_commit.as_str(),
            options.statement_timeout.as_millis(),
            options.lock_timeout.as_millis(),
            options.idle_in_transaction_timeout.as_millis(),
        );
        if options.hot_planner && lane != Lane::Read {
            // A queue's statistics are always stale: the hot statements must use the partial
            // index whatever ANALYZE last saw, and need no new plan per execution.
            sql.push_str(&format!(
                "{set} enable_seqscan = off; {set} enable_bitmapscan = off;
                 {set} plan_cache_mode = force_generic_plan;"
            ));
        }
        sql
    }
}

fn check_version(version: &str) -> Result<()> {
    let digits = version.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    match digits.parse::<u32>() {
        Ok(major) if major >= OLDEST_VERSION => Ok(()),
        _ => Err(Error::Configuration(format!(
            "the PostgreSQL server has version {version}; {OLDEST_VERSION} or newer is needed"
        ))),
    }
}

pub(super) fn read_durability(messages: &[SimpleQueryMessage]) -> Result<Durability> {
    let row = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) if row.len() == 5 => Some(row),
        _ => None,
    });
    let row = row.ok_or_else(|| Error::Unavailable("the server told no settings".into()))?;
    let cell = |index: usize| row.get(index).unwrap_or_default();
    if cell(4) == "t" {
        return Err(Error::Unavailable("the server is a standby; the primary is needed".into()));
    }
    Ok(Durability {
        fsync: cell(0) == "on",
        full_page_writes: cell(1) == "on",
        synchronous_commit: cell(2).to_owned(),
        synchronous_standby: !cell(3).is_empty(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_older_than_15_is_refused() {
        assert!(check_version("15.8 (Debian 15.8-0+deb12u1)").is_ok());
        assert!(check_version("18beta1").is_ok());
        for old in ["14.12", "9.6.24", "", "devel"] {
            assert!(matches!(check_version(old), Err(Error::Configuration(_))), "{old}");
        }
    }
}
