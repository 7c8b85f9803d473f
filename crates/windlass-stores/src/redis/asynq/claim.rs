//! Claims on asynq's keys.

use windlass_core::history::{Happening, Note};
use windlass_core::state::Step;
use windlass_core::store::{ClaimParams, Quota};
use windlass_core::task::is_suspect;
use windlass_core::{
    Claimed, Error, Priority, QueueName, Reason, Result, State, Timestamp, When, WorkerId,
};

use super::moves::RunEnd;
use super::record::ClaimMark;
use super::row::{Given, Row};
use super::{AT_ONCE, Shared, scripts};
use crate::redis::error::strange;
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
        // All tasks here are of one priority.
        let is_served =
            |quota: &&Quota| quota.at_most > 0 && quota.priorities.contains(Priority::Normal);
        Self {
            worker: params.worker.clone(),
            quotas: params.quotas.iter().filter(is_served).cloned().collect(),
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
            call.add(at + 1);
            call.add(quota.at_most.min(AT_ONCE));
        }
    }

    fn read(&self, reply: Reply, now: Timestamp) -> Result<Found> {
        let mut parts = reply.list()?;
        match next(&mut parts, "claim")?.number()? {
            1 => {}
            2 => return Ok(Found::Overdue),
            3 => return Ok(Found::Gone),
            _ => return Err(strange("claim")),
        }
        let mut shares = Vec::new();
        for share in parts {
            let mut parts = share.list()?;
            let at = usize::try_from(next(&mut parts, "claim")?.number()?).unwrap_or(0);
            let quota = at.checked_sub(1).filter(|at| *at < self.quotas.len());
            let quota = quota.ok_or_else(|| strange("claim"))?;
            let number = next(&mut parts, "claim")?.number()?.unsigned_abs();
            let queue = &self.quotas[quota].queue;
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
                    worker: self.worker.clone(),
                };
                let given = Given { key, message, own, crashes, is_cancel_requested, mark };
                rows.push(Row::claimed(queue, given));
            }
            shares.push(Share { quota, rows });
        }
        Ok(Found::Shares(shares))
    }

    /// Takes off what was found; what came up short has nothing more to give.
    fn subtract(&mut self, shares: &[Share], is_cluster: bool) {
        let asked = self.next_quotas(is_cluster).len();
        let cut = self.limit.min(AT_ONCE);
        let rows = || shares.iter().flat_map(|share| &share.rows);
        let suspects = rows().filter(|row| is_suspect(row.crashes)).count();
        let count = rows().count();
        self.limit = self.limit.saturating_sub(count);
        self.suspects = self.suspects.saturating_sub(suspects);
        if count < cut {
            self.quotas.drain(..asked);
            return;
        }
        for share in shares {
            let quota = &mut self.quotas[share.quota];
            quota.at_most = quota.at_most.saturating_sub(share.rows.len());
        }
        self.quotas.retain(|quota| quota.at_most > 0);
    }
}

impl Shared {
    pub(super) async fn claim(&self, params: &ClaimParams) -> Result<Vec<Claimed>> {
        let mut asking = Asking::new(params);
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
        while !asking.is_served() {
            let queues = asking.queues(is_cluster);
            let stems = self.claim_stems(&queues);
            let mut call = scripts::CLAIM.on(&stems).arg(self.options().told_time());
            asking.add_to(&mut call, &queues, lease, is_cluster);
            let mut reply = self.ask(call).await?.list()?;
            let now = next(&mut reply, "claim")?.time()?;
            match asking.read(next(&mut reply, "claim")?, now)? {
                Found::Shares(shares) => {
                    asking.subtract(&shares, is_cluster);
                    rows.extend(shares.into_iter().flat_map(|share| share.rows));
                }
                Found::Gone if rows.is_empty() => return Err(lost(&asking.worker)),
                Found::Gone | Found::Overdue => break,
            }
        }
        self.hand_over(rows).await
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
