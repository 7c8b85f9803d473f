//! Reports of ended runs, on Redis Streams.

use std::collections::{HashMap, HashSet};

use windlass_core::store::{Applied, ApplyParams, ApplyReply, Claim, Refusal, WakeMark};
use windlass_core::{Error, QueueName, Result, State, Timestamp, Transition, WorkerId};

use super::claim::{Asking, LeaseKnown};
use super::epoch::{self, Entry};
use super::id::Id;
use super::record::{LastRun, Tail};
use super::reply::{Sort, next};
use super::row::{LARGE_BYTES, Reported, Row, RunEnd, millis};
use super::{AT_ONCE, Shared, scripts};
use crate::redis::script::Call;
use crate::wakes::News;

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

/// The claim behind an apply: what it asks for, and what it has.
struct Behind {
    asking: Asking,
    lease: LeaseKnown,
    rows: Option<Result<Vec<Row>>>,
}

impl Shared {
    pub(super) async fn apply(&self, params: &ApplyParams, mark: WakeMark) -> Result<ApplyReply> {
        let mut outcomes = vec![GONE; params.transitions.len()];
        let (successes, others) = self.sort_out(params);
        // A claim goes with the last call of successes, if everything else is done before it.
        for chunk in waves(&others) {
            self.apply_others(&chunk, &mut outcomes).await?;
        }
        let mut behind = match &params.then_claim {
            Some(claim) if !successes.is_empty() => match self.lease_of(&claim.worker).await {
                Ok(lease) => {
                    self.ears.learn(&claim.quotas);
                    Some(Behind { asking: Asking::new(claim), lease, rows: None })
                }
                Err(_) => None,
            },
            _ => None,
        };
        let count = successes.chunks(AT_ONCE).len();
        for (number, chunk) in successes.chunks(AT_ONCE).enumerate() {
            let last = if number + 1 == count { behind.as_mut() } else { None };
            self.apply_successes(&params.worker, chunk, last, &mut outcomes).await?;
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
        let claim = claim.map(|claimed| claimed.map(|tasks| Claim { tasks, mark }));
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
        outcomes: &mut [Applied],
    ) -> Result<()> {
        let mut queues: Vec<(&QueueName, Vec<&Success<'_>>)> = Vec::new();
        for success in chunk {
            let queue = &success.transition.queue;
            match queues.iter_mut().find(|(known, _)| *known == queue) {
                Some((_, successes)) => successes.push(success),
                None => queues.push((queue, vec![success])),
            }
        }
        let is_cluster = self.common.options.is_cluster();
        for group in self.by_slot(&queues) {
            let own: Vec<_> = group.iter().map(|(queue, _)| (*queue).clone()).collect();
            let mut all = own.clone();
            // On a Cluster another queue's claim is another call.
            let claims =
                behind.as_deref_mut().filter(|behind| !is_cluster && !behind.asking.is_served());
            if let Some(behind) = &claims {
                for queue in behind.asking.queues(is_cluster) {
                    if !all.contains(&queue) {
                        all.push(queue);
                    }
                }
            }
            let stems = match claims {
                Some(_) => self.claim_stems(&all),
                None => all.iter().map(|queue| self.stem(queue)).collect(),
            };
            let mut line = self.link.line().await?;
            // A server that came back without its last moments gives out again what it does not know to
            // have given out, under the same entry: then the entry alone does not tell whose it is.
            let mut reported = group.iter().flat_map(|(_, successes)| successes);
            let is_certain = reported.all(|success| line.lasts_since(success.claimed_at));
            let mut call = scripts::APPLY.on(&stems).arg(self.common.options.told_time());
            let mut arguments = 3;
            let large = |success: &&Success<'_>| usize::from(result_of(success).1.is_some());
            for (_, successes) in group {
                arguments += 1 + successes.iter().map(|success| 3 + large(success)).sum::<usize>();
            }
            // Behind the reports comes how many queues they are of, and then the claim.
            call.add(if claims.is_some() { arguments + 2 } else { 0 });
            call.add(u8::from(is_certain));
            for (_, successes) in group {
                call.add(successes.len());
                for success in successes {
                    add_success(&mut call, worker, success);
                }
            }
            if let Some(behind) = &claims {
                call.add(own.len());
                behind.asking.add_to(&mut call, &all, behind.lease, is_cluster);
            }
            let mut reply = Self::ask_over(&mut line, call).await?.list()?;
            let now = next(&mut reply, "apply")?.time()?;
            let claimed = next(&mut reply, "apply")?;
            let mut news = News::default();
            for (_, successes) in group {
                let mut told = next(&mut reply, "apply")?.list()?;
                for success in successes {
                    let told = next(&mut told, "apply")?;
                    outcomes[success.at] = judge(success, told.sort()?)?;
                    if matches!(outcomes[success.at], Applied::Applied(_)) {
                        news.ended.push(success.transition.lease.task.clone());
                    }
                }
            }
            self.common.wakes.tell(news);
            if let Some(behind) = claims {
                behind.rows = self.read_claim_behind(claimed, &mut behind.asking, now).transpose();
            }
        }
        Ok(())
    }

    /// Reports that have to be looked at first; no task is among them twice.
    async fn apply_others(
        &self,
        chunk: &[(usize, Id, &Transition)],
        outcomes: &mut [Applied],
    ) -> Result<()> {
        let reports: HashMap<Id, (usize, &Transition)> =
            chunk.iter().map(|(at, id, transition)| (*id, (*at, *transition))).collect();
        for chunk in chunk.chunks(AT_ONCE) {
            let ids: Vec<_> = chunk.iter().map(|(_, id, _)| *id).collect();
            // The queue that a report names only spares a look-up; its lease may be made up.
            let (now, mut found) = self.look_everywhere(&ids).await?;
            let rows: Vec<_> = ids.iter().filter_map(|id| found.remove(id)).collect();
            for row in &rows {
                outcomes[reports[&row.id].0] = LOST;
            }
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
        }
        Ok(())
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

/// The result of a success: small, or large.
fn result_of<'a>(success: &Success<'a>) -> (Option<&'a [u8]>, Option<&'a [u8]>) {
    match &success.transition.next.result {
        Some(result) if result.len() > LARGE_BYTES => (None, Some(result)),
        Some(result) => (Some(result), None),
        None => (None, None),
    }
}

fn add_success(call: &mut Call, worker: &WorkerId, success: &Success<'_>) {
    let transition = success.transition;
    let retention_ms = millis(transition.retention);
    let (small, large) = result_of(success);
    let tail = Tail {
        attempts: transition.next.attempts,
        retention_ms,
        took_ms: transition.took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
        run: LastRun {
            entry: success.entry,
            claimed_at: success.claimed_at,
            worker: worker.clone(),
            started_at: None,
        },
        result: small,
    };
    let mut bytes = Vec::with_capacity(96);
    bytes.extend(&retention_ms.to_be_bytes()[2..]);
    bytes.extend(&success.claimed_at.as_millis().to_be_bytes()[2..]);
    bytes.push(u8::from(large.is_some()));
    tail.write(&mut bytes);
    call.add(&success.id.0[..]);
    call.add(success.entry.text());
    call.add(bytes);
    if let Some(result) = large {
        call.add(result);
    }
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
