//! The poison queue: tasks that ended poisoned or stuck, and what people do about them.

use super::body::{ErrorBody, FailureBody, List};
use super::cursor::Paging;
use super::problem::{Problem, Result};
use super::replay::{ReplayApproval, ReplayRequest, waits};
use super::request::{Body, Id, Params};
use super::task::known;
use super::{Api, Caller};
use axum::Json;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use windlass::domain::id::TaskId;
use windlass::domain::refusal::Refusal;
use windlass::domain::time::Timestamp;
use windlass::domain::trouble::{self, Event, Status};
use windlass::store::approval::Requested;
use windlass::store::trouble::{Act, Filter, Note, ORDER, Trouble};

/// How many failures are shown with an entry; `/v1/tasks/{id}/failures` has them all.
const FAILURES: i64 = 100;

/// A task that needs a person.
#[derive(Serialize, ToSchema)]
pub struct PoisonBody {
    task_id: Uuid,
    /// How it ended: `poisoned` or `stuck`.
    task_status: &'static str,
    queue: String,
    agent: Option<String>,
    /// `pending`, `investigating`, `resolved` or `abandoned`.
    status: &'static str,
    assignee: Option<String>,
    failure_count: i32,
    /// The last failure.
    error: Option<ErrorBody>,
    /// When the task ended.
    #[schema(value_type = String, format = DateTime)]
    entered_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    closed_at: Option<Timestamp>,
    /// The task that did the work after all.
    resolved_by_task: Option<Uuid>,
}

impl From<Trouble> for PoisonBody {
    fn from(trouble: Trouble) -> PoisonBody {
        PoisonBody {
            task_id: trouble.task_id.0,
            task_status: trouble.task_status.as_str(),
            queue: trouble.queue,
            agent: trouble.agent,
            status: trouble.status.as_str(),
            assignee: trouble.assignee,
            failure_count: trouble.failure_count,
            error: trouble.error.map(Into::into),
            entered_at: trouble.entered_at,
            updated_at: trouble.updated_at,
            closed_at: trouble.closed_at,
            resolved_by_task: trouble.resolved_by_task.map(|task| task.0),
        }
    }
}

/// What somebody did or noted.
#[derive(Serialize, ToSchema)]
pub struct NoteBody {
    id: Uuid,
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    author: String,
    /// `assign`, `investigate`, `note`, `resolve` or `abandon`.
    event: &'static str,
    note: Option<String>,
    /// Of `assign` and `investigate`: whose it was from then on.
    assignee: Option<String>,
}

impl From<Note> for NoteBody {
    fn from(note: Note) -> NoteBody {
        let Note { id, at, author, event, note, assignee } = note;
        NoteBody { id, at, author, event: event.as_str(), note, assignee }
    }
}

/// A task that needs a person, with everything that is known about it.
#[derive(Serialize, ToSchema)]
pub struct PoisonEntry {
    #[serde(flatten)]
    entry: PoisonBody,
    /// Oldest first.
    notes: Vec<NoteBody>,
    /// Every failure, oldest first; the first hundred.
    failures: Vec<FailureBody>,
}

/// Which entries.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct PoisonParams {
    /// One or several with commas between; pending and investigating unless given.
    status: Option<String>,
    assignee: Option<String>,
    queue: Option<String>,
    agent: Option<String>,
    /// `oldest` first unless `newest`; `asc` and `desc` say the same.
    order: Option<String>,
    /// 50 unless given, 1,000 at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// List tasks that need a person, oldest first.
#[utoipa::path(get, path = "/v1/poison", tag = "trouble",
    operation_id = "list_poison", params(PoisonParams),
    responses((status = 200, description = "A page", body = List<PoisonBody>)))]
pub async fn list(
    State(api): State<Api>,
    Params(params): Params<PoisonParams>,
) -> Result<Json<List<PoisonBody>>> {
    let (cursor, order) = (params.cursor.as_deref(), params.order.as_deref());
    let paging = Paging::new(ORDER, params.limit, cursor, order)?;
    let mut filter = Filter {
        assignee: params.assignee,
        queue: params.queue,
        agent: params.agent,
        ..Filter::default()
    };
    if let Some(names) = &params.status {
        let states = || Status::ALL.iter().map(|status| status.as_str());
        let statuses = names.split(',').map(|name| known("/status", name.trim(), states()));
        filter.status = statuses.collect::<Result<_>>()?;
    }
    Ok(Json(paging.list(api.engine.troubles().page(filter, paging.part()).await?)))
}

/// Show a task that needs a person: its failures, and what was done about it.
#[utoipa::path(get, path = "/v1/poison/{id}", tag = "trouble",
    operation_id = "show_poison", params(("id" = Uuid, Path, description = "The task's id")),
    responses((status = 200, description = "The entry", body = PoisonEntry)))]
pub async fn show(State(api): State<Api>, Id(id): Id<TaskId>) -> Result<Json<PoisonEntry>> {
    api.poison(id).await.map(Json)
}

impl Api {
    async fn poison(&self, id: TaskId) -> Result<PoisonEntry> {
        let found = self.engine.troubles().show(id).await?;
        let (entry, notes) = found.ok_or(Refusal::Unknown { what: "task in the poison queue" })?;
        let failures = self.engine.tasks().failures(id, 0, FAILURES).await?;
        Ok(PoisonEntry {
            entry: entry.into(),
            notes: notes.into_iter().map(Into::into).collect(),
            failures: failures.into_iter().map(Into::into).collect(),
        })
    }

