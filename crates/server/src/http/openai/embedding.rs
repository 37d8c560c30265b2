//! Embeddings.

use super::ask::{Ticket, named};
use super::chat::whole;
use crate::http::problem::{Problem, Result};
use crate::http::request::Free;
use crate::http::submit::KeyHeader;
use crate::http::{Api, Caller};
use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::Value;

/// Embed text, as OpenAI does. `model` is a pool, a model, or `pool/model`; every other field goes
/// to the provider as it is.
#[utoipa::path(post, path = "/v1/embeddings", tag = "openai",
    operation_id = "create_embedding", params(KeyHeader), request_body = Value,
    responses((status = 200, description = "The embeddings", body = Value,
        headers(("Windlass-Task" = String, description = "The task")))))]
pub async fn create(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Free(body, order): Free,
) -> Result<Response> {
    match body.get("input") {
        Some(Value::String(_) | Value::Array(_)) => {}
        None | Some(Value::Null) => {
            return Err(Problem::field("/input", "required", "is missing"));
        }
        Some(_) => return Err(Problem::field("/input", "wrong_type", "must be text or a list")),
    }
    let mut ticket = Ticket::new(&api, &caller, &headers, "embeddings", body, &order).await?;
    let task = ticket.ended().await?;
    Ok(named(whole(task, |result| result), ticket.id))
}
