//! Agents: who they are, and what a task takes over from the agent that it names.
//!
//! Invariant: it is taken over at the submit and kept with the task, so that a later change of the
//! agent reroutes nothing; what the task itself says wins. Names of agents are plain ids: what was
//! done by an agent stays when the agent is gone.
//! Absent: whether an agent may speak to another; messages ask for that. Budgets and memory.

mod registry;
mod takes;

use crate::request::SubmitRequest;
use crate::retry::{Backoff, OnExhausted};
use crate::task::NewTask;
use crate::validate::{Errors, MAX_RETRIES};
pub use registry::{
    AgentPatch, AgentSpec, Authority, Executor, MAX_DEPTH, MAX_GRANTS, MAX_WORDS, Unit, check_name,
    check_parent, worker_type_of,
};
use serde::{Deserialize, Serialize};
pub use takes::{Given, take_over};

/// How the tasks of an agent are retried, unless they say otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetryPolicy {
    /// How often.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<i32>,
    /// How long to wait, and which errors are retried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// Where a task ends whose retries are used up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_exhausted: Option<OnExhausted>,
}

impl RetryPolicy {
    /// What makes no sense in it.
    fn findings(&self, errors: &mut Errors) {
        if let Some(max_retries) = self.max_retries {
            let pointer = "/retry_policy/max_retries";
            errors.range(pointer, max_retries.into(), 0, MAX_RETRIES.into());
        }
        if let Some(backoff) = &self.backoff {
            errors.backoff("/retry_policy/backoff", backoff);
            if backoff.on_exhausted.is_some() {
                let detail = "belongs beside backoff, not into it";
                errors.add("/retry_policy/backoff/on_exhausted", "conflict", detail);
            }
        }
    }

    /// Gives a task what its request left out.
    pub fn fill(&self, request: &SubmitRequest, task: &mut NewTask) {
        if let (None, Some(max_retries)) = (request.max_retries, self.max_retries) {
            task.max_retries = max_retries;
        }
        if request.backoff.is_none() {
            task.backoff = self.backoff.clone();
        }
        let own = request.backoff.as_ref().and_then(|backoff| backoff.on_exhausted);
        if let (None, Some(end)) = (own, self.on_exhausted) {
            task.backoff.get_or_insert_default().on_exhausted = Some(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::TaskId;
    use crate::validate;
    use uuid::Uuid;

    fn policy() -> RetryPolicy {
        RetryPolicy {
            max_retries: Some(7),
            backoff: Some(Backoff { base_ms: 5, ..Backoff::default() }),
            on_exhausted: Some(OnExhausted::Failed),
        }
    }

    fn filled(change: impl FnOnce(&mut SubmitRequest)) -> NewTask {
        let mut request = SubmitRequest { agent: Some("scout".into()), ..Default::default() };
        change(&mut request);
        let id = TaskId(Uuid::nil());
        let mut task = validate::new_task(&request, id, "", "tester").unwrap();
        let digest = task.request_digest.clone();
        policy().fill(&request, &mut task);
        assert_eq!(task.request_digest, digest, "the same request stays the same");
        task
    }

    #[test]
    fn a_task_takes_over_what_it_leaves_out() {
        let task = filled(|_| {});
        assert_eq!(task.max_retries, 7);
        let backoff = task.backoff.unwrap();
        assert_eq!((backoff.base_ms, backoff.on_exhausted), (5, Some(OnExhausted::Failed)));
    }

    #[test]
    fn what_the_task_says_wins() {
        let own =
            Backoff { base_ms: 9, on_exhausted: Some(OnExhausted::Poisoned), ..Backoff::default() };
        let task = filled(|r| {
            r.max_retries = Some(0);
            r.backoff = Some(own.clone());
        });
        assert_eq!((task.max_retries, task.backoff), (0, Some(own)));
        let task = filled(|r| r.backoff = Some(Backoff { base_ms: 9, ..Backoff::default() }));
        let backoff = task.backoff.unwrap();
        assert_eq!((backoff.base_ms, backoff.on_exhausted), (9, Some(OnExhausted::Failed)));
    }

    #[test]
    fn a_policy_is_within_the_bounds_of_a_task() {
        let fits = |name: &str, retry_policy: RetryPolicy| {
            AgentSpec { retry_policy, ..AgentSpec::default() }.check(name).is_ok()
        };
        assert!(fits("scout", policy()));
        assert!(!fits(" scout", policy()));
        assert!(!fits("scout", RetryPolicy { max_retries: Some(101), ..policy() }));
        let backoff = Backoff { on_exhausted: Some(OnExhausted::Failed), ..Backoff::default() };
        assert!(!fits("scout", RetryPolicy { backoff: Some(backoff), ..policy() }));
    }
}
