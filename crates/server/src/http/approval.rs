//! Approvals: asking, reading, deciding, and tokens for approvers without a key.
//!
//! Invariant: a token is in the answer to whoever issued it and in no other answer. Who decides is
//! who the credential says, never what a body says.

use super::body::List;
use super::cursor::Paging;
use super::problem::{Problem, Result};
use super::request::{Body, Id, Params};
use super::task::known;
use super::{Api, Caller};
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use windlass::domain::approval::{Choice, QuestionRequest, Refused, Status};
use windlass::domain::id::{ApprovalId, LeaseId, TaskId};
use windlass::domain::refusal::Refusal;
use windlass::domain::show;
use windlass::domain::time::Timestamp;
use windlass::domain::validate;
use windlass::engine::{ApprovalRequest, By, DecisionRequest};
use windlass::store::approval::{Approval, Filter, ORDER, Vote};

/// What would be done, as a person may be shown it: on one line, with escapes for everything that
/// hides or turns what stands beside it.
#[derive(Debug, Serialize, ToSchema)]
pub struct DisplayBody {
    /// The action.
    pub action: String,
    /// The canonical arguments; still the same JSON.
    pub arguments: String,
}

/// What somebody said.
#[derive(Debug, Serialize, ToSchema)]
#[allow(missing_docs)] // docs/approvals.md describes each field once.
pub struct VoteBody {
    pub actor: String,
    /// `approve` or `deny`.
    pub decision: String,
    pub comment: Option<String>,
    /// `key` or `token`.
    pub via: String,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// A question to people.
#[derive(Debug, Serialize, ToSchema)]
#[allow(missing_docs)] // docs/approvals.md describes each field once.
pub struct ApprovalBody {
    pub id: Uuid,
    pub task_id: Uuid,
    /// `gate` or `replay`.
    pub kind: String,
    pub gate: String,
    pub action: String,
    pub arguments: Value,
    pub display: DisplayBody,
    /// Of action and arguments: name it in a decision.
    pub digest: String,
    pub occurrence: i64,
    /// `open`, `approved`, `denied`, `expired` or `withdrawn`.
    pub status: String,
    /// How many must approve.
    pub required: i64,
    /// How many have approved.
    pub approvals: i64,
    pub requested_by: String,
    /// What is carried out when it is approved, if no task waits for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Value>,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub decided_at: Option<Timestamp>,
    /// Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub votes: Option<Vec<VoteBody>>,
}

impl From<Approval> for ApprovalBody {
    fn from(approval: Approval) -> ApprovalBody {
        let display = DisplayBody {
            action: show::text(&approval.action),
            arguments: show::json(&approval.arguments),
        };
        ApprovalBody {
            id: approval.id.0,
            task_id: approval.task_id.0,
            kind: approval.kind.to_string(),
            gate: approval.gate,
            action: approval.action,
            arguments: serde_json::from_str(&approval.arguments).unwrap_or_default(),
            display,
            digest: approval.digest,
            occurrence: approval.occurrence,
            status: approval.status.to_string(),
            required: approval.required,
            approvals: approval.approvals,
            requested_by: approval.requested_by,
            request: approval.request,
            created_at: approval.created_at,
            expires_at: approval.expires_at,
            decided_at: approval.decided_at,
            votes: None,
        }
    }
}

impl From<Vote> for VoteBody {
    fn from(vote: Vote) -> VoteBody {
        VoteBody {
            actor: vote.actor,
            decision: vote.choice.to_string(),
            comment: vote.comment,
            via: vote.via,
            at: vote.at,
        }
    }
}

/// A worker asks.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AskRequest {
    #[schema(value_type = Uuid)]
    lease_id: LeaseId,
    /// The name of the place where the task stops.
    gate: String,
    /// What would be done.
    action: String,
    /// With what; any JSON of 64 KiB at most.
    #[serde(default)]
    arguments: Value,
    /// Until when somebody must decide; for ever unless given.
    expires_ms: Option<i64>,
    /// How many people must approve; 1 unless given.
    approvers: Option<i64>,
    /// Which repetition of the same question this is; 0 unless given.
    occurrence: Option<i64>,
    /// Kept with the question; left out, the last one stays.
    checkpoint: Option<Value>,
}

/// The answer to a question.
#[derive(Serialize, ToSchema)]
pub struct AskAnswer {
    approval: ApprovalBody,
    /// `open`: the task is parked, and the lease is gone. `approved`: go on.
    #[schema(value_type = String)]
    status: &'static str,
}

