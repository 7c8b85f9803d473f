//! Two stores side by side: each step is done to both, and their replies are compared.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::dice::Dice;
use windlass_core::retry::Backoff;
use windlass_core::state::finish;
use windlass_core::store::{
    Applied, ApplyParams, Beat, Bid, Capabilities, ChangeParams, ChangeReply, Claim, ClaimParams,
    Depth, Duty, DutyReport, Filter, HeldLeases, Leadership, Order, PrioritySet, ProgressReport,
    Quota, Refusal, Reservation, SaveDoc, Target, Term, WorkerCard,
};
use windlass_core::unique::{Unique, UniqueScope};
use windlass_core::{
    Claimed, Ending, Epoch, Lease, ManualClock, NewTask, Priority, Result, Store, TaskId,
    Timestamp, Transition, When, WorkerId,
};
use windlass_stores::memory::MemoryStore;

use super::step::{Ask, KINDS, Narrow, Pick, QUEUES, Sign, Step, WORKERS, Wish};
use crate::draft::{draft, kind, queue};
use crate::subject::Subject;

/// A difference, in words.
pub(super) type Agreed<T = ()> = std::result::Result<T, String>;

const TERM_LENGTH: Duration = Duration::from_secs(10);
const OPERATOR: &str = "olivia";

/// One run on both sides.
pub(super) struct Pair {
    worker: WorkerId,
    subject: Claimed,
    oracle: Claimed,
}

/// The subject, the oracle, and what a client of both has seen so far.
pub(super) struct Sides {
    subject: Arc<dyn Subject>,
    /// Two handles on the subject, used in turn.
    stores: [Arc<dyn Store>; 2],
    turn: usize,
    clock: Arc<ManualClock>,
    pub(super) oracle: MemoryStore,
    pub(super) capabilities: Capabilities,
    start: Timestamp,
    tasks: Vec<NewTask>,
    runs: Vec<Pair>,
    workers: Vec<WorkerId>,
    workers_made: usize,
    terms: Vec<(Term, Term)>,
    /// From the subject's epochs to the oracle's.
    epochs: HashMap<(TaskId, Epoch), Epoch>,
    last_epochs: HashMap<TaskId, Epoch>,
}

/// Requires both sides to have said the same.
pub(super) fn same<T: PartialEq + std::fmt::Debug>(what: &str, subject: T, oracle: T) -> Agreed {
    if subject == oracle {
        return Ok(());
    }
    Err(format!("{what} differs\n  the store:  {subject:?}\n  the oracle: {oracle:?}"))
}

/// Requires both sides to have answered or failed alike; `None` when both failed.
fn alike<T>(what: &str, subject: Result<T>, oracle: Result<T>) -> Agreed<Option<(T, T)>> {
    match (subject, oracle) {
        (Ok(subject), Ok(oracle)) => Ok(Some((subject, oracle))),
        (Err(subject), Err(oracle)) => {
            let told = |error: &windlass_core::Error| (error.kind(), error.reason());
            same(what, told(&subject), told(&oracle)).map(|()| None)
        }
        (Ok(_), Err(oracle)) => Err(format!("{what}: the oracle refuses: {oracle:?}")),
        (Err(subject), Ok(_)) => Err(format!("{what}: the store refuses: {subject:?}")),
    }
}

impl Sides {
    pub(super) async fn new<S: Subject>() -> Self {
        let subject: Arc<dyn Subject> = Arc::new(S::fresh().await);
        let stores = [subject.store(), subject.another().await];
        let start = stores[0].inspect(Depth::Ping).await.unwrap().now;
        let clock = Arc::new(ManualClock::starting_at(start));
        let oracle = MemoryStore::new(clock.clone());
        let capabilities = stores[0].profile().capabilities;
        let mut sides = Self {
            subject,
            stores,
            turn: 0,
            clock,
            oracle,
            capabilities,
            start,
            tasks: Vec::new(),
            runs: Vec::new(),
            workers: Vec::new(),
            workers_made: 0,
            terms: Vec::new(),
            epochs: HashMap::new(),
            last_epochs: HashMap::new(),
        };
        for slot in 0..WORKERS {
            sides.workers.push(WorkerId::new(format!("worker-{slot}")));
        }
        sides.workers_made = WORKERS;
        sides
    }

