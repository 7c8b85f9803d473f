//! Look, decide, place: how everything but the plain ways changes a task.
//!
//! A decision is made of what was seen. It is placed only if the task is still as it was seen; else the
//! task is looked at and decided anew.

use std::collections::HashMap;

use windlass_core::store::Term;
use windlass_core::{Error, ErrorKind, QueueName, Result, State, TaskId, Timestamp};

use super::moves::Move;
use super::row::Row;
use super::{AT_ONCE, Shared, scripts};
use crate::redis::error::strange;
use crate::redis::fleet::stale_term;
use crate::redis::reply::next;
use crate::wakes::News;

/// How often a task is decided anew before its caller is told to try later.
const ROUNDS_MAX: usize = 50;
/// Most ids times queues that one look goes through.
const LOOKS_MAX: usize = 2_000;

/// What became of a task that was decided on.
pub(super) struct Placed {
    pub(super) queue: QueueName,
    pub(super) id: TaskId,
    /// The state it took; nothing when it was removed. `None` outside: nothing was decided.
    pub(super) state: Option<Option<State>>,
}

/// A task that is looked for.
#[derive(Debug, Clone)]
struct Wanted {
    /// As the caller names it.
    name: TaskId,
    key: String,
}

impl Shared {
    /// Looks at tasks of one queue; those that are not there are left out.
    pub(super) async fn look(
        &self,
        queue: &QueueName,
        ids: &[TaskId],
    ) -> Result<(Timestamp, Vec<Row>)> {
        let wanted: Vec<_> =
            ids.iter().map(|id| Wanted { name: id.clone(), key: id.to_string() }).collect();
        self.look_in(std::slice::from_ref(queue), &wanted, false).await
    }

    /// Looks at a task again.
    async fn look_again(&self, rows: &[Row]) -> Result<(Timestamp, Vec<Row>)> {
        let wanted: Vec<_> =
            rows.iter().map(|row| Wanted { name: row.name(), key: row.key.clone() }).collect();
        self.look_in(std::slice::from_ref(&rows[0].queue), &wanted, false).await
    }

    /// Looks for tasks in these queues, all of them in one call, or on a Cluster in one for each.
    async fn look_in(
        &self,
        queues: &[QueueName],
        wanted: &[Wanted],
        has_results: bool,
    ) -> Result<(Timestamp, Vec<Row>)> {
        let (mut now, mut rows) = (Timestamp::default(), Vec::new());
        for queues in self.fleet.by_slot(queues) {
            let stems: Vec<_> = queues.iter().map(|queue| self.stem(queue)).collect();
            let most = (LOOKS_MAX / queues.len().max(1)).clamp(1, AT_ONCE);
            let mut left = wanted;
            while !left.is_empty() {
                let chunk = &left[..left.len().min(most)];
                let mut call = scripts::LOOK
                    .on(&stems)
                    .arg(self.options().told_time())
                    .arg(u8::from(has_results));
                chunk.iter().for_each(|one| call.add(&one.key));
                let mut reply = self.ask(call).await?.list()?;
                now = next(&mut reply, "look")?.time()?;
                let looked = usize::try_from(next(&mut reply, "look")?.number()?).unwrap_or(0);
                for found in reply {
                    let mut parts = found.list()?;
                    let at = usize::try_from(next(&mut parts, "look")?.number()?).unwrap_or(0);
                    let queue = at.checked_sub(1).and_then(|at| queues.get(at));
                    let queue = queue.ok_or_else(|| strange("look"))?;
                    if let Some(mut row) = Row::read(queue, parts, now)? {
                        if let Some(one) = chunk.iter().find(|one| one.key == row.key) {
                            row.id = one.name.clone();
                        }
                        rows.push(row);
                    }
                }
                left = &left[looked.clamp(1, chunk.len())..];
            }
        }
        Ok((now, rows))
    }

