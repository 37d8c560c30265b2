//! Tasks: submit, list, show, wait, cancel.

use super::body::{FailureBody, HistoryBody, List, TaskBody};
use super::middleware::Correlation;
use super::problem::{Field, Problem, Result};
use super::request::{Body, Id, Params, typed};
use super::{Api, Caller, cursor};
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use windlass::domain::id::TaskId;
use windlass::domain::refusal::Refusal;
use windlass::domain::request::SubmitRequest;
use windlass::domain::state::State as TaskState;
use windlass::domain::task::NewTask;
use windlass::domain::time::Timestamp;
use windlass::domain::validate;
use windlass::store::group::Outcome;
use windlass::store::task::{Cursor, Filter, Order, Submitted, Task};

const DUPLICATE: HeaderName = HeaderName::from_static("windlass-duplicate");
const PAYLOAD_DIFFERS: HeaderName = HeaderName::from_static("windlass-payload-differs");
const WAIT: HeaderName = HeaderName::from_static("windlass-wait");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const WAIT_MS: i64 = 30_000;
const MAX_WAIT_MS: i64 = 300_000;

/// A task as an answer, with what the log needs.
pub(super) fn answer(status: StatusCode, task: Task) -> Response {
    let correlation = task.correlation_id.clone();
    let mut response = (status, Json(TaskBody::from(task))).into_response();
    if let Some(correlation) = correlation {
        response.extensions_mut().insert(Correlation(correlation));
    }
    response
}

impl Api {
    pub(super) async fn task(&self, id: TaskId) -> Result<Task> {
        let found = self.engine.tasks().show(id).await?;
        found.ok_or_else(|| Refusal::UnknownTask.into())
    }
}

/// A new task. `queue` may be left out when `agent`, `callee` or `pool` says where it goes.
#[derive(ToSchema)]
#[schema(as = NewTask)]
#[allow(dead_code)] // The document's view of `SubmitRequest`, compared with it by a test.
pub struct NewTaskBody {
    queue: Option<String>,
    payload: Option<serde_json::Value>,
    kind: Option<String>,
    mode: Option<String>,
    name: Option<String>,
    id: Option<Uuid>,
    idempotency_key: Option<String>,
    agent: Option<String>,
    venture: Option<String>,
    portfolio: Option<String>,
    stage: Option<String>,
    owner: Option<String>,
    caller: Option<String>,
    callee: Option<String>,
    pool: Option<String>,
    llm: Option<String>,
    model: Option<String>,
    tier: Option<String>,
    priority: Option<i32>,
    tags: Option<std::collections::BTreeMap<String, String>>,
    #[schema(value_type = Option<String>, format = DateTime)]
    run_at: Option<String>,
    delay_ms: Option<i64>,
    #[schema(value_type = Option<String>, format = DateTime)]
    deadline_at: Option<String>,
    deadline_ms: Option<i64>,
    max_retries: Option<i32>,
    backoff: Option<serde_json::Value>,
    parent_id: Option<Uuid>,
    correlation_id: Option<String>,
}

/// How a submit is meant.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SubmitParams {
    /// Only says whether the task would be taken.
    #[serde(default)]
    dry_run: bool,
}

/// Submit a task.
#[utoipa::path(post, path = "/v1/tasks", tag = "tasks", params(SubmitParams),
    request_body = NewTaskBody,
    responses(
        (status = 201, description = "The task was taken", body = TaskBody),
        (status = 200, description = "It had been taken before, or it was a dry run", body = TaskBody),
        (status = "default", description = "Refused", body = Problem,
            content_type = "application/problem+json")))]
