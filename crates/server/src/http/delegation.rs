//! Delegations: work that one agent hands to another, executed by a worker or kept as a ledger.
//!
//! Ledger calls need no lease. What changes nothing because the delegation has ended, is further
//! already or is not there is answered as such, not refused: callers report from places that may
//! be behind.

use super::action::failing;
use super::body::{ErrorBody, List, Status, TaskErrorBody};
use super::problem::{Problem, Result};
use super::request::{Body, Id, Params};
use super::submit::{KeyHeader, NewTaskBody, refused, take_key};
use super::task::{ListParams, single};
use super::{Api, Caller, submit};
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use uuid::Uuid;
use windlass::domain::command::Command;
use windlass::domain::delegation::{REPORTED, Unchanged, preview};
use windlass::domain::failure::TaskError;
use windlass::domain::id::{ChangeId, LeaseId, TaskId};
use windlass::domain::profile::{Kind, Profile};
use windlass::domain::refusal::Refusal;
use windlass::domain::request::SubmitRequest;
use windlass::domain::state::State as TaskState;
use windlass::domain::time::Timestamp;
use windlass::domain::validate::{self, MAX_WORKER_BYTES};
use windlass::store::task::{Ask, Beat, DelegationSweep, Finish, Finishing, Reported, Start, Task};

/// A delegation at a glance.
#[derive(Serialize, ToSchema)]
pub struct DelegationBody {
    id: Uuid,
    caller: Option<String>,
    callee: Option<String>,
    /// `executed` by a worker of the callee, or a `ledger` of what runs elsewhere.
    mode: &'static str,
    #[schema(value_type = Status)]
    status: &'static str,
    name: Option<String>,
    queue: String,
    /// The first 1,000 characters of the payload.
    payload_preview: String,
    /// The first 1,000 characters of the result.
    result_preview: Option<String>,
    /// The whole payload; a list leaves it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Value>,
    /// The whole result; a list leaves it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
    error: Option<ErrorBody>,
    priority: i32,
    tags: BTreeMap<String, String>,
    venture: Option<String>,
    portfolio: Option<String>,
    correlation_id: Option<String>,
    idempotency_key: Option<String>,
    parent_id: Option<Uuid>,
    replay_of: Option<Uuid>,
    claimed_by: Option<String>,
    #[schema(value_type = Option<String>, format = DateTime)]
    deadline_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    last_heartbeat_at: Option<Timestamp>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    started_at: Option<Timestamp>,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    finished_at: Option<Timestamp>,
}

impl DelegationBody {
    fn new(task: Task, is_whole: bool) -> DelegationBody {
        DelegationBody {
            id: task.id.0,
            caller: task.caller,
            callee: task.callee,
            mode: if task.profile == Profile::Ledger { "ledger" } else { "executed" },
            status: task.status.as_str(),
            name: task.name,
            queue: task.queue,
            payload_preview: preview(&task.payload),
            result_preview: task.result.as_ref().map(preview),
            payload: is_whole.then_some(task.payload),
            result: task.result.filter(|_| is_whole),
            error: task.error.map(Into::into),
            priority: task.priority,
            tags: task.tags,
            venture: task.venture,
            portfolio: task.portfolio,
            correlation_id: task.correlation_id,
            idempotency_key: task.idempotency_key,
            parent_id: task.parent_id.map(|id| id.0),
            replay_of: task.replay_of.map(|id| id.0),
            claimed_by: task.claimed_by,
            deadline_at: task.deadline_at,
            last_heartbeat_at: task.last_heartbeat_at,
            created_at: task.created_at,
            started_at: task.started_at,
            updated_at: task.updated_at,
            finished_at: task.finished_at,
        }
    }
}

/// The answer to a delegation.
#[derive(Serialize, ToSchema)]
pub struct Delegated {
    #[serde(flatten)]
    delegation: DelegationBody,
    /// It was there before, and nothing was written.
    duplicate: bool,
    /// It was there before and says something else; what is there stays.
    payload_differs: bool,
}

/// Delegate work. The same id, or the same key of the same caller, again is a no-op and says so.
#[utoipa::path(post, path = "/v1/delegations", tag = "delegations",
    operation_id = "delegate", params(KeyHeader),
    request_body(content = NewTaskBody,
        description = "As for a task of kind `delegation`; `caller` and `callee` are required"),
    responses(
        (status = 201, description = "The delegation was taken", body = Delegated),
        (status = 200, description = "It was there before", body = Delegated)))]
