//! The planted violations, one test each; the name is what was done.

use super::*;

#[test]
fn an_acknowledged_task_is_missing() {
    check(Invariant::NothingLostNothingInvented, |it| {
        it.say(1_000, sent("lost", 0));
        it.say(1_010, acknowledged("lost", "lost"));
    });
}

#[test]
fn a_task_is_there_that_nobody_sent() {
    check(Invariant::NothingLostNothingInvented, |it| {
        it.keep("invented", 1_000);
        let record = it.record("invented");
        record.state = State::Cancelled;
        record.history.asked(Happening::Cancelled, time(1_105), None);
        it.say(1_100, Fact::CancelSent { id: TaskId::new("invented") });
    });
}

#[test]
fn a_run_of_a_task_that_nobody_sent() {
    check(Invariant::NothingLostNothingInvented, |it| {
        let told = Told { key: "invented", epoch: 9, process: SURVIVOR, from: 2_000, to: 2_000 };
        it.say(2_000, started(&told, 1));
    });
}

#[test]
fn a_refused_task_is_there() {
    check(Invariant::NothingLostNothingInvented, |it| {
        it.keep("refused", 1_000);
        it.complete(&Told { key: "refused", epoch: 9, process: SURVIVOR, from: 2_000, to: 2_001 });
    });
}

#[test]
fn a_removed_task_is_there() {
    check(Invariant::NothingLostNothingInvented, |it| {
        for fact in [
            Fact::DeleteSent { id: TaskId::new("plain") },
            Fact::DeleteAcknowledged { id: TaskId::new("plain") },
        ] {
            it.say(5_000, fact);
        }
    });
}

#[test]
fn one_id_is_answered_to_two_submits() {
    check(Invariant::NothingLostNothingInvented, |it| {
        it.say(990, sent("other", 0));
        it.say(995, acknowledged("other", "plain"));
    });
}

#[test]
fn one_key_is_answered_with_two_ids() {
    check(Invariant::OneTaskPerKey, |it| {
        it.say(1_020, acknowledged("plain", "twin"));
        it.say(1_030, Fact::DeleteSent { id: TaskId::new("twin") });
    });
}

#[test]
fn one_key_has_two_tasks() {
    check(Invariant::OneTaskPerKey, |it| {
        it.keep("twin", 1_000);
        it.complete(&Told { key: "twin", epoch: 9, process: SURVIVOR, from: 2_000, to: 2_001 });
        it.record("twin").payload = payload("plain");
        for line in &mut it.lines {
            if let Fact::RunStarted { id, payload: given, .. } = &mut line.fact
                && id.as_str() == "twin"
            {
                *given = Digest::of(&payload("plain"));
            }
        }
    });
}

#[test]
fn a_payload_has_changed_in_the_store() {
    check(Invariant::BytesAreIdentical, |it| {
        it.record("plain").payload = Bytes::from_static(b"{\"n\":9007199254740992}");
    });
}

#[test]
fn a_handler_was_given_another_payload() {
    check(Invariant::BytesAreIdentical, |it| {
        for line in &mut it.lines {
            if let Fact::RunStarted { id, payload, .. } = &mut line.fact
                && id.as_str() == "plain"
            {
                *payload = Digest::of(b"other");
            }
        }
    });
}

#[test]
fn a_result_is_of_another_run() {
    check(Invariant::BytesAreIdentical, |it| {
        it.record("crashed").result = Some(result("crashed", 4));
    });
}

#[test]
fn a_task_is_left_running() {
    check(Invariant::OneTerminalState, |it| {
        it.submit("stuck", 1_000, 0);
        it.record("stuck").state = State::Pending;
    });
}

#[test]
fn a_task_has_ended_twice() {
    check(Invariant::OneTerminalState, |it| {
        it.record("called-off").history.asked(Happening::Cancelled, time(1_106), None);
    });
}

