//! Changes to many tasks: named one by one, or found by a filter and worked through in pieces.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::Instant;
use windlass_core::state::{self, CancelVerdict, RerunVerdict};
use windlass_core::store::{
    Action, ChangeParams, ChangeReply, Changed, Filter, GetParams, ListParams, Parts, Target,
};
use windlass_core::{State, Store, TaskId};
use windlass_engine::MatchingChange;

use crate::access::Caller;
use crate::app::Shared;
use crate::audit::{self, Deed};
use crate::problem::Outcome;
use crate::wire::words::StateWord;

/// How long one request goes on; the caller comes back for the rest.
const TIME_MAX: Duration = Duration::from_secs(5);
/// Most tasks that one call of the store lists.
const PAGE_MAX: usize = 500;
/// Most tasks that are looked at to count them.
pub(crate) const COUNT_MAX: u64 = 10_000;

/// What a change to many tasks came to.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "Changed")]
pub(crate) struct Swept {
    /// How many were changed.
    pub(crate) changed: u64,
    /// Of those: how many run, and only have the request noted.
    pub(crate) requested: u64,
    /// For a dry run: how many would be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) matched: Option<u64>,
    /// For a dry run: there may be more than were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) capped: Option<bool>,
    /// What became of each task that was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) results: Option<Vec<Swept1>>,
    /// Where to go on; null when all is done.
    pub(crate) next_cursor: Option<String>,
}

/// What became of one task.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ChangedTask")]
pub(crate) struct Swept1 {
    #[schemars(with = "String")]
    id: TaskId,
    #[schemars(extend("enum" = ["done", "requested", "state-conflict", "held-elsewhere", "not-found"]))]
    status: &'static str,
    /// The state it is in now; null when it is gone.
    #[schemars(with = "Option<StateWord>")]
    state: Option<State>,
}

/// A change to all tasks that match a filter.
#[derive(Debug, Clone)]
pub(crate) struct Sweep {
    pub(crate) action: Action,
    pub(crate) filter: Filter,
    pub(crate) cursor: Option<String>,
}

/// Changes these tasks, in these states (in all that the action allows when empty), and notes it.
pub(crate) async fn change(
    shared: &Shared,
    caller: &Caller,
    ids: Vec<TaskId>,
    action: Action,
    only_in: &[State],
) -> Outcome<ChangeReply> {
    caller.check_tasks(shared, &ids).await?;
    let (target, by) = (Target::Tasks(ids.clone()), Some(caller.name()));
    let params = ChangeParams { target, action, only_in: only_in.to_vec(), by };
    let reply = shared.store().change(params).await?;
    let is_changed = |changed: &Changed| matches!(changed, Changed::Done(_) | Changed::Requested);
    let outcomes = reply.outcomes.iter().map(is_changed);
    let tasks = ids.into_iter().zip(outcomes).filter_map(|(id, is)| is.then_some(id)).collect();
    let deed = Deed { count: reply.changed_count, tasks, ..Deed::default() };
    audit::note_change(shared, caller, action, deed).await;
    Ok(reply)
}

impl Sweep {
    /// Changes what matches until all is done or the time is over, and notes it.
    pub(crate) async fn run(self, shared: &Shared, caller: &Caller) -> Outcome<Swept> {
        caller.check_filter(&self.filter)?;
        let Self { action, filter, cursor } = self;
        let (subject, by) = (Some(filter.to_string()), Some(caller.name()));
        let change = MatchingChange { action, filter, by, cursor };
        let reply = change.run(&**shared.store(), Some(Instant::now() + TIME_MAX)).await?;
        let swept = Swept {
            changed: reply.changed_count,
            requested: reply.requested_count,
            next_cursor: reply.next_cursor,
            ..Swept::default()
        };
        let deed = Deed { subject, count: swept.changed, ..Deed::default() };
        audit::note_change(shared, caller, action, deed).await;
        Ok(swept)
    }