pub async fn create(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Body(mut request): Body<SubmitRequest>,
) -> Result<Response> {
    take_key(&mut request, &headers)?;
    if request.kind.is_some_and(|kind| kind != Kind::Delegation) {
        let detail = "must be delegation, or left out; other tasks go to /v1/tasks";
        return Err(Problem::field("/kind", "unknown_value", detail));
    }
    request.kind = Some(Kind::Delegation);
    api.engine.know_agents([&request].into_iter()).await?;
    let task = submit::new_task(&api, &request, &caller)?;
    let outcome = api.engine.submit(vec![task]).await.pop();
    let submitted = outcome.ok_or_else(|| Problem::from(submit::no_outcome()))?;
    let submitted = submitted.map_err(|rejection| refused(&api, rejection))?;
    let (duplicate, payload_differs) = (submitted.duplicate, submitted.payload_differs);
    let delegation = DelegationBody::new(api.task(submitted.id).await?, true);
    let status = if duplicate { StatusCode::OK } else { StatusCode::CREATED };
    let answer = Json(Delegated { delegation, duplicate, payload_differs });
    let mut response = (status, answer).into_response();
    if duplicate {
        response.headers_mut().insert(submit::DUPLICATE, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// List delegations, with previews of what they are about.
#[utoipa::path(get, path = "/v1/delegations", tag = "delegations",
    operation_id = "list_delegations", params(ListParams),
    responses((status = 200, description = "A page", body = List<DelegationBody>)))]
pub async fn list(
    State(api): State<Api>,
    Params(mut params): Params<ListParams>,
) -> Result<Json<List<DelegationBody>>> {
    params.of_kind(Kind::Delegation)?;
    let List { items, next_cursor } = params.page(&api).await?;
    let items = items.into_iter().map(|task| DelegationBody::new(task, false)).collect();
    Ok(Json(List { items, next_cursor }))
}

/// Show a delegation, with the whole of its payload and result.
#[utoipa::path(get, path = "/v1/delegations/{id}", tag = "delegations",
    operation_id = "show_delegation", params(("id" = Uuid, Path)),
    responses((status = 200, description = "The delegation", body = DelegationBody)))]
pub async fn show(State(api): State<Api>, Id(id): Id<TaskId>) -> Result<Json<DelegationBody>> {
    let task = api.engine.tasks().show(id).await?;
    let delegation = task.filter(|task| task.profile.kind() == Kind::Delegation);
    let delegation = delegation.ok_or(Refusal::Unknown { what: "delegation" })?;
    Ok(Json(DelegationBody::new(delegation, true)))
}

/// Where a delegation stands.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StatusRequest {
    /// `pending`, `claimed`, `running`, `completed`, `failed` or `stuck`.
    status: String,
    /// Any JSON, with `completed`.
    result: Option<Value>,
    /// What went wrong, with `failed` or `stuck`.
    #[schema(value_type = Option<TaskErrorBody>)]
    error: Option<TaskError>,
    /// Who runs it; the caller of this call unless given.
    holder: Option<String>,
    /// The holder's right, for a delegation that a worker executes.
    #[schema(value_type = Option<Uuid>)]
    lease_id: Option<LeaseId>,
}

/// What a report came to.
#[derive(Serialize, ToSchema)]
pub struct StatusAnswer {
    id: Uuid,
    /// Whether anything changed.
    changed: bool,
    /// Where it stands now; null when there is no such delegation.
    #[schema(value_type = Option<Status>)]
    status: Option<&'static str>,
    /// Why nothing changed: `same_status`, `terminal`, `not_forward` or `not_found`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

fn answer(id: TaskId, reported: Reported) -> Json<StatusAnswer> {
    Json(StatusAnswer {
        id: id.0,
        changed: reported.unchanged.is_none(),
        status: reported.status.map(TaskState::as_str),
        reason: reported.unchanged.map(|why| why.as_str()),
    })
}

/// A word that is answered like the first one changed nothing if it stood there before.
fn changed(status: TaskState, before: Option<TaskState>) -> Reported {
    let unchanged = (before == Some(status)).then_some(Unchanged::SameStatus);
    Reported { status: Some(status), unchanged }
}

fn change() -> ChangeId {
    ChangeId(Uuid::now_v7())
}

/// Report where a delegation stands. Only forward; what changes nothing is answered as such.
#[utoipa::path(post, path = "/v1/delegations/{id}/status", tag = "delegations",
    operation_id = "report_delegation", params(("id" = Uuid, Path)),
    request_body = StatusRequest,
    responses((status = 200, description = "What came of it", body = StatusAnswer)))]
