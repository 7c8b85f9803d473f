//! Takes references from the brokers, in the order of claiming.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures_util::future::{Either, select};
use windlass_core::store::ClaimParams;
use windlass_core::{Priority, QueueName, Result, WorkerId};

use super::Shared;
use super::broker::{Amount, Broker, MOMENT, Share, Taken};
use super::reference::{Rest, size};
use super::settled::Settled;
use crate::postgres::brokered::Wanted;
use crate::postgres::outbox::Reference;
use crate::wakes::News;

/// What a take has brought.
#[derive(Default)]
pub(super) struct Haul {
    pub(super) wanted: Vec<Wanted>,
    /// Some broker does not know the worker, or none was asked.
    pub(super) is_unknown: bool,
    /// Rests of what others have taken: what comes behind them was left alone.
    pub(super) awaited: Vec<Rest>,
    /// The priorities whose brokers are away.
    pub(super) direct: Vec<Priority>,
    /// It came while the worker waited, and no list was looked at: there may be more.
    pub(super) has_come: bool,
}

impl Haul {
    /// True when references are all that there is to claim by.
    pub(super) fn is_complete(&self) -> bool {
        self.direct.is_empty()
    }

    /// True when there is something to claim, and by references alone.
    pub(super) fn leads_somewhere(&self) -> bool {
        self.is_complete() && !self.wanted.is_empty()
    }
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

/// Some shares of one broker, next to each other in the order of claiming.
struct Step {
    /// The number of the broker.
    broker: usize,
    shares: Vec<Share>,
}

/// A take under way.
struct Taking<'t> {
    params: &'t ClaimParams,
    numbers: &'t HashMap<QueueName, i32>,
    steps: Vec<Step>,
    left: Left,
    haul: Haul,
    /// Brokers that have been asked, and those that have nothing more for this claim.
    asked: HashSet<usize>,
    exhausted: HashSet<usize>,
    /// Queues of which nothing more is to be taken: a rest goes before it. And whether that is so of all.
    barred: HashSet<i32>,
    is_over: bool,
    manner: Manner,
}

/// How references are taken.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Manner {
    /// What is in the worker's list since an answer was lost comes first.
    pub(super) looks_back: bool,
    /// Nobody waits for anything else: a broker that is late may take until it is given up.
    pub(super) is_patient: bool,
}

/// What a broker said when it was asked.
enum Told {
    Taken(Taken),
    /// It is away.
    Away,
    /// Its answer is late, and there is something else to go on with.
    Late,
}

impl Shared {
    /// Takes references, in the order of claiming. Steps that follow each other at one broker are one call.
    pub(super) async fn take(&self, params: &ClaimParams, manner: Manner) -> Result<Haul> {
        self.wishes.note(params);
        let taking = self.take_in_steps(params, manner);
        match self.ledger.hand_out_rests() {
            Some(handing) => take_behind(handing, taking).await,
            None => taking.await,
        }
    }

    async fn take_in_steps(&self, params: &ClaimParams, manner: Manner) -> Result<Haul> {
        let queues = params.quotas.iter().map(|quota| quota.queue.clone()).collect();
        let numbers = self.ledger.queue_numbers(queues).await?;
        if let Some(haul) = self.arrived(params, &numbers) {
            return Ok(haul);
        }
        let mut taking = Taking {
            params,
            numbers: &numbers,
            steps: self.steps(params, &numbers),
            left: Left {
                tasks: params.limit,
                suspects: params.suspects_at_most,
                quotas: params.quotas.iter().map(|quota| quota.at_most).collect(),
            },
            haul: Haul::default(),
            asked: HashSet::new(),
            exhausted: HashSet::new(),
            barred: HashSet::new(),
            is_over: false,
            manner,
        };
        for number in 0..taking.steps.len() {
            let at = taking.steps[number].broker;
            if taking.left.tasks == 0 || taking.is_over {
                break;
            }
            if taking.exhausted.contains(&at) || !taking.may_bring(number) {
                continue;
            }
            match self.take_step(&mut taking, number).await {
                Told::Taken(taken) => self.take_over(&mut taking, at, taken).await,
                Told::Away => {
                    taking.exhausted.insert(at);
                    let mut its = Priority::DESCENDING.to_vec();
                    its.retain(|one| self.brokers.number_for(*one) == at);
                    taking.haul.direct.extend(its);
                }
                Told::Late => {
                    // What comes meanwhile is in the worker's own list.
                    self.have_claimed_again(params);
                    break;
                }
            }
        }
        let mut haul = taking.haul;
        haul.is_unknown |= taking.asked.is_empty();
        Ok(haul)
    }

