//! Rows as the rest of the program sees them.
//!
//! Invariant: the readers below follow the column lists of `statement.rs`, position by position.

use crate::error::Result;
use crate::value::{Row, Value};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use windlass_domain::failure::TaskError;
use windlass_domain::id::{ApprovalId, ChangeId, ClaimId, LeaseDigest, LeaseId, TaskId};
use windlass_domain::profile::Profile;
use windlass_domain::snapshot::Snapshot;
use windlass_domain::state::{Event, State};
use windlass_domain::time::Timestamp;
use windlass_domain::usage::Usage;
use windlass_domain::wait::WaitingFor;

/// A task as users see it.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // Named like the columns of `task`.
pub struct Task {
    pub id: TaskId,
    pub profile: Profile,
    pub name: Option<String>,
    pub queue: String,
    pub status: State,
    pub payload: Json,
    pub result: Option<Json>,
    pub error: Option<TaskError>,
    /// What its attempts took, as they told.
    pub usage: Option<Usage>,
    pub checkpoint: Option<Json>,
    pub progress: Option<Json>,
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
    pub idempotency_key: Option<String>,
    pub attempt: i32,
    pub retry_count: i32,
    pub max_retries: i32,
    pub release_count: i32,
    pub run_at: Timestamp,
    pub deadline_at: Option<Timestamp>,
    pub claimed_by: Option<String>,
    pub claimed_at: Option<Timestamp>,
    pub lease_expires_at: Option<Timestamp>,
    pub last_heartbeat_at: Option<Timestamp>,
    pub stream_started_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub updated_at: Timestamp,
    pub finished_at: Option<Timestamp>,
    /// How many tasks repeat it.
    pub replay_count: i64,
    /// What it waits for; told of a task that is shown by itself, not of those in a list.
    pub waiting_for: Option<WaitingFor>,
}

/// One transition of a task.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // Named like the columns of `task_history`.
pub struct History {
    pub task_id: TaskId,
    pub seq: i64,
    pub from_status: Option<State>,
    pub to_status: State,
    pub event: Event,
    pub actor: String,
    pub reason: Option<String>,
    /// A digest: a lease id is shown to its holder and to nobody else.
    pub lease_id: Option<LeaseDigest>,
    pub metadata: Option<Json>,
    pub at: Timestamp,
}

/// One failure of a task. Every one is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// What went wrong.
    pub error: TaskError,
    /// Which attempt it ended.
    pub attempt: i32,
    /// Whose attempt it was.
    pub session: Option<String>,
    /// Where in the history it stands.
    pub seq: i64,
    /// When.
    pub at: Timestamp,
}

/// Reads cells one after the other.
struct Cells<'a> {
    row: &'a Row,
    next: usize,
}

impl<'a> Cells<'a> {
    fn at(row: &'a Row, next: usize) -> Self {
        Cells { row, next }
    }

