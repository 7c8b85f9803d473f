//! Claims on Redis Streams.

use std::collections::HashMap;

use windlass_core::history::{Happening, Note};
use windlass_core::state::Step;
use windlass_core::store::{ClaimParams, Parts, Quota};
use windlass_core::{Claimed, QueueName, Result, State, Timestamp, When, WorkerId};

use super::id::Id;
use super::large::PAYLOAD;
use super::moves::RunEnd;
use super::record::Record;
use super::row::{Row, Running};
use super::{Shared, scripts};
use crate::claimed::ClaimedTasks;
use crate::redis::asking::{self, Answers, Asking, Claiming, LeaseKnown};
use crate::redis::error::strange;
use crate::redis::fleet::Fleet;
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

    fn add_quota(call: &mut Call, quota: &Quota) {
        let priorities: String = quota
            .priorities
            .descending()
            .map(|priority| char::from(b'0' + priority.as_number()))
            .collect();
        call.add(priorities);
    }

    fn read_rows(
        queue: &QueueName,
        worker: &WorkerId,
        now: Timestamp,
        mut parts: Answers,
    ) -> Result<Vec<Row>> {
        let running = Running { worker: worker.clone(), claimed_at: now };
        let mut rows = Vec::new();
        while let (Some(id), Some(record)) = (parts.next(), parts.next()) {
            let id = Id::from_stored(&id.bytes()?).ok_or_else(|| strange("claim"))?;
            let record = Record::read(&record.bytes()?)?;
            rows.push(Row::claimed(id, queue, record, running.clone()));
        }
        Ok(rows)
    }

    fn is_suspect(row: &Row) -> bool {
        row.record.head.lane.0 % 2 == 1
    }
}

impl Shared {
    pub(super) async fn claim(&self, params: &ClaimParams) -> Result<ClaimedTasks> {
        let mut asking = Asking::new(params, |_| true);
        self.learn(&params.quotas);
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

    /// Makes claimed tasks of rows: fetches large payloads, and buries what cannot be run.
    pub(super) async fn hand_over(&self, rows: Vec<Row>) -> Result<Vec<Claimed>> {
        let (readable, unreadable): (Vec<_>, Vec<_>) = rows.into_iter().partition(Row::is_readable);
        self.bury(unreadable, "its record cannot be read").await?;
        let only_payload = Parts { payload: true, ..Parts::NONE };
        let mut payloads = self.large_values_of(&readable, only_payload).await?;
        let (mut claimed, mut without) = (Vec::with_capacity(readable.len()), Vec::new());
        for row in readable {
            let payload = payloads.remove(&(row.id, PAYLOAD));
            if payload.is_none() && row.has_large(only_payload) {
                without.push(row);
                continue;
            }
            let (Some(running), Some(epoch)) = (row.running.clone(), row.epoch()) else { continue };
            let mut task = row.into_claimed(&running, epoch);
            if let Some(payload) = payload {
                task.payload = payload;
            }
            claimed.push(task);
        }
        self.bury(without, "its payload is gone").await?;
        Ok(claimed)
    }

    /// Puts tasks that nobody can run to the dead letters, while they are still held: one bad record
    /// stops nobody.
    async fn bury(&self, rows: Vec<Row>, why: &str) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        for row in &rows {
            tracing::error!(task = %row.task_id(), why, "a task is a dead letter now");
        }
        let held: HashMap<_, _> = rows.iter().map(|row| (row.id, row.record.entry)).collect();
        self.decide(rows, None, |row, now, _| {
            row.running.as_ref().filter(|_| held[&row.id] == row.record.entry)?;
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
        .await
        .map(drop)
    }
}
