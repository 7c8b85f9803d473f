//! Claims through the brokers: references are taken first, and what they lead to is claimed from the
//! ledger. Priorities whose broker is away are claimed from the ledger directly.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use windlass_core::store::{ClaimParams, PrioritySet, Quota};
use windlass_core::{Claimed, Priority, QueueName, Result, WorkerId};

use super::Shared;
use super::broker::{Amount, Broker, Settled, Share, Taken};
use super::reference::size;
use crate::postgres::brokered::{Given, Unused, Wanted, segments};
use crate::postgres::outbox::Reference;
use crate::wakes::News;

/// How often a claim goes on after references that led nowhere.
const ROUNDS_MAX: usize = 4;
/// How long a claim waits for what others leave over: at first, and in the end.
const REST_PAUSE_MIN: Duration = Duration::from_millis(1);
const REST_PAUSE_MAX: Duration = Duration::from_millis(128);
/// How long a claim that has references waits for those of less urgent tasks.
const MOMENT: Duration = Duration::from_millis(25);

/// What a take has brought.
pub(super) struct Haul {
    pub(super) wanted: Vec<Wanted>,
    /// Some broker does not know the worker.
    is_unknown: bool,
    /// What others have taken may leave a rest.
    is_awaited: bool,
    /// The priorities whose brokers are away.
    direct: Vec<Priority>,
}

impl Haul {
    /// True when references are all that there is to claim by.
    pub(super) fn is_complete(&self) -> bool {
        self.direct.is_empty()
    }
}

/// What a claim by references has brought.
pub(super) struct Landed {
    tasks: Vec<Claimed>,
    /// Some reference led nowhere.
    has_missed: bool,
}

/// What is still wanted of a take.
struct Left {
    tasks: usize,
    suspects: usize,
    quotas: Vec<usize>,
}

impl Left {
    fn count(&mut self, quota: usize, reference: &Reference) {
        // What is beyond the quota goes back as a rest.
        let given = size(reference).min(self.quotas[quota]);
        self.tasks = self.tasks.saturating_sub(given);
        self.quotas[quota] -= given;
        self.suspects = self.suspects.saturating_sub(usize::from(reference.lane % 2 == 1));
    }
}

impl Shared {
    pub(super) async fn claim(&self, params: &ClaimParams) -> Result<Vec<Claimed>> {
        if params.quotas.is_empty() {
            return self.claim_once(params).await;
        }
        let mut tasks: Vec<Claimed> = Vec::new();
        // A queue that is named again waits for its first turn: a reference is taken once.
        for segment in segments(&params.quotas) {
            let suspects = tasks.iter().filter(|task| task.is_suspect()).count();
            let part = ClaimParams {
                quotas: segment.into_iter().map(|at| params.quotas[at].clone()).collect(),
                limit: params.limit.saturating_sub(tasks.len()),
                suspects_at_most: params.suspects_at_most.saturating_sub(suspects),
                worker: params.worker.clone(),
            };
            if part.limit == 0 && !tasks.is_empty() {
                break;
            }
            match self.claim_once(&part).await {
                Ok(some) => tasks.extend(some),
                // What was claimed before must not be lost with the rest.
                Err(error) if tasks.is_empty() => return Err(error),
                Err(error) => {
                    tracing::warn!(error = error.chain(), "a claim was cut short");
                    break;
                }
            }
        }
        Ok(tasks)
    }

    /// Claims from queues that are each named once.
    async fn claim_once(&self, params: &ClaimParams) -> Result<Vec<Claimed>> {
        let turn = self.turns.begin(&params.worker);
        let haul = self.take(params, turn.is_alone).await?;
        self.claim_haul(params, haul).await
    }

