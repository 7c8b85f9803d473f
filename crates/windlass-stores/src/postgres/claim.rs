//! Claim from PostgreSQL.

mod referred;

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio_postgres::Row as SqlRow;
use windlass_core::store::{CLAIM_BYTES_MAX, ClaimParams, Quota};
use windlass_core::task::Extras;
use windlass_core::{Claimed, Error, Kind, QueueName, Reason, Result, Spec, Timestamp, duration};

use super::Shared;
use super::batch::Batch;
use super::error::is_damage;
use super::id::{Id, epoch_of};
use super::names::Known;
use super::outbox::{Made, Reference};
use super::pool::transaction;
use super::row::{self, Row, lane, read_priority, unsigned};
use super::session::Session;
use super::sql;
use crate::claimed::ClaimedTasks;
use crate::damage_log::log_skipped;
use crate::wakes::News;
pub(crate) use referred::{Given, Unused, Wanted};

/// Fewest and most ranges that one statement locks. Those that it does not need are kept from others meanwhile.
pub(super) const RANGES_MIN: i64 = 2;
const RANGES_MAX: i64 = 2_000;
/// How often to look again when tasks are there but locked by another claim, and the pauses in between. They grow, so
/// that hundreds of processes that want tasks of one range do not ask in step. The effect was not measured.
const LOCKED_TRIES: u32 = 16;
const LOCKED_PAUSE: Duration = Duration::from_millis(1);
const LOCKED_PAUSE_MAX: Duration = Duration::from_millis(64);

/// What is still wanted of a claim.
struct Wish<'p> {
    params: &'p ClaimParams,
    left: usize,
    suspects_left: usize,
    /// How many bytes of payloads until it stops.
    bytes_left: usize,
    /// Beside the quotas: how much of each was given.
    given: Vec<usize>,
}

/// Lanes in the order of claiming.
#[derive(Default)]
struct Lanes {
    names: Vec<String>,
    lanes: Vec<i16>,
    quotas: Vec<i32>,
    most: Vec<i64>,
    hints: Vec<i64>,
    rows: Vec<i64>,
    /// The last position to look at, and the first number of the only range to take, if it is one.
    untils: Vec<i64>,
    firsts: Vec<Option<i64>>,
}

/// A claimed row, as far as it could be read.
struct Taken {
    order: (i64, i64, i64),
    quota: usize,
    token: i64,
    task: Claimed,
    fault: Option<String>,
    /// What was left of its range.
    rest: Option<Made>,
}

/// The pause after so many looks at tasks that others have locked; `unit` is a random number from 0 to 1.
fn locked_pause(tries: u32, unit: f64) -> Duration {
    let longest = LOCKED_PAUSE * 2_u32.saturating_pow(tries.saturating_sub(1));
    longest.min(LOCKED_PAUSE_MAX).mul_f64(0.5 + unit / 2.0)
}

impl Shared {
    pub(super) async fn claim(
        &self,
        session: &Session,
        params: &ClaimParams,
    ) -> Result<ClaimedTasks> {
        let mut wish = Wish::new(params);
        if params.quotas.is_empty() {
            self.check_worker(session, params, &Lanes::default()).await?;
        }
        let mut tasks: Vec<Claimed> = Vec::new();
        // A queue that is named again waits for its first turn: one statement must not meet a range
        // twice.
        for segment in segments(&params.quotas) {
            if wish.bytes_left == 0 {
                break;
            }
            let claimed = match self.claim_segment(session, &mut wish, &segment, &mut tasks).await {
                Err(error) if is_damage(&error) => {
                    self.claim_one_by_one(session, &mut wish, &segment, &mut tasks).await
                }
                claimed => claimed,
            };
            match claimed {
                Ok(()) => {}
                // What was claimed before must not be lost with the rest.
                Err(error) if tasks.is_empty() => return Err(error),
                Err(error) => {
                    tracing::warn!(error = error.chain(), "a claim was cut short");
                    return Ok(ClaimedTasks { tasks, is_cut_short: true });
                }
            }
        }
        Ok(ClaimedTasks { tasks, is_cut_short: false })
    }

