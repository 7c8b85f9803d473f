//! Changes of many tasks: named one by one, or all that match a filter.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value, json};
use windlass_server::Method;

use super::filters::StateAndFilters;
use super::{Desk, ids};
use crate::caller::{Access, Answer, Caller, escaped};
use crate::confirm::confirm;
use crate::exit::{Code, Done, Failure};
use crate::table::{Table, cell, grouped, plain};

/// Most tasks that one request names.
const NAMED_MAX: usize = 1_000;
/// How often a progress bar is drawn while a piece is under way.
const TICK: Duration = Duration::from_millis(200);

/// Which tasks are to be changed.
#[derive(clap::Args)]
pub(crate) struct Chosen {
    /// The tasks; or use filters. Six characters of the beginning or the end of an id are enough where they fit no
    /// other of the newest 10,000.
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    filters: StateAndFilters,
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
        let question = format!("Delete {} for good?", tasks(chosen.ids.len() as u64));
        if !confirm(&question, chosen.yes).await? {
            return Ok(());
        }
    }
    let caller = desk.caller(Access::Write).await?;
    let ids = ids::tasks(&caller, chosen.ids).await?;
    let mut whole = json!({});
    let mut results = Vec::new();
    for ids in ids.chunks(NAMED_MAX) {
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
        add(&mut whole, reply);
    }
    whole["results"] = json!(results);
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

/// Adds the numbers of an answer to those of the answers before; what is no number is the last one's.
fn add(whole: &mut Value, answer: Value) {
    let Value::Object(fields) = answer else { return };
    for (name, value) in fields {
        let sum = value.as_u64().map(|number| number + whole[&name].as_u64().unwrap_or_default());
        whole[&name] = sum.map_or(value, Value::from);
    }
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
            Err(Failure::new(Code::NotFound, format!("no task {}", plain(id))))
        }
        Some("state-conflict") if is_same => {
            let text = format!("task {id} is {}", first["state"].as_str().unwrap_or_default());
            Err(Failure::new(Code::Conflict, text))
        }
        Some("held-elsewhere") if is_same => {
            let text = format!("task {} is held by a program outside windlass", plain(id));
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
        let text = format!("{more}{} would be changed", tasks(count));
        return desk.output.object(&answer, |_, _| text);
    }
    if count == 0 {
        return desk.output.value(&nothing(), |_| String::from("no tasks match"));
    }
    let question = format!("{} {more}{}?", capitalised(change.action), tasks(count));
    if !confirm(&question, chosen.yes).await? {
        return Ok(());
    }
    let total = (matched["capped"] != true).then_some(count);
    let sweep =
        Sweep::InBody { route: "/api/v1/tasks/bulk".into(), request: change.request(filter) };
    sweep.run(desk, &caller, total).await
}

/// A change of many tasks that the API works through in pieces, and where it takes the cursor.
pub(super) enum Sweep {
    /// As a field of the request's body.
    InBody { route: String, request: Value },
    /// As a parameter of the URL; the request has no body.
    InUrl { method: Method, path: String },
}

impl Sweep {
    /// Sends the request again with the cursor of the last reply, until all is done. `total` is how many tasks
    /// are expected, where that is known.
    pub(super) async fn run(self, desk: &Desk, caller: &Caller, total: Option<u64>) -> Done {
        let mut sum = Sum::new(total);
        let mut cursor = None;
        loop {
            let reply = self.send(caller, cursor.as_deref()).await;
            let reply: Value =
                reply.and_then(|reply| reply.read()).map_err(|e| sum.cut_short(e))?;
            cursor = sum.add(&reply);
            if cursor.is_none() {
                return sum.show(desk);
            }
        }
    }

    async fn send(&self, caller: &Caller, cursor: Option<&str>) -> Done<Answer> {
        match self {
            Self::InBody { route, request } => {
                let mut request = request.clone();
                if let Some(cursor) = cursor {
                    request["cursor"] = json!(cursor);
                }
                caller.send(route, &request).await
            }
            Self::InUrl { method, path } => {
                let separator = if path.contains('?') { '&' } else { '?' };
                let from = cursor.map(|cursor| format!("{separator}cursor={}", escaped(cursor)));
                let path = format!("{path}{}", from.unwrap_or_default());
                caller.call(method.clone(), &path, None).await
            }
        }
    }
}

/// What a change that goes piece by piece has come to so far.
struct Sum {
    changed: u64,
    requested: u64,
    bar: ProgressBar,
}

impl Sum {
    fn new(total: Option<u64>) -> Self {
        let (bar, template) = match total {
            Some(total) => (ProgressBar::new(total), "{bar:30} {human_pos}/{human_len} {per_sec}"),
            None => (ProgressBar::new_spinner(), "{spinner} {human_pos} tasks {per_sec}"),
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(TICK);
        Self { changed: 0, requested: 0, bar }
    }

    /// Adds a piece; answers where the next one begins, nothing at the end.
    fn add(&mut self, reply: &Value) -> Option<String> {
        self.changed += reply["changed"].as_u64().unwrap_or_default();
        self.requested += reply["requested"].as_u64().unwrap_or_default();
        self.bar.set_position(self.changed);
        reply["next_cursor"].as_str().map(str::to_owned)
    }

    /// A failure after pieces that were done says how far it came.
    fn cut_short(&self, failure: Failure) -> Failure {
        self.bar.finish_and_clear();
        match self.changed {
            0 => failure,
            some => {
                Failure { text: format!("{failure}; {} changed before", tasks(some)), ..failure }
            }
        }
    }

    fn show(self, desk: &Desk) -> Done {
        let Self { changed, requested, bar } = self;
        bar.finish_and_clear();
        let whole = json!({"changed": changed, "requested": requested, "next_cursor": null});
        desk.output.value(&whole, |_| {
            let waiting = match requested {
                0 => String::new(),
                some => format!(", {} of them when their run ends", grouped(some)),
            };
            format!("{} changed{waiting}", tasks(changed))
        })
    }
}

/// The answer when there was nothing to do.
fn nothing() -> Value {
    json!({"changed": 0, "requested": 0, "next_cursor": null})
}

/// So many tasks, in words.
pub(super) fn tasks(count: u64) -> String {
    if count == 1 { String::from("1 task") } else { format!("{} tasks", grouped(count)) }
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
        check(&["held-elsewhere"], Some(Code::Conflict));
        check(&["done", "not-found"], Some(Code::Partly));
        check(&["state-conflict", "not-found"], Some(Code::Partly));
    }
}
