//! The registry of agents.
//!
//! Invariant: nobody is above itself; a parent, a venture and a portfolio are there when an agent
//! is given them. What tasks take over is read at a submit and kept with them, and not read later.
//! Every change is in the audit, with what was there before.
//! An agent that was written by hand, past the database's checks, is read as far as it can be: what
//! nobody understands counts as not said, and never keeps anybody from the others.
//! Absent: removal. An agent is archived, and what it did stays.

use crate::audit;
use crate::error::{Error, Rejection, Result};
use crate::group::Outcome;
use crate::statement;
use crate::store::Store;
use crate::tx::{Call, Tx};
use crate::value::{Row, Value};
use crate::venture;
use serde::de::DeserializeOwned;
use serde_json::json;
use windlass_domain::agent::{
    AgentPatch, AgentSpec, Executor, Given, MAX_DEPTH, Unit, check_parent,
};
use windlass_domain::json;
use windlass_domain::page::{Order, Part};
use windlass_domain::refusal::Refusal;
use windlass_domain::time::Timestamp;
use windlass_domain::validate::Errors;

statement!(shared PUT, "agent/put");
statement!(shared ARCHIVE, "agent/archive");
statement!(shared SHOW, "agent/show");
statement!(ordered shared LIST, "agent/list");
statement!(shared LINE, "agent/line");
statement!(GIVEN, "agent/given");
statement!(shared BELOW, "agent/below");
statement!(LOCK, "agent/lock");

/// All of the above that are no lists.
pub(crate) static STATEMENTS: &[&statement::Statement] =
    &[&PUT, &ARCHIVE, &SHOW, &LINE, &BELOW, &GIVEN, &LOCK];

/// The lists, each in both orders.
pub(crate) static LISTS: &[&statement::Ordered] = &[&LIST];

/// The order of a list unless another one is asked for.
pub const ORDER: Order = Order::Ascending;

/// What users see of an agent, in the order in which it is read.
pub(crate) const COLUMNS: &str = "\
a.name, a.role, a.parent, a.venture, a.portfolio, a.queue, a.worker_type, a.executor, \
a.retry_policy, a.authority, v.portfolio, a.created_at, a.updated_at, a.archived_at";

/// An agent as users see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Agent {
    /// Its name.
    pub name: String,
    /// What people said about it.
    pub spec: AgentSpec,
    /// What its venture belongs to.
    pub venture_portfolio: Option<String>,
    /// Since when it is there.
    pub created_at: Timestamp,
    /// Since when it is as it is.
    pub updated_at: Timestamp,
    /// Since when it is gone.
    pub archived_at: Option<Timestamp>,
    /// The fields that somebody wrote by hand and nobody can read; they count as not said.
    pub unreadable: Vec<&'static str>,
}

impl Agent {
    /// What it belongs to: its venture's portfolio counts.
    pub fn portfolio(&self) -> Option<&str> {
        self.venture_portfolio.as_deref().or(self.spec.portfolio.as_deref())
    }
}

/// Which agents a list shows; what is left out lets everything through.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)] // Named like the fields of an agent.
pub struct AgentFilter {
    pub role: Option<String>,
    pub parent: Option<String>,
    pub venture: Option<String>,
    pub portfolio: Option<String>,
    /// Those that are archived, too.
    pub archived: bool,
}

/// What is said about an agent.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// All of it: what is left out is unset.
    All(AgentSpec),
    /// Some of it: the rest stays as it stands when it is written.
    Some(AgentPatch),
}

