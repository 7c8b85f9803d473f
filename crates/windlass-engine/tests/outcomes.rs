//! What a handler returns, and what becomes of its task.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use windlass_core::retry::Backoff;
use windlass_core::{Clock, ErrorKind, Priority, State};
use windlass_engine::{
    Configure, Context, Failure, Options, Outcome, RawTask, TaskFailed, Unknown, cancelled,
    discard, retry_after, snooze,
};
use windlass_testkit::Method;
use windlass_testkit::fleet::{Do, Fleet, check_ended};

const SECOND: Duration = Duration::from_secs(1);

/// Runs one task whose every run is as the function says; answers the instants of its runs too.
async fn run_one(
    fleet: &Fleet,
    options: Options,
    handler: fn(u32) -> Outcome<u64>,
) -> (windlass_core::TaskRecord, Vec<Instant>) {
    let starts = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&starts);
    let handle = move |_: Do, _: Context<()>| {
        seen.lock().unwrap().push(Instant::now());
        let run = u32::try_from(seen.lock().unwrap().len()).unwrap();
        async move { handler(run) }
    };
    let worker = fleet.worker().handle(handle).start().await.unwrap();
    let task = fleet.submit_with(1, options).await;
    let record = fleet.ended(task.id()).await;
    worker.stop().await.unwrap();
    let starts = starts.lock().unwrap().clone();
    (record, starts)
}

