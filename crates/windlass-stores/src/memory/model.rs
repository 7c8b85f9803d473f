//! The data of the memory store, and the one place where a task changes its state.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use windlass_core::history::EndOfRun;
use windlass_core::limits::Limits;
use windlass_core::state::{Held, Step};
use windlass_core::store::{Document, RunOrder, StateCounts, Term, WorkerCard};
use windlass_core::task::is_suspect;
use windlass_core::unique::{Exit, Hold, Holding, KeyDigest, idempotency_digest, is_freed_by};
use windlass_core::{
    Clock, Epoch, Error, Priority, QueueName, Reason, Result, State, TaskId, TaskRecord, Timestamp,
    WorkerId, history,
};

use crate::wakes::News;

pub(super) struct Model {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) limits: Limits,
    /// Every task by its number; numbers grow with each submit.
    pub(super) rows: BTreeMap<i64, Row>,
    pub(super) ids: HashMap<TaskId, i64>,
    /// What can be claimed, in the order of claiming.
    pub(super) pending: BTreeMap<Lane, BTreeMap<u64, i64>>,
    /// Scheduled and retrying tasks by their time.
    pub(super) due: BTreeSet<(Timestamp, i64)>,
    pub(super) running: BTreeMap<WorkerId, BTreeSet<i64>>,
    /// Finished tasks by the end of their retention.
    pub(super) expiring: BTreeSet<(Timestamp, i64)>,
    pub(super) keys: HashMap<KeyDigest, Key>,
    pub(super) queues: BTreeMap<QueueName, Queue>,
    pub(super) workers: BTreeMap<WorkerId, Worker>,
    pub(super) leader: Leader,
    pub(super) documents: BTreeMap<(String, String), Document>,
    last_number: i64,
    last_position: u64,
    last_epoch: u128,
    /// The longest payload ever seen.
    pub(super) payload_bytes_max: usize,
    pub(super) news: News,
}

/// Tasks that are claimed one after the other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lane {
    pub(super) queue: QueueName,
    pub(super) priority: Priority,
    pub(super) is_suspect: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) number: i64,
    pub(super) record: TaskRecord,
    pub(super) unique: Option<(KeyDigest, Hold)>,
    pub(super) fingerprint: [u8; 16],
    /// Its place in its lane; kept while it runs, so that work given back stands where it stood.
    pub(super) position: u64,
    pub(super) pending_at: Timestamp,
    pub(super) was_given_back: bool,
    pub(super) applied_epoch: Option<Epoch>,
    pub(super) expires_at: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) holder: TaskId,
    pub(super) until: Option<Timestamp>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    pub(super) is_paused: bool,
    /// It was given an order at some time.
    pub(super) is_ordered: bool,
    /// When a task last came, went or changed its state.
    pub(super) changed_at: Timestamp,
    pub(super) counts: BTreeMap<(State, Priority), u64>,
}

impl Queue {
    pub(super) fn state_counts(&self) -> StateCounts {
        let mut counts = StateCounts::default();
        for ((state, _), count) in &self.counts {
            counts.add(*state, *count);
        }
        counts
    }
}

