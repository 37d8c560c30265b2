//! How close the system is to its limits: an endpoint, and a header on every answer to a submit.

use super::Api;
use super::problem::{KeptOut, Problem};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, Method};
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;
use windlass::Engine;
use windlass::domain::limit::{Backpressure, Level, Load, Scope, backpressure};

const BACKPRESSURE: HeaderName = HeaderName::from_static("windlass-backpressure");

/// What submits tasks, each by POST; a poisoned task may be resolved by a replay.
const SUBMITS: [&str; 8] = [
    "/v1/tasks",
    "/v1/tasks/batch",
    "/v1/delegations",
    "/v1/tasks/{id}/replay",
    "/v1/poison/{id}/resolve",
    "/v1/chat/completions",
    "/v1/embeddings",
    "/v1/responses",
];

/// Whether a call submits tasks.
pub(super) fn is_submit(method: &str, route: &str) -> bool {
    method.eq_ignore_ascii_case("post") && SUBMITS.contains(&route)
}

/// Puts the level on an answer to a submit, whatever the answer is.
pub(super) fn tell(engine: &Engine, method: &Method, route: &str, response: &mut Response) {
    if is_submit(method.as_str(), route) {
        let refused = response.extensions().get::<Problem>().map_or(Level::Normal, pressed);
        let level = engine.pressure_level().max(refused);
        let level = HeaderValue::from_static(level.as_str());
        response.headers_mut().insert(BACKPRESSURE, level);
    }
}

/// How hard the system is pressed, as far as a refusal tells: what is measured may be half a second
/// older than a full queue.
fn pressed(refusal: &Problem) -> Level {
    match refusal.kept_out.as_deref() {
        Some(KeptOut::Limit(limit)) if limit.scope == Scope::Global => {
            let (pending, max_pending) = (limit.held, Some(limit.max_pending));
            backpressure(&Load { pending, max_pending, ..Load::default() }).level
        }
        _ => Level::Normal,
    }
}

/// How hard the system is pressed.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = BackpressureLevel)]
#[allow(dead_code)] // The document's view of the domain's `Level`.
pub enum LevelName {
    Normal,
    Elevated,
    Critical,
}

/// How close the system is to its limits, as last measured on this node.
#[derive(Serialize, ToSchema)]
pub struct BackpressureBody {
    /// normal; elevated above 70 % active or 50 % pending; critical above 90 % or 80 %.
    #[schema(value_type = LevelName)]
    level: &'static str,
    /// Active tasks in per cent of those allowed; 0 without a limit.
    global_utilization: f64,
    /// Claimed and running tasks.
    active: i64,
    /// The most active tasks; null is no limit.
    max_active: Option<i64>,
    /// Pending tasks, those that wait for a retry or for their time included.
    queue_depth: i64,
    /// The most pending tasks; null is no limit.
    max_pending: Option<i64>,
    /// Tasks that left the queue in a second, while others waited; over the last minute.
    drained_per_second: f64,
    /// How long a task submitted now would wait; null when nothing moves or everything is paused.
    estimated_wait_ms: Option<i64>,
    /// What to do, in words.
    recommendations: Vec<String>,
}

impl From<&Backpressure> for BackpressureBody {
    fn from(told: &Backpressure) -> BackpressureBody {
        BackpressureBody {
            level: told.level.as_str(),
            global_utilization: told.global_utilization,
            active: told.active,
            max_active: told.max_active,
            queue_depth: told.queue_depth,
            max_pending: told.max_pending,
            drained_per_second: told.drained_per_second,
            estimated_wait_ms: told.estimated_wait_ms,
            recommendations: told.recommendations.clone(),
        }
    }
}

/// How close the system is to its limits.
#[utoipa::path(get, path = "/v1/backpressure", tag = "service",
    operation_id = "backpressure",
    responses((status = 200, description = "As last measured", body = BackpressureBody)))]
pub async fn show(State(api): State<Api>) -> Json<BackpressureBody> {
    Json(BackpressureBody::from(&*api.engine.backpressure()))
}
