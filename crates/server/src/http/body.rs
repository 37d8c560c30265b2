//! What goes out: the JSON of tasks, history, assignments, sessions.

use super::step::StepBody;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use uuid::Uuid;
use windlass::domain::failure::TaskError;
use windlass::domain::profile::Profile;
use windlass::domain::retry::Backoff;
use windlass::domain::time::Timestamp;
use windlass::domain::usage::Usage;
use windlass::domain::wait::WaitingFor;
use windlass::store::task::{Assignment, Failure, History, Task};

/// Some items, and where the next ones begin.
#[derive(Debug, Serialize, ToSchema)]
pub struct List<T> {
    /// The items.
    pub items: Vec<T>,
    /// Give it as `cursor` for the next page; null at the end.
    pub next_cursor: Option<String>,
}

/// What went wrong.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ErrorBody {
    /// Programs decide by it.
    pub code: String,
    /// For people.
    pub message: String,
    /// Whatever else the worker told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<Json>,
}

/// What went wrong, as a worker tells it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TaskError)]
#[allow(dead_code)] // The document's view of the domain's `TaskError`.
pub struct TaskErrorBody {
    /// What kind of error, such as `TIMEOUT`: it decides whether the task is tried again.
    code: String,
    /// What happened, in words.
    #[serde(default)]
    message: String,
    /// Anything more, such as a stack.
    detail: Option<Json>,
}

/// How long to wait before a retry, and which error codes are retried.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = Backoff)]
#[allow(dead_code)] // The document's view of the domain's `Backoff`.
pub struct BackoffBody {
    /// Before the first retry; 1,000 unless given.
    base_ms: i64,
    /// At most; 300,000 unless given.
    max_ms: i64,
    /// How much longer each time; 2 unless given.
    multiplier: f64,
    /// Whether the wait is drawn by chance between 0 and its length; so unless given.
    jitter: bool,
    /// Codes that are retried whatever their usual meaning.
    retryable: Vec<String>,
    /// Codes that are not retried; these win.
    non_retryable: Vec<String>,
    /// Where the task ends when its retries are used up: `poisoned` or `failed`.
    on_exhausted: Option<String>,
}

impl Default for BackoffBody {
    fn default() -> BackoffBody {
        let Backoff { base_ms, max_ms, multiplier, jitter, retryable, non_retryable, .. } =
            Backoff::default();
        let on_exhausted = None;
        BackoffBody { base_ms, max_ms, multiplier, jitter, retryable, non_retryable, on_exhausted }
    }
}

impl From<TaskError> for ErrorBody {
    fn from(error: TaskError) -> ErrorBody {
        ErrorBody { code: error.code, message: error.message, detail: error.detail }
    }
}

/// A kind of task.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code, missing_docs)] // The document's view of the domain's `Kind`.
pub enum Kind {
    Job,
    Delegation,
    Inference,
}

/// Where a task stands.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code, missing_docs)] // The document's view of the domain's `State`.
pub enum Status {
    Pending,
    Claimed,
    Running,
    WaitingForApproval,
    Waiting,
    Retry,
    Completed,
    Failed,
    Cancelled,
    Stuck,
    Poisoned,
}

/// What a task waits for; told of a task that is asked for by itself, while it waits.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum WaitingForBody {
    /// A time.
    Time {
        #[schema(value_type = String, format = DateTime)]
        until: Timestamp,
    },
    /// A signal, to this task or to whoever waits with the key; given up at `until`.
    Signal {
        name: String,
        key: Option<String>,
        #[schema(value_type = Option<String>, format = DateTime)]
        until: Option<Timestamp>,
    },
    /// The end of another task; given up at `until`.
    Task {
        task_id: Uuid,
        #[schema(value_type = Option<String>, format = DateTime)]
        until: Option<Timestamp>,
    },
    /// The answer to a question at a gate, which expires at `until`.
    Approval {
        approval_id: Uuid,
        #[schema(value_type = Option<String>, format = DateTime)]
        until: Option<Timestamp>,
    },
    /// A person's decision over a step in doubt.
    Person { step_id: Uuid },
}

impl From<WaitingFor> for WaitingForBody {
    fn from(waiting: WaitingFor) -> WaitingForBody {
        match waiting {
            WaitingFor::Time { until } => WaitingForBody::Time { until },
            WaitingFor::Signal { name, key, until } => WaitingForBody::Signal { name, key, until },
            WaitingFor::Task { task, until } => WaitingForBody::Task { task_id: task.0, until },
            WaitingFor::Approval { approval, until } => {
                WaitingForBody::Approval { approval_id: approval.0, until }
            }
            WaitingFor::Person { step } => WaitingForBody::Person { step_id: step.0 },
        }
    }
}

/// How many tokens the attempts took, as they told; numbers of other names follow.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Usage)]
pub struct UsageBody {
    /// Of what was asked.
    pub prompt_tokens: u64,
    /// Of what was answered.
    pub completion_tokens: u64,
    /// Of both.
    pub total_tokens: u64,
    #[serde(flatten)]
    #[schema(value_type = BTreeMap<String, u64>)]
    pub others: BTreeMap<String, u64>,
}

impl From<Usage> for UsageBody {
    fn from(usage: Usage) -> UsageBody {
        let Usage { prompt_tokens, completion_tokens, total_tokens, others } = usage;
        UsageBody { prompt_tokens, completion_tokens, total_tokens, others }
    }
}