    async fn act(&self, act: Act) -> Result<Json<PoisonEntry>> {
        let id = act.task;
        trouble::check(act.assignee.as_deref(), act.note.as_deref())?;
        self.engine.troubles().act(act).await?;
        self.poison(id).await.map(Json)
    }
}

/// Whose it is.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AssignRequest {
    /// Whose it is from now on.
    pub assignee: String,
    /// What there is to say.
    pub note: Option<String>,
}

/// Say whose it is.
#[utoipa::path(post, path = "/v1/poison/{id}/assign", tag = "trouble",
    operation_id = "assign_poison", params(("id" = Uuid, Path, description = "The task's id")),
    request_body = AssignRequest,
    responses((status = 200, description = "The entry", body = PoisonEntry)))]
pub async fn assign(
    State(api): State<Api>,
    Id(id): Id<TaskId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<AssignRequest>,
) -> Result<Json<PoisonEntry>> {
    let act = Act::new(id, Event::Assign, caller.actor);
    api.act(Act { assignee: Some(request.assignee), note: request.note, ..act }).await
}

/// Who takes it up.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InvestigateRequest {
    /// Whose it is from now on; whoever calls, unless it is somebody's already.
    pub assignee: Option<String>,
    /// What there is to say.
    pub note: Option<String>,
}

/// Take it up.
#[utoipa::path(post, path = "/v1/poison/{id}/investigate", tag = "trouble",
    operation_id = "investigate_poison",
    params(("id" = Uuid, Path, description = "The task's id")),
    request_body = InvestigateRequest,
    responses((status = 200, description = "The entry", body = PoisonEntry)))]
pub async fn investigate(
    State(api): State<Api>,
    Id(id): Id<TaskId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<InvestigateRequest>,
) -> Result<Json<PoisonEntry>> {
    let act = Act::new(id, Event::Investigate, caller.actor);
    api.act(Act { assignee: request.assignee, note: request.note, ..act }).await
}

/// What there is to say.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NoteRequest {
    pub note: String,
}

/// Append a note; also to what is closed.
#[utoipa::path(post, path = "/v1/poison/{id}/note", tag = "trouble",
    operation_id = "note_poison", params(("id" = Uuid, Path, description = "The task's id")),
    request_body = NoteRequest,
    responses((status = 200, description = "The entry", body = PoisonEntry)))]
pub async fn note(
    State(api): State<Api>,
    Id(id): Id<TaskId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<NoteRequest>,
) -> Result<Json<PoisonEntry>> {
    let act = Act::new(id, Event::Note, caller.actor);
    api.act(Act { note: Some(request.note), ..act }).await
}

/// How it was resolved.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResolveRequest {
    /// The task that did the work after all, such as a replay.
    resolved_by_task: Option<Uuid>,
    /// Replay the task now, and name the new one. If a person must agree first, the entry stays as
    /// it is until then, and is resolved in the transaction of the voice that approves.
    replay: Option<ReplayRequest>,
    /// What there is to say.
    note: Option<String>,
}

/// Close it: done. What nobody took up is taken up on the way.
#[utoipa::path(post, path = "/v1/poison/{id}/resolve", tag = "trouble",
    operation_id = "resolve_poison", params(("id" = Uuid, Path, description = "The task's id")),
    request_body = ResolveRequest,
    responses((status = 200, description = "The entry", body = PoisonEntry),
        (status = 202, description = "A person must agree to the replay first",
            body = ReplayApproval)))]
pub async fn resolve(
    State(api): State<Api>,
    Id(id): Id<TaskId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<ResolveRequest>,
) -> Result<Response> {
    let act = Act { note: request.note, ..Act::new(id, Event::Resolve, caller.actor.clone()) };
    let Some(replay) = request.replay else {
        let resolved_by_task = request.resolved_by_task.map(TaskId);
        return Ok(api.act(Act { resolved_by_task, ..act }).await?.into_response());
    };
    if request.resolved_by_task.is_some() {
        let detail = "excludes replay: the new task is the one that does the work";
        return Err(Problem::field("/resolved_by_task", "conflict", detail));
    }
    if replay.dry_run {
        let detail = "resolves nothing; ask for the plan at the task itself";
        return Err(Problem::field("/replay/dry_run", "not_allowed", detail));
    }
    trouble::check(None, act.note.as_deref())?;
    let replayed = api.replay(id, &replay, caller, Some(act)).await;
    match replayed.map_err(|problem| problem.within("/replay"))? {
        Requested::Waits(approval) => Ok(waits(*approval)),
        Requested::Task(..) => Ok(Json(api.poison(id).await?).into_response()),
    }
}

/// Why.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AbandonRequest {
    /// What there is to say.
    pub note: Option<String>,
}

/// Close it: nothing will be done. What nobody took up is taken up on the way.
#[utoipa::path(post, path = "/v1/poison/{id}/abandon", tag = "trouble",
    operation_id = "abandon_poison", params(("id" = Uuid, Path, description = "The task's id")),
    request_body = AbandonRequest,
    responses((status = 200, description = "The entry", body = PoisonEntry)))]
pub async fn abandon(
    State(api): State<Api>,
    Id(id): Id<TaskId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<AbandonRequest>,
) -> Result<Json<PoisonEntry>> {
    let act = Act::new(id, Event::Abandon, caller.actor);
    api.act(Act { note: request.note, ..act }).await
}
