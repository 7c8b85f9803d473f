//! Claim from memory, and the check whether another store's claim was a permissible one.

use windlass_core::store::{CLAIM_BYTES_MAX, ClaimParams, Quota};
use windlass_core::{
    Claimed, Epoch, Error, ErrorKind, Priority, Reason, Result, State, TaskId, WorkerId,
};

use super::model::{Lane, Model, lane};

impl Model {
    pub(super) fn claim(&mut self, params: &ClaimParams) -> Result<Vec<Claimed>> {
        if !self.is_fit(&params.worker)? {
            return Ok(Vec::new());
        }
        let mut numbers: Vec<i64> = Vec::new();
        let mut suspects_left = params.suspects_at_most;
        let mut bytes_left = CLAIM_BYTES_MAX;
        let is_bounded = self.payload_bytes_max.saturating_mul(params.limit) > CLAIM_BYTES_MAX;
        for quota in &params.quotas {
            let mut left = quota.at_most.min(params.limit - numbers.len());
            if self.is_paused(quota) {
                continue;
            }
            for priority in quota.priorities.descending() {
                // A suspect goes first: at most one or two a claim, they hold up nobody, and a
                // steady stream of others cannot starve them.
                for is_suspect in [true, false] {
                    let most = if is_suspect { left.min(suspects_left) } else { left };
                    let lane = Lane { queue: quota.queue.clone(), priority, is_suspect };
                    let mut found = self.first_of(&lane, most, &numbers);
                    if is_bounded {
                        found.retain(|number| {
                            let is_fit = bytes_left > 0;
                            let bytes = self.rows[number].record.payload.len();
                            bytes_left = bytes_left.saturating_sub(bytes);
                            is_fit
                        });
                    }
                    left -= found.len();
                    suspects_left -= if is_suspect { found.len() } else { 0 };
                    numbers.extend(found);
                }
            }
        }
        Ok(self.lease(&params.worker, &numbers))
    }

    /// Claims just the chosen tasks, if a correct store could have answered so.
    pub(super) fn claim_as(
        &mut self,
        params: &ClaimParams,
        chosen: &[TaskId],
    ) -> Result<Vec<Claimed>> {
        if !self.is_fit(&params.worker)? {
            let nothing = chosen.is_empty();
            return if nothing {
                Ok(Vec::new())
            } else {
                Err(disagree("an overdue worker got tasks"))
            };
        }
        let mut numbers = Vec::new();
        for id in chosen {
            let number =
                *self.ids.get(id).ok_or_else(|| disagree(format!("{id} does not exist")))?;
            let state = self.rows[&number].record.state;
            if state != State::Pending {
                return Err(disagree(format!("{id} is {state}")));
            }
            if numbers.contains(&number) {
                return Err(disagree(format!("{id} was given twice")));
            }
            numbers.push(number);
        }
        let mut given = 0;
        let mut suspects_left = params.suspects_at_most;
        for quota in &params.quotas {
            let mut left = quota.at_most.min(params.limit - given);
            if self.is_paused(quota) {
                continue;
            }
            for priority in quota.priorities.descending() {
                let (count, suspects) =
                    self.check_lane(quota, priority, left, suspects_left, &numbers, given)?;
                left -= count;
                given += count;
                suspects_left -= suspects;
            }
        }
        if given < numbers.len() {
            let id = &chosen[given];
            return Err(disagree(format!("{id} is out of turn, beyond a quota, or not allowed")));
        }
        Ok(self.lease(&params.worker, &numbers))
    }

