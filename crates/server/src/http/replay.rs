//! Replay: a finished task once more, as a new task; or its plan; or the approval it waits for.

use super::approval::ApprovalBody;
use super::body::TaskBody;
use super::problem::{Problem, Result};
use super::request::{Body, Id};
use super::submit::DUPLICATE;
use super::task::answer;
use super::{Api, Caller};
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;
use windlass::domain::id::TaskId;
use windlass::domain::replay::{Plan, ReplayFrom, needs_approval};
use windlass::store::approval::{Approval, Requested};
use windlass::store::task::{Consent, Replay};
use windlass::store::trouble::Act;

/// Who asks, where the server has no keys: everybody is the same operator then, and must be able to
/// approve.
const NOBODY: &str = "anonymous";

/// Where a replay begins.
#[derive(Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplayPoint {
    /// With nothing done.
    Beginning,
    /// With everything that is done, and the checkpoint.
    LastCheckpoint,
    /// With what was done before the first step of this name.
    Step,
}

/// What is to be replayed, and how.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayRequest {
    from: ReplayPoint,
    /// Of `from: "step"`: the step's name.
    step: Option<String>,
    /// Whether steps that must not run twice may.
    #[serde(default)]
    allow_non_idempotent: bool,
    /// Whether a person must agree in any case.
    #[serde(default)]
    require_approval: bool,
    /// Only say what would be done.
    #[serde(default)]
    pub(super) dry_run: bool,
    /// The new task's id, any UUID; the same id again is the same replay.
    #[schema(value_type = Option<Uuid>)]
    id: Option<TaskId>,
}

impl ReplayRequest {
    fn replay(&self, origin: TaskId, actor: &str) -> Result<Replay> {
        let from = match (self.from, &self.step) {
            (ReplayPoint::Beginning, None) => ReplayFrom::Beginning,
            (ReplayPoint::LastCheckpoint, None) => ReplayFrom::LastCheckpoint,
            (ReplayPoint::Step, Some(name)) => ReplayFrom::Step(name.clone()),
            (ReplayPoint::Step, None) => {
                let detail = "is missing: name the step from which the replay begins";
                return Err(Problem::field("/step", "required", detail));
            }
            (_, Some(_)) => {
                let detail = "belongs to `from: \"step\"`; leave it out";
                return Err(Problem::field("/step", "conflict", detail));
            }
        };
        Ok(Replay {
            origin,
            id: self.id.unwrap_or_else(|| TaskId(Uuid::now_v7())),
            from,
            allow_non_idempotent: self.allow_non_idempotent,
            actor: actor.to_owned(),
        })
    }
}

/// What becomes of a step.
#[derive(Serialize, ToSchema)]
pub struct PlannedBody {
    /// The step of the origin; or of `run_in`, if the origin has none of the kind.
    id: Uuid,
    name: String,
    occurrence: i32,
    /// Whether it may run twice.
    idempotent: bool,
    /// `reused`: its result, or a person's word that it failed, is taken along; `rerun`: it runs
    /// again; `expired`: its result was cleared, so it runs again; `refused`: it must not run again
    /// unless that is allowed.
    fate: String,
    /// The other task of the family (the task that was submitted, its replays, and theirs) that
    /// began it since the origin did: a permission for the origin's step is used up.
    run_in: Option<Uuid>,
}

/// What a replay would do.
#[derive(Serialize, ToSchema)]
pub struct PlanBody {
    /// Every step of the origin, oldest first; then what others of its family began that must not
    /// run twice.
    steps: Vec<PlannedBody>,
    /// Whether the origin's checkpoint is taken along.
    checkpoint: bool,
    /// Whether no step is refused.
    permitted: bool,
    /// Whether a person must agree first.
    needs_approval: bool,
}

impl PlanBody {
    fn new(plan: Plan, needs_approval: bool) -> PlanBody {
        let permitted = plan.permit().is_ok();
        let planned = plan.steps.into_iter().map(|step| PlannedBody {
            id: step.id.0,
            name: step.name,
            occurrence: step.occurrence,
            idempotent: step.idempotent,
            fate: step.fate.to_string(),
            run_in: step.run_in.map(|task| task.0),
        });
        let steps = planned.collect();
        PlanBody { steps, checkpoint: plan.checkpoint, permitted, needs_approval }
    }
}

/// The plan of a dry run, or the task of a replay that was asked for before.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[allow(dead_code, clippy::large_enum_variant)] // The document's view of an answer.
pub enum ReplayAnswer {
    /// Of a dry run.
    Plan(PlanBody),
    /// Of a replay that was asked for before.
    Task(TaskBody),
}

/// The question whether a replay may be.
#[derive(Serialize, ToSchema)]
pub struct ReplayApproval {
    /// When it is approved, the new task is made, under the id in its `request`.
    approval: ApprovalBody,
}

impl Api {
    /// Replays a task, or asks whether it may be.
    pub(super) async fn replay(
        &self,
        origin: TaskId,
        request: &ReplayRequest,
        caller: Caller,
        resolves: Option<Act>,
    ) -> Result<Requested> {
        let replay = request.replay(origin, &caller.actor)?;
        let (threshold, is_required) = (self.replay_threshold, request.require_approval);
        let asker = Some(caller.principal).filter(|name| !name.is_empty());
        let asker = asker.unwrap_or_else(|| NOBODY.to_owned());
        let consent = Consent::UpTo { threshold, is_required };
        Ok(self.engine.request_replay(replay, consent, asker, resolves).await?)
    }
}

/// A person must agree first.
pub(super) fn waits(approval: Approval) -> Response {
    let body = Json(ReplayApproval { approval: approval.into() });
    (StatusCode::ACCEPTED, body).into_response()
}

/// Replay a finished task. Done steps before the beginning are taken along and do not run.
#[utoipa::path(post, path = "/v1/tasks/{id}/replay", tag = "tasks",
    operation_id = "replay_task", params(("id" = Uuid, Path)),
    request_body = ReplayRequest,
    responses((status = 201, description = "The new task", body = TaskBody),
        (status = 200, description = "The plan of a dry run; or the task, if this very replay was \
            asked for before", body = ReplayAnswer),
        (status = 202, description = "A person must agree first", body = ReplayApproval)))]
pub async fn replay(
    State(api): State<Api>,
    Id(id): Id<TaskId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<ReplayRequest>,
) -> Result<Response> {
    if request.dry_run {
        let plan = api.engine.plan_replay(request.replay(id, &caller.actor)?).await?;
        let earlier = api.engine.tasks().count_replays(id, api.replay_threshold).await?;
        let needs = needs_approval(earlier, api.replay_threshold, request.require_approval);
        return Ok(Json(PlanBody::new(plan, needs)).into_response());
    }
    let (new, duplicate) = match api.replay(id, &request, caller, None).await? {
        Requested::Waits(approval) => return Ok(waits(*approval)),
        Requested::Task(new, duplicate) => (new, duplicate),
    };
    let status = if duplicate { StatusCode::OK } else { StatusCode::CREATED };
    let mut response = answer(status, api.task(new).await?);
    if duplicate {
        response.headers_mut().insert(DUPLICATE, HeaderValue::from_static("true"));
    }
    Ok(response)
}
