//! A face that OpenAI's clients know: each call is an inference task, and the handler waits for it.
//!
//! Invariant: a request is passed on as it came, fields that we do not know included; what a client
//! is given has one id throughout, made of the task's. A caller that goes away cancels its task,
//! unless it named an idempotency key: then it can come again for the answer.
//! Absent: rules. Pools, limits and leases are the engine's; models are the providers'.

mod answer;
mod ask;
mod chat;
mod document;
mod embedding;
mod error;
mod model;
mod number;
mod response;
mod stream;

pub(super) use document::{describe, error_schema};
pub(super) use error::reshape;
pub(super) use model::Catalog;

use super::Api;
use axum::Router;
use axum::routing::get;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Addresses of this face: their errors have OpenAI's shape.
const ROUTES: [&str; 8] = [
    "/v1/models",
    "/v1/models/{model}",
    "/v1/models/{pool}/{*model}",
    "/v1/chat/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/responses/{id}",
    "/v1/responses/{id}/cancel",
];

/// Those that wait for a task.
pub(super) const PATIENT: [&str; 4] =
    ["/v1/chat/completions", "/v1/embeddings", "/v1/responses", "/v1/responses/{id}"];

/// What OpenAI's clients may ask for, here or elsewhere.
const ASKED: [&str; 17] = [
    "assistants",
    "audio",
    "batches",
    "chat",
    "completions",
    "containers",
    "conversations",
    "embeddings",
    "files",
    "fine_tuning",
    "images",
    "models",
    "moderations",
    "responses",
    "threads",
    "uploads",
    "vector_stores",
];

/// Whether a route belongs to this face, or a path for which there is none would.
pub(super) fn serves(route: Option<&str>, path: &str) -> bool {
    let first = || path.strip_prefix("/v1/")?.split('/').next();
    match route {
        Some(route) => ROUTES.contains(&route),
        None => first().is_some_and(|first| ASKED.contains(&first)),
    }
}

/// Every route with its part of the document.
pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(model::list))
        .routes(routes!(model::show))
        .routes(routes!(chat::create))
        .routes(routes!(embedding::create))
        .routes(routes!(response::create))
        .routes(routes!(response::show, response::delete))
        .routes(routes!(response::cancel))
}

/// What the document has no words for: a model whose name has slashes.
pub(super) fn slashed() -> Router<Api> {
    Router::new().route("/v1/models/{pool}/{*model}", get(model::show_slashed))
}
