//! Counting: some nanoseconds for a task, in memory, whatever the store does.

use std::collections::BTreeMap;

use windlass_core::statistics::{Sheet, Step};
use windlass_core::store::{Applied, Inserted};
use windlass_core::{Claimed, Kind, Priority, QueueName, Timestamp};

use super::{Statistics, save};
use crate::metrics::EndedRun;

/// Minutes that are kept while they cannot be saved; the oldest go first.
pub(super) const MINUTES_MAX: usize = 120;

/// What was counted since the last save.
#[derive(Default)]
pub(super) struct Live {
    minute: Timestamp,
    sheet: Sheet,
    /// Minutes that are over.
    past: BTreeMap<Timestamp, Sheet>,
}

impl Live {
    fn sheet_at(&mut self, minute: Timestamp) -> &mut Sheet {
        if self.minute != minute {
            let sheet = std::mem::take(&mut self.sheet);
            if !sheet.is_empty() {
                self.past.entry(self.minute).or_default().merge(&sheet);
            }
            if self.past.len() > MINUTES_MAX {
                self.past.pop_first();
            }
            self.minute = minute;
        }
        &mut self.sheet
    }

    /// Takes everything out, by minute.
    pub(super) fn take(&mut self) -> BTreeMap<Timestamp, Sheet> {
        let mut all = std::mem::take(&mut self.past);
        let sheet = std::mem::take(&mut self.sheet);
        if !sheet.is_empty() {
            all.entry(self.minute).or_default().merge(&sheet);
        }
        all
    }

    /// The same, and leaves it there.
    pub(super) fn copy(&self) -> BTreeMap<Timestamp, Sheet> {
        let mut all = self.past.clone();
        if !self.sheet.is_empty() {
            all.entry(self.minute).or_default().merge(&self.sheet);
        }
        all
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sheet.is_empty() && self.past.is_empty()
    }
}

impl Statistics {
    /// Counts the tasks of a batch that are new.
    pub(crate) fn submitted(&self, tasks: &[(QueueName, Kind, Priority)], told: &[Inserted]) {
        let mut answers = told.iter();
        self.count(tasks.len(), |sheet| {
            for alike in tasks.chunk_by(|a, b| a.1 == b.1 && a.0 == b.0) {
                let new = answers.by_ref().take(alike.len()).filter(|told| told.is_new()).count();
                if new > 0 {
                    sheet.cell(&alike[0].0, &alike[0].1).submitted += new as u64;
                }
            }
        });
    }

    /// Counts how long the tasks of a claim had waited.
    pub(crate) fn claimed(&self, tasks: &[Claimed]) {
        self.count(tasks.len(), |sheet| {
            for alike in tasks.chunk_by(|a, b| a.kind == b.kind && a.queue == b.queue) {
                let cell = sheet.cell(&alike[0].queue, &alike[0].kind);
                for task in alike {
                    cell.wait.add(task.claimed_at.since(task.pending_at));
                }
            }
        });
    }

    /// Counts runs by what their end has made of their tasks.
    pub(crate) fn ended(&self, runs: &[EndedRun], outcomes: &[Applied]) {
        let mut outcomes = outcomes.iter();
        self.count(runs.len(), |sheet| {
            for alike in runs.chunk_by(|a, b| a.kind == b.kind && a.queue == b.queue) {
                let cell = sheet.cell(&alike[0].queue, &alike[0].kind);
                for (run, outcome) in alike.iter().zip(outcomes.by_ref()) {
                    match outcome {
                        Applied::Applied(state) => cell.ended(*state, run.took),
                        // Whether these were counted, only who reports them knows.
                        Applied::Already | Applied::Refused(_) | Applied::Unrecorded => {}
                    }
                }
            }
        });
    }

    fn count(&self, tasks: usize, count: impl FnOnce(&mut Sheet)) {
        if tasks == 0 || !self.0.is_enabled {
            return;
        }
        let minute = Step::Minute.start_of(self.now());
        count(self.0.live.lock().sheet_at(minute));
        save::wake(&self.0);
    }
}
