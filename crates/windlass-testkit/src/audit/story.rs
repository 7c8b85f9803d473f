//! The log retold: by submit, by task, by process.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use windlass_core::{Epoch, TaskId};

use super::log::{Digest, Fact, Line, Log, Moment, Outcome, ProcessId};

/// What the checks look things up in.
#[derive(Debug, Default)]
pub(super) struct Story {
    pub(super) submits: BTreeMap<String, Submit>,
    pub(super) keys_by_payload: HashMap<Digest, String>,
    pub(super) keys_by_id: HashMap<TaskId, String>,
    /// Each task's runs in the order of their starts.
    pub(super) runs: BTreeMap<TaskId, Vec<Run>>,
    /// Runs that ended and never started, and the like.
    pub(super) contradictions: Vec<(TaskId, String)>,
    pub(super) cancels: BTreeMap<TaskId, Request<CancelAnswer>>,
    pub(super) deletes: BTreeMap<TaskId, Request<()>>,
    pub(super) processes: BTreeMap<ProcessId, Process>,
    /// When the store was away; the last may have no end.
    pub(super) outages: Vec<(Moment, Option<Moment>)>,
    /// When the store was disturbed without going away: an excuse for nothing.
    nuisances: Vec<Moment>,
    pub(super) faults_over: Option<Moment>,
    pub(super) drained: Option<Moment>,
}

/// All that was sent under one key.
#[derive(Debug, Default)]
pub(super) struct Submit {
    pub(super) payload: Option<Digest>,
    /// The earliest instant at which a run would not be early.
    pub(super) not_before: Option<Moment>,
    pub(super) max_retries: u32,
    pub(super) ids: Vec<TaskId>,
    pub(super) is_refused: bool,
}

#[derive(Debug)]
pub(super) struct Run {
    pub(super) epoch: Epoch,
    pub(super) attempt: u32,
    pub(super) process: ProcessId,
    pub(super) payload: Digest,
    pub(super) started: Moment,
    pub(super) ended: Option<(Moment, Outcome)>,
}

/// Something asked for, and the last answer to it.
#[derive(Debug)]
pub(super) struct Request<T> {
    pub(super) answered: Option<(Moment, T)>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct CancelAnswer {
    pub(super) is_running: bool,
}

#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) role: String,
    pub(super) up: Option<Moment>,
    pub(super) killed: Option<Moment>,
    /// Pauses; the last may have no end.
    pub(super) stops: Vec<(Moment, Option<Moment>)>,
    pub(super) terminated: Option<Moment>,
    /// When it ended and with which code.
    pub(super) down: Option<(Moment, Option<i32>)>,
}

impl Process {
    /// Whether it was killed or paused at some time of the span.
    pub(super) fn was_disturbed(&self, from: Moment, to: Moment) -> bool {
        // Who was asked to end and did not is done away with in the end, at an unknown moment.
        let is_stuck = self.down.is_none() && self.terminated.is_some_and(|at| at <= to);
        let is_killed = self.killed.is_some_and(|at| at <= to) || is_stuck;
        let is_stopped = |(stopped, resumed): &(Moment, Option<Moment>)| {
            *stopped <= to && resumed.is_none_or(|resumed| resumed >= from)
        };
        is_killed || self.stops.iter().any(is_stopped)
    }
}

impl Story {
    pub(super) fn tell(log: &Log) -> Self {
        let mut story = Self::default();
        for line in log.lines() {
            story.take(line);
        }
        story
    }

    /// The submit that a record or a run belongs to: by its id, else by its payload.
    pub(super) fn key_of(&self, id: &TaskId, payload: &Digest) -> Option<&String> {
        self.keys_by_id.get(id).or_else(|| self.keys_by_payload.get(payload))
    }

    pub(super) fn run_of(&self, id: &TaskId, epoch: Epoch) -> Option<&Run> {
        self.runs.get(id)?.iter().find(|run| run.epoch == epoch)
    }

