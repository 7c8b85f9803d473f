//! Claims on Redis Streams.

use std::collections::HashMap;

use futures_util::future::join_all;
use windlass_core::history::{Happening, Note};
use windlass_core::state::Step;
use windlass_core::store::{ClaimParams, Parts, Quota};
use windlass_core::{Claimed, Error, QueueName, Reason, Result, State, Timestamp, When, WorkerId};

use super::id::Id;
use super::large::PAYLOAD;
use super::moves::RunEnd;
use super::record::Record;
use super::row::{Row, Running};
use super::{AT_ONCE, Shared, scripts};
use crate::redis::reply::{Reply, next};
use crate::redis::script::Call;

/// What a claim knows of its worker's lease.
#[derive(Debug, Clone, Copy)]
pub(super) enum LeaseKnown {
    /// The script looks it up by itself: everything is on one server.
    ToServer,
    /// The fleet's keys may be on another: it was looked up just before. A queue refuses a worker that
    /// was declared lost since.
    Until(i64),
}

/// A claim of which a part is still to be asked for.
#[derive(Clone)]
pub(super) struct Asking {
    worker: WorkerId,
    quotas: Vec<Quota>,
    limit: usize,
    suspects: usize,
}

/// What one quota has given.
struct Share {
    quota: usize,
    rows: Vec<Row>,
}

/// What a script has found.
enum Found {
    Shares(Vec<Share>),
    /// The lease is over, as far as the caller knows it.
    Overdue,
    Gone,
}

impl Asking {
    pub(super) fn new(params: &ClaimParams) -> Self {
        let quotas = params.quotas.iter().filter(|quota| quota.at_most > 0).cloned().collect();
        Self {
            worker: params.worker.clone(),
            quotas,
            limit: params.limit,
            suspects: params.suspects_at_most,
        }
    }

    pub(super) fn is_served(&self) -> bool {
        self.limit == 0 || self.quotas.is_empty()
    }

    /// The queues of the next call: all of them, or on a Cluster those of the first.
    pub(super) fn queues(&self, is_cluster: bool) -> Vec<QueueName> {
        let mut queues: Vec<QueueName> = Vec::new();
        for quota in self.next_quotas(is_cluster) {
            if !queues.contains(&quota.queue) {
                queues.push(quota.queue.clone());
            }
        }
        queues
    }

    /// The calls to send one behind the other. After one that was full the next will likely be, too;
    /// with several quotas it takes the answer to know what is left of each.
    fn pieces(&self, is_going_well: bool) -> Vec<Self> {
        let mut pieces = vec![self.clone()];
        if is_going_well && self.quotas.len() == 1 {
            let wanted = self.limit.min(self.quotas[0].at_most);
            for at in (AT_ONCE..wanted).step_by(AT_ONCE) {
                let mut quotas = self.quotas.clone();
                quotas[0].at_most = wanted - at;
                pieces.push(Self { quotas, limit: wanted - at, suspects: 0, ..self.clone() });
            }
        }
        pieces
    }

    fn next_quotas(&self, is_cluster: bool) -> &[Quota] {
        match is_cluster {
            true => &self.quotas[..1],
            false => &self.quotas,
        }
    }

    /// Adds its arguments to a call whose keys begin with `queues`.
    pub(super) fn add_to(
        &self,
        call: &mut Call,
        queues: &[QueueName],
        lease: LeaseKnown,
        is_cluster: bool,
    ) {
        let quotas = self.next_quotas(is_cluster);
        call.add(self.worker.as_str());
        match lease {
            LeaseKnown::ToServer => call.add("fleet"),
            LeaseKnown::Until(until) => call.add(until),
        }
        call.add(self.limit.min(AT_ONCE));
        call.add(self.suspects);
        call.add(quotas.len());
        for quota in quotas {
            let at = queues.iter().position(|queue| *queue == quota.queue).unwrap_or_default();
            let priorities: String = quota
                .priorities
                .descending()
                .map(|priority| char::from(b'0' + priority.as_number()))
                .collect();
            call.add(at + 1);
            call.add(quota.at_most.min(AT_ONCE));
            call.add(priorities);
        }
    }

    fn read(&self, reply: Reply, now: Timestamp) -> Result<Found> {
        let strange = || crate::redis::error::strange("claim");
        let mut parts = reply.list()?;
        match next(&mut parts, "claim")?.number()? {
            1 => {}
            2 => return Ok(Found::Overdue),
            3 => return Ok(Found::Gone),
            _ => return Err(strange()),
        }
        let running = Running { worker: self.worker.clone(), claimed_at: now };
        let mut shares = Vec::new();
        for share in parts {
            let mut parts = share.list()?;
            let at =
                usize::try_from(next(&mut parts, "claim")?.number()?).map_err(|_| strange())?;
            let quota =
                at.checked_sub(1).filter(|at| *at < self.quotas.len()).ok_or_else(strange)?;
            let queue = &self.quotas[quota].queue;
            let mut rows = Vec::new();
            while let (Some(id), Some(record)) = (parts.next(), parts.next()) {
                let id = Id::from_stored(&id.bytes()?).ok_or_else(strange)?;
                let record = Record::read(&record.bytes()?)?;
                rows.push(Row::claimed(id, queue, record, running.clone()));
            }
            shares.push(Share { quota, rows });
        }
        Ok(Found::Shares(shares))
    }

