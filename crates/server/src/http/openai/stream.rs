//! Answers while they come: a task's deltas as the events that OpenAI's clients read.
//!
//! Invariant: whoever was given a part of an answer is given the rest of the same answer or an
//! error, never a second beginning. While nothing has come, an attempt that is lost is not told.

use super::answer::{self, chat_id, is_usage_only, response_id, under};
use super::ask::{Ticket, named};
use super::error::{Told, of_task};
use super::number::{GREETING, Numbers};
use crate::http::Api;
use crate::http::event::keep_alive;
use crate::http::problem::Result;
use axum::http::{HeaderName, HeaderValue};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;
use windlass::domain::delta::Place;
use windlass::domain::id::TaskId;
use windlass::domain::state::State;
use windlass::engine::{Watched, Watching};
use windlass::store::task::Task;

/// How often somebody who waits for the first piece hears that the request is in line.
const QUEUED_EVERY: Duration = Duration::from_secs(3);
/// Proxies must not wait for more.
const NO_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// How events are written.
pub enum Dialect {
    /// Chunks of a chat completion.
    Chat {
        /// The id of all chunks.
        id: String,
        /// The client wants to know how many tokens there were.
        with_usage: bool,
        /// Whether some chunk said why it ended.
        has_ended: bool,
    },
    /// Events of a response.
    Response {
        numbers: Numbers,
        /// The number of the next event.
        next: u64,
        /// Events up to this one were read before.
        after: Option<u64>,
        /// Whether its last event was sent.
        has_ended: bool,
    },
}

impl Dialect {
    /// That of chat completions.
    pub fn chat(id: TaskId, with_usage: bool) -> Dialect {
        Dialect::Chat { id: chat_id(id), with_usage, has_ended: false }
    }

    /// That of responses; `after` is the last event that was read before.
    pub fn response(numbers: Numbers, after: Option<u64>) -> Dialect {
        let next = after.map_or(0, |after| after.saturating_add(1));
        Dialect::Response { numbers, next, after, has_ended: false }
    }

    /// Up to where the client has read the text before.
    fn place(&self) -> Option<Place> {
        match self {
            Dialect::Chat { .. } => None,
            Dialect::Response { numbers, after, .. } => numbers.place((*after)?),
        }
    }

    fn is_greeted(&self) -> bool {
        matches!(self, Dialect::Response { numbers, .. } if numbers.is_greeted())
    }

    /// What is told before anybody has taken the task.
    fn greeting(&mut self, task: &Task) -> Vec<Event> {
        let Dialect::Response { next, .. } = self else { return Vec::new() };
        let mut response = answer::begun(task);
        response["status"] = json!("queued");
        let read = usize::try_from(*next).unwrap_or(usize::MAX);
        let unread = GREETING.iter().skip(read);
        unread.map(|kind| numbered(next, kind, json!({ "response": response }))).collect()
    }

    /// A piece of the answer; none if it is not for this client.
    fn delta(&mut self, task: TaskId, attempt: i32, index: u64, value: &Value) -> Option<Event> {
        match self {
            Dialect::Chat { id, with_usage, has_ended } => {
                let choices = value["choices"].as_array();
                let ended = |choice: &Value| !choice["finish_reason"].is_null();
                *has_ended |= choices.into_iter().flatten().any(ended);
                let is_wanted = *with_usage || !is_usage_only(value);
                is_wanted.then(|| data(&under(value.clone(), id.clone())))
            }
            Dialect::Response { numbers, next, has_ended, .. } => {
                let kind = value["type"].as_str().unwrap_or_default();
                *has_ended |= ["response.completed", "response.incomplete"].contains(&kind);
                if numbers.is_greeted() && GREETING.contains(&kind) {
                    return None;
                }
                // The upstream's own numbers begin anew with every attempt.
                let number = numbers.of(attempt, index);
                *next = number + 1;
                let mut value = value.clone();
                // A provider may post what is no event at all; it is passed on as it is.
                if let Some(fields) = value.as_object_mut() {
                    fields.insert("sequence_number".into(), json!(number));
                }
                if value["response"].is_object() {
                    value["response"]["id"] = json!(response_id(task));
                }
                Some(data(&value).event(kind))
            }
        }
    }

