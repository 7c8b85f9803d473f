//! Lists on Redis Streams: a walk down the journals of all queues, newest submit first; dead letters by
//! their own index.
//!
//! A journal has one entry for each submit of one or more tasks, under the server's time in µs. Tasks of
//! one call share it and are told apart by their place in the call. The index of dead letters has the same
//! time as its score; their places are in their records.

use std::collections::{HashMap, VecDeque};

use windlass_core::store::{Filter, ListParams, Page, Parts};
use windlass_core::{Error, QueueName, Result, State, Timestamp};

use super::id::Id;
use super::row::Row;
use super::{AT_ONCE, Shared, keys};
use crate::reading::{SCAN_MAX, matches};
use crate::redis::cursor;
use crate::redis::error::{in_queue, strange};
use crate::redis::reply::{Reply, next};
use crate::redis::troubles::skip;

/// How many entries of a journal are read at once.
const ENTRIES: usize = 100;
/// How many dead letters are read at once: more than one call can have submitted.
const DEAD_LETTERS: usize = 2 * AT_ONCE;

/// Where a task stands in the order of submits: µs, place in the call, queue.
type Position = (u64, u8, QueueName);

/// The tasks that one step of a walk has found, and where it goes on.
#[derive(Default)]
pub(super) struct Walk {
    pub(super) now: Timestamp,
    pub(super) rows: Vec<Row>,
    /// Ids of unreadable records in the batches of this step.
    pub(super) unreadable: Vec<Id>,
    pub(super) next_cursor: Option<String>,
}

/// Where a walk finds its tasks.
#[derive(Clone, Copy, PartialEq)]
enum Source {
    Journal,
    DeadLetters,
}

/// One queue's journal or index as it is read, from its newest entry down.
struct Reel {
    queue: QueueName,
    /// The caller asked for this queue and for no other.
    is_named: bool,
    source: Source,
    /// What was read and not looked at yet; the last is the oldest.
    read: VecDeque<(Position, Id)>,
    /// Entries from this one down are still to be read; nothing when all are.
    below: Option<String>,
}

impl Shared {
    pub(super) async fn list(&self, params: &ListParams) -> Result<Page> {
        let walk = self.walk(&params.filter, params.cursor.as_deref(), params.limit).await?;
        let tasks = walk.rows.into_iter().map(|row| row.into_record(Parts::NONE)).collect();
        Ok(Page { tasks, next_cursor: walk.next_cursor })
    }

