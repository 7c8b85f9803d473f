//! Epochs only grow (3), one valid lease at a time (4), no crash for an outage (6), nothing early (7),
//! no run untold (12), crashes noticed in time (19).

use std::collections::HashSet;
use std::time::Duration;

use windlass_core::history::{self, Entry, Happening};
use windlass_core::retry::Backoff;
use windlass_core::{State, TaskId, TaskRecord};

use super::dump::Dump;
use super::endings::CLOCK_SLACK;
use super::log::Moment;
use super::story::{Run, Story};
use super::{Findings, Invariant, Setting};

/// A busy machine may take this long to end what has run for too long.
const TIMEOUT_SLACK: Duration = Duration::from_secs(2);

pub(super) fn check(story: &Story, dump: &Dump, setting: &Setting, findings: &mut Findings) {
    for (id, runs) in &story.runs {
        let record = dump.tasks.get(id);
        let timeline = record.map(history::timeline).unwrap_or_default();
        let case = Case { story, setting, id, runs, timeline: &timeline };
        case.check_epochs(findings);
        case.check_overlaps(findings);
        case.check_first_start(findings);
        if let Some(record) = record {
            case.check_retries(record, findings);
            case.check_timeouts(record, findings);
            case.check_told(record, findings);
            case.check_given_up(findings);
        }
        findings.counts.runs += runs.len();
        findings.counts.reruns += runs.len().saturating_sub(1);
    }
}

/// One task that was run.
struct Case<'a> {
    story: &'a Story,
    setting: &'a Setting,
    id: &'a TaskId,
    /// In the order of their starts.
    runs: &'a [Run],
    /// Empty when its record was removed.
    timeline: &'a [Entry],
}

