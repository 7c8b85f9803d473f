//! Claims through the brokers: references are taken first, and what they lead to is claimed from the
//! ledger. Priorities whose broker is away are claimed from the ledger directly.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use windlass_core::store::{CLAIM_BYTES_MAX, ClaimParams, PrioritySet, Quota};
use windlass_core::{Claimed, Priority, Result};

use super::Shared;
use super::settled::Settled;
use super::take::{Haul, Manner};
use crate::claimed::ClaimedTasks;
use crate::postgres::brokered::{Given, Unused, Wanted, segments};
use crate::postgres::outbox::Reference;

/// How often a claim goes on after references that led nowhere.
const ROUNDS_MAX: usize = 4;
/// How long a claim waits for what others leave over: at first, at last if they do not get on, and all
/// in all. (A broker itself tells of no rest that is late.)
const REST_PAUSE_MIN: Duration = Duration::from_millis(1);
const REST_PAUSE_MAX: Duration = Duration::from_millis(16);
const REST_MAX: Duration = Duration::from_secs(3);

/// What a claim by references has brought.
pub(super) struct Landed {
    claimed: ClaimedTasks,
    /// Some reference led nowhere.
    has_missed: bool,
}

impl Shared {
    pub(super) async fn claim(&self, params: &ClaimParams) -> Result<ClaimedTasks> {
        if params.quotas.is_empty() {
            return self.claim_once(params).await;
        }
        let ClaimedTasks { mut tasks, mut is_cut_short } = ClaimedTasks::default();
        // A queue that is named again waits for its first turn: a reference is taken once.
        for segment in segments(&params.quotas) {
            let suspects = tasks.iter().filter(|task| task.is_suspect()).count();
            let part = ClaimParams {
                quotas: segment.into_iter().map(|at| params.quotas[at].clone()).collect(),
                limit: params.limit.saturating_sub(tasks.len()),
                suspects_at_most: params.suspects_at_most.saturating_sub(suspects),
                worker: params.worker.clone(),
            };
            if (part.limit == 0 && !tasks.is_empty()) || is_full(&tasks) {
                break;
            }
            match self.claim_once(&part).await {
                Ok(some) => {
                    tasks.extend(some.tasks);
                    is_cut_short |= some.is_cut_short;
                }
                // What was claimed before must not be lost with the rest.
                Err(error) if tasks.is_empty() => return Err(error),
                Err(error) => {
                    tracing::warn!(error = error.chain(), "a claim was cut short");
                    is_cut_short = true;
                    break;
                }
            }
        }
        Ok(ClaimedTasks { tasks, is_cut_short })
    }

    /// Claims from queues that are each named once.
    async fn claim_once(&self, params: &ClaimParams) -> Result<ClaimedTasks> {
        let turn = self.turns.begin(&params.worker);
        let manner = Manner { looks_back: turn.is_alone, is_patient: true };
        let mut haul = self.take(params, manner).await?;
        let (begun, mut pause) = (Instant::now(), REST_PAUSE_MIN);
        while haul.wanted.is_empty() && !haul.awaited.is_empty() {
            if begun.elapsed() > REST_MAX {
                break;
            }
            tokio::time::sleep(pause).await;
            let next = self.take(params, Manner { looks_back: false, ..manner }).await?;
            let is_same = next.awaited == haul.awaited;
            pause = if is_same { (pause * 2).min(REST_PAUSE_MAX) } else { REST_PAUSE_MIN };
            haul = next;
        }
        self.claim_haul(params, haul).await
    }