/// Ask people before going on. The task parks, unless the same was approved before.
#[utoipa::path(post, path = "/v1/tasks/{id}/approvals", tag = "approvals",
    operation_id = "ask_approval", params(("id" = Uuid, Path)),
    request_body = AskRequest,
    responses((status = 200, description = "The question, open or approved", body = AskAnswer)))]
pub async fn ask(
    State(api): State<Api>,
    Id(task): Id<TaskId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<AskRequest>,
) -> Result<Json<AskAnswer>> {
    let checkpoint = request.checkpoint.as_ref().map(validate::checkpoint).transpose()?;
    let asked = api.engine.ask_approval(ApprovalRequest {
        task,
        lease: request.lease_id,
        question: QuestionRequest {
            gate: request.gate,
            action: request.action,
            arguments: request.arguments,
            expires_ms: request.expires_ms,
            approvers: request.approvers,
            occurrence: request.occurrence,
        },
        checkpoint,
        // Without keys everybody has the same name; the worker's session has its own.
        requester: Some(caller.principal).filter(|name| !name.is_empty()),
        actor: caller.actor,
    });
    let asked = asked.await?;
    let status = if asked.parked { Status::Open } else { Status::Approved }.as_str();
    Ok(Json(AskAnswer { approval: asked.approval.into(), status }))
}

/// Which approvals.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ApprovalParams {
    /// open, approved, denied, expired or withdrawn.
    status: Option<String>,
    task_id: Option<Uuid>,
    gate: Option<String>,
    /// `newest` first unless `oldest`; `desc` and `asc` say the same.
    order: Option<String>,
    /// 50 unless given, 1,000 at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// List approvals, newest first.
#[utoipa::path(get, path = "/v1/approvals", tag = "approvals",
    operation_id = "list_approvals", params(ApprovalParams),
    responses((status = 200, description = "A page", body = List<ApprovalBody>)))]
pub async fn list(
    State(api): State<Api>,
    Params(params): Params<ApprovalParams>,
) -> Result<Json<List<ApprovalBody>>> {
    let (cursor, order) = (params.cursor.as_deref(), params.order.as_deref());
    let paging = Paging::new(ORDER, params.limit, cursor, order)?;
    let names = Status::ALL.iter().map(|status| status.as_str());
    let status = params.status.as_deref().map(|name| known("/status", name, names)).transpose()?;
    let filter = Filter { status, task_id: params.task_id.map(TaskId), gate: params.gate };
    Ok(Json(paging.list(api.engine.approvals().page(filter, paging.part()).await?)))
}

/// Show an approval and what people said.
#[utoipa::path(get, path = "/v1/approvals/{id}", tag = "approvals",
    operation_id = "show_approval", params(("id" = Uuid, Path)),
    responses((status = 200, description = "The approval", body = ApprovalBody)))]
pub async fn show(State(api): State<Api>, Id(id): Id<ApprovalId>) -> Result<Json<ApprovalBody>> {
    Ok(Json(shown(&api, id).await?))
}

async fn shown(api: &Api, id: ApprovalId) -> Result<ApprovalBody> {
    let found = api.engine.approvals().show(id).await?;
    let (approval, votes) = found.ok_or_else(|| Refusal::from(Refused::UnknownApproval))?;
    let votes = votes.into_iter().map(Into::into).collect();
    Ok(ApprovalBody { votes: Some(votes), ..approval.into() })
}

/// Why, and about what.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VoteRequest {
    /// For the history; 1,000 characters at most.
    comment: Option<String>,
    /// The digest of what you saw; another one is refused.
    digest: Option<String>,
}

/// Approve, as an operator.
#[utoipa::path(post, path = "/v1/approvals/{id}/approve", tag = "approvals",
    operation_id = "approve", params(("id" = Uuid, Path)),
    request_body = VoteRequest,
    responses((status = 200, description = "The approval as it stands", body = ApprovalBody)))]
pub async fn approve(
    State(api): State<Api>,
    Id(id): Id<ApprovalId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<VoteRequest>,
) -> Result<Json<ApprovalBody>> {
    vote(&api, id, caller, request, Choice::Approve).await
}

/// Deny, as an operator: the task fails.
#[utoipa::path(post, path = "/v1/approvals/{id}/deny", tag = "approvals",
    operation_id = "deny", params(("id" = Uuid, Path)),
    request_body = VoteRequest,
    responses((status = 200, description = "The approval as it stands", body = ApprovalBody)))]
pub async fn deny(
    State(api): State<Api>,
    Id(id): Id<ApprovalId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<VoteRequest>,
) -> Result<Json<ApprovalBody>> {
    vote(&api, id, caller, request, Choice::Deny).await
}

