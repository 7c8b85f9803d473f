//! One change to many tasks.

use axum::extract::{Request, State as Shares};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use windlass_core::store::{Action, Filter};
use windlass_core::{TaskId, limits};

use super::task::when;
use crate::access::Caller;
use crate::app::Shared;
use crate::body;
use crate::fields::{Field, Object};
use crate::problem::{Outcome, Problem};
use crate::query::{FILTERS, RawQuery};
use crate::sweep::{self, Sweep, Swept};
use crate::wire::{Json, filter};

/// Most tasks that may be named.
const IDS_MAX: usize = 1_000;

/// Cancels, retries, snoozes or deletes tasks, named or found by a filter.
pub(super) async fn change(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    query: RawQuery,
    request: Request,
) -> Outcome<Response> {
    const KNOWN: [&str; 8] =
        ["action", "ids", "filter", "all", "for", "until", "cursor", "dry_run"];
    query.none()?;
    let body = body::json(&shared, request, body::SINGLE_BYTES_MAX).await?;
    let mut object = Object::read(&body.bytes, &KNOWN)?;
    let action = action(&mut object)?;
    let is_dry = flag(&mut object, "dry_run")?;
    let is_all = flag(&mut object, "all")?;
    let cursor = object.take("cursor").map(|field| field.text()).transpose()?;
    let swept = match (object.take("ids"), object.take("filter")) {
        (Some(field), None) if is_all || cursor.is_some() => {
            return Err(field.refused("all and cursor go with a filter"));
        }
        (Some(field), None) => {
            let ids = ids(&field)?;
            match is_dry {
                true => sweep::rehearse_each(&shared, &caller, ids, action).await?,
                false => sweep::each(&shared, &caller, ids, action).await?,
            }
        }
        (None, filter) => {
            let filter = filter.map(|field| filter::read(&field, &FILTERS)).transpose()?;
            let filter = filter.unwrap_or_default();
            if filter == Filter::default() && !is_all {
                return Err(Problem::field("filter", "is empty; say \"all\": true if you mean it"));
            }
            sweep(&shared, &caller, Sweep { action, filter, cursor }, is_dry).await?
        }
        (Some(_), Some(field)) => return Err(field.refused("give ids or filter, not both")),
    };
    Ok(Json(StatusCode::OK, swept).into_response())
}

/// Makes a change, or only counts what it would change.
pub(super) async fn sweep(
    shared: &Shared,
    caller: &Caller,
    sweep: Sweep,
    is_dry: bool,
) -> Outcome<Swept> {
    if is_dry { sweep.rehearse(shared, caller).await } else { sweep.run(shared, caller).await }
}

/// Reads a field that is yes or no.
pub(super) fn flag(object: &mut Object<'_>, name: &str) -> Outcome<bool> {
    object.take(name).map_or(Ok(false), |field| field.flag())
}

fn action(object: &mut Object<'_>) -> Outcome<Action> {
    let Some(field) = object.take("action") else {
        return Err(Problem::field("action", "is missing: cancel, retry, snooze or delete"));
    };
    let when = when(object)?;
    match (field.text()?.as_str(), when) {
        ("snooze", Some(when)) => Ok(Action::Reschedule(when)),
        ("snooze", None) => Err(field.refused("snooze needs for or until")),
        ("cancel", None) => Ok(Action::Cancel),
        ("retry", None) => Ok(Action::Rerun),
        ("delete", None) => Ok(Action::Delete),
        ("cancel" | "retry" | "delete", Some(_)) => {
            Err(field.refused("for and until go with snooze"))
        }
        (_, _) => Err(field.refused("use cancel, retry, snooze or delete")),
    }
}

fn ids(field: &Field<'_>) -> Outcome<Vec<TaskId>> {
    let items = field.list()?;
    if items.len() > IDS_MAX {
        return Err(field.refused(format!("at most {IDS_MAX} ids")));
    }
    let read = |item: &Field<'_>| {
        let text = item.text()?;
        limits::check_key("a task id", &text).map_err(|error| item.refused(error))?;
        Ok(TaskId::new(text))
    };
    items.iter().map(read).collect()
}
