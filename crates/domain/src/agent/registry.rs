//! The registry: what people say about an agent, and which of it makes no sense.
//!
//! Invariant: nobody is above itself, however many stand between.
//! Absent: whether a parent, a venture or a portfolio is there; the store knows.

use super::RetryPolicy;
use crate::refusal::Refusal;
use crate::state::named;
use crate::validate::{Errors, MAX_DELAY_MS, MAX_NAME_BYTES, MAX_WORKER_BYTES, Result};
use serde::{Deserialize, Deserializer, Serialize};

/// The most agents above one: deeper trees are mistakes.
pub const MAX_DEPTH: usize = 64;
/// The most names in one list of grants.
pub const MAX_GRANTS: usize = 1_000;
/// The most words of a command.
pub const MAX_WORDS: usize = 100;
/// The longest word of a command, and the longest address, in bytes.
const MAX_WORD_BYTES: usize = 4_096;

named! {
    /// What agents belong to.
    Unit {
        /// An undertaking; it may belong to a portfolio.
        Venture = "venture",
        /// A collection of ventures.
        Portfolio = "portfolio",
    }
}

/// How an agent's work is carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Executor {
    /// A handler inside the program that runs the engine.
    InProcess {},
    /// Whoever opens a session on the agent's queue.
    Session {},
    /// A child process: the task as JSON on its standard input, the result on its output.
    Command {
        /// The program and its arguments.
        command: Vec<String>,
        /// After how long it is stopped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<i64>,
    },
    /// A request to an address.
    Webhook {
        /// Where.
        url: String,
        /// After how long it is given up.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<i64>,
    },
}

impl Executor {
    fn check(&self, errors: &mut Errors) {
        let timeout_ms = match self {
            Executor::InProcess {} | Executor::Session {} => None,
            Executor::Command { command, timeout_ms } => {
                check_command(command, errors);
                *timeout_ms
            }
            Executor::Webhook { url, timeout_ms } => {
                errors.name("/executor/url", url, MAX_WORD_BYTES);
                if !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
                    let detail = "must begin with http:// or https://";
                    errors.add("/executor/url", "not_allowed", detail);
                }
                *timeout_ms
            }
        };
        if let Some(ms) = timeout_ms {
            errors.range("/executor/timeout_ms", ms, 1, MAX_DELAY_MS);
        }
    }
}

fn check_command(command: &[String], errors: &mut Errors) {
    let pointer = "/executor/command";
    if command.first().is_none_or(|program| program.is_empty()) {
        errors.add(pointer, "required", "must name a program");
    } else if command.len() > MAX_WORDS {
        errors.add(pointer, "too_long", format!("may have at most {MAX_WORDS} words"));
    } else {
        for (i, word) in command.iter().enumerate() {
            errors.text(&format!("{pointer}/{i}"), word, MAX_WORD_BYTES);
        }
    }
}

/// Whom an agent may speak to beyond its own line of the hierarchy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Authority {
    /// These agents.
    pub agents: Vec<String>,
    /// All agents of these ventures.
    pub ventures: Vec<String>,
}

impl Authority {
    fn check(&self, errors: &mut Errors) {
        for (pointer, names) in
            [("/authority/agents", &self.agents), ("/authority/ventures", &self.ventures)]
        {
            if names.len() > MAX_GRANTS {
                errors.add(pointer, "too_long", format!("may have at most {MAX_GRANTS} names"));
                continue;
            }
            for (i, name) in names.iter().enumerate() {
                errors.name(&format!("{pointer}/{i}"), name, MAX_NAME_BYTES);
            }
        }
    }
}

/// What people say about an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentSpec {
    /// `ceo`, `vp`, `crew`, or whatever the company calls it.
    pub role: Option<String>,
    /// The agent above it.
    pub parent: Option<String>,
    /// What it works for; its tasks take it over.
    pub venture: Option<String>,
    /// Likewise. Of an agent with a venture that has a portfolio it is the venture's.
    pub portfolio: Option<String>,
    /// Where its tasks go unless they say otherwise.
    pub queue: Option<String>,
    /// Which kind of worker carries them out; by its role unless it is said.
    pub worker_type: Option<String>,
    /// How.
    pub executor: Option<Executor>,
    /// How its tasks are retried.
    pub retry_policy: RetryPolicy,
    /// Whom it may speak to beyond its own line.
    pub authority: Authority,
}