impl Case<'_> {
    fn check_epochs(&self, findings: &mut Findings) {
        let mut seen = HashSet::new();
        for run in self.runs {
            if !seen.insert(run.epoch) {
                let what = format!("epoch {} was given to two runs", run.epoch);
                findings.accuse(Invariant::EpochsIncrease, Some(self.id), what);
            }
        }
        for pair in self.runs.windows(2) {
            let [first, next] = pair else { continue };
            // A worker paused between its claim and its start may start after its successor; that
            // no pause can be noticed in time is why there are epochs.
            let is_excused = self.story.may_have_lost(next, next.started, self.setting.lease);
            if next.epoch < first.epoch && !is_excused {
                let what = format!("run {} started after run {}", next.epoch, first.epoch);
                findings.accuse(Invariant::EpochsIncrease, Some(self.id), what);
            }
        }
    }

    /// Runs without a known end overlap with nobody: where they ended, only their killed worker knew.
    fn check_overlaps(&self, findings: &mut Findings) {
        for earlier in self.runs {
            let Some((ended, _)) = earlier.ended else { continue };
            for later in self.runs.iter().filter(|later| later.epoch > earlier.epoch) {
                if later.started >= ended
                    || later.ended.as_ref().is_some_and(|(at, _)| *at <= earlier.started)
                {
                    continue;
                }
                let lease = self.setting.lease;
                let is_excused = self.story.may_have_lost(earlier, later.started, lease)
                    || self.is_ended_by(earlier, Happening::Crashed);
                if is_excused {
                    findings.counts.overlaps_excused += 1;
                } else {
                    let (a, b) = (earlier.epoch, later.epoch);
                    let what = format!("run {b} started while run {a} of a healthy worker went on");
                    findings.accuse(Invariant::OneValidLease, Some(self.id), what);
                }
            }
        }
    }

    fn is_ended_by(&self, run: &Run, what: Happening) -> bool {
        let is_its = |entry: &Entry| entry.run.as_ref().is_some_and(|it| it.epoch == run.epoch);
        self.timeline.iter().any(|entry| entry.what == what && is_its(entry))
    }

    fn check_first_start(&self, findings: &mut Findings) {
        for run in self.runs {
            let key = self.story.key_of(self.id, &run.payload);
            let submit = key.and_then(|key| self.story.submits.get(key));
            let Some(not_before) = submit.and_then(|submit| submit.not_before) else { continue };
            let started = run.started.timestamp();
            if started.after(CLOCK_SLACK) < not_before.timestamp() {
                let early = not_before.timestamp().since(started);
                let what = format!("run {} started {early:?} before its time", run.epoch);
                findings.accuse(Invariant::NeverEarly, Some(self.id), what);
            }
        }
    }

    /// The store sets a retry's time by the clock that it wrote the failure with, and a start comes
    /// after the claim: no slack is needed.
    fn check_retries(&self, record: &TaskRecord, findings: &mut Findings) {
        let backoff = record.spec.extras.backoff.unwrap_or(self.setting.backoff);
        for entry in self.timeline {
            let Some(ended) = &entry.run else { continue };
            let pause = match entry.what {
                Happening::Failed | Happening::TimedOut => {
                    backoff.nominal(ended.attempt).mul_f64(1.0 - jitter(&backoff))
                }
                Happening::Snoozed => self.setting.snooze,
                _ => continue,
            };
            // What was rounded up there may have been rounded down here.
            let due = entry.at.after(pause).as_millis() - 1;
            let next = self.runs.iter().filter(|run| run.epoch > ended.epoch);
            for run in next.filter(|run| run.started.timestamp().as_millis() < due) {
                let what = format!(
                    "run {} started before the pause after run {} was over",
                    run.epoch, ended.epoch
                );
                findings.accuse(Invariant::NeverEarly, Some(self.id), what);
            }
        }
    }

    /// No handler that went on for longer than it may is believed. (One that does not hear that its
    /// worker gives it up, since that is paused, may come to its end.)
    fn check_timeouts(&self, record: &TaskRecord, findings: &mut Findings) {
        for run in self.runs {
            let Some((ended, _)) = run.ended else { continue };
            let took = Duration::from_nanos(ended.0.saturating_sub(run.started.0));
            let is_believed = record.epoch == Some(run.epoch)
                && record.state == State::Completed
                && !self.story.may_have_lost(run, ended, self.setting.lease);
            if is_believed && took > record.spec.timeout + TIMEOUT_SLACK {
                let what = format!("run {} took {took:?} and was believed", run.epoch);
                findings.accuse(Invariant::BudgetsAreKept, Some(self.id), what);
            }
        }
    }

    /// Each run that was seen stands in the timeline, but for those that were folded into a count.
    fn check_told(&self, record: &TaskRecord, findings: &mut Findings) {
        let told: HashSet<_> = self
            .timeline
            .iter()
            .filter_map(|entry| entry.run.as_ref())
            .map(|run| run.epoch)
            .collect();
        let folded: u32 =
            self.timeline.iter().filter_map(|entry| entry.again).map(|again| again.count).sum();
        let is_untold = |run: &&Run| !told.contains(&run.epoch) && record.epoch != Some(run.epoch);
        let untold: Vec<_> = self.runs.iter().filter(is_untold).map(|run| run.epoch).collect();
        if untold.len() > usize::try_from(folded).unwrap_or(usize::MAX) {
            let what = format!("its timeline does not know of the runs {untold:?}");
            findings.accuse(Invariant::TimelineIsComplete, Some(self.id), what);
        }
        // A folded entry bears its first time and its last run.
        if folded == 0 && !self.timeline.is_sorted_by_key(|entry| entry.at) {
            findings.accuse(
                Invariant::TimelineIsComplete,
                Some(self.id),
                "its timeline is not in order",
            );
        }
    }

    fn check_given_up(&self, findings: &mut Findings) {
        for entry in self.timeline {
            let counts = &mut findings.counts;
            match entry.what {
                Happening::Released => counts.releases += 1,
                Happening::TimedOut => counts.timeouts += 1,
                Happening::Snoozed => counts.snoozes += 1,
                Happening::Crashed => counts.crashes += 1,
                _ => {}
            }
            if entry.what != Happening::Crashed {
                continue;
            }
            let epoch = entry.run.as_ref().map(|run| run.epoch);
            // Without a start nobody knows whose it was.
            let run = epoch.and_then(|epoch| self.runs.iter().find(|run| run.epoch == epoch));
            if let Some(run) = run {
                let at = Moment(u64::try_from(entry.at.as_millis()).unwrap_or(0) * 1_000_000);
                self.check_crash(run, at, findings);
            }
        }
    }

    /// A crash has a cause, which is not that the store was away, and is noticed in time.
    fn check_crash(&self, run: &Run, noticed: Moment, findings: &mut Findings) {
        let lease = self.setting.lease;
        if !self.story.may_have_lost(run, noticed, lease) {
            findings.counts.crashes_unexplained += 1;
            if self.story.was_store_away(run.started, noticed) {
                let what = format!("run {} is a crash, and only the store was away", run.epoch);
                findings.accuse(Invariant::BudgetsAreKept, Some(self.id), what);
            }
            return;
        }
        let killed = self.story.processes.get(&run.process).and_then(|process| process.killed);
        let Some(killed) = killed.filter(|killed| *killed <= noticed) else { return };
        let peace = self.longest_peace(killed.max(run.started), noticed);
        let peace_ms = u64::try_from(peace.as_millis()).unwrap_or(u64::MAX);
        findings.counts.recovery_ms_max = findings.counts.recovery_ms_max.max(peace_ms);
        if peace > self.setting.recovery_max {
            let what = format!("run {} was lost and not missed for {peace:?} of peace", run.epoch);
            findings.accuse(Invariant::Liveness, Some(self.id), what);
        }
    }

    /// The longest time of a span in which nothing was disturbed.
    fn longest_peace(&self, from: Moment, to: Moment) -> Duration {
        let (mut longest_ns, mut quiet_from) = (0, from);
        for (start, end) in self.story.disturbances() {
            if start > to {
                break;
            }
            longest_ns = longest_ns.max(start.0.saturating_sub(quiet_from.0));
            quiet_from = quiet_from.max(end);
        }
        Duration::from_nanos(longest_ns.max(to.0.saturating_sub(quiet_from.0)))
    }
}

const fn jitter(backoff: &Backoff) -> f64 {
    match *backoff {
        Backoff::Exponential { jitter, .. }
        | Backoff::Linear { jitter, .. }
        | Backoff::Fixed { jitter, .. } => jitter,
    }
}