#[test]
fn an_epoch_is_given_twice() {
    check(Invariant::EpochsIncrease, |it| {
        let told = Told { key: "plain", epoch: 1, process: SURVIVOR, from: 1_300, to: 1_400 };
        it.say(1_300, started(&told, 1));
    });
}

#[test]
fn an_older_epoch_starts_after_a_younger() {
    check(Invariant::EpochsIncrease, |it| {
        let told = Told { key: "later", epoch: 5, process: SURVIVOR, from: 3_300, to: 3_400 };
        it.say(3_300, started(&told, 1));
        // Told in the timeline, so that only the order is wrong.
        let record = it.record("later");
        let mut run = history::last_run(record).unwrap();
        run.epoch = Epoch(5);
        let note = Some(Note { what: Happening::Released, error: None });
        let (at, state) = (time(3_000), State::Pending);
        record.history.end_run(EndOfRun { at, run: Some(run), note, state });
    });
}

#[test]
fn two_runs_of_one_task_go_on_at_one_time() {
    check(Invariant::OneValidLease, |it| {
        it.submit("doubled", 1_000, 0);
        it.start(&Told { key: "doubled", epoch: 9, process: VICTIM, from: 1_100, to: 0 });
        it.note("doubled", 1_200, Happening::Released, State::Pending);
        it.record("doubled").attempts -= 1;
        it.complete(&Told { key: "doubled", epoch: 10, process: SURVIVOR, from: 1_300, to: 1_400 });
        let (id, epoch) = (TaskId::new("doubled"), Epoch(9));
        it.say(1_350, Fact::RunEnded { id, epoch, outcome: Outcome::Failed });
    });
}

#[test]
fn a_completion_is_accepted_of_a_run_that_did_not_end() {
    check(Invariant::OneValidLease, |it| {
        it.forget(|fact| matches!(fact, Fact::RunEnded { id, .. } if id.as_str() == "plain"));
    });
}

#[test]
fn a_completion_is_accepted_before_its_run_ended() {
    // As when a report under the older epoch was let through while the task was running again.
    check(Invariant::OneValidLease, |it| {
        it.record("crashed").finished_at = Some(time(14_000));
    });
}

#[test]
fn a_failed_run_is_taken_for_completed() {
    check(Invariant::OneValidLease, |it| {
        for line in &mut it.lines {
            if let Fact::RunEnded { id, outcome, .. } = &mut line.fact
                && id.as_str() == "plain"
            {
                *outcome = Outcome::Failed;
            }
        }
    });
}

#[test]
fn a_crash_spends_an_attempt() {
    check(Invariant::BudgetsAreKept, |it| it.record("crashed").attempts += 1);
    check(Invariant::BudgetsAreKept, |it| {
        for line in &mut it.lines {
            if let Fact::RunStarted { epoch: Epoch(5), attempt, .. } = &mut line.fact {
                *attempt = 2;
            }
        }
    });
}

#[test]
fn a_crash_is_not_counted_or_counted_twice() {
    check(Invariant::BudgetsAreKept, |it| it.record("crashed").crashes = 0);
    check(Invariant::BudgetsAreKept, |it| it.record("crashed").crashes = 2);
}

#[test]
fn a_task_runs_more_often_than_its_retries_allow() {
    check(Invariant::BudgetsAreKept, |it| {
        it.record("retried").spec.max_retries = 0;
        for line in &mut it.lines {
            if let Fact::SubmitSent { key, max_retries, .. } = &mut line.fact
                && key == "retried"
            {
                *max_retries = 0;
            }
        }
    });
}

#[test]
fn another_budget_is_kept_than_was_sent() {
    check(Invariant::BudgetsAreKept, |it| it.record("retried").spec.max_retries = 9);
}

#[test]
fn a_task_is_dead_with_retries_left() {
    check(Invariant::BudgetsAreKept, |it| {
        it.submit("given-up", 1_000, 0);
        it.fail(&Told { key: "given-up", epoch: 9, process: SURVIVOR, from: 1_100, to: 1_200 });
        it.note("given-up", 1_200, Happening::Failed, State::DeadLetter);
        let record = it.record("given-up");
        record.state = State::DeadLetter;
        record.attempts = 2;
    });
}