    /// Has whoever claims look again at once.
    pub(super) fn have_claimed_again(&self, params: &ClaimParams) {
        let ready = params.quotas.iter().map(|quota| quota.queue.clone());
        self.ledger.wakes().tell(News { ready: ready.collect(), ..News::default() });
    }

    /// What has come to the worker while it waited, if the claim has room for it. Brokers are not asked.
    fn arrived(&self, params: &ClaimParams, numbers: &HashMap<QueueName, i32>) -> Option<Haul> {
        let mut arrived = self.brokers.all().iter().map(|one| one.arrivals().take(&params.worker));
        let urgent = arrived.next()?;
        // What the broker of urgent tasks has goes before what another has brought: both are asked.
        if arrived.flatten().count() > 0 {
            return None;
        }
        let mut room: Vec<_> = params.quotas.iter().map(|quota| quota.at_most).collect();
        let (mut left, mut wanted) = (params.limit, Vec::new());
        for reference in urgent {
            let quota = quota_of(params, numbers, &reference);
            // What does not fit is found by a take, with the others: it may be more urgent than they are.
            let quota = quota.filter(|at| size(&reference) <= left.min(room[*at]))?;
            left -= size(&reference);
            room[quota] -= size(&reference);
            wanted.push(Wanted { reference, quota });
        }
        (!wanted.is_empty()).then(|| Haul { wanted, has_come: true, ..Haul::default() })
    }

    /// Asks a broker for its shares of a step, and whether there is something in the later ones.
    async fn take_step(&self, taking: &mut Taking<'_>, number: usize) -> Told {
        let at = taking.steps[number].broker;
        let broker = &self.brokers.all()[at];
        if broker.is_away() {
            return Told::Away;
        }
        let (wanted, shares) = taking.wish(at, number);
        let worker = &taking.params.worker;
        // Nobody is more urgent than the first.
        if at == 0 {
            return told(broker.take(worker, wanted, &shares).await);
        }
        let mut asking = ask_apart(broker, worker, wanted, shares);
        loop {
            if let Ok(answer) = tokio::time::timeout(MOMENT, &mut asking).await {
                return answer.map_or(Told::Away, told);
            }
            if taking.haul.wanted.is_empty() {
                self.take_urgent(taking, at).await;
            }
            if !taking.haul.wanted.is_empty() || !taking.manner.is_patient {
                return Told::Late;
            }
        }
    }

    /// Asks the more urgent brokers once more.
    async fn take_urgent(&self, taking: &mut Taking<'_>, than: usize) {
        for at in 0..than {
            let first = taking.steps.iter().position(|step| step.broker == at);
            let (Some(first), broker) = (first, &self.brokers.all()[at]) else { continue };
            if broker.is_away() {
                continue;
            }
            let (wanted, mut shares) = taking.wish(at, first);
            for share in &mut shares {
                share.at_most = taking.left.quotas[share.quota];
            }
            if let Ok(taken) = broker.take(&taking.params.worker, wanted, &shares).await {
                self.take_over(taking, at, taken).await;
            }
        }
    }

