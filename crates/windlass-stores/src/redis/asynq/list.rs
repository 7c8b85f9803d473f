//! Lists on asynq's keys: one state after the other, queue by queue, the newest in its place first.
//!
//! No index shows all tasks of a queue in one order; a task that goes on while a walk is under way may be met
//! in both of its places, or in neither.

use serde::{Deserialize, Serialize};
use windlass_core::store::{Filter, ListParams, Page, Parts};
use windlass_core::{Error, QueueName, Result, State, Timestamp};

use super::row::Row;
use super::{AT_ONCE, Shared, damage, scripts};
use crate::reading::{SCAN_MAX, matches};
use crate::redis::cursor;
use crate::redis::reply::next;

/// How many of the last tasks a cursor names: any of them leads back to where the walk was.
const ANCHORS: usize = 8;

/// The states in the order of walks. What a change by filter makes of a task is either behind the walk, or
/// nothing that it changes again.
const ORDER: [State; 7] = [
    State::Scheduled,
    State::Retrying,
    State::Pending,
    State::Running,
    State::Completed,
    State::Cancelled,
    State::DeadLetter,
];

/// The tasks that one step of a walk has found, and where it goes on.
pub(super) struct Walk {
    pub(super) now: Timestamp,
    pub(super) rows: Vec<Row>,
    pub(super) next_cursor: Option<String>,
    /// Tells this walk from others.
    pub(super) number: u64,
}

/// Where a walk stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Cursor {
    /// The number of the walk.
    n: u64,
    /// The state, by its place in [`ORDER`].
    s: usize,
    /// The queue; nothing before the first.
    q: Option<String>,
    /// The key after the queue's stem; nothing before the first.
    k: Option<String>,
    /// The last tasks seen there, the very last first.
    a: Vec<String>,
    /// The score of the last, or how many tasks were older than it in a list.
    p: String,
}

/// A place that is walked.
struct Leg {
    queue: QueueName,
    key: String,
}

impl Shared {
    pub(super) async fn list(&self, params: &ListParams) -> Result<Page> {
        let mut walk = self.walk(&params.filter, params.cursor.as_deref(), params.limit).await?;
        self.add_go_runs(walk.now, &mut walk.rows).await?;
        let tasks = walk.rows.into_iter().map(|row| row.into_record(Parts::NONE)).collect();
        Ok(Page { tasks, next_cursor: walk.next_cursor })
    }

    /// One bounded step of a walk.
    pub(super) async fn walk(
        &self,
        filter: &Filter,
        from: Option<&str>,
        limit: usize,
    ) -> Result<Walk> {
        let mut at = match from {
            Some(text) => cursor::read(text, |written| {
                let at: Cursor = serde_json::from_str(written).ok()?;
                (at.s < ORDER.len()).then_some(at)
            })?,
            None => Cursor::begin(),
        };
        if limit == 0 {
            return Err(Error::invalid("a page needs a limit of at least 1"));
        }
        let now = self.fleet.now().await?;
        let mut walk = Walk { now, rows: Vec::new(), next_cursor: None, number: at.n };
        let queues = match &filter.queue {
            Some(queue) => vec![queue.clone()],
            None => self.all_queues().await?,
        };
        let mut scanned = 0;
        while at.s < ORDER.len() {
            if filter.states.is_empty() || filter.states.contains(&ORDER[at.s]) {
                for leg in self.legs(&queues, &at).await? {
                    let is_full =
                        self.walk_leg(&leg, &mut at, filter, limit, &mut scanned, &mut walk).await;
                    if damage::skip(&leg.queue, is_full)?.unwrap_or(false) {
                        walk.next_cursor = Some(at.write());
                        return Ok(walk);
                    }
                }
            }
            at = Cursor { s: at.s + 1, ..Cursor::begin_as(at.n) };
        }
        Ok(walk)
    }

    /// The places of a state in all queues, from where the walk stands.
    async fn legs(&self, queues: &[QueueName], at: &Cursor) -> Result<Vec<Leg>> {
        let mut legs = Vec::new();
        for queue in
            queues.iter().filter(|queue| at.q.as_deref().is_none_or(|q| queue.as_str() >= q))
        {
            let leg = |key: &str| Leg { queue: queue.clone(), key: key.into() };
            match ORDER[at.s] {
                State::Scheduled => {
                    legs.push(leg("scheduled"));
                    let groups = damage::skip(queue, self.groups(queue).await)?;
                    legs.extend(groups.unwrap_or_default().iter().map(|group| leg(group)));
                }
                State::Retrying => legs.push(leg("retry")),
                State::Pending => legs.push(leg("pending")),
                State::Running => legs.push(leg("active")),
                State::Completed => legs.push(leg("completed")),
                State::Cancelled | State::DeadLetter => legs.push(leg("archived")),
            }
        }
        let is_passed = |leg: &Leg| {
            at.q.as_deref() == Some(leg.queue.as_str())
                && at.k.as_deref().is_some_and(|key| !is_ahead(&leg.key, key))
        };
        legs.retain(|leg| !is_passed(leg));
        Ok(legs)
    }