/// Whether this can be the name of an agent, a venture or a portfolio: it stands in addresses.
pub fn check_name(name: &str) -> Result<()> {
    let mut errors = Errors::default();
    errors.address("/name", name, MAX_NAME_BYTES);
    errors.into_result()
}

impl AgentSpec {
    /// Whether an agent of this name can be kept.
    pub fn check(&self, name: &str) -> Result<()> {
        let mut errors = Errors::default();
        errors.address("/name", name, MAX_NAME_BYTES);
        for (pointer, text) in [
            ("/role", &self.role),
            ("/parent", &self.parent),
            ("/venture", &self.venture),
            ("/portfolio", &self.portfolio),
            ("/queue", &self.queue),
        ] {
            errors.optional_name(pointer, text.as_deref());
        }
        if let Some(worker_type) = &self.worker_type {
            errors.name("/worker_type", worker_type, MAX_WORKER_BYTES);
        }
        if self.parent.as_deref() == Some(name) {
            errors.add("/parent", "cycle", "must not be the agent itself");
        }
        if let Some(executor) = &self.executor {
            executor.check(&mut errors);
        }
        self.retry_policy.findings(&mut errors);
        self.authority.check(&mut errors);
        errors.into_result()
    }

    /// Which kind of worker carries its tasks out.
    pub fn worker_type(&self) -> Option<&str> {
        self.worker_type.as_deref().or_else(|| worker_type_of(self.role.as_deref()?))
    }
}

/// Which kind of worker a role has by itself.
pub fn worker_type_of(role: &str) -> Option<&'static str> {
    match role {
        "ceo" => Some("ceo_handler"),
        "vp" => Some("vp_handler"),
        "crew" => Some("crew_executor"),
        _ => None,
    }
}

/// Whether an agent may have a parent whose line is this one: the parent first, then whoever is
/// above it. So many stand `below` the agent, one under the other, and come along.
pub fn check_parent(name: &str, line: &[String], below: usize) -> Result<(), Refusal> {
    let mut errors = Errors::default();
    if line.iter().any(|above| above == name) {
        let path = line.join(" under ");
        let detail = format!("would put the agent above itself: {path}");
        errors.add("/parent", "cycle", detail);
    } else if line.len() + below > MAX_DEPTH {
        let whom = if below == 0 { "this one" } else { "the lowest one below this one" };
        let detail = format!("would have more than {MAX_DEPTH} agents above {whom}");
        errors.add("/parent", "out_of_range", detail);
    }
    errors.into_result()
}

/// What is to change about an agent; `null` unsets.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)] // Named like the fields of `AgentSpec`.
pub struct AgentPatch {
    #[serde(deserialize_with = "given")]
    pub role: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    pub parent: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    pub venture: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    pub portfolio: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    pub queue: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    pub worker_type: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    pub executor: Option<Option<Executor>>,
    #[serde(deserialize_with = "given")]
    pub retry_policy: Option<Option<RetryPolicy>>,
    #[serde(deserialize_with = "given")]
    pub authority: Option<Option<Authority>>,
}

fn given<'de, D, T>(input: D) -> Result<Option<Option<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(input).map(Some)
}

