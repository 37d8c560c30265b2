//! Workers' sessions: register, stream, claim, heartbeat, finish, close.

use super::Api;
use super::action::{failing, told};
use super::body::{AssignmentBody, List};
use super::correlation::{Correlated, Correlation, named};
use super::cursor::Paging;
use super::event::{keep_alive, sse};
use super::problem::{Problem, Result};
use super::request::{Body, Id, Params};
use super::submit::ItemError;
use axum::Json;
use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use windlass::Engine;
use windlass::domain::failure::TaskError;
use windlass::domain::id::{ChangeId, ClaimId, LeaseId, SessionId, TaskId};
use windlass::domain::profile::Kind;
use windlass::domain::refusal::Refusal;
use windlass::domain::time::Timestamp;
use windlass::domain::usage::Usage;
use windlass::domain::validate;
use windlass::engine::{self, Beat, ClaimRequest, SessionRequest, StreamEvent};
use windlass::store::session::{ORDER, Routes, Session, TTL_MS};
use windlass::store::task::{Finish, Finishing};

/// How long a claim may wait.
pub const MAX_WAIT_MS: i64 = 60_000;

/// A worker that wants to take part.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegisterRequest {
    /// Shown to people.
    name: String,
    /// An id of your own; the same id again is the same session.
    #[schema(value_type = Option<Uuid>)]
    id: Option<SessionId>,
    worker_type: Option<String>,
    #[serde(default)]
    queues: Vec<String>,
    #[serde(default)]
    pools: Vec<String>,
    #[serde(default)]
    llms: Vec<String>,
    #[serde(default)]
    models: Vec<String>,
    #[serde(default)]
    tiers: Vec<String>,
    /// Jobs and delegations, unless given.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    kinds: Vec<Kind>,
    /// How many tasks at once; 1 unless given or known by the type.
    slots: Option<i32>,
    /// The length of its leases; that of the kind unless given.
    lease_ms: Option<i64>,
}

/// A session.
#[derive(Serialize, ToSchema)]
#[allow(missing_docs)] // docs/http-api.md describes each field once.
pub struct SessionBody {
    pub id: Uuid,
    pub name: String,
    pub worker_type: Option<String>,
    pub queues: Vec<String>,
    pub pools: Vec<String>,
    pub llms: Vec<String>,
    pub models: Vec<String>,
    pub tiers: Vec<String>,
    #[schema(value_type = Vec<String>)]
    pub kinds: Vec<Kind>,
    pub slots: i32,
    pub lease_ms: Option<i64>,
    pub node: Option<Uuid>,
    pub stream_epoch: i64,
    pub ttl_ms: i64,
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub closed_at: Option<Timestamp>,
    pub close_reason: Option<String>,
}

impl From<Session> for SessionBody {
    fn from(session: Session) -> SessionBody {
        let Routes { queues, pools, llms, models, tiers, kinds } = session.routes;
        SessionBody {
            id: session.id.0,
            name: session.name,
            worker_type: session.worker_type,
            queues,
            pools,
            llms,
            models,
            tiers,
            kinds,
            slots: session.slots,
            lease_ms: session.lease_ms,
            node: session.node,
            stream_epoch: session.stream_epoch,
            ttl_ms: TTL_MS,
            expires_at: session.expires_at,
            created_at: session.created_at,
            closed_at: session.closed_at,
            close_reason: session.close_reason,
        }
    }
}

/// Register a worker.
#[utoipa::path(post, path = "/v1/sessions", tag = "sessions",
    operation_id = "register_session", request_body = RegisterRequest,
    responses((status = 201, description = "The session", body = SessionBody)))]
pub async fn register(
    State(api): State<Api>,
    Body(request): Body<RegisterRequest>,
) -> Result<impl IntoResponse> {
    if request.queues.is_empty() && request.pools.is_empty() {
        let detail = "is missing: say which queues or pools the worker takes tasks from";
        return Err(Problem::field("/queues", "required", detail));
    }
    let session = api.engine.register(SessionRequest {
        id: request.id,
        name: request.name,
        worker_type: request.worker_type,
        routes: Routes {
            queues: request.queues,
            pools: request.pools,
            llms: request.llms,
            models: request.models,
            tiers: request.tiers,
            kinds: request.kinds,
        },
        slots: request.slots,
        lease_ms: request.lease_ms,
    });
    Ok((StatusCode::CREATED, Json(SessionBody::from(session.await?))))
}

/// Which sessions.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// Also those that are closed.
    all: bool,
    /// `newest` first unless `oldest`; `desc` and `asc` say the same.
    order: Option<String>,
    /// 50 unless given, 1,000 at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// List sessions, newest first.
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions",
    operation_id = "list_sessions", params(ListParams),
    responses((status = 200, description = "A page", body = List<SessionBody>)))]
