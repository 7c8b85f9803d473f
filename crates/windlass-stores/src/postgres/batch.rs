//! What a transaction is about to write, gathered task by task and written in a few statements.

use std::collections::BTreeMap;

use bytes::Bytes;
use windlass_core::unique::KeyDigest;
use windlass_core::{Priority, QueueName, Result, State, Timestamp};

use super::options::PostgresOptions;
use super::session::Session;
use super::sql;
use crate::wakes::News;

/// Tasks in one range after a crash; the next crash finds a poisoned one among few.
const CRASHED_TOGETHER: i64 = 8;

pub(super) struct Batch {
    pub(super) now: Timestamp,
    pub(super) error_bytes_max: usize,
    ready_together_max: i64,
    pub(super) fates: Vec<Fate>,
    ready: Vec<Ready>,
    waiting: Vec<(Place, i64, bool)>,
    pub(super) no_progress: Vec<i64>,
    pub(super) no_result: Vec<i64>,
    pub(super) forgotten: Vec<i64>,
    /// Keys and the tasks that give them up.
    pub(super) freed: Vec<(KeyDigest, i64)>,
    counts: BTreeMap<(i32, i16), [i32; State::ALL.len()]>,
    /// What there is to tell after the commit.
    pub(super) news: News,
}

/// A row of `fate`.
#[derive(Debug)]
pub(super) struct Fate {
    pub(super) seq: i64,
    pub(super) state: Option<i16>,
    pub(super) attempts: i32,
    pub(super) crashes: i32,
    pub(super) token: Option<i64>,
    pub(super) applied: Option<i64>,
    pub(super) worker: Option<i32>,
    pub(super) claimed_at: Option<i64>,
    pub(super) started_at: Option<i64>,
    pub(super) finished_at: Option<i64>,
    pub(super) expires_at: Option<i64>,
    pub(super) updated_at: i64,
    pub(super) run_at: Option<i64>,
    pub(super) retention_ms: i64,
    pub(super) history: Option<Vec<u8>>,
}

/// Where a task is to wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) seq: i64,
    pub(super) queue: i32,
    pub(super) lane: i16,
    pub(super) bits: i16,
}

#[derive(Debug)]
struct Ready {
    lo: i64,
    hi: i64,
    /// `None` for the end of the lane.
    position: Option<i64>,
    since: i64,
    queue: i32,
    lane: i16,
    bits: i16,
    most: i64,
}

impl Batch {
    pub(super) fn new(now: Timestamp, options: &PostgresOptions) -> Self {
        Self {
            now,
            error_bytes_max: options.limits.error_bytes_max,
            ready_together_max: options.ready_together_max(),
            fates: Vec::new(),
            ready: Vec::new(),
            waiting: Vec::new(),
            no_progress: Vec::new(),
            no_result: Vec::new(),
            forgotten: Vec::new(),
            freed: Vec::new(),
            counts: BTreeMap::new(),
            news: News::default(),
        }
    }

    /// Lets a task wait for a worker: where it stood, or at the end of its lane.
    pub(super) fn make_ready(&mut self, place: Place, stood: Option<(i64, i64)>, crashes: u32) {
        let most = match crashes {
            0 => self.ready_together_max,
            1 => CRASHED_TOGETHER,
            _ => 1,
        };
        let position = stood.map(|(position, _)| position);
        let since = stood.map_or(self.now.as_millis(), |(_, since)| since);
        let Place { seq, queue, lane, bits } = place;
        if let Some(last) = self.ready.last_mut()
            && last.hi + 1 == seq
            && last.hi - last.lo + 1 < most.min(last.most)
            && (last.position, last.since) == (position, since)
            && (last.queue, last.lane, last.bits) == (queue, lane, bits)
        {
            last.hi = seq;
            return;
        }
        self.ready.push(Ready { lo: seq, hi: seq, position, since, queue, lane, bits, most });
    }

    /// Lets a task wait for its time.
    pub(super) fn make_wait(&mut self, place: Place, run_at: i64, is_retry: bool) {
        self.waiting.push((place, run_at, is_retry));
    }

    /// Counts a task into a state (or out of it, when negative).
    pub(super) fn count(&mut self, queue: i32, priority: Priority, state: State, by: i32) {
        let lane = (queue, i16::from(priority.as_number()));
        self.counts.entry(lane).or_default()[state as usize] += by;
    }

    /// Tells, after the commit, that a queue has work.
    pub(super) fn tell_ready(&mut self, queue: &QueueName) {
        if !self.news.ready.contains(queue) {
            self.news.ready.push(queue.clone());
        }
    }

    /// Writes everything; answers what there is to tell after the commit.
    pub(super) async fn write(self, session: &Session) -> Result<News> {
        tokio::try_join!(
            self.write_fates(session),
            self.write_ready(session),
            self.write_waiting(session),
            self.write_counts(session),
            self.write_freed(session),
            drop_rows(session, sql::DROP_PROGRESS, &self.no_progress),
            drop_rows(session, sql::DROP_RESULT, &self.no_result),
        )?;
        drop_rows(session, sql::FORGET, &self.forgotten).await?;
        Ok(self.news)
    }

