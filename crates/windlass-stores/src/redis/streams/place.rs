//! Look, decide, place: how everything but the plain ways changes a task.
//!
//! A decision is made of what was seen. It is placed only if the task is still as it was seen; else the
//! task is looked at and decided anew.

use std::collections::HashMap;

use windlass_core::store::Term;
use windlass_core::{Error, ErrorKind, QueueName, Result, State, Timestamp};

use super::id::Id;
use super::moves::{LargeResult, Move};
use super::row::Row;
use super::{AT_ONCE, Shared, scripts};
use crate::redis::error::strange;
use crate::redis::fleet::stale_term;
use crate::redis::reply::{Reply, Sort, next};
use crate::wakes::News;

/// How often a task is decided anew before its caller is told to try later.
const ROUNDS_MAX: usize = 50;

/// What became of a task that was decided on.
pub(super) struct Placed {
    pub(super) id: Id,
    /// The state it took; nothing when it was removed. `None` outside: nothing was decided.
    pub(super) state: Option<Option<State>>,
}

/// The result of a look at tasks of one queue.
#[derive(Default)]
pub(super) struct Look {
    pub(super) now: Timestamp,
    pub(super) rows: Vec<Row>,
    /// Tasks whose records cannot be read; those with a readable head are among the rows too.
    pub(super) unreadable: Vec<Id>,
}

impl Shared {
    /// Looks at tasks of one queue; those that are not there are left out.
    pub(super) async fn look(
        &self,
        queue: &QueueName,
        ids: &[Id],
    ) -> Result<(Timestamp, Vec<Row>)> {
        let Look { now, rows, .. } = self.look_for_damage(queue, ids).await?;
        Ok((now, rows))
    }

    /// Like [`Shared::look`], with the ids of unreadable records.
    pub(super) async fn look_for_damage(&self, queue: &QueueName, ids: &[Id]) -> Result<Look> {
        let mut look = Look::default();
        for chunk in ids.chunks(AT_ONCE) {
            let mut call = scripts::LOOK
                .on(&[self.stem(queue)])
                .arg(self.options().told_time())
                .arg(chunk.len());
            for id in chunk {
                call.add(&id.0[..]);
            }
            let mut reply = self.ask_queue(queue, call).await?.list()?;
            look.now = next(&mut reply, "look")?.time()?;
            for (id, found) in chunk.iter().zip(next(&mut reply, "look")?.list()?) {
                if let Sort::List(parts) = found.sort()? {
                    match Row::read(*id, queue, parts) {
                        Ok(row) => {
                            look.unreadable.extend((!row.is_readable()).then_some(row.id));
                            look.rows.push(row);
                        }
                        Err(error) => {
                            look.unreadable.push(*id);
                            let (task, error) = (id.task_id(), error.chain());
                            tracing::error!(%task, error, "a record has no head");
                        }
                    }
                }
            }
        }
        Ok(look)
    }

    /// Looks at tasks wherever their ids lead.
    pub(super) async fn look_everywhere(
        &self,
        ids: &[Id],
    ) -> Result<(Timestamp, HashMap<Id, Row>)> {
        let (mut now, mut found) = (None, HashMap::new());
        let mut asked: Vec<(QueueName, Id)> = Vec::new();
        for has_refreshed in [false, true] {
            let mut by_queue: HashMap<QueueName, Vec<Id>> = HashMap::new();
            for id in ids.iter().filter(|id| !found.contains_key(*id)) {
                for queue in self.known_queues_of(*id) {
                    if !asked.contains(&(queue.clone(), *id)) {
                        by_queue.entry(queue).or_default().push(*id);
                    }
                }
            }
            for (queue, ids) in by_queue {
                let (seen_at, rows) = self.look(&queue, &ids).await?;
                now = Some(seen_at);
                found.extend(rows.into_iter().map(|row| (row.id, row)));
                asked.extend(ids.into_iter().map(|id| (queue.clone(), id)));
            }
            if has_refreshed || ids.iter().all(|id| found.contains_key(id)) {
                break;
            }
            // Another process may have made the queue that an id leads to.
            self.all_queues().await?;
        }
        let now = match now {
            Some(now) => now,
            None => self.fleet.now().await?,
        };
        Ok((now, found))
    }

    /// Decides on tasks that were looked at, and places them; looks again at those that have changed
    /// meanwhile. `decide` makes a move, or nothing when there is nothing to do (any more).
    pub(super) async fn decide(
        &self,
        rows: Vec<Row>,
        term: Option<Term>,
        decide: impl Fn(Row, Timestamp, usize) -> Option<Move>,
    ) -> Result<Vec<Placed>> {
        let now = self.now_of(&rows).await?;
        self.decide_at(now, rows, term, decide).await
    }

