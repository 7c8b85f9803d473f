//! From PostgreSQL's errors to windlass's, once, at the edge.

use tokio_postgres::error::SqlState;
use windlass_core::{Error, ErrorKind, NewTask, Reason};

/// Names the operation and sorts the cause by what can be done about it.
pub(super) fn classify(operation: &str, cause: tokio_postgres::Error) -> Error {
    if lacks_lock_space(&cause) {
        let text = format!(
            "{operation} in postgres: the lock table is full; raise max_locks_per_transaction"
        );
        return Error::new(ErrorKind::Unavailable, text)
            .reason_is(Reason::LockTableFull)
            .because(cause);
    }
    let (kind, reason) = match cause.code() {
        Some(code) => classify_code(code.code()),
        None if cause.is_closed() || is_io(&cause) => (ErrorKind::Unavailable, Reason::Unspecified),
        // Not the server's but the driver's: a column of another type than windlass writes.
        None => (ErrorKind::Corrupt, Reason::Unspecified),
    };
    Error::new(kind, format!("{operation} in postgres")).reason_is(reason).because(cause)
}

/// What can be done about a code of the server's.
pub(super) fn classify_code(code: &str) -> (ErrorKind, Reason) {
    let is = |state: SqlState| state.code() == code;
    if is(SqlState::READ_ONLY_SQL_TRANSACTION) {
        (ErrorKind::Unavailable, Reason::ReadOnly)
    } else if is(SqlState::INSUFFICIENT_PRIVILEGE) {
        (ErrorKind::Unavailable, Reason::Forbidden)
    } else if is(SqlState::DISK_FULL) {
        (ErrorKind::Unavailable, Reason::StorageFull)
    } else if code.starts_with("22") {
        // Data that the server cannot hold, such as a NUL in a text.
        (ErrorKind::Invalid, Reason::Unspecified)
    } else if code.starts_with("XX") {
        (ErrorKind::Corrupt, Reason::Unspecified)
    } else {
        (ErrorKind::Unavailable, Reason::Unspecified)
    }
}

/// True when the server has no room for another lock. It has one code for all memory that it lacks; the
/// hint names the setting in every language.
fn lacks_lock_space(cause: &tokio_postgres::Error) -> bool {
    cause.as_db_error().is_some_and(|error| {
        *error.code() == SqlState::OUT_OF_MEMORY
            && error.hint().is_some_and(|hint| hint.contains("locks_per_transaction"))
    })
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if error.is::<std::io::Error>() {
            return true;
        }
        cause = error.source();
    }
    // What the driver says of a server that went away in the middle of a message.
    error.to_string().contains("connect") || error.to_string().contains("timeout")
}

/// The server's code behind an error, if it has one.
fn code(error: &Error) -> Option<&SqlState> {
    let cause = std::error::Error::source(error)?;
    cause.downcast_ref::<tokio_postgres::Error>()?.code()
}

/// True when the server has undone the transaction for the sake of another, so that the same
/// transaction may be tried again at once.
pub(super) fn is_worth_repeating(error: &Error) -> bool {
    code(error).is_some_and(|code| {
        *code == SqlState::T_R_DEADLOCK_DETECTED
            || *code == SqlState::T_R_SERIALIZATION_FAILURE
            || *code == SqlState::UNIQUE_VIOLATION
    })
}

/// True when stored rows are not as windlass writes them, so that a statement fails whoever repeats it.
pub(super) fn is_damage(error: &Error) -> bool {
    code(error).is_some_and(|code| {
        ["21", "22", "23", "XX"].iter().any(|class| code.code().starts_with(class))
    })
}

/// True when something with that key is there already.
pub(super) fn is_duplicate(error: &Error) -> bool {
    code(error).is_some_and(|code| *code == SqlState::UNIQUE_VIOLATION)
}

/// True when no partition of a table is there for a row. The server has the same code for a check that a row does
/// not pass, and names that check.
pub(super) fn is_missing_partition(error: &Error) -> bool {
    let cause = std::error::Error::source(error);
    let cause = cause.and_then(|cause| cause.downcast_ref::<tokio_postgres::Error>());
    cause.and_then(tokio_postgres::Error::as_db_error).is_some_and(|cause| {
        *cause.code() == SqlState::CHECK_VIOLATION && cause.constraint().is_none()
    })
}

/// True when a lock was not given up in time.
pub(super) fn is_lock_timeout(error: &Error) -> bool {
    code(error).is_some_and(|code| *code == SqlState::LOCK_NOT_AVAILABLE)
}

/// What is told of a task whose key is in someone's open transaction.
pub(super) fn key_busy() -> Error {
    let text = "a key of the task is in a transaction that is still open";
    Error::new(ErrorKind::Unavailable, text).reason_is(Reason::KeyBusy)
}

/// What is told of a task whose queue or kind somebody's open transaction is about to make.
pub(super) fn name_busy(task: &NewTask) -> Error {
    let (kind, queue) = (task.kind.as_str(), task.queue.as_str());
    let text =
        format!("type {kind:?} or queue {queue:?} is new, and in a transaction that is still open");
    Error::new(ErrorKind::Unavailable, text).reason_is(Reason::NameBusy)
}

/// Adds the operation to a result of the driver.
pub(super) trait During<T> {
    /// Names what was being done.
    fn during(self, operation: &str) -> windlass_core::Result<T>;
}

impl<T> During<T> for Result<T, tokio_postgres::Error> {
    fn during(self, operation: &str) -> windlass_core::Result<T> {
        self.map_err(|cause| classify(operation, cause))
    }
}
