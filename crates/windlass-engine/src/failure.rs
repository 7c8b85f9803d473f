//! How a handler ends otherwise than well.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use windlass_core::Ending;

/// What a handler returns: its output, or why there is none.
pub type Outcome<T> = Result<T, Failure>;

/// Why a run did not succeed, and what should follow.
///
/// Any error becomes one by `?` and is retried with backoff. [`retry_after`], [`discard`],
/// [`snooze`] and [`cancelled`] say otherwise.
pub struct Failure {
    what: What,
    text: String,
}

enum What {
    Retry(Option<Duration>),
    Discard,
    Snooze(Duration),
    Cancelled,
}

/// A failure after which the next run waits just this long.
pub fn retry_after(delay: Duration, reason: impl fmt::Display) -> Failure {
    Failure { what: What::Retry(Some(delay)), text: reason.to_string() }
}

/// A failure that no retry can mend: the task goes to the dead letters.
pub fn discard(reason: impl fmt::Display) -> Failure {
    Failure { what: What::Discard, text: reason.to_string() }
}

/// Not now: the task runs again after this long, and this run does not count.
pub fn snooze(delay: Duration) -> Failure {
    Failure { what: What::Snooze(delay), text: String::new() }
}

/// The handler stopped because it was asked to, or calls its task off.
pub fn cancelled() -> Failure {
    Failure { what: What::Cancelled, text: String::new() }
}

impl Failure {
    pub(crate) fn into_ending(self) -> Ending {
        match self.what {
            What::Retry(retry_after) => Ending::Failed { error: self.text, retry_after },
            What::Discard => Ending::Discarded { error: self.text },
            What::Snooze(delay) => Ending::Snoozed { delay },
            What::Cancelled => Ending::Cancelled,
        }
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Retry(None) => write!(f, "failed: {}", self.text),
            What::Retry(Some(delay)) => write!(f, "failed, again after {delay:?}: {}", self.text),
            What::Discard => write!(f, "discarded: {}", self.text),
            What::Snooze(delay) => write!(f, "snoozed for {delay:?}"),
            What::Cancelled => write!(f, "cancelled"),
        }
    }
}

// `Failure` itself is no `std::error::Error`: else this could not be written for all errors.
impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = error.into();
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        Self { what: What::Retry(None), text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question_mark() -> Outcome<()> {
        "no number".parse::<u32>()?;
        Ok(())
    }

    #[test]
    fn any_error_becomes_a_failure_that_is_retried() {
        let ending = question_mark().unwrap_err().into_ending();
        let Ending::Failed { error, retry_after: None } = ending else { panic!("{ending:?}") };
        assert!(error.contains("invalid digit"), "{error}");
    }

    #[test]
    fn the_constructors_say_what_follows() {
        let second = Duration::from_secs(1);
        let check = |failure: Failure, ending| assert_eq!(failure.into_ending(), ending);
        check(discard("no"), Ending::Discarded { error: "no".into() });
        check(snooze(second), Ending::Snoozed { delay: second });
        check(cancelled(), Ending::Cancelled);
        let failed = Ending::Failed { error: "busy".into(), retry_after: Some(second) };
        check(retry_after(second, "busy"), failed);
    }
}
