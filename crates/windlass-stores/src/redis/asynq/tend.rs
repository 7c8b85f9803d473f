//! Tend on asynq's keys: locks whose time is over, and the sweep that puts right what asynq leaves half done.
//!
//! The sweep goes round and round, a few steps in some of the queues at each tend.

use windlass_core::store::{Duty, DutyReport, Term};
use windlass_core::{QueueName, Result};

use super::{Shared, damage, scripts};
use crate::redis::fleet::stale_term;
use crate::redis::reply::next;

/// About how many items one step looks at, in about a millisecond of the server.
const STEP: usize = 200;
/// How many steps are taken at each tend.
const STEPS: usize = 20;
/// How many steps an operator's sweep takes at most.
const STEPS_MAX: usize = 1_000_000;

/// What ordinary use of asynq's tools and workers leaves of windlass's own notes: a task that was cancelled, deleted, run
/// or archived there has a mark, a key or a lock left, and asynq forgets to name groups.
const ORDINARY: [&str; 4] = ["cancelled", "groups", "keys", "locks"];

/// Whether a sweep mends what it finds, or only counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sweep {
    Mend,
    Count,
}

/// What was found in a queue, and how often.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) what: Vec<(String, u64)>,
    is_round_over: bool,
}

impl Found {
    pub(super) fn count(&self) -> u64 {
        self.what.iter().map(|(_, count)| count).sum()
    }

    pub(super) fn add(&mut self, name: String, count: u64) {
        match self.what.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += count,
            None => self.what.push((name, count)),
        }
    }

    pub(super) fn in_words(&self) -> String {
        let parts: Vec<_> =
            self.what.iter().map(|(name, count)| format!("{name} {count}")).collect();
        parts.join(", ")
    }

    /// True when others have only used their tools, and nothing was broken.
    fn is_ordinary(&self) -> bool {
        self.what.iter().all(|(name, _)| ORDINARY.contains(&name.as_str()))
    }

    /// Logs what was repaired in a queue.
    pub(super) fn log(&self, queue: &QueueName) {
        let what = self.in_words();
        match self.is_ordinary() {
            _ if what.is_empty() => {}
            true => tracing::debug!(%queue, what, "removed what other programs have left"),
            false => tracing::warn!(%queue, what, "repaired what was half done in redis"),
        }
    }
}

impl Shared {
    pub(super) async fn tend(&self, duty: Duty) -> Result<DutyReport> {
        let (begun, queues) = self.fleet.begin(duty, "tend").await?;
        let mut report = DutyReport { has_more: begun.has_more, ..DutyReport::default() };
        for queue in &self.due(queues.clone(), "tend").await?.queues {
            let left = duty.limit - usize::try_from(report.done).unwrap_or(duty.limit);
            let swept = self.sweep_queue(duty, queue, &scripts::TEND, left).await;
            if let Some(mut parts) = damage::skip(queue, swept)? {
                report.done += next(&mut parts, "tend")?.number()?.unsigned_abs();
                report.has_more |= next(&mut parts, "tend")?.number()? == 1;
            }
        }
        for queue in &self.mended_next(queues) {
            let found = self.mend(queue, Some(duty.term), Sweep::Mend, STEPS).await;
            let Some(found) = damage::skip(queue, found)? else { continue };
            found.log(queue);
            report.repaired += found.count();
        }
        report.repaired += self.mend_strays().await?;
        Ok(report)
    }

    /// Goes through a queue to the end of a round, for an operator.
    pub(super) async fn sweep_all_of(&self, queue: &QueueName, sweep: Sweep) -> Result<Found> {
        self.mend(queue, None, sweep, STEPS_MAX).await
    }

    /// Takes some steps of the sweep in a queue, at most to the end of its round.
    async fn mend(
        &self,
        queue: &QueueName,
        term: Option<Term>,
        sweep: Sweep,
        steps: usize,
    ) -> Result<Found> {
        let mut found = Found::default();
        for _ in 0..steps {
            let call = scripts::MEND
                .on(&[self.stem(queue)])
                .arg(self.options().told_time())
                .arg(term.map(|term| term.to_string()).unwrap_or_default())
                .arg(STEP)
                .arg(u8::from(sweep == Sweep::Mend));
            let reply = self.ask(call).await?;
            if reply.is_zero() {
                return Err(stale_term(term));
            }
            let mut parts = reply.list()?;
            found.is_round_over = next(&mut parts, "mend")?.number()? == 1;
            while let (Some(name), Some(count)) = (parts.next(), parts.next()) {
                found.add(name.text()?, count.number()?.unsigned_abs());
            }
            if found.is_round_over {
                break;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_of_asynqs_tools_is_no_reason_for_a_warning() {
        let mut found = Found::default();
        found.add("cancelled".into(), 2);
        found.add("locks".into(), 1);
        assert!(found.is_ordinary());
        found.add("ghosts".into(), 1);
        assert!(!found.is_ordinary());
    }
}