    /// Claims what was taken, and from the ledger what no broker can give.
    pub(super) async fn claim_haul(
        &self,
        params: &ClaimParams,
        mut haul: Haul,
    ) -> Result<Vec<Claimed>> {
        let mut pause = REST_PAUSE_MIN;
        while haul.wanted.is_empty() && haul.is_awaited && pause <= REST_PAUSE_MAX {
            tokio::time::sleep(pause).await;
            pause *= 2;
            haul = self.take(params, false).await?;
        }
        let mut tasks = Vec::new();
        if !haul.wanted.is_empty() {
            let claiming = self.ledger.claim_by(params.clone(), Some(haul.wanted.clone()));
            let landed = self.receive(params, &haul.wanted, claiming.await).await?;
            tasks = self.fill(params, landed).await;
        }
        if haul.is_complete() {
            if tasks.is_empty() && (haul.is_unknown || params.quotas.is_empty()) {
                self.ledger.check_claimer(params.worker.clone()).await?;
            }
            return Ok(tasks);
        }
        let Some(rest) = rest_of(params, &tasks, &haul.direct) else { return Ok(tasks) };
        match self.ledger.claim_by(rest, None).await {
            Ok(given) => tasks.extend(given.tasks),
            // What was claimed before must not be lost with the rest.
            Err(error) if tasks.is_empty() => return Err(error),
            Err(error) => tracing::warn!(error = error.chain(), "a claim was cut short"),
        }
        Ok(tasks)
    }

    /// Goes on where references led nowhere and kept others from being taken.
    pub(super) async fn fill(&self, params: &ClaimParams, landed: Landed) -> Vec<Claimed> {
        let Landed { mut tasks, mut has_missed } = landed;
        for _ in 0..ROUNDS_MAX {
            let rest = rest_of(params, &tasks, &Priority::DESCENDING);
            let Some(rest) = rest.filter(|_| has_missed) else { break };
            let Ok(haul) = self.take(&rest, false).await else { break };
            if haul.wanted.is_empty() {
                break;
            }
            let claiming = self.ledger.claim_by(rest.clone(), Some(haul.wanted.clone()));
            match self.receive(&rest, &haul.wanted, claiming.await).await {
                Ok(more) => {
                    tasks.extend(more.tasks);
                    has_missed = more.has_missed;
                }
                // What was claimed before must not be lost with the rest.
                Err(error) => {
                    tracing::warn!(error = error.chain(), "a claim was cut short");
                    break;
                }
            }
        }
        tasks
    }

    /// Takes references, in the order of claiming. Steps that follow each other at one broker are one call.
    pub(super) async fn take(&self, params: &ClaimParams, looks_back: bool) -> Result<Haul> {
        self.wishes.note(params);
        let queues = params.quotas.iter().map(|quota| quota.queue.clone()).collect();
        let numbers = self.ledger.queue_numbers(queues).await?;
        // Unless some broker says otherwise.
        let mut haul =
            Haul { wanted: Vec::new(), is_unknown: true, is_awaited: false, direct: Vec::new() };
        let mut unknown_to = 0;
        let mut left = Left {
            tasks: params.limit,
            suspects: params.suspects_at_most,
            quotas: params.quotas.iter().map(|quota| quota.at_most).collect(),
        };
        let mut asked = HashSet::new();
        for (at, mut shares) in self.steps(params, &numbers) {
            if left.tasks == 0 {
                break;
            }
            shares.iter_mut().for_each(|share| share.at_most = left.quotas[share.quota]);
            let broker = &self.brokers.all()[at];
            let worker = &params.worker;
            let looks_back = asked.insert(at) && looks_back;
            let wanted = Amount { tasks: left.tasks, suspects: left.suspects, looks_back };
            let taken = if broker.is_away() {
                None
            } else if haul.wanted.is_empty() {
                broker.take(worker, wanted, &shares).await.ok()
            } else {
                match take_in_a_moment(broker, worker, wanted, shares).await {
                    Some(taken) => taken.ok(),
                    None => {
                        // Claimed again soon; what comes meanwhile is in the worker's own list.
                        let ready = params.quotas.iter().map(|quota| quota.queue.clone());
                        let news = News { ready: ready.collect(), ..News::default() };
                        self.ledger.wakes().tell(news);
                        break;
                    }
                }
            };
            let Some(taken) = taken else {
                haul.direct.extend(
                    Priority::DESCENDING
                        .into_iter()
                        .filter(|one| self.brokers.number_for(*one) == at),
                );
                continue;
            };
            unknown_to += usize::from(!taken.is_known);
            haul.is_unknown = unknown_to > 0;
            haul.is_awaited |= taken.is_awaited;
            let mut strange = Vec::new();
            for (quota, reference) in taken.references {
                match quota.or_else(|| quota_of(params, &numbers, &reference)) {
                    Some(quota) => {
                        left.count(quota, &reference);
                        haul.wanted.push(Wanted { reference, quota });
                    }
                    None => strange.push((Settled::Waits, reference)),
                }
            }
            broker.settle(worker, strange).await;
        }
        Ok(haul)
    }

