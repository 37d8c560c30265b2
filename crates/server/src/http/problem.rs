//! Errors as `application/problem+json`, with stable codes.
//!
//! Invariant: a client sees a code, what was wrong, where, and what to do; never an internal
//! detail. What is ours to mend is logged here, once, with its cause.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;
use windlass::domain::approval::Refused;
use windlass::domain::json::JsonError;
use windlass::domain::limit::{Draining, Key, QueueFull, Scope};
use windlass::domain::refusal::{self, FieldError, Refusal};
use windlass::engine;
use windlass::store::error::{Error as StoreError, Rejection};

/// What a handler gives.
pub type Result<T, E = Problem> = std::result::Result<T, E>;

/// One thing that is wrong with a request.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Field {
    /// Where, as a JSON pointer; a parameter of the query stands there by its name.
    pub pointer: String,
    /// What kind of mistake.
    pub code: String,
    /// What is wrong and what would be right.
    pub detail: String,
}

/// A limit on pending tasks that is reached.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ReachedLimit {
    /// What it counts over.
    #[schema(value_type = String)]
    pub scope: Scope,
    /// Which one; null for everything.
    pub name: Option<String>,
    /// The most pending tasks.
    pub max_pending: i64,
    /// How many there are.
    pub held: i64,
}

/// What takes nothing in.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Drained {
    /// What kind of thing.
    #[schema(value_type = String)]
    pub scope: Scope,
    /// Which one; null for everything.
    pub name: Option<String>,
    /// Why.
    pub reason: Option<String>,
}

/// What keeps a task out.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptOut {
    /// A limit that is reached.
    Limit(ReachedLimit),
    /// Something takes nothing in.
    Drained(Drained),
}

/// An error, as RFC 9457 has it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Problem {
    /// A page about the code.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    pub kind: Box<str>,
    /// The code in words.
    pub title: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// What programs decide by; see docs/errors.md.
    pub code: &'static str,
    /// What was wrong and what to do.
    #[schema(value_type = String)]
    pub detail: Box<str>,
    /// Everything that is wrong with the fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Field>,
    /// What kept a task out, as `limit` or `drained`; `describe` tells it.
    #[serde(flatten)]
    #[schema(ignore)]
    pub kept_out: Option<Box<KeptOut>>,
    /// The request, as the server's log names it.
    #[schema(value_type = Option<String>)]
    pub request_id: Option<Box<str>>,
    /// When to try again.
    #[serde(skip)]
    pub retry_after_s: Option<u8>,
}

impl Problem {
    /// A problem with its status.
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Problem {
        Problem {
            kind: format!("/docs#{code}").into(),
            title: title(code),
            status: status.as_u16(),
            code,
            detail: detail.into().into(),
            errors: Vec::new(),
            kept_out: None,
            request_id: None,
            retry_after_s: None,
        }
    }

    /// The same, with a time after which it is worth another try.
    pub fn retry_after(self, seconds: u8) -> Problem {
        Problem { retry_after_s: Some(seconds), ..self }
    }

    /// The same, with `prefix` before every pointer: an item's problem as the problem of its batch.
    pub fn within(mut self, prefix: &str) -> Problem {
        self.errors.iter_mut().for_each(|field| field.pointer.insert_str(0, prefix));
        self.retold()
    }

    /// The same, with what is wrong with other fields.
    pub fn and<'a>(mut self, others: impl Iterator<Item = &'a Problem>) -> Problem {
        self.errors.extend(others.flat_map(|other| other.errors.iter().cloned()));
        self.retold()
    }

    /// The words name the fields: by the pointers that they have by now.
    fn retold(mut self) -> Problem {
        if self.code == Refusal::Invalid(Vec::new()).code() {
            let fields = self.errors.iter().map(|field| (&*field.pointer, &*field.detail));
            self.detail = refusal::invalid(fields).into();
        }
        self
    }

    /// Puts the request's id into an answer that is a problem; gives the problem's code.
    pub fn name_request(response: &mut Response, id: &str) -> Option<&'static str> {
        let mut problem = response.extensions_mut().remove::<Problem>()?;
        problem.request_id = Some(id.into());
        let code = problem.code;
        *response.body_mut() = serde_json::to_vec(&problem).unwrap_or_default().into();
        Some(code)
    }

    /// One field is wrong.
    pub fn field(pointer: &str, code: &'static str, detail: impl Into<String>) -> Problem {
        let detail = detail.into();
        let field = FieldError { pointer: pointer.to_owned(), code, detail };
        Refusal::Invalid(vec![field]).into()
    }

    /// A defect of ours; its cause is logged, not told.
    pub fn internal(cause: &dyn std::fmt::Display) -> Problem {
        tracing::error!(%cause, "an internal error");
        let detail = "a defect of this server; its log says more under the request's id";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
    }
}

