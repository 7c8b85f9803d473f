//! The error of a wait for a task that ended without a result.

use std::fmt;

use windlass_core::{Error, ErrorKind, State, TaskId, TaskRecord};

/// How a task ended that has no result: dead or cancelled. It is the source of the error that
/// [`Handle::wait`](crate::Handle::wait) returns.
///
/// ```
/// # use windlass_engine::TaskFailed;
/// # fn handle(error: windlass_core::Error) {
/// if let Some(failed) = TaskFailed::from_error(&error) {
///     eprintln!("task {} failed after {} attempts: {:?}", failed.id, failed.attempts, failed.error_text);
/// }
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskFailed {
    /// The task.
    pub id: TaskId,
    /// `DeadLetter` or `Cancelled`.
    pub state: State,
    /// Runs that counted.
    pub attempts: u32,
    /// Runs that were lost with their worker.
    pub crashes: u32,
    /// What the last failing run reported.
    pub error_text: Option<String>,
}

impl TaskFailed {
    pub(crate) fn new(record: &TaskRecord) -> Self {
        Self {
            id: record.id.clone(),
            state: record.state,
            attempts: record.attempts,
            crashes: record.crashes,
            error_text: record.history.last_error().map(str::to_owned),
        }
    }

    /// The failure behind an error; `None` where the error has another cause, such as a store that is unavailable.
    pub fn from_error(error: &Error) -> Option<&Self> {
        std::error::Error::source(error)?.downcast_ref()
    }

    pub(crate) fn into_error(self) -> Error {
        let text = format!("task {} has no result", self.id);
        Error::new(ErrorKind::Conflict, text).because(self)
    }
}

impl fmt::Display for TaskFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it ended {}", self.state)?;
        match &self.error_text {
            Some(text) => write!(f, ": {text}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for TaskFailed {}