pub async fn list(
    State(api): State<Api>,
    Params(params): Params<ListParams>,
) -> Result<Json<List<SessionBody>>> {
    let (cursor, order) = (params.cursor.as_deref(), params.order.as_deref());
    let paging = Paging::new(ORDER, params.limit, cursor, order)?;
    Ok(Json(paging.list(api.engine.sessions().page(params.all, paging.part()).await?)))
}

/// Show a session.
#[utoipa::path(get, path = "/v1/sessions/{id}", tag = "sessions",
    operation_id = "show_session", params(("id" = Uuid, Path)),
    responses((status = 200, description = "The session", body = SessionBody)))]
pub async fn show(State(api): State<Api>, Id(id): Id<SessionId>) -> Result<Json<SessionBody>> {
    let session = api.engine.sessions().show(id).await?;
    let session = session.ok_or(windlass::engine::Error::UnknownSession(id))?;
    Ok(Json(session.into()))
}

/// How a stream is opened.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct StreamParams {
    /// `false`: the session claims by itself, and the stream only tells what is cancelled or lost;
    /// its end says that the worker is gone.
    assign: Option<bool>,
}

/// Open the session's stream: `assign`, `cancel` and `lost` events. An older stream ends.
#[utoipa::path(get, path = "/v1/sessions/{id}/stream", tag = "sessions",
    operation_id = "open_stream",
    params(("id" = Uuid, Path), StreamParams),
    responses((status = 200, description = "Events", body = String,
            content_type = "text/event-stream")))]
pub async fn stream(
    State(api): State<Api>,
    method: Method,
    Id(id): Id<SessionId>,
    Params(params): Params<StreamParams>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let known = Arc::clone(&api.correlations);
    let assignments = match params.assign {
        // HEAD comes here too, and only asks: to open a stream would end the one that is open.
        _ if method == Method::HEAD => {
            let _ = show(State(api), Id(id)).await?;
            None
        }
        Some(false) => Some(api.engine.open_presence(id).await?),
        _ => Some(api.engine.open_stream(id).await?),
    };
    let events = futures_util::stream::unfold((assignments, known), |(open, known)| async move {
        let mut assignments = open?;
        let event = match assignments.next().await? {
            StreamEvent::Assign(assignment) => {
                let shown = Correlation::of_tasks([named(&assignment.task)]);
                shown.iter().for_each(|shown| known.remember(shown));
                sse("assign", &AssignmentBody::from(*assignment))
            }
            StreamEvent::Cancel { task_id, lease_id } => {
                sse("cancel", &HeldRef { task_id, lease_id })
            }
            StreamEvent::Lost { task_id, lease_id } => sse("lost", &HeldRef { task_id, lease_id }),
        };
        Some((Ok(event), (Some(assignments), known)))
    });
    Ok(Sse::new(events).keep_alive(keep_alive()))
}

/// Like an item of a heartbeat's answer: a task may be assigned again under another lease, before
/// its worker learns that it had lost it.
#[derive(Serialize)]
struct HeldRef {
    task_id: TaskId,
    lease_id: LeaseId,
}

/// A worker asks for work.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimBody {
    /// At most so many; the session's slots are the bound.
    #[serde(default = "one")]
    max: i64,
    /// How long to wait when there are none; 60,000 at most.
    #[serde(default)]
    wait_ms: i64,
    /// Whether work begins at once; otherwise the task is `claimed` until it is started.
    #[serde(default = "yes")]
    start: bool,
    /// The call's id: the same id again returns what it already gave.
    #[schema(value_type = Option<Uuid>)]
    claim_id: Option<ClaimId>,
    /// Only these tasks, as far as they are ready and in the session's queues, and none if it is
    /// empty; nobody waits then.
    #[schema(value_type = Option<Vec<Uuid>>)]
    task_ids: Option<Vec<TaskId>>,
}

fn one() -> i64 {
    1
}

fn yes() -> bool {
    true
}

/// What a worker got.
#[derive(Serialize, ToSchema)]
pub struct ClaimAnswer {
    assignments: Vec<AssignmentBody>,
}

/// Take tasks; waits for some if there are none.
#[utoipa::path(post, path = "/v1/sessions/{id}/claim", tag = "sessions",
    operation_id = "claim_tasks",
    params(("id" = Uuid, Path)), request_body = ClaimBody,
    responses((status = 200, description = "What was taken; perhaps nothing", body = ClaimAnswer)))]