pub async fn submit(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<SubmitParams>,
    headers: HeaderMap,
    Body(mut request): Body<SubmitRequest>,
) -> Result<Response> {
    take_key(&mut request, &headers)?;
    let task = new_task(&request, &caller)?;
    if params.dry_run {
        return Ok(Json(serde_json::json!({ "admitted": true })).into_response());
    }
    let outcome = api.engine.submit(vec![task]).await.pop();
    let submitted = outcome.ok_or_else(|| Problem::from(no_outcome()))??;
    let task = api.task(submitted.id).await?;
    let status = if submitted.duplicate { StatusCode::OK } else { StatusCode::CREATED };
    let mut response = answer(status, task);
    if submitted.duplicate {
        response.headers_mut().insert(DUPLICATE, HeaderValue::from_static("true"));
    }
    if submitted.payload_differs {
        response.headers_mut().insert(PAYLOAD_DIFFERS, HeaderValue::from_static("true"));
    }
    Ok(response)
}

fn no_outcome() -> windlass::store::error::Error {
    let detail = "an item got no outcome".into();
    windlass::store::error::Error::Internal { operation: "submit".into(), detail }
}

/// The header is the same as the field; both must agree.
fn take_key(request: &mut SubmitRequest, headers: &HeaderMap) -> Result<()> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(()) };
    let pointer = "/idempotency_key";
    let key = value
        .to_str()
        .map_err(|_| Problem::field(pointer, "bad_character", "the header must be plain ASCII"))?;
    match &request.idempotency_key {
        Some(given) if given != key => {
            let detail = "differs from the header Idempotency-Key; give one of them";
            Err(Problem::field(pointer, "conflict", detail))
        }
        _ => {
            request.idempotency_key = Some(key.to_owned());
            Ok(())
        }
    }
}

fn new_task(request: &SubmitRequest, caller: &Caller) -> Result<NewTask, Refusal> {
    let id = request.id.unwrap_or_else(|| TaskId(Uuid::now_v7()));
    validate::new_task(request, id, &caller.principal, &caller.actor)
}

/// Many tasks at once.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchRequest {
    /// At most 1,000.
    #[schema(value_type = Vec<NewTaskBody>)]
    tasks: Vec<serde_json::Value>,
    /// All or none, unless false.
    atomic: Option<bool>,
}

/// What became of one task of a batch.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct BatchResult {
    /// The task.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Uuid>,
    /// Where it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    /// It existed before.
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicate: Option<bool>,
    /// Why it was not taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ItemError>,
}

/// Why one item was refused.
#[derive(Debug, Serialize, ToSchema)]
pub struct ItemError {
    /// What programs decide by.
    pub code: &'static str,
    /// The HTTP status that it would have alone.
    pub status: u16,
    /// What was wrong and what to do.
    pub detail: String,
    /// Everything that is wrong with its fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Field>,
}

impl From<Problem> for ItemError {
    fn from(problem: Problem) -> ItemError {
        let Problem { code, status, detail, errors, .. } = problem;
        ItemError { code, status, detail, errors }
    }
}

/// The outcomes of a batch, in order.
#[derive(Debug, Serialize, ToSchema)]
pub struct BatchAnswer {
    results: Vec<BatchResult>,
}

impl From<Submitted> for BatchResult {
    fn from(submitted: Submitted) -> BatchResult {
        BatchResult {
            id: Some(submitted.id.0),
            status: Some(submitted.status.as_str()),
            duplicate: Some(submitted.duplicate),
            error: None,
        }
    }
}

impl From<Problem> for BatchResult {
    fn from(problem: Problem) -> BatchResult {
        BatchResult { error: Some(problem.into()), ..BatchResult::default() }
    }
}

/// Submit many tasks.
#[utoipa::path(post, path = "/v1/tasks/batch", tag = "tasks", request_body = BatchRequest,
    responses(
        (status = 201, description = "All were taken", body = BatchAnswer),
        (status = 200, description = "Each has its own outcome", body = BatchAnswer),
        (status = "default", description = "Refused; nothing was taken", body = Problem,
            content_type = "application/problem+json")))]
