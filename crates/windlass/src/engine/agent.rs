//! Agents on one node: what they give to their tasks, known for less than a second.
//!
//! Invariant: what was changed on any node is in force everywhere within a second. A task without
//! an agent asks for none.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use windlass_domain::agent::{self, AgentPatch, AgentSpec, Given, Unit};
use windlass_domain::id::TaskId;
use windlass_domain::refusal::Refusal;
use windlass_domain::request::SubmitRequest;
use windlass_domain::task::NewTask;
use windlass_domain::validate;
use windlass_store::agent::{Agent, Agents, Said, Written};
use windlass_store::venture::{Kept, Ventures};

use super::{Engine, Result};

/// How long it is believed.
const FRESH: Duration = Duration::from_millis(900);
/// How many agents are known at once; beyond that everything is forgotten and read again.
const MOST: usize = 10_000;

/// What this node knows; `None`: there is no such agent.
#[derive(Default)]
pub(super) struct Known(Mutex<HashMap<String, (Instant, Option<Given>)>>);

impl Known {
    fn get(&self, name: &str) -> Option<Option<Given>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, given) = known.get(name)?;
        (at.elapsed() < FRESH).then(|| given.clone())
    }

    fn put(&self, name: String, at: Instant, given: Option<Given>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(name, (at, given));
    }

    fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Engine {
    /// The repository of agents.
    pub fn agents(&self) -> &Agents {
        &self.inner.agents
    }

    /// The repository of ventures and portfolios.
    pub fn ventures(&self) -> &Ventures {
        &self.inner.ventures
    }

    /// Makes an agent; one that is there and says something else is left alone.
    pub async fn create_agent(&self, name: &str, spec: AgentSpec, actor: &str) -> Result<Agent> {
        spec.check(name)?;
        let written = self.inner.agents.create(name, spec, actor).await?;
        self.inner.given.forget();
        Ok(written)
    }

    /// Writes an agent as a whole. On this node it is in force at once.
    pub async fn put_agent(&self, name: &str, spec: AgentSpec, actor: &str) -> Result<Agent> {
        Ok(self.set_agent(name, Said::All(spec), actor).await?.0)
    }

    /// Changes what is said about an agent; the rest stays.
    pub async fn patch_agent(&self, name: &str, patch: AgentPatch, actor: &str) -> Result<Agent> {
        Ok(self.set_agent(name, Said::Some(patch), actor).await?.0)
    }

    /// Says something about an agent, and tells whether it was there before.
    pub async fn set_agent(&self, name: &str, said: Said, actor: &str) -> Result<(Agent, Written)> {
        match &said {
            Said::All(spec) => spec.check(name)?,
            Said::Some(patch) => patch.clone().over(AgentSpec::default()).check(name)?,
        }
        let written = self.inner.agents.set(name, said, actor).await?;
        self.inner.given.forget();
        Ok(written)
    }

    /// Takes an agent out of the company, or back into it.
    pub async fn archive_agent(&self, name: &str, archived: bool, actor: &str) -> Result<Agent> {
        Ok(self.inner.agents.archive(name, archived, actor).await?)
    }

    /// Makes a venture or a portfolio, or, unless `is_new`, says anew what it belongs to.
    pub async fn put_venture(
        &self,
        unit: Unit,
        name: &str,
        portfolio: Option<String>,
        is_new: bool,
        actor: &str,
    ) -> Result<Kept> {
        agent::check_name(name)?;
        let spec = AgentSpec { portfolio: portfolio.clone(), ..AgentSpec::default() };
        spec.check(name)?;
        let written = self.inner.ventures.put(unit, name, portfolio, is_new, actor).await?;
        self.inner.given.forget();
        Ok(written)
    }

    /// Makes sure that the agents that these requests name are known, by one read for all that are
    /// not.
    pub async fn know_agents<'a>(
        &self,
        requests: impl Iterator<Item = &'a SubmitRequest> + Send,
    ) -> Result<()> {
        let mut unknown: Vec<String> = requests
            .flat_map(|request| [&request.agent, &request.callee])
            .filter_map(Clone::clone)
            .filter(|name| self.inner.given.get(name).is_none())
            // What cannot be a name is refused soon.
            .filter(|name| name.len() <= validate::MAX_NAME_BYTES && !name.contains('\0'))
            .collect();
        unknown.sort_unstable();
        unknown.dedup();
        if unknown.is_empty() {
            return Ok(());
        }
        // Before the read: what is read is at least this new.
        let at = Instant::now();
        let found = self.inner.agents.given(unknown.clone()).await?;
        let mut found: HashMap<String, Given> = found.into_iter().collect();
        for name in unknown {
            let given = found.remove(&name);
            self.inner.given.put(name, at, given);
        }
        Ok(())
    }

    /// The task that a request asks for, with what it takes over from its agent; call
    /// [`Engine::know_agents`] first.
    pub fn new_task(
        &self,
        request: &SubmitRequest,
        id: TaskId,
        principal: &str,
        actor: &str,
    ) -> Result<NewTask, Refusal> {
        let most = self.inner.options.inference_max_body;
        let mut task = validate::new_task_within(request, id, principal, actor, most)?;
        let known = |name: &Option<String>| self.inner.given.get(name.as_deref()?).flatten();
        let (agent, callee) = (known(&request.agent), known(&request.callee));
        agent::take_over(request, &mut task, agent.as_ref(), callee.as_ref());
        Ok(task)
    }
}
