//! Transaction poolers such as pgbouncer: what is between us and the server, and how to live there.
//!
//! A transaction pooler gives each transaction any of a few server connections. Nothing that one
//! transaction leaves in its session is there in the next one, and it may disturb a stranger. So
//! behind a pooler every transaction begins with its own settings, statements have no names, and
//! nobody listens.
//!
//! Invariant: whoever is in doubt takes the pooler's way. It works on a plain connection too, only
//! slower; the other way behind a pooler would run with a stranger's settings.
//!
//! Absent: poolers that give each statement another server connection; no transaction lives there.

use super::connect::{Connector, Durability, read_durability};
use super::error::while_connecting;
use super::lane::PROBE;
use crate::error::Result;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, SimpleQueryMessage};

/// How long a plain server may take to end the process of a connection that we closed.
pub(super) const FAREWELL_LIMIT: Duration = Duration::from_secs(3);
const FAREWELL_PAUSE: Duration = Duration::from_millis(5);

/// Every enum that a statement may return, as columns of a row of NULLs.
const ENUMS: &str = "SELECT string_agg('NULL::' || format_type(oid, NULL), ', ')
                     FROM pg_type WHERE typtype = 'e' AND pg_type_is_visible(oid)";

/// Whether a pooler is between us and the server. A process of the server that serves two open
/// connections, or that outlives its connection, is not ours alone. Leaves nothing behind.
pub(super) async fn detect(connector: &Connector) -> Result<bool> {
    let (first, first_driver) = open(connector).await?;
    let (second, second_driver) = open(connector).await?;
    let (pid, other) = (process(&first).await?, process(&second).await?);
    drop(first);
    let _ = tokio::time::timeout(FAREWELL_LIMIT, first_driver).await;
    let end = Instant::now() + FAREWELL_LIMIT;
    let mut pooled = pid == other;
    while !pooled && lives(&second, pid).await? {
        pooled = Instant::now() >= end;
        tokio::time::sleep(FAREWELL_PAUSE).await;
    }
    drop(second);
    let _ = tokio::time::timeout(FAREWELL_LIMIT, second_driver).await;
    Ok(pooled)
}

async fn open(connector: &Connector) -> Result<(Client, JoinHandle<()>)> {
    let (client, driver) = connector.raw().await?;
    Ok((client, tokio::spawn(async move { drop(driver.await) })))
}

async fn process(client: &Client) -> Result<i32> {
    let rows = client.query_typed("SELECT pg_backend_pid()", &[]).await;
    let rows = rows.map_err(|error| while_connecting(&error))?;
    Ok(rows.first().map_or(0, |row| row.get(0)))
}

async fn lives(client: &Client, pid: i32) -> Result<bool> {
    let sql = "SELECT 1 FROM pg_stat_activity WHERE pid = $1";
    let rows = client.query_typed(sql, &[(&pid, Type::INT4)]).await;
    Ok(!rows.map_err(|error| while_connecting(&error))?.is_empty())
}

/// A commit that changes nothing, with the settings of any other commit.
pub(super) fn probe(begin: &str) -> String {
    format!("{begin} {PROBE}; COMMIT")
}

/// Asks what the server promises, and teaches the driver our enums. The driver asks for a type
/// that it does not know by statements with names, and only the first time: here, inside one
/// transaction, and the names are gone before anybody else gets this server connection.
pub(super) async fn introduce(client: &Client, begin: &str, asks: &str) -> Result<Durability> {
    let failed = |error: tokio_postgres::Error| while_connecting(&error);
    let sql = format!("{begin} DEALLOCATE ALL; {asks}; {ENUMS}");
    let messages = client.simple_query(&sql).await.map_err(failed)?;
    let durability = read_durability(&messages)?;
    let enums = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) if row.len() == 1 => row.get(0),
        _ => None,
    });
    if let Some(enums) = enums {
        client.query_typed(&format!("SELECT {enums}"), &[]).await.map_err(failed)?;
    }
    client.batch_execute("DEALLOCATE ALL; COMMIT").await.map_err(failed)?;
    Ok(durability)
}
