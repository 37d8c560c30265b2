//! What the holder of a lease does with its task: start, heartbeat, complete, fail, release.

use super::body::TaskBody;
use super::problem::{Problem, Result};
use super::request::{Body, Id};
use super::task::{answer, single};
use super::{Api, Caller};
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value as Json;
use utoipa::ToSchema;
use uuid::Uuid;
use windlass::domain::failure::TaskError;
use windlass::domain::id::{ChangeId, LeaseId, TaskId};
use windlass::domain::usage::Usage;
use windlass::domain::validate;
use windlass::store::task::{Beat, Finish, Finishing, Start};

fn change() -> ChangeId {
    ChangeId(Uuid::now_v7())
}

/// The holder's right.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseRequest {
    #[schema(value_type = Uuid)]
    lease_id: LeaseId,
}

/// Begin a claimed task.
#[utoipa::path(post, path = "/v1/tasks/{id}/start", tag = "work",
    operation_id = "start_task", params(("id" = Uuid, Path)),
    request_body = LeaseRequest,
    responses((status = 200, description = "The task, running", body = TaskBody)))]
pub async fn start(
    State(api): State<Api>,
    Id(task): Id<TaskId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<LeaseRequest>,
) -> Result<Response> {
    let item = Start { task, lease: request.lease_id, actor: caller.actor, change: change() };
    single(api.engine.begin(vec![item]).await)?;
    Ok(answer(StatusCode::OK, api.task(task).await?))
}

/// A sign of life.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TaskHeartbeat)]
pub struct HeartbeatRequest {
    #[schema(value_type = Uuid)]
    lease_id: LeaseId,
    /// Left out: the last one stays.
    checkpoint: Option<Json>,
    /// Left out: the last one stays.
    progress: Option<Json>,
}

/// Renew a lease, and tell how far the work has come.
#[utoipa::path(post, path = "/v1/tasks/{id}/heartbeat", tag = "work",
    operation_id = "heartbeat_task", params(("id" = Uuid, Path)),
    request_body = HeartbeatRequest,
    responses((status = 200, description = "The task", body = TaskBody)))]
pub async fn heartbeat(
    State(api): State<Api>,
    Id(task): Id<TaskId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<HeartbeatRequest>,
) -> Result<Response> {
    beat(&api, task, caller, request).await
}

async fn beat(
    api: &Api,
    task: TaskId,
    caller: Caller,
    request: HeartbeatRequest,
) -> Result<Response> {
    let item = Beat {
        task,
        lease: request.lease_id,
        lease_ms: api.engine.lease_ms_of(task).await?,
        checkpoint: request.checkpoint.as_ref().map(validate::checkpoint).transpose()?,
        progress: request.progress.as_ref().map(validate::progress).transpose()?,
        actor: caller.actor,
        change: change(),
    };
    single(api.engine.tasks().heartbeat(vec![item]).await)?;
    Ok(answer(StatusCode::OK, api.task(task).await?))
}

/// Where the work can go on after a crash.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckpointRequest {
    #[schema(value_type = Uuid)]
    lease_id: LeaseId,
    checkpoint: Json,
}

/// Keep a checkpoint.
#[utoipa::path(post, path = "/v1/tasks/{id}/checkpoint", tag = "work",
    operation_id = "checkpoint_task", params(("id" = Uuid, Path)),
    request_body = CheckpointRequest,
    responses((status = 200, description = "The task", body = TaskBody)))]
pub async fn checkpoint(
    State(api): State<Api>,
    Id(task): Id<TaskId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<CheckpointRequest>,
) -> Result<Response> {
    let CheckpointRequest { lease_id, checkpoint } = request;
    let request = HeartbeatRequest { lease_id, checkpoint: Some(checkpoint), progress: None };
    beat(&api, task, caller, request).await
}

/// The result.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompleteRequest {
    #[schema(value_type = Uuid)]
    lease_id: LeaseId,
    /// Any JSON.
    #[serde(default)]
    result: Option<Json>,
    /// What the attempt took: whole numbers by name.
    #[schema(value_type = Option<super::body::UsageBody>)]
    usage: Option<Json>,
}

/// Deliver the result.
#[utoipa::path(post, path = "/v1/tasks/{id}/complete", tag = "work",
    operation_id = "complete_task", params(("id" = Uuid, Path)),
    request_body = CompleteRequest,
    responses((status = 200, description = "The task, completed", body = TaskBody)))]
pub async fn complete(
    State(api): State<Api>,
    Id(task): Id<TaskId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<CompleteRequest>,
) -> Result<Response> {
    let result = request.result.as_ref().map(|result| api.engine.result(result)).transpose()?;
    let ending = (Finishing::Complete(result), told(request.usage.as_ref())?);
    finish(&api, task, request.lease_id, caller, ending).await
}

/// What went wrong.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FailRequest {
    #[schema(value_type = Uuid)]
    lease_id: LeaseId,
    #[schema(value_type = super::body::TaskErrorBody)]
    error: TaskError,
    /// When to try again, if it is tried again.
    retry_after_ms: Option<i64>,
    /// What the attempt took: whole numbers by name.
    #[schema(value_type = Option<super::body::UsageBody>)]
    usage: Option<Json>,
}

/// Report an error.
#[utoipa::path(post, path = "/v1/tasks/{id}/fail", tag = "work",
    operation_id = "fail_task", params(("id" = Uuid, Path)),
    request_body = FailRequest,
    responses((status = 200, description = "The task: to be retried, or ended",
        body = TaskBody)))]
pub async fn fail(
    State(api): State<Api>,
    Id(task): Id<TaskId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<FailRequest>,
) -> Result<Response> {
    let how = failing(request.error, request.retry_after_ms)?;
    finish(&api, task, request.lease_id, caller, (how, told(request.usage.as_ref())?)).await
}

/// What an attempt says that it took.
pub(super) fn told(usage: Option<&Json>) -> Result<Option<Usage>> {
    Ok(usage.map(|usage| Usage::told("/usage", usage)).transpose()?)
}

/// A failure that may be stored.
pub(super) fn failing(error: TaskError, retry_after_ms: Option<i64>) -> Result<Finishing> {
    error.validate()?;
    if let Some(ms) = retry_after_ms
        && !(0..=validate::MAX_DELAY_MS).contains(&ms)
    {
        let detail = format!("must be between 0 and {}", validate::MAX_DELAY_MS);
        return Err(Problem::field("/retry_after_ms", "out_of_range", detail));
    }
    // 53 random bits.
    let chance = (Uuid::new_v4().as_u128() >> 75) as f64 / (1u64 << 53) as f64;
    Ok(Finishing::Fail { error, retry_after_ms, chance })
}

/// Give a task back.
#[utoipa::path(post, path = "/v1/tasks/{id}/release", tag = "work",
    operation_id = "release_task", params(("id" = Uuid, Path)),
    request_body = LeaseRequest,
    responses((status = 200, description = "The task, in line again", body = TaskBody)))]
pub async fn release(
    State(api): State<Api>,
    Id(task): Id<TaskId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<LeaseRequest>,
) -> Result<Response> {
    finish(&api, task, request.lease_id, caller, (Finishing::Release, None)).await
}

async fn finish(
    api: &Api,
    task: TaskId,
    lease: LeaseId,
    caller: Caller,
    (how, usage): (Finishing, Option<Usage>),
) -> Result<Response> {
    let (actor, reason) = (caller.actor, None);
    let item = Finish { task, lease, how, usage, actor, reason, change: change() };
    single(api.engine.finish(vec![item]).await)?;
    Ok(answer(StatusCode::OK, api.task(task).await?))
}