    /// One bounded step of a walk from the newest task down.
    pub(super) async fn walk(
        &self,
        filter: &Filter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Walk> {
        let last = cursor.map(read_cursor).transpose()?;
        if limit == 0 {
            return Err(Error::invalid("a page needs a limit of at least 1"));
        }
        let is_named = filter.queue.is_some();
        let queues = match &filter.queue {
            Some(queue) => vec![queue.clone()],
            None => self.all_queues().await?,
        };
        let is_of_dead = filter.states == [State::DeadLetter];
        let (source, top) = match is_of_dead {
            true => (Source::DeadLetters, "+inf"),
            false => (Source::Journal, "+"),
        };
        let below = last.as_ref().map_or_else(|| top.to_owned(), |(micros, ..)| micros.to_string());
        let mut reels: Vec<_> = queues
            .into_iter()
            .map(|queue| Reel {
                queue,
                is_named,
                source,
                read: VecDeque::new(),
                below: Some(below.clone()),
            })
            .collect();
        let mut walk = Walk { now: self.fleet.now().await?, ..Walk::default() };
        let (mut scanned, mut reached) = (0, last.clone());
        loop {
            let most = limit.saturating_mul(2).clamp(20, AT_ONCE);
            let batch = self.next_batch(&mut reels, last.as_ref(), most).await?;
            if batch.is_empty() {
                return Ok(walk);
            }
            scanned += batch.len();
            let mut rows = self.look_at(&batch, is_named, &mut walk).await?;
            for (position, id) in batch {
                if walk.rows.len() >= limit {
                    walk.next_cursor = reached.as_ref().map(write_cursor);
                    return Ok(walk);
                }
                let found = rows.remove(&(position.2.clone(), id));
                // A task that was deleted and submitted again stands where it was submitted last.
                let is_here = |row: &Row| row.record.head.submitted == (position.0, position.1);
                if let Some(row) = found.filter(is_here)
                    && !row.record.head.is_over(walk.now)
                    && matches(filter, &row.clone().into_record(Parts::NONE))
                {
                    walk.rows.push(row);
                }
                reached = Some(position);
            }
            if scanned >= SCAN_MAX {
                walk.next_cursor = reached.as_ref().map(write_cursor);
                return Ok(walk);
            }
        }
    }

    /// The next tasks of all journals in the order of their submits.
    async fn next_batch(
        &self,
        reels: &mut [Reel],
        last: Option<&Position>,
        most: usize,
    ) -> Result<Vec<(Position, Id)>> {
        let mut batch = Vec::new();
        while batch.len() < most {
            for reel in reels.iter_mut() {
                while reel.read.is_empty() && reel.below.is_some() {
                    // Its end is already noted: a queue that cannot be used is left out.
                    let read = self.read_on(reel, last).await;
                    let read = read.map_err(|error| in_queue(&reel.queue, error));
                    if reel.is_named { read? } else { skip(&reel.queue, read)?.unwrap_or_default() }
                }
            }
            let newest = reels
                .iter_mut()
                .filter(|reel| !reel.read.is_empty())
                .max_by(|one, other| one.read[0].0.cmp(&other.read[0].0));
            let Some(found) = newest.and_then(|reel| reel.read.pop_front()) else { break };
            batch.push(found);
        }
        Ok(batch)
    }

    async fn read_on(&self, reel: &mut Reel, last: Option<&Position>) -> Result<()> {
        let Some(below) = reel.below.take() else { return Ok(()) };
        match reel.source {
            Source::Journal => self.read_journal(reel, &below, last).await,
            Source::DeadLetters => self.read_dead_letters(reel, &below, last).await,
        }
    }

    async fn read_journal(
        &self,
        reel: &mut Reel,
        below: &str,
        last: Option<&Position>,
    ) -> Result<()> {
        let mut command = redis::cmd("XREVRANGE");
        command.arg(keys::journal(&self.stem(&reel.queue))).arg(below).arg("-");
        command.arg("COUNT").arg(ENTRIES);
        let value = self.fleet.link.command("read a journal", &command).await?;
        let entries = Reply::new("read a journal", value).list()?;
        let count = entries.len();
        for entry in entries {
            let mut parts = entry.list()?;
            let number = next(&mut parts, "read a journal")?.text()?;
            let micros = number.split('-').next().and_then(|text| text.parse().ok());
            let micros: u64 = micros.ok_or_else(|| strange("read a journal"))?;
            let mut fields = next(&mut parts, "read a journal")?.list()?;
            let _name = next(&mut fields, "read a journal")?;
            let text = next(&mut fields, "read a journal")?.bytes()?;
            let mut places: Vec<_> = text
                .chunks_exact(17)
                .filter_map(|part| Some((part[0], Id::from_stored(&part[1..])?)))
                .collect();
            places.sort_unstable_by_key(|(place, _)| std::cmp::Reverse(*place));
            for (place, id) in places {
                let position = (micros, place, reel.queue.clone());
                if last.is_none_or(|last| position < *last) {
                    reel.read.push_back((position, id));
                }
            }
            if count == ENTRIES {
                reel.below = Some(format!("({number}"));
            }
        }
        Ok(())
    }

    async fn read_dead_letters(
        &self,
        reel: &mut Reel,
        below: &str,
        last: Option<&Position>,
    ) -> Result<()> {
        let mut command = redis::cmd("ZREVRANGEBYSCORE");
        command.arg(keys::dead(&self.stem(&reel.queue))).arg(below).arg("-inf");
        command.arg("WITHSCORES").arg("LIMIT").arg(0).arg(DEAD_LETTERS);
        let value = self.fleet.link.command("read dead letters", &command).await?;
        let mut parts = Reply::new("read dead letters", value).list()?;
        let mut found = Vec::new();
        while let (Some(id), Some(score)) = (parts.next(), parts.next()) {
            found.push((score.number()?, Id::from_stored(&id.bytes()?)));
        }
        if let (DEAD_LETTERS, Some((cut, _))) = (found.len(), found.last().copied()) {
            // Of the last call that is named here, some may be missing: it is read again, as a whole.
            // No call has submitted as many as are read at once.
            let is_of_one = found[0].0 == cut;
            reel.below = Some(if is_of_one { format!("({cut}") } else { cut.to_string() });
            found.retain(|(score, _)| is_of_one || *score != cut);
        }
        // What is no id is for `tend` to remove.
        let ids: Vec<_> = found.into_iter().filter_map(|(_, id)| id).collect();
        let (_, rows) = self.look(&reel.queue, &ids).await?;
        let place = |row: &Row| {
            let (micros, place) = row.record.head.submitted;
            ((micros, place, reel.queue.clone()), row.id)
        };
        let mut places: Vec<_> = rows.iter().map(place).collect();
        places.retain(|(position, _)| last.is_none_or(|last| position < last));
        places.sort_unstable_by(|one, other| other.cmp(one));
        reel.read.extend(places);
        Ok(())
    }

    /// Looks at a batch; adds the time and the unreadable records to the walk.
    async fn look_at(
        &self,
        batch: &[(Position, Id)],
        is_named: bool,
        walk: &mut Walk,
    ) -> Result<HashMap<(QueueName, Id), Row>> {
        let mut by_queue: HashMap<&QueueName, Vec<Id>> = HashMap::new();
        for ((_, _, queue), id) in batch {
            by_queue.entry(queue).or_default().push(*id);
        }
        let mut rows = HashMap::new();
        for (queue, ids) in by_queue {
            let look = self.look_for_damage(queue, &ids).await;
            let look = if is_named { Some(look?) } else { skip(queue, look)? };
            let Some(look) = look else { continue };
            walk.now = walk.now.max(look.now);
            walk.unreadable.extend(look.unreadable);
            rows.extend(look.rows.into_iter().map(|row| ((queue.clone(), row.id), row)));
        }
        Ok(rows)
    }
}

fn write_cursor((micros, place, queue): &Position) -> String {
    cursor::write(format!("{micros}.{place}.{queue}"))
}

fn read_cursor(text: &str) -> Result<Position> {
    cursor::read(text, |written| {
        let (micros, rest) = written.split_once('.')?;
        let (place, queue) = rest.split_once('.')?;
        Some((micros.parse().ok()?, place.parse().ok()?, QueueName::stored(queue)))
    })
}
