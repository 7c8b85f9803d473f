//! Tests of the judgements in `ending.rs`: each rule by name, and whole lives at random.

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::clock::Timestamp;
use crate::state::{Cause, is_allowed};
use crate::task::{Epoch, Extras, Spec, TaskId};

fn claimed(attempts: u32) -> Claimed {
    Claimed {
        id: TaskId::new("task"),
        epoch: Epoch(1),
        kind: Kind::new("kind").unwrap(),
        queue: QueueName::new("queue").unwrap(),
        priority: Priority::Normal,
        payload: Bytes::new(),
        attempts,
        crashes: 0,
        spec: Spec {
            max_retries: 3,
            max_crashes: 3,
            timeout: Duration::from_secs(1),
            retention: Duration::from_secs(1),
            extras: Extras::default(),
        },
        is_cancel_requested: false,
        created_at: Timestamp::default(),
        pending_at: Timestamp::default(),
        claimed_at: Timestamp::default(),
    }
}

fn failed() -> Ending {
    Ending::Failed { error: "boom".into(), retry_after: None }
}

fn finish_of(task: &Claimed, ending: Ending) -> Transition {
    finish(task, ending, &Backoff::default(), &mut Dice::seeded(7))
}

/// The state and the attempts that follow when the given attempt ends so.
fn check(attempt: u32, ending: Ending, state: State, attempts: u32) {
    let next = finish_of(&claimed(attempt), ending.clone()).next;
    assert_eq!((next.state, next.attempts), (state, attempts), "{ending:?}");
}

fn held(crashes: u32, is_cancel_requested: bool) -> Held {
    Held { attempts: 2, crashes, max_crashes: 3, is_cancel_requested }
}

#[test]
fn success_completes() {
    check(1, Ending::Completed { result: None }, State::Completed, 1);
}

#[test]
fn failure_with_retries_left_retries() {
    check(3, failed(), State::Retrying, 3);
    check(3, Ending::TimedOut, State::Retrying, 3);
}

#[test]
fn failure_on_the_last_attempt_is_dead() {
    check(4, failed(), State::DeadLetter, 4);
    check(4, Ending::TimedOut, State::DeadLetter, 4);
}

#[test]
fn discard_is_dead_at_once() {
    check(1, Ending::Discarded { error: "no".into() }, State::DeadLetter, 1);
}

#[test]
fn a_deadline_before_the_start_gives_the_attempt_back() {
    check(2, Ending::DeadlinePassed { has_started: false }, State::DeadLetter, 1);
    check(2, Ending::DeadlinePassed { has_started: true }, State::DeadLetter, 2);
}

#[test]
fn snooze_put_off_and_release_give_the_attempt_back() {
    check(2, Ending::Snoozed { delay: Duration::from_secs(1) }, State::Scheduled, 1);
    check(2, Ending::PutOff, State::Scheduled, 1);
    check(2, Ending::Released, State::Pending, 1);
    check(2, Ending::HandledElsewhere, State::Pending, 1);
    check(2, Ending::Unhandled { delay: Duration::from_secs(1) }, State::Scheduled, 1);
}

#[test]
fn an_unhandled_task_has_a_reason_and_one_handled_elsewhere_no_entry() {
    let unhandled = finish_of(&claimed(1), Ending::Unhandled { delay: Duration::from_secs(1) });
    let reason = unhandled.next.note.and_then(|note| note.error);
    assert_eq!(reason.as_deref(), Some("no live worker handles type kind"));
    assert_eq!(finish_of(&claimed(1), Ending::HandledElsewhere).next.note, None);
}

#[test]
fn under_a_cancel_only_success_is_not_cancelled() {
    for ending in endings() {
        let transition = finish_of(&claimed(1), ending.clone());
        let expected = match ending {
            Ending::Completed { .. } => State::Completed,
            _ => State::Cancelled,
        };
        assert_eq!(transition.chosen_state(true), expected, "{ending:?}");
        assert_eq!(transition.chosen_state(false), transition.next.state);
    }
}

#[test]
fn a_put_off_suspect_waits_one_to_three_seconds() {
    for seed in 0..1_000 {
        let mut dice = Dice::seeded(seed);
        let transition = finish(&claimed(1), Ending::PutOff, &Backoff::default(), &mut dice);
        let When::After(delay) = transition.next.when else { panic!("{transition:?}") };
        assert!((1.0..=3.0).contains(&delay.as_secs_f64()), "{delay:?}");
    }
}

#[test]
fn the_tasks_own_backoff_wins() {
    let mut task = claimed(1);
    let own = Backoff::Fixed { initial: Duration::from_secs(77), jitter: 0.0 };
    task.spec.extras.backoff = Some(own);
    assert_eq!(finish_of(&task, failed()).next.when, When::After(Duration::from_secs(77)));
}

#[test]
fn a_crash_spends_no_attempt_and_is_counted() {
    let step = expire(held(0, false));
    assert_eq!((step.state, step.attempts, step.crashes), (State::Pending, 1, 1));
}

