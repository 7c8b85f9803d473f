//! Decides a retry: whether a failed run gets another one, and how long after.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::dice::Dice;
use crate::error::{Error, Result};

/// What becomes of a task whose run failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It runs again after this delay.
    Again(Duration),
    /// Its budget is spent.
    GiveUp,
}

/// How the delays before retries grow.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "shape", rename_all = "lowercase", deny_unknown_fields)]
pub enum Backoff {
    /// `min(initial × factor^(n−1), max)` before the n-th retry.
    Exponential {
        /// Delay before the first retry.
        #[serde(with = "crate::duration::text")]
        initial: Duration,
        /// What each delay is multiplied by to give the next.
        factor: f64,
        /// No delay is longer, jitter aside.
        #[serde(with = "crate::duration::text")]
        max: Duration,
        /// Share of the delay by which chance moves it, 0 to 1.
        jitter: f64,
    },
    /// `min(step × n, max)` before the n-th retry.
    Linear {
        /// What each retry adds.
        #[serde(with = "crate::duration::text")]
        step: Duration,
        /// No delay is longer, jitter aside.
        #[serde(with = "crate::duration::text")]
        max: Duration,
        /// Share of the delay by which chance moves it, 0 to 1.
        jitter: f64,
    },
    /// The same before every retry.
    Fixed {
        /// The delay.
        #[serde(with = "crate::duration::text")]
        initial: Duration,
        /// Share of the delay by which chance moves it, 0 to 1.
        jitter: f64,
    },
}

/// What counts in deciding about the next run of a failed task.
#[derive(Debug, Clone, Copy)]
pub struct Failing {
    /// Runs so far that count, the failed one included.
    pub attempts: u32,
    /// Runs after the first that are allowed.
    pub max_retries: u32,
    /// A delay that the handler itself asked for.
    pub retry_after: Option<Duration>,
}

/// Decides whether a failed task runs again, and when.
pub fn decide(failing: Failing, backoff: &Backoff, dice: &mut Dice) -> Decision {
    if failing.attempts > failing.max_retries {
        return Decision::GiveUp;
    }
    // What the handler asked for is exact: it often repeats a Retry-After that it was told.
    Decision::Again(failing.retry_after.unwrap_or_else(|| backoff.delay(failing.attempts, dice)))
}

impl Default for Backoff {
    /// 1 s, doubling, at most 5 min, ± 10 %.
    fn default() -> Self {
        Self::Exponential {
            initial: Duration::from_secs(1),
            factor: 2.0,
            max: Duration::from_secs(300),
            jitter: 0.1,
        }
    }
}

