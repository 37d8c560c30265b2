//! The log of all transitions as server-sent events, with filters and resuming.

use super::Api;
use super::body::HistoryBody;
use super::problem::{Problem, Result};
use super::request::Params;
use super::task::{kind, known, tag};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use utoipa::IntoParams;
use uuid::Uuid;
use windlass::domain::id::TaskId;
use windlass::domain::state::{Event as TaskEvent, State as TaskState};
use windlass::engine::Entry;
use windlass::store::task::{Filter, Position};

pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Which events.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct EventParams {
    /// Only those of this task.
    task_id: Option<Uuid>,
    /// Only these, with commas between: `submit`, `claim`, `complete` …
    event: Option<String>,
    /// Only those that lead to these states, with commas between.
    to_status: Option<String>,
    /// Only those of tasks of this kind: job, delegation or inference. This and what follows is as
    /// in a list of tasks, and was said at the submit.
    kind: Option<String>,
    queue: Option<String>,
    agent: Option<String>,
    venture: Option<String>,
    portfolio: Option<String>,
    stage: Option<String>,
    owner: Option<String>,
    caller: Option<String>,
    callee: Option<String>,
    pool: Option<String>,
    parent_id: Option<Uuid>,
    replay_of: Option<Uuid>,
    correlation_id: Option<String>,
    /// `key:value`.
    tag: Option<String>,
    name: Option<String>,
    /// Begin after this event, or with `beginning`; like the header `Last-Event-ID`.
    after: Option<String>,
}

impl EventParams {
    /// The tasks whose events these are.
    fn tasks(&self) -> Result<Filter> {
        Ok(Filter {
            kind: kind(self.kind.as_deref())?,
            queue: self.queue.clone(),
            agent: self.agent.clone(),
            venture: self.venture.clone(),
            portfolio: self.portfolio.clone(),
            stage: self.stage.clone(),
            owner: self.owner.clone(),
            caller: self.caller.clone(),
            callee: self.callee.clone(),
            pool: self.pool.clone(),
            parent_id: self.parent_id.map(TaskId),
            replay_of: self.replay_of.map(TaskId),
            correlation_id: self.correlation_id.clone(),
            name: self.name.clone(),
            tag: tag(self.tag.as_deref())?,
            ..Filter::default()
        })
    }

    /// A name that is none would show nothing for ever.
    fn check(&self) -> Result<()> {
        for name in self.event.iter().flat_map(|names| names.split(',')) {
            known::<TaskEvent>("/event", name.trim(), TaskEvent::ALL.iter().map(|e| e.as_str()))?;
        }
        for name in self.to_status.iter().flat_map(|names| names.split(',')) {
            let states = TaskState::ALL.iter().map(|state| state.as_str());
            known::<TaskState>("/to_status", name.trim(), states)?;
        }
        Ok(())
    }

    fn fits(&self, entry: &Entry) -> bool {
        let listed = |list: &Option<String>, name: &str| {
            list.as_ref().is_none_or(|list| list.split(',').any(|one| one.trim() == name))
        };
        let history = &entry.history;
        self.task_id.is_none_or(|id| history.task_id.0 == id)
            && listed(&self.event, history.event.as_str())
            && listed(&self.to_status, history.to_status.as_str())
    }
}

/// Follow every transition, in commit order. Each event has an id; `Last-Event-ID` resumes after
/// it, without loss and without repetition.
#[utoipa::path(get, path = "/v1/events", tag = "events",
    operation_id = "follow_events", params(EventParams),
    responses((status = 200, description = "Events", body = String,
            content_type = "text/event-stream")))]
pub async fn events(
    State(api): State<Api>,
    headers: HeaderMap,
    Params(params): Params<EventParams>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    params.check()?;
    let header = headers.get(LAST_EVENT_ID).map(|value| value.to_str().unwrap_or("not ASCII"));
    let after = header.or(params.after.as_deref()).map(position).transpose()?;
    let follower = api.engine.follow_tasks(after, params.tasks()?).await?;
    let params = Arc::new(params);
    let events = futures_util::stream::unfold(Some(follower), move |follower| {
        let params = Arc::clone(&params);
        async move {
            let mut follower = follower?;
            loop {
                match follower.next().await {
                    Ok(entry) if params.fits(&entry) => {
                        let name = entry.history.event.as_str();
                        let event = sse(name, &HistoryBody::from(&entry.history));
                        return Some((Ok(event.id(entry.position.to_string())), Some(follower)));
                    }
                    Ok(_) => {}
                    // The client comes again with its last id, here or at another node.
                    Err(lost) => {
                        tracing::debug!(%lost, "a reader of events was let go");
                        return None;
                    }
                }
            }
        }
    });
    Ok(Sse::new(events).keep_alive(keep_alive()))
}

fn position(text: &str) -> Result<Position> {
    if text == "beginning" {
        return Ok(Position::default());
    }
    text.parse().map_err(|_| {
        let detail = "give the id of an event as it came, or none to begin now";
        Problem::new(StatusCode::BAD_REQUEST, "invalid_cursor", detail)
    })
}

/// One event with JSON data.
pub(super) fn sse(name: &str, data: &impl Serialize) -> Event {
    let event = Event::default().event(name);
    event.json_data(data).unwrap_or_else(|error| {
        tracing::error!(%error, "an event cannot be written");
        Event::default().comment("an event could not be written")
    })
}

/// Proxies close what is silent.
pub(super) fn keep_alive() -> KeepAlive {
    KeepAlive::new().interval(Duration::from_secs(15))
}
