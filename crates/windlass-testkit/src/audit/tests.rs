//! The auditor is audited: a life without fault passes, and each violation is planted once and
//! named by its invariant.

use std::time::Duration;

use bytes::Bytes;
use windlass_core::history::{self, EndOfRun, Happening, History, Note};
use windlass_core::store::{QueueRecord, StateCounts};
use windlass_core::{Epoch, State, TaskRecord, Timestamp, WorkerId};

use super::*;
use crate::draft::draft;

/// The first process; it is killed at [`KILLED`].
const VICTIM: ProcessId = ProcessId(1);
/// The second; it is asked to end when all is over.
const SURVIVOR: ProcessId = ProcessId(2);
const KILLED: u64 = 10_000;
const LATE: u64 = 60_000;

fn at(ms: u64) -> Moment {
    Moment(ms * 1_000_000)
}

fn time(ms: u64) -> Timestamp {
    at(ms).timestamp()
}

fn payload(key: &str) -> Bytes {
    Bytes::from(format!("{{\"key\":\"{key}\",\"n\":9007199254740993}}"))
}

fn result(key: &str, epoch: u128) -> Bytes {
    Bytes::from(format!("{key}/{epoch}"))
}

/// What was seen, and what is there.
struct Evidence {
    lines: Vec<Line>,
    dump: Dump,
    recovery_max: Duration,
}

/// A run, told to the log and to the record.
struct Told {
    key: &'static str,
    epoch: u128,
    process: ProcessId,
    from: u64,
    to: u64,
}

impl Evidence {
    /// `plain` completes; `retried` fails once; `crashed` is lost with its worker once, its handler
    /// living on; `later` is delayed; `called-off` is cancelled before its time; `removed` is cancelled
    /// and removed; `refused` is refused; `unheard` and `unkept` get no answer.
    fn of_a_good_life() -> Self {
        let recovery_max = Duration::from_secs(9);
        let mut evidence = Self { lines: Vec::new(), dump: Dump::default(), recovery_max };
        for (process, role) in [(VICTIM, "worker"), (SURVIVOR, "worker")] {
            evidence.say(0, Fact::ProcessUp { process, role: role.into() });
        }
        for key in ["plain", "retried", "crashed", "called-off", "removed"] {
            evidence.submit(key, 1_000, 0);
        }
        evidence.submit("later", 1_000, 2_000);
        evidence.complete(&Told {
            key: "plain",
            epoch: 1,
            process: VICTIM,
            from: 1_100,
            to: 1_200,
        });
        evidence.fail(&Told { key: "retried", epoch: 2, process: VICTIM, from: 1_100, to: 1_200 });
        evidence.complete(&Told {
            key: "retried",
            epoch: 3,
            process: SURVIVOR,
            from: 2_200,
            to: 2_300,
        });
        evidence.crash(&Told {
            key: "crashed",
            epoch: 4,
            process: VICTIM,
            from: 9_900,
            to: 14_000,
        });
        evidence.complete(&Told {
            key: "crashed",
            epoch: 5,
            process: SURVIVOR,
            from: 13_500,
            to: 14_500,
        });
        evidence.complete(&Told {
            key: "later",
            epoch: 6,
            process: SURVIVOR,
            from: 3_000,
            to: 3_100,
        });
        for key in ["called-off", "removed"] {
            let id = TaskId::new(key);
            evidence.say(1_100, Fact::CancelSent { id: id.clone() });
            evidence.say(1_110, Fact::CancelAcknowledged { id, is_running: false });
            let record = evidence.record(key);
            record.state = State::Cancelled;
            record.finished_at = Some(time(1_105));
            record.history.asked(Happening::Cancelled, time(1_105), None);
        }
        evidence.remove("removed");
        evidence.say(1_000, sent("refused", 0));
        evidence.say(1_010, Fact::SubmitRefused { key: "refused".into() });
        evidence.say(1_000, sent("unheard", 0));
        evidence.say(1_000, sent("unkept", 0));
        evidence.keep("unheard", 1_000);
        evidence.complete(&Told {
            key: "unheard",
            epoch: 7,
            process: SURVIVOR,
            from: 1_100,
            to: 1_200,
        });
        evidence.say(KILLED, Fact::ProcessKilled { process: VICTIM });
        evidence.say(KILLED, Fact::ProcessDown { process: VICTIM, code: None });
        evidence.say(20_000, Fact::FaultsOver);
        evidence.say(21_000, Fact::Drained);
        evidence.say(LATE, Fact::ProcessTerminated { process: SURVIVOR });
        evidence.say(LATE, Fact::ProcessDown { process: SURVIVOR, code: Some(0) });
        evidence.count();
        evidence
    }

    fn say(&mut self, ms: u64, fact: Fact) {
        self.lines.push(Line { at: at(ms), fact });
    }

    fn forget(&mut self, is_it: impl Fn(&Fact) -> bool) {
        let before = self.lines.len();
        self.lines.retain(|line| !is_it(&line.fact));
        assert_ne!(before, self.lines.len(), "there was something to forget");
    }

    fn submit(&mut self, key: &str, ms: u64, delay_ms: u64) {
        self.say(ms, sent(key, delay_ms));
        self.say(ms + 10, acknowledged(key, key));
        self.keep(key, ms);
    }

