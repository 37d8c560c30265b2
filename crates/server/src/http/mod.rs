//! The HTTP API under /v1: the public contract, and nothing but the contract.
//!
//! Invariant: handlers translate and ask the engine; no rule stands here. Routes and the OpenAPI
//! document come from the same attributes.

mod accept;
mod action;
mod agent;
mod alert;
mod approval;
mod audit;
mod body;
mod correlation;
mod credential;
mod cursor;
mod dead_letter;
mod delegation;
mod delta;
mod describe;
mod event;
mod health;
mod impatient;
mod internal;
mod limit;
mod message;
mod metrics;
mod middleware;
mod openai;
mod openapi;
mod origin;
mod parameter;
mod pause;
mod poison;
mod pool;
mod pressure;
mod problem;
mod replay;
mod request;
mod session;
mod step;
mod submit;
mod task;
mod venture;
mod wait;
mod why;

pub use accept::{Ending, serve};
use credential::Caller;
pub use credential::{Keys, split as split_key};
pub use internal::Nodes;

use axum::Router;
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse;
use correlation::Correlations;
use metrics::Metrics;
use problem::Problem;
use std::sync::Arc;
use std::time::Duration;
use windlass::Engine;
use windlass::domain::replay::DEFAULT_APPROVAL_THRESHOLD;

/// What every handler has.
#[derive(Clone)]
pub struct Api {
    engine: Engine,
    keys: Arc<Keys>,
    metrics: Arc<Metrics>,
    correlations: Arc<Correlations>,
    /// The pools and models that were last seen.
    models: Arc<openai::Catalog>,
    /// How long a request may take that does not wait on purpose.
    timeout: Duration,
    /// How many replays of a task need nobody's approval.
    replay_threshold: i64,
    /// What other nodes bring.
    cluster_key: Option<Arc<str>>,
}

impl Api {
    /// The API of an engine.
    pub fn new(engine: Engine, keys: Keys) -> Api {
        Api {
            engine,
            keys: Arc::new(keys),
            metrics: Arc::new(Metrics::new()),
            correlations: Arc::default(),
            models: Arc::default(),
            timeout: Duration::from_secs(60),
            replay_threshold: DEFAULT_APPROVAL_THRESHOLD,
            cluster_key: None,
        }
    }

    /// The same, with answers for nodes that bring this key.
    pub fn with_cluster_key(self, key: Option<&str>) -> Api {
        Api { cluster_key: key.map(Arc::from), ..self }
    }

    /// The same, with so many replays of a task that need nobody's approval.
    pub fn with_replay_threshold(self, replay_threshold: i64) -> Api {
        Api { replay_threshold, ..self }
    }
}

/// All routes.
pub fn router(api: Api) -> Router {
    let (routes, document) = openapi::routes().split_for_parts();
    let routes = parameter::around(routes, &document)
        .merge(openapi::pages())
        .merge(internal::routes())
        .merge(openai::slashed())
        .merge(limit::nameless())
        .fallback(|| async {
            let detail = "there is nothing at this address; /docs lists what there is";
            Problem::new(StatusCode::NOT_FOUND, "not_found", detail)
        })
        .method_not_allowed_fallback(|method: Method| async move {
            // The header `Allow` is added to either.
            if method == Method::OPTIONS {
                return StatusCode::NO_CONTENT.into_response();
            }
            let detail = "this address has other methods; the header `Allow` lists them";
            let status = StatusCode::METHOD_NOT_ALLOWED;
            Problem::new(status, "method_not_allowed", detail).into_response()
        });
    middleware::around(routes, &api).with_state(api)
}
