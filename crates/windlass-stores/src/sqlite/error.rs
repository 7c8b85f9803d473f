//! From SQLite's errors to windlass's, once, at the edge.

use rusqlite::ErrorCode;
use windlass_core::{Error, ErrorKind, Reason};

/// Names the operation and sorts the cause by what can be done about it.
pub(super) fn classify(operation: &str, cause: rusqlite::Error) -> Error {
    let (kind, reason) = match cause.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            (ErrorKind::Corrupt, Reason::Unspecified)
        }
        Some(ErrorCode::DiskFull | ErrorCode::OutOfMemory) => {
            (ErrorKind::Unavailable, Reason::StorageFull)
        }
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            (ErrorKind::Unavailable, Reason::ReadOnly)
        }
        Some(_) => (ErrorKind::Unavailable, Reason::Unspecified),
        // Not SQLite's but the wrapper's: a column of another type than windlass writes.
        None => (ErrorKind::Corrupt, Reason::Unspecified),
    };
    Error::new(kind, format!("{operation} in sqlite")).reason_is(reason).because(cause)
}

/// True when another connection holds the lock, so that trying again will do.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Adds the operation to a result of the driver.
pub(super) trait During<T> {
    /// Names what was being done.
    fn during(self, operation: &str) -> windlass_core::Result<T>;
}

impl<T> During<T> for rusqlite::Result<T> {
    fn during(self, operation: &str) -> windlass_core::Result<T> {
        self.map_err(|cause| classify(operation, cause))
    }
}
