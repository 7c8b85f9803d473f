//! Tend on Redis Streams: a queue's own upkeep, and the sweep that mends what is half missing in it.
//!
//! The sweep goes round and round, a few steps at each tend. Once it has found something, it goes on without a
//! pause until a whole round finds nothing more.

use std::time::Instant;

use windlass_core::store::{Duty, DutyReport, IDLE_QUEUE_KEPT, Term};
use windlass_core::{ErrorKind, QueueName, Result};

use super::sweeps::{Pass, Sweep};
use super::{Shared, scripts};
use crate::redis::fleet::stale_term;
use crate::redis::options::millis;
use crate::redis::reply::next;
use crate::redis::troubles::skip;

/// About how many items one step looks at, in about a millisecond of the server.
const STEP: usize = 100;
/// How many steps are taken at each tend, and how many once something was found.
const STEPS: usize = 20;
const STEPS_TORN: usize = 200;
/// How often an operator's sweep begins anew before it lets someone else have a look.
const ROUNDS_MAX: usize = 100_000;

/// What some steps of the sweep have found in a queue.
#[derive(Default)]
struct Mended {
    /// What was mended, and how often.
    what: Vec<(String, u64)>,
    is_round_over: bool,
    /// Something was found: another round is needed at once.
    is_torn: bool,
}

impl Mended {
    fn count(&self) -> u64 {
        self.what.iter().map(|(_, count)| count).sum()
    }

    fn add(&mut self, name: String, count: u64) {
        match self.what.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += count,
            None => self.what.push((name, count)),
        }
    }

    fn tell(&self, queue: &QueueName) {
        if self.what.is_empty() {
            return;
        }
        let parts: Vec<_> =
            self.what.iter().map(|(name, count)| format!("{name} {count}")).collect();
        let what = parts.join(", ");
        tracing::warn!(%queue, what, "keys were half missing in redis and were mended");
    }
}

impl Shared {
    pub(super) async fn tend(&self, duty: Duty) -> Result<DutyReport> {
        let pass = self.begin_pass(duty, Sweep::Tend, "tend").await?;
        let mut report = DutyReport { has_more: pass.has_more_workers, ..DutyReport::default() };
        let mut failed = None;
        for queue in &pass.queues {
            let tended = self.tend_queue(queue, duty, &pass, &mut report).await;
            match skip(queue, tended) {
                Ok(_) => {}
                Err(error) if error.is_lease_lost() => return Err(error),
                // One queue that cannot be tended keeps no other from it.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(report), Err)
    }

    async fn tend_queue(
        &self,
        queue: &QueueName,
        duty: Duty,
        pass: &Pass,
        report: &mut DutyReport,
    ) -> Result<()> {
        let since = Instant::now();
        let left = duty.limit - usize::try_from(report.done).unwrap_or(duty.limit);
        let mut parts = self.sweep_queue(duty, queue, &scripts::TEND, left).await?;
        report.done += next(&mut parts, "tend")?.number()?.unsigned_abs();
        let has_more = next(&mut parts, "tend")?.number()? == 1;
        let next_due = next(&mut parts, "tend")?.time_if_any()?;
        let idle_since = next(&mut parts, "tend")?.time_if_any()?;
        let mended = self.mend(queue, Some(duty.term)).await?;
        report.repaired += mended.count();
        if mended.count() > 0 {
            // Beats look for requests to cancel where something was written.
            self.announce_changes([queue]).await?;
        }
        report.has_more |= has_more || mended.is_torn;
        let is_done = !has_more && !mended.is_torn && mended.is_round_over;
        let due = if is_done { next_due } else { Some(pass.now()) };
        self.sweeps.visited(pass, queue, since, due);
        let is_idle = idle_since.is_some_and(|at| pass.now().since(at) > IDLE_QUEUE_KEPT);
        if is_done && is_idle {
            self.forget_queue(queue, duty, pass).await?;
        }
        Ok(())
    }

    /// Removes what is left of a queue that is idle for long, and its name. A write that is announced meanwhile keeps
    /// the name, and makes the rest anew.
    async fn forget_queue(&self, queue: &QueueName, duty: Duty, pass: &Pass) -> Result<()> {
        let Some(number) = self.sweeps.still_up_to(queue, pass) else { return Ok(()) };
        let call = scripts::FORGET
            .on(&[self.stem(queue)])
            .arg(self.options().told_time())
            .arg(duty.term.to_string())
            .arg(millis(IDLE_QUEUE_KEPT));
        let reply = self.ask(call).await?;
        if reply.is_zero() {
            return Err(stale_term(Some(duty.term)));
        }
        if reply.is_number(1) && self.fleet.forget_queue(queue, number).await? {
            self.sweeps.forget(queue);
            self.names.remove(queue);
        }
        Ok(())
    }

    /// Mends all that can be found in all queues; answers how much that was.
    pub(super) async fn mend_all(&self) -> Result<u64> {
        let mut count = 0;
        for queue in self.all_queues().await? {
            for _ in 0..ROUNDS_MAX {
                let mended = match self.mend(&queue, None).await {
                    Ok(mended) => mended,
                    // What cannot be repaired is a finding of the inspection.
                    Err(error) if error.kind() == ErrorKind::Corrupt => break,
                    Err(error) => return Err(error),
                };
                count += mended.count();
                if mended.is_round_over && !mended.is_torn {
                    break;
                }
            }
        }
        Ok(count)
    }

    /// Takes some steps of the sweep in a queue, at most to the end of its round.
    async fn mend(&self, queue: &QueueName, term: Option<Term>) -> Result<Mended> {
        let mut mended = Mended::default();
        for step in 1..=STEPS_TORN {
            let is_last = step == STEPS_TORN || (step >= STEPS && !mended.is_torn);
            let call = scripts::MEND
                .on(&[self.stem(queue)])
                .arg(self.options().told_time())
                .arg(term.map(|term| term.to_string()).unwrap_or_default())
                .arg(STEP)
                .arg(u8::from(is_last));
            let reply = self.ask(call).await?;
            if reply.is_zero() {
                return Err(stale_term(term));
            }
            let mut parts = reply.list()?;
            mended.is_round_over = next(&mut parts, "mend")?.number()? == 1;
            mended.is_torn = next(&mut parts, "mend")?.number()? == 1;
            while let (Some(name), Some(count)) = (parts.next(), parts.next()) {
                mended.add(name.text()?, count.number()?.unsigned_abs());
            }
            if mended.is_round_over || is_last {
                break;
            }
        }
        mended.tell(queue);
        Ok(mended)
    }
}