pub async fn submit_batch(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Body(batch): Body<BatchRequest>,
) -> Result<Response> {
    validate::batch("/tasks", batch.tasks.len(), 0)?;
    let tasks = batch.tasks.into_iter().enumerate().map(|(index, value)| {
        let prefix = format!("/tasks/{index}");
        let within = |mut problem: Problem| {
            problem.errors.iter_mut().for_each(|field| field.pointer.insert_str(0, &prefix));
            problem
        };
        let request: SubmitRequest = typed(value).map_err(within)?;
        new_task(&request, &caller).map_err(|refusal| validate::within(&prefix, refusal).into())
    });
    if batch.atomic.unwrap_or(true) {
        let tasks = tasks.collect::<Vec<Result<NewTask>>>();
        return submit_atomic(&api, tasks).await;
    }
    let mut results: Vec<Option<BatchResult>> = Vec::new();
    let mut good = Vec::new();
    for task in tasks {
        match task {
            Ok(task) => {
                good.push(task);
                results.push(None);
            }
            Err(problem) => results.push(Some(problem.into())),
        }
    }
    let mut outcomes = api.engine.submit(good).await.into_iter();
    let mut outcome = || match outcomes.next() {
        Some(Ok(submitted)) => submitted.into(),
        Some(Err(rejection)) => Problem::from(rejection).into(),
        None => Problem::from(no_outcome()).into(),
    };
    let results = results.into_iter().map(|known| known.unwrap_or_else(&mut outcome)).collect();
    Ok((StatusCode::OK, Json(BatchAnswer { results })).into_response())
}

async fn submit_atomic(api: &Api, tasks: Vec<Result<NewTask>>) -> Result<Response> {
    let mut wrong = tasks.iter().filter_map(|task| task.as_ref().err());
    if let Some(first) = wrong.next() {
        // All that is wrong, at once.
        let mut problem = first.clone();
        problem.errors.extend(wrong.flat_map(|other| other.errors.iter().cloned()));
        return Err(problem);
    }
    let tasks: Vec<NewTask> = tasks.into_iter().filter_map(Result::ok).collect();
    match api.engine.submit_atomic(tasks).await {
        Ok(submitted) => {
            let results = submitted.into_iter().map(Into::into).collect();
            Ok((StatusCode::CREATED, Json(BatchAnswer { results })).into_response())
        }
        Err((index, rejection)) => {
            let mut problem = Problem::from(rejection);
            if problem.status < 500 {
                let (code, detail) = (problem.code.to_owned(), problem.detail.clone());
                let pointer = format!("/tasks/{index}");
                problem.errors = vec![Field { pointer, code, detail }];
            }
            Err(problem)
        }
    }
}

/// Which tasks.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// One state, or several with commas between.
    status: Option<String>,
    /// job, delegation or inference.
    kind: Option<String>,
    queue: Option<String>,
    agent: Option<String>,
    venture: Option<String>,
    portfolio: Option<String>,
    stage: Option<String>,
    owner: Option<String>,
    caller: Option<String>,
    callee: Option<String>,
    pool: Option<String>,
    parent_id: Option<Uuid>,
    replay_of: Option<Uuid>,
    correlation_id: Option<String>,
    /// `key:value`.
    tag: Option<String>,
    name: Option<String>,
    /// Only those that are claimed or running.
    in_flight: Option<bool>,
    /// Created at or after; RFC 3339.
    #[param(value_type = Option<String>, format = DateTime)]
    since: Option<Timestamp>,
    /// Created before; RFC 3339.
    #[param(value_type = Option<String>, format = DateTime)]
    until: Option<Timestamp>,
    /// `newest` first, or `oldest` first.
    order: Option<String>,
    /// 50 unless given, 1,000 at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

