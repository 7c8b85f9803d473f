//! A claim as it is asked for in calls of a bounded size, and what came of it: what both layouts have in common.

use std::collections::{HashMap, HashSet};

use futures_util::future::join_all;
use windlass_core::store::{CLAIM_BYTES_MAX, ClaimParams, Quota};
use windlass_core::{Claimed, Error, QueueName, Reason, Result, Timestamp, WorkerId};

use super::error::{strange, was_refused};
use super::fleet::Fleet;
use super::options::RedisOptions;
use super::reply::{Reply, next};
use super::script::Call;
use super::troubles::log_skipped;
use crate::claimed::ClaimedTasks;

/// Most tasks in one call of a script: more gains nothing, and a script holds up everybody.
pub(super) const AT_ONCE: usize = 200;

/// The parts of an answer as they are taken one after the other.
pub(super) type Answers = std::vec::IntoIter<Reply>;

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
    /// At how many bytes of payloads it stops.
    bytes_left: usize,
    /// A call had no answer: it may have leased tasks that are not known here.
    is_cut_short: bool,
}

/// What one quota has given.
pub(super) struct Share<R> {
    quota: usize,
    rows: Vec<R>,
}

/// What a script has found.
pub(super) enum Found<R> {
    /// What each quota gave, and how many bytes the large payloads have.
    Shares(Vec<Share<R>>, usize),
    /// The lease is over, as far as the caller knows it.
    Overdue,
    Gone,
}

/// What a layout has to do with claims.
pub(super) trait Claiming {
    /// A task that was claimed.
    type Row;

    fn fleet(&self) -> &Fleet;

    /// In front of a queue's keys.
    fn stem(&self, queue: &QueueName) -> String;

    /// The script that claims.
    fn script(&self) -> &'static super::script::Script;

    /// Adds to a call what it says of a quota beside its queue and its size.
    fn add_quota(call: &mut Call, quota: &Quota);

    /// Reads what a queue has given to a worker.
    fn read_rows(
        queue: &QueueName,
        worker: &WorkerId,
        now: Timestamp,
        parts: Answers,
    ) -> Result<Vec<Self::Row>>;

    /// True for a task that is likely to be the cause of crashes.
    fn is_suspect(row: &Self::Row) -> bool;

    /// The keys of a call that claims: its queues and, where one call may name both, the fleet.
    fn claim_stems(&self, queues: &[QueueName]) -> Vec<String> {
        let mut stems: Vec<_> = queues.iter().map(|queue| self.stem(queue)).collect();
        if !self.fleet().common.options.is_cluster() {
            stems.push(self.fleet().stem().to_owned());
        }
        stems
    }
}

impl Asking {
    pub(super) fn new(params: &ClaimParams, is_served: impl Fn(&Quota) -> bool) -> Self {
        let is_wanted = |quota: &&Quota| quota.at_most > 0 && is_served(quota);
        Self {
            worker: params.worker.clone(),
            quotas: params.quotas.iter().filter(is_wanted).cloned().collect(),
            limit: params.limit,
            suspects: params.suspects_at_most,
            bytes_left: CLAIM_BYTES_MAX,
            is_cut_short: false,
        }
    }

    /// What the claim has come to.
    pub(super) fn with(&self, tasks: Vec<Claimed>) -> ClaimedTasks {
        ClaimedTasks { tasks, is_cut_short: self.is_cut_short }
    }

    pub(super) fn is_served(&self) -> bool {
        self.limit == 0 || self.quotas.is_empty() || self.bytes_left == 0
    }

