//! The floor of a message: the least SQL that writes what the product keeps of one that a waiting
//! handler takes, on a connection of its own.
//!
//! Absent: who may write to whom, who waits, limits of size and number.

use super::{all, postgres, sqlite};
use crate::Result;
use crate::load::ACTOR;
use crate::place::{self, Place};
use rusqlite::params;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio_postgres::{Client, Statement};
use uuid::Uuid;
use windlass_domain::json::canonical;

/// Where messages are written by hand.
pub enum Floor {
    Sqlite(Box<rusqlite::Connection>),
    Postgres { client: Client, send: Statement, acknowledge: Statement },
}

/// What the audit log tells of a message, as ours does.
fn told(id: Uuid) -> String {
    canonical(&serde_json::json!({ "message": id, "from": ACTOR, "to": "ceo", "type": "note" }))
}

const PAYLOAD: &str = r#"{"text":"good morning"}"#;
const DIGEST: &str = "aa17a899cfd7d3e5b983c1877649b9bbb22fbb591595508ea7910f9b09d4d156";
const HANDLER: &str = "bench-handler";

impl Floor {
    pub async fn create(place: &Place) -> Result<Floor> {
        match place {
            Place::Sqlite { .. } => {
                let file = rusqlite::Connection::open(place.floor_file())?;
                file.execute_batch(sqlite::SETTINGS)?;
                file.execute_batch(include_str!("../../sql/sqlite/message.sql"))?;
                Ok(Floor::Sqlite(Box::new(file)))
            }
            Place::Postgres { .. } => {
                let client = place::connect(&place.url()).await?;
                client.batch_execute(postgres::SETTINGS).await?;
                client.batch_execute(include_str!("../../sql/postgres/message.sql")).await?;
                let send = client.prepare(include_str!("../../sql/postgres/send.sql")).await?;
                let acknowledge = include_str!("../../sql/postgres/acknowledge.sql");
                let acknowledge = client.prepare(acknowledge).await?;
                Ok(Floor::Postgres { client, send, acknowledge })
            }
        }
    }

    /// A message that begins in its handler's hands: one transaction.
    pub async fn send(&self) -> Result<Uuid> {
        let (id, lease) = (Uuid::now_v7(), Uuid::new_v4());
        let told = told(id);
        match self {
            Floor::Sqlite(file) => {
                let (id, lease, now) = (id.to_string(), lease.to_string(), now_ms());
                file.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
                let audit = include_str!("../../sql/sqlite/audit.sql");
                file.prepare_cached(audit)?.execute(params![now, ACTOR, told, id])?;
                let send = include_str!("../../sql/sqlite/send.sql");
                file.prepare_cached(send)?
                    .execute(params![id, ACTOR, PAYLOAD, now, lease, HANDLER, DIGEST])?;
                file.prepare_cached("COMMIT")?.execute([])?;
            }
            Floor::Postgres { client, send, .. } => {
                let written = client
                    .execute(send, &[&id, &ACTOR, &PAYLOAD, &DIGEST, &lease, &HANDLER, &told])
                    .await?;
                all(written as usize, 1)?;
            }
        }
        Ok(id)
    }

    /// Its conversation is over, so that the next message can begin one.
    pub async fn acknowledge(&self, id: Uuid) -> Result<()> {
        match self {
            Floor::Sqlite(file) => {
                let text = include_str!("../../sql/sqlite/acknowledge.sql");
                all(file.prepare_cached(text)?.execute(params![id.to_string(), now_ms()])?, 1)
            }
            Floor::Postgres { client, acknowledge, .. } => {
                all(client.execute(acknowledge, &[&id]).await? as usize, 1)
            }
        }
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as i64
}