    /// As [`Shared::decide`], for rows that were seen at this time.
    pub(super) async fn decide_at(
        &self,
        mut now: Timestamp,
        mut rows: Vec<Row>,
        term: Option<Term>,
        decide: impl Fn(Row, Timestamp, usize) -> Option<Move>,
    ) -> Result<Vec<Placed>> {
        let error_bytes_max = self.options().limits.error_bytes_max;
        let mut placed = Vec::with_capacity(rows.len());
        for _ in 0..ROUNDS_MAX {
            let mut by_queue: HashMap<QueueName, Vec<Move>> = HashMap::new();
            for row in rows {
                let (id, queue) = (row.id, row.queue.clone());
                match decide(row, now, error_bytes_max) {
                    Some(decided) => by_queue.entry(queue).or_default().push(decided),
                    None => placed.push(Placed { id, state: None }),
                }
            }
            rows = Vec::new();
            for (queue, moves) in by_queue {
                let mut changed = Vec::new();
                for chunk in moves.chunks(AT_ONCE) {
                    let done = self.place(&queue, chunk, term).await?;
                    for (decided, is_done) in chunk.iter().zip(done) {
                        match is_done {
                            true => {
                                placed.push(Placed { id: decided.id, state: Some(decided.state) });
                            }
                            false => changed.push(decided.id),
                        }
                    }
                }
                if !changed.is_empty() {
                    let (seen_at, again) = self.look(&queue, &changed).await?;
                    now = seen_at;
                    let is_gone = |id: &&Id| !again.iter().any(|row| row.id == **id);
                    placed.extend(
                        changed.iter().filter(is_gone).map(|id| Placed { id: *id, state: None }),
                    );
                    rows.extend(again);
                }
            }
            if rows.is_empty() {
                return Ok(placed);
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "place tasks in redis: they keep changing"))
    }

    async fn place(
        &self,
        queue: &QueueName,
        moves: &[Move],
        term: Option<Term>,
    ) -> Result<Vec<bool>> {
        self.announce_changes([queue]).await?;
        let mut call = scripts::PLACE
            .on(&[self.stem(queue)])
            .arg(self.options().told_time())
            .arg(term.map(|term| term.to_string()).unwrap_or_default());
        for decided in moves {
            call.add(&decided.id.0[..]);
            call.add(&decided.begins[..]);
            call.add(decided.stands);
            call.add(decided.after.as_deref().unwrap_or_default());
            call.add(decided.time);
            call.add(u8::from(decided.is_back));
            call.add(&decided.freed[..]);
            match &decided.result {
                LargeResult::Keep => call.add("k"),
                LargeResult::Drop => call.add("d"),
                LargeResult::Set(result) => {
                    call.add("s");
                    call.add(&result[..]);
                }
            }
        }
        let reply = self.ask_queue(queue, call).await?;
        if reply.is_zero() {
            return Err(stale_term(term));
        }
        let done: Vec<bool> =
            reply.list()?.map(|done| done.number().map(|done| done == 1)).collect::<Result<_>>()?;
        if done.len() != moves.len() {
            return Err(strange("place"));
        }
        let mut news = News::default();
        for (decided, _) in moves.iter().zip(&done).filter(|(_, is_done)| **is_done) {
            match decided.state {
                Some(State::Pending) => news.ready.push(queue.clone()),
                Some(state) if !state.is_terminal() => {}
                _ => news.ended.push(decided.id.task_id()),
            }
        }
        news.ready.dedup();
        self.fleet.common.wakes.tell(news);
        Ok(done)
    }

    async fn now_of(&self, rows: &[Row]) -> Result<Timestamp> {
        match rows.first() {
            Some(_) => self.fleet.now().await,
            None => Ok(Timestamp::default()),
        }
    }

    /// Reads an answer of `held`: where to go on, and the tasks.
    pub(super) fn read_held(
        &self,
        queue: &QueueName,
        reply: Reply,
    ) -> Result<(Timestamp, String, Vec<Row>)> {
        let mut parts = reply.list()?;
        let now = next(&mut parts, "held")?.time()?;
        let cursor = next(&mut parts, "held")?.text()?;
        let mut rows = Vec::new();
        for found in parts {
            let mut parts = found.list()?;
            let id = Id::from_stored(&next(&mut parts, "held")?.bytes()?)
                .ok_or_else(|| strange("held"))?;
            if let Ok(row) = Row::read(id, queue, parts) {
                rows.push(row);
            }
        }
        Ok((now, cursor, rows))
    }
}
