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
use windlass_domain::page::{Order, Part};
use windlass_domain::time::Timestamp;

/// How long a node counts as alive after its last announcement.
pub const TTL_MS: i64 = 15_000;

statement!(shared ANNOUNCE, "node/announce");
statement!(shared LEAVE, "node/leave");
statement!(ordered shared LIST, "node/list");
statement!(shared TAKE, "duty/take");
statement!(shared GIVE_UP, "duty/give_up");

/// All of the above that are no lists.
pub(crate) static STATEMENTS: &[&statement::Statement] = &[&ANNOUNCE, &LEAVE, &TAKE, &GIVE_UP];

/// The lists, each in both orders.
pub(crate) static LISTS: &[&statement::Ordered] = &[&LIST];

/// The order of a list unless another one is asked for.
pub const ORDER: Order = Order::Ascending;

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
        self.page(Part::new(ORDER, after, limit)).await
    }

    /// A page of the nodes that are alive, in either order.
    pub async fn page(&self, part: Part<Cursor>) -> Result<(Vec<Node>, Option<Cursor>)> {
        let ((time, id), most) = (part.begin(), part.most());
        let statement = LIST.in_order(part.order);
        let body = move |tx: &mut dyn Tx| {
            let now = tx.now()?;
            let params = vec![now.into(), time.into(), id.into(), Value::Int(most)];
            tx.run(Call::one(statement, params))?.iter().map(node).collect()
        };
        let nodes: Vec<Node> = self.store.read("node_list", body).await?;
        Ok(part.cut(nodes, |node| (node.started_at, node.id)))
    }

    /// Takes or keeps a duty for `ms`, and tells the database's time. `false`: another node has it.
    pub async fn take_duty(
        &self,
        name: &'static str,
        node: Uuid,
        ms: i64,
    ) -> Result<(bool, Timestamp)> {
        let body = move |tx: &mut dyn Tx| {
            let now = tx.now()?;
            let params = vec![name.into(), node.into(), now.plus_ms(ms).into(), now.into()];
            Ok((!tx.run(Call::one(&TAKE, params))?.is_empty(), now))
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
