//! Agents: what their tasks take over. The registry will add the rest.
//!
//! Invariant: a policy is read at a submit and kept with the task; nothing reads it later.

use crate::error::{Error, Result};
use crate::statement;
use crate::store::Store;
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use windlass_domain::agent::RetryPolicy;
use windlass_domain::json;
use windlass_domain::time::Timestamp;

statement!(shared PUT, "agent/put");
statement!(shared SHOW, "agent/show");
statement!(shared LIST, "agent/list");
statement!(POLICIES, "agent/policies");

/// All of the above.
pub(crate) static STATEMENTS: &[&statement::Statement] = &[&PUT, &SHOW, &LIST, &POLICIES];

/// An agent as users see it.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // Named like the columns of `agent`.
pub struct Agent {
    pub name: String,
    pub retry_policy: RetryPolicy,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The repository of agents; cheap to clone.
#[derive(Clone)]
pub struct Agents {
    store: Store,
}

impl Agents {
    /// The agents of one database.
    pub fn new(store: Store) -> Agents {
        Agents { store }
    }

    /// Writes an agent, or writes it anew.
    pub async fn put(&self, name: &str, policy: RetryPolicy) -> Result<Agent> {
        let name = name.to_owned();
        let policy = serde_json::to_value(&policy).map_err(|e| Error::Data(e.to_string()))?;
        let policy = Value::Json(json::canonical(&policy));
        let body = move |tx: &mut dyn Tx| {
            let now = tx.now()?;
            let params = vec![name.as_str().into(), policy.clone(), now.into()];
            tx.run(Call::one(&PUT, params))?.first().map(read).transpose()
        };
        let written = self.store.write("agent_put", body).await?;
        let lost = || Error::Internal { operation: "agent_put".into(), detail: "no row".into() };
        written.ok_or_else(lost)
    }

    /// One agent.
    pub async fn show(&self, name: &str) -> Result<Option<Agent>> {
        let name = name.to_owned();
        let body = move |tx: &mut dyn Tx| {
            tx.run(Call::one(&SHOW, vec![name.as_str().into()]))?.first().map(read).transpose()
        };
        self.store.read("agent_show", body).await
    }

    /// A page of agents, by name, after a name.
    pub async fn list(&self, after: &str, limit: usize) -> Result<(Vec<Agent>, Option<String>)> {
        let after = after.to_owned();
        let body = move |tx: &mut dyn Tx| {
            let params = vec![after.as_str().into(), Value::Int(limit as i64 + 1)];
            tx.run(Call::one(&LIST, params))?.iter().map(read).collect()
        };
        let mut agents: Vec<Agent> = self.store.read("agent_list", body).await?;
        let more = agents.len() > limit;
        agents.truncate(limit);
        let next = agents.last().filter(|_| more).map(|agent| agent.name.clone());
        Ok((agents, next))
    }

    /// The policies of those agents that have one.
    pub async fn policies(&self, names: Vec<String>) -> Result<Vec<(String, RetryPolicy)>> {
        let body = move |tx: &mut dyn Tx| {
            let rows = tx.run(Call::one(&POLICIES, vec![Value::TextList(names.clone())]))?;
            rows.iter().map(|row| Ok((row.text(0)?.to_owned(), policy(row)?))).collect()
        };
        self.store.read("agent_policies", body).await
    }
}

fn policy(row: &Row) -> Result<RetryPolicy> {
    let damaged = |e: serde_json::Error| Error::Corrupt(format!("a retry policy: {e}"));
    serde_json::from_value(row.json(1)?).map_err(damaged)
}

fn read(row: &Row) -> Result<Agent> {
    Ok(Agent {
        name: row.text(0)?.to_owned(),
        retry_policy: policy(row)?,
        created_at: row.time(2)?,
        updated_at: row.time(3)?,
    })
}