impl Backoff {
    /// The delay before the n-th retry (n from 1), moved by chance within the jitter.
    pub fn delay(&self, n: u32, dice: &mut Dice) -> Duration {
        let jitter = match *self {
            Self::Exponential { jitter, .. }
            | Self::Linear { jitter, .. }
            | Self::Fixed { jitter, .. } => jitter,
        };
        let seconds = self.nominal(n).as_secs_f64() * jitter.mul_add(dice.signed_unit(), 1.0);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// The delay before the n-th retry without jitter.
    pub fn nominal(&self, n: u32) -> Duration {
        let n = n.max(1);
        match *self {
            Self::Exponential { initial, factor, max, .. } => {
                let power = factor.powi(i32::try_from(n - 1).unwrap_or(i32::MAX));
                // Zero times infinity is not a number; a zero start stays zero.
                let seconds = if initial.is_zero() { 0.0 } else { initial.as_secs_f64() * power };
                Duration::try_from_secs_f64(seconds).map_or(max, |delay| delay.min(max))
            }
            Self::Linear { step, max, .. } => step.checked_mul(n).map_or(max, |d| d.min(max)),
            Self::Fixed { initial, .. } => initial,
        }
    }

    /// Refuses numbers that make no sense.
    pub fn validate(&self) -> Result<()> {
        let (factor, jitter) = match *self {
            Self::Exponential { factor, jitter, .. } => (factor, jitter),
            Self::Linear { jitter, .. } | Self::Fixed { jitter, .. } => (1.0, jitter),
        };
        if !(factor.is_finite() && factor > 0.0) {
            return Err(Error::invalid(format!("backoff factor {factor}: use a number above 0")));
        }
        if !(0.0..=1.0).contains(&jitter) {
            return Err(Error::invalid(format!("backoff jitter {jitter}: use 0 to 1")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn exponential() -> Backoff {
        Backoff::default()
    }

    fn check_nominal(backoff: &Backoff, n: u32, seconds: u64) {
        assert_eq!(backoff.nominal(n), Duration::from_secs(seconds), "{backoff:?} n={n}");
    }

    #[test]
    fn exponential_doubles_up_to_its_maximum() {
        check_nominal(&exponential(), 1, 1);
        check_nominal(&exponential(), 2, 2);
        check_nominal(&exponential(), 9, 256);
        check_nominal(&exponential(), 10, 300);
        check_nominal(&exponential(), u32::MAX, 300);
    }

    #[test]
    fn linear_adds_a_step_up_to_its_maximum() {
        let linear = Backoff::Linear { step: SECOND * 5, max: SECOND * 12, jitter: 0.0 };
        check_nominal(&linear, 1, 5);
        check_nominal(&linear, 2, 10);
        check_nominal(&linear, 3, 12);
        check_nominal(&linear, u32::MAX, 12);
    }

    #[test]
    fn fixed_stays_the_same() {
        let fixed = Backoff::Fixed { initial: SECOND * 7, jitter: 0.0 };
        check_nominal(&fixed, 1, 7);
        check_nominal(&fixed, u32::MAX, 7);
    }

    #[test]
    fn a_zero_start_stays_zero() {
        let zero = Backoff::Exponential {
            initial: Duration::ZERO,
            factor: 10.0,
            max: SECOND,
            jitter: 0.5,
        };
        check_nominal(&zero, u32::MAX, 0);
    }

    #[test]
    fn the_last_allowed_run_is_followed_by_no_other() {
        let mut dice = Dice::seeded(1);
        let failing = |attempts| Failing { attempts, max_retries: 3, retry_after: None };
        assert!(matches!(decide(failing(3), &exponential(), &mut dice), Decision::Again(_)));
        assert_eq!(decide(failing(4), &exponential(), &mut dice), Decision::GiveUp);
    }

    #[test]
    fn a_delay_that_the_handler_asked_for_is_exact() {
        let failing = Failing { attempts: 1, max_retries: 3, retry_after: Some(SECOND * 42) };
        let decision = decide(failing, &exponential(), &mut Dice::seeded(1));
        assert_eq!(decision, Decision::Again(SECOND * 42));
    }

    #[test]
    fn a_backoff_that_makes_no_sense_is_refused() {
        let with =
            |factor, jitter| Backoff::Exponential { initial: SECOND, factor, max: SECOND, jitter };
        assert!(with(2.0, 0.1).validate().is_ok());
        for (factor, jitter) in [
            (0.0, 0.1),
            (-1.0, 0.1),
            (f64::NAN, 0.1),
            (f64::INFINITY, 0.1),
            (2.0, 1.1),
            (2.0, -0.1),
            (2.0, f64::NAN),
        ] {
            assert!(with(factor, jitter).validate().is_err(), "{factor} {jitter}");
        }
    }

    proptest! {
        #[test]
        fn no_shape_overflows_and_jitter_stays_in_range(
            shape in 0..3, n in any::<u32>(), start_ms in any::<u64>(), max_ms in any::<u64>(),
            factor in 0.001f64..1e300, jitter in 0.0f64..=1.0, seed in any::<u64>(),
        ) {
            let (initial, max) = (Duration::from_millis(start_ms), Duration::from_millis(max_ms));
            let backoff = match shape {
                0 => Backoff::Exponential { initial, factor, max, jitter },
                1 => Backoff::Linear { step: initial, max, jitter },
                _ => Backoff::Fixed { initial, jitter },
            };
            prop_assert!(backoff.validate().is_ok());
            let nominal = backoff.nominal(n).as_secs_f64();
            let delay = backoff.delay(n, &mut Dice::seeded(seed)).as_secs_f64();
            let slack = nominal.mul_add(1e-9, 1e-6);
            prop_assert!(delay >= nominal * (1.0 - jitter) - slack);
            prop_assert!(delay <= nominal * (1.0 + jitter) + slack);
        }
    }
}
