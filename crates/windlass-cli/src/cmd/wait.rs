//! Waits for the end of a task.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::Desk;
use super::task::told;
use crate::caller::{Answer, Caller, escaped};
use crate::exit::{Code, Done, Failure};
use crate::output::tell;

/// Longest single wait that a server is asked for.
const ROUND: Duration = Duration::from_secs(30);
/// After this time without a start, the command checks whether a live worker can run the task.
const UNSTARTED_MAX: Duration = Duration::from_secs(2);

/// Waits until the task is finished, or for `at_most`; answers it as it is then.
pub(super) async fn until_finished(
    caller: &Caller,
    id: &str,
    at_most: Option<Duration>,
) -> Done<Answer> {
    let deadline = at_most.and_then(|time| Instant::now().checked_add(time));
    let mut longest = UNSTARTED_MAX;
    loop {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let round = left.map_or(longest, |left| left.min(longest)).as_secs_f64();
        let path = format!("/api/v1/tasks/{}?wait={round:.3}", escaped(id));
        let answer = caller.get(&path).await?;
        let task = answer.value()?;
        if !task["completed_at"].is_null() {
            return Ok(answer);
        }
        if left.is_some_and(|left| left.as_secs_f64() <= round) {
            return Ok(answer);
        }
        if longest == UNSTARTED_MAX {
            longest = ROUND;
            if let Some(why) = why_unstarted(caller, &task).await {
                tell!("{why}");
            }
        }
    }
}

/// Why a task does not start, if no live worker can run it.
async fn why_unstarted(caller: &Caller, task: &Value) -> Option<String> {
    let waits = match task["state"].as_str()? {
        "pending" => true,
        // Its own time may not have come; one that waits for a handler has the reason.
        "scheduled" => !task["error"].is_null(),
        _ => false,
    };
    // A caller without access to the list of workers gets no hint.
    let workers = caller.get("/api/v1/workers").await.ok().filter(|_| waits)?.value().ok()?;
    unserved(task["queue"].as_str()?, task["type"].as_str()?, workers["data"].as_array()?)
}

/// The hint that no live worker runs tasks of this queue and type; nothing if one does.
fn unserved(queue: &str, kind: &str, workers: &[Value]) -> Option<String> {
    let has = |list: &Value, name: &str| {
        list.as_array().is_some_and(|list| list.iter().any(|item| item == name))
    };
    let is_live = |worker: &&Value| !["gone", "drain"].map(Value::from).contains(&worker["state"]);
    let mut serving = workers.iter().filter(is_live).filter(|worker| has(&worker["queues"], queue));
    // A worker that lists no types handles every type, or more than it lists.
    let handles = |worker: &Value| worker["types"].is_null() || has(&worker["types"], kind);
    let (queue, kind) = (crate::table::plain(queue), crate::table::plain(kind));
    match serving.next() {
        None => Some(format!("no live worker serves queue {queue}")),
        Some(first) if handles(first) || serving.any(handles) => None,
        Some(_) => Some(format!("no live worker handles type {kind} in queue {queue}")),
    }
}

/// Waits for a task and prints it; one that did not complete, or not in time, is a failure.
pub(super) async fn and_show(
    desk: &Desk,
    caller: &Caller,
    id: &str,
    at_most: Option<Duration>,
) -> Done {
    let answer = until_finished(caller, id, at_most).await?;
    desk.output.object(&answer, told)?;
    verdict(&answer.value()?)
}

/// What the end of a task means for the exit code.
pub(super) fn verdict(task: &Value) -> Done {
    match task["state"].as_str() {
        Some("completed") => Ok(()),
        Some(state) if task["completed_at"].is_null() => {
            let id = task["id"].as_str().unwrap_or_default();
            let text = format!("task {id} is still {state} at the end of the wait");
            Err(Failure::new(Code::TimedOut, text))
        }
        state => {
            let (id, state) = (task["id"].as_str().unwrap_or_default(), state.unwrap_or_default());
            let why = task["error"].as_str().unwrap_or("no error was given");
            let text = format!("task {id} ended {state}: {}", crate::table::plain(why));
            Err(Failure::new(Code::TaskFailed, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_hint_names_what_is_missing() {
        let worker = |state: &str, queues: Value, types: Value| json!({ "state": state, "queues": queues, "types": types });
        let every = worker("run", json!(["mail"]), Value::Null);
        let some = worker("pause", json!(["mail", "jobs"]), json!(["a", "b"]));
        let gone = worker("gone", json!(["mail"]), Value::Null);
        let check = |workers: &[Value], queue: &str, kind: &str, expected: Option<&str>| {
            assert_eq!(unserved(queue, kind, workers).as_deref(), expected, "{workers:?}");
        };
        check(&[], "mail", "a", Some("no live worker serves queue mail"));
        check(std::slice::from_ref(&gone), "mail", "a", Some("no live worker serves queue mail"));
        let alone = std::slice::from_ref(&some);
        check(alone, "mail", "a", None);
        check(alone, "jobs", "c", Some("no live worker handles type c in queue jobs"));
        check(&[some, every, gone], "mail", "c", None);
    }
}
