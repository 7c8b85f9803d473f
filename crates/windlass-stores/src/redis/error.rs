//! From Redis's errors to windlass's, once, at the edge.

use redis::{ErrorKind as Sort, RedisError, ServerErrorKind};
use windlass_core::{Error, ErrorKind, Reason};

/// Names the operation and sorts the cause by what can be done about it.
pub(super) fn classify(operation: &str, cause: RedisError) -> Error {
    let (kind, reason) = sort(&cause);
    Error::new(kind, format!("{operation} in redis")).reason_is(reason).because(cause)
}

fn sort(cause: &RedisError) -> (ErrorKind, Reason) {
    let code = cause.code().unwrap_or_default();
    match cause.kind() {
        Sort::Server(ServerErrorKind::ReadOnly) => (ErrorKind::Unavailable, Reason::ReadOnly),
        Sort::Server(ServerErrorKind::NoPerm) | Sort::AuthenticationFailed => {
            (ErrorKind::Unavailable, Reason::ReadOnly)
        }
        // The answers of a server that is there, but cannot do it now.
        Sort::Server(
            ServerErrorKind::BusyLoading
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown
            | ServerErrorKind::TryAgain
            | ServerErrorKind::Moved
            | ServerErrorKind::Ask
            | ServerErrorKind::NoScript
            | ServerErrorKind::NotBusy,
        ) => (ErrorKind::Unavailable, Reason::Unspecified),
        _ if code == "OOM" || code == "MISCONF" => (ErrorKind::Unavailable, Reason::StorageFull),
        _ if matches!(code, "BUSY" | "NOREPLICAS" | "UNKILLABLE") => {
            (ErrorKind::Unavailable, Reason::Unspecified)
        }
        // A key of another type than windlass writes, or a script that met such data.
        Sort::Server(_) | Sort::Parse | Sort::UnexpectedReturnType => {
            (ErrorKind::Corrupt, Reason::Unspecified)
        }
        Sort::InvalidClientConfig => (ErrorKind::Invalid, Reason::Unspecified),
        _ if is_refused(code) => (ErrorKind::Unavailable, Reason::ReadOnly),
        _ => (ErrorKind::Unavailable, Reason::Unspecified),
    }
}

fn is_refused(code: &str) -> bool {
    matches!(code, "NOAUTH" | "WRONGPASS" | "NOPERM")
}

/// True when the server does not know a script (any more).
pub(super) fn is_script_missing(cause: &RedisError) -> bool {
    cause.kind() == Sort::Server(ServerErrorKind::NoScript)
}

/// True when the connection must not be used again: it is broken, or an answer did not come and
/// nobody can tell what the next one belongs to.
pub(super) fn is_connection_spent(cause: &RedisError) -> bool {
    cause.is_io_error() || cause.is_connection_dropped() || cause.is_unrecoverable_error()
}

/// What a server said that no windlass script says.
pub(super) fn strange(operation: &str) -> Error {
    Error::corrupt(format!("{operation} in redis: an answer of another form than expected"))
}
