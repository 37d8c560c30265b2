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

    /// As much of it as can be kept. What goes wrong in a handler may hold anything, such as the
    /// whole answer of a service; refused as a whole, nobody would learn of the failure.
    #[must_use]
    pub fn fitted(self) -> TaskError {
        let TaskError { code, message, detail } = self;
        TaskError {
            code: fitted_code(&code),
            message: fitted_message(message),
            detail: detail.map(fitted_detail),
        }
    }

    /// Refuses an error that cannot be kept as it is.
    pub fn validate(&self) -> validate::Result<()> {
        let mut errors = Errors::default();
        self.check("/error", &mut errors);
        errors.into_result()
    }
}

/// The code of an error without one that can be kept.
const NO_CODE: &str = "ERROR";

fn fitted_code(code: &str) -> String {
    let plain = |c: char| if validate::is_plain_code(c) { c } else { '_' };
    let fitted: String = code.chars().map(plain).take(MAX_CODE_BYTES).collect();
    if fitted.is_empty() { NO_CODE.to_owned() } else { fitted }
}

fn fitted_message(message: String) -> String {
    let mut fitted =
        if message.contains('\0') { message.replace('\0', "\u{fffd}") } else { message };
    if fitted.len() > MAX_MESSAGE_BYTES {
        let mut end = MAX_MESSAGE_BYTES - CUT.len();
        while !fitted.is_char_boundary(end) {
            end -= 1;
        }
        fitted.truncate(end);
        fitted.push_str(CUT);
    }
    fitted
}

/// The end of a message that was cut.
const CUT: &str = " … (cut)";

/// A part of a value is no value, so a detail is kept as it is, or the reason why it is not.
fn fitted_detail(detail: Value) -> Value {
    let mut errors = Errors::default();
    errors.json("/detail", &detail, MAX_DETAIL_BYTES);
    match errors.into_result() {
        Ok(()) => detail,
        Err(refusal) => serde_json::json!({ "not_kept": refusal.to_string() }),
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

    #[test]
    fn an_error_that_fits_stays_as_it_is_and_any_other_is_made_to_fit() {
        let good = TaskError { detail: Some(json!({ "a": 1 })), ..TaskError::new("X.y-1", "é\n") };
        assert_eq!(good.clone().fitted(), good);
        let longest = TaskError::new("a".repeat(100), "m".repeat(MAX_MESSAGE_BYTES));
        assert_eq!(longest.clone().fitted(), longest);
        let bad = TaskError {
            code: "rate limited".into(),
            message: format!("\0{}", "é".repeat(MAX_MESSAGE_BYTES)),
            detail: Some(json!({ "answer": ["x\0"] })),
        };
        let fitted = bad.fitted();
        assert_eq!(fitted.validate(), Ok(()));
        assert_eq!(fitted.code, "rate_limited");
        let shown = fitted.message.starts_with("\u{fffd}éé") && fitted.message.ends_with(CUT);
        assert!(shown, "{}", &fitted.message[..20]);
        let why = fitted.detail.unwrap()["not_kept"].as_str().unwrap().to_owned();
        assert!(why.contains("/detail/answer/0"), "{why}");
        for (code, kept) in [("", NO_CODE), (&*"ä".repeat(300), &*"_".repeat(100))] {
            let fitted = TaskError::new(code, "").fitted();
            assert_eq!((fitted.code.as_str(), fitted.validate()), (kept, Ok(())));
        }
    }
}
