//! Changes of many tasks: named one by one, or all that match a filter.

use indicatif::ProgressBar;
use serde_json::{Map, Value, json};

use super::Desk;
use super::filters::Filters;
use crate::caller::{Access, Answer, Caller};
use crate::confirm::confirm;
use crate::exit::{Code, Done, Failure};
use crate::table::{Table, cell, grouped};

/// Most tasks that one request names.
const NAMED_MAX: usize = 1_000;

/// Which tasks are to be changed.
#[derive(clap::Args)]
pub(crate) struct Chosen {
    /// The tasks; or use filters.
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    filters: Filters,
    /// All tasks, without a filter.
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    /// Only counts what matches, and changes nothing.
    #[arg(long)]
    dry_run: bool,
    /// Does not ask.
    #[arg(short, long)]
    yes: bool,
}

/// What is to be done to them.
pub(super) struct Change {
    action: &'static str,
    more: Map<String, Value>,
}

impl Change {
    pub(super) fn new(action: &'static str) -> Self {
        Self { action, more: Map::new() }
    }

    pub(super) fn set(&mut self, field: &str, value: Value) {
        self.more.insert(field.to_owned(), value);
    }

    fn request(&self, fields: Value) -> Value {
        let mut request = self.more.clone();
        request.insert("action".into(), json!(self.action));
        if let Value::Object(fields) = fields {
            request.extend(fields);
        }
        Value::Object(request)
    }
}

pub(super) async fn run(desk: &Desk, chosen: Chosen, change: &Change) -> Done {
    match (chosen.ids.is_empty(), chosen.filters.is_empty() && !chosen.all) {
        (true, true) => Err(Failure::usage("name tasks by their ids, or by filters, or use --all")),
        (false, false) => Err(Failure::usage("name tasks by their ids or by filters, not both")),
        (false, true) => named(desk, chosen, change).await,
        (true, false) => matching(desk, chosen, change).await,
    }
}

/// Changes tasks that are named; each is answered.
async fn named(desk: &Desk, chosen: Chosen, change: &Change) -> Done {
    if change.action == "delete" && !chosen.dry_run {
        let count = chosen.ids.len();
        confirm(&format!("Delete {count} tasks for good?"), chosen.yes).await?;
    }
    let caller = desk.caller(Access::Write).await?;
    let mut results = Vec::new();
    for ids in chosen.ids.chunks(NAMED_MAX) {
        let answer = caller
            .send(
                "/api/v1/tasks/bulk",
                &change.request(json!({"ids": ids, "dry_run": chosen.dry_run})),
            )
            .await?;
        let mut reply: Value = answer.read()?;
        match reply["results"].take() {
            Value::Array(pieces) => results.extend(pieces),
            _ => return Err(Failure::new(Code::Error, "the answer has no results")),
        }
    }
    let changed = results.iter().filter(|result| is_fine(result)).count();
    let whole = json!({"changed": changed, "results": results, "next_cursor": null});
    desk.output.value(&whole, |style| {
        let mut table = Table::new(&["id", "outcome", "state"], "nothing to do");
        for result in &results {
            let state = style.state(&cell(&result["state"]));
            table.row(vec![cell(&result["id"]), cell(&result["status"]), state]);
        }
        table.render()
    })?;
    verdict(&results)
}

fn is_fine(result: &Value) -> bool {
    matches!(result["status"].as_str(), Some("done" | "requested"))
}

/// One code for all: the same failure of all is that failure, of some it is "partly".
fn verdict(results: &[Value]) -> Done {
    let failed: Vec<_> = results.iter().filter(|result| !is_fine(result)).collect();
    let Some(first) = failed.first() else { return Ok(()) };
    if failed.len() < results.len() {
        let text = format!("{} of {} tasks were left as they were", failed.len(), results.len());
        return Err(Failure::new(Code::Partly, text));
    }
    let is_same = failed.iter().all(|result| result["status"] == first["status"]);
    let id = first["id"].as_str().unwrap_or_default();
    match first["status"].as_str() {
        Some("not-found") if is_same => {
            Err(Failure::new(Code::NotFound, format!("no task {}", crate::table::plain(id))))
        }
        Some("state-conflict") if is_same => {
            let text = format!("task {id} is {}", first["state"].as_str().unwrap_or_default());
            Err(Failure::new(Code::Conflict, text))
        }
        _ => Err(Failure::new(Code::Partly, "no task was changed")),
    }
}

/// Changes all that match, piece by piece.
async fn matching(desk: &Desk, chosen: Chosen, change: &Change) -> Done {
    let filter = json!({"filter": chosen.filters, "all": chosen.all});
    let access = if chosen.dry_run { Access::Read } else { Access::Write };
    let caller = desk.caller(access).await?;
    let mut trial = change.request(filter.clone());
    trial["dry_run"] = json!(true);
    let answer = caller.send("/api/v1/tasks/bulk", &trial).await?;
    let matched: Value = answer.read()?;
    let count = matched["matched"].as_u64().unwrap_or_default();
    let more = if matched["capped"] == true { "at least " } else { "" };
    if chosen.dry_run {
        let text = format!("{more}{} tasks match", grouped(count));
        return desk.output.object(&answer, |_, _| text);
    }
    let question = format!("{} {more}{} tasks?", capitalised(change.action), grouped(count));
    confirm(&question, chosen.yes).await?;
    repeat(desk, &caller, "/api/v1/tasks/bulk", change.request(filter)).await
}

/// Sends a request again and again with the cursor of the last answer, until all is done.
pub(super) async fn repeat(desk: &Desk, caller: &Caller, route: &str, mut request: Value) -> Done {
    let bar = ProgressBar::new_spinner();
    let (mut changed, mut requested) = (0, 0);
    loop {
        let answer: Answer = caller.send(route, &request).await?;
        let reply: Value = answer.read()?;
        changed += reply["changed"].as_u64().unwrap_or_default();
        requested += reply["requested"].as_u64().unwrap_or_default();
        bar.set_message(format!("{} tasks", grouped(changed)));
        bar.tick();
        request["cursor"] = reply["next_cursor"].clone();
        if request["cursor"].is_null() {
            break;
        }
    }
    bar.finish_and_clear();
    let whole = json!({"changed": changed, "requested": requested, "next_cursor": null});
    desk.output.value(&whole, |_| {
        let waiting = match requested {
            0 => String::new(),
            some => format!(", {} of them when their run ends", grouped(some)),
        };
        format!("{} tasks changed{waiting}", grouped(changed))
    })
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(statuses: &[&str], code: Option<Code>) {
        let results: Vec<_> = statuses.iter().map(|s| json!({"id": "a", "status": s})).collect();
        assert_eq!(verdict(&results).err().map(|failure| failure.code), code);
    }

    #[test]
    fn the_exit_code_tells_all_from_some() {
        check(&["done", "requested"], None);
        check(&["not-found"], Some(Code::NotFound));
        check(&["state-conflict", "state-conflict"], Some(Code::Conflict));
        check(&["done", "not-found"], Some(Code::Partly));
        check(&["state-conflict", "not-found"], Some(Code::Partly));
    }
}