    /// Takes off what was found; what came up short has nothing more to give.
    fn subtract(&mut self, shares: &[Share], is_cluster: bool) {
        let asked = if is_cluster { 1 } else { self.quotas.len() };
        let cut = self.limit.min(AT_ONCE);
        let rows = || shares.iter().flat_map(|share| &share.rows);
        let suspects = rows().filter(|row| row.record.head.lane.0 % 2 == 1).count();
        let count = rows().count();
        self.limit = self.limit.saturating_sub(count);
        self.suspects = self.suspects.saturating_sub(suspects);
        if count < cut {
            self.quotas.drain(..asked.min(self.quotas.len()));
            return;
        }
        for share in shares {
            // Gone, when a call before this one came up short.
            if let Some(quota) = self.quotas.get_mut(share.quota) {
                quota.at_most = quota.at_most.saturating_sub(share.rows.len());
            }
        }
        self.quotas.retain(|quota| quota.at_most > 0);
    }
}

impl Shared {
    pub(super) async fn claim(&self, params: &ClaimParams) -> Result<Vec<Claimed>> {
        let mut asking = Asking::new(params);
        self.learn(&params.quotas);
        if asking.is_served() {
            // Nothing is asked for, but a worker that is gone is told so all the same.
            return self.fleet.look_up_lease(&params.worker).await.map(|_| Vec::new());
        }
        let lease = self.lease_of(&params.worker).await?;
        self.claim_rest(&mut asking, lease, Vec::new()).await
    }

    /// Asks until a claim is served; `rows` are those that it has already.
    pub(super) async fn claim_rest(
        &self,
        asking: &mut Asking,
        lease: LeaseKnown,
        mut rows: Vec<Row>,
    ) -> Result<Vec<Claimed>> {
        let is_cluster = self.options().is_cluster();
        'asking: while !asking.is_served() {
            let pieces = asking.pieces(!rows.is_empty());
            let calls = pieces.iter().map(|piece| self.claim_piece(piece, lease));
            for found in join_all(calls).await {
                match found? {
                    Found::Shares(shares) => {
                        asking.subtract(&shares, is_cluster);
                        rows.extend(shares.into_iter().flat_map(|share| share.rows));
                    }
                    Found::Gone if rows.is_empty() => return Err(lost(&asking.worker)),
                    Found::Gone | Found::Overdue => break 'asking,
                }
            }
        }
        self.hand_over(rows).await
    }

    async fn claim_piece(&self, asking: &Asking, lease: LeaseKnown) -> Result<Found> {
        let is_cluster = self.options().is_cluster();
        let queues = asking.queues(is_cluster);
        let stems = self.claim_stems(&queues);
        let mut call = scripts::CLAIM.on(&stems).arg(self.options().told_time());
        asking.add_to(&mut call, &queues, lease, is_cluster);
        let mut reply = self.ask(call).await?.list()?;
        let now = next(&mut reply, "claim")?.time()?;
        asking.read(next(&mut reply, "claim")?, now)
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

    /// What is known of a worker's lease; an error for one that is known to be gone.
    pub(super) async fn lease_of(&self, worker: &WorkerId) -> Result<LeaseKnown> {
        if !self.options().is_cluster() {
            return Ok(LeaseKnown::ToServer);
        }
        Ok(LeaseKnown::Until(self.fleet.look_up_lease(worker).await?))
    }

    /// The keys of a call that claims: its queues and, where one call may name both, the fleet.
    pub(super) fn claim_stems(&self, queues: &[QueueName]) -> Vec<String> {
        let mut stems: Vec<_> = queues.iter().map(|queue| self.stem(queue)).collect();
        if !self.options().is_cluster() {
            stems.push(self.fleet.stem().to_owned());
        }
        stems
    }

    /// Takes a reply to a claim that came with an apply; `None` when it has to be asked again.
    pub(super) fn read_claim_behind(
        &self,
        reply: Reply,
        asking: &mut Asking,
        now: Timestamp,
    ) -> Result<Option<Vec<Row>>> {
        match asking.read(reply, now)? {
            Found::Shares(shares) => {
                asking.subtract(&shares, self.options().is_cluster());
                Ok(Some(shares.into_iter().flat_map(|share| share.rows).collect()))
            }
            Found::Overdue => Ok(None),
            Found::Gone => Err(lost(&asking.worker)),
        }
    }
}

fn lost(worker: &WorkerId) -> Error {
    Error::lease_lost(format!("claim for worker {worker}")).reason_is(Reason::WorkerLost)
}
