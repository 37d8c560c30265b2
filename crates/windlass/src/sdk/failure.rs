//! How a handler or a step fails.

use super::host::CallError;
use std::time::Duration;
use windlass_domain::failure::TaskError;
use windlass_domain::retry::code;
use windlass_domain::step::Effect;
use windlass_domain::validate::MAX_DELAY_MS;

/// What handlers and steps return.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why an attempt, or a step, ended badly. Any error becomes one with `?`, under the code `ERROR`,
/// which is retried; [`Failure::new`] names a code that decides otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub(crate) error: TaskError,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) effect: Effect,
}

impl Failure {
    /// A failure with a code; docs/operations.md says which codes are retried.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Failure {
        Failure { error: TaskError::new(code, message), retry_after: None, effect: Effect::Unknown }
    }

    /// The task itself is wrong: it is not tried again.
    pub fn invalid_input(message: impl Into<String>) -> Failure {
        Failure::new(code::INVALID_INPUT, message)
    }

    /// An error as plain workers report it.
    pub(crate) fn from_task(error: TaskError) -> Failure {
        Failure { error, retry_after: None, effect: Effect::Unknown }
    }

    /// A call that could not be carried out.
    pub(crate) fn of_call(error: CallError) -> Failure {
        Failure::new(error.code.to_ascii_uppercase(), error.detail)
    }

    /// Adds anything that helps to understand it.
    pub fn detail(mut self, detail: serde_json::Value) -> Failure {
        self.error.detail = Some(detail);
        self
    }

    /// When to try again, instead of the policy's own time.
    pub fn retry_after(mut self, after: Duration) -> Failure {
        self.retry_after = Some(after);
        self
    }

    /// Nothing has happened in the world: even a step that runs [`once`](super::StepCall::once)
    /// may run again.
    pub fn no_effect(mut self) -> Failure {
        self.effect = Effect::None;
        self
    }

    /// As it is told: an end that is refused would be told by nobody, and the lease would run out.
    pub(crate) fn told(&self) -> TaskError {
        self.error.clone().fitted()
    }

    /// When to try again, as it is told.
    pub(crate) fn retry_after_ms(&self) -> Option<i64> {
        let ms = |after: Duration| i64::try_from(after.as_millis()).unwrap_or(i64::MAX);
        self.retry_after.map(|after| ms(after).min(MAX_DELAY_MS))
    }

    /// The code that decides what follows.
    pub fn code(&self) -> &str {
        &self.error.code
    }

    /// What happened, in words.
    pub fn message(&self) -> &str {
        &self.error.message
    }
}

// Not an `Error` itself: otherwise no other error could become one with `?`.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::new("ERROR", error.to_string())
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.error.code, self.error.message)
    }
}