    async fn write_fates(&self, session: &Session) -> Result<()> {
        if self.fates.is_empty() {
            return Ok(());
        }
        let fates = &self.fates;
        let seqs = column(fates, |fate| fate.seq);
        let states = column(fates, |fate| fate.state);
        let attempts = column(fates, |fate| fate.attempts);
        let crashes = column(fates, |fate| fate.crashes);
        let tokens = column(fates, |fate| fate.token);
        let applied = column(fates, |fate| fate.applied);
        let workers = column(fates, |fate| fate.worker);
        let claimed_at = column(fates, |fate| fate.claimed_at);
        let started_at = column(fates, |fate| fate.started_at);
        let finished_at = column(fates, |fate| fate.finished_at);
        let expires_at = column(fates, |fate| fate.expires_at);
        let updated_at = column(fates, |fate| fate.updated_at);
        let run_at = column(fates, |fate| fate.run_at);
        let retention_ms = column(fates, |fate| fate.retention_ms);
        let cancels = vec![false; fates.len()];
        let histories: Vec<_> = fates.iter().map(|fate| fate.history.as_deref()).collect();
        session
            .execute(
                sql::PUT_FATE,
                &[
                    &seqs,
                    &states,
                    &attempts,
                    &crashes,
                    &tokens,
                    &applied,
                    &workers,
                    &claimed_at,
                    &started_at,
                    &finished_at,
                    &expires_at,
                    &updated_at,
                    &run_at,
                    &retention_ms,
                    &cancels,
                    &histories,
                ],
            )
            .await?;
        Ok(())
    }

    async fn write_ready(&self, session: &Session) -> Result<()> {
        if self.ready.is_empty() {
            return Ok(());
        }
        let ready = &self.ready;
        let positions = column(ready, |range| range.position);
        let (los, his) = (column(ready, |range| range.lo), column(ready, |range| range.hi));
        let sinces = column(ready, |range| range.since);
        let queues = column(ready, |range| range.queue);
        let lanes = column(ready, |range| range.lane);
        let bits = column(ready, |range| range.bits);
        session
            .execute(sql::PUT_READY, &[&positions, &los, &his, &sinces, &queues, &lanes, &bits])
            .await?;
        Ok(())
    }

    async fn write_waiting(&self, session: &Session) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let waiting = &self.waiting;
        let seqs = column(waiting, |(place, _, _)| place.seq);
        let run_at = column(waiting, |(_, run_at, _)| *run_at);
        let queues = column(waiting, |(place, _, _)| place.queue);
        let lanes = column(waiting, |(place, _, _)| place.lane);
        let bits = column(waiting, |(place, _, _)| place.bits);
        let retries = column(waiting, |(_, _, is_retry)| *is_retry);
        session
            .execute(sql::PUT_DEFERRED, &[&seqs, &run_at, &queues, &lanes, &bits, &retries])
            .await?;
        Ok(())
    }

    async fn write_counts(&self, session: &Session) -> Result<()> {
        let is_change = |counts: &[i32; 7]| counts.iter().any(|count| *count != 0);
        let counts: Vec<_> = self.counts.iter().filter(|(_, counts)| is_change(counts)).collect();
        if counts.is_empty() {
            return Ok(());
        }
        let (queues, priorities) = (column(&counts, |(l, _)| l.0), column(&counts, |(l, _)| l.1));
        let of = |state: usize| column(&counts, |(_, counts)| counts[state]);
        session
            .execute(
                sql::PUT_DELTA,
                &[&queues, &priorities, &of(0), &of(1), &of(2), &of(3), &of(4), &of(5), &of(6)],
            )
            .await?;
        Ok(())
    }

    async fn write_freed(&self, session: &Session) -> Result<()> {
        if self.freed.is_empty() {
            return Ok(());
        }
        let digests: Vec<&[u8]> = self.freed.iter().map(|(digest, _)| &digest.0[..]).collect();
        let seqs = column(&self.freed, |(_, seq)| *seq);
        session.execute(sql::KEY_FREE, &[&digests, &seqs]).await?;
        Ok(())
    }
}

async fn drop_rows(session: &Session, text: &'static str, seqs: &Vec<i64>) -> Result<()> {
    if !seqs.is_empty() {
        session.execute(text, &[seqs]).await?;
    }
    Ok(())
}

/// One column of many rows.
pub(super) fn column<T, C>(rows: &[T], read: impl Fn(&T) -> C) -> Vec<C> {
    rows.iter().map(read).collect()
}

/// Bytes as the driver takes them.
pub(super) fn slices(values: &[Bytes]) -> Vec<&[u8]> {
    values.iter().map(|value| &value[..]).collect()
}
