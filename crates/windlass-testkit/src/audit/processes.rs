//! The whole: counters (13), orderly stops (15), an end after the faults (19).

use super::dump::{Dump, counter_trouble};
use super::story::Story;
use super::{Findings, Invariant, Setting};

pub(super) fn check(story: &Story, dump: &Dump, setting: &Setting, findings: &mut Findings) {
    if let Some(what) = counter_trouble(dump.tasks.values(), &dump.queues) {
        findings.accuse(Invariant::CountersEqualStates, None, what);
    }
    for what in &dump.troubles {
        findings.accuse(Invariant::CountersEqualStates, None, what);
    }
    check_stops(story, findings);
    check_liveness(story, setting, findings);
}

fn check_stops(story: &Story, findings: &mut Findings) {
    for (id, process) in &story.processes {
        if process.killed.is_some() {
            continue;
        }
        let name = format!("process {} ({})", id.0, process.role);
        match (process.terminated, process.down) {
            (Some(_), Some((_, Some(0)))) | (None, None) => {}
            (Some(_), Some((_, code))) => {
                let what = format!("{name} was asked to end and ended with {code:?}");
                findings.accuse(Invariant::OrderlyStop, None, what);
            }
            (Some(_), None) => {
                let what = format!("{name} was asked to end and did not");
                findings.accuse(Invariant::OrderlyStop, None, what);
            }
            (None, Some((_, code))) => {
                let what = format!("{name} ended by itself with {code:?}");
                findings.accuse(Invariant::Liveness, None, what);
            }
        }
    }
}

fn check_liveness(story: &Story, setting: &Setting, findings: &mut Findings) {
    let most = setting.drain_max;
    let (Some(from), Some(to)) = (story.faults_over, story.drained) else {
        let what = format!("not drained {most:?} after the last fault");
        findings.accuse(Invariant::Liveness, None, what);
        return;
    };
    let took = std::time::Duration::from_nanos(to.0.saturating_sub(from.0));
    findings.counts.drain_ms = u64::try_from(took.as_millis()).ok();
    if took > most {
        let what = format!("the drain took {took:?}, allowed are {most:?}");
        findings.accuse(Invariant::Liveness, None, what);
    }
}
