//! Errors in OpenAI's shape: `{"error": {message, type, param, code}}`, all four always there.
//!
//! Invariant: what the rest of the API says as a problem says the same here, under the same code.
//! What a failed task's provider was told by its upstream is passed on as it was; only that the
//! provider's own key is wrong is none of the client's business.

use crate::http::problem::Problem;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use windlass::domain::retry::code;
use windlass::domain::state::State;
use windlass::store::task::Task;

/// An error as a client sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// The HTTP status.
    pub status: u16,
    /// `{message, type, param, code}`.
    pub error: Value,
}

impl Told {
    /// An error of ours.
    pub fn new(status: u16, code: &str, message: &str, param: Option<&str>) -> Told {
        let kind = kind(status);
        let error = json!({ "message": message, "type": kind, "param": param, "code": code });
        Told { status, error }
    }

    /// The body of an answer, or of an event.
    pub fn body(&self) -> Value {
        json!({ "error": self.error })
    }
}

impl IntoResponse for Told {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::BAD_GATEWAY);
        (status, Json(self.body())).into_response()
    }
}

impl From<&Problem> for Told {
    fn from(problem: &Problem) -> Told {
        let status = match (problem.status, problem.code) {
            (_, "idempotency_key_reused") => 409,
            (422, _) => 400,
            (status, _) => status,
        };
        let field = problem.errors.first();
        let param = field.map(|field| field.pointer.trim_start_matches('/').replace('/', "."));
        let message = match field {
            Some(field) if !field.pointer.is_empty() => {
                format!("{}: {}", param.as_deref().unwrap_or_default(), field.detail)
            }
            Some(field) => field.detail.clone(),
            None => problem.detail.to_string(),
        };
        Told::new(status, problem.code, &message, param.as_deref().filter(|p| !p.is_empty()))
    }
}

fn kind(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        429 => "rate_limit_error",
        400..500 => "invalid_request_error",
        _ => "server_error",
    }
}

/// Gives an answer that is a problem OpenAI's shape; gives the problem's code.
pub fn reshape(response: &mut Response) -> Option<&'static str> {
    let problem = response.extensions_mut().remove::<Problem>()?;
    let told = Told::from(&problem);
    *response.status_mut() = StatusCode::from_u16(told.status).unwrap_or(response.status());
    *response.body_mut() = serde_json::to_vec(&told.body()).unwrap_or_default().into();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response.headers_mut().remove(header::CONTENT_LENGTH);
    Some(problem.code)
}

/// What a task that ended without a result has to say.
pub fn of_task(task: &Task) -> Told {
    let id = task.id;
    if task.status == State::Cancelled {
        // Somebody has decided that it must not run: no status after which clients try again.
        return Told::new(499, "cancelled", &format!("task {id} was cancelled"), None);
    }
    let Some(error) = &task.error else {
        let message = format!("task {id} ended as {} without saying why", task.status);
        return Told::new(502, "failed", &message, None);
    };
    let upstream = error.detail.as_ref().map_or(&Value::Null, |detail| &detail["upstream"]);
    if let Some(told) = of_upstream(upstream, &error.message) {
        return told;
    }
    let status = match error.code.as_str() {
        code::INVALID_INPUT => 400,
        code::RATE_LIMITED => 429,
        code::PENDING_TIMEOUT | code::SERVICE_UNAVAILABLE => 503,
        code::TIMEOUT | code::DEADLINE_EXCEEDED => 504,
        _ => 502,
    };
    Told::new(status, &error.code.to_lowercase(), &error.message, None)
}

fn of_upstream(upstream: &Value, message: &str) -> Option<Told> {
    let status = upstream["status"].as_u64().and_then(|status| u16::try_from(status).ok())?;
    if [401, 403].contains(&status) {
        // What it said may name that key; the task's error has it for whoever may read tasks.
        let message = "the upstream refused the provider's own key; its operator must look at it";
        return Some(Told::new(502, "upstream_denied", message, None));
    }
    let status = if (400..600).contains(&status) { status } else { 502 };
    let Value::Object(said) = &upstream["body"]["error"] else {
        return Some(Told::new(status, "upstream_error", message, None));
    };
    let mut told = Told::new(status, "", message, None);
    told.error["code"] = Value::Null;
    for (name, value) in said {
        told.error[name.as_str()] = value.clone();
    }
    Some(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_keeps_its_code_and_gets_the_status_that_clients_know() {
        let field = Problem::field("/messages", "required", "is missing");
        let told = Told::from(&field);
        assert_eq!(told.status, 400);
        assert_eq!(
            told.body(),
            json!({ "error": {
                "message": "messages: is missing", "type": "invalid_request_error",
                "param": "messages", "code": "validation_failed",
            } })
        );
        for (status, code, expected, kind) in [
            (422, "idempotency_key_reused", 409, "invalid_request_error"),
            (401, "unauthenticated", 401, "authentication_error"),
            (404, "model_not_found", 404, "invalid_request_error"),
            (429, "queue_full", 429, "rate_limit_error"),
            (503, "draining", 503, "server_error"),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let told = Told::from(&Problem::new(status, code, "x"));
            assert_eq!((told.status, &told.error["type"]), (expected, &json!(kind)), "{code}");
            assert_eq!(told.error["code"], code);
        }
    }

    #[test]
    fn an_upstreams_own_error_is_passed_on_but_not_that_our_key_is_wrong() {
        let said = json!({ "message": "too long", "code": "context_length_exceeded" });
        for (status, body, expected, code) in [
            (400, json!({ "error": said }), 400, json!("context_length_exceeded")),
            (400, json!("no"), 400, json!("upstream_error")),
            (500, json!({ "error": { "message": "x" } }), 500, Value::Null),
            (401, json!({ "error": said }), 502, json!("upstream_denied")),
            (302, json!(null), 502, json!("upstream_error")),
        ] {
            let told = of_upstream(&json!({ "status": status, "body": body }), "m").unwrap();
            assert_eq!((told.status, &told.error["code"]), (expected, &code), "{status}");
            for name in ["message", "type", "param", "code"] {
                assert!(told.error.get(name).is_some(), "{name}");
            }
        }
        assert_eq!(of_upstream(&Value::Null, "m"), None);
        let denied = json!({ "status": 403, "body": { "error": { "message": "bad sk-1" } } });
        let told = of_upstream(&denied, "the upstream answered 403: bad sk-1").unwrap();
        assert!(!told.body().to_string().contains("sk-1"), "{told:?}");
    }
}
