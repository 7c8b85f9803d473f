//! Reports of ended runs, on Redis Streams.

use std::collections::{BTreeMap, HashMap, HashSet};

use futures_util::future::join_all;
use windlass_core::store::{Applied, ApplyParams, ApplyReply, Refusal, WakeMark};
use windlass_core::{Error, QueueName, Result, State, Timestamp, Transition, WorkerId};

use super::epoch::{self, Entry};
use super::id::Id;
use super::moves::{Reported, RunEnd};
use super::record::Tail;
use super::row::{LARGE_BYTES, Row};
use super::{AT_ONCE, Shared, keys, scripts};
use crate::redis::asking::{Asking, Claiming, LeaseKnown};
use crate::redis::fleet::Fleet;
use crate::redis::options::millis;
use crate::redis::reply::{Reply, Sort, next};
use crate::redis::script::Call;
use crate::redis::troubles::{damage_in, log_skipped, skip};
use crate::wakes::News;

/// Where the first group stands among the arguments of a script that reports successes.
const FIRST_GROUP_AT: usize = 5;

const GONE: Applied = Applied::Refused(Refusal::Gone);
const LOST: Applied = Applied::Refused(Refusal::LeaseLost);

/// A success whose epoch tells everything that its end needs.
struct Success<'a> {
    at: usize,
    id: Id,
    entry: Entry,
    claimed_at: Timestamp,
    transition: &'a Transition,
}

/// Successes of one queue that are kept alike, with large results or without.
struct Group<'a> {
    queue: &'a QueueName,
    retention_ms: u64,
    is_large: bool,
    successes: Vec<&'a Success<'a>>,
}

/// What shows that leases are valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proof {
    Entry,
    /// That, and the time of the claim.
    Claim,
}

/// The claim behind an apply: what it asks for, and what it has.
struct Behind {
    asking: Asking,
    lease: LeaseKnown,
    rows: Option<Result<Vec<Row>>>,
}

impl Shared {
    pub(super) async fn apply(&self, params: &ApplyParams, mark: WakeMark) -> Result<ApplyReply> {
        let mut outcomes = vec![GONE; params.transitions.len()];
        self.announce_changes(params.transitions.iter().map(|transition| &transition.queue))
            .await?;
        let (successes, others) = self.sort_out(params);
        // A claim goes with the last call of successes, if everything else is done before it.
        for chunk in waves(&others) {
            self.apply_others(&chunk, &mut outcomes).await?;
        }
        let mut behind = match &params.then_claim {
            Some(claim) if !successes.is_empty() => {
                match self.fleet.lease_of(&claim.worker).await {
                    Ok(lease) => {
                        self.learn(&claim.quotas);
                        Some(Behind { asking: Asking::new(claim, |_| true), lease, rows: None })
                    }
                    Err(_) => None,
                }
            }
            _ => None,
        };
        let (mut last, count) = (behind.as_mut(), successes.chunks(AT_ONCE).len());
        let calls = successes.chunks(AT_ONCE).enumerate().map(|(number, chunk)| {
            let behind = if number + 1 == count { last.take() } else { None };
            self.apply_successes(&params.worker, chunk, behind)
        });
        // One behind the other, without waiting for answers in between.
        for told in join_all(calls).await {
            for (at, outcome) in told? {
                outcomes[at] = outcome;
            }
        }
        let claim = match (&params.then_claim, behind) {
            (None, _) => None,
            (Some(_), Some(Behind { mut asking, lease, rows: Some(rows) })) => {
                let claimed = match rows {
                    Ok(rows) => self.claim_rest(&mut asking, lease, rows).await,
                    Err(error) => Err(error),
                };
                Some(claimed)
            }
            (Some(params), _) => Some(self.claim(params).await),
        };
        let claim = claim.map(|claimed| claimed.map(|claimed| claimed.into_claim(mark)));
        Ok(ApplyReply { outcomes, claim })
    }