impl ListParams {
    fn filter(&self) -> Result<Filter> {
        let mut status = Vec::new();
        for name in self.status.iter().flat_map(|names| names.split(',')) {
            status.push(known("/status", name, &TaskState::ALL.map_names())?);
        }
        if self.in_flight == Some(true) {
            let held = TaskState::ALL.iter().copied().filter(|state| state.is_held());
            status = match status.is_empty() {
                true => held.collect(),
                false => held.filter(|state| status.contains(state)).collect(),
            };
        }
        let kinds = ["job", "delegation", "inference"].map(str::to_owned);
        let kind = self.kind.as_deref().map(|kind| known("/kind", kind, &kinds)).transpose()?;
        let tag = self.tag.as_deref().map(|tag| {
            let pair = tag.split_once(':');
            let pair = pair.map(|(key, value)| (key.to_owned(), value.to_owned()));
            pair.ok_or_else(|| Problem::field("/tag", "wrong_type", "is written key:value"))
        });
        Ok(Filter {
            status,
            kind,
            queue: self.queue.clone(),
            agent: self.agent.clone(),
            venture: self.venture.clone(),
            portfolio: self.portfolio.clone(),
            stage: self.stage.clone(),
            owner: self.owner.clone(),
            caller: self.caller.clone(),
            callee: self.callee.clone(),
            pool: self.pool.clone(),
            parent_id: self.parent_id.map(TaskId),
            replay_of: self.replay_of.map(TaskId),
            correlation_id: self.correlation_id.clone(),
            name: self.name.clone(),
            tag: tag.transpose()?,
            since: self.since,
            until: self.until,
        })
    }
}

/// The names of a list of states.
trait MapNames {
    fn map_names(&self) -> Vec<String>;
}

impl MapNames for [TaskState] {
    fn map_names(&self) -> Vec<String> {
        self.iter().map(|state| state.as_str().to_owned()).collect()
    }
}

/// A name that is one of a few.
fn known<T: std::str::FromStr>(pointer: &str, name: &str, names: &[String]) -> Result<T> {
    name.parse().map_err(|_| {
        let detail = format!("must be one of {}", names.join(", "));
        Problem::field(pointer, "unknown_value", detail)
    })
}

pub(super) fn order(text: Option<&str>) -> Result<Order> {
    match text {
        None | Some("newest") => Ok(Order::NewestFirst),
        Some("oldest") => Ok(Order::OldestFirst),
        Some(_) => Err(Problem::field("/order", "unknown_value", "must be one of newest, oldest")),
    }
}

/// List tasks.
#[utoipa::path(get, path = "/v1/tasks", tag = "tasks", params(ListParams),
    responses((status = 200, description = "A page", body = List<TaskBody>),
        (status = "default", description = "Refused", body = Problem,
            content_type = "application/problem+json")))]
pub async fn list(
    State(api): State<Api>,
    Params(params): Params<ListParams>,
) -> Result<Json<List<TaskBody>>> {
    let limit = validate::list_limit(params.limit)? as usize;
    let after = params.cursor.as_deref().map(cursor::read).transpose()?;
    let after = after.map(|(created_at, id)| Cursor { created_at, id: TaskId(id) });
    let order = order(params.order.as_deref())?;
    let filter = params.filter()?;
    if params.in_flight == Some(true) && filter.status.is_empty() {
        return Ok(Json(List { items: Vec::new(), next_cursor: None }));
    }
    let page = api.engine.tasks().list(filter, order, after, limit).await?;
    let next_cursor = page.next.map(|next| cursor::after(next.created_at, next.id.0));
    Ok(Json(List { items: page.items.into_iter().map(Into::into).collect(), next_cursor }))
}

/// Show a task.
#[utoipa::path(get, path = "/v1/tasks/{id}", tag = "tasks", params(("id" = Uuid, Path)),
    responses((status = 200, description = "The task", body = TaskBody),
        (status = "default", description = "Refused", body = Problem,
            content_type = "application/problem+json")))]
pub async fn show(State(api): State<Api>, Id(id): Id<TaskId>) -> Result<Response> {
    Ok(answer(StatusCode::OK, api.task(id).await?))
}

/// A page of what happened to a task.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct PageParams {
    /// 50 unless given, 1,000 at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Show a task's transitions, oldest first.
#[utoipa::path(get, path = "/v1/tasks/{id}/history", tag = "tasks",
    params(("id" = Uuid, Path), PageParams),
    responses((status = 200, description = "A page", body = List<HistoryBody>),
        (status = "default", description = "Refused", body = Problem,
            content_type = "application/problem+json")))]
