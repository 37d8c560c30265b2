//! Deltas over HTTP: whoever holds a task posts them, whoever watches it gets them as events.

use super::Api;
use super::body::TaskBody;
use super::event::{LAST_EVENT_ID, keep_alive, sse};
use super::problem::{Problem, Result};
use super::request::{Body, Id};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, Sse};
use futures_util::{Stream, StreamExt};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::convert::Infallible;
use utoipa::ToSchema;
use windlass::domain::delta::Place;
use windlass::domain::id::{LeaseId, TaskId};
use windlass::engine::Watched;

/// Pieces of a running attempt's text.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeltasRequest {
    #[schema(value_type = Uuid)]
    lease_id: LeaseId,
    /// Where the first of them stands; the attempt's first delta stands at 0.
    #[serde(default)]
    offset: u64,
    /// One, of any JSON.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<Object>)]
    delta: Option<Value>,
    /// Or several, at most 1,000.
    #[serde(default)]
    deltas: Vec<Value>,
}

/// Also `null` is a delta.
fn given<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(input).map(Some)
}

/// How far the text has come.
#[derive(Serialize, ToSchema)]
pub struct DeltasAnswer {
    /// The offset that is expected next.
    next: u64,
}

/// Post deltas of the attempt that you hold. They go to whoever watches the task and are never
/// stored; a delta is also a sign of life.
#[utoipa::path(post, path = "/v1/tasks/{id}/deltas", tag = "work",
    operation_id = "post_deltas", params(("id" = Uuid, Path)),
    request_body = DeltasRequest,
    responses((status = 202, description = "They are on their way", body = DeltasAnswer)))]
pub async fn post(
    State(api): State<Api>,
    Id(task): Id<TaskId>,
    Body(request): Body<DeltasRequest>,
) -> Result<(StatusCode, Json<DeltasAnswer>)> {
    let DeltasRequest { lease_id, offset, delta, mut deltas } = request;
    match (delta, deltas.is_empty()) {
        (Some(delta), true) => deltas.push(delta),
        (Some(_), false) => {
            let detail = "give `delta` or `deltas`, not both";
            return Err(Problem::field("/delta", "not_allowed", detail));
        }
        (None, true) => {
            let detail = "give `delta`, or at least one of `deltas`; `POST \
                /v1/sessions/{id}/heartbeat` is the sign of life without text";
            return Err(Problem::field("/deltas", "required", detail));
        }
        (None, false) => {}
    }
    let next = api.engine.post_deltas(task, lease_id, offset, deltas).await?;
    Ok((StatusCode::ACCEPTED, Json(DeltasAnswer { next })))
}

#[derive(Serialize)]
struct DeltaEvent<'a> {
    attempt: i32,
    offset: u64,
    delta: &'a Value,
}

#[derive(Serialize)]
struct ResetEvent {
    attempt: i32,
}

/// Watch a task: `delta` events with its text as it comes, `reset` when the attempt whose deltas
/// you were given is lost, `done` with the task at its end. `Last-Event-ID` resumes.
#[utoipa::path(get, path = "/v1/tasks/{id}/stream", tag = "tasks",
    operation_id = "watch_task", params(("id" = Uuid, Path)),
    responses((status = 200, description = "Events", body = String,
            content_type = "text/event-stream")))]
pub async fn watch(
    State(api): State<Api>,
    headers: HeaderMap,
    Id(task): Id<TaskId>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let after = headers.get(LAST_EVENT_ID).map(|value| value.to_str().unwrap_or("not ASCII"));
    let after = after.filter(|id| !id.is_empty()).map(place).transpose()?;
    let watching = api.engine.watch_from(task, after).await?;
    let events = watching.map(|watched| {
        Ok(match watched {
            Watched::Delta { attempt, index, value } => {
                let event = sse("delta", &DeltaEvent { attempt, offset: index, delta: &value });
                event.id(format!("{attempt}.{index}"))
            }
            // Whoever comes back after it has been told: its last id is empty again.
            Watched::Reset { attempt } => sse("reset", &ResetEvent { attempt }).id(""),
            Watched::Finished(task) => sse("done", &TaskBody::from(*task)),
        })
    });
    Ok(Sse::new(events).keep_alive(keep_alive()))
}

/// The place after an event's id, `attempt.offset`.
fn place(id: &str) -> Result<Place> {
    let parts = id.split_once('.').and_then(|(attempt, index)| {
        let (attempt, index): (i32, u64) = (attempt.parse().ok()?, index.parse().ok()?);
        Some(Place { attempt, next: index.checked_add(1)? })
    });
    parts.filter(|place| place.attempt > 0).ok_or_else(|| {
        let detail = "give the id of a delta as it came, such as 1.17, or none to begin";
        Problem::new(StatusCode::BAD_REQUEST, "invalid_cursor", detail)
    })
}
