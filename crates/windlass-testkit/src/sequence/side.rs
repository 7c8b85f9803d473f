//! Two stores side by side: each step is done to both, and their replies are compared.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::store::{
    Action, Bid, Capabilities, ChangeParams, ChangeReply, Depth, DutyReport, Filter, GetParams,
    ListOrder, Order, Parts, SaveDoc, Target, Term,
};
use windlass_core::{
    Claimed, Epoch, ManualClock, NewTask, Result, Store, TaskId, Timestamp, WorkerId,
};
use windlass_stores::memory::MemoryStore;

use super::compare::walk;
use super::step::{KINDS, Narrow, QUEUES, Step, WORKERS};
use crate::draft::{kind, queue};
use crate::subject::Subject;

/// A difference, in words.
pub(super) type Agreed<T = ()> = std::result::Result<T, String>;

pub(super) const TERM_LENGTH: Duration = Duration::from_secs(10);
const OPERATOR: &str = "olivia";

/// One run on both sides.
pub(super) struct Pair {
    pub(super) worker: WorkerId,
    pub(super) subject: Claimed,
    pub(super) oracle: Claimed,
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
    pub(super) tasks: Vec<NewTask>,
    pub(super) runs: Vec<Pair>,
    pub(super) workers: Vec<WorkerId>,
    pub(super) workers_made: usize,
    pub(super) terms: Vec<(Term, Term)>,
    /// From the subject's epochs to the oracle's.
    pub(super) epochs: HashMap<(TaskId, Epoch), Epoch>,
    pub(super) last_epochs: HashMap<TaskId, Epoch>,
}

/// Requires both sides to have said the same.
pub(super) fn same<T: PartialEq + std::fmt::Debug>(what: &str, subject: T, oracle: T) -> Agreed {
    if subject == oracle {
        return Ok(());
    }
    Err(format!("{what} differs\n  the store:  {subject:?}\n  the oracle: {oracle:?}"))
}

/// Requires both sides to have answered or failed alike; `None` when both failed.
pub(super) fn alike<T>(
    what: &str,
    subject: Result<T>,
    oracle: Result<T>,
) -> Agreed<Option<(T, T)>> {
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
                let params = GetParams { ids: vec![task.id.clone()], parts: Parts::NONE };
                // Where the record is gone, a store may recognise the repetition or store the task again.
                match self.oracle.get(params).await.unwrap().pop().flatten() {
                    Some(_) => self.insert(vec![task]).await,
                    None => Ok(()),
                }
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
                let action = self.expressible_action(action);
                let params = ChangeParams { target, action, only_in, by: Some(OPERATOR.into()) };
                let subject = self.store().change(params.clone()).await;
                let oracle = self.oracle.change(params).await;
                let replies = alike("change", subject, oracle)?;
                replies.map_or(Ok(()), |(subject, oracle)| same("change", subject, oracle))
            }
            Step::ChangeMatching { filter, action, only_in, limit } => {
                let params = ChangeParams {
                    target: Target::Matching { filter: self.filter(&filter), limit, cursor: None },
                    action: self.expressible_action(action),
                    only_in,
                    by: Some(OPERATOR.into()),
                };
                let met = self.ids_in_order(&params.target).await?;
                let subject = change_to_the_end(&*self.store(), params.clone()).await;
                let as_met = met.map_or(params.target.clone(), Target::Tasks);
                let params = ChangeParams { target: as_met, ..params };
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
    pub(super) fn span(&self, time: Duration) -> Duration {
        let step = self.capabilities.schedule_resolution.as_millis().max(1);
        let millis = time.as_millis().div_ceil(step) * step;
        Duration::from_millis(u64::try_from(millis).unwrap())
    }

    fn expressible_action(&self, action: Action) -> Action {
        match action {
            Action::Reschedule(when) => Action::Reschedule(self.expressible(when)),
            Action::Cancel | Action::Rerun | Action::Delete => action,
        }
    }

    pub(super) fn renew_worker(&mut self, slot: usize) {
        self.workers[slot] = WorkerId::new(format!("worker-{}", self.workers_made));
        self.workers_made += 1;
    }

    /// The tasks that a filter finds in the order in which the subject meets them, where that is not the
    /// oracle's: what is run again stands in that order afterwards.
    async fn ids_in_order(&mut self, target: &Target) -> Agreed<Option<Vec<TaskId>>> {
        let Target::Matching { filter, .. } = target else { return Ok(None) };
        if self.capabilities.list_order != ListOrder::StateByState {
            return Ok(None);
        }
        let met = walk(&*self.store(), filter.clone()).await;
        let met = met.map_err(|error| format!("a walk failed: {error:?}"))?;
        Ok(Some(met.into_iter().map(|record| record.id).collect()))
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
    same("repairs", subject.repaired, 0)?;
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
