//! The model's routes: those that the load calls, with the names of the public contract.

use super::Shared;
use super::world::Finish;
use crate::log::Ending;
use axum::Router;
use axum::extract::{Path, Query, State as Extract};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;
use windlass_domain::refusal::Refusal;

/// How long a wait goes on without looking again.
const LOOK_EVERY: Duration = Duration::from_millis(50);

type Node = Extract<Arc<Shared>>;

pub(super) fn routes(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/v1/tasks", post(submit))
        .route("/v1/tasks/{id}", get(show))
        .route("/v1/tasks/{id}/wait", get(wait))
        .route("/v1/sessions", post(register))
        .route("/v1/sessions/{id}/claim", post(claim))
        .route("/v1/sessions/{id}/heartbeat", post(heartbeat))
        .route("/v1/sessions/{id}/finish", post(finish))
        .with_state(shared)
}

fn answer(status: StatusCode, body: Value) -> Response {
    (status, [("content-type", "application/json")], body.to_string()).into_response()
}

fn refuse(status: StatusCode, code: &str) -> Response {
    let body = json!({ "status": status.as_u16(), "code": code, "title": code, "detail": code });
    answer(status, body)
}

fn not_found() -> Response {
    refuse(StatusCode::NOT_FOUND, "not_found")
}

fn parse(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or(Value::Null)
}

fn id(value: &Value) -> Uuid {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

async fn submit(Extract(shared): Node, body: String) -> Response {
    let Ok(request) = serde_json::from_str(&body) else {
        return refuse(StatusCode::BAD_REQUEST, "invalid_json");
    };
    let submitted = shared.world.lock().expect("no handler panics").submit(&request);
    shared.changed.notify_waiters();
    match submitted {
        Ok(false) => answer(StatusCode::CREATED, json!({ "id": request.id })),
        Ok(true) => {
            let mut again = answer(StatusCode::OK, json!({ "id": request.id }));
            again.headers_mut().insert("windlass-duplicate", "true".parse().expect("plain text"));
            again
        }
        Err(refusal) => refuse(StatusCode::UNPROCESSABLE_ENTITY, refusal.code()),
    }
}

async fn show(Extract(shared): Node, Path(task): Path<Uuid>) -> Response {
    let shown = shared.world.lock().expect("no handler panics").show(task);
    shown.map_or_else(not_found, |task| answer(StatusCode::OK, task))
}

async fn wait(
    Extract(shared): Node,
    Path(task): Path<Uuid>,
    Query(query): Query<BTreeMap<String, u64>>,
) -> Response {
    let timeout = Duration::from_millis(query.get("timeout_ms").copied().unwrap_or(30_000));
    let ended = || shared.world.lock().expect("no handler panics").has_ended(task);
    until(&shared, timeout, ended).await;
    show(Extract(shared), Path(task)).await
}

/// Looks again whenever something changed, until it is so or the time is over.
async fn until(shared: &Shared, timeout: Duration, mut is_so: impl FnMut() -> bool) {
    let end = tokio::time::Instant::now() + timeout;
    while !is_so() && tokio::time::Instant::now() < end {
        let next = (tokio::time::Instant::now() + LOOK_EVERY).min(end);
        let _ = tokio::time::timeout_at(next, shared.changed.notified()).await;
    }
}

async fn register(Extract(shared): Node, body: String) -> Response {
    let body = parse(&body);
    let session = id(&body["id"]);
    let lease_ms = body["lease_ms"].as_i64().unwrap_or(60_000);
    shared.world.lock().expect("no handler panics").register(session, lease_ms);
    answer(StatusCode::CREATED, json!({ "id": session }))
}

async fn claim(Extract(shared): Node, Path(session): Path<Uuid>, body: String) -> Response {
    if !shared.world.lock().expect("no handler panics").has_session(session) {
        return not_found();
    }
    let body = parse(&body);
    let max = body["max"].as_u64().unwrap_or(1) as usize;
    let start = body["start"].as_bool().unwrap_or(true);
    let claim = id(&body["claim_id"]);
    let timeout = Duration::from_millis(body["wait_ms"].as_u64().unwrap_or(0));
    let mut assignments = Vec::new();
    let take = || {
        let mut world = shared.world.lock().expect("no handler panics");
        assignments = world.claim(session, claim, max, start, shared.mutant);
        !assignments.is_empty()
    };
    until(&shared, timeout, take).await;
    answer(StatusCode::OK, json!({ "assignments": assignments }))
}

async fn heartbeat(Extract(shared): Node, Path(session): Path<Uuid>, body: String) -> Response {
    let body = parse(&body);
    let named: Vec<(Uuid, Uuid)> = items(&body["leases"])
        .iter()
        .map(|lease| (id(&lease["task_id"]), id(&lease["lease_id"])))
        .collect();
    let mut world = shared.world.lock().expect("no handler panics");
    if !world.has_session(session) {
        return not_found();
    }
    answer(StatusCode::OK, world.heartbeat(session, &named, shared.mutant))
}

async fn finish(Extract(shared): Node, Path(_session): Path<Uuid>, body: String) -> Response {
    let body = parse(&body);
    let mut world = shared.world.lock().expect("no handler panics");
    let mut one = |item: &Value| {
        let ending: Ending = serde_json::from_value(item["outcome"].clone()).ok()?;
        let content = match ending {
            Ending::Complete => item["result"].clone(),
            Ending::Fail => item["error"].clone(),
            Ending::Release => Value::Null,
        };
        let (task, lease) = (id(&item["task_id"]), id(&item["lease_id"]));
        let retry_after_ms = item["retry_after_ms"].as_i64();
        let finish = Finish { task, lease, ending, content, retry_after_ms };
        Some(match world.finish(finish, shared.mutant) {
            Ok(status) => json!({ "task_id": task, "status": status }),
            Err(refusal) => json!({ "task_id": task, "error": problem(&refusal) }),
        })
    };
    let results: Vec<Value> = items(&body["items"]).iter().filter_map(&mut one).collect();
    drop(world);
    shared.changed.notify_waiters();
    answer(StatusCode::OK, json!({ "results": results }))
}

fn problem(refusal: &Refusal) -> Value {
    json!({ "status": 409, "code": refusal.code(), "detail": refusal.to_string() })
}
