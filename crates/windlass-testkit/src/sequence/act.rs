//! The calls that need more than a line: made from a step, done to both sides, compared.

use std::time::Duration;

use windlass_core::dice::Dice;
use windlass_core::retry::Backoff;
use windlass_core::state::finish;
use windlass_core::store::{
    Applied, ApplyParams, Beat, Bid, Claim, ClaimParams, Duty, HeldLeases, Leadership, PrioritySet,
    ProgressReport, Quota, Refusal, Reservation, WorkerCard,
};
use windlass_core::unique::{Unique, UniqueScope};
use windlass_core::{
    Claimed, Ending, Lease, NewTask, Priority, Result, Store, TaskId, Transition, When, WorkerId,
};

use super::side::{Agreed, Pair, Sides, TERM_LENGTH, alike, same};
use super::step::{Ask, KINDS, Pick, QUEUES, Sign, Wish};
use crate::draft::{draft, queue};

impl Sides {
    pub(super) async fn make(&mut self, wish: Wish) -> NewTask {
        let name = QUEUES[wish.queue];
        // Keys that a store cannot keep over all queues are told apart by queue beforehand.
        let key = |key: &str| match self.capabilities.unique_scope {
            UniqueScope::Kind => key.to_owned(),
            UniqueScope::QueueAndKind => format!("{name}-{key}"),
        };
        let unique = wish.unique.map(|(name, hold, on_conflict)| Unique {
            key: name.map(key),
            hold,
            on_conflict,
        });
        let when = wish.when.map_or(When::Now, |delay| When::After(self.span(delay)));
        // What is gone at once cannot be compared.
        let least = Duration::from_millis(u64::from(self.capabilities.forgets_at_once));
        let mut draft = draft()
            .queue(name)
            .kind(KINDS[wish.kind])
            .payload(wish.payload)
            .when(when)
            .max_retries(wish.max_retries)
            .max_crashes(wish.max_crashes)
            .retention(wish.retention.max(least));
        if self.capabilities.has_priorities {
            draft = draft.priority(wish.priority);
        }
        if wish.is_tagged {
            draft = draft.tag("blue");
        }
        let idempotency_key = wish.idempotency.map(key);
        let wanted = Reservation { queue: draft.queue_name().clone(), count: 1 };
        let id = self.store().reserve(vec![wanted]).await.unwrap().remove(0);
        NewTask { idempotency_key, unique, ..draft.with_id(id) }
    }

    pub(super) async fn insert(&mut self, tasks: Vec<NewTask>) -> Agreed {
        let subject = self.store().insert(tasks.clone()).await;
        let answers = alike("insert", subject, self.oracle.insert(tasks).await)?;
        let told = |answers: &[_]| -> Vec<String> {
            answers.iter().map(|answer| format!("{answer:?}")).collect()
        };
        answers.map_or(Ok(()), |(subject, oracle)| same("insert", told(&subject), told(&oracle)))
    }