#[derive(Debug, Clone)]
pub(super) struct Worker {
    pub(super) card: WorkerCard,
    pub(super) order: RunOrder,
    pub(super) started_at: Timestamp,
    pub(super) beat_at: Timestamp,
    pub(super) lease_until: Timestamp,
    pub(super) gone_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Leader {
    pub(super) holder: Option<WorkerId>,
    pub(super) until: Timestamp,
    /// The highest term ever given or seen.
    pub(super) term: u64,
}

impl Model {
    pub(super) fn new(clock: Arc<dyn Clock>, limits: Limits) -> Self {
        Self {
            clock,
            limits,
            rows: BTreeMap::new(),
            ids: HashMap::new(),
            pending: BTreeMap::new(),
            due: BTreeSet::new(),
            running: BTreeMap::new(),
            expiring: BTreeSet::new(),
            keys: HashMap::new(),
            queues: BTreeMap::new(),
            workers: BTreeMap::new(),
            leader: Leader::default(),
            documents: BTreeMap::new(),
            last_number: 0,
            last_position: 0,
            last_epoch: 0,
            payload_bytes_max: 0,
            news: News::default(),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn next_number(&mut self) -> i64 {
        self.last_number += 1;
        self.last_number
    }

    pub(super) fn next_position(&mut self) -> u64 {
        self.last_position += 1;
        self.last_position
    }

    pub(super) fn next_epoch(&mut self) -> Epoch {
        self.last_epoch += 1;
        Epoch(self.last_epoch)
    }

    /// What there is to tell since this was last asked.
    pub(super) fn take_news(&mut self) -> News {
        std::mem::take(&mut self.news)
    }

    /// The task of an id, unless its retention is over.
    pub(super) fn visible(&self, id: &TaskId) -> Option<&Row> {
        let row = self.rows.get(self.ids.get(id)?)?;
        (!is_over(row, self.now())).then_some(row)
    }

    /// Refuses a leader whose term is not the highest any more.
    pub(super) fn check_term(&mut self, term: Term) -> Result<()> {
        if term.0 < self.leader.term {
            return Err(
                Error::lease_lost(format!("upkeep in term {term}")).reason_is(Reason::StaleTerm)
            );
        }
        self.leader.term = term.0;
        Ok(())
    }

    /// Puts a row that stands nowhere into the index of its state.
    pub(super) fn put(&mut self, row: Row) {
        let record = &row.record;
        let queue = self.queues.entry(record.queue.clone()).or_default();
        queue.changed_at = queue.changed_at.max(record.updated_at);
        self.payload_bytes_max = self.payload_bytes_max.max(record.payload.len());
        *queue.counts.entry((record.state, record.priority)).or_default() += 1;
        match record.state {
            State::Pending => {
                self.news.ready.push(record.queue.clone());
                self.pending.entry(lane(&row)).or_default().insert(row.position, row.number);
            }
            State::Scheduled | State::Retrying => {
                self.due.insert((record.run_at.unwrap_or_default(), row.number));
            }
            State::Running => {
                let worker = record.worker.clone().expect("a running task has a worker");
                self.running.entry(worker).or_default().insert(row.number);
            }
            State::Completed | State::Cancelled | State::DeadLetter => {
                self.news.ended.push(record.id.clone());
                if let Some(at) = row.expires_at {
                    self.expiring.insert((at, row.number));
                }
            }
        }
        self.ids.insert(record.id.clone(), row.number);
        self.rows.insert(row.number, row);
    }

    /// Removes a row for good.
    pub(super) fn remove(&mut self, number: i64) -> Row {
        let (row, now) = (self.take(number), self.now());
        if let Some(queue) = self.queues.get_mut(&row.record.queue) {
            queue.changed_at = now;
        }
        row
    }

    /// Takes a row out of every index.
    pub(super) fn take(&mut self, number: i64) -> Row {
        let row = self.rows.remove(&number).expect("the caller has just seen it");
        let record = &row.record;
        self.ids.remove(&record.id);
        if let Some(queue) = self.queues.get_mut(&record.queue)
            && let Some(count) = queue.counts.get_mut(&(record.state, record.priority))
        {
            *count -= 1;
        }
        match record.state {
            State::Pending => {
                if let Some(lane) = self.pending.get_mut(&lane(&row)) {
                    lane.remove(&row.position);
                }
            }
            State::Scheduled | State::Retrying => {
                self.due.remove(&(record.run_at.unwrap_or_default(), number));
            }
            State::Running => {
                if let Some(held) = record.worker.as_ref().and_then(|w| self.running.get_mut(w)) {
                    held.remove(&number);
                }
            }
            State::Completed | State::Cancelled | State::DeadLetter => {
                if let Some(at) = row.expires_at {
                    self.expiring.remove(&(at, number));
                }
            }
        }
        row
    }

    /// Ends the run of a task: places it where the step says and frees what it held.
    pub(super) fn end_run(&mut self, number: i64, state: State, step: Step) {
        let now = self.now();
        let mut row = self.take(number);
        let error_bytes_max = self.limits.error_bytes_max;
        let note = step.note.map(|mut note| {
            if let Some(error) = &mut note.error {
                error.truncate(error.floor_char_boundary(error_bytes_max));
            }
            note
        });
        let run = history::last_run(&row.record);
        row.record.history.end_run(EndOfRun { at: now, run, note, state });
        row.record.attempts = step.attempts;
        row.record.crashes = step.crashes;
        row.record.is_cancel_requested = false;
        row.was_given_back = true;
        if state == State::Completed {
            row.record.result = step.result;
        }
        if matches!(state, State::Scheduled | State::Retrying) {
            row.record.run_at = Some(step.when.due(now).unwrap_or(now));
        }
        self.settle(row, state);
    }

    /// Gives a row its new state, with all that goes with a terminal one, and puts it back.
    pub(super) fn settle(&mut self, mut row: Row, state: State) {
        let now = self.now();
        row.record.state = state;
        row.record.updated_at = now;
        row.record.finished_at = state.is_terminal().then_some(now);
        if state == State::Pending {
            row.record.progress = None;
        }
        row.expires_at = matches!(state, State::Completed | State::Cancelled)
            .then(|| now.after(row.record.spec.retention));
        if state.is_terminal() {
            let has_started = row.record.attempts > 0 || row.record.crashes > 0;
            self.free_keys(&row, Exit::Finished { state, has_started });
        }
        self.put(row);
    }

    /// Removes a task that stands in no index any more, and its keys.
    pub(super) fn forget(&mut self, row: &Row, exit: Exit) {
        self.free_keys(row, exit);
        self.news.ended.push(row.record.id.clone());
    }

    fn free_keys(&mut self, row: &Row, exit: Exit) {
        let record = &row.record;
        let idempotency = record
            .idempotency_key
            .as_ref()
            .map(|key| (idempotency_digest(record.kind.as_str(), key), Holding::Idempotency));
        let unique = row.unique.map(|(digest, hold)| (digest, Holding::Unique(hold)));
        for (digest, holding) in idempotency.into_iter().chain(unique) {
            let is_owner = self.keys.get(&digest).is_some_and(|key| key.holder == record.id);
            if is_owner && is_freed_by(holding, exit) {
                self.keys.remove(&digest);
            }
        }
    }
}

/// True when the retention of a row is over.
pub(super) fn is_over(row: &Row, now: Timestamp) -> bool {
    row.expires_at.is_some_and(|at| at <= now)
}

/// The lane in which a pending row stands.
pub(super) fn lane(row: &Row) -> Lane {
    Lane {
        queue: row.record.queue.clone(),
        priority: row.record.priority,
        is_suspect: is_suspect(row.record.crashes),
    }
}

/// What the state machine wants to know of a running row.
pub(super) fn held(row: &Row) -> Held {
    Held {
        attempts: row.record.attempts,
        crashes: row.record.crashes,
        max_crashes: row.record.spec.max_crashes,
        is_cancel_requested: row.record.is_cancel_requested,
    }
}