pub async fn claim(
    State(api): State<Api>,
    Id(id): Id<SessionId>,
    Body(request): Body<ClaimBody>,
) -> Result<Response> {
    let mut errors = validate::Errors::default();
    errors.range("/max", request.max, 1, validate::MAX_BATCH_ITEMS as i64);
    errors.range("/wait_ms", request.wait_ms, 0, MAX_WAIT_MS);
    errors.into_result()?;
    validate::batch("/task_ids", request.task_ids.as_ref().map_or(0, Vec::len), 0)?;
    let request = ClaimRequest {
        max: request.max as usize,
        wait: Duration::from_millis(request.wait_ms as u64),
        start: request.start,
        claim: request.claim_id,
        tasks: request.task_ids,
    };
    let taken = api.engine.claim(id, request).await?;
    let correlation = Correlation::of_tasks(taken.iter().map(|held| named(&held.task)));
    let assignments = taken.into_iter().map(Into::into).collect();
    Ok(Correlation::upon(correlation, Json(ClaimAnswer { assignments }).into_response()))
}

/// A lease that is still needed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseBody {
    #[schema(value_type = Uuid)]
    task_id: TaskId,
    #[schema(value_type = Uuid)]
    lease_id: LeaseId,
    /// Left out: the last one stays.
    checkpoint: Option<Value>,
    /// Left out: the last one stays.
    progress: Option<Value>,
}

/// A sign of life of a session.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SessionHeartbeat)]
pub struct HeartbeatRequest {
    /// Only these are renewed.
    leases: Option<Vec<LeaseBody>>,
}

/// A task under one lease, as the heartbeat named it.
#[derive(Serialize, ToSchema)]
pub struct Leased {
    task_id: Uuid,
    lease_id: Uuid,
}

impl From<engine::Leased> for Leased {
    fn from(leased: engine::Leased) -> Leased {
        Leased { task_id: leased.task.0, lease_id: leased.lease.0 }
    }
}

/// A lease that holds on.
#[derive(Serialize, ToSchema)]
pub struct Renewed {
    #[serde(flatten)]
    lease: Leased,
    #[schema(value_type = Option<String>, format = DateTime)]
    lease_expires_at: Option<Timestamp>,
}

/// A lease whose item could not be stored.
#[derive(Serialize, ToSchema)]
pub struct Unrenewed {
    #[serde(flatten)]
    lease: Leased,
    error: ItemError,
}

/// What became of the leases.
#[derive(Serialize, ToSchema)]
pub struct HeartbeatAnswer {
    renewed: Vec<Renewed>,
    /// Stop working on these: they were cancelled.
    cancelled: Vec<Leased>,
    /// Stop working on these: they are somebody else's.
    lost: Vec<Leased>,
    /// These could not be renewed; try again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failed: Vec<Unrenewed>,
    /// Held, but not named: perhaps the answer of a claim was lost. 100 at most, fewer if they are
    /// large; the next heartbeat, if it names these, tells the rest.
    unnamed: Vec<AssignmentBody>,
}

/// Renew a session and the leases that are named.
#[utoipa::path(post, path = "/v1/sessions/{id}/heartbeat", tag = "sessions",
    operation_id = "heartbeat_session",
    params(("id" = Uuid, Path)), request_body = HeartbeatRequest,
    responses((status = 200, description = "What became of the leases", body = HeartbeatAnswer)))]
pub async fn heartbeat(
    State(api): State<Api>,
    Id(id): Id<SessionId>,
    Body(request): Body<HeartbeatRequest>,
) -> Result<(Correlated, Json<HeartbeatAnswer>)> {
    let leases = request.leases.unwrap_or_default();
    validate::batch("/leases", leases.len(), 0)?;
    let mut beats = Vec::with_capacity(leases.len());
    for (index, lease) in leases.into_iter().enumerate() {
        let within = |refusal: Refusal| validate::within(&format!("/leases/{index}"), refusal);
        let checkpoint = lease.checkpoint.as_ref().map(validate::checkpoint).transpose();
        let progress = lease.progress.as_ref().map(validate::progress).transpose();
        beats.push(Beat {
            task: lease.task_id,
            lease: lease.lease_id,
            checkpoint: checkpoint.map_err(within)?,
            progress: progress.map_err(within)?,
        });
    }
    let correlation = api.correlations.of(beats.iter().map(|beat| beat.task));
    let answer = api.engine.heartbeat(id, beats).await?;
    let renewed = answer.renewed.into_iter();
    let failed = answer.failed.into_iter();
    let answer = HeartbeatAnswer {
        renewed: renewed
            .map(|(lease, lease_expires_at)| Renewed { lease: lease.into(), lease_expires_at })
            .collect(),
        cancelled: answer.cancelled.into_iter().map(Into::into).collect(),
        lost: answer.lost.into_iter().map(Into::into).collect(),
        failed: failed
            .map(|(lease, why)| Unrenewed { lease: lease.into(), error: Problem::from(why).into() })
            .collect(),
        unnamed: answer.unnamed.into_iter().map(Into::into).collect(),
    };
    Ok((correlation, Json(answer)))
}

