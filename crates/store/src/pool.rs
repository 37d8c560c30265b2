//! Pools of providers: what waits, who is there, and how fast it goes.
//!
//! Invariant: a pool is nobody's row. It is there while something waits in it, is held, was
//! finished a moment ago, or a provider that is alive names it.

use crate::error::Result;
use crate::session::{self, Routes, Session};
use crate::statement;
use crate::store::Store;
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use std::collections::BTreeMap;
use uuid::Uuid;
use windlass_domain::id::SessionId;
use windlass_domain::time::Timestamp;

statement!(shared WAITING, "pool/waiting");
statement!(shared HELD, "pool/held");
statement!(FINISHED, "pool/finished");
statement!(shared SESSIONS, "pool/sessions");

/// All of the above.
pub(crate) static STATEMENTS: &[&statement::Statement] = &[&WAITING, &HELD, &FINISHED, &SESSIONS];

/// What counts as a moment ago.
const RECENT_MS: i64 = 60_000;
/// More sessions than this are not looked at.
const MOST_SESSIONS: i64 = 10_000;

/// A pool at a glance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// How many wait.
    pub depth: i64,
    /// Since when the oldest of them waits.
    pub oldest_waiting_at: Option<Timestamp>,
    /// How many providers have in hand.
    pub running: i64,
    /// How many ended in the last minute, however.
    pub finished_last_minute: i64,
    /// How many tokens those took, as they told.
    pub tokens_last_minute: i64,
    /// The providers that are alive, oldest first.
    pub providers: Vec<Provider>,
}

impl Pool {
    /// What the providers could hold at once. One that serves other pools too counts in each.
    pub fn slots(&self) -> i64 {
        self.providers.iter().map(|provider| i64::from(provider.slots)).sum()
    }
}

/// A provider that is alive.
#[derive(Clone, Debug, PartialEq)]
pub struct Provider {
    /// Its session.
    pub session: SessionId,
    /// What it calls itself.
    pub name: String,
    /// How much it takes at once, in all its pools.
    pub slots: i32,
    /// How much of this pool it has in hand.
    pub held: i64,
    /// What it takes.
    pub routes: Routes,
    /// The node that has its stream.
    pub node: Option<Uuid>,
}

/// The repository of pools: reads.
#[derive(Clone)]
pub struct Pools {
    store: Store,
}

impl Pools {
    /// The pools of one database.
    pub fn new(store: Store) -> Pools {
        Pools { store }
    }

    /// All pools, by name.
    pub async fn list(&self) -> Result<Vec<Pool>> {
        self.store.read("pool_list", list).await
    }

    /// One pool.
    pub async fn show(&self, name: &str) -> Result<Option<Pool>> {
        Ok(self.list().await?.into_iter().find(|pool| pool.name == name))
    }
}

fn list(tx: &mut dyn Tx) -> Result<Vec<Pool>> {
    let now = tx.now()?;
    let mut pools: BTreeMap<String, Pool> = BTreeMap::new();
    for row in tx.run(Call::one(&WAITING, vec![]))? {
        let pool = pool(&mut pools, row.text(0)?);
        pool.depth = row.int(1)?;
        pool.oldest_waiting_at = row.maybe(2, Row::time)?;
    }
    for row in tx.run(Call::one(&FINISHED, vec![now.plus_ms(-RECENT_MS).into()]))? {
        let pool = pool(&mut pools, row.text(0)?);
        pool.finished_last_minute = row.int(1)?;
        pool.tokens_last_minute = row.maybe(2, Row::int)?.unwrap_or_default();
    }
    let mut held: BTreeMap<(String, String), i64> = BTreeMap::new();
    for row in tx.run(Call::one(&HELD, vec![]))? {
        let (queue, holder, count) = (row.text(0)?, row.text(1)?, row.int(2)?);
        pool(&mut pools, queue).running += count;
        held.insert((queue.to_owned(), holder.to_owned()), count);
    }
    let params = vec![now.into(), Value::Int(MOST_SESSIONS)];
    for row in tx.run(Call::one(&SESSIONS, params))? {
        let Session { id, name, routes, slots, node, .. } = session::read(&row)?;
        for queue in &routes.pools {
            let held = held.get(&(queue.clone(), id.to_string())).copied().unwrap_or_default();
            let (session, name, routes) = (id, name.clone(), routes.clone());
            let provider = Provider { session, name, slots, held, routes, node };
            pool(&mut pools, queue).providers.push(provider);
        }
    }
    Ok(pools.into_values().collect())
}

fn pool<'a>(pools: &'a mut BTreeMap<String, Pool>, name: &str) -> &'a mut Pool {
    let new = || Pool { name: name.to_owned(), ..Pool::default() };
    pools.entry(name.to_owned()).or_insert_with(new)
}
