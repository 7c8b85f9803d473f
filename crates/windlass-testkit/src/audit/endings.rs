//! One end per task (2), which a handler really reported (4), within the budgets (6), and cancels
//! that are kept (8).

use std::time::Duration;

use windlass_core::history::{self, Entry, Happening};
use windlass_core::{State, TaskRecord};

use super::dump::Dump;
use super::log::{Digest, Moment, Outcome};
use super::story::Story;
use super::{Findings, Invariant};

/// A store may read its clock once for a group of calls, a moment before the last of them came.
pub(super) const CLOCK_SLACK: Duration = Duration::from_millis(250);

pub(super) fn check(story: &Story, dump: &Dump, findings: &mut Findings) {
    for record in dump.tasks.values() {
        let timeline = history::timeline(record);
        check_terminal(record, &timeline, findings);
        check_accepted(record, &timeline, story, findings);
        check_budgets(record, &timeline, story, findings);
    }
    check_cancels(story, dump, findings);
    count(dump, findings);
}

fn check_terminal(record: &TaskRecord, timeline: &[Entry], findings: &mut Findings) {
    let accuse = |findings: &mut Findings, what: String| {
        findings.accuse(Invariant::OneTerminalState, Some(&record.id), what);
    };
    let state = record.state;
    if !state.is_terminal() {
        return accuse(findings, format!("is {state} after the drain"));
    }
    let ends: Vec<_> = timeline.iter().filter_map(|entry| terminal_state(entry.what)).collect();
    if ends != [state] {
        accuse(findings, format!("is {state}, and its timeline ends it by {ends:?}"));
    }
}

/// The state that an entry of a timeline says was the last.
const fn terminal_state(what: Happening) -> Option<State> {
    match what {
        Happening::Completed => Some(State::Completed),
        Happening::DeadLetter => Some(State::DeadLetter),
        Happening::Cancelled => Some(State::Cancelled),
        _ => None,
    }
}

/// Whatever the store accepted as the end of a run, the handler of that very run must have said
/// before. A report under an older epoch that was let through shows here, also when the task was
/// running again.
fn check_accepted(record: &TaskRecord, timeline: &[Entry], story: &Story, findings: &mut Findings) {
    for entry in timeline {
        let Some(accepted) = reported_end(entry.what) else { continue };
        let Some(run) = &entry.run else {
            let what = format!("{:?} without a run", entry.what);
            findings.accuse(Invariant::OneValidLease, Some(&record.id), what);
            continue;
        };
        let epoch = run.epoch;
        let seen = story.run_of(&record.id, epoch).and_then(|run| run.ended.as_ref());
        let Some((at, outcome)) = seen else {
            let what = format!("{accepted} was accepted of run {epoch}, which never ended");
            findings.accuse(Invariant::OneValidLease, Some(&record.id), what);
            continue;
        };
        let said = match outcome {
            Outcome::Completed { .. } => "completed",
            Outcome::Failed => "failed",
            Outcome::Discarded => "discarded",
            Outcome::Snoozed => "snoozed",
        };
        if said != accepted {
            let what = format!("{accepted} was accepted of run {epoch}, which had {said}");
            findings.accuse(Invariant::OneValidLease, Some(&record.id), what);
        }
        if entry.at.after(CLOCK_SLACK) < at.timestamp() {
            let what = format!("{accepted} was accepted of run {epoch} before it ended");
            findings.accuse(Invariant::OneValidLease, Some(&record.id), what);
        }
        if let Outcome::Completed { result } = outcome
            && record.state == State::Completed
            && record.epoch == Some(epoch)
            && record.result.as_deref().map(Digest::of).as_ref() != Some(result)
        {
            let what = format!("has another result than run {epoch} returned");
            findings.accuse(Invariant::BytesAreIdentical, Some(&record.id), what);
        }
    }
}

/// What a handler must have said for this to be in a timeline.
const fn reported_end(what: Happening) -> Option<&'static str> {
    match what {
        Happening::Completed => Some("completed"),
        Happening::Failed => Some("failed"),
        Happening::Discarded => Some("discarded"),
        Happening::Snoozed => Some("snoozed"),
        _ => None,
    }
}

/// Whether the run of an entry counts against the retries.
const fn is_counted(what: Happening) -> bool {
    matches!(
        what,
        Happening::Completed | Happening::Failed | Happening::TimedOut | Happening::Discarded
    )
}