    fn take<T>(&mut self, get: impl FnOnce(&'a Row, usize) -> Result<T>) -> Result<T> {
        self.next += 1;
        get(self.row, self.next - 1)
    }

    fn maybe<T>(&mut self, get: impl FnOnce(&'a Row, usize) -> Result<T>) -> Result<Option<T>> {
        self.next += 1;
        self.row.maybe(self.next - 1, get)
    }

    fn text(&mut self) -> Result<String> {
        self.take(|r, i| r.text(i).map(str::to_owned))
    }

    fn maybe_text(&mut self) -> Result<Option<String>> {
        self.maybe(|r, i| r.text(i).map(str::to_owned))
    }

    fn maybe_time(&mut self) -> Result<Option<Timestamp>> {
        self.maybe(Row::time)
    }

    /// What somebody wrote there by hand and nobody understands is none.
    fn usage(&mut self) -> Result<Option<Usage>> {
        Ok(self.maybe(Row::json)?.as_ref().and_then(Usage::stored))
    }

    /// JSON that one of our own types was made of.
    fn maybe_typed<T: serde::de::DeserializeOwned>(&mut self) -> Result<Option<T>> {
        self.maybe(|r, i| {
            let json = r.json(i)?;
            serde_json::from_value(json)
                .map_err(|e| crate::error::Error::Corrupt(format!("column {i}: {e}")))
        })
    }
}

/// How many columns `snapshot` reads.
pub(super) const SNAPSHOT_LENGTH: usize = 30;

/// Reads `SNAPSHOT_COLUMNS`; the change that made the row comes with it.
pub(super) fn snapshot(row: &Row) -> Result<(Snapshot, ChangeId)> {
    let mut c = Cells::at(row, 0);
    let snapshot = Snapshot {
        id: TaskId(c.take(Row::uuid)?),
        profile: c.take(Row::named)?,
        queue: c.text()?,
        priority: c.take(Row::int32)?,
        backoff: c.maybe_typed()?,
        max_retries: c.take(Row::int32)?,
        status: c.take(Row::named)?,
        ready: c.take(Row::bool)?,
        order_key: c.take(Row::int)?,
        run_at: c.take(Row::time)?,
        deadline_at: c.maybe_time()?,
        attempt: c.take(Row::int32)?,
        retry_count: c.take(Row::int32)?,
        release_count: c.take(Row::int32)?,
        lease_id: c.maybe(Row::uuid)?.map(LeaseId),
        lease_expires_at: c.maybe_time()?,
        claim_id: c.maybe(Row::uuid)?.map(ClaimId),
        claimed_by: c.maybe_text()?,
        claimed_at: c.maybe_time()?,
        last_heartbeat_at: c.maybe_time()?,
        approval_id: c.maybe(Row::uuid)?.map(ApprovalId),
        result: c.maybe(|r, i| r.json(i).map(|json| windlass_domain::json::canonical(&json)))?,
        error: c.maybe_typed()?,
        usage: c.usage()?,
        created_at: c.take(Row::time)?,
        started_at: c.maybe_time()?,
        entered_at: c.take(Row::time)?,
        updated_at: c.take(Row::time)?,
        lane: c.take(Row::int)?,
    };
    let change_id = ChangeId(c.take(Row::uuid)?);
    Ok((snapshot, change_id))
}

/// Reads `TASK_COLUMNS` from position `from` on.
pub(super) fn task(row: &Row, from: usize) -> Result<Task> {
    let mut c = Cells::at(row, from);
    Ok(Task {
        id: TaskId(c.take(Row::uuid)?),
        profile: c.take(Row::named)?,
        name: c.maybe_text()?,
        queue: c.text()?,
        status: c.take(Row::named)?,
        payload: c.take(Row::json)?,
        result: c.maybe(Row::json)?,
        error: c.maybe_typed()?,
        usage: c.usage()?,
        checkpoint: c.maybe(Row::json)?,
        progress: c.maybe(Row::json)?,
        priority: c.take(Row::int32)?,
        tags: c.maybe_typed()?.unwrap_or_default(),
        agent: c.maybe_text()?,
        venture: c.maybe_text()?,
        portfolio: c.maybe_text()?,
        stage: c.maybe_text()?,
        owner: c.maybe_text()?,
        caller: c.maybe_text()?,
        callee: c.maybe_text()?,
        pool: c.maybe_text()?,
        llm: c.maybe_text()?,
        model: c.maybe_text()?,
        tier: c.maybe_text()?,
        parent_id: c.maybe(Row::uuid)?.map(TaskId),
        replay_of: c.maybe(Row::uuid)?.map(TaskId),
        correlation_id: c.maybe_text()?,
        idempotency_key: c.maybe_text()?,
        attempt: c.take(Row::int32)?,
        retry_count: c.take(Row::int32)?,
        max_retries: c.take(Row::int32)?,
        release_count: c.take(Row::int32)?,
        run_at: c.take(Row::time)?,
        deadline_at: c.maybe_time()?,
        claimed_by: c.maybe_text()?,
        claimed_at: c.maybe_time()?,
        lease_expires_at: c.maybe_time()?,
        last_heartbeat_at: c.maybe_time()?,
        stream_started_at: c.maybe_time()?,
        created_at: c.take(Row::time)?,
        started_at: c.maybe_time()?,
        updated_at: c.take(Row::time)?,
        finished_at: c.maybe_time()?,
        replay_count: c.take(Row::int)?,
        waiting_for: None,
    })
}

/// Reads `task_id, seq, from_status, to_status, event, actor, reason, lease_id, metadata, at`.
pub(super) fn history(row: &Row) -> Result<History> {
    let mut c = Cells::at(row, 0);
    Ok(History {
        task_id: TaskId(c.take(Row::uuid)?),
        seq: c.take(Row::int)?,
        from_status: c.maybe(Row::named)?,
        to_status: c.take(Row::named)?,
        event: c.take(Row::named)?,
        actor: c.text()?,
        reason: c.maybe_text()?,
        lease_id: c.maybe(Row::uuid)?.map(|id| LeaseId(id).digest()),
        metadata: c.maybe(Row::json)?,
        at: c.take(Row::time)?,
    })
}

/// Canonical JSON of one of our own types, as a parameter.
pub(super) fn typed<T: serde::Serialize>(value: &T) -> Value {
    let json = serde_json::to_value(value).unwrap_or(Json::Null);
    Value::Json(windlass_domain::json::canonical(&json))
}