    /// Sorts plain successes from everything that has to be looked at first.
    fn sort_out<'a>(
        &self,
        params: &'a ApplyParams,
    ) -> (Vec<Success<'a>>, Vec<(usize, Id, &'a Transition)>) {
        let mut ids = Vec::with_capacity(params.transitions.len());
        let mut seen = HashSet::with_capacity(params.transitions.len());
        let mut twice = HashSet::new();
        for transition in &params.transitions {
            let id = Id::of(&transition.lease.task);
            if let Some(id) = id
                && !seen.insert(id)
            {
                twice.insert(id);
            }
            ids.push(id);
        }
        let (mut successes, mut others) = (Vec::new(), Vec::new());
        for (at, (id, transition)) in ids.into_iter().zip(&params.transitions).enumerate() {
            let Some(id) = id else { continue };
            let is_plain = transition.next.state == State::Completed
                && !twice.contains(&id)
                && id.leads_to(&transition.queue);
            match epoch::read(transition.lease.epoch, id, &params.worker).filter(|_| is_plain) {
                Some((entry, claimed_at)) => {
                    successes.push(Success { at, id, entry, claimed_at, transition });
                }
                None => others.push((at, id, transition)),
            }
        }
        (successes, others)
    }

    async fn apply_successes(
        &self,
        worker: &WorkerId,
        chunk: &[Success<'_>],
        mut behind: Option<&mut Behind>,
    ) -> Result<Vec<(usize, Applied)>> {
        let mut outcomes = Vec::with_capacity(chunk.len());
        let groups = Group::of(chunk);
        let is_cluster = self.options().is_cluster();
        for groups in self.fleet.by_slot(&groups) {
            let mut queues: Vec<QueueName> = Vec::new();
            let mut add_queue = |queue: &QueueName| {
                let known = queues.iter().position(|known| known == queue);
                known.unwrap_or_else(|| {
                    queues.push(queue.clone());
                    queues.len() - 1
                })
            };
            let numbers: Vec<_> = groups.iter().map(|group| add_queue(group.queue) + 1).collect();
            // On a Cluster another queue's claim is another call.
            let claims =
                behind.as_deref_mut().filter(|behind| !is_cluster && !behind.asking.is_served());
            if let Some(behind) = &claims {
                for queue in behind.asking.queues(is_cluster) {
                    add_queue(&queue);
                }
            }
            let stems = match claims {
                Some(_) => self.claim_stems(&queues),
                None => queues.iter().map(|queue| self.stem(queue)).collect(),
            };
            let mut line = self.fleet.link.line().await?;
            // A server that came back without its last moments gives out again what it does not know to
            // have given out, under the same entry: then the entry alone does not tell whose it is.
            let mut reported = groups.iter().flat_map(|group| &group.successes);
            let proof = match reported.all(|success| line.lasts_since(success.claimed_at)) {
                true => Proof::Entry,
                false => Proof::Claim,
            };
            let mut call = scripts::APPLY.on(&stems).arg(self.options().told_time());
            let reports: usize = groups.iter().map(|group| group.arguments(proof)).sum();
            call.add(if claims.is_some() { FIRST_GROUP_AT + reports } else { 0 });
            call.add(groups.len());
            call.add(u8::from(proof == Proof::Entry));
            for (group, number) in groups.iter().zip(numbers) {
                group.add_to(&mut call, number, worker, proof);
            }
            if let Some(behind) = &claims {
                behind.asking.add_to::<Self>(&mut call, &queues, behind.lease, self.options());
            }
            let mut reply = Fleet::ask_over(&mut line, call).await?.list()?;
            let now = next(&mut reply, "apply")?.time()?;
            let claimed = next(&mut reply, "apply")?;
            let mut news = News::default();
            for group in groups {
                let told = match damage_in(next(&mut reply, "apply")?)? {
                    Ok(told) => group.read(told)?,
                    Err(trouble) => {
                        log_skipped(group.queue, &trouble);
                        vec![Applied::Unrecorded; group.successes.len()]
                    }
                };
                for (success, outcome) in group.successes.iter().zip(told) {
                    if matches!(outcome, Applied::Applied(_)) {
                        news.ended.push(success.transition.lease.task.clone());
                    }
                    outcomes.push((success.at, outcome));
                }
            }
            self.fleet.common.wakes.tell(news);
            if let Some(behind) = claims {
                behind.rows =
                    behind.asking.read_behind::<Self>(claimed, now, is_cluster).transpose();
            }
        }
        Ok(outcomes)
    }

    /// Reports that have to be looked at first; no task is among them twice. Reports of a damaged queue fail alone.
    async fn apply_others(
        &self,
        wave: &[(usize, Id, &Transition)],
        outcomes: &mut [Applied],
    ) -> Result<()> {
        let mut by_queue: BTreeMap<&QueueName, Vec<(usize, Id, &Transition)>> = BTreeMap::new();
        for report in wave {
            by_queue.entry(&report.2.queue).or_default().push(*report);
        }
        for (queue, reports) in by_queue {
            for chunk in reports.chunks(AT_ONCE) {
                let applied = self.apply_others_in(chunk, outcomes).await;
                if skip(queue, applied)?.is_none() {
                    chunk.iter().for_each(|(at, ..)| outcomes[*at] = Applied::Unrecorded);
                }
            }
        }
        Ok(())
    }

    /// The same, of reports that name one queue.
    async fn apply_others_in(
        &self,
        chunk: &[(usize, Id, &Transition)],
        outcomes: &mut [Applied],
    ) -> Result<()> {
        let reports: HashMap<Id, (usize, &Transition)> =
            chunk.iter().map(|(at, id, transition)| (*id, (*at, *transition))).collect();
        let ids: Vec<_> = chunk.iter().map(|(_, id, _)| *id).collect();
        // The queue that a report names only spares a look-up; its lease may be made up.
        let (now, mut found) = self.look_everywhere(&ids).await?;
        let rows: Vec<_> = ids.iter().filter_map(|id| found.remove(id)).collect();
        for row in &rows {
            self.check_lane(row, reports[&row.id].1).await?;
        }
        // One that is gone when it is looked at again is neither judged nor placed: it stays gone.
        let judged = parking_lot::Mutex::new(HashMap::new());
        let placed = self
            .decide_at(now, rows, None, |row, now, error_bytes_max| {
                let (at, transition) = reports[&row.id];
                let epoch = transition.lease.epoch;
                let refused = if row.is_applied(epoch) {
                    Some(Applied::Already)
                } else if row.running.is_none() || row.epoch() != Some(epoch) {
                    Some(LOST)
                } else {
                    None
                };
                if let Some(refused) = refused {
                    judged.lock().insert(at, refused);
                    return None;
                }
                let state = transition.chosen_state(row.record.head.is_cancel_requested);
                let applied =
                    Some(Reported { took: transition.took, retention: transition.retention });
                let end = RunEnd { state, step: transition.next.clone(), applied };
                Some(row.end_run(now, end, error_bytes_max))
            })
            .await?;
        for (at, refused) in judged.into_inner() {
            outcomes[at] = refused;
        }
        for placed in placed {
            if let Some(Some(state)) = placed.state {
                outcomes[reports[&placed.id].0] = Applied::Applied(state);
            }
        }
        Ok(())
    }
}

