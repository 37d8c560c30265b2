//! Tasks: list, show, history, failures, wait, cancel.

use super::body::{FailureBody, HistoryBody, List, TaskBody};
use super::correlation::{Correlation, named};
use super::cursor::Paging;
use super::problem::{Problem, Result};
use super::request::{Body, Id, Params};
use super::submit::no_outcome;
use super::{Api, Caller};
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use windlass::domain::id::TaskId;
use windlass::domain::page::Part;
use windlass::domain::profile::Kind;
use windlass::domain::refusal::Refusal;
use windlass::domain::state::State as TaskState;
use windlass::domain::time::Timestamp;
use windlass::domain::validate;
use windlass::store::group::Outcome;
use windlass::store::task::{Cursor, Filter, HISTORY_ORDER, ORDER, Task};

const WAIT: HeaderName = HeaderName::from_static("windlass-wait");
const WAIT_MS: i64 = 30_000;
const MAX_WAIT_MS: i64 = 300_000;

/// A task as an answer, with what the log needs.
pub(super) fn answer(status: StatusCode, task: Task) -> Response {
    let correlation = Correlation::of_tasks([named(&task)]);
    Correlation::upon(correlation, (status, Json(TaskBody::from(task))).into_response())
}

impl Api {
    pub(super) async fn task(&self, id: TaskId) -> Result<Task> {
        let found = self.engine.tasks().show(id).await?;
        found.ok_or_else(|| Refusal::UnknownTask.into())
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
    /// `newest` first unless `oldest`; `desc` and `asc` say the same.
    order: Option<String>,
    /// 50 unless given, 1,000 at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

impl ListParams {
    /// Only tasks of this kind.
    pub(super) fn of_kind(&mut self, kind: Kind) -> Result<()> {
        match self.kind.replace(kind.as_str().to_owned()) {
            Some(other) if other != kind.as_str() => {
                let detail = format!("must be {kind}, or left out");
                Err(Problem::field("/kind", "unknown_value", detail))
            }
            _ => Ok(()),
        }
    }

    /// A page of tasks, and where the next one begins.
    pub(super) async fn page(&self, api: &Api) -> Result<List<Task>> {
        let (cursor, order) = (self.cursor.as_deref(), self.order.as_deref());
        let paging = Paging::new(ORDER, self.limit, cursor, order)?;
        let filter = self.filter()?;
        if self.in_flight == Some(true) && filter.status.is_empty() {
            return Ok(List { items: Vec::new(), next_cursor: None });
        }
        let Part { order, after, limit } = paging.part();
        let after = after.map(|(created_at, id)| Cursor { created_at, id: TaskId(id) });
        let page = api.engine.tasks().list(filter, order, after, limit).await?;
        let next = page.next.map(|next| (next.created_at, next.id.0));
        Ok(paging.list((page.items, next)))
    }

    fn filter(&self) -> Result<Filter> {
        let mut status = Vec::new();
        for name in self.status.iter().flat_map(|names| names.split(',')) {
            let states = TaskState::ALL.iter().map(|state| state.as_str());
            status.push(known("/status", name.trim(), states)?);
        }
        if self.in_flight == Some(true) {
            let held = TaskState::ALL.iter().copied().filter(|state| state.is_held());
            status = match status.is_empty() {
                true => held.collect(),
                false => held.filter(|state| status.contains(state)).collect(),
            };
        }
        Ok(Filter {
            status,
            kind: kind(self.kind.as_deref())?,
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
            tag: tag(self.tag.as_deref())?,
            since: self.since,
            until: self.until,
        })
    }
}

/// The kind to filter by.
pub(super) fn kind(name: Option<&str>) -> Result<Option<Kind>> {
    let kinds = ["job", "delegation", "inference"];
    name.map(|name| known("/kind", name, kinds)).transpose()
}

/// The tag to filter by.
pub(super) fn tag(text: Option<&str>) -> Result<Option<(String, String)>> {
    let pair = |text: &str| {
        let pair = text.split_once(':').map(|(key, value)| (key.to_owned(), value.to_owned()));
        pair.ok_or_else(|| Problem::field("/tag", "wrong_type", "is written key:value"))
    };
    text.map(pair).transpose()
}

/// A name that is one of a few.
pub(super) fn known<T: std::str::FromStr>(
    pointer: &str,
    name: &str,
    names: impl IntoIterator<Item = &'static str>,
) -> Result<T> {
    name.parse().map_err(|_| {
        let names: Vec<&str> = names.into_iter().collect();
        let detail = format!("must be one of {}", names.join(", "));
        Problem::field(pointer, "unknown_value", detail)
    })
}

/// List tasks.
#[utoipa::path(get, path = "/v1/tasks", tag = "tasks",
    operation_id = "list_tasks", params(ListParams),
    responses((status = 200, description = "A page", body = List<TaskBody>)))]