fn check_budgets(record: &TaskRecord, timeline: &[Entry], story: &Story, findings: &mut Findings) {
    let accuse = |findings: &mut Findings, what: String| {
        findings.accuse(Invariant::BudgetsAreKept, Some(&record.id), what);
    };
    let counted: Vec<_> = timeline.iter().filter(|entry| is_counted(entry.what)).collect();
    let ended = u32::try_from(counted.len()).unwrap_or(u32::MAX);
    let crashed = timeline.iter().filter(|entry| entry.what == Happening::Crashed).count();
    let crashed = u32::try_from(crashed).unwrap_or(u32::MAX);
    let spec = &record.spec;
    if ended > spec.max_retries.saturating_add(1) {
        accuse(findings, format!("{ended} runs ended, max_retries is {}", spec.max_retries));
    }
    if crashed > spec.max_crashes.saturating_add(1) || record.crashes != crashed {
        let (kept, most) = (record.crashes, spec.max_crashes);
        accuse(findings, format!("{crashed} runs crashed, counted {kept}, max_crashes is {most}"));
    }
    // The run of a cancelled task counts when it ended by the cancel.
    let unseen = u32::from(record.state == State::Cancelled);
    if record.attempts < ended || record.attempts > ended + unseen {
        accuse(findings, format!("{ended} runs ended by themselves, counted {}", record.attempts));
    }
    let is_discarded = counted.iter().any(|entry| entry.what == Happening::Discarded);
    let is_spent = ended > spec.max_retries || crashed > spec.max_crashes || is_discarded;
    if record.state == State::DeadLetter && !is_spent {
        accuse(findings, format!("is dead after {ended} ends and {crashed} crashes"));
    }
    for run in story.runs.get(&record.id).into_iter().flatten() {
        let is_before = |entry: &&&Entry| entry.run.as_ref().is_some_and(|it| it.epoch < run.epoch);
        let before = counted.iter().filter(is_before).count();
        if usize::try_from(run.attempt).ok() != Some(before + 1) {
            let (epoch, attempt) = (run.epoch, run.attempt);
            let what = format!("run {epoch} was attempt {attempt} after {before} that count");
            accuse(findings, what);
        }
    }
}

fn check_cancels(story: &Story, dump: &Dump, findings: &mut Findings) {
    for record in dump.tasks.values() {
        if record.state == State::Cancelled && !story.cancels.contains_key(&record.id) {
            let what = "is cancelled, which nobody asked for";
            findings.accuse(Invariant::CancelledDoesNotStart, Some(&record.id), what);
        }
    }
    for (id, cancel) in &story.cancels {
        let Some((at, answer)) = cancel.answered else { continue };
        let record = dump.tasks.get(id);
        let accuse = |findings: &mut Findings, what: String| {
            findings.accuse(Invariant::CancelledDoesNotStart, Some(id), what);
        };
        let is_kept =
            |state| state == State::Cancelled || (answer.is_running && state == State::Completed);
        if let Some(record) = record
            && !is_kept(record.state)
        {
            accuse(findings, format!("was cancelled and is {}", record.state));
        }
        if record
            .and_then(|record| record.claimed_at)
            .is_some_and(|claimed| claimed > at.timestamp())
        {
            accuse(findings, String::from("was claimed after its cancel was acknowledged"));
        }
        let starts_after = starts_after(story, record, id, at);
        // A run that was claimed before may say only afterwards that it has begun.
        if starts_after > usize::from(answer.is_running) {
            accuse(findings, format!("{starts_after} runs started after its cancel"));
        }
    }
}

/// How many runs started after an instant that had not been given up by the store before. (A worker
/// that is paused between its claim and its start cannot know.)
fn starts_after(
    story: &Story,
    record: Option<&TaskRecord>,
    id: &windlass_core::TaskId,
    at: Moment,
) -> usize {
    let entries = record.map_or(&[][..], |record| record.history.entries());
    let is_given_up = |epoch| {
        entries.iter().any(|entry| {
            matches!(entry.what, Happening::Crashed | Happening::Released)
                && entry.run.as_ref().is_some_and(|run| run.epoch == epoch)
        })
    };
    let runs = story.runs.get(id).into_iter().flatten();
    runs.filter(|run| run.started > at && !is_given_up(run.epoch)).count()
}

fn count(dump: &Dump, findings: &mut Findings) {
    let counts = &mut findings.counts;
    counts.tasks = dump.tasks.len();
    for record in dump.tasks.values() {
        match record.state {
            State::Completed => counts.completed += 1,
            State::DeadLetter => counts.dead_letters += 1,
            State::Cancelled => counts.cancelled += 1,
            _ => {}
        }
    }
}
