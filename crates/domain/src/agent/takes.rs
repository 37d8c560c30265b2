//! What a task takes over from the agent that it names.
//!
//! A job goes to the queue of its agent: the agent's own, or else that of its role, or else the one
//! that is called like it. A delegation goes to the callee's: its own, or the one called like it.
//! Venture and portfolio are those of the agent; a delegation is its callee's unless it names
//! another agent.

use super::RetryPolicy;
use crate::profile::Kind;
use crate::request::SubmitRequest;
use crate::task::NewTask;

/// What an agent gives to its tasks.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)] // Named like the fields of an agent.
pub struct Given {
    pub role: Option<String>,
    pub queue: Option<String>,
    pub venture: Option<String>,
    /// That of the venture, if it has one.
    pub portfolio: Option<String>,
    pub retry_policy: RetryPolicy,
}

/// Gives a task what its request left out. `agent` and `callee` are those that the request names,
/// as far as anybody knows them.
pub fn take_over(
    request: &SubmitRequest,
    task: &mut NewTask,
    agent: Option<&Given>,
    callee: Option<&Given>,
) {
    if let Some(agent) = agent {
        agent.retry_policy.fill(request, task);
    }
    let queue = match task.profile.kind() {
        Kind::Job => agent.and_then(|agent| agent.queue.as_ref().or(agent.role.as_ref())),
        Kind::Delegation => callee.and_then(|callee| callee.queue.as_ref()),
        Kind::Inference => None,
    };
    if let (None, Some(queue)) = (&request.queue, queue) {
        task.queue.clone_from(queue);
    }
    let whose = if request.agent.is_some() { agent } else { callee };
    let Some(whose) = whose else { return };
    let is_elsewhere = request.venture.is_some() && request.venture != whose.venture;
    if request.venture.is_none() {
        task.venture.clone_from(&whose.venture);
    }
    // The portfolio of one venture says nothing about another.
    if request.portfolio.is_none() && !is_elsewhere {
        task.portfolio.clone_from(&whose.portfolio);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::TaskId;
    use crate::validate;
    use uuid::Uuid;

    fn given(name: &str) -> Given {
        Given {
            role: Some("crew".into()),
            queue: None,
            venture: Some(format!("{name}'s venture")),
            portfolio: Some(format!("{name}'s portfolio")),
            retry_policy: RetryPolicy::default(),
        }
    }

    fn taken(
        change: impl FnOnce(&mut SubmitRequest),
        agent: Option<&Given>,
        callee: Option<&Given>,
    ) -> [Option<String>; 3] {
        let mut request = SubmitRequest::default();
        change(&mut request);
        let id = TaskId(Uuid::nil());
        let mut task = validate::new_task(&request, id, "", "tester").unwrap();
        let digest = task.request_digest.clone();
        take_over(&request, &mut task, agent, callee);
        assert_eq!(task.request_digest, digest, "the same request stays the same");
        [Some(task.queue), task.venture, task.portfolio]
    }

    fn texts(all: [Option<&str>; 3]) -> [Option<String>; 3] {
        all.map(|text| text.map(Into::into))
    }

    #[test]
    fn a_job_goes_to_the_queue_of_its_agents_role() {
        let ask = |r: &mut SubmitRequest| r.agent = Some("a".into());
        let wanted = texts([Some("crew"), Some("a's venture"), Some("a's portfolio")]);
        assert_eq!(taken(ask, Some(&given("a")), None), wanted);
        let own = Given { queue: Some("own".into()), ..given("a") };
        assert_eq!(taken(ask, Some(&own), None)[0].as_deref(), Some("own"));
        let plain = Given { role: None, ..given("a") };
        assert_eq!(taken(ask, Some(&plain), None)[0].as_deref(), Some("a"));
        assert_eq!(taken(ask, None, None), texts([Some("a"), None, None]), "nobody knows it");
    }

    #[test]
    fn a_delegation_is_its_callees_unless_it_names_another_agent() {
        let ask = |r: &mut SubmitRequest| {
            (r.caller, r.callee) = (Some("boss".into()), Some("c".into()));
        };
        let (agent, callee) = (given("a"), given("c"));
        let wanted = texts([Some("c"), Some("c's venture"), Some("c's portfolio")]);
        assert_eq!(taken(ask, None, Some(&callee)), wanted);
        let own = Given { queue: Some("own".into()), ..given("c") };
        let with_agent = |r: &mut SubmitRequest| {
            ask(r);
            r.agent = Some("a".into());
        };
        let wanted = texts([Some("own"), Some("a's venture"), Some("a's portfolio")]);
        assert_eq!(taken(with_agent, Some(&agent), Some(&own)), wanted);
    }

    #[test]
    fn what_the_task_says_wins() {
        let own = Given { queue: Some("own".into()), ..given("a") };
        let ask = |r: &mut SubmitRequest| {
            (r.agent, r.queue) = (Some("a".into()), Some("q".into()));
            r.venture = Some("other".into());
        };
        // The agent's portfolio is not that of the other venture.
        assert_eq!(taken(ask, Some(&own), None), texts([Some("q"), Some("other"), None]));
        let ask = |r: &mut SubmitRequest| {
            r.agent = Some("a".into());
            r.portfolio = Some("p".into());
        };
        let wanted = texts([Some("own"), Some("a's venture"), Some("p")]);
        assert_eq!(taken(ask, Some(&own), None), wanted);
        let ask = |r: &mut SubmitRequest| {
            (r.pool, r.agent) = (Some("fast".into()), Some("a".into()));
        };
        let wanted = texts([Some("fast"), Some("a's venture"), Some("a's portfolio")]);
        assert_eq!(taken(ask, Some(&own), None), wanted, "a pool is its own queue");
    }
}
