//! One change to many tasks.

use axum::extract::{Request, State as Shares};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use windlass_core::store::{Action, Filter};
use windlass_core::{TaskId, limits};

use super::task::{UNTIL, when};
use crate::access::Caller;
use crate::app::Shared;
use crate::body;
use crate::fields::{Field, Object};
use crate::form::rule::{any_of, given, not_together, only_with};
use crate::form::{Entry, Form, Sort, entry};
use crate::openapi::call::{Call, Group, Takes, answer};
use crate::problem::{Outcome, Problem};
use crate::query::{FILTERS, RawQuery};
use crate::sweep::{self, Sweep, Swept};
use crate::wire::{Json, filter};

/// Most tasks that may be named.
const IDS_MAX: usize = 1_000;

/// A change to many tasks.
const FORM: Form = Form::new("Bulk", &FIELDS).needs(&["action"]).with(|| {
    let of_filters: Vec<_> = FILTERS.iter().map(|filter| given(&[filter.name])).collect();
    let is_filtered = json!({
        "required": ["filter"],
        "properties": { "filter": { "anyOf": of_filters } },
    });
    let is_all = json!({ "required": ["all"], "properties": { "all": { "const": true } } });
    let needs_time = json!({ "anyOf": [
        { "properties": { "action": { "not": { "const": "snooze" } } } },
        any_of(&["for", "until"]),
    ] });
    vec![
        json!({ "anyOf": [given(&["ids"]), is_filtered, is_all] }),
        not_together(&["ids", "filter"]),
        not_together(&["ids", "all"]),
        not_together(&["ids", "cursor"]),
        only_with("for", "action", &["snooze"]),
        only_with("until", "action", &["snooze"]),
        not_together(&["for", "until"]),
        needs_time,
    ]
});

const FIELDS: [Entry; 8] = [
    entry("action", Sort::OneOf(&["cancel", "retry", "snooze", "delete"]), "What to do"),
    entry("ids", Sort::List { of: &Sort::Key, least: 0, most: IDS_MAX }, "Tasks by their ids"),
    entry("filter", Sort::Object(&filter::FILTER), "Tasks that match; an empty one needs `all`"),
    entry("all", Sort::Flag, "Really all"),
    UNTIL[0],
    UNTIL[1],
    entry("cursor", Sort::Cursor, "The `next_cursor` of the answer before"),
    entry("dry_run", Sort::Flag, "Changes nothing, and counts what would be changed"),
];

pub(super) const CHANGE: Call = Call {
    group: Group::Tasks,
    id: "change_tasks",
    summary: "Cancel, retry, snooze or delete many tasks",
    details: "A filter is worked through for about 5 s; while `next_cursor` is not null, send the same again with it as `cursor`.",
    takes: Takes::Json(&FORM),
    answers: &[answer::<Swept>(200, "What was changed")],
    ..Call::PLAIN
};

/// Cancels, retries, snoozes or deletes tasks, named or found by a filter.
pub(super) async fn change(
    Shares(shared): Shares<Shared>,
    caller: Caller,
    query: RawQuery,
    request: Request,
) -> Outcome<Response> {
    query.none()?;
    let body = body::json(request, body::SINGLE_BYTES_MAX).await?;
    let mut object = Object::read(&body.bytes, &FORM)?;
    let action = action(&mut object)?;
    let is_dry = flag(&mut object, "dry_run")?;
    let all = object.take("all").map(|field| field.flag()).transpose()?;
    let cursor = object.take("cursor").map(|field| field.text()).transpose()?;
    let swept = match (object.take("ids"), object.take("filter")) {
        (Some(field), None) if all.is_some() || cursor.is_some() => {
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
            let filter = filter.map(|field| filter::read(&field, &filter::FILTER)).transpose()?;
            let filter = filter.unwrap_or_default();
            if filter == Filter::default() && all != Some(true) {
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
fn flag(object: &mut Object<'_>, name: &str) -> Outcome<bool> {
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