    /// The subject, through one handle and then the other.
    pub(super) fn store(&mut self) -> Arc<dyn Store> {
        self.turn += 1;
        self.stores[self.turn % 2].clone()
    }

    /// Every task that was ever submitted.
    pub(super) fn ids(&self) -> Vec<TaskId> {
        self.tasks.iter().map(|task| task.id.clone()).collect()
    }

    /// The oracle's word for an epoch of the subject.
    pub(super) fn translate(&self, task: &TaskId, epoch: Epoch) -> Epoch {
        let known = self.epochs.get(&(task.clone(), epoch));
        *known.unwrap_or(&Epoch(u128::MAX))
    }

    pub(super) async fn take(&mut self, step: Step) -> Agreed {
        match step {
            Step::Insert(wishes) => {
                let mut tasks = Vec::new();
                for wish in wishes {
                    tasks.push(self.make(wish).await);
                }
                self.tasks.extend(tasks.iter().cloned());
                self.insert(tasks).await
            }
            Step::InsertAgain(index) if !self.tasks.is_empty() => {
                let task = self.tasks[index.index(self.tasks.len())].clone();
                self.insert(vec![task]).await
            }
            Step::Beat(sign) => self.beat(sign).await,
            Step::Claim(ask) => {
                let params = self.claim_params(&ask);
                let answer = self.store().claim(params.clone()).await;
                self.judge_claim(ask.worker, params, answer)
            }
            Step::Apply { endings, then_claim } => self.apply(endings, then_claim).await,
            Step::Leave(slot) => {
                let worker = self.workers[slot].clone();
                let subject = self.store().leave(worker.clone()).await;
                let oracle = self.oracle.leave(worker).await;
                let counts = alike("leave", subject, oracle)?;
                counts.map_or(Ok(()), |(subject, oracle)| same("leave", subject, oracle))
            }
            Step::Seek(number) => {
                let holder = WorkerId::new(format!("holder-{number}"));
                let seek = Bid::Seek { holder, term_length: TERM_LENGTH };
                self.lead(seek.clone(), seek).await
            }
            Step::Renew(index) if !self.terms.is_empty() => {
                let (subject, oracle) = self.terms[index.index(self.terms.len())];
                let renew = |term| Bid::Renew { term, term_length: TERM_LENGTH };
                self.lead(renew(subject), renew(oracle)).await
            }
            Step::Resign(index) if !self.terms.is_empty() => {
                let (subject, oracle) = self.terms[index.index(self.terms.len())];
                let resign = |term| Bid::Resign { term };
                self.lead(resign(subject), resign(oracle)).await
            }
            // Before the first insert or term there is nothing to name.
            Step::InsertAgain(_) | Step::Renew(_) | Step::Resign(_) => Ok(()),
            Step::Promote(pick) => {
                let (subject, oracle) = self.duties(&pick).await?;
                let done = self.store().promote(subject).await;
                let reports = alike("promote", done, self.oracle.promote(oracle).await)?;
                check_reports("promote", reports)
            }
            Step::Expire(pick) => {
                let (subject, oracle) = self.duties(&pick).await?;
                let done = self.store().expire(subject).await;
                let reports = alike("expire", done, self.oracle.expire(oracle).await)?;
                check_reports("expire", reports)
            }
            Step::Prune(pick) => {
                let (subject, oracle) = self.duties(&pick).await?;
                let done = self.store().prune(subject).await;
                let reports = alike("prune", done, self.oracle.prune(oracle).await)?;
                check_reports("prune", reports)
            }
            Step::Tend(pick) => {
                // What a store tends is its own affair.
                let (subject, oracle) = self.duties(&pick).await?;
                let done = self.store().tend(subject).await;
                alike("tend", done, self.oracle.tend(oracle).await).map(drop)
            }
            Step::Change { tasks, action, only_in } => {
                let ids = self.ids();
                let chosen = tasks.iter().filter(|_| !ids.is_empty());
                let target = Target::Tasks(
                    chosen.map(|index| ids[index.index(ids.len())].clone()).collect(),
                );
                let params = ChangeParams { target, action, only_in, by: Some(OPERATOR.into()) };
                let subject = self.store().change(params.clone()).await;
                let oracle = self.oracle.change(params).await;
                let replies = alike("change", subject, oracle)?;
                replies.map_or(Ok(()), |(subject, oracle)| same("change", subject, oracle))
            }
            Step::ChangeMatching { filter, action, only_in, limit } => {
                let params = ChangeParams {
                    target: Target::Matching { filter: self.filter(&filter), limit, cursor: None },
                    action,
                    only_in,
                    by: Some(OPERATOR.into()),
                };
                let subject = change_to_the_end(&*self.store(), params.clone()).await;
                let oracle = change_to_the_end(&self.oracle, params).await;
                let sums = alike("change of all that matches", subject, oracle)?;
                sums.map_or(Ok(()), |(subject, oracle)| {
                    same("change of all that matches", subject, oracle)
                })
            }
            Step::OrderQueue(number, order) => {
                let queue = queue(QUEUES[number]);
                self.order(Order::Queue { queue, order }).await
            }
            Step::OrderWorker(slot, order) => {
                let worker = self.workers[slot].clone();
                self.order(Order::Worker { worker, order }).await
            }
            Step::Save { key, expected, body } => {
                let save =
                    SaveDoc { class: "setting".into(), key: format!("key-{key}"), expected, body };
                let subject = self.store().save(save.clone()).await;
                let answers = alike("save", subject, self.oracle.save(save).await)?;
                answers.map_or(Ok(()), |(subject, oracle)| same("save", subject, oracle))
            }
            Step::List(narrow) => {
                let filter = self.filter(&narrow);
                self.compare_lists(filter).await
            }
            Step::Advance(by) => {
                self.advance(by);
                Ok(())
            }
            Step::Sleep(by) => {
                self.advance(by);
                // Longer than a lost worker is remembered for sure: all start anew.
                for slot in 0..WORKERS {
                    self.renew_worker(slot);
                }
                Ok(())
            }
        }
    }