/// How an attempt ended.
#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeName {
    /// With a result.
    Complete,
    /// With an error.
    Fail,
    /// Unfinished; somebody else may take the task.
    Release,
}

/// The end of one attempt.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FinishItem {
    #[schema(value_type = Uuid)]
    task_id: TaskId,
    #[schema(value_type = Uuid)]
    lease_id: LeaseId,
    outcome: OutcomeName,
    result: Option<Value>,
    #[schema(value_type = Option<super::body::TaskErrorBody>)]
    error: Option<TaskError>,
    retry_after_ms: Option<i64>,
    /// What the attempt took: whole numbers by name.
    #[schema(value_type = Option<super::body::UsageBody>)]
    usage: Option<Value>,
}

impl FinishItem {
    fn finishing(&self, engine: &Engine) -> Result<(Finishing, Option<Usage>)> {
        let usage = told(self.usage.as_ref())?;
        let how = match (self.outcome, &self.error) {
            (OutcomeName::Complete, None) => {
                let result =
                    self.result.as_ref().map(|result| engine.result(result)).transpose()?;
                Finishing::Complete(result)
            }
            (OutcomeName::Fail, Some(error)) if self.result.is_none() => {
                failing(error.clone(), self.retry_after_ms)?
            }
            (OutcomeName::Fail, None) => {
                let detail = "is missing: say what went wrong";
                return Err(Problem::field("/error", "required", detail));
            }
            (OutcomeName::Release, None) if self.result.is_none() && usage.is_none() => {
                Finishing::Release
            }
            _ => {
                let detail = "a result belongs to complete, an error to fail, a usage to both";
                return Err(Problem::field("/outcome", "conflict", detail));
            }
        };
        Ok((how, usage))
    }
}

/// The ends of many attempts.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FinishRequest {
    /// At most 1,000.
    items: Vec<FinishItem>,
}

/// What became of one.
#[derive(Serialize, ToSchema)]
pub struct FinishResult {
    task_id: Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ItemError>,
}

/// What became of each, in order.
#[derive(Serialize, ToSchema)]
pub struct FinishAnswer {
    results: Vec<FinishResult>,
}

/// Finish many tasks; each has its own outcome.
#[utoipa::path(post, path = "/v1/sessions/{id}/finish", tag = "sessions",
    operation_id = "finish_tasks",
    params(("id" = Uuid, Path)), request_body = FinishRequest,
    responses((status = 200, description = "What became of each", body = FinishAnswer)))]
pub async fn finish(
    State(api): State<Api>,
    Id(id): Id<SessionId>,
    Body(request): Body<FinishRequest>,
) -> Result<(Correlated, Json<FinishAnswer>)> {
    validate::batch("/items", request.items.len(), 0)?;
    // A result is taken whatever became of the session: the lease decides.
    if let Err(error) = api.engine.touch(id).await {
        tracing::debug!(session = %id, %error, "a finish came from a session that is gone");
    }
    let mut results = Vec::with_capacity(request.items.len());
    let mut finishes = Vec::with_capacity(request.items.len());
    for (index, item) in request.items.iter().enumerate() {
        let task_id = item.task_id.0;
        let error = match item.finishing(&api.engine) {
            Ok((how, usage)) => {
                finishes.push(Finish {
                    task: item.task_id,
                    lease: item.lease_id,
                    how,
                    usage,
                    actor: id.to_string(),
                    reason: None,
                    change: ChangeId(Uuid::now_v7()),
                });
                None
            }
            Err(problem) => Some(problem.within(&format!("/items/{index}")).into()),
        };
        results.push(FinishResult { task_id, status: None, error });
    }
    let mut outcomes = api.engine.finish(finishes).await.into_iter();
    for result in results.iter_mut().filter(|result| result.error.is_none()) {
        match outcomes.next() {
            Some(Ok(state)) => result.status = Some(state.as_str()),
            Some(Err(rejection)) => result.error = Some(Problem::from(rejection).into()),
            None => result.error = Some(Problem::internal(&"no outcome").into()),
        }
    }
    let correlation = api.correlations.of(request.items.iter().map(|item| item.task_id));
    Ok((correlation, Json(FinishAnswer { results })))
}

/// Close a session gracefully: what it held goes back.
#[utoipa::path(delete, path = "/v1/sessions/{id}", tag = "sessions",
    operation_id = "close_session", params(("id" = Uuid, Path)),
    responses((status = 204, description = "Closed; what it held is in line again")))]
pub async fn close(State(api): State<Api>, Id(id): Id<SessionId>) -> Result<StatusCode> {
    api.engine.close_session(id).await?;
    Ok(StatusCode::NO_CONTENT)
}