    /// Looks at tasks in whatever queue they are. Ids are unique in their queue only: where two queues have
    /// one, `queue/id` tells which is meant.
    pub(super) async fn look_everywhere(
        &self,
        ids: &[TaskId],
        has_results: bool,
    ) -> Result<(Timestamp, HashMap<TaskId, Row>)> {
        let queues = self.all_queues().await?;
        let wanted: Vec<_> =
            ids.iter().map(|id| Wanted { name: id.clone(), key: id.to_string() }).collect();
        let (now, rows) = self.look_in(&queues, &wanted, has_results).await?;
        let mut found: HashMap<TaskId, Row> = HashMap::with_capacity(rows.len());
        for row in rows {
            if let Some(other) = found.get(&row.id) {
                return Err(Error::new(
                    ErrorKind::Conflict,
                    format!(
                        "task {} is in queues {} and {}: name it with its queue, as {}/{}",
                        row.id, other.queue, row.queue, row.queue, row.id
                    ),
                ));
            }
            found.insert(row.id.clone(), row);
        }
        let named = ids.iter().filter(|id| !found.contains_key(*id) && id.as_str().contains('/'));
        for name in named.cloned().collect::<Vec<_>>() {
            for queue in &queues {
                let key = name.as_str().strip_prefix(queue.as_str());
                let Some(key) = key.and_then(|rest| rest.strip_prefix('/')) else { continue };
                let wanted = [Wanted { name: name.clone(), key: key.to_owned() }];
                let (_, rows) =
                    self.look_in(std::slice::from_ref(queue), &wanted, has_results).await?;
                found.extend(rows.into_iter().map(|row| (row.id.clone(), row)));
            }
        }
        let now = if now == Timestamp::default() { self.fleet.now().await? } else { now };
        Ok((now, found))
    }

    /// Decides on tasks that were seen at this time, and places them; looks again at those that have changed
    /// meanwhile. `decide` makes a move, or nothing when there is nothing to do (any more).
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
                let (id, queue) = (row.name(), row.queue.clone());
                match decide(row, now, error_bytes_max) {
                    Some(decided) => by_queue.entry(queue).or_default().push(decided),
                    None => placed.push(Placed { queue, id, state: None }),
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
                                let (queue, id) = decided.row.address();
                                placed.push(Placed { queue, id, state: Some(decided.state) });
                            }
                            false => changed.push(decided.row.clone()),
                        }
                    }
                }
                if !changed.is_empty() {
                    let (seen_at, again) = self.look_again(&changed).await?;
                    now = seen_at;
                    let is_gone = |row: &&Row| !again.iter().any(|other| other.id == row.id);
                    let gone = changed.iter().filter(is_gone);
                    placed.extend(gone.map(|row| {
                        let (queue, id) = row.address();
                        Placed { queue, id, state: None }
                    }));
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
        let mut call = scripts::PLACE
            .on(&[self.stem(queue)])
            .arg(self.options().told_time())
            .arg(term.map(|term| term.to_string()).unwrap_or_default());
        for decided in moves {
            let row = &decided.row;
            call.add(&row.key);
            call.add(row.place.as_str());
            call.add(&row.score);
            call.add(&row.own_stored[..]);
            call.add(row.claim.as_ref().map(|claim| claim.number.to_string()).unwrap_or_default());
            call.add(row.message_bytes);
            call.add(decided.to.map_or("", |place| place.as_str()));
            call.add(&decided.time);
            call.add(decided.message.as_deref().unwrap_or_default());
            call.add(&decided.own[..]);
            call.add(decided.crashes);
            let kept = decided.kept_until.map(|at| at.as_millis().to_string());
            call.add(kept.unwrap_or_default());
            call.add(u8::from(decided.frees_lock));
            call.add(u8::from(decided.frees_once));
            call.add(if decided.is_back { "f" } else { "b" });
            call.add(decided.counts.as_str());
            call.add(if decided.drops_result { "d" } else { "k" });
        }
        let reply = self.ask(call).await?;
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
                _ => news.ended.push(decided.row.name()),
            }
            if decided.row.is_own_run() {
                self.presence.ended(queue, &decided.row.key);
            }
        }
        news.ready.dedup();
        self.fleet.common.wakes.tell(news);
        Ok(done)
    }
}
