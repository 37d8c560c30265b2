//! Waits: parking a task, and the signals that wake it.

use super::body::TaskBody;
use super::problem::{Problem, Result};
use super::request::{Body, Id};
use super::submit::DUPLICATE;
use super::{Api, Caller};
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;
use windlass::domain::id::{LeaseId, SignalId, TaskId};
use windlass::domain::step::MAX_OCCURRENCE;
use windlass::domain::time::Timestamp;
use windlass::domain::validate::{self, Errors};
use windlass::domain::wait::{self, Until};
use windlass::store::signal::{NewSignal, Signal, Signals, Target};
use windlass::store::task::{Holder, Park, Parked};

/// What a task waits for: exactly one of `time`, `delay_ms`, `signal` and `task`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Until)]
pub struct UntilBody {
    /// A point in time, RFC 3339.
    #[schema(value_type = Option<String>, format = DateTime)]
    time: Option<Timestamp>,
    /// So many milliseconds from now.
    delay_ms: Option<i64>,
    /// A signal of this name.
    signal: Option<String>,
    /// With `signal`: whoever is told the key is meant, not this task alone.
    key: Option<String>,
    /// Any end of this task.
    #[schema(value_type = Option<Uuid>)]
    task: Option<TaskId>,
}

impl UntilBody {
    fn until(self) -> Result<Until> {
        let one = match (self.time, self.delay_ms, self.signal, self.task) {
            (Some(time), None, None, None) => Until::Time(time),
            (None, Some(ms), None, None) => Until::DelayMs(ms),
            (None, None, Some(name), None) => return Ok(Until::Signal { name, key: self.key }),
            (None, None, None, Some(task)) => Until::Task(task),
            (None, None, None, None) => {
                let detail = "says nothing: give one of time, delay_ms, signal, task";
                return Err(Problem::field("/until", "required", detail));
            }
            _ => {
                let detail = "says too much: give one of time, delay_ms, signal, task";
                return Err(Problem::field("/until", "conflict", detail));
            }
        };
        match self.key {
            None => Ok(one),
            Some(_) => {
                Err(Problem::field("/until/key", "not_allowed", "belongs to a wait for a signal"))
            }
        }
    }
}

/// The holder parks its task.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ParkRequest {
    #[schema(value_type = Uuid)]
    lease_id: LeaseId,
    until: UntilBody,
    /// For how long at most; not with a time.
    timeout_ms: Option<i64>,
    /// Left out: the last one stays.
    checkpoint: Option<Value>,
    /// Which repetition of the same wait, from 0.
    #[serde(default)]
    occurrence: i32,
}

/// What became of a wait.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitStatus {
    /// The task waits, and the lease has ended: stop working on it.
    Parked,
    /// What it waited for has come; the lease holds on: go on working.
    Woken,
}

/// A wait of a task; it is one of its steps.
#[derive(Serialize, ToSchema)]
pub struct WaitBody {
    step_id: Uuid,
    status: WaitStatus,
    /// What came: `woken` says whether it was the `time`, a `signal`, a `task` or the `timeout`.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
}

/// A task and its wait.
#[derive(Serialize, ToSchema)]
pub struct ParkAnswer {
    #[serde(flatten)]
    task: TaskBody,
    wait: WaitBody,
}

/// Park a task until a time, a signal or the end of another task, without a worker and without a
/// lease. If it has come already, or this wait is over, the task is not parked.
#[utoipa::path(post, path = "/v1/tasks/{id}/park", tag = "work",
    operation_id = "park_task", params(("id" = Uuid, Path)),
    request_body = ParkRequest,
    responses((status = 200, description = "The task and its wait", body = ParkAnswer)))]
