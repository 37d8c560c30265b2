//! Steps: recording what is done, beginning what must not run twice, and a person's decision over
//! what is in doubt.
//!
//! Invariant: a step never shows the lease under which it was begun.

use super::body::{ErrorBody, List, TaskErrorBody};
use super::correlation::Correlated;
use super::cursor::Paging;
use super::problem::{Problem, Result};
use super::request::{Body, Id, Params, present};
use super::task::{PageParams, known, single};
use super::{Api, Caller};
use axum::Json;
use axum::extract::{Extension, State};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use windlass::domain::failure::TaskError;
use windlass::domain::id::{LeaseId, StepId, TaskId};
use windlass::domain::refusal::Refusal;
use windlass::domain::step::{self as rule, CheckedStep, Effect, StepInput, StepState};
use windlass::domain::time::Timestamp;
use windlass::domain::validate;
use windlass::store::step::{ORDER, Step};
use windlass::store::task::{BeginStep, Begun, Holder, RecordStep, Resolution, StepEnd};

/// Where a step stands.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code, missing_docs)] // The document's view of the domain's `StepState`.
pub enum StepStatus {
    Begun,
    Waiting,
    Done,
    Failed,
    InDoubt,
    Allowed,
    Rejected,
}

/// A part of a task's work that is remembered.
#[derive(Debug, Serialize, ToSchema)]
#[allow(missing_docs)] // docs/steps.md describes each field once.
pub struct StepBody {
    pub id: Uuid,
    pub task_id: Uuid,
    pub seq: i64,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub inputs_hash: String,
    pub occurrence: i32,
    /// Of waits and of steps that must not run twice.
    pub inputs: Option<Value>,
    pub idempotent: bool,
    #[schema(value_type = StepStatus)]
    pub status: String,
    pub result: Option<Value>,
    pub error: Option<ErrorBody>,
    /// `none` or `unknown`: what a failed one has done.
    pub effect: Option<String>,
    pub attempt: i32,
    /// Of one that must not run twice: which run began last.
    pub run: Option<i64>,
    pub actor: String,
    /// The step of the origin that a replay took along.
    pub copied_from: Option<Uuid>,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// When its result was cleared.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expired_at: Option<Timestamp>,
}

impl From<Step> for StepBody {
    fn from(step: Step) -> StepBody {
        StepBody {
            id: step.id.0,
            task_id: step.task_id.0,
            seq: step.seq,
            name: step.name,
            kind: step.kind,
            inputs_hash: step.inputs_hash,
            occurrence: step.occurrence,
            inputs: step.inputs,
            idempotent: step.idempotent,
            status: step.status.to_string(),
            result: step.result,
            error: step.error.map(Into::into),
            effect: step.effect.map(|effect| effect.to_string()),
            attempt: step.attempt,
            run: step.run,
            actor: step.actor,
            copied_from: step.copied_from.map(|id| id.0),
            created_at: step.created_at,
            ended_at: step.ended_at,
            expired_at: step.expired_at,
        }
    }
}

fn checked(
    name: &str,
    kind: &Option<String>,
    inputs: &Option<Value>,
    occurrence: Option<i32>,
) -> Result<CheckedStep> {
    let input = StepInput { name, kind: kind.as_deref(), inputs: inputs.as_ref(), occurrence };
    Ok(rule::check(&input)?)
}

/// A step that is done and may run twice.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordStepRequest {
    #[schema(value_type = Uuid)]
    lease_id: LeaseId,
    /// What it is called; `wait:` at the beginning is reserved.
    name: String,
    /// What kind of step, for people; `step` unless given.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// What it worked on: other inputs, another step.
    inputs: Option<Value>,
    /// Which repetition with the same name and inputs, from 0.
    occurrence: Option<i32>,
    /// Any JSON.
    result: Value,
    /// Left out: the last one stays.
    checkpoint: Option<Value>,
}

/// Record a step that is done, and a checkpoint with it, in one commit. The first result stands: a
/// step that was recorded before is answered as it is.
#[utoipa::path(post, path = "/v1/tasks/{id}/steps/record", tag = "work",
    operation_id = "record_step", params(("id" = Uuid, Path)),
    request_body = RecordStepRequest,
    responses((status = 200, description = "The step as it stands", body = StepBody)))]
pub async fn record(
    State(api): State<Api>,
    Id(task): Id<TaskId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<RecordStepRequest>,
) -> Result<Json<StepBody>> {
    let step = checked(&request.name, &request.kind, &request.inputs, request.occurrence)?;
    let item = RecordStep {
        holder: Holder::new(task, request.lease_id, caller.actor),
        step,
        result: validate::result(&request.result)?,
        checkpoint: request.checkpoint.as_ref().map(validate::checkpoint).transpose()?,
    };
    let recorded = single(api.engine.record_steps(vec![item]).await)?;
    let step = api.engine.steps().show(task, recorded.id).await?;
    Ok(Json(step.ok_or(Refusal::UnknownStep)?.into()))
}

