//! Why the engine gave no answer.

use windlass_domain::id::SessionId;
use windlass_domain::refusal::Refusal;
use windlass_store::error::Rejection;

/// Shorthand for results of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong. `Display` says what to do.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A rule of the domain.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The database.
    #[error(transparent)]
    Store(#[from] windlass_store::error::Error),
    /// No such session, or it is long gone.
    #[error("there is no session {0}; register again and go on under the new session")]
    UnknownSession(SessionId),
    /// The session was closed, or expired because it gave no sign of life.
    #[error("the session {0} is closed ({1}); register again, with the same id if you like")]
    SessionClosed(SessionId, String),
    /// The engine takes no new work.
    #[error("this node is shutting down; go to another node, or try again soon")]
    ShuttingDown,
    /// The log no longer goes back to this place.
    #[error(
        "events after this one were removed; begin anew, and read the tasks for what was missed"
    )]
    CursorExpired,
    /// Nothing has happened at this place yet.
    #[error("{0}; this place is not one that this database gave: begin without it")]
    CursorAhead(String),
    /// A wait ended before the task did.
    #[error("the task did not end within the time; wait again")]
    WaitTimedOut,
    /// The task ended, but not with a result.
    #[error("the task ended {0}: {1}")]
    TaskEnded(windlass_domain::state::State, String),
}

impl Error {
    /// The stable code that clients rely on; documented in docs/errors.md.
    pub const fn code(&self) -> &'static str {
        match self {
            Error::Refused(refusal) => refusal.code(),
            Error::Store(error) => error.code(),
            Error::UnknownSession(_) => "session_not_found",
            Error::SessionClosed(..) => "session_closed",
            Error::ShuttingDown => "shutting_down",
            Error::CursorExpired => "cursor_expired",
            Error::CursorAhead(_) => "invalid_cursor",
            Error::WaitTimedOut => "wait_timed_out",
            Error::TaskEnded(..) => "task_ended",
        }
    }
}

impl From<Rejection> for Error {
    fn from(rejection: Rejection) -> Error {
        match rejection {
            Rejection::Refused(refusal) => Error::Refused(refusal),
            Rejection::Failed(error) => Error::Store(error),
        }
    }
}
