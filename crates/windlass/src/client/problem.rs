//! Refusals of the server: `application/problem+json`.

use serde_json::Value;
use std::time::Duration;

/// A refusal.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The HTTP status.
    pub status: u16,
    /// The stable code.
    pub code: String,
    /// What was wrong and what to do.
    pub detail: String,
    /// Every wrong field.
    pub errors: Vec<FieldError>,
    /// How long the server asks to wait.
    pub retry_after: Option<Duration>,
    /// The whole answer.
    pub body: Value,
}

/// One wrong field.
#[derive(Clone, Debug)]
pub struct FieldError {
    /// A JSON pointer into the request.
    pub pointer: String,
    /// The stable code.
    pub code: String,
    /// What was wrong.
    pub detail: String,
}

impl Problem {
    /// Reads an answer; nothing if it is no problem of ours.
    pub fn read(
        status: u16,
        body: Option<&Value>,
        retry_after: Option<Duration>,
    ) -> Option<Problem> {
        let body = body?;
        let code = body.get("code")?.as_str()?.to_owned();
        let text = |value: &Value, name: &str| {
            value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let mut detail = text(body, "detail");
        if detail.is_empty() {
            detail = text(body, "title");
        }
        let errors = body.get("errors").and_then(Value::as_array);
        let errors = errors.into_iter().flatten().map(|error| FieldError {
            pointer: text(error, "pointer"),
            code: text(error, "code"),
            detail: text(error, "detail"),
        });
        let errors = errors.collect();
        // An answer within another, as of a batch or a dry run, has no header of its own.
        let told_ms = body.get("retry_after_ms").and_then(Value::as_u64);
        let retry_after = retry_after.or(told_ms.map(Duration::from_millis));
        Some(Problem { status, code, detail, errors, retry_after, body: body.clone() })
    }

    /// Whether the same call may succeed a little later. A full queue is not: a person decides
    /// whether to wait for it.
    pub fn is_temporary(&self) -> bool {
        match self.status {
            // Until an operator resumes it, which may take days.
            503 => self.code != "draining",
            408 | 502 | 504 => true,
            429 => self.code != "queue_full",
            500 => self.code == "outcome_unknown",
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_problem_is_read_with_every_wrong_field() {
        let body = json!({
            "status": 422, "code": "validation_failed", "detail": "two fields are wrong",
            "errors": [{ "pointer": "/queue", "code": "required", "detail": "must not be empty" }],
        });
        let problem = Problem::read(422, Some(&body), None).unwrap();
        assert_eq!(problem.code, "validation_failed");
        assert_eq!(problem.errors[0].pointer, "/queue");
        assert!(!problem.is_temporary());
        assert_eq!(problem.retry_after, None);
        let full = json!({ "code": "queue_full", "retry_after_ms": 5_000 });
        let told = |header| Problem::read(429, Some(&full), header).unwrap().retry_after;
        assert_eq!(told(None), Some(Duration::from_secs(5)));
        assert_eq!(told(Some(Duration::from_secs(7))), Some(Duration::from_secs(7)));
        assert!(Problem::read(502, Some(&json!("bad gateway")), None).is_none());
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        for (status, code, expected) in [
            (503, "busy", true),
            (503, "draining", false),
            (504, "timeout", true),
            (507, "storage_full", false),
            (429, "rate_limited", true),
            (429, "queue_full", false),
            (500, "outcome_unknown", true),
            (500, "internal", false),
            (409, "lease_lost", false),
        ] {
            let problem = Problem::read(status, Some(&json!({ "code": code })), None).unwrap();
            assert_eq!(problem.is_temporary(), expected, "{status} {code}");
        }
    }
}