impl AgentPatch {
    /// The agent as it is then: what is not said stays.
    pub fn over(self, before: AgentSpec) -> AgentSpec {
        AgentSpec {
            role: self.role.unwrap_or(before.role),
            parent: self.parent.unwrap_or(before.parent),
            venture: self.venture.unwrap_or(before.venture),
            portfolio: self.portfolio.unwrap_or(before.portfolio),
            queue: self.queue.unwrap_or(before.queue),
            worker_type: self.worker_type.unwrap_or(before.worker_type),
            executor: self.executor.unwrap_or(before.executor),
            retry_policy: self.retry_policy.map_or(before.retry_policy, Option::unwrap_or_default),
            authority: self.authority.map_or(before.authority, Option::unwrap_or_default),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn findings(spec: &AgentSpec) -> Vec<(String, &'static str)> {
        match spec.check("scout") {
            Err(Refusal::Invalid(errors)) => {
                errors.into_iter().map(|error| (error.pointer, error.code)).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once() {
        let spec = AgentSpec {
            role: Some(String::new()),
            parent: Some("scout".into()),
            worker_type: Some("x".repeat(101)),
            executor: Some(Executor::Webhook { url: "ftp://x".into(), timeout_ms: Some(0) }),
            authority: Authority { agents: vec![" x".into()], ventures: vec!["v".into(); 1_001] },
            retry_policy: RetryPolicy { max_retries: Some(101), ..RetryPolicy::default() },
            ..AgentSpec::default()
        };
        let wanted = [
            ("/role", "required"),
            ("/worker_type", "too_long"),
            ("/parent", "cycle"),
            ("/executor/url", "not_allowed"),
            ("/executor/timeout_ms", "out_of_range"),
            ("/retry_policy/max_retries", "out_of_range"),
            ("/authority/agents/0", "bad_character"),
            ("/authority/ventures", "too_long"),
        ];
        assert_eq!(findings(&spec), wanted.map(|(pointer, code)| (pointer.to_owned(), code)));
        let command = Executor::Command { command: vec![], timeout_ms: None };
        let spec = AgentSpec { executor: Some(command), ..AgentSpec::default() };
        assert_eq!(findings(&spec), [("/executor/command".to_owned(), "required")]);
        assert!(AgentSpec::default().check("..").is_err(), "no address can hold it");
    }

    #[test]
    fn an_executor_is_tagged_and_knows_its_settings() {
        for (text, fits) in [
            (json!({ "type": "in_process" }), true),
            (json!({ "type": "session" }), true),
            (json!({ "type": "command", "command": ["sh", "-c", "cat"] }), true),
            (json!({ "type": "webhook", "url": "https://x", "timeout_ms": 5 }), true),
            (json!({ "type": "session", "url": "https://x" }), false),
            (json!({ "type": "carrier_pigeon" }), false),
            (json!({ "type": "command" }), false),
        ] {
            let read: Result<Executor, _> = serde_json::from_value(text.clone());
            assert_eq!(read.is_ok(), fits, "{text}");
            if let Ok(executor) = read {
                assert_eq!(serde_json::to_value(executor).unwrap(), text);
            }
        }
    }

    #[test]
    fn nobody_is_above_itself() {
        let line = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert!(check_parent("crew", &line(&["vp", "ceo"]), 0).is_ok());
        assert!(check_parent("ceo", &line(&["crew", "vp", "ceo"]), 2).is_err());
        for (above, below, fits) in
            [(MAX_DEPTH, 0, true), (MAX_DEPTH + 1, 0, false), (1, MAX_DEPTH - 1, true)]
                .into_iter()
                .chain([(1, MAX_DEPTH, false), (MAX_DEPTH, 1, false)])
        {
            let above = vec!["a".to_owned(); above];
            assert_eq!(check_parent("deep", &above, below).is_ok(), fits, "{below} below");
        }
    }

    #[test]
    fn a_patch_leaves_alone_what_it_does_not_name() {
        let before = AgentSpec {
            role: Some("vp".into()),
            queue: Some("q".into()),
            authority: Authority { agents: vec!["a".into()], ..Authority::default() },
            ..AgentSpec::default()
        };
        let patch: AgentPatch =
            serde_json::from_value(json!({ "role": null, "venture": "acme" })).unwrap();
        let after = patch.over(before.clone());
        let venture = Some("acme".to_owned());
        assert_eq!(after, AgentSpec { role: None, venture, ..before.clone() });
        let patch: AgentPatch = serde_json::from_value(json!({ "authority": null })).unwrap();
        assert_eq!(patch.over(before.clone()).authority, Authority::default());
        assert_eq!(AgentPatch::default().over(before.clone()), before);
    }

    #[test]
    fn a_role_brings_its_worker_type() {
        let spec = |role: Option<&str>, worker_type: Option<&str>| AgentSpec {
            role: role.map(Into::into),
            worker_type: worker_type.map(Into::into),
            ..AgentSpec::default()
        };
        for (role, own, wanted) in [
            (Some("ceo"), None, Some("ceo_handler")),
            (Some("vp"), None, Some("vp_handler")),
            (Some("crew"), None, Some("crew_executor")),
            (Some("scribe"), None, None),
            (Some("crew"), Some("gpu"), Some("gpu")),
            (None, None, None),
        ] {
            assert_eq!(spec(role, own).worker_type(), wanted);
        }
    }
}
