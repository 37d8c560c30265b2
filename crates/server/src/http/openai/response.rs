//! Responses: like a chat completion, and also without anybody who waits.
//!
//! Invariant: a response is its task. Who asks for another's, or for one that was deleted, is told
//! that there is none.

use super::answer::{self, response, task_of_response};
use super::ask::{Ticket, named, owner, switch};
use super::error::of_task;
use super::number::Numbers;
use super::stream::{self, Dialect};
use crate::http::problem::{Problem, Result};
use crate::http::request::{Free, Params};
use crate::http::submit::KeyHeader;
use crate::http::{Api, Caller};
use axum::Json;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
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
    Free(mut body, order): Free,
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
    let mut ticket = Ticket::new(&api, &caller, &headers, "responses", body, &order).await?;
    let id = ticket.id;
    if is_background {
        ticket.keep();
    }
    if is_streamed {
        let numbers = Numbers::new(is_background);
        return stream::open(&api, ticket, Dialect::response(numbers, None)).await;
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
        let numbers = Numbers::new(answer::is_background(&task));
        let after = params.starting_after;
        if after.is_some_and(|after| !numbers.is_known(after, task.attempt)) {
            let detail = "this response has no event of this number; leave it out to begin anew";
            return Err(Problem::field("/starting_after", "out_of_range", detail));
        }
        let ticket = Ticket::looking_at(&api, &caller, task.id);
        return stream::open(&api, ticket, Dialect::response(numbers, after)).await;
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

/// A response that is gone, as OpenAI says it.
#[derive(Serialize, ToSchema)]
pub struct DeletedResponse {
    id: String,
    /// `response`.
    object: &'static str,
    /// `true`.
    deleted: bool,
}

/// Delete a response that has ended: nobody is shown it any more. Its task goes with its retention.
#[utoipa::path(delete, path = "/v1/responses/{id}", tag = "openai",
    operation_id = "delete_response", params(("id" = String, Path)),
    responses((status = 200, description = "It is deleted", body = DeletedResponse,
        headers(("Windlass-Task" = String, description = "The task")))))]
pub async fn delete(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response> {
    let task = own(&api, &caller, &id).await?;
    if !task.status.is_terminal() {
        // Not 409: stock clients repeat that by themselves.
        let detail = "the response has not ended; cancel it first, or wait for its end";
        return Err(Problem::new(StatusCode::BAD_REQUEST, "response_not_ended", detail));
    }
    api.engine.responses().delete(task.id, &caller.actor).await?;
    let gone = DeletedResponse { id, object: "response", deleted: true };
    Ok(named(Json(gone).into_response(), task.id))
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
    // Only what has ended can have been deleted.
    let is_gone =
        is_own && task.status.is_terminal() && api.engine.responses().is_deleted(task.id).await?;
    (is_own && !is_gone).then_some(task).ok_or_else(unknown)
}