/// Every code with its title; /docs shows them, and docs/errors.md tells more.
pub const TITLES: &[(&str, &str)] = &[
    ("validation_failed", "The request is not valid"),
    ("invalid_json", "The body is not JSON that can be kept"),
    ("invalid_id", "The id is not a UUID"),
    ("invalid_cursor", "The cursor is not one of this list"),
    ("not_found", "There is no such thing"),
    ("model_not_found", "There is no such pool or model"),
    ("lease_lost", "The lease no longer holds the task"),
    ("in_doubt", "Nobody knows whether the step has run"),
    ("step_failed", "A person decided that the step has failed"),
    ("illegal_step", "The step does not stand where the call needs it"),
    ("task_finished", "The task has ended"),
    ("unreadable", "Nobody can read what it says"),
    ("not_finished", "The task has not ended"),
    ("no_such_step", "The task has no such step"),
    ("not_idempotent", "Steps would run again that must not"),
    ("already_finished", "The attempt was finished before with another outcome"),
    ("illegal_transition", "The task's state does not permit this"),
    ("not_due", "The task's time has not come"),
    ("idempotency_key_reused", "The key was used before for another request"),
    ("already_exists", "There is another one of this name"),
    ("queue_full", "A limit on waiting tasks is reached"),
    ("draining", "Nothing new is taken in"),
    ("session_not_found", "There is no such session"),
    ("session_closed", "The session is closed"),
    ("shutting_down", "The node is shutting down"),
    ("payload_too_large", "The body is too large"),
    ("delta_gap", "Deltas are missing"),
    ("too_large", "The deltas of an attempt are too large"),
    ("unsupported_media_type", "The body must be JSON"),
    ("forbidden", "The key has no right to this"),
    ("not_permitted", "The sender may not write to the receiver"),
    ("self_approval", "Who asks for an approval does not give it"),
    ("already_decided", "It was decided before"),
    ("already_voted", "One voice counts once"),
    ("approval_withdrawn", "The task went another way"),
    ("digest_mismatch", "The decision is about something else"),
    ("expired", "Its time is over"),
    ("method_not_allowed", "The method is not allowed here"),
    ("unauthenticated", "A valid key is needed"),
    ("busy", "Too much at once"),
    ("timeout", "No answer in time"),
    ("unavailable", "The database cannot be reached"),
    ("storage_full", "The disk is full"),
    ("outcome_unknown", "The outcome is unknown"),
    ("cursor_expired", "The event is older than what is kept"),
    ("host_not_allowed", "The server does not answer to this name"),
    ("origin_not_allowed", "A page of another origin may not call"),
    ("request_timeout", "The request did not arrive in time"),
    ("constraint", "The database refused a row"),
    ("data", "A value does not fit"),
    ("internal", "A defect of the server"),
    ("corrupt", "The database is damaged"),
];

/// Tasks end all the time, so there may be room soon.
const FULL_S: u8 = 1;
/// A person has to resume it.
const DRAINING_S: u8 = 30;

fn some(name: String) -> Option<String> {
    Some(name).filter(|name| !name.is_empty())
}

