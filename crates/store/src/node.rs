//! Nodes: which servers work on this database, and which of them does which duty.
//!
//! Invariant: nothing is true because a row here says so. A node that dies leaves rows behind
//! that expire; a duty that two nodes do at once is done twice without harm, because every sweep
//! decides each row again under its lock.

use crate::error::Result;
use crate::statement;
use crate::store::{Lane, Store};
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use serde::Serialize;
use uuid::Uuid;
use windlass_domain::time::Timestamp;

/// How long a node counts as alive after its last announcement.
pub const TTL_MS: i64 = 15_000;

statement!(shared ANNOUNCE, "node/announce");
statement!(shared LEAVE, "node/leave");
statement!(shared LIST, "node/list");
statement!(shared TAKE, "duty/take");
statement!(shared GIVE_UP, "duty/give_up");

/// All of the above.
pub(crate) static STATEMENTS: &[&statement::Statement] =
    &[&ANNOUNCE, &LEAVE, &LIST, &TAKE, &GIVE_UP];

/// A server that is alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs)] // Named like the columns of `node`.
pub struct Node {
    pub id: Uuid,
    pub url: Option<String>,
    pub version: String,
    pub started_at: Timestamp,
    pub expires_at: Timestamp,
}

/// Where a page of the list begins: after a node that started then, with this id.
pub type Cursor = (Timestamp, Uuid);

/// The repository of nodes and duties; cheap to clone.
#[derive(Clone)]
pub struct Nodes {
    store: Store,
}

impl Nodes {
    /// The nodes of one database.
    pub fn new(store: Store) -> Nodes {
        Nodes { store }
    }

    /// Says that this node is alive.
    pub async fn announce(&self, id: Uuid, url: Option<String>, version: &str) -> Result<()> {
        let version = version.to_owned();
        let body = move |tx: &mut dyn Tx| {
            let now = tx.now()?;
            let (url, version) = (Value::from(url.clone()), version.as_str().into());
            let params = vec![id.into(), url, version, now.into(), now.plus_ms(TTL_MS).into()];
            tx.run(Call::one(&ANNOUNCE, params)).map(drop)
        };
        self.store.run(Lane::Heartbeat, "node_announce", body).await
    }

    /// Takes this node off the list, and its duties, and nodes that are long gone.
    pub async fn leave(&self, id: Uuid) -> Result<()> {
        let body = move |tx: &mut dyn Tx| {
            let long_ago = tx.now()?.plus_ms(-24 * 60 * 60 * 1_000);
            tx.run(Call::one(&LEAVE, vec![id.into(), long_ago.into()]))?;
            tx.run(Call::one(&GIVE_UP, vec![id.into()])).map(drop)
        };
        self.store.run(Lane::Heartbeat, "node_leave", body).await
    }

    /// The nodes that are alive, oldest first, after a place, and where the next page begins.
    pub async fn list(
        &self,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<Node>, Option<Cursor>)> {
        let (time, id) = after.unwrap_or((Timestamp::EPOCH, Uuid::nil()));
        let body = move |tx: &mut dyn Tx| {
            let now = tx.now()?;
            let most = Value::Int(limit as i64 + 1);
            let params = vec![now.into(), time.into(), id.into(), most];
            tx.run(Call::one(&LIST, params))?.iter().map(node).collect()
        };
        let mut nodes: Vec<Node> = self.store.read("node_list", body).await?;
        let more = nodes.len() > limit;
        nodes.truncate(limit);
        let next = nodes.last().filter(|_| more).map(|node| (node.started_at, node.id));
        Ok((nodes, next))
    }

    /// Takes or keeps a duty for `ms`. `false`: another node has it.
    pub async fn take_duty(&self, name: &'static str, node: Uuid, ms: i64) -> Result<bool> {
        let body = move |tx: &mut dyn Tx| {
            let now = tx.now()?;
            let params = vec![name.into(), node.into(), now.plus_ms(ms).into(), now.into()];
            Ok(!tx.run(Call::one(&TAKE, params))?.is_empty())
        };
        self.store.run(Lane::Heartbeat, "duty_take", body).await
    }
}

fn node(row: &Row) -> Result<Node> {
    Ok(Node {
        id: row.uuid(0)?,
        url: row.maybe(1, |r, i| r.text(i).map(str::to_owned))?,
        version: row.text(2)?.to_owned(),
        started_at: row.time(3)?,
        expires_at: row.time(4)?,
    })
}
