//! What the server's errors mean to a repository, in one place.
//!
//! Invariant: only a serialization failure and a deadlock are worth another try by themselves.

use crate::error::{BEHIND, CROWDED, Error};
use tokio_postgres::error::{DbError, Severity};

/// What the lane does about a failed run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing was written; tell the caller.
    Final,
    /// Nothing was written; run it again.
    Deadlock,
    /// Likewise.
    Serialization,
    /// COMMIT may or may not have happened; settle it.
    Ambiguous,
}

/// Why a transaction did not commit.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub error: Error,
    pub verdict: Verdict,
    /// The connection is gone or no longer to be trusted.
    pub discard: bool,
    /// The server itself said that the transaction is over and undone.
    pub refused: bool,
}

impl Failure {
    /// An error of our own making: nothing was written, the connection is fine.
    pub fn of(error: Error) -> Failure {
        Failure { error, verdict: Verdict::Final, discard: false, refused: false }
    }

    /// No usable answer came; the connection is not to be used again.
    pub fn lost(error: Error) -> Failure {
        Failure { discard: true, ..Failure::of(error) }
    }

    /// The same failure with COMMIT possibly done.
    pub fn ambiguous(self) -> Failure {
        Failure { verdict: Verdict::Ambiguous, ..self }
    }
}

/// Reads a driver's error. `operation` is the statement's name.
pub(super) fn failure(operation: &str, error: &tokio_postgres::Error) -> Failure {
    let Some(db) = error.as_db_error() else {
        return Failure::lost(without_answer(operation, error));
    };
    let code = db.code().code();
    let verdict = match code {
        "40001" => Verdict::Serialization,
        "40P01" => Verdict::Deadlock,
        _ => Verdict::Final,
    };
    let fatal = !matches!(db.parsed_severity(), Some(Severity::Error));
    // A read-only server is an old primary: look for the new one. Internal errors may come from
    // types that were made anew under a prepared statement.
    let stale = code == "25006" || code.starts_with("XX") || schema_changed(db);
    // A name that is missing or taken may be one by which the driver asks for a type, after the
    // statement itself, and COMMIT, have been carried out.
    let refused = !fatal && !matches!(code, "26000" | "42P05");
    Failure { error: from_db(operation, db), verdict, discard: fatal || stale, refused }
}

/// Whether a prepared statement is out of date: its plan, or its very name.
fn schema_changed(db: &DbError) -> bool {
    match db.code().code() {
        "26000" | "42P05" => true,
        // The words of this error are translated, the place it comes from is not.
        "0A000" => db.routine() == Some("RevalidateCachedQuery"),
        _ => false,
    }
}

fn without_answer(operation: &str, error: &tokio_postgres::Error) -> Error {
    let source = std::error::Error::source(error);
    let detail = match source {
        Some(cause) => format!("{operation}: {error}: {cause}"),
        None => format!("{operation}: {error}"),
    };
    if error.is_closed() || source.is_some_and(|cause| cause.is::<std::io::Error>()) {
        Error::Unavailable(detail)
    } else {
        Error::Internal { operation: operation.to_owned(), detail }
    }
}

/// The database's refusal in the store's words.
pub(super) fn from_db(operation: &str, db: &DbError) -> Error {
    let code = db.code().code();
    let words = match db.detail() {
        Some(detail) => format!("{} ({detail})", db.message()),
        None => db.message().to_owned(),
    };
    let detail = format!("{operation}: {words} [{code}]");
    match code {
        // Raised by our own triggers; a generated column.
        "P0001" | "428C9" => Error::Constraint { constraint: named(db), detail: words },
        "42501" => Error::Configuration(format!(
            "PostgreSQL does not let us: {detail}; grant the role its rights, or connect as the \
             owner of the tables"
        )),
        // A migration meets what it did not make: something else lives in this schema.
        "42P07" | "42710" | "42723" | "42701" | "42703" | "42P01" if operation == "script" => {
            Error::Foreign(format!(
                "the database holds tables or types that Windlass did not make: {detail}; give \
                 Windlass a database or a schema of its own"
            ))
        }
        "42804" | "42846" | "42P18" => Error::Data(detail),
        _ if schema_changed(db) => Error::Busy(format!("the schema has just changed: {detail}")),
        "25006" => Error::Unavailable(format!("the server is read-only: {detail}")),
        "25P03" | "57014" => Error::Timeout(detail),
        "53100" => Error::StorageFull(detail),
        "55P03" => Error::Busy(detail),
        // Raised by windlass_share_or_fail, and by windlass_rules_stand.
        "WL001" => Error::Busy(CROWDED.into()),
        "WL002" => Error::Busy(BEHIND.into()),
        "XX001" | "XX002" => Error::Corrupt(detail),
        _ => match &code[..2] {
            "23" => Error::Constraint { constraint: named(db), detail: words },
            // Also: the same row twice in one statement; a key that no index can hold.
            "21" | "22" | "54" => Error::Data(detail),
            "40" | "53" => Error::Busy(detail),
            "08" | "57" => Error::Unavailable(detail),
            _ => Error::Internal { operation: operation.to_owned(), detail },
        },
    }
}

/// The constraint's name, or what comes nearest to it.
fn named(db: &DbError) -> String {
    let name = db.constraint().or(db.column()).or(db.table());
    name.unwrap_or(db.code().code()).to_owned()
}

/// Why a connection could not be made. `Configuration` when trying again cannot help.
pub(super) fn while_connecting(error: &tokio_postgres::Error) -> Error {
    if let Some(db) = error.as_db_error() {
        let detail = format!("{} [{}]", db.message(), db.code().code());
        return match &db.code().code()[..2] {
            "28" | "3D" | "42" => Error::Configuration(format!("PostgreSQL refused us: {detail}")),
            _ => Error::Unavailable(detail),
        };
    }
    let source = std::error::Error::source(error);
    let io = source.and_then(|cause| cause.downcast_ref::<std::io::Error>());
    let inner = io.and_then(|io| io.get_ref());
    if let Some(tls) = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return Error::Configuration(format!("no trusted TLS connection to PostgreSQL: {tls}"));
    }
    match source {
        Some(cause) => Error::Unavailable(format!("{error}: {cause}")),
        None => Error::Unavailable(error.to_string()),
    }
}
