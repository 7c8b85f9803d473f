//! Claims on asynq's keys.

use windlass_core::history::{Happening, Note};
use windlass_core::state::Step;
use windlass_core::store::{ClaimParams, Quota};
use windlass_core::task::is_suspect;
use windlass_core::{Claimed, Priority, QueueName, Result, State, Timestamp, When, WorkerId};

use super::moves::RunEnd;
use super::record::ClaimMark;
use super::row::{Given, Row};
use super::{Shared, damage, scripts};
use crate::claimed::ClaimedTasks;
use crate::redis::asking::{self, Answers, Asking, Claiming, LeaseKnown};
use crate::redis::fleet::Fleet;
use crate::redis::reply::next;
use crate::redis::script::{Call, Script};

impl Claiming for Shared {
    type Row = Row;

    fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    fn stem(&self, queue: &QueueName) -> String {
        self.stem(queue)
    }

    fn script(&self) -> &'static Script {
        &scripts::CLAIM
    }

    fn add_quota(_call: &mut Call, _quota: &Quota) {}

    fn read_rows(
        queue: &QueueName,
        worker: &WorkerId,
        now: Timestamp,
        mut parts: Answers,
    ) -> Result<Vec<Row>> {
        let number = next(&mut parts, "claim")?.number()?;
        if number < 0 {
            damage::log(queue, &next(&mut parts, "claim")?.text()?);
            return Ok(Vec::new());
        }
        let number = number.unsigned_abs();
        let mut rows = Vec::new();
        while let Some(key) = parts.next() {
            let key = key.text()?;
            let message = next(&mut parts, "claim")?.bytes()?.into();
            let own = next(&mut parts, "claim")?.bytes()?.into();
            let crashes = u32::try_from(next(&mut parts, "claim")?.number()?).unwrap_or(0);
            let is_cancel_requested = next(&mut parts, "claim")?.number()? == 1;
            let mark = ClaimMark {
                number,
                lease: None,
                claimed_at: now,
                since: next(&mut parts, "claim")?.text()?,
                worker: worker.clone(),
            };
            let given = Given { key, message, own, crashes, is_cancel_requested, mark };
            rows.push(Row::claimed(queue, given));
        }
        Ok(rows)
    }

    fn is_suspect(row: &Row) -> bool {
        is_suspect(row.crashes)
    }
}

/// All tasks here are of one priority.
pub(super) fn is_served(quota: &Quota) -> bool {
    quota.priorities.contains(Priority::Normal)
}

impl Shared {
    pub(super) async fn claim(&self, params: &ClaimParams) -> Result<ClaimedTasks> {
        let mut asking = Asking::new(params, is_served);
        if asking.is_served() {
            // Nothing is asked for, but a worker that is gone is told so all the same.
            return self.fleet.look_up_lease(&params.worker).await.map(|_| ClaimedTasks::default());
        }
        let lease = self.fleet.lease_of(&params.worker).await?;
        self.claim_rest(&mut asking, lease, Vec::new()).await
    }

    /// Asks until a claim is served; `rows` are those that it has already.
    pub(super) async fn claim_rest(
        &self,
        asking: &mut Asking,
        lease: LeaseKnown,
        rows: Vec<Row>,
    ) -> Result<ClaimedTasks> {
        let rows = asking::ask(self, asking, lease, rows).await?;
        Ok(asking.with(self.hand_over(rows).await?))
    }

    /// Makes claimed tasks of rows, and buries what cannot be run.
    async fn hand_over(&self, rows: Vec<Row>) -> Result<Vec<Claimed>> {
        let (readable, unreadable): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| row.is_readable);
        self.bury(unreadable).await?;
        let mut claimed = Vec::with_capacity(readable.len());
        for row in readable {
            let Some(mark) = row.claim.clone() else { continue };
            claimed.push(row.into_claimed(&mark));
            self.presence.began(&mark.worker, &claimed[claimed.len() - 1]);
        }
        Ok(claimed)
    }

    /// Puts tasks that nobody can run to the dead letters, while they are still held: one bad message
    /// stops nobody.
    async fn bury(&self, unreadable: Vec<Row>) -> Result<()> {
        for claimed in unreadable {
            let why = "its message cannot be read";
            tracing::error!(task = %claimed.id, queue = %claimed.queue, why, "a task is a dead letter now");
            let number = claimed.claim.map(|claim| claim.number);
            let (now, rows) = self.look(&claimed.queue, &[claimed.id]).await?;
            self.decide_at(now, rows, None, |row, now, _| {
                let held = row.claim.as_ref().map(|claim| claim.number);
                if !row.is_own_run() || held != number {
                    return None;
                }
                let state = State::DeadLetter;
                let step = Step {
                    state,
                    when: When::Now,
                    attempts: 0,
                    crashes: 0,
                    result: None,
                    note: Some(Note { what: Happening::Discarded, error: Some(why.into()) }),
                };
                Some(row.end_run(now, RunEnd { state, step, applied: None }, usize::MAX))
            })
            .await?;
        }
        Ok(())
    }
}