#[test]
fn a_crash_past_the_limit_is_dead() {
    assert_eq!(expire(held(2, false)).state, State::Pending);
    let step = expire(held(3, false));
    assert_eq!(step.state, State::DeadLetter);
    let error = step.note.and_then(|note| note.error).unwrap();
    assert!(error.contains("crash 4, at most 3"), "its owner is told why: {error}");
}

#[test]
fn a_crash_under_a_cancel_is_cancelled() {
    assert_eq!(expire(held(0, true)).state, State::Cancelled);
    assert_eq!(expire(held(3, true)).state, State::Cancelled);
}

#[test]
fn a_release_counts_neither_attempt_nor_crash() {
    let step = release(held(1, false));
    assert_eq!((step.state, step.attempts, step.crashes), (State::Pending, 1, 1));
    assert_eq!(release(held(1, true)).state, State::Cancelled);
}

fn endings() -> Vec<Ending> {
    vec![
        Ending::Completed { result: None },
        failed(),
        Ending::Failed { error: "later".into(), retry_after: Some(Duration::from_secs(5)) },
        Ending::TimedOut,
        Ending::Discarded { error: "no".into() },
        Ending::DeadlinePassed { has_started: false },
        Ending::DeadlinePassed { has_started: true },
        Ending::Snoozed { delay: Duration::from_secs(1) },
        Ending::PutOff,
        Ending::Released,
        Ending::HandledElsewhere,
        Ending::Unhandled { delay: Duration::from_secs(1) },
        Ending::Cancelled,
    ]
}

/// One thing that may befall a running task.
#[derive(Debug, Clone)]
enum Fate {
    Ends(usize),
    Crashes,
    IsReleased,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        (0..endings().len()).prop_map(Fate::Ends),
        Just(Fate::Crashes),
        Just(Fate::IsReleased),
    ]
}

#[test]
fn what_is_too_large_to_be_kept_is_a_failure_or_cut() {
    let limits = Limits {
        result_bytes_max: 3,
        error_bytes_max: 4,
        ..crate::config::Config::default().limits
    };
    let result = |text: &'static str| Ending::Completed { result: Some(text.into()) };
    assert_eq!(result("abc").within(&limits), result("abc"));
    let Ending::Failed { error, .. } = result("abcd").within(&limits) else { panic!("kept") };
    assert!(error.contains("4 bytes, at most 3"), "{error}");
    let failed = |error: &str| Ending::Failed { error: error.into(), retry_after: None };
    assert_eq!(failed("ab\u{e9}\u{e9}").within(&limits), failed("ab\u{e9}"));
    let discarded = |error: &str| Ending::Discarded { error: error.into() };
    assert_eq!(discarded("abcdef").within(&limits), discarded("abcd"));
}

proptest! {
    /// Whatever befalls a task, in any order: every transition is in the table, and the budgets of
    /// counted runs and of crashes hold.
    #[test]
    fn any_life_stays_inside_the_table_and_its_budgets(
        fates in proptest::collection::vec(fate(), 1..200),
        max_retries in 0u32..6, max_crashes in 0u32..6,
        cancel_from in proptest::option::of(0usize..200), seed in any::<u64>(),
    ) {
        let mut dice = Dice::seeded(seed);
        let (mut attempts, mut crashes) = (0, 0);
        let (mut runs_counted, mut runs_crashed) = (0, 0);
        for (index, fate) in fates.into_iter().enumerate() {
            let is_cancel_requested = cancel_from.is_some_and(|from| index >= from);
            let mut task = claimed(attempts + 1);
            task.crashes = crashes;
            (task.spec.max_retries, task.spec.max_crashes) = (max_retries, max_crashes);
            let held = Held {
                attempts: task.attempts, crashes, max_crashes, is_cancel_requested,
            };
            let (state, step, by) = match fate {
                Fate::Ends(which) => {
                    let ending = endings()[which].clone();
                    let counts = matches!(
                        ending,
                        Ending::Completed { .. } | Ending::Failed { .. } | Ending::TimedOut
                    );
                    runs_counted += u32::from(counts);
                    let transition = finish(&task, ending, &Backoff::default(), &mut dice);
                    let state = transition.chosen_state(is_cancel_requested);
                    (state, transition.next, Cause::Apply)
                }
                Fate::Crashes => {
                    runs_crashed += 1;
                    let step = expire(held);
                    (step.state, step, Cause::Expire)
                }
                Fate::IsReleased => {
                    let step = release(held);
                    (step.state, step, Cause::Release)
                }
            };
            prop_assert!(is_allowed(Some(State::Running), Some(state), by), "{state} by {by:?}");
            prop_assert!(!is_cancel_requested || matches!(state, State::Completed | State::Cancelled));
            (attempts, crashes) = (step.attempts, step.crashes);
            prop_assert!(runs_counted <= 1 + max_retries);
            prop_assert!(runs_crashed <= 1 + max_crashes);
            if state.is_terminal() {
                break;
            }
        }
    }
}