    /// Where the groups of a queue are, and the sets that Go servers are aggregating, by name.
    async fn groups(&self, queue: &QueueName) -> Result<Vec<String>> {
        let stem = self.stem(queue);
        let mut named = redis::cmd("SMEMBERS");
        named.arg(format!("{stem}groups"));
        let mut held = redis::cmd("ZRANGE");
        held.arg(format!("{stem}aggregation_sets")).arg(0).arg(-1);
        let mut groups: Vec<_> =
            self.names(&named).await?.iter().map(|group| format!("g:{group}")).collect();
        let sets = self.names(&held).await?;
        groups.extend(sets.iter().filter_map(|set| set.strip_prefix(&stem)).map(str::to_owned));
        groups.sort();
        groups.dedup();
        Ok(groups)
    }

    async fn names(&self, command: &redis::Cmd) -> Result<Vec<String>> {
        let value = self.fleet.link.command("read the groups", command).await?;
        redis::FromRedisValue::from_redis_value(value)
            .map_err(|_| crate::redis::error::strange("read the groups"))
    }

    /// Goes on in one place; true when the page is full.
    async fn walk_leg(
        &self,
        leg: &Leg,
        at: &mut Cursor,
        filter: &Filter,
        limit: usize,
        scanned: &mut usize,
        walk: &mut Walk,
    ) -> Result<bool> {
        let is_here = at.q.as_deref() == Some(leg.queue.as_str())
            && at.k.as_deref() == Some(leg.key.as_str());
        if !is_here {
            *at = Cursor {
                s: at.s,
                q: Some(leg.queue.to_string()),
                k: Some(leg.key.clone()),
                ..Cursor::begin_as(at.n)
            };
        }
        let is_list = matches!(leg.key.as_str(), "pending" | "active");
        loop {
            let most = limit.saturating_mul(2).clamp(20, AT_ONCE);
            let mut call = scripts::LIST
                .on(&[self.stem(&leg.queue)])
                .arg(self.options().told_time())
                .arg(&leg.key)
                .arg(most)
                .arg(&at.p);
            let named = if is_list { at.a.len() } else { 1 };
            at.a.iter().take(named).for_each(|id| call.add(id));
            let mut parts = self.ask(call).await?.list()?;
            let left = next(&mut parts, "list")?.number()?;
            let looked = usize::try_from(next(&mut parts, "list")?.number()?).unwrap_or(0);
            *scanned += looked;
            for found in parts {
                if walk.rows.len() >= limit {
                    return Ok(true);
                }
                let mut parts = found.list()?;
                let older = next(&mut parts, "list")?.number()?;
                let Some(row) = Row::read(&leg.queue, parts, walk.now)? else { continue };
                at.pass(&row, if is_list { older.to_string() } else { row.score.clone() });
                let is_met =
                    row.own.walk == at.n || row.state() != ORDER[at.s] || row.is_over(walk.now);
                if !is_met && matches(filter, &row.clone().into_record(Parts::NONE)) {
                    walk.rows.push(row);
                }
            }
            if left == 0 || looked == 0 {
                return Ok(false);
            }
            if is_list {
                // Ids that lead to no task were passed, too.
                at.p = left.to_string();
            }
            if walk.rows.len() >= limit || *scanned >= SCAN_MAX {
                return Ok(true);
            }
        }
    }
}

/// True when a place of a queue comes at or after the one where a walk stands.
fn is_ahead(key: &str, stands: &str) -> bool {
    // `scheduled` is walked before the groups, whose keys begin with `g:`.
    match (key.starts_with("g:"), stands.starts_with("g:")) {
        (true, true) => key >= stands,
        (true, false) => true,
        (false, true) => false,
        (false, false) => true,
    }
}

impl Cursor {
    fn begin() -> Self {
        Self::begin_as(fastrand::u64(1..))
    }

    fn begin_as(number: u64) -> Self {
        Self { n: number, s: 0, q: None, k: None, a: Vec::new(), p: String::new() }
    }

    /// Notes that a task was seen.
    fn pass(&mut self, row: &Row, position: String) {
        self.a.insert(0, row.key.clone());
        self.a.truncate(ANCHORS);
        self.p = position;
    }

    fn write(&self) -> String {
        cursor::write(serde_json::to_vec(self).expect("a cursor is plain JSON"))
    }
}
