//! What can go wrong between a repository and its database.

use windlass_domain::refusal::Refusal;

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What [`Error::Busy`] says when limits leave too little room to share their lock.
pub(crate) const CROWDED: &str = "limits leave too little room to share their lock";

/// What [`Error::Busy`] says when the rules that a transaction counted by may be others by now.
pub(crate) const OUTDATED: &str = "limits may have changed meanwhile";

/// The same, when the database says that they are others.
pub(crate) const BEHIND: &str = "limits have changed meanwhile";

/// Why a store operation gave no answer. `Display` says what failed, why, and what to do.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The database refused a row: a check, a unique key, a trigger.
    #[error("the database refused the data ({constraint}): {detail}")]
    Constraint {
        /// The constraint's or trigger's name, as far as the database tells it.
        constraint: String,
        /// The database's own words.
        detail: String,
    },
    /// The data cannot be stored as given: out of range, not of the column's type.
    #[error("the database cannot store the data: {0}")]
    Data(String),
    /// Too much at once; the same call may succeed later.
    #[error("the database is busy: {0}; try again")]
    Busy(String),
    /// No answer within the time limit; nothing was written.
    #[error("the database did not answer in time: {0}; try again")]
    Timeout(String),
    /// The database cannot be reached; nothing was written.
    #[error("the database cannot be reached: {0}")]
    Unavailable(String),
    /// The disk is full.
    #[error("the disk under the database is full: {0}; free some space")]
    StorageFull(String),
    /// The connection was lost at COMMIT, and looking the outcome up failed too.
    #[error("the outcome is unknown: {0}; read the task before you repeat the call")]
    OutcomeUnknown(String),
    /// The data is not what this program writes.
    #[error("the database is damaged: {0}; restore it from a backup")]
    Corrupt(String),
    /// The file or database belongs to something else.
    #[error("{0}")]
    Foreign(String),
    /// The schema is newer than this program understands, or breaking for it.
    #[error("the schema is at version {found}, this program knows {known}: start a newer program")]
    NewerSchema {
        /// What the database has.
        found: i64,
        /// What this program has.
        known: i64,
    },
    /// The schema is older than this program needs.
    #[error(
        "the schema is at version {found}, this program needs {needed}: run `windlass migrate up`"
    )]
    OlderSchema {
        /// What the database has.
        found: i64,
        /// What this program needs.
        needed: i64,
    },
    /// Another server has the file open.
    #[error("{0}")]
    InUse(String),
    /// The configuration is wrong or unsafe.
    #[error("{0}")]
    Configuration(String),
    /// A defect of ours: a panic or an impossible answer.
    #[error("internal error in {operation}: {detail}")]
    Internal {
        /// The transaction's name.
        operation: String,
        /// What happened.
        detail: String,
    },
}

impl Error {
    /// The stable code that clients rely on; documented in docs/errors.md.
    pub const fn code(&self) -> &'static str {
        match self {
            Error::Constraint { .. } => "constraint",
            Error::Data(_) => "data",
            Error::Busy(_) => "busy",
            Error::Timeout(_) => "timeout",
            Error::Unavailable(_) => "unavailable",
            Error::StorageFull(_) => "storage_full",
            Error::OutcomeUnknown(_) => "outcome_unknown",
            Error::Corrupt(_) => "corrupt",
            Error::Foreign(_) => "foreign",
            Error::NewerSchema { .. } => "newer_schema",
            Error::OlderSchema { .. } => "older_schema",
            Error::InUse(_) => "in_use",
            Error::Configuration(_) => "configuration",
            Error::Internal { .. } => "internal",
        }
    }

    /// Whether the data of one item is to blame, so that the rest of its batch may succeed.
    pub fn is_about_data(&self) -> bool {
        matches!(self, Error::Constraint { .. } | Error::Data(_))
    }
}

/// Why one item of an operation changed nothing: a rule said no, or the database gave no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Rejection {
    /// A rule of the domain.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The database.
    #[error(transparent)]
    Failed(#[from] Error),
}