    /// Whether the process of a run was killed or paused early enough to have lost the run before
    /// an instant. A pause that ended shortly before the run began may have cost a beat already.
    pub(super) fn may_have_lost(&self, run: &Run, before: Moment, lease: Duration) -> bool {
        let lease_ns = u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX);
        let from = Moment(run.started.0.saturating_sub(lease_ns));
        let process = self.processes.get(&run.process);
        process.is_some_and(|process| process.was_disturbed(from, before))
    }

    /// Whether the store was away, or lost its connections, at some time of the span.
    pub(super) fn was_store_away(&self, from: Moment, to: Moment) -> bool {
        let is_within = |(stopped, back): &(Moment, Option<Moment>)| {
            *stopped <= to && back.is_none_or(|back| back >= from)
        };
        self.outages.iter().any(is_within)
            || self.nuisances.iter().any(|at| (from..=to).contains(at))
    }

    /// All times at which something was disturbed, in the order of their beginnings. What is paused
    /// may hold a lock that others wait for.
    pub(super) fn disturbances(&self) -> Vec<(Moment, Moment)> {
        let open_ended = |(from, to): &(Moment, Option<Moment>)| (*from, to.unwrap_or(*from));
        let mut spans: Vec<_> = self.outages.iter().map(open_ended).collect();
        for process in self.processes.values() {
            let instants = [process.up, process.killed, process.terminated];
            spans.extend(instants.into_iter().flatten().map(|at| (at, at)));
            spans.extend(process.down.map(|(at, _)| (at, at)));
            spans.extend(process.stops.iter().map(open_ended));
        }
        spans.sort_unstable();
        spans
    }

    fn take(&mut self, line: &Line) {
        let at = line.at;
        match &line.fact {
            Fact::SubmitSent { key, payload, delay_ms, max_retries } => {
                let submit = self.submits.entry(key.clone()).or_default();
                let not_before = Moment(at.0 + delay_ms * 1_000_000);
                submit.not_before = Some(submit.not_before.map_or(not_before, |earlier| {
                    // Whichever of them was first to arrive made the task.
                    earlier.min(not_before)
                }));
                submit.payload = Some(payload.clone());
                submit.max_retries = *max_retries;
                self.keys_by_payload.insert(payload.clone(), key.clone());
            }
            Fact::SubmitAcknowledged { key, id } => {
                let ids = &mut self.submits.entry(key.clone()).or_default().ids;
                if !ids.contains(id) {
                    ids.push(id.clone());
                }
                if let Some(other) = self.keys_by_id.insert(id.clone(), key.clone())
                    && other != *key
                {
                    let what = format!("was answered to {other} and to {key}");
                    self.contradictions.push((id.clone(), what));
                }
            }
            Fact::SubmitRefused { key } => {
                self.submits.entry(key.clone()).or_default().is_refused = true;
            }
            Fact::CancelSent { id } => {
                self.cancels.entry(id.clone()).or_insert(Request { answered: None });
            }
            Fact::CancelAcknowledged { id, is_running } => {
                let answered = Some((at, CancelAnswer { is_running: *is_running }));
                self.cancels.insert(id.clone(), Request { answered });
            }
            Fact::DeleteSent { id } => {
                self.deletes.entry(id.clone()).or_insert(Request { answered: None });
            }
            Fact::DeleteAcknowledged { id } => {
                self.deletes.insert(id.clone(), Request { answered: Some((at, ())) });
            }
            Fact::RunStarted { id, epoch, attempt, process, payload } => {
                self.runs.entry(id.clone()).or_default().push(Run {
                    epoch: *epoch,
                    attempt: *attempt,
                    process: *process,
                    payload: payload.clone(),
                    started: at,
                    ended: None,
                });
            }
            Fact::RunEnded { id, epoch, outcome } => {
                let runs = self.runs.entry(id.clone()).or_default();
                match runs.iter_mut().rev().find(|run| run.epoch == *epoch) {
                    Some(run) => run.ended = Some((at, outcome.clone())),
                    None => {
                        let what = format!("run {epoch} ended and never started");
                        self.contradictions.push((id.clone(), what));
                    }
                }
            }
            Fact::ProcessUp { process, role } => {
                let process = self.process(*process);
                process.role.clone_from(role);
                process.up = Some(at);
            }
            Fact::ProcessKilled { process } => self.process(*process).killed = Some(at),
            Fact::ProcessStopped { process } => self.process(*process).stops.push((at, None)),
            Fact::ProcessResumed { process } => {
                if let Some((_, resumed)) = self.process(*process).stops.last_mut() {
                    *resumed = Some(at);
                }
            }
            Fact::ProcessTerminated { process } => self.process(*process).terminated = Some(at),
            Fact::ProcessDown { process, code } => self.process(*process).down = Some((at, *code)),
            Fact::StoreStopped => self.outages.push((at, None)),
            Fact::StoreBack => {
                if let Some((_, back)) = self.outages.last_mut() {
                    *back = Some(at);
                }
            }
            Fact::StoreAnnoyed { .. } => self.nuisances.push(at),
            Fact::FaultsOver => self.faults_over = Some(at),
            Fact::Drained => self.drained = Some(at),
        }
    }

    fn process(&mut self, process: ProcessId) -> &mut Process {
        self.processes.entry(process).or_default()
    }
}