    pub(super) fn advance(&self, by: Duration) {
        let by = self.span(by);
        self.subject.advance(by);
        self.clock.advance(by);
    }

    /// A time that the subject's schedules can express.
    fn span(&self, time: Duration) -> Duration {
        let step = self.capabilities.schedule_resolution.as_millis().max(1);
        let millis = time.as_millis().div_ceil(step) * step;
        Duration::from_millis(u64::try_from(millis).unwrap())
    }

    fn renew_worker(&mut self, slot: usize) {
        self.workers[slot] = WorkerId::new(format!("worker-{}", self.workers_made));
        self.workers_made += 1;
    }

    async fn make(&mut self, wish: Wish) -> NewTask {
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
        let mut draft = draft()
            .queue(name)
            .kind(KINDS[wish.kind])
            .payload(wish.payload)
            .when(when)
            .max_retries(wish.max_retries)
            .max_crashes(wish.max_crashes)
            .retention(wish.retention);
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

    async fn insert(&mut self, tasks: Vec<NewTask>) -> Agreed {
        let subject = self.store().insert(tasks.clone()).await;
        let answers = alike("insert", subject, self.oracle.insert(tasks).await)?;
        let told = |answers: &[_]| -> Vec<String> {
            answers.iter().map(|answer| format!("{answer:?}")).collect()
        };
        answers.map_or(Ok(()), |(subject, oracle)| same("insert", told(&subject), told(&oracle)))
    }

    async fn beat(&mut self, sign: Sign) -> Agreed {
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
            card: WorkerCard { slots: u32::from(sign.held.is_some()), ..WorkerCard::default() },
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
        same("cancels", ours(subject.cancels), leases(oracle.cancels))?;
        same("lost leases", ours(subject.lost), leases(oracle.lost))?;
        let back = (sorted(subject.given_back), sorted(oracle.given_back));
        same("what was given back", back.0, back.1)
    }

    fn claim_params(&self, ask: &Ask) -> ClaimParams {
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
    fn judge_claim(&mut self, slot: usize, params: ClaimParams, answer: Result<Claim>) -> Agreed {
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
            let translated = Claimed { epoch: oracle.epoch, ..subject.clone() };
            same("a claimed task", &translated, &oracle)?;
            self.runs.push(Pair { worker: worker.clone(), subject, oracle });
        }
        Ok(())
    }

    async fn apply(
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
                let backoff =
                    Backoff::Fixed { initial: self.span(Duration::from_secs(1)), jitter: 0.0 };
                let mut dice = Dice::seeded(at as u64);
                let decided = finish(task, self.expressible(&ending), &backoff, &mut dice);
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

    /// An ending whose delays the subject can express.
    fn expressible(&self, ending: &Ending) -> Ending {
        match ending.clone() {
            Ending::Snoozed { delay } => Ending::Snoozed { delay: self.span(delay) },
            Ending::Failed { error, retry_after } => {
                Ending::Failed { error, retry_after: retry_after.map(|delay| self.span(delay)) }
            }
            other => other,
        }
    }

    /// A store may forget that it has accepted a lease once the task has run again.
    fn is_same_refusal(&self, lease: &Lease, told: Applied, expected: Applied) -> bool {
        let is_old = self.last_epochs.get(&lease.task) != Some(&lease.epoch);
        let refused = [Applied::Already, Applied::Refused(Refusal::LeaseLost)];
        is_old && refused.contains(&told) && refused.contains(&expected)
    }

    async fn lead(&mut self, to_subject: Bid, to_oracle: Bid) -> Agreed {
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
    async fn duties(&mut self, pick: &Pick) -> Agreed<(Duty, Duty)> {
        if self.terms.is_empty() {
            let seek = Bid::Seek { holder: WorkerId::new("holder-0"), term_length: TERM_LENGTH };
            self.lead(seek.clone(), seek).await?;
        }
        let (subject, oracle) = self.terms[pick.of(self.terms.len()).expect("one was just sought")];
        let duty = |term| Duty { term, limit: 1_000 };
        Ok((duty(subject), duty(oracle)))
    }

    async fn order(&mut self, order: Order) -> Agreed {
        let subject = self.store().order(order.clone()).await;
        alike("order", subject, self.oracle.order(order).await).map(drop)
    }

    fn filter(&self, narrow: &Narrow) -> Filter {
        let instant = |offset: Duration| self.start.after(offset);
        Filter {
            states: narrow.states.clone(),
            queue: narrow.queue.map(|number| queue(QUEUES[number])),
            kind: narrow.kind.map(|number| kind(KINDS[number])),
            priority: narrow.priority.filter(|_| self.capabilities.has_priorities),
            tag: narrow.is_tagged.then(|| "blue".parse().unwrap()),
            created_after: narrow.created_after.map(instant),
            created_before: None,
            finished_before: narrow.finished_before.map(instant),
        }
    }
}

fn check_reports(what: &str, reports: Option<(DutyReport, DutyReport)>) -> Agreed {
    let Some((subject, oracle)) = reports else {
        return Ok(());
    };
    same(&format!("what {what} did"), subject.done, oracle.done)?;
    same(&format!("more to {what}"), subject.has_more, oracle.has_more)?;
    same("unreadable records", subject.skipped_bad, 0)?;
    if subject.next_due > oracle.next_due {
        return same(&format!("next time to {what}"), subject.next_due, oracle.next_due);
    }
    Ok(())
}

/// Works a filter through to its end; answers how many were changed and how many only asked.
async fn change_to_the_end(store: &dyn Store, mut params: ChangeParams) -> Result<(u64, u64)> {
    let (mut changed, mut requested) = (0, 0);
    for _ in 0..1_000 {
        let reply: ChangeReply = store.change(params.clone()).await?;
        changed += reply.changed_count;
        requested += reply.requested_count;
        match (&mut params.target, reply.next_cursor) {
            (Target::Matching { cursor, .. }, next @ Some(_)) => *cursor = next,
            (Target::Matching { .. } | Target::Tasks(_), _) => return Ok((changed, requested)),
        }
    }
    panic!("the change of all that matches does not come to an end");
}
