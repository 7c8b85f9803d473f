//! Waits for the end of a task.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::Desk;
use super::task::told;
use crate::caller::{Answer, Caller, escaped};
use crate::exit::{Code, Done, Failure};

/// Longest single wait that a server is asked for.
const ROUND: Duration = Duration::from_secs(30);

/// Waits until the task is finished; after `at_most` it is given up as timed out.
pub(super) async fn until_finished(
    caller: &Caller,
    id: &str,
    at_most: Option<Duration>,
) -> Done<Answer> {
    let deadline = at_most.and_then(|time| Instant::now().checked_add(time));
    loop {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let round = left.map_or(ROUND, |left| left.min(ROUND)).as_secs_f64();
        let path = format!("/api/v1/tasks/{}?wait={round:.3}", escaped(id));
        let answer = caller.get(&path).await?;
        let task = answer.value()?;
        if !task["completed_at"].is_null() {
            return Ok(answer);
        }
        if left.is_some_and(|left| left.as_secs_f64() <= round) {
            let state = task["state"].as_str().unwrap_or_default();
            let text = format!("task {id} is still {state} at the end of the wait");
            return Err(Failure::new(Code::TimedOut, text));
        }
    }
}

/// Prints a finished task; one that did not complete is a failure.
pub(super) fn finish(desk: &Desk, answer: &Answer) -> Done {
    desk.output.object(answer, told)?;
    verdict(&answer.value()?)
}

/// What the end of a task means for the exit code.
pub(super) fn verdict(task: &Value) -> Done {
    match task["state"].as_str() {
        Some("completed") => Ok(()),
        state => {
            let (id, state) = (task["id"].as_str().unwrap_or_default(), state.unwrap_or_default());
            let why = task["error"].as_str().unwrap_or("no error was given");
            let text = format!("task {id} ended {state}: {}", crate::table::plain(why));
            Err(Failure::new(Code::TaskFailed, text))
        }
    }
}