pub async fn status(
    State(api): State<Api>,
    Id(id): Id<TaskId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<StatusRequest>,
) -> Result<Json<StatusAnswer>> {
    let names = REPORTED.iter().map(|state| state.as_str());
    let to = REPORTED.iter().copied().find(|state| state.as_str() == request.status);
    let unknown = || {
        let names: Vec<&str> = names.collect();
        let detail = format!("must be one of {}", names.join(", "));
        Problem::field("/status", "unknown_value", detail)
    };
    let to = to.ok_or_else(unknown)?;
    if request.result.is_some() && to != TaskState::Completed {
        let detail = "belongs to status completed";
        return Err(Problem::field("/result", "not_allowed", detail));
    }
    if request.error.is_some() && !to.needs_error() {
        let detail = "belongs to status failed or stuck";
        return Err(Problem::field("/error", "not_allowed", detail));
    }
    if let Some(holder) = &request.holder {
        let mut errors = validate::Errors::default();
        errors.name("/holder", holder, MAX_WORKER_BYTES);
        errors.into_result()?;
    }
    let result = request.result.as_ref().map(validate::result).transpose()?;
    if let Some(error) = &request.error {
        error.validate()?;
    }
    let Some(lease) = request.lease_id else {
        let holder = request.holder.unwrap_or_else(|| caller.actor.clone());
        let command = Command::Report { to, result, error: request.error, holder };
        return Ok(answer(id, api.engine.report(Ask::new(id, command, caller.actor)).await?));
    };
    let before = api.engine.tasks().show(id).await?.map(|task| task.status);
    let (task, actor) = (id, caller.actor);
    let how = match to {
        TaskState::Running => {
            let start = Start { task, lease, actor, change: change() };
            return match single(api.engine.begin(vec![start]).await) {
                Ok(_) => Ok(answer(id, changed(TaskState::Running, before))),
                Err(problem) => unless_over(&api, id, Some(to), problem).await,
            };
        }
        TaskState::Completed => Finishing::Complete(result),
        TaskState::Failed => {
            let unsaid = || TaskError::new("UNKNOWN", "the holder reported no error");
            failing(request.error.unwrap_or_else(unsaid), None)?
        }
        _ => {
            let detail = "the holder of a lease reports running, completed or failed";
            return Err(Problem::field("/status", "unknown_value", detail));
        }
    };
    let (usage, reason) = (None, None);
    let item = Finish { task, lease, how, usage, actor, reason, change: change() };
    match single(api.engine.finish(vec![item]).await) {
        Ok(status) => Ok(answer(id, changed(status, before))),
        Err(problem) => unless_over(&api, id, Some(to), problem).await,
    }
}

/// What has ended, or is not there, is answered as such; any other refusal stands.
async fn unless_over(
    api: &Api,
    id: TaskId,
    to: Option<TaskState>,
    problem: Problem,
) -> Result<Json<StatusAnswer>> {
    if !matches!(problem.status, 404 | 409) {
        return Err(problem);
    }
    let task = api.engine.tasks().show(id).await?;
    match task.filter(|task| task.profile.kind() == Kind::Delegation) {
        None => Ok(answer(id, Reported { status: None, unchanged: Some(Unchanged::NotFound) })),
        Some(task) if task.status.is_terminal() => {
            let unchanged = Some(Unchanged::of(task.status, to));
            Ok(answer(id, Reported { status: Some(task.status), unchanged }))
        }
        Some(_) => Err(problem),
    }
}

/// A sign of life.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DelegationHeartbeat {
    /// The holder's right, for a delegation that a worker executes.
    #[schema(value_type = Option<Uuid>)]
    lease_id: Option<LeaseId>,
}

/// Say that a delegation is alive. One that has ended is not touched.
#[utoipa::path(post, path = "/v1/delegations/{id}/heartbeat", tag = "delegations",
    operation_id = "beat_delegation", params(("id" = Uuid, Path)),
    request_body = DelegationHeartbeat,
    responses((status = 200, description = "What came of it", body = StatusAnswer)))]
pub async fn heartbeat(
    State(api): State<Api>,
    Id(id): Id<TaskId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<DelegationHeartbeat>,
) -> Result<Json<StatusAnswer>> {
    let Some(lease) = request.lease_id else {
        let ask = Ask::new(id, Command::ReportBeat, caller.actor);
        return Ok(answer(id, api.engine.report(ask).await?));
    };
    let beat = Beat {
        task: id,
        lease,
        lease_ms: api.engine.lease_ms_of(id).await?,
        checkpoint: None,
        progress: None,
        actor: caller.actor,
        change: change(),
    };
    match single(api.engine.tasks().heartbeat(vec![beat]).await) {
        Ok(_) => Ok(answer(id, changed(TaskState::Running, None))),
        Err(problem) => unless_over(&api, id, None, problem).await,
    }
}

/// What the sweeper did.
#[derive(Serialize, ToSchema)]
pub struct SweepBody {
    /// Delegations that had not ended.
    scanned: usize,
    /// Those that ended because their deadline had passed.
    failed_deadline: usize,
    /// Those that ended because their beats had stopped.
    marked_stuck: usize,
    /// Those that ended, or beat again, while they were being looked at.
    lost_races: usize,
    /// Those that nobody could read or write; the server's log names them.
    errors: usize,
}

/// Look once at all delegations that have not ended, as the sweeper does by itself.
#[utoipa::path(post, path = "/v1/delegations/sweep", tag = "delegations",
    operation_id = "sweep_delegations",
    responses((status = 200, description = "What it did", body = SweepBody)))]
pub async fn sweep(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<SweepBody>> {
    let DelegationSweep { scanned, failed_deadline, marked_stuck, lost_races, errors, .. } =
        api.engine.sweep_delegations_for(&caller.actor).await?;
    Ok(Json(SweepBody { scanned, failed_deadline, marked_stuck, lost_races, errors }))
}