    /// Counts what would be changed.
    pub(crate) async fn rehearse(self, shared: &Shared, caller: &Caller) -> Outcome<Swept> {
        caller.check_filter(&self.filter)?;
        let Self { action, mut filter, .. } = self;
        let is_meant = |state: &State| filter.states.is_empty() || filter.states.contains(state);
        let is_touched = |state: &State| verdict(action, *state) != "state-conflict";
        let states: Vec<_> = State::ALL.into_iter().filter(is_meant).filter(is_touched).collect();
        let mut swept = Swept { matched: Some(0), capped: Some(false), ..Swept::default() };
        if !states.is_empty() {
            filter.states = states;
            let (count, is_capped) = count(&**shared.store(), filter).await?;
            (swept.matched, swept.capped) = (Some(count), Some(is_capped));
        }
        Ok(swept)
    }
}

/// Changes tasks that are named.
pub(crate) async fn each(
    shared: &Shared,
    caller: &Caller,
    ids: Vec<TaskId>,
    action: Action,
) -> Outcome<Swept> {
    let reply = change(shared, caller, ids.clone(), action, &[]).await?;
    let result = |(id, changed): (TaskId, &Changed)| {
        let (status, state) = match *changed {
            Changed::Done(state) => ("done", state),
            Changed::Requested => ("requested", Some(State::Running)),
            Changed::Conflict(state) => ("state-conflict", Some(state)),
            Changed::HeldElsewhere(state) => ("held-elsewhere", Some(state)),
            Changed::NotFound => ("not-found", None),
        };
        Swept1 { id, status, state }
    };
    Ok(Swept {
        changed: reply.changed_count,
        requested: reply.requested_count,
        results: Some(ids.into_iter().zip(&reply.outcomes).map(result).collect()),
        ..Swept::default()
    })
}

/// Says what would become of tasks that are named.
pub(crate) async fn rehearse_each(
    shared: &Shared,
    caller: &Caller,
    ids: Vec<TaskId>,
    action: Action,
) -> Outcome<Swept> {
    caller.check_tasks(shared, &ids).await?;
    let records = shared.store().get(GetParams { ids: ids.clone(), parts: Parts::NONE }).await?;
    let states = records.iter().map(|record| record.as_ref().map(|record| record.state));
    let result = |(id, state): (TaskId, Option<State>)| {
        let status = state.map_or("not-found", |state| verdict(action, state));
        Swept1 { id, status, state }
    };
    let results: Vec<_> = ids.into_iter().zip(states).map(result).collect();
    let matched = results.iter().filter(|one| ["done", "requested"].contains(&one.status)).count();
    Ok(Swept {
        matched: Some(matched as u64),
        capped: Some(false),
        results: Some(results),
        ..Swept::default()
    })
}

/// Counts tasks one by one, up to [`COUNT_MAX`]; also says whether that was too few.
pub(crate) async fn count(store: &dyn Store, filter: Filter) -> Outcome<(u64, bool)> {
    let mut count = 0;
    let is_capped = walk(store, filter, |_| count += 1).await?;
    Ok((count, is_capped))
}

/// Looks at tasks one by one, at most [`COUNT_MAX`]; answers whether there may be more.
pub(crate) async fn walk(
    store: &dyn Store,
    filter: Filter,
    mut look: impl FnMut(&windlass_core::TaskRecord),
) -> Outcome<bool> {
    let end = Instant::now() + TIME_MAX;
    let (mut cursor, mut seen) = (None, 0);
    loop {
        let params = ListParams { filter: filter.clone(), limit: PAGE_MAX, cursor };
        let page = store.list(params).await?;
        for task in &page.tasks {
            if seen == COUNT_MAX {
                return Ok(true);
            }
            seen += 1;
            look(task);
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(false);
        }
        if Instant::now() >= end {
            return Ok(true);
        }
    }
}

/// What an action would come to in a state.
fn verdict(action: Action, state: State) -> &'static str {
    let is_done = match action {
        Action::Cancel => match state::cancel(state) {
            CancelVerdict::AtOnce => true,
            CancelVerdict::Request => return "requested",
            CancelVerdict::Finished => false,
        },
        Action::Rerun => state::rerun(state) != RerunVerdict::Refused,
        Action::Reschedule(_) => state::reschedule(state),
        Action::Delete => state::delete(state),
    };
    if is_done { "done" } else { "state-conflict" }
}