pub async fn list(
    State(api): State<Api>,
    Params(params): Params<ListParams>,
) -> Result<Json<List<TaskBody>>> {
    let List { items, next_cursor } = params.page(&api).await?;
    Ok(Json(List { items: items.into_iter().map(Into::into).collect(), next_cursor }))
}

/// Show a task.
#[utoipa::path(get, path = "/v1/tasks/{id}", tag = "tasks",
    operation_id = "show_task", params(("id" = Uuid, Path)),
    responses((status = 200, description = "The task", body = TaskBody)))]
pub async fn show(State(api): State<Api>, Id(id): Id<TaskId>) -> Result<Response> {
    Ok(answer(StatusCode::OK, api.task(id).await?))
}

/// A page of what happened to a task.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct PageParams {
    /// `oldest` first unless `newest`; `asc` and `desc` say the same.
    pub(super) order: Option<String>,
    /// 50 unless given, 1,000 at most.
    #[param(minimum = 1, maximum = 1000)]
    pub(super) limit: Option<i64>,
    /// The `next_cursor` of the page before.
    pub(super) cursor: Option<String>,
}

impl PageParams {
    /// The page that is asked for; the oldest first unless another order is.
    pub(super) fn paging(&self) -> Result<Paging<i64>> {
        let (cursor, order) = (self.cursor.as_deref(), self.order.as_deref());
        Paging::new(HISTORY_ORDER, self.limit, cursor, order)
    }
}

/// Show a task's transitions, oldest first.
#[utoipa::path(get, path = "/v1/tasks/{id}/history", tag = "tasks",
    operation_id = "task_history",
    params(("id" = Uuid, Path), PageParams),
    responses((status = 200, description = "A page", body = List<HistoryBody>)))]
pub async fn history(
    State(api): State<Api>,
    Id(id): Id<TaskId>,
    Params(params): Params<PageParams>,
) -> Result<Json<List<HistoryBody>>> {
    let paging = params.paging()?;
    let (items, next) = api.engine.tasks().history_page(id, paging.part()).await?;
    if items.is_empty() {
        api.task(id).await?;
    }
    let next_cursor = paging.cursor(next);
    Ok(Json(List { items: items.iter().map(Into::into).collect(), next_cursor }))
}

/// Show a task's failures, oldest first.
#[utoipa::path(get, path = "/v1/tasks/{id}/failures", tag = "tasks",
    operation_id = "task_failures",
    params(("id" = Uuid, Path), PageParams),
    responses((status = 200, description = "A page", body = List<FailureBody>)))]
pub async fn failures(
    State(api): State<Api>,
    Id(id): Id<TaskId>,
    Params(params): Params<PageParams>,
) -> Result<Json<List<FailureBody>>> {
    let paging = params.paging()?;
    let found = api.engine.tasks().failure_page(id, paging.part()).await?;
    if found.0.is_empty() {
        api.task(id).await?;
    }
    Ok(Json(paging.list(found)))
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
    operation_id = "wait_for_task",
    params(("id" = Uuid, Path), WaitParams),
    responses((status = 200, description = "The task as it stands", body = TaskBody,
            headers(("Windlass-Wait" = String, description = "`done` or `timeout`")))))]
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
#[utoipa::path(post, path = "/v1/tasks/{id}/cancel", tag = "tasks",
    operation_id = "cancel_task", params(("id" = Uuid, Path)),
    request_body = CancelRequest,
    responses((status = 200, description = "The task, cancelled", body = TaskBody)))]
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