/// A step that must not run twice, and is about to.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BeginStepRequest {
    #[schema(value_type = Uuid)]
    lease_id: LeaseId,
    /// What it is called; `wait:` at the beginning is reserved.
    name: String,
    /// What kind of step, for people; `step` unless given.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// What it works on: other inputs, another step. Shown to whoever must decide over it.
    inputs: Option<Value>,
    /// Which repetition with the same name and inputs, from 0.
    occurrence: Option<i32>,
    /// Must be `false`: a step that may run twice is recorded when it is done.
    idempotent: bool,
}

/// Whether a step may run.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BegunStatus {
    /// Its intent is written: run it, then tell how it ended.
    New,
    /// It has run: take its result.
    Done,
}

/// The answer to a step that is about to run.
#[derive(Serialize, ToSchema)]
pub struct BegunAnswer {
    /// Complete or fail it under this id.
    id: Uuid,
    status: BegunStatus,
    /// Which run begins: told with its end, a late call ends no other one.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<i64>,
    /// Of a step that is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
}

/// Begin a step that must not run twice: its intent is written first. If an earlier attempt left an
/// intent without an end, nobody knows whether it ran: 409 `in_doubt`, and the task waits for a
/// person.
#[utoipa::path(post, path = "/v1/tasks/{id}/steps", tag = "work",
    operation_id = "begin_step", params(("id" = Uuid, Path)),
    request_body = BeginStepRequest,
    responses((status = 200, description = "Whether it may run", body = BegunAnswer)))]
pub async fn begin(
    State(api): State<Api>,
    Id(task): Id<TaskId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<BeginStepRequest>,
) -> Result<Json<BegunAnswer>> {
    if request.idempotent {
        let detail = "a step that may run twice is not begun: run it, then record it with \
            /steps/record; `false` is for steps that must not run twice";
        return Err(Problem::field("/idempotent", "not_allowed", detail));
    }
    let step = checked(&request.name, &request.kind, &request.inputs, request.occurrence)?;
    let holder = Holder::new(task, request.lease_id, caller.actor);
    let answer = match api.engine.begin_step(BeginStep { holder, step }).await? {
        Begun::New(id, run) => {
            BegunAnswer { id: id.0, status: BegunStatus::New, run, result: None }
        }
        Begun::Ended(step) if step.status == StepState::Rejected => {
            return Err(Refusal::StepFailed { step: step.id }.into());
        }
        Begun::Ended(step) => {
            let result = Some(step.result.unwrap_or_default());
            BegunAnswer { id: step.id.0, status: BegunStatus::Done, run: None, result }
        }
    };
    Ok(Json(answer))
}

/// The result of a step that was begun.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompleteStepRequest {
    #[schema(value_type = Uuid)]
    lease_id: LeaseId,
    /// Which run, as the begin told it; left out: the one that began last.
    run: Option<i64>,
    /// Any JSON.
    result: Value,
    /// Left out: the last one stays.
    checkpoint: Option<Value>,
}

/// A step by its own id, with what the log knows of its task.
fn shown(api: &Api, step: Step) -> (Correlated, Json<StepBody>) {
    (api.correlations.of([step.task_id]), Json(step.into()))
}

/// Tell the result of a step that was begun.
#[utoipa::path(post, path = "/v1/steps/{id}/complete", tag = "work",
    operation_id = "complete_step", params(("id" = Uuid, Path)),
    request_body = CompleteStepRequest,
    responses((status = 200, description = "The step, done", body = StepBody)))]
pub async fn complete(
    State(api): State<Api>,
    Id(id): Id<StepId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<CompleteStepRequest>,
) -> Result<(Correlated, Json<StepBody>)> {
    let end = StepEnd::Complete {
        result: validate::result(&request.result)?,
        checkpoint: request.checkpoint.as_ref().map(validate::checkpoint).transpose()?,
    };
    let (lease, run) = (request.lease_id, request.run);
    let step = api.engine.end_step(id, lease, run, &caller.actor, end).await?;
    Ok(shown(&api, step))
}

/// How a step that was begun went wrong.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FailStepRequest {
    #[schema(value_type = Uuid)]
    lease_id: LeaseId,
    /// Which run, as the begin told it; left out: the one that began last.
    run: Option<i64>,
    #[schema(value_type = TaskErrorBody)]
    error: TaskError,
    /// `none`: it has done nothing and may run again; `unknown` unless given.
    #[schema(value_type = Option<String>)]
    effect: Option<Effect>,
}

/// Tell how a step that was begun went wrong. It runs again only if it had no effect.
#[utoipa::path(post, path = "/v1/steps/{id}/fail", tag = "work",
    operation_id = "fail_step", params(("id" = Uuid, Path)),
    request_body = FailStepRequest,
    responses((status = 200, description = "The step, failed", body = StepBody)))]
