//! Nothing acknowledged is lost, nothing is invented (1), one task per key (9), the same bytes (17).

use std::collections::HashMap;

use windlass_core::TaskId;

use super::dump::Dump;
use super::log::Digest;
use super::story::{Story, Submit};
use super::{Findings, Invariant};

pub(super) fn check(story: &Story, dump: &Dump, findings: &mut Findings) {
    check_answers(story, dump, findings);
    let kept = check_records(story, dump, findings);
    check_runs(story, dump, findings);
    count(story, &kept, findings);
}

/// Everything that was answered must be so.
fn check_answers(story: &Story, dump: &Dump, findings: &mut Findings) {
    for (key, Submit { ids, is_refused, .. }) in &story.submits {
        if let [first, second, ..] = ids.as_slice() {
            let what = format!("{key} was answered with {first} and with {second}");
            findings.accuse(Invariant::OneTaskPerKey, Some(first), what);
        }
        for id in ids {
            if *is_refused {
                let what = format!("{key} was refused and acknowledged");
                findings.accuse(Invariant::NothingLostNothingInvented, Some(id), what);
            }
            let is_removal_asked_for = story.deletes.contains_key(id);
            if !dump.tasks.contains_key(id) && !is_removal_asked_for {
                let what = format!("{key} was acknowledged and is not there");
                findings.accuse(Invariant::NothingLostNothingInvented, Some(id), what);
            }
        }
    }
    for (id, delete) in &story.deletes {
        if delete.answered.is_some() && dump.tasks.contains_key(id) {
            let what = "its removal was acknowledged and it is there";
            findings.accuse(Invariant::NothingLostNothingInvented, Some(id), what);
        }
    }
    for (id, what) in &story.contradictions {
        findings.accuse(Invariant::NothingLostNothingInvented, Some(id), what);
    }
}

/// Everything that is there must have been sent, once. Answers which keys have which record.
fn check_records<'a>(
    story: &'a Story,
    dump: &'a Dump,
    findings: &mut Findings,
) -> HashMap<&'a str, &'a TaskId> {
    let mut kept = HashMap::<&str, &TaskId>::new();
    for (id, record) in &dump.tasks {
        let payload = Digest::of(&record.payload);
        let Some(key) = story.key_of(id, &payload) else {
            let what = "is there and was never submitted, or with another payload";
            findings.accuse(Invariant::NothingLostNothingInvented, Some(id), what);
            continue;
        };
        let submit = &story.submits[key];
        if submit.payload.as_ref() != Some(&payload) {
            let what = format!("{key} is kept with another payload");
            findings.accuse(Invariant::BytesAreIdentical, Some(id), what);
        }
        if submit.is_refused {
            let what = format!("{key} was refused and is there");
            findings.accuse(Invariant::NothingLostNothingInvented, Some(id), what);
        }
        if record.spec.max_retries != submit.max_retries {
            let (sent, is) = (submit.max_retries, record.spec.max_retries);
            let what = format!("{key} was sent with max_retries {sent} and is kept with {is}");
            findings.accuse(Invariant::BudgetsAreKept, Some(id), what);
        }
        if let Some(other) = kept.insert(key, id) {
            let what = format!("{key} is there twice, also as {other}");
            findings.accuse(Invariant::OneTaskPerKey, Some(id), what);
        }
    }
    kept
}

/// What handlers were given must have been sent.
fn check_runs(story: &Story, dump: &Dump, findings: &mut Findings) {
    for (id, runs) in &story.runs {
        let kept = dump.tasks.get(id).map(|record| Digest::of(&record.payload));
        for run in runs {
            let epoch = run.epoch;
            let key = story
                .key_of(id, &run.payload)
                .or_else(|| kept.as_ref().and_then(|kept| story.key_of(id, kept)));
            let Some(key) = key else {
                let what = format!("run {epoch} is of a task that was never submitted");
                findings.accuse(Invariant::NothingLostNothingInvented, Some(id), what);
                continue;
            };
            if story.submits[key].payload.as_ref() == Some(&run.payload) {
                continue;
            }
            let what = format!("run {epoch} was given another payload than {key} had");
            findings.accuse(Invariant::BytesAreIdentical, Some(id), what);
        }
    }
}

fn count(story: &Story, kept: &HashMap<&str, &TaskId>, findings: &mut Findings) {
    let counts = &mut findings.counts;
    counts.keys = story.submits.len();
    counts.deleted = story.deletes.values().filter(|it| it.answered.is_some()).count();
    for (key, submit) in &story.submits {
        if submit.is_refused {
            counts.refused += 1;
        } else if !submit.ids.is_empty() {
            counts.acknowledged += 1;
        } else {
            counts.ambiguous += 1;
            counts.ambiguous_kept += usize::from(kept.contains_key(key.as_str()));
        }
    }
}