    pub(super) async fn beat(&mut self, sign: Sign) -> Agreed {
        let worker = self.workers[sign.worker].clone();
        let own: Vec<_> = self.runs.iter().filter(|run| run.worker == worker).collect();
        let last = own.len().saturating_sub(8);
        let named = |bits: u8| {
            let bit = move |at: usize| bits & (1 << at) != 0;
            own[last..].iter().enumerate().filter(move |(at, _)| bit(*at))
        };
        let held = |side: fn(&Pair) -> Lease| {
            sign.held.map(|(bits, older_than)| HeldLeases {
                leases: named(bits).map(|(_, run)| side(run)).collect(),
                older_than,
            })
        };
        let progress = |side: fn(&Pair) -> Lease| {
            let run = sign.progress.as_ref().and_then(|pick| pick.of(self.runs.len()));
            run.map(|at| ProgressReport {
                lease: side(&self.runs[at]),
                fraction: 0.5,
                note: format!("half of {at}"),
            })
        };
        let beat = |side: fn(&Pair) -> Lease| Beat {
            worker: worker.clone(),
            card: WorkerCard {
                queues: sign.serves.iter().map(|number| queue(QUEUES[*number])).collect(),
                slots: u32::from(sign.held.is_some()),
                ..WorkerCard::default()
            },
            lease: sign.lease,
            held: held(side),
            progress: progress(side).into_iter().collect(),
        };
        let (to_subject, to_oracle) =
            (beat(|run| run.subject.lease()), beat(|run| run.oracle.lease()));
        let subject = self.store().beat(to_subject.clone()).await;
        let Some((subject, oracle)) = alike("beat", subject, self.oracle.beat(to_oracle).await)?
        else {
            let again = self.store().beat(to_subject).await;
            self.renew_worker(sign.worker);
            return same("a refused beat, repeated", again.is_err(), true);
        };
        let sorted = |mut ids: Vec<TaskId>| {
            ids.sort();
            ids
        };
        let leases = |leases: Vec<Lease>| {
            let mut leases: Vec<_> = leases.into_iter().map(|l| (l.task, l.epoch)).collect();
            leases.sort();
            leases
        };
        let translated =
            |lease: Lease| Lease { epoch: self.translate(&lease.task, lease.epoch), ..lease };
        let ours = |told: Vec<Lease>| leases(told.into_iter().map(translated).collect());
        same("the order", subject.order, oracle.order)?;
        same("the time", subject.now, oracle.now)?;
        same("paused queues", subject.paused_queues, oracle.paused_queues)?;
        same("cancels", ours(subject.cancels), leases(oracle.cancels))?;
        same("lost leases", ours(subject.lost), leases(oracle.lost))?;
        let back = (sorted(subject.given_back), sorted(oracle.given_back));
        same("what was given back", back.0, back.1)
    }

    pub(super) fn claim_params(&self, ask: &Ask) -> ClaimParams {
        let quota = |(number, at_most, priorities): &(usize, usize, Vec<Priority>)| Quota {
            queue: queue(QUEUES[*number]),
            at_most: *at_most,
            priorities: match self.capabilities.has_priorities {
                true => PrioritySet::of(priorities),
                false => PrioritySet::ALL,
            },
        };
        ClaimParams {
            worker: self.workers[ask.worker].clone(),
            quotas: ask.quotas.iter().map(quota).collect(),
            limit: ask.limit,
            suspects_at_most: ask.suspects_at_most,
        }
    }

    /// Has the oracle judge the subject's claim and make the same.
    pub(super) fn judge_claim(
        &mut self,
        slot: usize,
        params: ClaimParams,
        answer: Result<Claim>,
    ) -> Agreed {
        let worker = params.worker.clone();
        let chosen: Vec<_> = match &answer {
            Ok(claim) => claim.tasks.iter().map(|task| task.id.clone()).collect(),
            Err(_) => Vec::new(),
        };
        let oracle = self.oracle.claim_as(params, &chosen);
        let claims = alike(&format!("a claim that gave {chosen:?}"), answer, oracle)?;
        let Some((subject, oracle)) = claims else {
            self.renew_worker(slot);
            return Ok(());
        };
        same("tasks of a claim", subject.tasks.len(), oracle.tasks.len())?;
        for (subject, oracle) in subject.tasks.into_iter().zip(oracle.tasks) {
            let last = self.last_epochs.insert(subject.id.clone(), subject.epoch);
            if last.is_some_and(|last| last >= subject.epoch) {
                return Err(format!("an epoch came after {last:?}: {subject:?}"));
            }
            let key = (subject.id.clone(), subject.epoch);
            self.epochs.insert(key, oracle.epoch);
            // Work that is given back stands where it stood, or has become pending anew.
            let since = subject.pending_at;
            if since > subject.claimed_at || since < oracle.created_at {
                return Err(format!("pending since {since}: {subject:?}"));
            }
            let (epoch, pending_at) = (oracle.epoch, oracle.pending_at);
            let translated = Claimed { epoch, pending_at, ..subject.clone() };
            same("a claimed task", &translated, &oracle)?;
            self.runs.push(Pair { worker: worker.clone(), subject, oracle });
        }
        Ok(())
    }

