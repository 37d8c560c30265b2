//! The floor on PostgreSQL: one prepared statement over arrays is one transaction.

use super::all;
use crate::load::{ACTOR, QUEUE, RESULT};
use crate::side::Held;
use crate::{Result, place};
use std::sync::Arc;
use tokio_postgres::{Client, Statement};
use uuid::Uuid;
use windlass_domain::task::NewTask;

/// Connections with their statements, one for each caller.
#[derive(Clone)]
pub struct Floor {
    connections: Arc<Vec<Connection>>,
}

struct Connection {
    client: Client,
    submit: Statement,
    claim: Statement,
    heartbeat: Statement,
    complete: Statement,
    hand_over: Option<Statement>,
}

/// What the store sets on its own connections.
pub(super) const SETTINGS: &str =
    "SET synchronous_commit = on; SET jit = off; SET enable_seqscan = off;
    SET enable_bitmapscan = off; SET plan_cache_mode = force_generic_plan";

/// Submit, claim and complete; with a row of history each, where that is kept.
fn texts(keeps: bool) -> [&'static str; 3] {
    if keeps {
        [
            include_str!("../../sql/postgres/submit_kept.sql"),
            include_str!("../../sql/postgres/claim_kept.sql"),
            include_str!("../../sql/postgres/complete_kept.sql"),
        ]
    } else {
        [
            include_str!("../../sql/postgres/submit.sql"),
            include_str!("../../sql/postgres/claim.sql"),
            include_str!("../../sql/postgres/complete.sql"),
        ]
    }
}

const HAND_OVER: &str = include_str!("../../sql/postgres/hand_over_kept.sql");

impl Floor {
    pub async fn open(url: &str, connections: usize, keeps: bool) -> Result<Floor> {
        let [submit, claim, complete] = texts(keeps);
        let mut opened = Vec::with_capacity(connections);
        for _ in 0..connections {
            let client = place::connect(url).await?;
            client.batch_execute(SETTINGS).await?;
            opened.push(Connection {
                submit: client.prepare(submit).await?,
                claim: client.prepare(claim).await?,
                heartbeat: client.prepare(include_str!("../../sql/postgres/heartbeat.sql")).await?,
                complete: client.prepare(complete).await?,
                hand_over: match keeps {
                    true => Some(client.prepare(HAND_OVER).await?),
                    false => None,
                },
                client,
            });
        }
        Ok(Floor { connections: Arc::new(opened) })
    }

    fn of(&self, caller: usize) -> &Connection {
        &self.connections[caller % self.connections.len()]
    }

    pub async fn submit(&self, caller: usize, tasks: &[NewTask]) -> Result<()> {
        let connection = self.of(caller);
        let ids: Vec<Uuid> = tasks.iter().map(|task| task.id.0).collect();
        let payloads: Vec<&str> = tasks.iter().map(|task| task.payload.as_str()).collect();
        let digests: Vec<&str> = tasks.iter().map(|task| task.request_digest.as_str()).collect();
        let client = &connection.client;
        let written = client
            .execute(&connection.submit, &[&ids, &payloads, &digests, &QUEUE, &ACTOR])
            .await?;
        all(written as usize, tasks.len())
    }

    /// One new task that begins in a worker's hands: what a lone submit must write at least, where
    /// history is kept.
    pub async fn hand_over(&self, task: &NewTask) -> Result<()> {
        let connection = self.of(0);
        let statement = connection.hand_over.as_ref().ok_or("this floor keeps no history")?;
        let [lease, change, claim] = [Uuid::new_v4(), Uuid::now_v7(), Uuid::now_v7()];
        let (id, payload, digest) = (task.id.0, &task.payload, &task.request_digest);
        let client = &connection.client;
        let written = client
            .execute(statement, &[&id, &payload, &digest, &QUEUE, &ACTOR, &lease, &change, &claim])
            .await?;
        all(written as usize, 2)
    }

    pub async fn claim(&self, caller: usize, max: usize) -> Result<Vec<Held>> {
        let connection = self.of(caller);
        let client = &connection.client;
        let rows = client
            .query(&connection.claim, &[&QUEUE, &(max as i64), &ACTOR, &Uuid::now_v7()])
            .await?;
        let held = rows.iter().map(|row| {
            // The payload is what a worker came for.
            std::hint::black_box(row.get::<_, String>(2));
            Held { id: row.get(0), lease: row.get(1) }
        });
        Ok(held.collect())
    }

    pub async fn heartbeat(&self, caller: usize, held: &[Held]) -> Result<()> {
        let connection = self.of(caller);
        let (ids, leases) = columns(held);
        let client = &connection.client;
        let written = client.execute(&connection.heartbeat, &[&ids, &leases]).await?;
        all(written as usize, held.len())
    }

    pub async fn complete(&self, caller: usize, held: &[Held]) -> Result<()> {
        let connection = self.of(caller);
        let (ids, leases) = columns(held);
        let results = vec![RESULT; held.len()];
        let client = &connection.client;
        let written =
            client.execute(&connection.complete, &[&ids, &leases, &results, &ACTOR]).await?;
        all(written as usize, held.len())
    }
}

fn columns(held: &[Held]) -> (Vec<Uuid>, Vec<Uuid>) {
    held.iter().map(|held| (held.id, held.lease)).unzip()
}