impl Shared {
    /// Fails if the lane of a reported task cannot be read. Its record still begins with the entry of the lease then,
    /// but nobody seems to hold that.
    async fn check_lane(&self, row: &Row, transition: &Transition) -> Result<()> {
        let is_unsure = row.state() == State::Pending
            && row.record.entry.is_some()
            && row.record.entry == epoch::entry_of(transition.lease.epoch);
        if is_unsure {
            let mut length = redis::cmd("XLEN");
            length.arg(keys::lane(&self.stem(&row.queue), row.record.head.lane));
            self.fleet.link.command("look at a lane", &length).await?;
        }
        Ok(())
    }
}

impl<'a> Group<'a> {
    /// Groups of one queue stand together: on a Cluster the caller sends each by itself.
    fn of(successes: &'a [Success<'a>]) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        for success in successes {
            let transition = success.transition;
            let (queue, retention_ms) = (&transition.queue, millis(transition.retention));
            let is_large = success.has_large_result();
            let is_alike = |group: &&mut Self| {
                (group.retention_ms, group.is_large) == (retention_ms, is_large)
                    && group.queue == queue
            };
            match groups.iter_mut().rev().find(is_alike) {
                Some(group) => group.successes.push(success),
                None => {
                    groups.push(Self { queue, retention_ms, is_large, successes: vec![success] });
                }
            }
        }
        groups
    }

    /// How many arguments it is in a call.
    fn arguments(&self, proof: Proof) -> usize {
        let of_each = 3 + usize::from(self.is_large) + usize::from(proof == Proof::Claim);
        4 + self.successes.len() * of_each
    }

    /// Adds it to a call; `queue` is the number of its queue there.
    fn add_to(&self, call: &mut Call, queue: usize, worker: &WorkerId, proof: Proof) {
        call.add(queue);
        call.add(self.retention_ms);
        call.add(u8::from(self.is_large));
        call.add(self.successes.len());
        for success in &self.successes {
            call.add(&success.id.0[..]);
        }
        for success in &self.successes {
            call.add(success.entry.text());
        }
        for success in &self.successes {
            call.add(success.tail(worker, self.retention_ms));
        }
        for success in self.successes.iter().filter(|_| self.is_large) {
            call.add(success.transition.next.result.as_deref().unwrap_or_default());
        }
        for success in self.successes.iter().filter(|_| proof == Proof::Claim) {
            call.add(success.claimed_at.as_millis());
        }
    }

    /// What the script says of each.
    fn read(&self, told: Reply) -> Result<Vec<Applied>> {
        match told.sort()? {
            Sort::Number(1) => Ok(vec![Applied::Applied(State::Completed); self.successes.len()]),
            Sort::List(mut told) => {
                let judged =
                    |success: &&Success<'_>| judge(success, next(&mut told, "apply")?.sort()?);
                self.successes.iter().map(judged).collect()
            }
            Sort::Number(_) | Sort::Bytes(_) => Err(crate::redis::error::strange("apply")),
        }
    }
}