pub async fn fail(
    State(api): State<Api>,
    Id(id): Id<StepId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<FailStepRequest>,
) -> Result<(Correlated, Json<StepBody>)> {
    request.error.validate()?;
    let effect = request.effect.unwrap_or(Effect::Unknown);
    let end = StepEnd::Fail { error: request.error, effect };
    let (lease, run) = (request.lease_id, request.run);
    let step = api.engine.end_step(id, lease, run, &caller.actor, end).await?;
    Ok(shown(&api, step))
}

/// What a person decides.
#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResolveAction {
    /// It has run, and `result` is what came of it.
    RecordResult,
    /// It has not run, or may run twice.
    AllowRerun,
    /// It has failed for good.
    Fail,
}

/// A person's decision over a step in doubt.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResolveStepRequest {
    action: ResolveAction,
    /// Any JSON; of `record_result`, and required there.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Value>)]
    result: Option<Value>,
    /// For the history.
    reason: Option<String>,
}

impl ResolveStepRequest {
    fn resolution(&self) -> Result<Resolution> {
        match (self.action, &self.result) {
            (ResolveAction::RecordResult, Some(result)) => {
                Ok(Resolution::RecordResult(validate::result(result)?))
            }
            (ResolveAction::RecordResult, None) => {
                let detail = "is missing: say what came of the step, `null` if nothing did";
                Err(Problem::field("/result", "required", detail))
            }
            (ResolveAction::AllowRerun, None) => Ok(Resolution::AllowRerun),
            (ResolveAction::Fail, None) => Ok(Resolution::Fail),
            (_, Some(_)) => {
                let detail = "belongs to `record_result`; leave it out";
                Err(Problem::field("/result", "not_allowed", detail))
            }
        }
    }
}

/// Decide over a step in doubt; its task goes on. A task that has ended stays as it is: its replays
/// see the decision.
#[utoipa::path(post, path = "/v1/steps/{id}/resolve", tag = "steps",
    operation_id = "resolve_step", params(("id" = Uuid, Path)),
    request_body = ResolveStepRequest,
    responses((status = 200, description = "The step as it stands", body = StepBody)))]
pub async fn resolve(
    State(api): State<Api>,
    Id(id): Id<StepId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<ResolveStepRequest>,
) -> Result<(Correlated, Json<StepBody>)> {
    let resolution = request.resolution()?;
    if let Some(reason) = &request.reason {
        validate::reason(reason)?;
    }
    let step = api.engine.resolve_step(id, resolution, &caller.actor, request.reason).await?;
    Ok(shown(&api, step))
}

/// Show a task's steps, oldest first. A page has at most 8 MiB of results, inputs and errors.
#[utoipa::path(get, path = "/v1/tasks/{id}/steps", tag = "tasks",
    operation_id = "task_steps",
    params(("id" = Uuid, Path), PageParams),
    responses((status = 200, description = "A page", body = List<StepBody>)))]
pub async fn of_task(
    State(api): State<Api>,
    Id(id): Id<TaskId>,
    Params(params): Params<PageParams>,
) -> Result<Json<List<StepBody>>> {
    let (cursor, order) = (params.cursor.as_deref(), params.order.as_deref());
    let paging = Paging::new(ORDER, params.limit, cursor, order)?;
    let found = api.engine.steps().part(id, paging.part()).await?;
    if found.steps.is_empty() {
        api.task(id).await?;
    }
    let next = found.steps.last().filter(|_| !found.complete).map(|step| step.seq);
    Ok(Json(paging.list((found.steps, next))))
}

/// Which steps.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StepParams {
    /// `in_doubt`. The steps of one task are at its own address.
    status: String,
    /// `oldest` first unless `newest`; `asc` and `desc` say the same.
    order: Option<String>,
    /// 50 unless given, 1,000 at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// List the steps that wait for a person's decision, of living and of ended tasks, oldest first.
#[utoipa::path(get, path = "/v1/steps", tag = "steps",
    operation_id = "list_steps", params(StepParams),
    responses((status = 200, description = "A page", body = List<StepBody>)))]
pub async fn list(
    State(api): State<Api>,
    Params(params): Params<StepParams>,
) -> Result<Json<List<StepBody>>> {
    let names = || [StepState::InDoubt.as_str()];
    if known::<StepState>("/status", &params.status, names())? != StepState::InDoubt {
        let detail = "must be in_doubt; the other steps are listed with their task";
        return Err(Problem::field("/status", "unknown_value", detail));
    }
    let (cursor, order) = (params.cursor.as_deref(), params.order.as_deref());
    let paging = Paging::new(ORDER, params.limit, cursor, order)?;
    Ok(Json(paging.list(api.engine.steps().page_in_doubt(paging.part()).await?)))
}
