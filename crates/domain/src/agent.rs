//! Agents: what a task takes over from the agent that it names.
//!
//! Invariant: it is taken over at the submit and kept with the task, so that a later change of the
//! policy reroutes nothing; what the task itself says wins.
//! Absent: everything else about an agent. Its role, budget and authority come with the registry.

use crate::request::SubmitRequest;
use crate::retry::{Backoff, OnExhausted};
use crate::task::NewTask;
use crate::validate::{self, Errors, MAX_NAME_BYTES, MAX_RETRIES};
use serde::{Deserialize, Serialize};

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
    /// Whether a policy for an agent of this name can be kept.
    pub fn check(&self, name: &str) -> validate::Result<()> {
        let mut errors = Errors::default();
        errors.name("/name", name, MAX_NAME_BYTES);
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
        errors.into_result()
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
        assert!(policy().check("scout").is_ok());
        assert!(policy().check(" scout").is_err());
        assert!(RetryPolicy { max_retries: Some(101), ..policy() }.check("scout").is_err());
        let backoff = Backoff { on_exhausted: Some(OnExhausted::Failed), ..Backoff::default() };
        assert!(RetryPolicy { backoff: Some(backoff), ..policy() }.check("scout").is_err());
    }
}