    fn keep(&mut self, key: &str, ms: u64) {
        let id = TaskId::new(key);
        let task = draft().with_id(id.clone());
        let record = TaskRecord {
            id: id.clone(),
            kind: task.kind,
            queue: task.queue,
            priority: task.priority,
            state: State::Pending,
            payload: payload(key),
            spec: task.spec,
            idempotency_key: None,
            attempts: 0,
            crashes: 0,
            epoch: None,
            worker: None,
            is_cancel_requested: false,
            result: None,
            progress: None,
            created_at: time(ms),
            updated_at: time(ms),
            run_at: None,
            claimed_at: None,
            started_at: None,
            finished_at: None,
            history: History::default(),
        };
        self.dump.tasks.insert(id, record);
    }

    fn record(&mut self, key: &str) -> &mut TaskRecord {
        self.dump.tasks.get_mut(&TaskId::new(key)).unwrap()
    }

    fn start(&mut self, told: &Told) {
        let record = self.record(told.key);
        record.attempts += 1;
        record.epoch = Some(Epoch(told.epoch));
        record.worker = Some(WorkerId::new("w"));
        record.claimed_at = Some(time(told.from));
        let attempt = record.attempts;
        self.say(told.from, started(told, attempt));
    }

    fn end(&mut self, told: &Told, outcome: Outcome) {
        let (id, epoch) = (TaskId::new(told.key), Epoch(told.epoch));
        self.say(told.to, Fact::RunEnded { id, epoch, outcome });
    }

    fn complete(&mut self, told: &Told) {
        self.start(told);
        let result = result(told.key, told.epoch);
        self.end(told, Outcome::Completed { result: Digest::of(&result) });
        let record = self.record(told.key);
        record.state = State::Completed;
        record.result = Some(result);
        record.finished_at = Some(time(told.to));
    }

    fn note(&mut self, key: &str, ms: u64, what: Happening, state: State) {
        let record = self.record(key);
        let run = history::last_run(record);
        let note = Some(Note { what, error: None });
        record.history.end_run(EndOfRun { at: time(ms), run, note, state });
    }

    fn fail(&mut self, told: &Told) {
        self.start(told);
        self.end(told, Outcome::Failed);
        self.note(told.key, told.to, Happening::Failed, State::Retrying);
    }

    /// Its worker is taken for lost 3 s after it was killed; the handler knows nothing of it.
    fn crash(&mut self, told: &Told) {
        self.start(told);
        self.end(told, Outcome::Failed);
        self.note(told.key, KILLED + 3_000, Happening::Crashed, State::Pending);
        let record = self.record(told.key);
        record.attempts -= 1;
        record.crashes += 1;
    }

    fn remove(&mut self, key: &str) {
        let id = TaskId::new(key);
        self.dump.tasks.remove(&id);
        self.say(1_200, Fact::DeleteSent { id: id.clone() });
        self.say(1_210, Fact::DeleteAcknowledged { id });
    }

    /// Makes the counters agree with the tasks.
    fn count(&mut self) {
        let mut counts = StateCounts::default();
        for record in self.dump.tasks.values() {
            counts.add(record.state, 1);
        }
        let name = crate::draft::queue(crate::draft::MAIN);
        let (is_paused, pending, oldest_pending_at) = (false, [0; 4], None);
        let queue = QueueRecord { name, is_paused, counts, pending, oldest_pending_at };
        self.dump.queues = vec![queue];
    }

    fn judge(&self) -> Findings {
        // By way of text, as it comes from files.
        let text: String = self.lines.iter().map(|line| format!("{line}\n")).collect();
        let log = Log::read([text.as_str()]).unwrap();
        assert_eq!(log, Log::new(self.lines.clone()));
        let setting = Setting {
            lease: Duration::from_secs(3),
            backoff: Backoff::default(),
            snooze: Duration::from_secs(10),
            drain_max: Duration::from_secs(10),
            recovery_max: self.recovery_max,
        };
        audit(&log, &self.dump, &setting)
    }
}

fn sent(key: &str, delay_ms: u64) -> Fact {
    let payload = Digest::of(&payload(key));
    Fact::SubmitSent { key: key.into(), payload, delay_ms, max_retries: 3 }
}

fn acknowledged(key: &str, id: &str) -> Fact {
    Fact::SubmitAcknowledged { key: key.into(), id: TaskId::new(id) }
}

fn started(told: &Told, attempt: u32) -> Fact {
    let (id, epoch, process) = (TaskId::new(told.key), Epoch(told.epoch), told.process);
    Fact::RunStarted { id, epoch, attempt, process, payload: Digest::of(&payload(told.key)) }
}

/// Plants one violation in a good life; the audit must name this invariant and no other.
#[track_caller]
fn check(invariant: Invariant, plant: impl FnOnce(&mut Evidence)) {
    let mut evidence = Evidence::of_a_good_life();
    plant(&mut evidence);
    evidence.count();
    let violations = evidence.judge().violations;
    let named: Vec<_> = violations.iter().map(|violation| violation.invariant).collect();
    assert!(!named.is_empty() && named.iter().all(|it| *it == invariant), "{violations:#?}");
}

#[test]
fn a_good_life_passes_and_is_counted() {
    let findings = Evidence::of_a_good_life().judge();
    assert_eq!(findings.violations, []);
    let counts = findings.counts;
    assert_eq!((counts.keys, counts.acknowledged, counts.refused), (9, 6, 1));
    assert_eq!((counts.ambiguous, counts.ambiguous_kept), (2, 1));
    assert_eq!((counts.tasks, counts.completed, counts.cancelled, counts.deleted), (6, 5, 1, 1));
    assert_eq!((counts.runs, counts.reruns, counts.overlaps_excused), (7, 2, 1));
    assert_eq!((counts.crashes, counts.crashes_unexplained), (1, 0));
    assert_eq!(counts.recovery_ms_max, 3_000);
    assert_eq!(counts.drain_ms, Some(1_000));
}

#[path = "planted.rs"]
mod planted;
