//! A validated new task: what `validate` makes of a request, and what the store writes.

use crate::id::TaskId;
use crate::pins::Pins;
use crate::profile::Profile;
use crate::retry::Backoff;
use crate::time::Timestamp;
use std::collections::BTreeMap;

/// An instant that a caller gave, or a span counted from the database's clock at the submit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// A given instant.
    At(Timestamp),
    /// Milliseconds after the submit.
    After(i64),
}

impl When {
    /// The instant, for a submit at `now`.
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            When::At(at) => at,
            When::After(ms) => now.plus_ms(ms),
        }
    }
}

/// A task to be written. Every field is valid, every default filled in.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // Named like the fields of the request and the columns of `task`.
pub struct NewTask {
    pub id: TaskId,
    pub profile: Profile,
    pub name: Option<String>,
    pub queue: String,
    /// Canonical JSON text.
    pub payload: String,
    pub priority: i32,
    pub tags: BTreeMap<String, String>,
    pub agent: Option<String>,
    pub venture: Option<String>,
    pub portfolio: Option<String>,
    pub stage: Option<String>,
    pub owner: Option<String>,
    pub caller: Option<String>,
    pub callee: Option<String>,
    pub pool: Option<String>,
    pub llm: Option<String>,
    pub model: Option<String>,
    pub tier: Option<String>,
    pub parent_id: Option<TaskId>,
    pub replay_of: Option<TaskId>,
    pub correlation_id: Option<String>,
    /// Never null: the caller of a delegation, else the credential's principal, else empty.
    pub idempotency_scope: String,
    pub idempotency_key: Option<String>,
    /// Hex SHA-256 of the canonical request without `id` and `idempotency_key`.
    pub request_digest: String,
    pub run_at: When,
    pub deadline: Option<When>,
    pub max_retries: i32,
    pub backoff: Option<Backoff>,
    /// Who submits, for the history.
    pub actor: String,
}

impl NewTask {
    /// What it must run on.
    pub fn pins(&self) -> Pins {
        Pins { llm: self.llm.clone(), model: self.model.clone(), tier: self.tier.clone() }
    }
}