    pub(super) async fn apply(
        &mut self,
        endings: Vec<(Pick, Ending, Option<Duration>)>,
        then_claim: Option<Ask>,
    ) -> Agreed {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let mut worker = self.workers[0].clone();
        for (pick, ending, took) in endings {
            let Some(at) = pick.of(self.runs.len()) else {
                continue;
            };
            let run = &self.runs[at];
            worker = run.worker.clone();
            let decide = |task: &Claimed| -> Transition {
                let backoff = Backoff::Fixed { initial: Duration::from_secs(1), jitter: 0.0 };
                let mut dice = Dice::seeded(at as u64);
                let mut decided = finish(task, ending.clone(), &backoff, &mut dice);
                decided.next.when = self.expressible(decided.next.when);
                Transition { took, ..decided }
            };
            ours.push(decide(&run.subject));
            theirs.push(decide(&run.oracle));
        }
        let leases: Vec<_> = ours.iter().map(|t| t.lease.clone()).collect();
        let params = then_claim.as_ref().map(|ask| self.claim_params(ask));
        let to_subject =
            ApplyParams { worker: worker.clone(), transitions: ours, then_claim: params.clone() };
        let to_oracle = ApplyParams { worker, transitions: theirs, then_claim: None };
        let subject = self.store().apply(to_subject).await;
        let oracle = self.oracle.apply(to_oracle).await;
        let Some((subject, oracle)) = alike("apply", subject, oracle)? else {
            return Ok(());
        };
        same("answers", subject.outcomes.len(), oracle.outcomes.len())?;
        for ((lease, told), expected) in leases.iter().zip(subject.outcomes).zip(oracle.outcomes) {
            if !self.is_same_refusal(lease, told, expected) {
                same(&format!("the report under {lease:?}"), told, expected)?;
            }
        }
        match (then_claim, params, subject.claim) {
            (Some(ask), Some(params), Some(claim)) => self.judge_claim(ask.worker, params, claim),
            (None, None, None) => Ok(()),
            (_, params, claim) => Err(format!("claim {params:?} was answered {claim:?}")),
        }
    }

    /// A time that the subject's schedules can express.
    pub(super) fn expressible(&self, when: When) -> When {
        match when {
            When::After(delay) => When::After(self.span(delay)),
            When::Now | When::At(_) => when,
        }
    }

    /// A store may forget that it has accepted a lease once the task has run again.
    pub(super) fn is_same_refusal(&self, lease: &Lease, told: Applied, expected: Applied) -> bool {
        let is_old = self.last_epochs.get(&lease.task) != Some(&lease.epoch);
        let refused = [Applied::Already, Applied::Refused(Refusal::LeaseLost)];
        is_old && refused.contains(&told) && refused.contains(&expected)
    }

    pub(super) async fn lead(&mut self, to_subject: Bid, to_oracle: Bid) -> Agreed {
        let subject = self.store().lead(to_subject).await;
        let answers = alike("lead", subject, self.oracle.lead(to_oracle).await)?;
        match answers {
            Some((Leadership::Leading(subject), Leadership::Leading(oracle))) => {
                let last = self.terms.last().copied();
                if last == Some((subject, oracle)) {
                    return Ok(());
                }
                if last.is_some_and(|last| last.0 >= subject || last.1 >= oracle) {
                    return Err(format!("terms {subject} and {oracle} after {last:?}"));
                }
                self.terms.push((subject, oracle));
                Ok(())
            }
            Some((subject, oracle)) => same("leadership", subject, oracle),
            None => Ok(()),
        }
    }

    /// The same duty on both sides: mostly in the last term, now and then in an older one.
    pub(super) async fn duties(&mut self, pick: &Pick) -> Agreed<(Duty, Duty)> {
        if self.terms.is_empty() {
            let seek = Bid::Seek { holder: WorkerId::new("holder-0"), term_length: TERM_LENGTH };
            self.lead(seek.clone(), seek).await?;
        }
        let (subject, oracle) = self.terms[pick.of(self.terms.len()).expect("one was just sought")];
        let duty = |term| Duty { term, limit: 1_000 };
        Ok((duty(subject), duty(oracle)))
    }
}