pub async fn history(
    State(api): State<Api>,
    Id(id): Id<TaskId>,
    Params(params): Params<PageParams>,
) -> Result<Json<List<HistoryBody>>> {
    let limit = validate::list_limit(params.limit)?;
    let after = cursor::number(params.cursor.as_deref())?;
    let mut items = api.engine.tasks().history(id, after, limit + 1).await?;
    if items.is_empty() {
        api.task(id).await?;
    }
    let more = items.len() as i64 > limit;
    items.truncate(limit as usize);
    let next_cursor = items.last().filter(|_| more).map(|last| last.seq.to_string());
    Ok(Json(List { items: items.iter().map(Into::into).collect(), next_cursor }))
}

/// Show a task's failures, oldest first.
#[utoipa::path(get, path = "/v1/tasks/{id}/failures", tag = "tasks",
    params(("id" = Uuid, Path), PageParams),
    responses((status = 200, description = "A page", body = List<FailureBody>),
        (status = "default", description = "Refused", body = Problem,
            content_type = "application/problem+json")))]
pub async fn failures(
    State(api): State<Api>,
    Id(id): Id<TaskId>,
    Params(params): Params<PageParams>,
) -> Result<Json<List<FailureBody>>> {
    let limit = validate::list_limit(params.limit)?;
    let after = cursor::number(params.cursor.as_deref())?;
    let mut items = api.engine.tasks().failures(id, after, limit + 1).await?;
    if items.is_empty() {
        api.task(id).await?;
    }
    let more = items.len() as i64 > limit;
    items.truncate(limit as usize);
    let next_cursor = items.last().filter(|_| more).map(|last| last.seq.to_string());
    Ok(Json(List { items: items.into_iter().map(Into::into).collect(), next_cursor }))
}

/// How long to wait.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WaitParams {
    /// 30,000 unless given, 300,000 at most.
    #[param(minimum = 0, maximum = 300_000)]
    timeout_ms: Option<i64>,
}

/// Wait for a task's end. Answers with the task in any case; the header `Windlass-Wait` says
/// `done` or `timeout`.
#[utoipa::path(get, path = "/v1/tasks/{id}/wait", tag = "tasks",
    params(("id" = Uuid, Path), WaitParams),
    responses((status = 200, description = "The task as it stands", body = TaskBody),
        (status = "default", description = "Refused", body = Problem,
            content_type = "application/problem+json")))]
pub async fn wait(
    State(api): State<Api>,
    Id(id): Id<TaskId>,
    Params(params): Params<WaitParams>,
) -> Result<Response> {
    let ms = params.timeout_ms.unwrap_or(WAIT_MS);
    if !(0..=MAX_WAIT_MS).contains(&ms) {
        let detail = format!("must be between 0 and {MAX_WAIT_MS}");
        return Err(Problem::field("/timeout_ms", "out_of_range", detail));
    }
    let waited = api.engine.wait_for(id, Duration::from_millis(ms as u64)).await?;
    let mut response = answer(StatusCode::OK, waited.task);
    let word = HeaderValue::from_static(if waited.done { "done" } else { "timeout" });
    response.headers_mut().insert(WAIT, word);
    Ok(response)
}

/// Why.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CancelRequest {
    /// For the history.
    reason: Option<String>,
}

/// Cancel a task.
#[utoipa::path(post, path = "/v1/tasks/{id}/cancel", tag = "tasks", params(("id" = Uuid, Path)),
    request_body = CancelRequest,
    responses((status = 200, description = "The task, cancelled", body = TaskBody),
        (status = "default", description = "Refused", body = Problem,
            content_type = "application/problem+json")))]
pub async fn cancel(
    State(api): State<Api>,
    Id(id): Id<TaskId>,
    Extension(caller): Extension<Caller>,
    Body(request): Body<CancelRequest>,
) -> Result<Response> {
    if let Some(reason) = &request.reason {
        validate::reason(reason)?;
    }
    api.engine.cancel(id, &caller.actor, request.reason).await?;
    Ok(answer(StatusCode::OK, api.task(id).await?))
}

/// What became of items that were asked for together.
pub(super) fn single<T>(outcomes: Vec<Outcome<T>>) -> Result<T> {
    let outcome = outcomes.into_iter().next();
    Ok(outcome.ok_or_else(|| Problem::from(no_outcome()))??)
}
