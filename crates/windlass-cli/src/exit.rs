//! What a command ends with: an exit code that scripts can act on, and a sentence for people.

use std::fmt;

use serde_json::Value;
use windlass::core::{Error, ErrorKind, Reason};

/// The exit codes of the command line; documented in `docs/cli.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    /// Something went wrong that has no code of its own.
    Error = 1,
    /// The command line, a value or a setting is wrong.
    Usage = 2,
    /// What was asked for is not there.
    NotFound = 3,
    /// The state of things forbids it.
    Conflict = 4,
    /// The server wants another token, or does not allow this one to do it; or the store lets windlass do
    /// less than it needs.
    Forbidden = 5,
    /// The awaited task ended dead or cancelled.
    TaskFailed = 6,
    /// The time to wait was over.
    TimedOut = 7,
    /// Some of many could not be done.
    Partly = 8,
    /// The store or the server cannot be reached.
    Unreachable = 69,
    /// Stopped by a signal.
    Interrupted = 130,
}

/// Why a command did not succeed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    /// Empty where the output has said it already.
    pub(crate) text: String,
}

/// Short for the outcome of a command.
pub(crate) type Done<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new(Code::Usage, text)
    }

    /// For a command whose output says all there is to say.
    pub(crate) fn silent(code: Code) -> Self {
        Self::new(code, "")
    }

    /// What an answer of the API that is no success means here.
    pub(crate) fn of_answer(status: u16, body: &[u8]) -> Self {
        let mut problem: Value = serde_json::from_slice(body).unwrap_or_default();
        if problem.is_object() {
            problem["status"] = status.into();
            return Self::of_problem(&problem);
        }
        Self::new(code_of_status(status), format!("the server answered with status {status}"))
    }

    /// What a problem document means here.
    pub(crate) fn of_problem(problem: &Value) -> Self {
        let status = problem["status"].as_u64().and_then(|status| u16::try_from(status).ok());
        let status = status.unwrap_or_default();
        let text = match (problem["detail"].as_str(), problem["existing_id"].as_str()) {
            (Some(detail), Some(id)) if !detail.contains(id) => format!("{detail} (task {id})"),
            (Some(detail), _) => detail.to_owned(),
            (None, _) => format!("the server answered with status {status}"),
        };
        let code = match problem["type"].as_str() {
            Some("/problems/store-forbidden") => Code::Forbidden,
            _ => code_of_status(status),
        };
        Self::new(code, text)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            // A wrong password, or a right that is missing.
            _ if error.reason() == Reason::Forbidden => Code::Forbidden,
            ErrorKind::Invalid | ErrorKind::Unsupported => Code::Usage,
            ErrorKind::NotFound => Code::NotFound,
            ErrorKind::Conflict => Code::Conflict,
            ErrorKind::Unavailable => Code::Unreachable,
            // The enum may grow; what has no code of its own is an error like any other.
            _ => Code::Error,
        };
        Self::new(code, error.chain())
    }
}

/// The one place that turns a status of HTTP into an exit code.
fn code_of_status(status: u16) -> Code {
    match status {
        400 | 405 | 413 | 415 | 422 | 501 => Code::Usage,
        401 | 403 => Code::Forbidden,
        404 => Code::NotFound,
        408 => Code::TimedOut,
        409 => Code::Conflict,
        502..=504 => Code::Unreachable,
        _ => Code::Error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_told_in_its_own_words() {
        let body = br#"{"title":"conflict","status":409,"detail":"held","existing_id":"a1"}"#;
        let failure = Failure::of_answer(409, body);
        assert_eq!((failure.code, failure.text.as_str()), (Code::Conflict, "held (task a1)"));
    }

    #[test]
    fn a_fault_of_our_own_is_an_error_without_a_code_of_its_own() {
        assert_eq!(Failure::from(Error::internal("a change panicked")).code, Code::Error);
        assert_eq!(code_of_status(500), Code::Error);
    }

    #[test]
    fn a_wrong_password_is_forbidden() {
        for kind in [ErrorKind::Invalid, ErrorKind::Unavailable] {
            let error = Error::new(kind, "connect").reason_is(Reason::Forbidden);
            assert_eq!(Failure::from(error).code, Code::Forbidden);
        }
    }

    #[test]
    fn an_answer_that_is_no_problem_document_is_told_by_its_status() {
        let failure = Failure::of_answer(502, b"<html>");
        assert_eq!(failure.code, Code::Unreachable);
        assert!(failure.text.contains("502"), "{failure}");
    }
}
