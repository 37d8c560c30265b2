//! A request as a task: where it goes, who it is for, and who waits for it.

use crate::http::problem::{Problem, Result};
use crate::http::submit::{new_task, no_outcome, refused, take_key};
use crate::http::{Api, Caller};
use crate::ordered::Ordered;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use serde_json::{Map, Value, json};
use std::time::Duration;
use windlass::Engine;
use windlass::domain::id::TaskId;
use windlass::domain::refusal::Refusal;
use windlass::domain::request::SubmitRequest;
use windlass::engine::{Error, Phase, Watching};
use windlass::store::error::Rejection;
use windlass::store::task::Task;

/// Which task an answer is of.
const TASK: HeaderName = HeaderName::from_static("windlass-task");
/// How long one wait lasts; then it goes on.
const ROUND: Duration = Duration::from_secs(300);

/// A task that somebody waits for. Dropped before its end, it cancels the task.
pub struct Ticket {
    engine: Engine,
    /// The task.
    pub id: TaskId,
    actor: String,
    /// Nobody has to wait: the answer can be asked for later.
    is_kept: bool,
    /// A watch of the task that began before it was submitted, if its answer is to be streamed.
    pub watching: Option<Watching>,
}

impl Ticket {
    /// Submits a request for an endpoint; the pool is that of its `model`.
    pub async fn new(
        api: &Api,
        caller: &Caller,
        headers: &HeaderMap,
        endpoint: &str,
        body: Map<String, Value>,
        order: &Ordered,
    ) -> Result<Ticket> {
        let target = api.target(text(&body, "model")?).await?;
        let is_streamed = body.get("stream") == Some(&Value::Bool(true));
        // As text: both databases would sort its fields, and models read them in their order.
        let body = serde_json::to_string(&order.arrange(&Value::Object(body))).unwrap_or_default();
        let mut request = SubmitRequest {
            pool: Some(target.pool),
            model: target.model,
            owner: owner(caller),
            payload: json!({ "endpoint": endpoint, "body": body }),
            ..SubmitRequest::default()
        };
        take_key(&mut request, headers)?;
        let is_kept = request.idempotency_key.is_some();
        let task = new_task(api, &request, caller).map_err(too_large)?;
        let (engine, actor) = (api.engine.clone(), caller.actor.clone());
        // Before the submit: its caller may go away while it is under way.
        let watching = is_streamed.then(|| engine.watch_new(task.id));
        let mut ticket = Ticket { engine, id: task.id, actor, is_kept, watching };
        let outcome = api.engine.submit(vec![task]).await.pop();
        match outcome.ok_or_else(|| Problem::from(no_outcome()))? {
            Ok(submitted) => {
                ticket.id = submitted.id;
                ticket.watching.take_if(|_| submitted.duplicate);
            }
            Err(rejection) => {
                // What was not refused may be there all the same: nobody waits for it.
                if matches!(rejection, Rejection::Refused(_)) {
                    ticket.keep();
                }
                return Err(refused(api, rejection));
            }
        }
        Ok(ticket)
    }

    /// Somebody who looks at a task and does not decide about it.
    pub fn looking_at(api: &Api, caller: &Caller, id: TaskId) -> Ticket {
        let (engine, actor) = (api.engine.clone(), caller.actor.clone());
        Ticket { engine, id, actor, is_kept: true, watching: None }
    }

    /// The task goes on whoever waits.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }

    /// The task as it ended.
    pub async fn ended(&mut self) -> Result<Task> {
        loop {
            let waited = self.engine.wait_for(self.id, ROUND).await?;
            if waited.done {
                self.keep();
                return Ok(waited.task);
            }
            if self.engine.phase() != Phase::Running {
                return Err(Error::ShuttingDown.into());
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // A node that stops answers its callers by itself; their tasks are others' to finish.
        if self.is_kept || self.engine.phase() != Phase::Running {
            return;
        }
        let (engine, id, actor) = (self.engine.clone(), self.id, self.actor.clone());
        tokio::spawn(async move {
            // A submit may be under way whose caller is gone already: look once more.
            for pause in [Duration::ZERO, Duration::from_secs(1)] {
                tokio::time::sleep(pause).await;
                let reason = Some("its caller went away".to_owned());
                match engine.cancel(id, &actor, reason).await {
                    Err(Error::Refused(Refusal::UnknownTask)) => {}
                    Err(error) => {
                        tracing::debug!(task = %id, %error, "its caller went away; it goes on");
                        return;
                    }
                    Ok(_) => return,
                }
            }
        });
    }
}

/// A request that is larger than the server takes in is told as clients know it, and whom to ask.
fn too_large(refusal: Refusal) -> Problem {
    match &refusal {
        Refusal::Invalid(errors)
            if errors.iter().any(|e| (e.pointer.as_str(), e.code) == ("/payload", "too_long")) =>
        {
            let detail = "the request is larger than this server takes in; send less, or let its \
                operator raise `inference_max_body` (`windlass serve --inference-max-body`)";
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", detail)
        }
        _ => refusal.into(),
    }
}

/// For whom tasks of this caller are: the name of its key.
pub fn owner(caller: &Caller) -> Option<String> {
    Some(caller.principal.clone()).filter(|name| !name.is_empty())
}

/// A field that must be there, as text.
pub fn text<'a>(body: &'a Map<String, Value>, name: &str) -> Result<&'a str> {
    let pointer = format!("/{name}");
    match body.get(name) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text),
        None | Some(Value::Null) => Err(Problem::field(&pointer, "required", "is missing")),
        Some(_) => Err(Problem::field(&pointer, "wrong_type", "must be text")),
    }
}

/// A switch that may be left out.
pub fn switch(body: &Map<String, Value>, name: &str) -> Result<bool> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(on)) => Ok(*on),
        Some(_) => {
            let detail = "must be true or false";
            Err(Problem::field(&format!("/{name}"), "wrong_type", detail))
        }
    }
}

/// Says which task an answer is of.
pub fn named(mut response: Response, id: TaskId) -> Response {
    if let Ok(value) = HeaderValue::from_str(&id.to_string()) {
        response.headers_mut().insert(TASK, value);
    }
    response
}
