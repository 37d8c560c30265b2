//! What people have stopped: work that is not handed out, or not taken in.
//!
//! Invariant: a pause changes no task. What is in a worker's hands stays there, what waits goes on
//! waiting, and what comes back to `pending` is never refused.

use super::{Key, Scope};
use crate::state::named;
use crate::validate::{self, Errors, MAX_NAME_BYTES, Result};
use serde::{Deserialize, Serialize};

named! {
    /// What is stopped.
    Mode {
        /// Nothing is handed out; submits are taken and wait.
        Pause = "pause",
        /// Nothing is taken in; what is there is handed out until nothing is left.
        Drain = "drain",
    }
}

/// What can be paused. Not all that can be limited: a portfolio is paused by its ventures, a stage
/// by its queue.
pub const PAUSABLE: [Scope; 4] = [Scope::Global, Scope::Venture, Scope::Agent, Scope::Queue];

/// A pause as an operator sets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// What kind of thing.
    pub scope: Scope,
    /// Which one; everything has no name.
    #[serde(default)]
    pub name: Option<String>,
    /// What is stopped.
    #[serde(default = "pause")]
    pub mode: Mode,
    /// Why, for those who wait.
    #[serde(default)]
    pub reason: Option<String>,
}

fn pause() -> Mode {
    Mode::Pause
}

impl Pause {
    /// Refuses a pause that makes no sense.
    pub fn validate(&self) -> Result<()> {
        check_target(self.scope, self.name.as_deref())?;
        self.reason.as_deref().map_or(Ok(()), validate::reason)
    }

    /// What it stops.
    pub fn key(&self) -> Key {
        Key { scope: self.scope, name: self.name.clone().unwrap_or_default() }
    }
}

/// Whether this can be paused.
pub fn check_target(scope: Scope, name: Option<&str>) -> Result<()> {
    let mut errors = Errors::default();
    match (scope, name) {
        _ if !PAUSABLE.contains(&scope) => {
            let detail = format!("a {scope} cannot be paused; a venture, agent or queue can");
            errors.add("/scope", "not_allowed", detail);
        }
        (Scope::Global, None) => {}
        (Scope::Global, Some(_)) => errors.add("/name", "not_allowed", "everything has no name"),
        (_, Some(name)) => errors.address("/name", name, MAX_NAME_BYTES),
        (_, None) => errors.add("/name", "required", format!("say which {scope}")),
    }
    errors.into_result()
}

/// What is submitted to drains: the submit is refused, and nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} takes no new tasks until it is resumed{}", because(reason))]
pub struct Draining {
    /// What drains.
    pub key: Key,
    /// Why.
    pub reason: Option<String>,
}

fn because(reason: &Option<String>) -> String {
    reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"))
}

impl Draining {
    /// The stable code that clients rely on; documented in docs/errors.md.
    pub const fn code(&self) -> &'static str {
        "draining"
    }
}