/// A code in words.
fn title(code: &str) -> &'static str {
    let known = TITLES.iter().find(|(known, _)| *known == code);
    known.map_or("The server could not do this", |(_, title)| title)
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        let status = match &refusal {
            Refusal::UnknownTask | Refusal::UnknownStep | Refusal::Unknown { .. } => {
                StatusCode::NOT_FOUND
            }
            Refusal::Approval(refused) => approval_status(refused),
            Refusal::QueueFull(_) => StatusCode::TOO_MANY_REQUESTS,
            Refusal::Draining(_) => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::TextTooLarge | Refusal::TextsTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::Invalid(_) | Refusal::IdempotencyKeyReused { .. } => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Refusal::NotPermitted { .. } => StatusCode::FORBIDDEN,
            Refusal::LeaseLost { .. }
            | Refusal::MessageLost { .. }
            | Refusal::DeliveryEnded { .. }
            | Refusal::AlreadyFinished { .. }
            | Refusal::IllegalTransition { .. }
            | Refusal::IllegalStep { .. }
            | Refusal::NotDue
            | Refusal::Unreadable { .. }
            | Refusal::InDoubt { .. }
            | Refusal::StepState { .. }
            | Refusal::StepEnded { .. }
            | Refusal::RunEnded { .. }
            | Refusal::StepFailed { .. }
            | Refusal::DeltaGap { .. }
            | Refusal::TaskFinished { .. }
            | Refusal::AlreadyExists { .. }
            | Refusal::Replay(_) => StatusCode::CONFLICT,
        };
        let mut problem = Problem::new(status, refusal.code(), refusal.to_string());
        match refusal {
            Refusal::Invalid(fields) => {
                let field = |f: FieldError| Field {
                    pointer: f.pointer,
                    code: f.code.to_owned(),
                    detail: f.detail,
                };
                problem.errors = fields.into_iter().map(field).collect();
            }
            Refusal::QueueFull(full) => {
                problem.retry_after_s = full.may_fit_later().then_some(FULL_S);
                let QueueFull { key: Key { scope, name }, limit, held, .. } = full;
                let (name, max_pending) = (some(name), limit);
                let reached = ReachedLimit { scope, name, max_pending, held };
                problem.kept_out = Some(Box::new(KeptOut::Limit(reached)));
            }
            Refusal::Draining(Draining { key: Key { scope, name }, reason }) => {
                let drained = Drained { scope, name: some(name), reason };
                problem.kept_out = Some(Box::new(KeptOut::Drained(drained)));
                problem.retry_after_s = Some(DRAINING_S);
            }
            _ => {}
        }
        problem
    }
}

fn approval_status(refused: &Refused) -> StatusCode {
    match refused {
        Refused::UnknownApproval | Refused::UnknownToken | Refused::TokenRevoked => {
            StatusCode::NOT_FOUND
        }
        Refused::SelfApproval(_) => StatusCode::FORBIDDEN,
        Refused::TokenExpired | Refused::Expired => StatusCode::GONE,
        Refused::TokenSpent
        | Refused::AlreadyDecided(_)
        | Refused::Withdrawn
        | Refused::DigestMismatch
        | Refused::AlreadyVoted(_) => StatusCode::CONFLICT,
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Problem {
        let status = match &error {
            StoreError::Constraint { .. } | StoreError::Data(_) => StatusCode::UNPROCESSABLE_ENTITY,
            StoreError::Busy(_)
            | StoreError::Unavailable(_)
            | StoreError::Timeout(_)
            | StoreError::StorageFull(_) => StatusCode::SERVICE_UNAVAILABLE,
            StoreError::OutcomeUnknown(_) => StatusCode::GATEWAY_TIMEOUT,
            _ => return Problem::internal(&error),
        };
        // The database's own words may hold data of others, or the address of the server.
        let detail = match &error {
            StoreError::Unavailable(_) => "the database cannot be reached; try again".into(),
            StoreError::OutcomeUnknown(_) => {
                "whether this was carried out is not known; repeat the call with the same ids"
                    .into()
            }
            StoreError::StorageFull(_) => "the disk under the database is full".into(),
            _ => error.to_string(),
        };
        if status.is_server_error() {
            tracing::warn!(%error, "the database gave no answer");
        }
        let mut problem = Problem::new(status, error.code(), detail);
        problem.retry_after_s = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(1);
        problem
    }
}

impl From<Rejection> for Problem {
    fn from(rejection: Rejection) -> Problem {
        match rejection {
            Rejection::Refused(refusal) => refusal.into(),
            Rejection::Failed(error) => error.into(),
        }
    }
}

impl From<engine::Error> for Problem {
    fn from(error: engine::Error) -> Problem {
        let (code, detail) = (error.code(), error.to_string());
        let status = match error {
            engine::Error::Refused(refusal) => return refusal.into(),
            engine::Error::Store(error) => return error.into(),
            engine::Error::UnknownSession(_) => StatusCode::NOT_FOUND,
            engine::Error::SessionClosed(..) => StatusCode::CONFLICT,
            engine::Error::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
            engine::Error::CursorExpired => StatusCode::GONE,
            engine::Error::CursorAhead(_) => StatusCode::BAD_REQUEST,
            engine::Error::WaitTimedOut | engine::Error::TaskEnded(..) => StatusCode::CONFLICT,
        };
        let mut problem = Problem::new(status, code, detail);
        problem.retry_after_s = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(1);
        problem
    }
}

impl From<JsonError> for Problem {
    fn from(error: JsonError) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "invalid_json", error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, body).into_response();
        if [StatusCode::REQUEST_TIMEOUT, StatusCode::PAYLOAD_TOO_LARGE].contains(&status) {
            // The rest of the body may still be on its way; nobody will read it.
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        let headers = response.headers_mut();
        let problem = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, problem);
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, u16::from(seconds).into());
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(self);
        response
    }
}