/// A unit of work.
#[derive(Debug, Serialize, ToSchema)]
#[allow(missing_docs)] // docs/http-api.md describes each field once.
pub struct TaskBody {
    pub id: Uuid,
    #[schema(value_type = Kind)]
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    pub name: Option<String>,
    pub queue: String,
    #[schema(value_type = Status)]
    pub status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<WaitingForBody>,
    pub payload: Json,
    pub result: Option<Json>,
    pub usage: Option<UsageBody>,
    pub error: Option<ErrorBody>,
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
    pub parent_id: Option<Uuid>,
    pub replay_of: Option<Uuid>,
    pub replay_count: i64,
    pub correlation_id: Option<String>,
    pub idempotency_key: Option<String>,
    pub attempt: i32,
    pub retry_count: i32,
    pub max_retries: i32,
    pub release_count: i32,
    #[schema(value_type = String, format = DateTime)]
    pub run_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub deadline_at: Option<Timestamp>,
    pub claimed_by: Option<String>,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub claimed_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub lease_expires_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_heartbeat_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub stream_started_at: Option<Timestamp>,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Timestamp>,
}

impl From<Task> for TaskBody {
    fn from(task: Task) -> TaskBody {
        let mode = match task.profile {
            Profile::Delegation => Some("executed".into()),
            Profile::Ledger => Some("ledger".into()),
            Profile::Job | Profile::Inference => None,
        };
        TaskBody {
            id: task.id.0,
            kind: task.profile.kind().as_str().into(),
            mode,
            name: task.name,
            queue: task.queue,
            status: task.status.as_str().into(),
            waiting_for: task.waiting_for.map(Into::into),
            payload: task.payload,
            // Who told nothing may have a result that does.
            usage: task.usage.or_else(|| Usage::of(task.result.as_ref()?)).map(Into::into),
            result: task.result,
            error: task.error.map(Into::into),
            checkpoint: task.checkpoint,
            progress: task.progress,
            priority: task.priority,
            tags: task.tags,
            agent: task.agent,
            venture: task.venture,
            portfolio: task.portfolio,
            stage: task.stage,
            owner: task.owner,
            caller: task.caller,
            callee: task.callee,
            pool: task.pool,
            llm: task.llm,
            model: task.model,
            tier: task.tier,
            parent_id: task.parent_id.map(|id| id.0),
            replay_of: task.replay_of.map(|id| id.0),
            replay_count: task.replay_count,
            correlation_id: task.correlation_id,
            idempotency_key: task.idempotency_key,
            attempt: task.attempt,
            retry_count: task.retry_count,
            max_retries: task.max_retries,
            release_count: task.release_count,
            run_at: task.run_at,
            deadline_at: task.deadline_at,
            claimed_by: task.claimed_by,
            claimed_at: task.claimed_at,
            lease_expires_at: task.lease_expires_at,
            last_heartbeat_at: task.last_heartbeat_at,
            stream_started_at: task.stream_started_at,
            created_at: task.created_at,
            started_at: task.started_at,
            updated_at: task.updated_at,
            finished_at: task.finished_at,
        }
    }
}

/// One transition of a task.
#[derive(Debug, Serialize, ToSchema)]
#[allow(missing_docs)] // docs/http-api.md describes each field once.
pub struct HistoryBody {
    pub task_id: Uuid,
    pub seq: i64,
    #[schema(value_type = Option<Status>)]
    pub from_status: Option<String>,
    #[schema(value_type = Status)]
    pub to_status: String,
    pub event: String,
    pub actor: String,
    pub reason: Option<String>,
    pub metadata: Option<Json>,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

impl From<&History> for HistoryBody {
    fn from(history: &History) -> HistoryBody {
        HistoryBody {
            task_id: history.task_id.0,
            seq: history.seq,
            from_status: history.from_status.map(|state| state.as_str().into()),
            to_status: history.to_status.as_str().into(),
            event: history.event.as_str().into(),
            actor: history.actor.clone(),
            reason: history.reason.clone(),
            metadata: history.metadata.clone(),
            at: history.at,
        }
    }
}

/// One failure of a task.
#[derive(Debug, Serialize, ToSchema)]
#[allow(missing_docs)] // docs/http-api.md describes each field once.
pub struct FailureBody {
    pub seq: i64,
    pub attempt: i32,
    pub session: Option<String>,
    pub error: ErrorBody,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

impl From<Failure> for FailureBody {
    fn from(failure: Failure) -> FailureBody {
        FailureBody {
            seq: failure.seq,
            attempt: failure.attempt,
            session: failure.session,
            error: failure.error.into(),
            at: failure.at,
        }
    }
}

/// A task in a worker's hands.
#[derive(Debug, Serialize, ToSchema)]
pub struct AssignmentBody {
    /// The task.
    pub task: TaskBody,
    /// The holder's right; given here and never shown again.
    pub lease_id: Uuid,
    /// The attempt that begins, from 1.
    pub attempt: i32,
    /// Until when, unless a heartbeat renews it.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub lease_expires_at: Option<Timestamp>,
    /// What earlier attempts have done, oldest first.
    pub steps: Vec<StepBody>,
    /// Whether these are all; otherwise the rest is listed at the task, after the last of them.
    pub steps_complete: bool,
}

impl From<Assignment> for AssignmentBody {
    fn from(assignment: Assignment) -> AssignmentBody {
        AssignmentBody {
            lease_id: assignment.lease_id.0,
            attempt: assignment.attempt,
            lease_expires_at: assignment.lease_expires_at,
            task: assignment.task.into(),
            steps: assignment.steps.into_iter().map(Into::into).collect(),
            steps_complete: assignment.steps_complete,
        }
    }
}
