//! The HTTP API under /v1: the public contract, and nothing but the contract.
//!
//! Invariant: handlers translate and ask the engine; no rule stands here. Routes and the OpenAPI
//! document come from the same attributes.

mod accept;
mod action;
mod body;
mod credential;
mod cursor;
mod event;
mod health;
mod metrics;
mod middleware;
mod openapi;
mod problem;
mod request;
mod session;
mod task;

pub use accept::serve;
use credential::Caller;
pub use credential::Keys;

use axum::Router;
use axum::http::StatusCode;
use metrics::Metrics;
use problem::Problem;
use std::sync::Arc;
use std::time::Duration;
use windlass::Engine;

/// What every handler has.
#[derive(Clone)]
pub struct Api {
    engine: Engine,
    keys: Arc<Keys>,
    metrics: Arc<Metrics>,
    /// How long a request may take that does not wait on purpose.
    timeout: Duration,
}

impl Api {
    /// The API of an engine.
    pub fn new(engine: Engine, keys: Keys) -> Api {
        Api {
            engine,
            keys: Arc::new(keys),
            metrics: Arc::new(Metrics::new()),
            timeout: Duration::from_secs(30),
        }
    }
}

/// All routes.
pub fn router(api: Api) -> Router {
    let (routes, document) = openapi::routes().split_for_parts();
    let routes = routes
        .merge(openapi::pages(&document))
        .fallback(|| async {
            let detail = "there is nothing at this address; /docs lists what there is";
            Problem::new(StatusCode::NOT_FOUND, "not_found", detail)
        })
        .method_not_allowed_fallback(|| async {
            let detail = "this address has other methods; /docs lists them";
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
        });
    middleware::around(routes, &api).with_state(api)
}