/// What a write came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// There was no such agent.
    Created,
    /// It is another one than before.
    Changed,
    /// It was like that before.
    Unchanged,
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

    /// Makes an agent. One that is there and says the same is the same; one that says something
    /// else is left alone.
    pub async fn create(&self, name: &str, spec: AgentSpec, actor: &str) -> Outcome<Agent> {
        let make = move |before: Option<&Agent>| match before {
            Some(there) if there.spec != spec || there.archived_at.is_some() => {
                Err(Refusal::AlreadyExists { what: "agent" })
            }
            _ => Ok(spec.clone()),
        };
        Ok(self.write("agent_create", name, make, actor).await?.0)
    }

    /// Writes an agent, or writes it anew.
    pub async fn put(&self, name: &str, spec: AgentSpec, actor: &str) -> Outcome<Agent> {
        Ok(self.set(name, Said::All(spec), actor).await?.0)
    }

    /// Changes what is said and leaves the rest as it stands when it is written. An agent that is
    /// not there begins with nothing else.
    pub async fn patch(&self, name: &str, patch: AgentPatch, actor: &str) -> Outcome<Agent> {
        Ok(self.set(name, Said::Some(patch), actor).await?.0)
    }

    /// Says something about an agent; what that came to.
    pub async fn set(&self, name: &str, said: Said, actor: &str) -> Outcome<(Agent, Written)> {
        let operation = match said {
            Said::All(_) => "agent_put",
            Said::Some(_) => "agent_patch",
        };
        let make = move |before: Option<&Agent>| match &said {
            Said::All(spec) => Ok(spec.clone()),
            Said::Some(patch) => {
                let before = before.map(|agent| agent.spec.clone()).unwrap_or_default();
                Ok(patch.clone().over(before))
            }
        };
        self.write(operation, name, make, actor).await
    }

    async fn write(
        &self,
        operation: &'static str,
        name: &str,
        make: impl Fn(Option<&Agent>) -> Result<AgentSpec, Refusal> + Send + 'static,
        actor: &str,
    ) -> Outcome<(Agent, Written)> {
        let (name, actor) = (name.to_owned(), actor.to_owned());
        let body = move |tx: &mut dyn Tx| {
            lock(tx)?;
            let before = find(tx, &name)?;
            let spec = match make(before.as_ref()) {
                Ok(spec) => spec,
                Err(refusal) => return Ok(Err(refusal)),
            };
            match before {
                Some(same) if same.spec == spec && same.unreadable.is_empty() => {
                    return Ok(Ok((same, Written::Unchanged)));
                }
                _ => {}
            }
            if let Err(refusal) = fits(tx, &name, before.as_ref(), &spec)? {
                return Ok(Err(refusal));
            }
            write(tx, &name, &spec)?;
            let (event, written) = match before {
                Some(_) => ("agent_changed", Written::Changed),
                None => ("agent_created", Written::Created),
            };
            let told = json!({
                "agent": name, "before": before.map(|agent| agent.spec), "after": spec,
            });
            audit::write(tx, &actor, event, &told)?;
            Ok(Ok((find(tx, &name)?.ok_or_else(|| lost(operation))?, written)))
        };
        self.store.write(operation, body).await?.map_err(Rejection::Refused)
    }

    /// Takes an agent out of the company, or back into it; nothing that it did is touched.
    pub async fn archive(&self, name: &str, archived: bool, actor: &str) -> Outcome<Agent> {
        let (name, actor) = (name.to_owned(), actor.to_owned());
        let body = move |tx: &mut dyn Tx| {
            lock(tx)?;
            let Some(agent) = find(tx, &name)? else {
                return Ok(Err(Refusal::Unknown { what: "agent" }));
            };
            if agent.archived_at.is_some() == archived {
                return Ok(Ok(agent));
            }
            let now = tx.now()?;
            let since = archived.then_some(now);
            tx.run(Call::one(&ARCHIVE, vec![name.as_str().into(), since.into(), now.into()]))?;
            let event = if archived { "agent_archived" } else { "agent_restored" };
            audit::write(tx, &actor, event, &json!({ "agent": name }))?;
            Ok(Ok(Agent { archived_at: since, updated_at: now, ..agent }))
        };
        self.store.write("agent_archive", body).await?.map_err(Rejection::Refused)
    }

    /// One agent.
    pub async fn show(&self, name: &str) -> Result<Option<Agent>> {
        let name = name.to_owned();
        self.store.read("agent_show", move |tx| find(tx, &name)).await
    }

    /// An agent and whoever is above it, itself first.
    pub async fn line(&self, name: &str) -> Result<Vec<String>> {
        let name = name.to_owned();
        self.store.read("agent_line", move |tx| line(tx, &name)).await
    }

    /// A page of agents, by name, after a name.
    pub async fn list(
        &self,
        filter: AgentFilter,
        after: &str,
        limit: usize,
    ) -> Result<(Vec<Agent>, Option<String>)> {
        let after = Some(after.to_owned()).filter(|after| !after.is_empty());
        self.page(filter, Part::new(ORDER, after, limit)).await
    }

    /// A page of agents, by name, in either order.
    pub async fn page(
        &self,
        filter: AgentFilter,
        part: Part<String>,
    ) -> Result<(Vec<Agent>, Option<String>)> {
        let (after, most) = (part.begin(), part.most());
        let statement = LIST.in_order(part.order);
        let body = move |tx: &mut dyn Tx| {
            let params = vec![
                after.as_str().into(),
                Value::Int(most),
                filter.archived.into(),
                filter.role.clone().into(),
                filter.parent.clone().into(),
                filter.venture.clone().into(),
                filter.portfolio.clone().into(),
            ];
            tx.run(Call::one(statement, params))?.iter().map(read).collect()
        };
        let agents: Vec<Agent> = self.store.read("agent_list", body).await?;
        Ok(part.cut(agents, |agent| agent.name.clone()))
    }

    /// What those agents that are there give to their tasks.
    pub async fn given(&self, names: Vec<String>) -> Result<Vec<(String, Given)>> {
        let body = move |tx: &mut dyn Tx| {
            let rows = tx.run(Call::one(&GIVEN, vec![Value::TextList(names.clone())]))?;
            rows.iter().map(|row| Ok((row.text(0)?.to_owned(), given(row)?))).collect()
        };
        self.store.read("agent_given", body).await
    }
}