    /// The queues of the next call: all of them, or on a Cluster those of the first.
    pub(super) fn queues(&self, is_cluster: bool) -> Vec<QueueName> {
        let (mut queues, mut named) = (Vec::new(), HashSet::new());
        for quota in self.next_quotas(is_cluster) {
            if named.insert(&quota.queue) {
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
        // None knows what those in front of it bring: each has its share.
        let bytes_each = (self.bytes_left / pieces.len()).max(1);
        pieces.iter_mut().for_each(|piece| piece.bytes_left = bytes_each);
        pieces
    }

    fn next_quotas(&self, is_cluster: bool) -> &[Quota] {
        match is_cluster {
            true => &self.quotas[..1],
            false => &self.quotas,
        }
    }

    /// Adds its arguments to a call whose keys begin with `queues`.
    pub(super) fn add_to<L: Claiming>(
        &self,
        call: &mut Call,
        queues: &[QueueName],
        lease: LeaseKnown,
        options: &RedisOptions,
    ) {
        let (is_cluster, longest) = (options.is_cluster(), options.limits.payload_bytes_max);
        let quotas = self.next_quotas(is_cluster);
        call.add(self.worker.as_str());
        match lease {
            LeaseKnown::ToServer => call.add("fleet"),
            LeaseKnown::Until(until) => call.add(until),
        }
        call.add(self.limit.min(AT_ONCE));
        call.add(self.suspects);
        call.add(quotas.len());
        let numbers: HashMap<_, _> = queues.iter().zip(1_usize..).collect();
        for quota in quotas {
            call.add(numbers.get(&quota.queue).copied().unwrap_or(1));
            call.add(quota.at_most.min(AT_ONCE));
            L::add_quota(call, quota);
        }
        call.add(self.bytes_left);
        call.add(longest.max(1));
    }

    fn read<L: Claiming>(&self, reply: Reply, now: Timestamp) -> Result<Found<L::Row>> {
        let mut parts = reply.list()?;
        let bytes = match next(&mut parts, "claim")?.number()? {
            1 => Some(0),
            2 => return Ok(Found::Overdue),
            3 => return Ok(Found::Gone),
            more => more.checked_sub(4).and_then(|bytes| usize::try_from(bytes).ok()),
        };
        let bytes = bytes.ok_or_else(|| strange("claim"))?;
        let mut shares = Vec::new();
        for share in parts {
            let mut parts = share.list()?;
            let number = next(&mut parts, "claim")?.number()?;
            let at = usize::try_from(number.unsigned_abs()).unwrap_or(0);
            let quota = at.checked_sub(1).filter(|at| *at < self.quotas.len());
            let quota = quota.ok_or_else(|| strange("claim"))?;
            if number < 0 {
                let trouble = next(&mut parts, "claim")?.text()?;
                log_skipped(&self.quotas[quota].queue, &trouble);
                continue;
            }
            let rows = L::read_rows(&self.quotas[quota].queue, &self.worker, now, parts)?;
            shares.push(Share { quota, rows });
        }
        Ok(Found::Shares(shares, bytes))
    }

    /// Takes off what was found; what came up short has nothing more to give.
    fn subtract<L: Claiming>(&mut self, shares: &[Share<L::Row>], bytes: usize, is_cluster: bool) {
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        let asked = if is_cluster { 1 } else { self.quotas.len() };
        let cut = self.limit.min(AT_ONCE);
        let rows = || shares.iter().flat_map(|share| &share.rows);
        let suspects = rows().filter(|row| L::is_suspect(row)).count();
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

    /// Takes a reply to a claim that came with an apply; `None` when it has to be asked again.
    pub(super) fn read_behind<L: Claiming>(
        &mut self,
        reply: Reply,
        now: Timestamp,
        is_cluster: bool,
    ) -> Result<Option<Vec<L::Row>>> {
        match self.read::<L>(reply, now)? {
            Found::Shares(shares, bytes) => {
                self.subtract::<L>(&shares, bytes, is_cluster);
                Ok(Some(shares.into_iter().flat_map(|share| share.rows).collect()))
            }
            Found::Overdue => Ok(None),
            Found::Gone => Err(lost(&self.worker)),
        }
    }
}

impl Fleet {
    /// What is known of a worker's lease; an error for one that is known to be gone.
    pub(super) async fn lease_of(&self, worker: &WorkerId) -> Result<LeaseKnown> {
        if !self.common.options.is_cluster() {
            return Ok(LeaseKnown::ToServer);
        }
        Ok(LeaseKnown::Until(self.look_up_lease(worker).await?))
    }
}

/// Asks until a claim is served; `rows` are those that it has already. A call without an answer ends the claim:
/// what others have brought must not be lost with it.
pub(super) async fn ask<L: Claiming>(
    layout: &L,
    asking: &mut Asking,
    lease: LeaseKnown,
    mut rows: Vec<L::Row>,
) -> Result<Vec<L::Row>> {
    let is_cluster = layout.fleet().common.options.is_cluster();
    let (mut is_answered, mut refused) = (!rows.is_empty(), None);
    while !asking.is_served() {
        let queue = asking.quotas[0].queue.clone();
        let pieces = asking.pieces(!rows.is_empty());
        let mut is_refused = false;
        let calls = pieces.iter().map(|piece| ask_for_piece(layout, piece, lease));
        // One behind the other, without waiting for answers in between.
        let mut failure = None;
        for found in join_all(calls).await {
            match found {
                Ok(Found::Shares(shares, bytes)) => {
                    is_answered = true;
                    asking.subtract::<L>(&shares, bytes, is_cluster);
                    rows.extend(shares.into_iter().flat_map(|share| share.rows));
                }
                Ok(Found::Gone) if rows.is_empty() => failure = Some(lost(&asking.worker)),
                Ok(Found::Gone | Found::Overdue) => asking.quotas.clear(),
                // Its slot moves: the queue has given nothing, and the others are asked.
                Err(error) if is_cluster && was_refused(&error) => {
                    tracing::debug!(%queue, error = error.chain(), "a queue is skipped in a claim");
                    is_refused = true;
                    refused = Some(error);
                }
                Err(error) => failure = Some(error),
            }
        }
        if is_refused {
            asking.quotas.retain(|quota| quota.queue != queue);
        }
        match failure {
            Some(error) if rows.is_empty() => return Err(error),
            Some(error) => {
                tracing::warn!(error = error.chain(), "a claim was cut short");
                asking.is_cut_short = true;
                break;
            }
            None => {}
        }
    }
    match refused {
        Some(error) if !is_answered => Err(error),
        _ => Ok(rows),
    }
}

async fn ask_for_piece<L: Claiming>(
    layout: &L,
    asking: &Asking,
    lease: LeaseKnown,
) -> Result<Found<L::Row>> {
    let options = &layout.fleet().common.options;
    let queues = asking.queues(options.is_cluster());
    let stems = layout.claim_stems(&queues);
    let mut call = layout.script().on(&stems).brief().arg(options.told_time());
    asking.add_to::<L>(&mut call, &queues, lease, options);
    let mut reply = layout.fleet().ask(call).await?.list()?;
    let now = next(&mut reply, "claim")?.time()?;
    asking.read::<L>(next(&mut reply, "claim")?, now)
}

fn lost(worker: &WorkerId) -> Error {
    Error::lease_lost(format!("claim for worker {worker}")).reason_is(Reason::WorkerLost)
}
