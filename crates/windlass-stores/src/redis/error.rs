//! From Redis's errors to windlass's, once, at the edge.

use redis::{ErrorKind as Sort, RedisError, ServerErrorKind};
use windlass_core::{Error, ErrorKind, QueueName, Reason};

/// Names the operation and sorts the cause by what can be done about it.
pub(super) fn classify(operation: &str, cause: RedisError) -> Error {
    let (kind, reason) = sort(&cause);
    Error::new(kind, format!("{operation} in redis")).reason_is(reason).because(cause)
}

fn sort(cause: &RedisError) -> (ErrorKind, Reason) {
    let code = code_of(cause);
    if let Some(sorted) = sort_code(code) {
        return sorted;
    }
    match cause.kind() {
        Sort::AuthenticationFailed => (ErrorKind::Unavailable, Reason::Forbidden),
        // A key of another type than windlass writes, or a script that met such data.
        _ if code == "WRONGTYPE" => (ErrorKind::Corrupt, Reason::Unspecified),
        Sort::Server(_) | Sort::UnexpectedReturnType => (ErrorKind::Corrupt, Reason::Unspecified),
        Sort::InvalidClientConfig => (ErrorKind::Invalid, Reason::Unspecified),
        // Also bytes that are no answer (`Parse`): the driver says so of an answer that was cut off in its midst.
        _ => (ErrorKind::Unavailable, Reason::Unspecified),
    }
}

/// The code of a server's error. Before 7.0 a command that failed within a script has its code in the midst
/// of the text.
fn code_of(cause: &RedisError) -> &str {
    let wrapped = cause.detail().filter(|text| text.starts_with("Error running script"));
    let inner = wrapped.and_then(|text| text.rsplit_once(": -"));
    let code = inner.and_then(|(_, text)| text.split_whitespace().next());
    code.or_else(|| cause.code()).unwrap_or_default()
}

/// The answers of a server that is there, but cannot do it now, or not for us.
fn sort_code(code: &str) -> Option<(ErrorKind, Reason)> {
    let reason = match code {
        "READONLY" | "NOPERM" => Reason::ReadOnly,
        "NOAUTH" | "WRONGPASS" => Reason::Forbidden,
        "OOM" | "MISCONF" => Reason::StorageFull,
        "LOADING" | "CLUSTERDOWN" | "MASTERDOWN" | "TRYAGAIN" | "MOVED" | "ASK" | "NOSCRIPT"
        | "NOTBUSY" | "BUSY" | "NOREPLICAS" | "UNKILLABLE" => Reason::Unspecified,
        _ => return None,
    };
    Some((ErrorKind::Unavailable, reason))
}

/// True when the server does not know a script (any more).
pub(super) fn is_script_missing(cause: &RedisError) -> bool {
    cause.kind() == Sort::Server(ServerErrorKind::NoScript)
}

/// True when no node of a Cluster has done anything of a command: its slot has moved, is being moved, or has
/// no master at present.
pub(super) fn is_refused(cause: &RedisError) -> bool {
    let is_known = matches!(
        cause.code(),
        Some("TRYAGAIN" | "ASK" | "MOVED" | "CLUSTERDOWN" | "MASTERDOWN" | "LOADING" | "READONLY")
    );
    is_known || cause.kind() == Sort::ClusterConnectionNotFound
}

/// The same of an error that was classified.
pub(super) fn was_refused(error: &Error) -> bool {
    let cause = std::error::Error::source(error);
    cause.and_then(|cause| cause.downcast_ref()).is_some_and(is_refused)
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

/// What a script reports of a queue that it cannot work on, for example since a key of it has another type. The text is
/// for callers; the key is only in the cause.
pub(super) fn damaged_queue(queue: &QueueName, trouble: &[u8]) -> Error {
    let text = format!("queue {queue} has damaged data; `windlass doctor` names them");
    let cause = Error::corrupt(String::from_utf8_lossy(trouble));
    Error::corrupt(text).reason_is(Reason::DamagedQueue).because(cause)
}

/// Adds the name of the queue to an error of a call on one queue, if the data of the queue are damaged.
pub(super) fn in_queue(queue: &QueueName, error: Error) -> Error {
    let is_unnamed = error.reason() == Reason::Unspecified;
    match error.kind() == ErrorKind::Corrupt && is_unnamed {
        true => damaged_queue(queue, error.chain().as_bytes()),
        false => error,
    }
}

#[cfg(test)]
mod tests {
    use redis::parse_redis_value;

    use super::*;

    fn sorted(answer: &str) -> (ErrorKind, Reason) {
        let answer = parse_redis_value(format!("-{answer}\r\n").as_bytes()).unwrap();
        sort(&answer.extract_error().unwrap_err())
    }

    #[test]
    fn an_answer_that_was_cut_off_says_nothing_of_what_is_stored() {
        for cut in ["-NOSC", "-LOADING", "*2\r\n:1\r\n", "$5\r\nab", "no answer\r\n"] {
            let error = parse_redis_value(cut.as_bytes()).unwrap_err();
            assert_eq!(sort(&error), (ErrorKind::Unavailable, Reason::Unspecified), "{cut:?}");
        }
    }

    #[test]
    fn what_a_command_within_a_script_says_counts_in_the_words_of_every_version() {
        let within = |text: &str| {
            let newer = format!("{text} script: 0a9a, on @user_script:41.");
            let older = format!(
                "ERR Error running script (call to f_0a9a): @user_script:41: @user_script: 41: -{text}"
            );
            assert_eq!(sorted(&newer), sorted(&older), "{text}");
            sorted(&older)
        };
        let full = (ErrorKind::Unavailable, Reason::StorageFull);
        assert_eq!(within("OOM command not allowed when used memory > 'maxmemory'."), full);
        let read_only = (ErrorKind::Unavailable, Reason::ReadOnly);
        assert_eq!(within("READONLY You can't write against a read only replica."), read_only);
        let away = (ErrorKind::Unavailable, Reason::Unspecified);
        assert_eq!(within("NOREPLICAS Not enough good replicas to write."), away);
        let corrupt = (ErrorKind::Corrupt, Reason::Unspecified);
        let text = "WRONGTYPE Operation against a key holding the wrong kind of value";
        assert_eq!(sorted(text), corrupt);
        assert_eq!(sorted("ERR Error running script (call to f_0): user_script:1: oh"), corrupt);
    }

    #[test]
    fn a_wrong_password_is_forbidden() {
        for answer in
            ["WRONGPASS invalid username-password pair", "NOAUTH Authentication required."]
        {
            assert_eq!(sorted(answer), (ErrorKind::Unavailable, Reason::Forbidden), "{answer}");
        }
    }

    #[test]
    fn a_server_that_cannot_do_it_now_is_unavailable() {
        for code in ["LOADING", "BUSY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "NOSCRIPT"] {
            let (kind, _) = sorted(&format!("{code} for a reason"));
            assert_eq!(kind, ErrorKind::Unavailable, "{code}");
        }
    }
}
