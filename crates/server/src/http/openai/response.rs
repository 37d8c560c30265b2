//! Responses: like a chat completion, and also without anybody who waits.
//!
//! Invariant: a response is its task. Who asks for another's is told that there is none.

use super::answer::{response, task_of_response};
use super::ask::{Ticket, named, owner, switch};
use super::error::of_task;
use super::stream::{self, Dialect};
use crate::http::problem::{Problem, Result};
use crate::http::request::{Free, Params};
use crate::http::submit::KeyHeader;
use crate::http::{Api, Caller};
use axum::Json;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;
use windlass::domain::state::State as TaskState;
use windlass::store::task::Task;

/// Make a response, as OpenAI does: waits for the end, or streams, or answers at once with
/// `background`. `model` is a pool, a model, or `pool/model`; every other field goes to the
/// provider as it is.
#[utoipa::path(post, path = "/v1/responses", tag = "openai",
    operation_id = "create_response", params(KeyHeader), request_body = Value,
    responses((status = 200, description = "The response as it stands, or a stream of events",
        body = Value, headers(("Windlass-Task" = String, description = "The task")))))]
pub async fn create(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Free(mut body): Free,
) -> Result<Response> {
    let (is_streamed, is_background) = (switch(&body, "stream")?, switch(&body, "background")?);
    match body.get("input") {
        None | Some(Value::Null | Value::String(_) | Value::Array(_)) => {}
        Some(_) => {
            let detail = "must be text or a list of items";
            return Err(Problem::field("/input", "wrong_type", detail));
        }
    }
    if let Some(previous) = body.get("previous_response_id").and_then(Value::as_str) {
        let known = upstreams_name(&api, &caller, previous).await?;
        body.extend(known.map(|id| ("previous_response_id".to_owned(), id)));
    }
    let mut ticket = Ticket::new(&api, &caller, &headers, "responses", &body).await?;
    let id = ticket.id;
    if is_background {
        ticket.keep();
    }
    if is_streamed {
        return stream::open(&api, ticket, Dialect::response(None)).await;
    }
    if is_background {
        let task = api.task(id).await?;
        return Ok(named(Json(response(&task)).into_response(), id));
    }
    let task = ticket.ended().await?;
    let answer = match task.status {
        TaskState::Completed => Json(response(&task)).into_response(),
        _ => of_task(&task).into_response(),
    };
    Ok(named(answer, id))
}

/// How a response is shown.
#[derive(Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct ShowParams {
    /// As a stream of its events.
    stream: Option<bool>,
    /// Only events after this `sequence_number`.
    starting_after: Option<u64>,
}

/// Show a response as it stands, or follow it.
#[utoipa::path(get, path = "/v1/responses/{id}", tag = "openai",
    operation_id = "show_response", params(("id" = String, Path), ShowParams),
    responses((status = 200, description = "The response, or a stream of events", body = Value,
        headers(("Windlass-Task" = String, description = "The task")))))]
pub async fn show(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Params(params): Params<ShowParams>,
) -> Result<Response> {
    let task = own(&api, &caller, &id).await?;
    if params.stream == Some(true) {
        let ticket = Ticket::looking_at(&api, &caller, task.id);
        return stream::open(&api, ticket, Dialect::response(params.starting_after)).await;
    }
    Ok(named(Json(response(&task)).into_response(), task.id))
}

/// Cancel a response; one that has ended is shown as it is.
#[utoipa::path(post, path = "/v1/responses/{id}/cancel", tag = "openai",
    operation_id = "cancel_response", params(("id" = String, Path)),
    responses((status = 200, description = "The response", body = Value,
        headers(("Windlass-Task" = String, description = "The task")))))]
pub async fn cancel(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response> {
    let mut task = own(&api, &caller, &id).await?;
    if !task.status.is_terminal() {
        let cancelled = api.engine.cancel(task.id, &caller.actor, None).await;
        task = api.task(task.id).await?;
        // It may have ended between the two looks; then that is the answer.
        if !task.status.is_terminal() {
            cancelled?;
        }
    }
    Ok(named(Json(response(&task)).into_response(), task.id))
}

/// What the upstream calls a response of ours; none if it is none of ours.
async fn upstreams_name(api: &Api, caller: &Caller, id: &str) -> Result<Option<Value>> {
    if task_of_response(id).is_none() {
        return Ok(None);
    }
    let task = own(api, caller, id).await?;
    match task.result {
        Some(result) if result["id"].is_string() => Ok(Some(result["id"].clone())),
        _ => {
            let detail = "names a response that is not completed";
            Err(Problem::field("/previous_response_id", "conflict", detail))
        }
    }
}

/// The caller's own response.
async fn own(api: &Api, caller: &Caller, id: &str) -> Result<Task> {
    let unknown = || {
        let shown: String = id.chars().take(100).collect();
        let detail = format!("there is no response `{}`", shown.escape_debug());
        Problem::new(StatusCode::NOT_FOUND, "not_found", detail)
    };
    let task = task_of_response(id).ok_or_else(unknown)?;
    let task = api.engine.tasks().show(task).await?.ok_or_else(unknown)?;
    let is_own = task.owner == owner(caller) && task.payload["endpoint"] == "responses";
    is_own.then_some(task).ok_or_else(unknown)
}
