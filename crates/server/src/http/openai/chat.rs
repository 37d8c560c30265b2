//! Chat completions.

use super::answer::{chat_id, result, under};
use super::ask::{Ticket, named, switch};
use super::error::of_task;
use super::stream::{self, Dialect};
use crate::http::problem::{Problem, Result};
use crate::http::request::Free;
use crate::http::submit::KeyHeader;
use crate::http::{Api, Caller};
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use windlass::domain::state::State as TaskState;

/// Complete a chat, as OpenAI does: waits for the end, or streams. `model` is a pool, a model, or
/// `pool/model`; every other field goes to the provider as it is.
#[utoipa::path(post, path = "/v1/chat/completions", tag = "openai",
    operation_id = "create_chat_completion", params(KeyHeader), request_body = Value,
    responses((status = 200, description = "A chat completion, or a stream of chunks",
        body = Value, headers(("Windlass-Task" = String, description = "The task")))))]
pub async fn create(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Free(body, order): Free,
) -> Result<Response> {
    let is_streamed = switch(&body, "stream")?;
    match body.get("messages") {
        Some(Value::Array(messages)) if !messages.is_empty() => {}
        None | Some(Value::Null) => {
            return Err(Problem::field("/messages", "required", "is missing"));
        }
        Some(_) => {
            let detail = "must be a list of at least one message";
            return Err(Problem::field("/messages", "wrong_type", detail));
        }
    }
    let with_usage = body.get("stream_options").map_or(&Value::Null, |o| &o["include_usage"]);
    let with_usage = *with_usage == true;
    let mut ticket = Ticket::new(&api, &caller, &headers, "chat.completions", body, &order).await?;
    let id = ticket.id;
    if is_streamed {
        let dialect = Dialect::chat(id, with_usage);
        return stream::open(&api, ticket, dialect).await;
    }
    let task = ticket.ended().await?;
    Ok(named(whole(task, |result| under(result, chat_id(id))), id))
}

/// The result of a task that was completed, or why there is none.
pub(super) fn whole(
    task: windlass::store::task::Task,
    shown: impl FnOnce(Value) -> Value,
) -> Response {
    match (task.status, result(&task)) {
        (TaskState::Completed, Some(result)) => Json(shown(result)).into_response(),
        _ => of_task(&task).into_response(),
    }
}