async fn vote(
    api: &Api,
    approval: ApprovalId,
    caller: Caller,
    request: VoteRequest,
    choice: Choice,
) -> Result<Json<ApprovalBody>> {
    let by = By::Operator { approval, actor: caller.actor };
    let VoteRequest { comment, digest } = request;
    decided(api, DecisionRequest { by, choice, comment, digest }).await
}

async fn decided(api: &Api, request: DecisionRequest) -> Result<Json<ApprovalBody>> {
    let decided = api.engine.decide_approval(request).await?;
    Ok(Json(shown(api, decided.approval.id).await?))
}

/// A decision by whoever has the token.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DecideRequest {
    /// It names the approval and the approver.
    token: String,
    /// `approve` or `deny`.
    decision: String,
    /// For the history; 1,000 characters at most.
    comment: Option<String>,
    /// The digest of what you saw; another one is refused.
    digest: Option<String>,
}

/// Decide by a token alone; no key is needed.
#[utoipa::path(post, path = "/v1/approvals/decide", tag = "approvals",
    operation_id = "decide_by_token", request_body = DecideRequest,
    responses((status = 200, description = "The approval as it stands", body = ApprovalBody)))]
pub async fn decide(
    State(api): State<Api>,
    Body(request): Body<DecideRequest>,
) -> Result<Json<ApprovalBody>> {
    let names = Choice::ALL.iter().map(|choice| choice.as_str());
    let choice = known("/decision", &request.decision, names)?;
    let DecideRequest { token, comment, digest, .. } = request;
    decided(&api, DecisionRequest { by: By::Token(token), choice, comment, digest }).await
}

/// Whom a token is for.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// The name under which the decision counts.
    approver: String,
    /// How long it is good; a day unless given, and no longer than the question.
    expires_ms: Option<i64>,
}

/// A token. This answer is the only place where it stands.
#[derive(Serialize, ToSchema)]
pub struct TokenAnswer {
    approval_id: Uuid,
    approver: String,
    token: String,
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
}

/// Issue a token to an approver. The approver's token before it is good no longer.
#[utoipa::path(post, path = "/v1/approvals/{id}/tokens", tag = "approvals",
    operation_id = "issue_token", params(("id" = Uuid, Path)),
    request_body = TokenRequest,
    responses((status = 201, description = "The token", body = TokenAnswer)))]
pub async fn token(
    State(api): State<Api>,
    Id(id): Id<ApprovalId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<TokenRequest>,
) -> Result<(StatusCode, Json<TokenAnswer>)> {
    let TokenRequest { approver, expires_ms } = request;
    let issued = api.engine.issue_token(id, &approver, expires_ms, &caller.actor).await?;
    let answer = TokenAnswer {
        approval_id: issued.approval.id.0,
        approver: issued.approver,
        token: issued.token.reveal(),
        expires_at: issued.expires_at,
    };
    Ok((StatusCode::CREATED, Json(answer)))
}

/// What the routes with an id are about, as the audit names it.
const SUBJECTS: [(&str, &str); 6] = [
    ("/v1/approvals/{id}", "approval"),
    ("/v1/tasks/{id}", "task"),
    ("/v1/poison/{id}", "task"),
    ("/v1/dead-letters/{id}", "message"),
    ("/v1/alerts/{id}", "alert"),
    ("/v1/steps/{id}", "step"),
];

/// What a refused call was about: an entry of the audit is found by it.
fn subject(route: &str, path: &str) -> Option<(&'static str, Uuid)> {
    let (start, name) = SUBJECTS.into_iter().find(|(start, _)| route.starts_with(start))?;
    let id = path.split('/').nth(start.split('/').count() - 1)?;
    Some((name, Uuid::try_parse(id).ok()?))
}

/// The answer to a key without the right; it is audited.
pub(super) async fn forbidden(
    api: &Api,
    caller: &Caller,
    method: &Method,
    route: &str,
    path: &str,
) -> Problem {
    let mut detail = serde_json::json!({ "route": format!("{method} {route}") });
    detail["code"] = "forbidden".into();
    if let Some((name, id)) = subject(route, path) {
        detail[name] = id.to_string().into();
    }
    if let Err(error) = api.engine.audit().write(&caller.actor, "forbidden", detail).await {
        tracing::warn!(%error, "a refusal could not be audited");
    }
    let detail = "a worker's key cannot do this; use an operator's key";
    Problem::new(StatusCode::FORBIDDEN, "forbidden", detail)
}
