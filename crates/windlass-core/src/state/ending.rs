//! What the end of a run makes of a task.

use std::time::Duration;

use bytes::Bytes;

use super::table::State;
use crate::clock::When;
use crate::dice::Dice;
use crate::history::{Happening, Note};
use crate::limits::{Limits, clip};
use crate::name::{Kind, QueueName};
use crate::retry::{self, Backoff, Decision, Failing};
use crate::task::{Claimed, Lease, Priority};

/// What a run came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// It succeeded.
    Completed {
        /// What the handler returned.
        result: Option<Bytes>,
    },
    /// It failed and may be tried again.
    Failed {
        /// What it said.
        error: String,
        /// A delay that the handler asked for instead of the backoff.
        retry_after: Option<Duration>,
    },
    /// It took longer than its timeout.
    TimedOut,
    /// It failed, and the handler said that no retry can help.
    Discarded {
        /// What it said.
        error: String,
    },
    /// The deadline came.
    DeadlinePassed {
        /// Whether the handler had started.
        has_started: bool,
    },
    /// The handler wants to be run later; this run does not count.
    Snoozed {
        /// How much later.
        delay: Duration,
    },
    /// A suspect that had to wait for another suspect; this run does not count.
    PutOff,
    /// Given back unfinished (shutdown, never started, self-fenced); this run does not count.
    Released,
    /// Given back unstarted, since other workers handle tasks of its kind; this run does not count and leaves no trace.
    HandledElsewhere,
    /// No live worker handles tasks of its kind, so it waits for one; this run does not count.
    Unhandled {
        /// When to look again.
        delay: Duration,
    },
    /// The handler stopped because it was cancelled, or called itself off.
    Cancelled,
}

impl Ending {
    /// The word for it in logs and traces, and what was wrong with the run if something was.
    pub fn outcome(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Completed { .. } => ("completed", None),
            Self::Failed { error, .. } => ("failed", Some(error)),
            Self::TimedOut => ("timed_out", Some("the run took longer than its timeout")),
            Self::Discarded { error } => ("discarded", Some(error)),
            Self::DeadlinePassed { .. } => ("deadline_passed", Some("the deadline has passed")),
            Self::Snoozed { .. } => ("snoozed", None),
            Self::PutOff => ("put_off", None),
            Self::Released | Self::HandledElsewhere => ("released", None),
            Self::Unhandled { .. } => ("unhandled", None),
            Self::Cancelled => ("cancelled", None),
        }
    }

    /// The same within the limits of what is kept: a result that is too large is a failure, and an
    /// error that is too long is cut.
    #[must_use]
    pub fn within(self, limits: &Limits) -> Self {
        let cut = |mut error: String| {
            error.truncate(clip(&error, limits.error_bytes_max).len());
            error
        };
        match self {
            Self::Completed { result: Some(result) } if result.len() > limits.result_bytes_max => {
                let (bytes, most) = (result.len(), limits.result_bytes_max);
                let error = format!("the result has {bytes} bytes, at most {most} are kept");
                Self::Failed { error, retry_after: None }
            }
            Self::Failed { error, retry_after } => Self::Failed { error: cut(error), retry_after },
            Self::Discarded { error } => Self::Discarded { error: cut(error) },
            other => other,
        }
    }
}

/// Where a task goes next, and what is to be kept of how it got there.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The state it takes.
    pub state: State,
    /// For waiting states: when it is due, by the store's clock.
    pub when: When,
    /// Its attempts from now on.
    pub attempts: u32,
    /// Its crashes from now on.
    pub crashes: u32,
    /// What the handler returned.
    pub result: Option<Bytes>,
    /// What its timeline should remember; nothing on the happy path.
    pub note: Option<Note>,
}

/// The end of a run as a worker reports it: fenced, and decided for both answers to the question
/// whether a cancel was requested, since only the store knows that for sure.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    /// The lease under which it is reported.
    pub lease: Lease,
    /// What sort of task it is; for statistics.
    pub kind: Kind,
    /// Where the task was claimed from; spares stores a look-up.
    pub queue: QueueName,
    /// Where the task was claimed from; spares stores a look-up.
    pub priority: Priority,
    /// How long the finished record is kept.
    pub retention: Duration,
    /// How long the handler ran.
    pub took: Option<Duration>,
    /// What it comes to.
    pub next: Step,
    /// The state instead of `next.state` when the store knows of a cancel request.
    pub next_if_cancelled: State,
}

impl Transition {
    /// Adds how long the handler ran.
    #[must_use]
    pub fn took(self, took: Duration) -> Self {
        Self { took: Some(took), ..self }
    }

    /// The state that the task takes.
    pub fn chosen_state(&self, is_cancel_requested: bool) -> State {
        if is_cancel_requested { self.next_if_cancelled } else { self.next.state }
    }
}

/// What is known of a running task whose worker does not report its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Runs that count, the present one included.
    pub attempts: u32,
    /// Crashes before this one.
    pub crashes: u32,
    /// Crashes that it survives.
    pub max_crashes: u32,
    /// A cancel waits for it.
    pub is_cancel_requested: bool,
}