    /// Claims what was taken, and from the ledger what no broker can give.
    pub(super) async fn claim_haul(
        &self,
        params: &ClaimParams,
        haul: Haul,
    ) -> Result<ClaimedTasks> {
        let mut claimed = ClaimedTasks::default();
        if !haul.wanted.is_empty() {
            let claiming = self.ledger.claim_by(params, Some(&haul.wanted));
            let landed = self.receive(params, &haul, claiming.await).await?;
            claimed = self.fill(params, landed).await;
        }
        if haul.is_complete() {
            if claimed.tasks.is_empty() && (haul.is_unknown || params.quotas.is_empty()) {
                self.ledger.check_claimer(params.worker.clone()).await?;
            }
            return Ok(claimed);
        }
        let Some(rest) = rest_of(params, &claimed.tasks, &haul.direct) else { return Ok(claimed) };
        match self.ledger.claim_by(&rest, None).await {
            Ok(given) => {
                claimed.is_cut_short |= given.is_cut_short;
                add_in_order(params, &mut claimed.tasks, given.tasks);
            }
            // What was claimed before must not be lost with the rest.
            Err(error) if claimed.tasks.is_empty() => return Err(error),
            Err(error) => {
                tracing::warn!(error = error.chain(), "a claim was cut short");
                claimed.is_cut_short = true;
            }
        }
        Ok(claimed)
    }

    /// Goes on where references led nowhere and kept others from being taken.
    pub(super) async fn fill(&self, params: &ClaimParams, landed: Landed) -> ClaimedTasks {
        let Landed { mut claimed, mut has_missed } = landed;
        for _ in 0..ROUNDS_MAX {
            let rest = rest_of(params, &claimed.tasks, &Priority::DESCENDING);
            let Some(rest) = rest.filter(|_| has_missed) else { break };
            // What was claimed before must not wait for a broker that is late.
            let Ok(haul) = self.take(&rest, Manner::default()).await else { break };
            if haul.wanted.is_empty() {
                break;
            }
            let claiming = self.ledger.claim_by(&rest, Some(&haul.wanted));
            match self.receive(&rest, &haul, claiming.await).await {
                Ok(more) => {
                    claimed.is_cut_short |= more.claimed.is_cut_short;
                    add_in_order(params, &mut claimed.tasks, more.claimed.tasks);
                    has_missed = more.has_missed;
                }
                // What was claimed before must not be lost with the rest.
                Err(error) => {
                    tracing::warn!(error = error.chain(), "a claim was cut short");
                    claimed.is_cut_short = true;
                    break;
                }
            }
        }
        claimed
    }

    /// Takes over what the ledger has answered, and tells the brokers.
    pub(super) async fn receive(
        &self,
        params: &ClaimParams,
        haul: &Haul,
        answer: Result<Given>,
    ) -> Result<Landed> {
        let wanted = &haul.wanted;
        if haul.has_come {
            // Only now: nobody else should be busy while the ledger is asked.
            self.have_claimed_again(params);
        }
        let settled: Vec<(Settled, Reference)> = match &answer {
            // They are for others, who may have more luck.
            Err(_) => wanted.iter().map(|one| (Settled::Waits, one.reference)).collect(),
            Ok(given) => {
                let unused: HashMap<_, _> = given.unused.iter().copied().collect();
                let how = |one: &Wanted| match unused.get(&one.reference) {
                    None => Settled::Claimed,
                    Some(Unused::Gone) => Settled::Gone,
                    Some(Unused::Waits) => Settled::Waits,
                    Some(Unused::Paused) => Settled::Paused,
                };
                wanted.iter().map(|one| (how(one), one.reference)).collect()
            }
        };
        let used = settled.iter().filter(|(how, _)| *how == Settled::Claimed);
        let used: Vec<_> = used.map(|(_, reference)| *reference).collect();
        let tasks = answer.as_ref().map(|given| given.tasks.as_slice()).unwrap_or_default();
        self.holding.begin(&params.worker, tasks, used);
        for (one, (how, _)) in wanted.iter().zip(&settled) {
            if how.is_urgent() {
                self.wishes.note_put_back(&params.quotas[one.quota].queue);
            }
        }
        let has_missed = settled.iter().any(|(how, _)| *how == Settled::Gone);
        self.settle(params, settled).await;
        answer.map(|Given { tasks, is_cut_short, .. }| {
            let claimed = ClaimedTasks { tasks, is_cut_short };
            Landed { claimed, has_missed }
        })
    }

    /// Leaves references to others.
    pub(super) async fn put_back(&self, params: &ClaimParams, wanted: &[Wanted]) {
        let settled = wanted.iter().map(|one| (Settled::Waits, one.reference)).collect();
        self.settle(params, settled).await;
    }