#[test]
fn a_delayed_task_starts_early() {
    check(Invariant::NeverEarly, |it| {
        for line in &mut it.lines {
            if matches!(&line.fact, Fact::RunStarted { id, .. } if id.as_str() == "later") {
                line.at = at(2_500);
            }
        }
    });
}

#[test]
fn a_retry_starts_before_its_backoff() {
    check(Invariant::NeverEarly, |it| {
        for line in &mut it.lines {
            if matches!(line.fact, Fact::RunStarted { epoch: Epoch(3), .. }) {
                line.at = at(2_000);
            }
        }
    });
}

#[test]
fn a_cancelled_task_starts() {
    check(Invariant::CancelledDoesNotStart, |it| {
        // Its record is gone, so that only the log can tell.
        let told = Told { key: "removed", epoch: 9, process: SURVIVOR, from: 2_000, to: 2_000 };
        it.say(2_000, started(&told, 1));
    });
}

#[test]
fn a_cancelled_task_is_claimed_or_completes() {
    check(Invariant::CancelledDoesNotStart, |it| {
        it.record("called-off").claimed_at = Some(time(5_000));
    });
    check(Invariant::CancelledDoesNotStart, |it| {
        let id = TaskId::new("later");
        it.say(1_100, Fact::CancelAcknowledged { id, is_running: false });
    });
}

#[test]
fn a_task_is_cancelled_that_nobody_cancelled() {
    check(Invariant::CancelledDoesNotStart, |it| {
        it.lines.retain(|line| match &line.fact {
            Fact::CancelSent { id } | Fact::CancelAcknowledged { id, .. } => {
                id.as_str() != "called-off"
            }
            _ => true,
        });
    });
}

#[test]
fn a_run_is_missing_from_the_timeline() {
    check(Invariant::TimelineIsComplete, |it| {
        let told = Told { key: "plain", epoch: 0, process: VICTIM, from: 1_050, to: 1_060 };
        it.say(1_050, started(&told, 1));
    });
}

#[test]
fn a_timeline_is_out_of_order() {
    check(Invariant::TimelineIsComplete, |it| it.record("plain").created_at = time(5_000));
}

#[test]
fn the_counters_are_wrong() {
    let mut evidence = Evidence::of_a_good_life();
    evidence.dump.queues[0].counts.add(State::Pending, 1);
    let violations = evidence.judge().violations;
    assert_eq!(violations.len(), 1);
    assert_eq!(violations[0].invariant, Invariant::CountersEqualStates);
}

#[test]
fn a_process_does_not_stop_in_order() {
    check(Invariant::OrderlyStop, |it| {
        it.forget(|fact| matches!(fact, Fact::ProcessDown { process: SURVIVOR, .. }));
    });
    check(Invariant::OrderlyStop, |it| {
        it.say(LATE + 1, Fact::ProcessDown { process: SURVIVOR, code: Some(1) });
    });
}

#[test]
fn a_process_ends_by_itself() {
    check(Invariant::Liveness, |it| {
        it.forget(|fact| matches!(fact, Fact::ProcessTerminated { process: SURVIVOR }));
    });
}

#[test]
fn the_drain_takes_too_long_or_does_not_end() {
    check(Invariant::Liveness, |it| it.say(31_000, Fact::Drained));
    check(Invariant::Liveness, |it| it.forget(|fact| matches!(fact, Fact::Drained)));
}

#[test]
fn a_payload_is_cut_by_the_kill_of_its_worker() {
    check(Invariant::BytesAreIdentical, |it| {
        for line in &mut it.lines {
            if let Fact::RunStarted { epoch: Epoch(4), payload, .. } = &mut line.fact {
                (line.at, *payload) = (at(KILLED + 1), Digest::of(b""));
            }
        }
    });
}

