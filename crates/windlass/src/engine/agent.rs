//! Agents on one node: their policies, known for less than a second.
//!
//! Invariant: a policy that was changed on any node is in force everywhere within a second. A task
//! without an agent, and one that says everything itself, asks for none.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use windlass_domain::agent::RetryPolicy;
use windlass_domain::id::TaskId;
use windlass_domain::refusal::Refusal;
use windlass_domain::request::SubmitRequest;
use windlass_domain::task::NewTask;
use windlass_domain::validate;
use windlass_store::agent::{Agent, Agents};

use super::{Engine, Result};

/// How long a policy is believed.
const FRESH: Duration = Duration::from_millis(900);
/// How many agents are known at once; beyond that everything is forgotten and read again.
const MOST: usize = 10_000;

/// What this node knows; `None`: there is no such agent.
#[derive(Default)]
pub(super) struct Known(Mutex<HashMap<String, (Instant, Option<RetryPolicy>)>>);

impl Known {
    fn get(&self, name: &str) -> Option<Option<RetryPolicy>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, policy) = known.get(name)?;
        (at.elapsed() < FRESH).then(|| policy.clone())
    }

    fn put(&self, name: String, at: Instant, policy: Option<RetryPolicy>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(name, (at, policy));
    }
}

impl Engine {
    /// The repository of agents.
    pub fn agents(&self) -> &Agents {
        &self.inner.agents
    }

    /// Writes an agent's policy. On this node it is in force at once.
    pub async fn put_agent(&self, name: &str, policy: RetryPolicy) -> Result<Agent> {
        policy.check(name)?;
        let written = self.inner.agents.put(name, policy.clone()).await?;
        self.inner.policies.put(name.to_owned(), Instant::now(), Some(policy));
        Ok(written)
    }

    /// Makes sure that the policies of the agents that these requests name are known, by one read
    /// for all that are not.
    pub async fn know_agents<'a>(
        &self,
        requests: impl Iterator<Item = &'a SubmitRequest> + Send,
    ) -> Result<()> {
        let mut unknown: Vec<String> = requests
            .filter_map(|request| request.agent.clone())
            .filter(|name| self.inner.policies.get(name).is_none())
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
        let found = self.inner.agents.policies(unknown.clone()).await?;
        let mut found: HashMap<String, RetryPolicy> = found.into_iter().collect();
        for name in unknown {
            let policy = found.remove(&name);
            self.inner.policies.put(name, at, policy);
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
        let policy = request.agent.as_deref().and_then(|name| self.inner.policies.get(name));
        if let Some(Some(policy)) = policy {
            policy.fill(request, &mut task);
        }
        Ok(task)
    }
}