    /// The end of a task that was completed; `is_begun` when deltas were sent.
    fn completed(&mut self, task: &Task, is_begun: bool) -> Vec<Event> {
        let result = &answer::result(task).unwrap_or_default();
        match self {
            Dialect::Chat { id, with_usage, has_ended } => {
                let is_cut = !*has_ended && !result["choices"][0]["finish_reason"].is_null();
                let mut events = Vec::new();
                if !is_begun {
                    let chunks = answer::chunks(result, id, *with_usage);
                    events.extend(chunks.iter().map(data));
                } else if is_cut {
                    return vec![data(&cut(task.id).body())];
                }
                events.push(Event::default().data("[DONE]"));
                events
            }
            Dialect::Response { has_ended: true, .. } => Vec::new(),
            Dialect::Response { numbers, next, after, .. } => {
                let whole = answer::response(task);
                *next = (*next).max(numbers.of(task.attempt, 0));
                let mut events = Vec::new();
                let mut tell = |kind: &str, response: &Value| {
                    events.push(numbered(next, kind, json!({ "response": response })));
                };
                // Whoever read some of it before knows that it began.
                if !is_begun && after.is_none() && !numbers.is_greeted() {
                    tell("response.created", &answer::begun(task));
                }
                let status = whole["status"].as_str().unwrap_or("completed");
                tell(&format!("response.{status}"), &whole);
                events
            }
        }
    }

    /// There will be no answer.
    fn failed(&mut self, told: &Told, task: Option<&Task>) -> Vec<Event> {
        match (self, task) {
            (Dialect::Chat { .. }, _) => vec![data(&told.body())],
            (Dialect::Response { numbers, next, .. }, Some(task))
                if task.status != State::Cancelled =>
            {
                let response = answer::response(task);
                *next = (*next).max(numbers.of(task.attempt, 0));
                vec![numbered(next, "response.failed", json!({ "response": response }))]
            }
            (Dialect::Response { next, .. }, _) => {
                let Told { error, .. } = told;
                let fields = json!({
                    "code": error["code"], "message": error["message"], "param": error["param"],
                });
                vec![numbered(next, "error", fields)]
            }
        }
    }
}

fn data(value: &Value) -> Event {
    // Our own JSON has no line breaks.
    Event::default().data(value.to_string())
}

fn numbered(next: &mut u64, kind: &str, mut fields: Value) -> Event {
    fields["type"] = json!(kind);
    fields["sequence_number"] = json!(*next);
    *next = next.saturating_add(1);
    data(&fields).event(kind)
}

fn cut(task: TaskId) -> Told {
    let message = format!("a part of the answer is missing; GET /v1/tasks/{task} has all of it");
    Told::new(502, "stream_cut", &message, None)
}

struct Following {
    ticket: Ticket,
    watching: Watching,
    dialect: Dialect,
    ready: VecDeque<Event>,
    /// Something of an answer was sent.
    is_begun: bool,
    is_over: bool,
}

/// Streams the answer of a task.
pub async fn open(api: &Api, mut ticket: Ticket, mut dialect: Dialect) -> Result<Response> {
    let id = ticket.id;
    let place = dialect.place();
    let watching = match ticket.watching.take() {
        Some(watching) => watching,
        None => api.engine.watch_from(id, place).await?,
    };
    let mut ready = VecDeque::from([Event::default().comment("queued")]);
    if dialect.is_greeted() {
        ready.extend(dialect.greeting(&api.task(id).await?));
    }
    // Who was given a part before must be told if that attempt is lost.
    let is_begun = place.is_some();
    let following = Following { ticket, watching, dialect, ready, is_begun, is_over: false };
    let events = futures_util::stream::unfold(following, |mut following| async move {
        let event = following.next().await?;
        Some((Ok::<Event, Infallible>(event), following))
    });
    let mut response = named(Sse::new(events).keep_alive(keep_alive()).into_response(), id);
    response.headers_mut().insert(NO_BUFFERING, HeaderValue::from_static("no"));
    Ok(response)
}

impl Following {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.is_over {
                return None;
            }
            let seen = tokio::select! {
                seen = self.watching.next() => seen,
                () = tokio::time::sleep(QUEUED_EVERY), if !self.is_begun => {
                    return Some(Event::default().comment("queued"));
                }
            };
            self.see(seen);
        }
    }

    fn see(&mut self, seen: Option<Watched>) {
        match seen {
            Some(Watched::Delta { attempt, index, value }) => {
                let event = self.dialect.delta(self.ticket.id, attempt, index, &value);
                self.is_begun |= event.is_some();
                self.ready.extend(event);
            }
            Some(Watched::Reset { .. }) if !self.is_begun => {}
            Some(Watched::Reset { .. }) => {
                let message = "the provider was lost in the middle of its answer; ask again";
                self.end(&Told::new(502, "provider_lost", message, None), None);
            }
            Some(Watched::Finished(task)) => {
                // It has ended: nobody needs to cancel it.
                self.ticket.keep();
                self.is_over = true;
                match task.status {
                    State::Completed => {
                        self.ready.extend(self.dialect.completed(&task, self.is_begun));
                    }
                    _ => self.end(&of_task(&task), Some(&task)),
                }
            }
            None => {
                let message = "this node shuts down or has lost its database; ask again";
                self.end(&Told::new(503, "shutting_down", message, None), None);
            }
        }
    }

    fn end(&mut self, told: &Told, task: Option<&Task>) {
        self.is_over = true;
        self.ready.extend(self.dialect.failed(told, task));
    }
}