pub async fn park(
    State(api): State<Api>,
    Id(task): Id<TaskId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<ParkRequest>,
) -> Result<Json<ParkAnswer>> {
    let until = request.until.until()?;
    until.check(request.timeout_ms)?;
    let mut errors = Errors::default();
    errors.range("/occurrence", request.occurrence.into(), 0, MAX_OCCURRENCE.into());
    errors.into_result()?;
    let item = Park {
        holder: Holder::new(task, request.lease_id, caller.actor),
        until,
        occurrence: Some(request.occurrence),
        timeout_ms: request.timeout_ms,
        checkpoint: request.checkpoint.as_ref().map(validate::checkpoint).transpose()?,
    };
    let wait = match api.engine.park(item).await? {
        Parked::Waiting(step) => {
            WaitBody { step_id: step.0, status: WaitStatus::Parked, result: None }
        }
        Parked::Woken(step, came) => {
            WaitBody { step_id: step.0, status: WaitStatus::Woken, result: Some(came) }
        }
    };
    Ok(Json(ParkAnswer { task: api.task(task).await?.into(), wait }))
}

/// A signal to be sent: to a task, or to whoever waits with a key.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// What it is called.
    name: String,
    /// To this task; or `key`.
    #[schema(value_type = Option<Uuid>)]
    task_id: Option<TaskId>,
    /// To the task that has waited longest with this key, or to the first that will.
    key: Option<String>,
    /// Any JSON.
    #[serde(default)]
    payload: Value,
    /// An id of your own; the same id again is the same signal.
    #[schema(value_type = Option<Uuid>)]
    id: Option<SignalId>,
}

/// Something that a task was told, or will be.
#[derive(Serialize, ToSchema)]
#[allow(missing_docs)] // docs/steps.md describes each field once.
pub struct SignalBody {
    pub id: Uuid,
    pub name: String,
    pub task_id: Option<Uuid>,
    pub key: Option<String>,
    pub payload: Value,
    pub sent_by: String,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// The task that was told; null while nobody has waited for it.
    pub taken_by: Option<Uuid>,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub taken_at: Option<Timestamp>,
}

impl From<Signal> for SignalBody {
    fn from(signal: Signal) -> SignalBody {
        SignalBody {
            id: signal.id.0,
            name: signal.name,
            task_id: signal.task_id.map(|id| id.0),
            key: signal.key,
            payload: signal.payload,
            sent_by: signal.sent_by,
            created_at: signal.created_at,
            taken_by: signal.taken_by.map(|id| id.0),
            taken_at: signal.taken_at,
        }
    }
}

/// Send a signal. Exactly one wait takes it; one that nobody waits for yet is kept.
#[utoipa::path(post, path = "/v1/signals", tag = "signals",
    operation_id = "send_signal", request_body = SignalRequest,
    responses((status = 201, description = "The signal", body = SignalBody),
        (status = 200, description = "It had been sent before", body = SignalBody,
            headers(("Windlass-Duplicate" = String, description = "`true`")))))]
pub async fn signal(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<SignalRequest>,
) -> Result<Response> {
    let SignalRequest { name, task_id, key, payload, id } = request;
    let payload = wait::check_signal(&name, task_id, key.as_deref(), &payload)?;
    // The rule above lets exactly one of the two through.
    let target = match (task_id, key) {
        (Some(task), _) => Target::Task(task),
        (None, key) => Target::Key(key.unwrap_or_default()),
    };
    let id = id.unwrap_or_else(|| SignalId(Uuid::now_v7()));
    let new = NewSignal { id, name, target, payload, sent_by: caller.actor };
    let sent = api.engine.signal(new).await?;
    let body = Json(found(&api, id).await?);
    if !sent.duplicate {
        return Ok((StatusCode::CREATED, body).into_response());
    }
    Ok(([(DUPLICATE, HeaderValue::from_static("true"))], body).into_response())
}

/// Show a signal, and who took it.
#[utoipa::path(get, path = "/v1/signals/{id}", tag = "signals",
    operation_id = "show_signal", params(("id" = Uuid, Path)),
    responses((status = 200, description = "The signal", body = SignalBody)))]
pub async fn show(State(api): State<Api>, Id(id): Id<SignalId>) -> Result<Json<SignalBody>> {
    found(&api, id).await.map(Json)
}

async fn found(api: &Api, id: SignalId) -> Result<SignalBody> {
    let signal = Signals::new(api.engine.store().clone()).show(id).await?;
    let missing = || Problem::new(StatusCode::NOT_FOUND, "not_found", "there is no such signal");
    signal.map(Into::into).ok_or_else(missing)
}