    /// Takes over what a broker has given.
    async fn take_over(&self, taking: &mut Taking<'_>, at: usize, taken: Taken) {
        taking.haul.is_unknown |= !taken.is_known;
        taking.is_over |= taken.is_over;
        taking.barred.extend(taken.awaited.iter().filter_map(Rest::queue));
        taking.haul.awaited.extend(taken.awaited);
        if !taken.has_more {
            taking.exhausted.insert(at);
        }
        let mut strange = Vec::new();
        for (quota, reference) in taken.references {
            // Nobody else here need go for it.
            self.brokers.all()[at].arrivals().forget(&taking.params.worker, &reference);
            match quota.or_else(|| quota_of(taking.params, taking.numbers, &reference)) {
                Some(quota) => {
                    taking.left.count(quota, &reference);
                    taking.haul.wanted.push(Wanted { reference, quota });
                }
                None => strange.push((Settled::Waits, reference)),
            }
        }
        self.brokers.all()[at].settle(&taking.params.worker, strange).await;
    }

    /// Which shares to ask which broker for, in the order of claiming.
    fn steps(&self, params: &ClaimParams, numbers: &HashMap<QueueName, i32>) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
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
                    Some(step) if step.broker == at => step.shares.push(share),
                    _ => steps.push(Step { broker: at, shares: vec![share] }),
                }
            }
        }
        steps
    }
}

impl Taking<'_> {
    /// False where a rest goes before a share.
    fn is_open(&self, share: &Share) -> bool {
        !share.lanes.iter().any(|(queue, _)| self.barred.contains(queue))
    }

    /// False where rests go before all shares of a step.
    fn may_bring(&self, number: usize) -> bool {
        self.steps[number].shares.iter().any(|share| self.is_open(share))
    }

    /// What to ask a broker for at a step: the shares of the step, and those of later ones with nothing
    /// to be taken, so that it tells whether they are worth a call of their own.
    fn wish(&mut self, at: usize, number: usize) -> (Amount, Vec<Share>) {
        let looks_back = self.asked.insert(at) && self.manner.looks_back;
        let (tasks, suspects) = (self.left.tasks, self.left.suspects);
        let mut shares = Vec::new();
        for (later, step) in self.steps.iter().enumerate().skip(number) {
            let is_its = |share: &&Share| step.broker == at && self.is_open(share);
            let its = step.shares.iter().filter(is_its).cloned();
            shares.extend(its.map(|share| Share {
                at_most: if later == number { self.left.quotas[share.quota] } else { 0 },
                ..share
            }));
        }
        (Amount { tasks, suspects, looks_back }, shares)
    }
}

/// Takes behind what was left over: one after the other on the same connection, without waiting. Who has
/// what it wants does not wait for a broker that is slow to take the rest.
async fn take_behind<T>(
    handing: impl Future<Output = ()> + Send + 'static,
    taking: impl Future<Output = T>,
) -> T {
    match select(Box::pin(handing), std::pin::pin!(taking)).await {
        Either::Left(((), taking)) => taking.await,
        Either::Right((taken, handing)) => {
            tokio::spawn(handing);
            taken
        }
    }
}

/// Asks a broker apart from the caller: a call that nobody waits for any more goes on all the same, so
/// that a broker that does not answer at all is noticed.
fn ask_apart(
    broker: &Arc<Broker>,
    worker: &WorkerId,
    wanted: Amount,
    shares: Vec<Share>,
) -> tokio::task::JoinHandle<Result<Taken>> {
    let (broker, worker) = (Arc::clone(broker), worker.clone());
    tokio::spawn(async move { broker.take(&worker, wanted, &shares).await })
}

fn told(answer: Result<Taken>) -> Told {
    answer.map_or(Told::Away, Told::Taken)
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

#[cfg(test)]
mod tests {
    use std::future::ready;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_claim_does_not_wait_for_a_broker_that_is_slow_to_take_what_was_left_over() {
        let (answer, answered) = oneshot::channel::<()>();
        let (tell, told) = oneshot::channel();
        let handing = async move {
            answered.await.unwrap();
            tell.send(()).unwrap();
        };
        assert_eq!(take_behind(handing, ready(7)).await, 7);
        answer.send(()).unwrap();
        told.await.expect("the rest is handed out all the same");
    }

    #[tokio::test]
    async fn what_was_left_over_is_sent_before_the_next_claim_asks() {
        let (tell, told) = oneshot::channel();
        let handing = async move { tell.send(()).unwrap() };
        let taking = async { told.await.is_ok() };
        assert!(take_behind(handing, taking).await);
    }
}
