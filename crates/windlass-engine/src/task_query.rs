//! Tasks that have something in common: read them, or change all of them.

use windlass_core::store::{Action, Filter, ListParams};
use windlass_core::{Kind, Priority, QueueName, Result, State, Tag, TaskRecord, Timestamp, When};

use crate::client::Client;
use crate::matching_change::MatchingChange;

/// Most tasks that one call of the store lists.
const PAGE_MAX: usize = 500;

/// Tasks that have something in common; [`Client::tasks`] begins with all of them.
///
/// A wrong name is reported by the call that uses the query.
///
/// ```
/// # use windlass_engine::Client;
/// # use windlass_core::State;
/// # async fn operate(client: Client) -> windlass_core::Result<()> {
/// let dead = client.tasks().queue("mail").state(State::DeadLetter);
/// for task in dead.clone().list(10).await? {
///     println!("{} after {} attempts", task.id, task.attempts);
/// }
/// let changed = dead.rerun().await?;
/// println!("{} run again", changed.changed_count);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a query does nothing before a call such as list or cancel"]
pub struct TaskQuery {
    client: Client,
    filter: Result<Filter>,
}

/// How many tasks a change has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ChangeCounts {
    /// Tasks that were changed, or will be.
    pub changed_count: u64,
    /// Of these: running tasks, which end as cancelled unless they succeed.
    pub requested_count: u64,
}

impl TaskQuery {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, filter: Ok(Filter::default()) }
    }

    /// Only tasks of this queue.
    pub fn queue(self, name: &str) -> Self {
        self.narrow(|filter| {
            filter.queue = Some(QueueName::new(name)?);
            Ok(())
        })
    }

    /// Only tasks of this kind.
    pub fn kind(self, kind: &str) -> Self {
        self.narrow(|filter| {
            filter.kind = Some(Kind::new(kind)?);
            Ok(())
        })
    }

    /// Only tasks with this tag.
    pub fn tag(self, tag: &str) -> Self {
        self.narrow(|filter| {
            filter.tag = Some(Tag::new(tag)?);
            Ok(())
        })
    }

    /// Only tasks in this state, or in one of the states given so far.
    pub fn state(self, state: State) -> Self {
        self.narrow(|filter| {
            filter.states.push(state);
            Ok(())
        })
    }

    /// Only tasks of this priority.
    pub fn priority(self, priority: Priority) -> Self {
        self.narrow(|filter| {
            filter.priority = Some(priority);
            Ok(())
        })
    }

    /// Only tasks that were submitted at this instant or later.
    pub fn created_after(self, instant: Timestamp) -> Self {
        self.narrow(|filter| {
            filter.created_after = Some(instant);
            Ok(())
        })
    }

    /// Only tasks that were submitted before this instant.
    pub fn created_before(self, instant: Timestamp) -> Self {
        self.narrow(|filter| {
            filter.created_before = Some(instant);
            Ok(())
        })
    }

    /// The newest of these tasks, at most `limit`, without payload, result and timeline.
    pub async fn list(self, limit: usize) -> Result<Vec<TaskRecord>> {
        let (filter, store) = (self.filter?, self.client.watched());
        let (mut tasks, mut cursor) = (Vec::new(), None);
        while tasks.len() < limit {
            let limit = (limit - tasks.len()).min(PAGE_MAX);
            let page = store.list(ListParams { filter: filter.clone(), limit, cursor }).await?;
            tasks.extend(page.tasks);
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        Ok(tasks)
    }

    /// Cancels these tasks: waiting ones at once, running ones when their runs end.
    pub async fn cancel(self) -> Result<ChangeCounts> {
        self.change(Action::Cancel).await
    }

    /// Runs finished tasks again, and waiting ones now.
    pub async fn rerun(self) -> Result<ChangeCounts> {
        self.change(Action::Rerun).await
    }

    /// Moves waiting tasks to another time.
    pub async fn reschedule(self, when: When) -> Result<ChangeCounts> {
        self.change(Action::Reschedule(when)).await
    }

    /// Removes the tasks that do not run.
    pub async fn delete(self) -> Result<ChangeCounts> {
        self.change(Action::Delete).await
    }

    async fn change(self, action: Action) -> Result<ChangeCounts> {
        let filter = self.filter?;
        let (mut counts, mut cursor) = (ChangeCounts::default(), None);
        loop {
            let change = MatchingChange { action, filter: filter.clone(), by: None, cursor };
            let reply = change.run(&**self.client.watched(), None).await?;
            counts.changed_count += reply.changed_count;
            counts.requested_count += reply.requested_count;
            cursor = reply.next_cursor;
            if cursor.is_none() {
                return Ok(counts);
            }
        }
    }

    fn narrow(mut self, part: impl FnOnce(&mut Filter) -> Result<()>) -> Self {
        self.filter = self.filter.and_then(|mut filter| part(&mut filter).map(|()| filter));
        self
    }
}