/// The pauses between instants.
fn pauses(starts: &[Instant]) -> Vec<Duration> {
    starts.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// Each pause is as long as planned, or up to a quarter of a second longer.
#[track_caller]
fn check_pauses(starts: &[Instant], planned: &[Duration]) {
    let pauses = pauses(starts);
    assert_eq!(pauses.len(), planned.len(), "{pauses:?}");
    for (pause, planned) in pauses.iter().zip(planned) {
        assert!(pause >= planned && *pause <= *planned + SECOND / 4, "{pauses:?}, not {planned:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn retries_follow_the_stored_backoff_and_end_in_dead_letter_after_one_run_more() {
    let backoff = Backoff::Linear { step: SECOND * 10, max: SECOND * 25, jitter: 0.0 };
    let options = Options::new().max_retries(3).backoff(backoff);
    let (record, starts) =
        run_one(&Fleet::new(), options, |run| Err(format!("run {run}").into())).await;
    check_ended(&record, State::DeadLetter, 4, 0);
    check_pauses(&starts, &[SECOND * 10, SECOND * 20, SECOND * 25]);
    let errors: Vec<_> =
        record.history.entries().iter().filter_map(|entry| entry.error.as_deref()).collect();
    assert_eq!(errors, ["run 1", "run 2", "run 3", "run 4"], "every error is kept");
}

#[tokio::test(start_paused = true)]
async fn without_a_backoff_of_its_own_a_task_is_retried_as_configured() {
    let settings = "[task.retry]\nshape = \"fixed\"\ninitial = \"7s\"\njitter = 0.0";
    let (record, starts) = run_one(&Fleet::with(settings), Options::new(), |run| match run {
        3 => Ok(3),
        _ => Err("not yet".into()),
    })
    .await;
    check_ended(&record, State::Completed, 3, 0);
    check_pauses(&starts, &[SECOND * 7, SECOND * 7]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_asks_for_a_delay_is_retried_after_just_that() {
    let (record, starts) = run_one(&Fleet::new(), Options::new(), |run| match run {
        1 => Err(retry_after(SECOND * 42, "busy")),
        _ => Ok(1),
    })
    .await;
    check_ended(&record, State::Completed, 2, 0);
    check_pauses(&starts, &[SECOND * 42]);
}

#[tokio::test(start_paused = true)]
async fn a_snoozed_run_does_not_count() {
    let (record, starts) = run_one(&Fleet::new(), Options::new().max_retries(0), |run| match run {
        1 | 2 => Err(snooze(SECOND * 30)),
        _ => Ok(1),
    })
    .await;
    check_ended(&record, State::Completed, 1, 0);
    check_pauses(&starts, &[SECOND * 30, SECOND * 30]);
}

#[tokio::test(start_paused = true)]
async fn a_discarded_task_is_dead_at_once() {
    let (record, starts) =
        run_one(&Fleet::new(), Options::new(), |_| Err(discard("no such address"))).await;
    check_ended(&record, State::DeadLetter, 1, 0);
    assert_eq!(starts.len(), 1);
    assert_eq!(record.history.last_error(), Some("no such address"));
}

#[tokio::test(start_paused = true)]
async fn a_handler_can_call_its_task_off() {
    let (record, starts) = run_one(&Fleet::new(), Options::new(), |_| Err(cancelled())).await;
    assert_eq!((record.state, starts.len()), (State::Cancelled, 1));
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_with_its_text_and_hurts_no_neighbour() {
    let fleet = Fleet::new();
    let handle = |task: Do, _: Context<()>| async move {
        assert!(task.0 != 3, "three is {}", "bad");
        Ok(task.0)
    };
    let worker = fleet.worker().handle(handle).concurrency(4).start().await.unwrap();
    let ids = fleet.submit_all(10).await;
    for (number, record) in fleet.all_ended(&ids).await.iter().enumerate() {
        match number {
            3 => {
                check_ended(record, State::DeadLetter, 4, 0);
                assert_eq!(record.history.last_error(), Some("panicked: three is bad"));
            }
            _ => check_ended(record, State::Completed, 1, 0),
        }
    }
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_panic_before_the_first_await_is_a_failure_too() {
    let fleet = Fleet::new();
    fn handle(task: Do, _: Context<()>) -> std::future::Ready<Outcome<u64>> {
        panic!("at once: {}", task.0)
    }
    let worker = fleet.worker().handle(handle).start().await.unwrap();
    let task = fleet.submit_with(1, Options::new().max_retries(0)).await;
    let record = fleet.ended(task.id()).await;
    assert_eq!(record.history.last_error(), Some("panicked: at once: 1"));
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_a_blocking_handler_is_a_failure_with_its_text() {
    let fleet = Fleet::new();
    let handle = |task: Do, _: Context<()>| -> Outcome<u64> { panic!("blocked: {}", task.0) };
    let worker = fleet.worker().handle_blocking(handle).start().await.unwrap();
    let task = fleet.submit_with(1, Options::new().max_retries(0)).await;
    let record = fleet.ended(task.id()).await;
    assert_eq!(record.history.last_error(), Some("panicked: blocked: 1"));
    worker.stop().await.unwrap();
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Large(usize);

impl windlass_engine::Task for Large {
    const KIND: &'static str = "large";
    type Output = String;
}

#[tokio::test(start_paused = true)]
async fn a_result_over_the_limit_is_a_failure_and_one_at_the_limit_is_kept() {
    let fleet = Fleet::new();
    let handle = |task: Large, _: Context<()>| async move { Ok("x".repeat(task.0)) };
    let worker = fleet.worker().handle(handle).start().await.unwrap();
    let fits = fleet.client.enqueue(Large((1 << 20) - 2)).await.unwrap();
    assert_eq!(fits.wait().await.unwrap().len(), (1 << 20) - 2);
    for size in [(1 << 20) - 1, 64 << 20] {
        let exceeds = fleet.client.enqueue(Large(size)).max_retries(0).await.unwrap();
        let record = fleet.ended(exceeds.id()).await;
        check_ended(&record, State::DeadLetter, 1, 0);
        let error = record.history.last_error().unwrap();
        assert!(error.contains("at most 1048576 are kept"), "{error}");
    }
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_error_text_over_the_limit_is_cut() {
    let (record, _) = run_one(&Fleet::new(), Options::new().max_retries(0), |_| {
        Err(Failure::from("é".repeat(20_000)))
    })
    .await;
    assert_eq!(record.history.last_error().unwrap().len(), 16_384);
    let (record, _) =
        run_one(&Fleet::new(), Options::new(), |_| Err(discard("é".repeat(20_000)))).await;
    assert_eq!(record.history.last_error().unwrap().len(), 16_384);
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_does_not_decode_is_a_failure() {
    let fleet = Fleet::new();
    let handle = |task: Do, _: Context<()>| async move { Ok(task.0) };
    let worker = fleet.worker().handle(handle).start().await.unwrap();
    let payload = Bytes::from_static(b"\"not a number\"");
    let options = Options::new().max_retries(1);
    let (id, _) = fleet.client.enqueue_raw("do", payload, options).await.unwrap();
    let record = fleet.ended(&id).await;
    check_ended(&record, State::DeadLetter, 2, 0);
    let error = record.history.last_error().unwrap();
    assert!(error.starts_with("the payload is not a do"), "{error}");
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_unknown_kind_fails() {
    let fleet = Fleet::new();
    let worker = fleet.idle_worker().start().await.unwrap();
    let task = fleet.submit_with(1, Options::new().max_retries(0)).await;
    let record = fleet.ended(task.id()).await;
    assert_eq!(record.history.last_error(), Some("no handler for tasks of type do"));
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_unknown_kind_goes_to_the_handler_of_any_kind() {
    for unknown in [Unknown::Fails, Unknown::GivenBack] {
        let fleet = Fleet::new();
        let any = |task: RawTask, cx: Context<&'static str>| async move {
            let payload = String::from_utf8(task.payload.to_vec())?;
            Ok(Bytes::from(format!("{} {payload} {}\0", task.kind, cx.state())))
        };
        let large = |_: Large, _: Context<&'static str>| async { Ok("known".into()) };
        let worker = fleet.worker().unknown(unknown).state("shared").handle_any(any).handle(large);
        let worker = worker.start().await.unwrap();
        let payload = Bytes::from_static(br#"{"a":1}"#);
        let (raw, _) = fleet.client.enqueue_raw("other", payload, Options::new()).await.unwrap();
        let known = fleet.client.enqueue(Large(1)).await.unwrap();
        let record = fleet.ended(&raw).await;
        check_ended(&record, State::Completed, 1, 0);
        assert_eq!(record.result.as_deref(), Some(&b"other {\"a\":1} shared\0"[..]));
        assert_eq!(known.wait().await.unwrap(), "known", "a handler of the kind goes first");
        worker.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_raw_handler_of_a_kind_takes_and_gives_bytes_and_leaves_other_kinds_alone() {
    let fleet = Fleet::new();
    let raw = |task: RawTask, _: Context<()>| async move { Ok(task.payload) };
    let worker = fleet.worker().handle_raw("raw", raw).start().await.unwrap();
    let payload = Bytes::from_static(b" \xff\0 no JSON ");
    for (kind, result) in [("raw", Some(payload.clone())), ("other", None)] {
        let options = Options::new().max_retries(0);
        let (id, _) = fleet.client.enqueue_raw(kind, payload.clone(), options).await.unwrap();
        assert_eq!(fleet.ended(&id).await.result, result, "{kind}");
    }
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_handler_of_any_kind_fails_and_panics_as_others_do() {
    let fleet = Fleet::new();
    let any = |task: RawTask, _: Context<()>| async move {
        assert!(task.kind.as_str() != "bad", "no {}", task.kind);
        Err(discard("not this"))
    };
    let worker = fleet.worker().handle_any(any).start().await.unwrap();
    for (kind, text) in [("bad", "panicked: no bad"), ("worse", "not this")] {
        let options = Options::new().max_retries(0);
        let (id, _) = fleet.client.enqueue_raw(kind, Bytes::new(), options).await.unwrap();
        assert_eq!(fleet.ended(&id).await.history.last_error(), Some(text));
    }
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_unknown_kind_is_given_back_to_those_who_know_it() {
    let fleet = Fleet::new();
    let ignorant = fleet.idle_worker().unknown(Unknown::GivenBack).start().await.unwrap();
    let task = fleet.submit_with(7, Options::new().max_retries(0)).await;
    tokio::time::sleep(SECOND * 60).await;
    assert_eq!(fleet.record(task.id()).await.attempts, 0, "no run has counted");
    ignorant.stop().await.unwrap();
    let handle = |task: Do, _: Context<()>| async move { Ok(task.0) };
    let worker = fleet.worker().handle(handle).start().await.unwrap();
    assert_eq!(task.wait().await.unwrap(), 7);
    check_ended(&fleet.record(task.id()).await, State::Completed, 1, 0);
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_unknown_kind_that_nobody_knows_fails_after_ten_minutes() {
    let fleet = Fleet::new();
    let worker = fleet.idle_worker().unknown(Unknown::GivenBack).start().await.unwrap();
    let began = Instant::now();
    let task = fleet.submit_with(1, Options::new().max_retries(0)).await;
    check_ended(&fleet.ended(task.id()).await, State::DeadLetter, 1, 0);
    assert!((SECOND * 600..SECOND * 615).contains(&began.elapsed()), "{:?}", began.elapsed());
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_report_of_large_results_is_sent_in_several_trips() {
    const MIB: usize = 1024 * 1024;
    let fleet = Fleet::new();
    let seat = fleet.seat();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let opened = Arc::clone(&gate);
    let large = move |_: RawTask, _: Context<()>| {
        let gate = Arc::clone(&opened);
        async move {
            gate.acquire().await.unwrap().forget();
            Ok(Bytes::from(vec![b'1'; MIB]))
        }
    };
    let worker = seat.worker().handle_any(large).concurrency(40).start().await.unwrap();
    let ids = fleet.submit_all(40).await;
    while fleet.count(State::Running).await < 40 {
        tokio::time::sleep(SECOND / 10).await;
    }
    gate.add_permits(40);
    let before = seat.faults.calls(Method::Apply);
    for record in fleet.all_ended(&ids).await {
        assert_eq!(record.result.unwrap().len(), MIB);
    }
    let trips = seat.faults.calls(Method::Apply) - before;
    assert!(trips >= 3, "40 MiB went in {trips} trips");
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_unknown_kind_has_ten_minutes_from_its_first_claim_on() {
    let fleet = Fleet::new();
    let ignorant = fleet.idle_worker().unknown(Unknown::GivenBack).start().await.unwrap();
    let delayed = Options::new().max_retries(0).delay(SECOND * 3_600);
    let task = fleet.submit_with(7, delayed).await;
    let began = Instant::now();
    tokio::time::sleep(SECOND * (3_600 + 300)).await;
    assert_eq!(fleet.record(task.id()).await.attempts, 0, "no run has counted");
    check_ended(&fleet.ended(task.id()).await, State::DeadLetter, 1, 0);
    let waited = began.elapsed() - SECOND * 3_600;
    assert!((SECOND * 600..SECOND * 615).contains(&waited), "{waited:?}");
    ignorant.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_task_that_ended_otherwise_says_how() {
    let fleet = Fleet::new();
    let handle = |_: Do, _: Context<()>| async move { Err(discard("no")) };
    let worker = fleet.worker().handle(handle).start().await.unwrap();
    let task = fleet.submit(1).await;
    let error = task.wait().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.chain().ends_with("has no result: it ended dead_letter: no"), "{error:?}");
    let failed = TaskFailed::from_error(&error).unwrap();
    assert_eq!((&failed.id, failed.state, failed.attempts), (task.id(), State::DeadLetter, 1));
    assert_eq!(failed.error_text.as_deref(), Some("no"));
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn context_shows_what_the_submitter_settled() {
    let fleet = Fleet::new();
    let (report, mut reports) = tokio::sync::mpsc::unbounded_channel();
    let clock = fleet.clock.clone();
    let handle = move |_: Do, cx: Context<()>| {
        let (report, now) = (report.clone(), clock.now());
        async move {
            assert_eq!((cx.priority(), cx.max_retries()), (Priority::High, 1));
            assert_eq!(
                (cx.tags()[0].as_str(), cx.metadata()["team"].as_str()),
                ("red", "payments")
            );
            assert!(cx.created_at() <= cx.now() && cx.now() == now);
            assert!(cx.deadline().is_some_and(|deadline| deadline > cx.now()));
            let _ = report.send((
                cx.is_last_attempt(),
                cx.idempotency_key().to_owned(),
                cx.run_token(),
            ));
            Outcome::<u64>::Err(retry_after(SECOND, "not yet"))
        }
    };
    let worker = fleet.worker().handle(handle).start().await.unwrap();
    let options = Options::new()
        .priority(Priority::High)
        .max_retries(1)
        .tag("red")
        .metadata("team", "payments")
        .deadline(fleet.clock.now().after(SECOND * 600));
    let task = fleet.submit_with(1, options).await;
    check_ended(&fleet.ended(task.id()).await, State::DeadLetter, 2, 0);
    let (first, second) = (reports.recv().await.unwrap(), reports.recv().await.unwrap());
    assert_eq!((first.0, second.0), (false, true), "only the second is the last attempt");
    assert_eq!(first.1, task.id().as_str());
    assert_eq!(first.1, second.1, "the key is the same for every run");
    assert_ne!(first.2, second.2, "the token is not");
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn progress_shows_within_a_second_and_is_whole_at_the_end() {
    let fleet = Fleet::new();
    let handle = |_: Do, cx: Context<()>| async move {
        cx.progress(0.5, "half way").await;
        tokio::time::sleep(SECOND * 20).await;
        Ok(1)
    };
    let worker = fleet.worker().handle(handle).start().await.unwrap();
    let task = fleet.submit(1).await;
    tokio::time::sleep(SECOND + SECOND / 10).await;
    let progress = fleet.record(task.id()).await.progress().unwrap();
    assert_eq!((progress.fraction, progress.note.as_str()), (0.5, "half way"));
    task.wait().await.unwrap();
    let progress = fleet.record(task.id()).await.progress().unwrap();
    assert_eq!((progress.fraction, progress.note.as_str()), (1.0, "half way"));
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn progress_that_a_failed_heartbeat_carried_is_told_with_the_next() {
    let fleet = Fleet::new();
    let seat = fleet.seat();
    let handle = |_: Do, cx: Context<()>| async move {
        cx.progress(0.5, "half way").await;
        tokio::time::sleep(SECOND * 20).await;
        Ok(1)
    };
    let worker = seat.worker().handle(handle).start().await.unwrap();
    seat.faults.fail(Method::Beat, 1, ErrorKind::Unavailable);
    let task = fleet.submit(1).await;
    tokio::time::sleep(SECOND * 6).await;
    assert!(!seat.faults.is_planned(Method::Beat));
    assert_eq!(fleet.record(task.id()).await.progress.unwrap().note, "half way");
    worker.stop().await.unwrap();
}

/// A store that does not take the end of a run, so many times; answers the task once that is over.
async fn refuse_ends(times: usize, kind: ErrorKind) -> windlass_core::TaskRecord {
    let fleet = Fleet::new();
    let seat = fleet.seat();
    let handle = |task: Do, _: Context<()>| async move { Ok(task.0) };
    let worker = seat.worker().handle(handle).start().await.unwrap();
    seat.faults.fail(Method::Apply, times, kind);
    let task = fleet.submit_with(1, Options::new().max_retries(0)).await;
    let record = fleet.ended(task.id()).await;
    worker.stop().await.unwrap();
    record
}

#[tokio::test(start_paused = true)]
async fn an_end_that_the_store_will_never_take_is_a_failure_with_the_stores_text() {
    for kind in [ErrorKind::Invalid, ErrorKind::Corrupt, ErrorKind::Unsupported] {
        let record = refuse_ends(1, kind).await;
        check_ended(&record, State::DeadLetter, 1, 0);
        let error = record.history.last_error().unwrap();
        assert_eq!(error, "the end of the run cannot be stored: Apply: as planned");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_the_store_will_never_take_either_is_let_go() {
    // The lease is not kept: the task goes back, runs again, and is then taken.
    check_ended(&refuse_ends(2, ErrorKind::Invalid).await, State::Completed, 1, 0);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_the_store_takes_later_is_no_failure() {
    check_ended(&refuse_ends(3, ErrorKind::Unavailable).await, State::Completed, 1, 0);
}

#[tokio::test(start_paused = true)]
async fn one_end_that_the_store_will_never_take_hurts_no_other() {
    let fleet = Fleet::new();
    let seat = fleet.seat();
    let handle = |task: Do, _: Context<()>| async move { Ok(task.0) };
    let worker = seat.worker().handle(handle).concurrency(4).start().await.unwrap();
    // One report under way holds three ends up; their batch is refused, then the first of them.
    seat.faults.hold(Method::Apply);
    fleet.submit(9).await;
    tokio::time::sleep(SECOND).await;
    let ids = fleet.submit_all(3).await;
    tokio::time::sleep(SECOND).await;
    seat.faults.pass_one(Method::Apply);
    seat.faults.fail(Method::Apply, 2, ErrorKind::Invalid);
    seat.faults.release(Method::Apply);
    let attempts = fleet.all_ended(&ids).await.iter().map(|r| r.attempts).sum::<u32>();
    assert_eq!(attempts, 4, "one of the three has run twice");
    worker.stop().await.unwrap();
}