    /// Looks now and then whether dead rows are in the way of claims.
    fn watch_dead_rows(&self) {
        if !self.hints.is_time_to_look() {
            return;
        }
        let Some(shared) = self.this.upgrade() else { return };
        tokio::spawn(async move {
            let looked = async {
                // Not in the pool: in a burst, hundreds of processes would each make a connection for it.
                shared.work.session().await?.one(sql::CLAIM_SNAPSHOTS, &[]).await
            };
            match looked.await {
                Ok(row) => shared.hints.use_them(row.is_some_and(|row| row.get(0))),
                Err(error) => tracing::debug!(error = error.chain(), "dead rows not looked for"),
            }
        });
    }

    /// Claims from the queues of a segment by a statement each, and skips those with rows that no claim can take.
    async fn claim_one_by_one(
        &self,
        session: &Session,
        wish: &mut Wish<'_>,
        quotas: &[usize],
        tasks: &mut Vec<Claimed>,
    ) -> Result<()> {
        for at in quotas {
            match self.claim_segment(session, wish, &[*at], tasks).await {
                Err(error) if is_damage(&error) => {
                    log_skipped(&wish.params.quotas[*at].queue, &error.chain());
                }
                claimed => claimed?,
            }
        }
        Ok(())
    }

    /// Claims from queues that are each named once; what was claimed is in `tasks` also after an error.
    async fn claim_segment(
        &self,
        session: &Session,
        wish: &mut Wish<'_>,
        quotas: &[usize],
        tasks: &mut Vec<Claimed>,
    ) -> Result<()> {
        let mut ranges = self.claim_ranges.load(Ordering::Relaxed);
        let before = tasks.len();
        let mut tries = 0;
        loop {
            let mut lanes = wish.lanes(quotas);
            let is_hinted = self.hints.fill(&lanes.names, &lanes.lanes, &mut lanes.hints);
            if lanes.names.is_empty() {
                if tasks.len() == before {
                    self.check_worker(session, wish.params, &lanes).await?;
                }
                return Ok(());
            }
            let asked_at = Instant::now();
            let rows = self.claim_rows(session, wish, &lanes, ranges).await?;
            if !is_hinted {
                self.hints.walked_from_front(asked_at.elapsed());
            }
            let Some(first) = rows.first() else {
                if is_hinted {
                    self.hints.forget();
                    continue;
                }
                let is_locked = self.check_worker(session, wish.params, &lanes).await?;
                tries += 1;
                if !is_locked || tasks.len() > before || tries > LOCKED_TRIES {
                    return Ok(());
                }
                tokio::time::sleep(locked_pause(tries, fastrand::f64())).await;
                continue;
            };
            self.watch_dead_rows();
            let locked: i64 = first.get(2);
            let found = self.read_rows(session, &lanes, &rows).await?;
            let used: HashSet<_> =
                found.iter().map(|taken| (taken.order.0, taken.order.1)).collect();
            let wanted = i64::try_from(used.len()).unwrap_or(RANGES_MAX) * 2;
            self.claim_ranges.store(wanted.clamp(RANGES_MIN, RANGES_MAX), Ordering::Relaxed);
            for (order, position) in used {
                let at = usize::try_from(order - 1).unwrap_or(0);
                self.hints.note(&lanes.names[at], lanes.lanes[at], position);
            }
            self.take_over(wish, found, tasks).await?;
            if wish.left == 0 || wish.bytes_left == 0 {
                return Ok(());
            }
            if locked < ranges {
                if !is_hinted {
                    return Ok(());
                }
                // There may be more before the hints.
                self.hints.forget();
                continue;
            }
            ranges = (ranges * 4).min(RANGES_MAX);
        }
    }

    async fn claim_rows(
        &self,
        session: &Session,
        wish: &Wish<'_>,
        lanes: &Lanes,
        ranges: i64,
    ) -> Result<Vec<SqlRow>> {
        let text = match self.options.outbox {
            Some(_) => &sql::CLAIM_NOTING,
            None => sql::CLAIM,
        };
        session
            .all(
                text,
                &[
                    &self.options.told_time(),
                    &wish.params.worker.as_str(),
                    &as_i64(wish.left),
                    &as_i64(wish.suspects_left),
                    &ranges,
                    &lanes.names,
                    &lanes.lanes,
                    &lanes.quotas,
                    &lanes.most,
                    &lanes.hints,
                    &lanes.rows,
                    &lanes.untils,
                    &lanes.firsts,
                    &as_i64(wish.bytes_left),
                ],
            )
            .await
    }

