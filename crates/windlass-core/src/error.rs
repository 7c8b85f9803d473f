//! The one error of windlass: a kind to act on, a sentence for a person, a cause for the log.
//!
//! A failing *handler* is not an error but an [`crate::Ending`].

use std::fmt;
use std::sync::Arc;

/// Short for a result with windlass's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Says what can be done about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// What was asked for is not there.
    NotFound,
    /// The request is sound, but the present state forbids it.
    Conflict,
    /// The request itself is wrong; repeating it cannot help.
    Invalid,
    /// The caller's right (lease, registration, leadership term) has passed to someone else.
    LeaseLost,
    /// The store cannot answer now; repeating later can help.
    Unavailable,
    /// This store cannot do that; its capabilities say so.
    Unsupported,
    /// Stored data cannot be read as windlass wrote it.
    Corrupt,
    /// A fault of windlass itself: a panic, a task of its own that ended, an answer that is missing.
    Internal,
}

/// Narrows an [`ErrorKind`] where callers answer differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Reason {
    /// Nothing beyond the kind.
    #[default]
    Unspecified,
    /// A unique key is held by another task.
    UniqueKey,
    /// An idempotency key was used before for a different request.
    IdempotencyMismatch,
    /// The task is in a state that forbids the change.
    State,
    /// A payload, result or other value is over its limit.
    TooLarge,
    /// The worker was declared lost, has left, or was never registered.
    WorkerLost,
    /// A leadership term that is no longer the highest.
    StaleTerm,
    /// The store's schema was written by a newer windlass.
    NewerSchema,
    /// The store cannot be written to (a read-only medium or replica).
    ReadOnly,
    /// Whoever windlass is in the store lacks a right that it needs there.
    Forbidden,
    /// The store's disk or memory is full.
    StorageFull,
    /// The server's table of locks is full: too many are held at once.
    LockTableFull,
    /// A key of the task is in someone's transaction that is still open: it is not known yet who will
    /// hold it.
    KeyBusy,
    /// The task's queue or kind is new, and in someone's transaction that is still open.
    NameBusy,
    /// There are as many already as there may be at once.
    Crowded,
    /// Data of one queue are not as windlass wrote them; others can be used.
    DamagedQueue,
}

/// An error with its kind, its text and its cause.
///
/// Cheap to clone, since one failed batch is answered to each of its callers. The text is a
/// lower-case fragment naming the operation and its subject; the cause is only in `source()`.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    reason: Reason,
    message: String,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// Makes an error of a kind; `message` names the operation and its subject.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            kind,
            reason: Reason::Unspecified,
            message: message.into(),
            source: None,
        }))
    }

    /// Short for an error of kind [`ErrorKind::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// Short for an error of kind [`ErrorKind::LeaseLost`].
    pub fn lease_lost(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::LeaseLost, message)
    }

    /// Short for an error of kind [`ErrorKind::Unsupported`].
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// Short for an error of kind [`ErrorKind::Corrupt`].
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// Short for an error of kind [`ErrorKind::Internal`].
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// Adds the cause, which stays out of the text.
    #[must_use]
    pub fn because(self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        let inner = Inner { source: Some(Arc::new(cause)), ..Arc::unwrap_or_clone(self.0) };
        Self(Arc::new(inner))
    }

    /// Narrows the kind.
    #[must_use]
    pub fn reason_is(self, reason: Reason) -> Self {
        let inner = Inner { reason, ..Arc::unwrap_or_clone(self.0) };
        Self(Arc::new(inner))
    }

    /// What can be done about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The narrower reason, where there is one.
    pub fn reason(&self) -> Reason {
        self.0.reason
    }

    /// True when repeating the same call later may succeed.
    pub fn is_unavailable(&self) -> bool {
        self.0.kind == ErrorKind::Unavailable
    }

    /// True when the store did not answer at all. A store that answers and refuses gives a [`Reason`].
    pub fn is_outage(&self) -> bool {
        self.is_unavailable() && self.0.reason == Reason::Unspecified
    }

    /// True when the caller's lease, registration or term is gone.
    pub fn is_lease_lost(&self) -> bool {
        self.0.kind == ErrorKind::LeaseLost
    }

    /// The text and every cause behind it, for one line of a log.
    pub fn chain(&self) -> String {
        let mut text = self.0.message.clone();
        let mut cause = std::error::Error::source(self);
        let mut last = String::new();
        while let Some(error) = cause {
            let told = error.to_string();
            // Some drivers repeat the text of a cause in that of its effect, or the other way round.
            let is_new = match last.is_empty() {
                true => !text.contains(&told),
                false => !last.contains(&told) && !told.contains(&last),
            };
            if is_new {
                text.push_str(": ");
                text.push_str(&told);
                last = told;
            }
            cause = error.source();
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({:?}): {}", self.0.kind, self.0.reason, self.chain())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|cause| cause as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_in_the_source_and_not_in_the_text() {
        let error = Error::new(ErrorKind::Unavailable, "claim from sqlite")
            .because(std::io::Error::other("disk on fire"));
        assert_eq!(error.to_string(), "claim from sqlite");
        assert_eq!(error.chain(), "claim from sqlite: disk on fire");
    }

    #[test]
    fn a_cause_that_says_the_same_again_is_told_once() {
        let inner = Error::invalid("code 13: the disk is full");
        let outer = Error::invalid("the disk is full").because(inner);
        assert_eq!(Error::invalid("insert").because(outer).chain(), "insert: the disk is full");
        let same = Error::invalid("no such file").because(Error::invalid("no such file"));
        assert_eq!(same.chain(), "no such file");
    }

    #[test]
    fn a_store_that_answers_and_refuses_is_no_outage() {
        let error = Error::new(ErrorKind::Unavailable, "claim from postgres");
        assert!(error.is_outage());
        assert!(!error.reason_is(Reason::StorageFull).is_outage());
        assert!(!Error::invalid("payload").is_outage());
    }

    #[test]
    fn a_clone_keeps_kind_reason_and_cause() {
        let error = Error::invalid("payload").reason_is(Reason::TooLarge);
        let copy = error.clone().because(std::fmt::Error);
        assert_eq!((copy.kind(), copy.reason()), (ErrorKind::Invalid, Reason::TooLarge));
        assert!(std::error::Error::source(&error).is_none());
    }
}