/// From here to the end of the transaction nobody else changes the registry: what was looked at
/// before a write stands until it is written.
pub(crate) fn lock(tx: &mut dyn Tx) -> Result<()> {
    tx.run(Call::one(&LOCK, Vec::new())).map(drop)
}

/// One agent, in somebody's transaction.
pub(crate) fn find(tx: &mut dyn Tx, name: &str) -> Result<Option<Agent>> {
    tx.run(Call::one(&SHOW, vec![name.into()]))?.first().map(read).transpose()
}

/// An agent and whoever is above it, itself first, in somebody's transaction.
pub(crate) fn line(tx: &mut dyn Tx, name: &str) -> Result<Vec<String>> {
    let most = Value::Int(MAX_DEPTH as i64 + 1);
    let rows = tx.run(Call::one(&LINE, vec![name.into(), most]))?;
    let above = rows.iter().map(|row| Ok(row.text(0)?.to_owned()));
    std::iter::once(Ok(name.to_owned())).chain(above).collect()
}

/// How many stand below an agent, one under the other.
fn below(tx: &mut dyn Tx, name: &str) -> Result<usize> {
    let most = Value::Int(MAX_DEPTH as i64 + 1);
    let rows = tx.run(Call::one(&BELOW, vec![name.into(), most]))?;
    let deepest = rows.first().map_or(Ok(0), |row| row.int(0))?;
    Ok(usize::try_from(deepest).unwrap_or_default())
}