#[test]
fn a_crash_of_a_worker_that_nobody_touched_is_counted() {
    let mut evidence = Evidence::of_a_good_life();
    for line in &mut evidence.lines {
        if let Fact::RunStarted { epoch: Epoch(4), process, .. } = &mut line.fact {
            *process = SURVIVOR;
        }
    }
    let findings = evidence.judge();
    assert_eq!((findings.violations, findings.counts.crashes_unexplained), (Vec::new(), 1));
}

#[test]
fn what_is_no_line_is_an_error() {
    for text in ["hello", "1 hello", "x drained", "1 run-ended a 1 exploded", "1 submit-refused"] {
        assert!(Log::read([text]).is_err(), "{text}");
    }
}

#[test]
fn a_crash_is_noticed_late_unless_the_store_was_away() {
    let mut evidence = Evidence::of_a_good_life();
    evidence.recovery_max = Duration::from_secs(2);
    let violations = evidence.judge().violations;
    let named: Vec<_> = violations.iter().map(|violation| violation.invariant).collect();
    assert_eq!(named, [Invariant::Liveness], "{violations:#?}");
    evidence.say(KILLED + 500, Fact::StoreStopped);
    evidence.say(KILLED + 1_500, Fact::StoreBack);
    let findings = evidence.judge();
    assert_eq!((findings.violations, findings.counts.recovery_ms_max), (Vec::new(), 1_500));
}

/// A crash for which there is no other reason than what was done to the store.
fn check_crash_by_store(done: &[(u64, Fact)]) {
    check(Invariant::BudgetsAreKept, |it| {
        it.forget(|fact| matches!(fact, Fact::ProcessKilled { .. }));
        for line in &mut it.lines {
            if let Fact::ProcessDown { process: VICTIM, code } = &mut line.fact {
                (line.at, *code) = (at(LATE), Some(0));
            }
        }
        it.say(LATE, Fact::ProcessTerminated { process: VICTIM });
        for (at, fact) in done {
            it.say(*at, fact.clone());
        }
    });
}

#[test]
fn an_outage_of_the_store_is_counted_as_a_crash() {
    check_crash_by_store(&[(11_000, Fact::StoreStopped), (12_000, Fact::StoreBack)]);
}

#[test]
fn a_cut_connection_is_counted_as_a_crash() {
    check_crash_by_store(&[(11_000, Fact::StoreAnnoyed { how: "CLIENT KILL".into() })]);
}

#[test]
fn what_was_done_to_a_store_is_read_as_it_was_written() {
    let line =
        Line { at: at(1), fact: Fact::StoreAnnoyed { how: "CLIENT KILL TYPE normal".into() } };
    assert_eq!(line.to_string().parse::<Line>().unwrap(), line);
}

#[test]
fn a_run_that_took_too_long_is_believed() {
    check(Invariant::BudgetsAreKept, |it| {
        it.submit("slow", 1_000, 0);
        it.record("slow").spec.timeout = Duration::from_secs(1);
        it.complete(&Told { key: "slow", epoch: 9, process: SURVIVOR, from: 1_100, to: 5_100 });
    });
}

#[test]
fn a_snoozed_task_starts_before_its_time() {
    let mut evidence = Evidence::of_a_good_life();
    let snooze = |it: &mut Evidence, from| {
        it.submit("sleepy", 1_000, 0);
        let first = Told { key: "sleepy", epoch: 8, process: SURVIVOR, from: 1_100, to: 1_200 };
        it.start(&first);
        it.end(&first, Outcome::Snoozed);
        it.note("sleepy", 1_200, Happening::Snoozed, State::Scheduled);
        it.record("sleepy").attempts -= 1;
        it.complete(&Told { key: "sleepy", epoch: 9, process: SURVIVOR, from, to: from + 100 });
    };
    snooze(&mut evidence, 11_200);
    evidence.count();
    let findings = evidence.judge();
    assert_eq!((findings.violations, findings.counts.snoozes), (Vec::new(), 1));
    check(Invariant::NeverEarly, |it| snooze(it, 11_100));
}