    async fn settle(&self, params: &ClaimParams, settled: Vec<(Settled, Reference)>) {
        for (at, broker) in self.brokers.all().iter().enumerate() {
            let is_its = |one: &&(Settled, Reference)| self.brokers.number_of(one.1.lane) == at;
            let its = settled.iter().filter(is_its).copied().collect();
            broker.settle(&params.worker, its).await;
        }
    }
}

/// Adds what a later step of a claim has brought. The claim gives its tasks by quota and by priority, whichever step
/// brought them; those of one lane stay in the order in which they came.
fn add_in_order(params: &ClaimParams, tasks: &mut Vec<Claimed>, more: Vec<Claimed>) {
    if more.is_empty() {
        return;
    }
    tasks.extend(more);
    let quota = |task: &Claimed| params.quotas.iter().position(|quota| quota.queue == task.queue);
    tasks.sort_by_key(|task| (quota(task), std::cmp::Reverse(task.priority)));
}

/// True when a claim stops at its bound in bytes.
fn is_full(tasks: &[Claimed]) -> bool {
    tasks.iter().map(|task| task.payload.len()).sum::<usize>() >= CLAIM_BYTES_MAX
}

/// What is left of a claim for these priorities; nothing when there is nothing left.
fn rest_of(params: &ClaimParams, tasks: &[Claimed], direct: &[Priority]) -> Option<ClaimParams> {
    let limit = params.limit.checked_sub(tasks.len()).filter(|limit| *limit > 0)?;
    if is_full(tasks) {
        return None;
    }
    let suspects = tasks.iter().filter(|task| task.is_suspect()).count();
    let mut quotas = params.quotas.clone();
    for task in tasks {
        let is_its = |quota: &&mut Quota| {
            let is_wanted = quota.queue == task.queue && quota.priorities.contains(task.priority);
            is_wanted && quota.at_most > 0
        };
        if let Some(quota) = quotas.iter_mut().find(is_its) {
            quota.at_most -= 1;
        }
    }
    for quota in &mut quotas {
        let wanted: Vec<_> =
            quota.priorities.descending().filter(|one| direct.contains(one)).collect();
        quota.priorities = PrioritySet::of(&wanted);
    }
    Some(ClaimParams {
        quotas,
        limit,
        suspects_at_most: params.suspects_at_most.saturating_sub(suspects),
        worker: params.worker.clone(),
    })
}

#[cfg(test)]
mod tests {
    use windlass_core::{Epoch, Kind, QueueName, Spec, TaskId, Timestamp, WorkerId};

    use super::*;

    fn claimed(queue: &str, priority: Priority) -> Claimed {
        Claimed {
            id: TaskId::new("task"),
            epoch: Epoch(1),
            kind: Kind::stored("do"),
            queue: QueueName::stored(queue),
            priority,
            payload: Default::default(),
            attempts: 1,
            crashes: 0,
            spec: Spec {
                max_retries: 3,
                max_crashes: 3,
                timeout: Duration::from_secs(1),
                retention: Duration::from_secs(1),
                extras: Default::default(),
            },
            is_cancel_requested: false,
            created_at: Timestamp::default(),
            pending_at: Timestamp::default(),
            claimed_at: Timestamp::default(),
        }
    }

    #[test]
    fn a_later_step_of_a_claim_keeps_the_order_of_its_quotas() {
        use Priority::{Critical, High, Normal};
        let quotas = ["alpha", "beta"].map(|name| Quota::of(QueueName::stored(name), 9));
        let worker = WorkerId::new("worker");
        let params = ClaimParams { worker, quotas: quotas.into(), limit: 9, suspects_at_most: 0 };
        let mut tasks = vec![claimed("alpha", Normal), claimed("beta", Critical)];
        let more = vec![claimed("beta", Critical), claimed("alpha", High)];
        add_in_order(&params, &mut tasks, more);
        let order: Vec<_> = tasks.iter().map(|task| (task.queue.as_str(), task.priority)).collect();
        let expected = [("alpha", High), ("alpha", Normal), ("beta", Critical), ("beta", Critical)];
        assert_eq!(order, expected);
    }
}