    /// Checks the part of a choice that was taken from one priority of one queue; answers how many
    /// tasks, and how many suspects among them, it took.
    fn check_lane(
        &self,
        quota: &Quota,
        priority: Priority,
        left: usize,
        suspects_left: usize,
        numbers: &[i64],
        given: usize,
    ) -> Result<(usize, usize)> {
        let lane_of = |is_suspect| Lane { queue: quota.queue.clone(), priority, is_suspect };
        let before = &numbers[..given];
        let taken: Vec<_> = numbers[given..]
            .iter()
            .take(left)
            .take_while(|number| {
                let lane = lane(&self.rows[*number]);
                lane.queue == quota.queue && lane.priority == priority
            })
            .copied()
            .collect();
        let plain = self.first_of(&lane_of(false), usize::MAX, before);
        let suspects = self.first_of(&lane_of(true), usize::MAX, before);
        let expected = left.min(plain.len() + suspects_left.min(suspects.len()));
        if taken.len() != expected {
            return Err(disagree(format!(
                "{} of priority {priority} in {} were given, {expected} were due",
                taken.len(),
                quota.queue,
            )));
        }
        let suspects_taken = taken.iter().filter(|number| suspects.contains(number)).count();
        if suspects_taken > suspects_left {
            return Err(disagree(format!("{suspects_taken} suspects, {suspects_left} allowed")));
        }
        // Work that was given back may stand anywhere; the rest keeps its order.
        let in_order = |number: &&i64| plain.contains(number) && !self.rows[number].was_given_back;
        let fresh_taken: Vec<_> = taken.iter().filter(in_order).collect();
        let fresh_due: Vec<_> = plain.iter().filter(in_order).take(fresh_taken.len()).collect();
        if fresh_taken != fresh_due {
            let names = |numbers: &[&i64]| -> Vec<_> {
                numbers.iter().map(|number| self.rows[number].record.id.to_string()).collect()
            };
            let (got, due) = (names(&fresh_taken), names(&fresh_due));
            return Err(disagree(format!("given in the order {got:?}, due was {due:?}")));
        }
        Ok((taken.len(), suspects_taken))
    }

    /// True when the worker may claim; false when it must beat first.
    fn is_fit(&self, worker: &WorkerId) -> Result<bool> {
        match self.workers.get(worker) {
            Some(known) if known.gone_at.is_none() => Ok(known.lease_until > self.now()),
            _ => Err(Error::lease_lost(format!("claim for worker {worker}"))
                .reason_is(Reason::WorkerLost)),
        }
    }

    fn is_paused(&self, quota: &Quota) -> bool {
        self.queues.get(&quota.queue).is_some_and(|queue| queue.is_paused)
    }

    /// The first of a lane that are not taken yet.
    fn first_of(&self, lane: &Lane, most: usize, taken: &[i64]) -> Vec<i64> {
        let Some(lane) = self.pending.get(lane) else {
            return Vec::new();
        };
        lane.values().filter(|number| !taken.contains(number)).take(most).copied().collect()
    }

    fn lease(&mut self, worker: &WorkerId, numbers: &[i64]) -> Vec<Claimed> {
        if numbers.is_empty() {
            return Vec::new();
        }
        let epoch = self.next_epoch();
        numbers.iter().map(|number| self.lease_one(worker, *number, epoch)).collect()
    }

    fn lease_one(&mut self, worker: &WorkerId, number: i64, epoch: Epoch) -> Claimed {
        let now = self.now();
        let mut row = self.take(number);
        let record = &mut row.record;
        record.state = State::Running;
        record.epoch = Some(epoch);
        record.worker = Some(worker.clone());
        record.attempts += 1;
        record.claimed_at = Some(now);
        record.started_at = None;
        record.updated_at = now;
        record.progress = None;
        let claimed = Claimed {
            id: record.id.clone(),
            epoch,
            kind: record.kind.clone(),
            queue: record.queue.clone(),
            priority: record.priority,
            payload: record.payload.clone(),
            attempts: record.attempts,
            crashes: record.crashes,
            spec: record.spec.clone(),
            is_cancel_requested: record.is_cancel_requested,
            created_at: record.created_at,
            pending_at: row.pending_at,
            claimed_at: now,
        };
        self.put(row);
        claimed
    }
}

fn disagree(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::Conflict, why)
}
