//! A submit as the caller asked for it, before validation fills in what it left out.

use crate::id::TaskId;
use crate::profile::Kind;
use crate::retry::Backoff;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Who runs a delegation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A worker of the callee.
    #[default]
    Executed,
    /// The caller, elsewhere; Windlass only keeps the ledger.
    Ledger,
}

/// What a caller may say about a new task. Every field but `payload` may be left out as long as
/// something says where the task goes: `queue`, `agent`, `callee` or `pool`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)] // Named like the columns of `task`.
pub struct SubmitRequest {
    pub queue: Option<String>,
    pub payload: serde_json::Value,
    pub kind: Option<Kind>,
    pub mode: Option<Mode>,
    pub name: Option<String>,
    pub id: Option<TaskId>,
    pub idempotency_key: Option<String>,
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
    pub priority: Option<i32>,
    pub tags: Option<BTreeMap<String, String>>,
    pub run_at: Option<Timestamp>,
    pub delay_ms: Option<i64>,
    pub deadline_at: Option<Timestamp>,
    pub deadline_ms: Option<i64>,
    pub max_retries: Option<i32>,
    pub backoff: Option<Backoff>,
    pub parent_id: Option<TaskId>,
    pub correlation_id: Option<String>,
}