    /// Reads what `claim.sql` returns, in the order of claiming.
    async fn read_rows(
        &self,
        session: &Session,
        lanes: &Lanes,
        rows: &[SqlRow],
    ) -> Result<Vec<Taken>> {
        let kinds = self.kinds.learn_names(session, rows.iter().map(|row| row.get(11))).await?;
        let mut taken: Vec<_> = rows.iter().map(|row| read(row, lanes, &kinds)).collect();
        taken.sort_unstable_by_key(|taken| taken.order);
        Ok(taken)
    }

    /// Takes over what was claimed: what can be read goes to `tasks`.
    async fn take_over(
        &self,
        wish: &mut Wish<'_>,
        found: Vec<Taken>,
        tasks: &mut Vec<Claimed>,
    ) -> Result<()> {
        let (mut faulty, mut rests) = (Vec::new(), Vec::new());
        for taken in found {
            wish.left -= 1;
            wish.suspects_left -= usize::from(taken.task.is_suspect());
            wish.bytes_left = wish.bytes_left.saturating_sub(taken.task.payload.len());
            wish.given[taken.quota] += 1;
            rests.extend(taken.rest);
            match taken.fault {
                None => tasks.push(taken.task),
                Some(fault) => faulty.push((taken.token, taken.task, fault)),
            }
        }
        if let Some(outbox) = &self.options.outbox {
            outbox.note_rests(rests);
        }
        for (token, task, fault) in faulty {
            self.set_aside(token, &task, fault).await?;
        }
        Ok(())
    }

    /// Refuses a worker that is unknown or gone; true when tasks are there that others have locked.
    async fn check_worker(
        &self,
        session: &Session,
        params: &ClaimParams,
        lanes: &Lanes,
    ) -> Result<bool> {
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
            [&params.worker.as_str(), &lanes.names, &lanes.lanes];
        let row = session.one(sql::CLAIM_PROBE, &values).await?;
        let (is_known, has_tasks) =
            row.map_or((false, false), |row| (row.get::<_, bool>(0), row.get::<_, bool>(1)));
        if !is_known {
            return Err(Error::lease_lost(format!("claim for worker {}", params.worker))
                .reason_is(Reason::WorkerLost));
        }
        Ok(has_tasks)
    }

    /// A record that cannot be read goes to the dead letters, where a person will find it: it must
    /// not stop the tasks behind it.
    async fn set_aside(&self, token: i64, task: &Claimed, fault: String) -> Result<()> {
        let Some(id) = Id::of(&task.id) else { return Ok(()) };
        let news: News = transaction!(self.pool, session => async {
            let now = self.now(session).await?;
            let mut batch = Batch::new(now, &self.options);
            let found = row::take_held(session, &[(token, id.seq)]).await?;
            for row in Row::load(session, found).await? {
                row.discard(&mut batch, fault.clone());
            }
            batch.write(session).await
        })?;
        self.tell(news);
        Ok(())
    }
}

impl<'p> Wish<'p> {
    fn new(params: &'p ClaimParams) -> Self {
        Self {
            params,
            left: params.limit,
            suspects_left: params.suspects_at_most,
            bytes_left: CLAIM_BYTES_MAX,
            given: vec![0; params.quotas.len()],
        }
    }