/// Whether what is new about an agent is there and makes no circle.
fn fits(
    tx: &mut dyn Tx,
    name: &str,
    before: Option<&Agent>,
    spec: &AgentSpec,
) -> Result<Result<(), Refusal>> {
    let mut errors = Errors::default();
    let was = before.map(|agent| &agent.spec);
    if let Some(parent) = &spec.parent
        && was.is_none_or(|was| was.parent != spec.parent)
    {
        match find(tx, parent)? {
            Some(above) if above.archived_at.is_none() => {
                let (line, below) = (line(tx, parent)?, below(tx, name)?);
                if let Err(refusal) = check_parent(name, &line, below) {
                    return Ok(Err(refusal));
                }
            }
            _ => errors.add("/parent", "not_found", absent("agent", parent)),
        }
    }
    let mut portfolio = None;
    if let Some(venture) = &spec.venture {
        let found = venture::find(tx, Unit::Venture, venture)?;
        portfolio = found.as_ref().and_then(|venture| venture.portfolio.clone());
        let is_new = was.is_none_or(|was| was.venture != spec.venture);
        if is_new && found.is_none_or(|venture| venture.archived_at.is_some()) {
            errors.add("/venture", "not_found", absent("venture", venture));
        }
    }
    if let Some(own) = &spec.portfolio
        && was.is_none_or(|was| was.portfolio != spec.portfolio)
    {
        let found = venture::find(tx, Unit::Portfolio, own)?;
        if let Some(of_venture) = portfolio.filter(|of_venture| of_venture != own) {
            let detail = format!("is not the venture's, which is `{of_venture}`; leave it out");
            errors.add("/portfolio", "conflict", detail);
        } else if found.is_none_or(|portfolio| portfolio.archived_at.is_some()) {
            errors.add("/portfolio", "not_found", absent("portfolio", own));
        }
    }
    Ok(errors.into_result())
}

pub(crate) fn absent(what: &str, name: &str) -> String {
    format!("there is no {what} `{name}`, or it is archived; create it first")
}

fn write(tx: &mut dyn Tx, name: &str, spec: &AgentSpec) -> Result<()> {
    let params = vec![
        name.into(),
        spec.role.clone().into(),
        spec.parent.clone().into(),
        spec.venture.clone().into(),
        spec.portfolio.clone().into(),
        spec.queue.clone().into(),
        spec.worker_type.clone().into(),
        spec.executor.as_ref().map(typed).transpose()?.unwrap_or(Value::Null),
        typed(&spec.retry_policy)?,
        typed(&spec.authority)?,
        tx.now()?.into(),
    ];
    tx.run(Call::one(&PUT, params)).map(drop)
}

fn typed<T: serde::Serialize>(value: &T) -> Result<Value> {
    let value = serde_json::to_value(value).map_err(|e| Error::Data(e.to_string()))?;
    Ok(Value::Json(json::canonical(&value)))
}

fn lost(operation: &str) -> Error {
    Error::Internal { operation: operation.into(), detail: "no row".into() }
}

/// What a column of an agent says, if it can be read.
pub(crate) fn kept<T: DeserializeOwned>(row: &Row, at: usize) -> Option<T> {
    let read = row.json(at).ok().and_then(|said| serde_json::from_value(said).ok());
    if read.is_none() {
        tracing::warn!(column = at, "an agent that was written by hand cannot be read in full");
    }
    read
}

fn word(row: &Row, at: usize) -> Result<Option<String>> {
    Ok(row.maybe(at, Row::text)?.map(str::to_owned))
}

fn given(row: &Row) -> Result<Given> {
    Ok(Given {
        role: word(row, 1)?,
        queue: word(row, 2)?,
        venture: word(row, 3)?,
        portfolio: word(row, 4)?,
        retry_policy: kept(row, 5).unwrap_or_default(),
    })
}

fn read(row: &Row) -> Result<Agent> {
    let executor = (!row.is_null(7)).then(|| kept::<Executor>(row, 7));
    let (retry_policy, authority) = (kept(row, 8), kept(row, 9));
    let unreadable = [
        ("executor", matches!(executor, Some(None))),
        ("retry_policy", retry_policy.is_none()),
        ("authority", authority.is_none()),
    ];
    Ok(Agent {
        name: row.text(0)?.to_owned(),
        spec: AgentSpec {
            role: word(row, 1)?,
            parent: word(row, 2)?,
            venture: word(row, 3)?,
            portfolio: word(row, 4)?,
            queue: word(row, 5)?,
            worker_type: word(row, 6)?,
            executor: executor.flatten(),
            retry_policy: retry_policy.unwrap_or_default(),
            authority: authority.unwrap_or_default(),
        },
        venture_portfolio: word(row, 10)?,
        created_at: row.time(11)?,
        updated_at: row.time(12)?,
        archived_at: row.maybe(13, Row::time)?,
        unreadable: unreadable.into_iter().filter(|(_, is)| *is).map(|(name, _)| name).collect(),
    })
}