/// How long a surplus suspect waits: 2 s ± 1 s.
const PUT_OFF_SECONDS: f64 = 2.0;
const PUT_OFF_SPREAD_SECONDS: f64 = 1.0;

/// Decides what the reported end of a run makes of its task.
///
/// `backoff` is the one of the task's kind or queue; the task's own wins over it.
pub fn finish(task: &Claimed, ending: Ending, backoff: &Backoff, dice: &mut Dice) -> Transition {
    let counted = task.attempts;
    let given_back = task.attempts.saturating_sub(1);
    let place = |state, when, attempts, note| Step {
        state,
        when,
        attempts,
        crashes: task.crashes,
        result: None,
        note: Some(note),
    };
    let note = |what, error| Note { what, error };
    let retry = |what, error, retry_after, dice: &mut Dice| {
        let failing =
            Failing { attempts: counted, max_retries: task.spec.max_retries, retry_after };
        let own = task.spec.extras.backoff.as_ref().unwrap_or(backoff);
        match retry::decide(failing, own, dice) {
            Decision::Again(delay) => {
                place(State::Retrying, When::After(delay), counted, note(what, error))
            }
            Decision::GiveUp => place(State::DeadLetter, When::Now, counted, note(what, error)),
        }
    };
    let next = match ending {
        Ending::Completed { result } => Step {
            state: State::Completed,
            when: When::Now,
            attempts: counted,
            crashes: task.crashes,
            result,
            note: None,
        },
        Ending::Failed { error, retry_after } => {
            retry(Happening::Failed, Some(error), retry_after, dice)
        }
        Ending::TimedOut => {
            let error = format!("ran longer than its timeout of {:?}", task.spec.timeout);
            retry(Happening::TimedOut, Some(error), None, dice)
        }
        Ending::Discarded { error } => {
            let note = note(Happening::Discarded, Some(error));
            place(State::DeadLetter, When::Now, counted, note)
        }
        Ending::DeadlinePassed { has_started } => {
            let attempts = if has_started { counted } else { given_back };
            let note = note(Happening::DeadlinePassed, Some(String::from("deadline passed")));
            place(State::DeadLetter, When::Now, attempts, note)
        }
        Ending::Snoozed { delay } => {
            let note = note(Happening::Snoozed, None);
            place(State::Scheduled, When::After(delay), given_back, note)
        }
        Ending::PutOff => {
            let seconds = dice.signed_unit().mul_add(PUT_OFF_SPREAD_SECONDS, PUT_OFF_SECONDS);
            let when = When::After(Duration::from_secs_f64(seconds));
            place(State::Scheduled, when, given_back, note(Happening::PutOff, None))
        }
        Ending::Released => {
            place(State::Pending, When::Now, given_back, note(Happening::Released, None))
        }
        Ending::HandledElsewhere => {
            let step =
                place(State::Pending, When::Now, given_back, note(Happening::Released, None));
            Step { note: None, ..step }
        }
        Ending::Unhandled { delay } => {
            let note = note(Happening::Snoozed, Some(unhandled(&task.kind)));
            place(State::Scheduled, When::After(delay), given_back, note)
        }
        Ending::Cancelled => {
            place(State::Cancelled, When::Now, counted, note(Happening::Cancelled, None))
        }
    };
    // A success stays a success, since its effect has happened; a cancel wins over the rest.
    let next_if_cancelled = match next.state {
        State::Completed => State::Completed,
        _ => State::Cancelled,
    };
    Transition {
        lease: task.lease(),
        kind: task.kind.clone(),
        queue: task.queue.clone(),
        priority: task.priority,
        retention: task.spec.retention,
        took: None,
        next,
        next_if_cancelled,
    }
}

/// The reason why a task waits that [`Ending::Unhandled`] has ended.
pub fn unhandled(kind: &Kind) -> String {
    format!("no live worker handles type {kind}")
}

/// Decides what the loss of its worker makes of a running task: no attempt is spent.
pub fn expire(held: Held) -> Step {
    let crashes = held.crashes.saturating_add(1);
    let state = if held.is_cancel_requested {
        State::Cancelled
    } else if crashes > held.max_crashes {
        State::DeadLetter
    } else {
        State::Pending
    };
    let mut step = given_back(held, state, crashes, Happening::Crashed);
    if state == State::DeadLetter {
        let most = held.max_crashes;
        let error =
            format!("its worker was lost too often: crash {crashes}, at most {most} allowed");
        step.note = Some(Note { what: Happening::Crashed, error: Some(error) });
    }
    step
}

/// Decides what becomes of a running task that its worker left behind or never received: neither an
/// attempt nor a crash is counted.
pub fn release(held: Held) -> Step {
    let state = if held.is_cancel_requested { State::Cancelled } else { State::Pending };
    given_back(held, state, held.crashes, Happening::Released)
}

fn given_back(held: Held, state: State, crashes: u32, what: Happening) -> Step {
    Step {
        state,
        when: When::Now,
        attempts: held.attempts.saturating_sub(1),
        crashes,
        result: None,
        note: Some(Note { what, error: None }),
    }
}

#[cfg(test)]
#[path = "ending_tests.rs"]
mod tests;