impl Success<'_> {
    fn has_large_result(&self) -> bool {
        let result = &self.transition.next.result;
        result.as_ref().is_some_and(|result| result.len() > LARGE_BYTES)
    }

    fn tail(&self, worker: &WorkerId, retention_ms: u64) -> Vec<u8> {
        let transition = self.transition;
        let millis = |took: std::time::Duration| u64::try_from(took.as_millis());
        let tail = Tail {
            attempts: transition.next.attempts,
            retention_ms,
            took_ms: transition.took.map(|took| millis(took).unwrap_or(u64::MAX)),
            claimed_at: self.claimed_at,
            worker,
            result: transition.next.result.as_deref().filter(|_| !self.has_large_result()),
        };
        tail.write()
    }
}

/// Splits reports so that no task is twice in one wave, in their order.
fn waves<'a>(others: &[(usize, Id, &'a Transition)]) -> Vec<Vec<(usize, Id, &'a Transition)>> {
    let mut waves: Vec<Vec<_>> = Vec::new();
    let mut counts: HashMap<Id, usize> = HashMap::new();
    for report in others {
        let wave = counts.entry(report.1).or_default();
        if waves.len() <= *wave {
            waves.push(Vec::new());
        }
        waves[*wave].push(*report);
        *wave += 1;
    }
    waves
}

/// What the answer to a success means.
fn judge(success: &Success<'_>, told: Sort) -> Result<Applied> {
    match told {
        Sort::Number(1) => Ok(Applied::Applied(State::Completed)),
        Sort::Number(_) => Ok(GONE),
        Sort::Bytes(record) => {
            let record = super::record::Record::read(&record)?;
            let is_applied = record.body.is_applied(success.id, success.transition.lease.epoch);
            Ok(if is_applied { Applied::Already } else { LOST })
        }
        Sort::List(_) => Err(Error::corrupt("apply in redis: a list for an answer")),
    }
}