    /// Which shares to ask which broker for, in the order of claiming.
    fn steps(
        &self,
        params: &ClaimParams,
        numbers: &HashMap<QueueName, i32>,
    ) -> Vec<(usize, Vec<Share>)> {
        let mut steps: Vec<(usize, Vec<Share>)> = Vec::new();
        for (quota, wanted) in params.quotas.iter().enumerate() {
            let Some(queue) = numbers.get(&wanted.queue) else { continue };
            for at in 0..self.brokers.all().len() {
                let priorities = wanted.priorities.descending();
                let mine = priorities.filter(|one| self.brokers.number_for(*one) == at);
                let lanes: Vec<_> = mine
                    .map(|priority| i16::from(priority.as_number()) * 2)
                    // Suspects go first: few are allowed, so they hold up nobody.
                    .flat_map(|lane| [(*queue, lane + 1), (*queue, lane)])
                    .collect();
                if lanes.is_empty() {
                    continue;
                }
                let share = Share { quota, at_most: wanted.at_most, lanes };
                match steps.last_mut() {
                    Some((last, shares)) if *last == at => shares.push(share),
                    _ => steps.push((at, vec![share])),
                }
            }
        }
        steps
    }

    /// Takes over what the ledger has answered, and tells the brokers.
    pub(super) async fn receive(
        &self,
        params: &ClaimParams,
        wanted: &[Wanted],
        answer: Result<Given>,
    ) -> Result<Landed> {
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
            if matches!(how, Settled::Waits | Settled::Paused) {
                self.wishes.note_put_back(&params.quotas[one.quota].queue);
            }
        }
        let has_missed = settled.iter().any(|(how, _)| *how == Settled::Gone);
        self.settle(params, settled).await;
        answer.map(|given| Landed { tasks: given.tasks, has_missed })
    }

    async fn settle(&self, params: &ClaimParams, settled: Vec<(Settled, Reference)>) {
        for (at, broker) in self.brokers.all().iter().enumerate() {
            let is_its = |one: &&(Settled, Reference)| self.brokers.number_of(one.1.lane) == at;
            let its = settled.iter().filter(is_its).copied().collect();
            broker.settle(&params.worker, its).await;
        }
    }
}

/// Takes references, unless that lasts longer than those who have some already are to wait. It goes on all
/// the same: a broker that does not answer at all is noticed.
async fn take_in_a_moment(
    broker: &Arc<Broker>,
    worker: &WorkerId,
    wanted: Amount,
    shares: Vec<Share>,
) -> Option<Result<Taken>> {
    let (broker, worker) = (Arc::clone(broker), worker.clone());
    let taking = tokio::spawn(async move { broker.take(&worker, wanted, &shares).await });
    tokio::time::timeout(MOMENT, taking).await.ok()?.ok()
}

/// The quota for which a reference counts that a worker had already.
fn quota_of(
    params: &ClaimParams,
    numbers: &HashMap<QueueName, i32>,
    reference: &Reference,
) -> Option<usize> {
    let priority = Priority::from_number(i64::from(reference.lane / 2)).ok()?;
    params.quotas.iter().position(|quota| {
        numbers.get(&quota.queue) == Some(&reference.queue) && quota.priorities.contains(priority)
    })
}

/// What is left of a claim for these priorities; nothing when there is nothing left.
fn rest_of(params: &ClaimParams, tasks: &[Claimed], direct: &[Priority]) -> Option<ClaimParams> {
    let limit = params.limit.checked_sub(tasks.len()).filter(|limit| *limit > 0)?;
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
