//! SQLite's errors in the words of the store. The only place that knows result codes.

use crate::error::Error;
use rusqlite::ErrorCode;
use rusqlite::ffi;
use std::io::ErrorKind;
use std::path::Path;

/// A file or directory of the database cannot be used.
pub(super) fn cannot_use(path: &Path, error: &std::io::Error) -> Error {
    let path = path.display();
    match error.kind() {
        ErrorKind::PermissionDenied => Error::Configuration(format!(
            "{path} cannot be used ({error}): give this user the right to read and write it, or \
             name another file"
        )),
        _ => Error::Unavailable(format!("{path}: {error}")),
    }
}

/// What `error` means for the transaction or statement called `operation`.
pub(super) fn map(error: &rusqlite::Error, operation: &str) -> Error {
    let rusqlite::Error::SqliteFailure(code, message) = error else {
        // Wrong SQL, wrong parameters: ours to fix.
        return internal(operation, error.to_string());
    };
    let text = message.clone().unwrap_or_else(|| code.to_string());
    let told = format!("{operation}: {text}");
    match code.code {
        ErrorCode::ConstraintViolation => constraint(text),
        ErrorCode::TypeMismatch | ErrorCode::TooBig | ErrorCode::ParameterOutOfRange => {
            Error::Data(told)
        }
        ErrorCode::DatabaseBusy
        | ErrorCode::DatabaseLocked
        | ErrorCode::FileLockingProtocolFailed => Error::Busy(told),
        ErrorCode::DiskFull => Error::StorageFull(told),
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Error::Corrupt(told),
        ErrorCode::CannotOpen
        | ErrorCode::SystemIoFailure
        | ErrorCode::ReadOnly
        | ErrorCode::PermissionDenied => Error::Unavailable(told),
        ErrorCode::OperationInterrupted => Error::Timeout(told),
        _ => internal(operation, text),
    }
}

/// A defect of ours in `operation`.
pub(super) fn internal(operation: &str, detail: impl Into<String>) -> Error {
    Error::Internal { operation: operation.into(), detail: detail.into() }
}

/// Whether a sync failed. The system may have dropped the pages that it could not write and
/// report success for the next sync, so such a failure is never retried.
pub(super) fn is_sync_failure(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_extended_error_code(),
        Some(ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC)
    )
}

/// Whether the disk failed in any way.
pub(super) fn is_io_failure(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure)
}

/// SQLite says `CHECK constraint failed: NAME`; a trigger says what it was told to say, for which
/// our convention is `NAME: words`.
fn constraint(detail: String) -> Error {
    let name = match detail.split_once(" constraint failed") {
        Some((kind, rest)) => match rest.strip_prefix(": ") {
            Some(name) => name,
            None => kind,
        },
        None => detail.split(':').next().unwrap_or(&detail),
    };
    Error::Constraint { constraint: name.trim().to_owned(), detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: std::ffi::c_int, message: &str) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some(message.into()))
    }

    #[test]
    fn a_file_that_may_not_be_read_is_a_matter_of_configuration() {
        let path = Path::new("w.db");
        let refused = cannot_use(path, &ErrorKind::PermissionDenied.into());
        assert!(matches!(&refused, Error::Configuration(told) if told.contains("the right")));
        let other = cannot_use(path, &ErrorKind::Other.into());
        assert!(matches!(other, Error::Unavailable(_)));
    }

    #[test]
    fn a_constraint_is_named() {
        let cases = [
            ("CHECK constraint failed: task_state", "task_state"),
            ("UNIQUE constraint failed: t.a, t.b", "t.a, t.b"),
            ("FOREIGN KEY constraint failed", "FOREIGN KEY"),
            ("task_transition: done is final", "task_transition"),
            ("task_transition", "task_transition"),
        ];
        for (message, name) in cases {
            let mapped = map(&failure(ffi::SQLITE_CONSTRAINT_CHECK, message), "x");
            let Error::Constraint { constraint, detail } = mapped else {
                panic!("{mapped:?}");
            };
            assert_eq!((constraint.as_str(), detail.as_str()), (name, message));
        }
    }

    #[test]
    fn every_kind_of_failure_has_its_meaning() {
        type Is = fn(&Error) -> bool;
        let cases: [(std::ffi::c_int, Is); 9] = [
            (ffi::SQLITE_MISMATCH, |e| matches!(e, Error::Data(_))),
            (ffi::SQLITE_TOOBIG, |e| matches!(e, Error::Data(_))),
            (ffi::SQLITE_BUSY, |e| matches!(e, Error::Busy(_))),
            (ffi::SQLITE_FULL, |e| matches!(e, Error::StorageFull(_))),
            (ffi::SQLITE_NOTADB, |e| matches!(e, Error::Corrupt(_))),
            (ffi::SQLITE_IOERR_READ, |e| matches!(e, Error::Unavailable(_))),
            (ffi::SQLITE_CANTOPEN, |e| matches!(e, Error::Unavailable(_))),
            (ffi::SQLITE_INTERRUPT, |e| matches!(e, Error::Timeout(_))),
            (ffi::SQLITE_MISUSE, |e| matches!(e, Error::Internal { .. })),
        ];
        for (code, is) in cases {
            let mapped = map(&failure(code, "words"), "x");
            assert!(is(&mapped), "{code}: {mapped:?}");
        }
    }

    #[test]
    fn a_failed_sync_is_told_from_other_failures() {
        assert!(is_sync_failure(&failure(ffi::SQLITE_IOERR_FSYNC, "")));
        assert!(!is_sync_failure(&failure(ffi::SQLITE_IOERR_READ, "")));
        assert!(is_io_failure(&failure(ffi::SQLITE_IOERR_READ, "")));
        assert!(!is_io_failure(&failure(ffi::SQLITE_FULL, "")));
    }
}
