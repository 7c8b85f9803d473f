//! Reports of ended runs, on asynq's keys.

use std::collections::HashMap;

use futures_util::future::join_all;
use windlass_core::store::{Applied, ApplyParams, ApplyReply, Refusal, WakeMark};
use windlass_core::{Epoch, Error, QueueName, Result, State, TaskId, Transition};

use super::claim::is_served;
use super::moves::{Reported, RunEnd};
use super::record::{Done, Own};
use super::row::Row;
use super::{AT_ONCE, Shared, damage, scripts};
use crate::redis::asking::{Asking, Claiming, LeaseKnown};
use crate::redis::options::millis;
use crate::redis::reply::{Reply, Sort, next};
use crate::redis::script::Call;
use crate::wakes::News;

/// Where the first queue stands among the arguments of a script that reports successes.
const FIRST_QUEUE_AT: usize = 4;
/// How many arguments a run is there.
const RUN_PARTS: usize = 6;

const GONE: Applied = Applied::Refused(Refusal::Gone);
const LOST: Applied = Applied::Refused(Refusal::LeaseLost);

/// A report, and where its answer goes.
#[derive(Clone, Copy)]
struct Report<'a> {
    at: usize,
    transition: &'a Transition,
}

/// Successes of one queue.
struct Group<'a> {
    queue: &'a QueueName,
    reports: Vec<Report<'a>>,
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
        let waves = waves(params);
        let (last_wave, earlier) = match waves.split_last() {
            Some((last, earlier)) => (&last[..], earlier),
            None => (&[][..], &[][..]),
        };
        for wave in earlier {
            self.apply_wave(wave, None, &mut outcomes).await?;
        }
        let has_success = last_wave.iter().any(|report| report.is_success());
        let mut behind = match &params.then_claim {
            Some(claim) if has_success => match self.fleet.lease_of(&claim.worker).await {
                Ok(lease) => {
                    Some(Behind { asking: Asking::new(claim, is_served), lease, rows: None })
                }
                Err(_) => None,
            },
            _ => None,
        };
        self.apply_wave(last_wave, behind.as_mut(), &mut outcomes).await?;
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

    /// Reports of which none is of the same task as another. A claim goes with the last call of successes,
    /// when everything else is done.
    async fn apply_wave(
        &self,
        wave: &[Report<'_>],
        behind: Option<&mut Behind>,
        outcomes: &mut [Applied],
    ) -> Result<()> {
        let (successes, others): (Vec<_>, Vec<_>) =
            wave.iter().copied().partition(|report| report.is_success());
        for chunk in others.chunks(AT_ONCE) {
            self.apply_others(chunk, outcomes).await?;
        }
        let (mut last, count) = (behind, successes.chunks(AT_ONCE).len());
        let calls = successes.chunks(AT_ONCE).enumerate().map(|(number, chunk)| {
            let behind = if number + 1 == count { last.take() } else { None };
            self.apply_successes(chunk, behind)
        });
        // One behind the other, without waiting for answers in between.
        for told in join_all(calls).await {
            for (at, outcome) in told? {
                outcomes[at] = outcome;
            }
        }
        // The queue that a report names only spares a look-up: it may be in another.
        let is_missing = |report: &&Report<'_>| outcomes[report.at] == GONE;
        let missing: Vec<_> = successes.iter().filter(is_missing).copied().collect();
        self.judge_elsewhere(&missing, outcomes).await
    }

    async fn apply_successes(
        &self,
        chunk: &[Report<'_>],
        mut behind: Option<&mut Behind>,
    ) -> Result<Vec<(usize, Applied)>> {
        let mut outcomes = Vec::with_capacity(chunk.len());
        let groups = Group::of(chunk);
        let is_cluster = self.options().is_cluster();
        for groups in self.fleet.by_slot(&groups) {
            let mut queues: Vec<QueueName> =
                groups.iter().map(|group| group.queue.clone()).collect();
            // On a Cluster another queue's claim is another call.
            let claims =
                behind.as_deref_mut().filter(|behind| !is_cluster && !behind.asking.is_served());
            if let Some(behind) = &claims {
                for queue in behind.asking.queues(is_cluster) {
                    if !queues.contains(&queue) {
                        queues.push(queue);
                    }
                }
            }
            let stems = match claims {
                Some(_) => self.claim_stems(&queues),
                None => queues.iter().map(|queue| self.stem(queue)).collect(),
            };
            let mut call = scripts::APPLY.on(&stems).arg(self.options().told_time());
            let parts: usize = groups.iter().map(|group| 2 + group.reports.len() * RUN_PARTS).sum();
            call.add(if claims.is_some() { FIRST_QUEUE_AT + parts } else { 0 });
            call.add(groups.len());
            for (at, group) in groups.iter().enumerate() {
                group.add_to(&mut call, at + 1);
            }
            if let Some(behind) = &claims {
                behind.asking.add_to::<Self>(&mut call, &queues, behind.lease, self.options());
            }
            let mut reply = self.ask(call).await?.list()?;
            let now = next(&mut reply, "apply")?.time()?;
            let claimed = next(&mut reply, "apply")?;
            let mut news = News::default();
            for group in groups {
                let told = match damage::damage_in(next(&mut reply, "apply")?)? {
                    Ok(told) => group.read(told)?,
                    Err(why) => {
                        damage::log(group.queue, &why);
                        vec![Applied::Unrecorded; group.reports.len()]
                    }
                };
                for (report, outcome) in group.reports.iter().zip(told) {
                    if matches!(outcome, Applied::Applied(_)) {
                        let task = &report.transition.lease.task;
                        self.presence.ended(group.queue, task.as_str());
                        news.ended.push(task.clone());
                    }
                    outcomes.push((report.at, outcome));
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

    /// Reports that have to be looked at first.
    async fn apply_others(&self, chunk: &[Report<'_>], outcomes: &mut [Applied]) -> Result<()> {
        let mut by_queue: HashMap<&QueueName, Vec<Report<'_>>> = HashMap::new();
        for report in chunk {
            by_queue.entry(&report.transition.queue).or_default().push(*report);
        }
        let mut missing = Vec::new();
        for (queue, reports) in by_queue {
            let applied = self.apply_others_in(queue, &reports, outcomes).await;
            match damage::skip(queue, applied)? {
                Some(not_there) => missing.extend(not_there),
                None => reports.iter().for_each(|report| {
                    outcomes[report.at] = Applied::Unrecorded;
                }),
            }
        }
        self.judge_elsewhere(&missing, outcomes).await
    }

    /// The same in one queue; answers which tasks are not there.
    async fn apply_others_in<'a>(
        &self,
        queue: &QueueName,
        reports: &[Report<'a>],
        outcomes: &mut [Applied],
    ) -> Result<Vec<Report<'a>>> {
        let by_id: HashMap<&TaskId, Report<'_>> =
            reports.iter().map(|report| (&report.transition.lease.task, *report)).collect();
        let ids: Vec<_> = by_id.keys().map(|id| (*id).clone()).collect();
        let (now, rows) = self.look(queue, &ids).await?;
        // One that is gone when it is looked at again is neither judged nor placed: it stays gone.
        let is_missing =
            |report: &&Report<'_>| !rows.iter().any(|row| row.id == report.transition.lease.task);
        let missing = reports.iter().filter(is_missing).copied().collect();
        let judged = parking_lot::Mutex::new(HashMap::new());
        let placed = self
            .decide_at(now, rows, None, |row, now, error_bytes_max| {
                let Report { at, transition } = by_id[&row.id];
                let epoch = transition.lease.epoch;
                let refused = if row.is_applied(epoch) {
                    Some(Applied::Already)
                } else if row.is_damaged() {
                    Some(Applied::Unrecorded)
                } else if !row.is_own_run() || row.epoch() != Some(epoch) {
                    Some(LOST)
                } else {
                    None
                };
                if let Some(refused) = refused {
                    judged.lock().insert(at, refused);
                    return None;
                }
                let state = transition.chosen_state(row.is_cancel_requested);
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
                outcomes[by_id[&placed.id].at] = Applied::Applied(state);
            }
        }
        Ok(missing)
    }

    /// Judges reports of tasks that are not in the queue that they name: none of them can be valid.
    async fn judge_elsewhere(
        &self,
        missing: &[Report<'_>],
        outcomes: &mut [Applied],
    ) -> Result<()> {
        if missing.is_empty() {
            return Ok(());
        }
        let ids: Vec<_> =
            missing.iter().map(|report| report.transition.lease.task.clone()).collect();
        let (_, found) = self.look_everywhere(&ids, false).await?;
        for report in missing {
            let lease = &report.transition.lease;
            outcomes[report.at] = match found.get(&lease.task) {
                None => GONE,
                Some(row) if row.is_applied(lease.epoch) => Applied::Already,
                Some(_) => LOST,
            };
        }
        Ok(())
    }
}

impl Report<'_> {
    fn is_success(&self) -> bool {
        self.transition.next.state == State::Completed
    }
}

impl<'a> Group<'a> {
    fn of(reports: &[Report<'a>]) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        for report in reports {
            let queue = &report.transition.queue;
            match groups.iter_mut().find(|group| group.queue == queue) {
                Some(group) => group.reports.push(*report),
                None => groups.push(Self { queue, reports: vec![*report] }),
            }
        }
        groups
    }

    /// Adds it to a call; `queue` is the number of its queue there.
    fn add_to(&self, call: &mut Call, queue: usize) {
        call.add(queue);
        call.add(self.reports.len());
        for Report { transition, .. } in &self.reports {
            call.add(transition.lease.task.as_str());
            call.add(transition.lease.epoch.0.to_string());
            call.add(millis(transition.retention));
            match transition.took {
                Some(took) => call.add(u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
                None => call.add("-"),
            }
            let result = transition.next.result.as_deref();
            call.add(u8::from(result.is_some()));
            call.add(result.unwrap_or_default());
        }
    }

    /// What the script says of each.
    fn read(&self, told: Reply) -> Result<Vec<Applied>> {
        if told.is_number(1) {
            return Ok(vec![Applied::Applied(State::Completed); self.reports.len()]);
        }
        let mut told = told.list()?;
        let judged = |report: &Report<'_>| {
            judge(report.transition.lease.epoch, next(&mut told, "apply")?.sort()?)
        };
        self.reports.iter().map(judged).collect()
    }
}

/// What the answer to a success means.
fn judge(epoch: Epoch, told: Sort) -> Result<Applied> {
    match told {
        Sort::Number(1) => Ok(Applied::Applied(State::Completed)),
        Sort::Number(_) => Ok(GONE),
        Sort::List(mut parts) => {
            let own = Own::read(&next(&mut parts, "apply")?.bytes()?).unwrap_or_default();
            let done = Done::read(&next(&mut parts, "apply")?.bytes()?);
            let is_this = |number: u64| number > 0 && u128::from(number) == epoch.0;
            let is_applied = is_this(own.applied) || done.is_some_and(|done| is_this(done.number));
            Ok(if is_applied { Applied::Already } else { LOST })
        }
        Sort::Bytes(_) => Err(Error::corrupt("apply in redis: bytes for an answer")),
    }
}

/// Splits reports so that no task is twice in one wave, in their order.
fn waves(params: &ApplyParams) -> Vec<Vec<Report<'_>>> {
    let transitions = &params.transitions;
    let mut waves: Vec<Vec<_>> = Vec::new();
    let mut counts: HashMap<&TaskId, usize> = HashMap::with_capacity(transitions.len());
    for (at, transition) in transitions.iter().enumerate() {
        let wave = counts.entry(&transition.lease.task).or_default();
        if waves.len() <= *wave {
            waves.push(Vec::with_capacity(transitions.len()));
        }
        waves[*wave].push(Report { at, transition });
        *wave += 1;
    }
    waves
}