    /// The lanes of some quotas that may still give something. In each priority suspects go first:
    /// few are allowed, so they hold up nobody, and a steady stream of others cannot starve them.
    fn lanes(&self, quotas: &[usize]) -> Lanes {
        let mut all = Lanes::default();
        for at in quotas {
            let quota = &self.params.quotas[*at];
            let most = quota.at_most.saturating_sub(self.given[*at]).min(self.left);
            if most == 0 {
                continue;
            }
            for priority in quota.priorities.descending() {
                for crashes in [windlass_core::task::SUSPECT_CRASHES, 0] {
                    let rows = if crashes > 0 { most.min(self.suspects_left) } else { most };
                    if rows == 0 {
                        continue;
                    }
                    all.names.push(quota.queue.as_str().to_owned());
                    all.lanes.push(lane(priority, crashes));
                    all.quotas.push(i32::try_from(*at).unwrap_or(i32::MAX));
                    all.most.push(as_i64(most));
                    all.hints.push(0);
                    all.rows.push(as_i64(rows));
                    all.untils.push(i64::MAX);
                    all.firsts.push(None);
                }
            }
        }
        all
    }
}

/// Reads one row of `claim.sql`.
fn read(row: &SqlRow, lanes: &Lanes, kinds: &Known) -> Taken {
    let (token, now): (i64, i64) = (row.get(0), row.get(1));
    let (order, position): (i64, i64) = (row.get(3), row.get(4));
    let at = usize::try_from(order - 1).unwrap_or(0);
    let quota = usize::try_from(lanes.quotas[at]).unwrap_or(0);
    let id = Id { seq: row.get(5), stamp: row.get(6) };
    let mut fault = None;
    let stored: &[u8] = row.get(15);
    let extras = match stored.is_empty() {
        true => Extras::default(),
        false => serde_json::from_slice(stored).unwrap_or_else(|error| {
            fault = Some(format!("its stored options cannot be read: {error}"));
            Extras::default()
        }),
    };
    let kind = kinds.name(row.get(11)).unwrap_or_else(|| {
        fault.get_or_insert_with(|| "its kind is not known".to_owned());
        ""
    });
    let (priority, strange) = read_priority(row.get(14));
    fault = fault.or(strange);
    let retention: Option<i64> = row.get(19);
    let task = Claimed {
        id: id.task_id(),
        epoch: epoch_of(token),
        kind: Kind::stored(kind),
        queue: QueueName::stored(&lanes.names[at]),
        priority,
        payload: Bytes::copy_from_slice(row.get(16)),
        attempts: unsigned(row.get(17)) + 1,
        crashes: unsigned(row.get(18)),
        spec: Spec {
            max_retries: unsigned(row.get(12)),
            max_crashes: unsigned(row.get(13)),
            timeout: duration::from_millis(row.get(8)),
            retention: duration::from_millis(retention.unwrap_or_else(|| row.get(9))),
            extras,
        },
        is_cancel_requested: false,
        created_at: Timestamp::from_millis(row.get(7)),
        pending_at: Timestamp::from_millis(row.get(22)),
        claimed_at: Timestamp::from_millis(now),
    };
    let rest = |hi: i64| Made {
        transaction: row.get::<_, Option<i64>>(21).unwrap_or_default(),
        reference: Reference {
            queue: row.get(10),
            lane: lanes.lanes[at],
            position,
            lo: id.seq + 1,
            hi,
        },
    };
    let rest = row.get::<_, Option<i64>>(20).map(rest);
    Taken { order: (order, position, id.seq), quota, token, task, fault, rest }
}

/// Quotas in groups in which no queue is named twice.
pub(crate) fn segments(quotas: &[Quota]) -> Vec<Vec<usize>> {
    let mut segments: Vec<Vec<usize>> = Vec::new();
    let mut met = HashSet::new();
    for (at, quota) in quotas.iter().enumerate() {
        if met.contains(&quota.queue) || segments.is_empty() {
            met.clear();
            segments.push(Vec::new());
        }
        met.insert(&quota.queue);
        if let Some(last) = segments.last_mut() {
            last.push(at);
        }
    }
    segments
}

fn as_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_at_locked_tasks_grow_and_vary() {
        assert_eq!(locked_pause(1, 1.0), LOCKED_PAUSE);
        assert_eq!(locked_pause(1, 0.0), LOCKED_PAUSE / 2);
        assert_eq!(locked_pause(4, 1.0), LOCKED_PAUSE * 8);
        assert_eq!(locked_pause(LOCKED_TRIES, 1.0), LOCKED_PAUSE_MAX);
        assert_eq!(locked_pause(u32::MAX, 0.0), LOCKED_PAUSE_MAX / 2);
    }
}
