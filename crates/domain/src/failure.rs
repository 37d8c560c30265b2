//! Why a task, or one attempt at it, ended badly.
//!
//! Invariant: every error has a code, and the code alone decides what follows (see `retry`). The
//! message is for people.

use crate::retry::code;
use crate::validate::{self, Errors};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The longest code, in bytes.
pub const MAX_CODE_BYTES: usize = 100;
/// The longest message, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024;
/// The largest detail, in bytes of canonical JSON.
pub const MAX_DETAIL_BYTES: usize = 256 * 1024;

/// An error as a worker reports it or the system makes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskError {
    /// What kind of error, such as `TIMEOUT`.
    pub code: String,
    /// What happened, in words.
    #[serde(default)]
    pub message: String,
    /// Anything more, such as a stack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Value>,
}

impl TaskError {
    /// An error without detail.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> TaskError {
        TaskError { code: code.into(), message: message.into(), detail: None }
    }

    /// The task's deadline passed.
    pub fn deadline_exceeded() -> TaskError {
        TaskError::new(code::DEADLINE_EXCEEDED, "deadline exceeded by sweeper")
    }

    /// The worker fell silent, and the lease ran out.
    pub fn lease_expired() -> TaskError {
        TaskError::new(code::LEASE_EXPIRED, "the lease ran out without a heartbeat from the worker")
    }

    /// A delegation's worker fell silent.
    pub fn stale() -> TaskError {
        TaskError::new(
            code::STALE,
            "no heartbeat for longer than the stuck threshold; investigate, then replay",
        )
    }

    /// No worker took the task in time.
    pub fn pending_timeout(ms: i64) -> TaskError {
        TaskError::new(
            code::PENDING_TIMEOUT,
            format!("no worker took the task within {ms} ms; check that its pool has providers"),
        )
    }

    /// The task was handed out and given back too often.
    pub fn released_too_often(releases: i32) -> TaskError {
        TaskError::new(
            code::RELEASED_TOO_OFTEN,
            format!("handed out and given back {releases} times without an outcome"),
        )
    }

    /// A person said no.
    pub fn approval_denied(comment: Option<&str>) -> TaskError {
        let message = match comment.map(str::trim).filter(|c| !c.is_empty()) {
            Some(comment) => format!("approval denied: {comment}"),
            None => "approval denied".to_owned(),
        };
        TaskError::new(code::APPROVAL_DENIED, message)
    }

    /// Nobody answered in time.
    pub fn approval_expired() -> TaskError {
        TaskError::new(code::APPROVAL_EXPIRED, "nobody decided before the approval expired")
    }

    /// Notes what is wrong with an error that a worker reported; `pointer` says where it stood.
    pub fn check(&self, pointer: &str, errors: &mut Errors) {
        errors.error_code(&format!("{pointer}/code"), &self.code);
        let at = format!("{pointer}/message");
        errors.text(&at, &self.message, MAX_MESSAGE_BYTES);
        if let Some(detail) = &self.detail {
            errors.json(&format!("{pointer}/detail"), detail, MAX_DETAIL_BYTES);
        }
    }

    /// Refuses an error that cannot be kept as it is.
    pub fn validate(&self) -> validate::Result<()> {
        let mut errors = Errors::default();
        self.check("/error", &mut errors);
        errors.into_result()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::tests::findings;
    use serde_json::json;

    #[test]
    fn an_error_is_written_without_an_empty_detail() {
        let error = TaskError::deadline_exceeded();
        assert_eq!(
            serde_json::to_value(&error).unwrap(),
            json!({"code": "DEADLINE_EXCEEDED", "message": "deadline exceeded by sweeper"})
        );
        let read: TaskError = serde_json::from_value(json!({"code": "X", "detail": [1]})).unwrap();
        assert_eq!(read.detail, Some(json!([1])));
    }

    #[test]
    fn every_error_of_the_system_is_valid() {
        for error in [
            TaskError::deadline_exceeded(),
            TaskError::lease_expired(),
            TaskError::stale(),
            TaskError::pending_timeout(3_600_000),
            TaskError::released_too_often(20),
            TaskError::approval_denied(Some("too expensive")),
            TaskError::approval_expired(),
        ] {
            assert_eq!(error.validate(), Ok(()), "{}", error.code);
        }
        let denied = TaskError::approval_denied(Some(" "));
        assert_eq!(denied.message, "approval denied");
    }

    #[test]
    fn an_error_that_cannot_be_kept_is_refused() {
        let longest = TaskError::new("a".repeat(100), "m".repeat(MAX_MESSAGE_BYTES));
        assert_eq!(longest.validate(), Ok(()));
        let bad = TaskError {
            code: "no spaces".into(),
            message: "m".repeat(MAX_MESSAGE_BYTES + 1),
            detail: Some(json!("x\0")),
        };
        assert_eq!(
            findings(bad.validate()),
            [
                ("/error/code", "bad_character"),
                ("/error/message", "too_long"),
                ("/error/detail", "bad_character"),
            ]
        );
        for (code, finding) in [("", "required"), (&*"a".repeat(101), "too_long")] {
            let refused = TaskError::new(code, "").validate();
            assert_eq!(findings(refused), [("/error/code", finding)]);
        }
        let big = TaskError {
            detail: Some(json!("d".repeat(MAX_DETAIL_BYTES))),
            ..TaskError::new("X", "")
        };
        assert_eq!(findings(big.validate()), [("/error/detail", "too_long")]);
    }
}
