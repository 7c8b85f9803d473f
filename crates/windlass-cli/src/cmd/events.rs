//! `windlass events`: what happens, as it happens.

use std::time::Duration;

use serde_json::Value;
use windlass::core::{Kind, QueueName};
use windlass::{EventFilter, Listener};

use super::Desk;
use crate::caller::{Access, client, escaped, explained, http, innermost};
use crate::exit::{Code, Done, Failure};
use crate::output::{Format, Output, Style, tell};
use crate::settings::{Server, without_password};
use crate::table::plain;

const EXAMPLES: &str = "\
Examples:
  windlass events                                        everything
  windlass events --filter 'task.*' --queue mail         tasks of one queue
  windlass events --filter task.failed,task.dead_letter --server http://127.0.0.1:8080
  windlass events -o jsonl | jq .data.task_id            for programs";

/// A server sends something every 15 s.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// The pause before a connection is made again, and the longest.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// No event is longer.
const EVENT_BYTES_MAX: usize = 1024 * 1024;

/// Which events.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Names of events: task.completed, all of a sort as in 'task.*'; several with commas or the flag again. All
    /// if absent.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    filter: Vec<String>,
    /// Only events of this queue.
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Only events of tasks of this type.
    #[arg(long, value_name = "TYPE")]
    r#type: Option<String>,
    /// The id of the last event seen: what came after it is told first, if the server still has it.
    #[arg(long, value_name = "ID")]
    since: Option<String>,
}

pub(crate) async fn run(args: Args, desk: &Desk) -> Done {
    let filter = EventFilter::of(&args.filter)?;
    let format = desk.output;
    if let Some(server) = &desk.settings.server {
        return follow(args, server, format).await;
    }
    let client = client(&desk.settings, Access::Read).await?;
    let filter = filter.queue(args.queue.as_deref().map(QueueName::stored));
    let filter = filter.kind(args.r#type.as_deref().map(Kind::stored));
    let mut listener: Listener = client.listen(filter, args.since.as_deref()).await?;
    loop {
        for told in listener.next_batch().await {
            show(format, &String::from_utf8_lossy(&told.json))?;
        }
    }
}

/// Follows a server, and comes back to it when it was lost.
async fn follow(args: Args, server: &Server, output: Output) -> Done {
    let mut path = String::from("/api/v1/events?");
    let names = (!args.filter.is_empty()).then(|| args.filter.join(","));
    for (name, value) in [("subscribe", names), ("queue", args.queue), ("type", args.r#type)] {
        if let Some(value) = value {
            path.push_str(&format!("{name}={}&", escaped(&value)));
        }
    }
    let http = http(server, None)?;
    let url = format!("{}{}", server.url.trim_end_matches('/'), path.trim_end_matches(['&', '?']));
    let mut follower = Follower { http, url, server, output, last: args.since, has_begun: false };
    let mut pause = PAUSE;
    loop {
        let began = tokio::time::Instant::now();
        let lost = match follower.listen().await {
            Ok(()) => String::from("the stream has ended"),
            Err(failure) if !follower.has_begun || !is_passing(&failure) => return Err(failure),
            Err(failure) => failure.text,
        };
        if began.elapsed() > PAUSE_MAX {
            pause = PAUSE;
        }
        tell!("{lost}; connecting again in {} s", pause.as_secs());
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn is_passing(failure: &Failure) -> bool {
    matches!(failure.code, Code::Unreachable | Code::TimedOut | Code::Error)
}

struct Follower<'a> {
    http: reqwest::Client,
    url: String,
    server: &'a Server,
    output: Output,
    /// The last event that was shown.
    last: Option<String>,
    /// The server has answered once.
    has_begun: bool,
}

impl Follower<'_> {
    /// Shows events until the connection ends.
    async fn listen(&mut self) -> Done {
        let mut request = self.http.get(&self.url);
        if let Some(token) = &self.server.token {
            request = request.bearer_auth(token);
        }
        if let Some(last) = &self.last {
            request = request.header("last-event-id", last);
        }
        let url = without_password(&self.server.url);
        let lost = |cause: reqwest::Error| {
            let cause = explained(&innermost(&cause.without_url()));
            Failure::new(Code::Unreachable, format!("cannot reach {url}: {cause}"))
        };
        let mut answer = request.send().await.map_err(lost)?;
        if answer.status() != 200 {
            let status = answer.status().as_u16();
            return Err(Failure::of_answer(status, &answer.bytes().await.map_err(lost)?));
        }
        self.has_begun = true;
        let mut text = Vec::new();
        loop {
            let piece = tokio::time::timeout(SILENCE_MAX, answer.chunk()).await;
            let silent = |_| Failure::new(Code::TimedOut, format!("{url} is silent"));
            let Some(piece) = piece.map_err(silent)?.map_err(lost)? else { return Ok(()) };
            text.extend_from_slice(&piece);
            while let Some(end) = text.windows(2).position(|pair| pair == b"\n\n") {
                let event: Vec<u8> = text.drain(..end + 2).collect();
                self.take(&String::from_utf8_lossy(&event))?;
            }
            if text.len() > EVENT_BYTES_MAX {
                return Err(Failure::new(Code::Usage, format!("{url} does not tell events")));
            }
        }
    }

    fn take(&mut self, event: &str) -> Done {
        for line in event.lines() {
            if let Some(id) = line.strip_prefix("id: ") {
                self.last = Some(id.to_owned());
            } else if let Some(json) = line.strip_prefix("data: ") {
                show(self.output, json)?;
            }
        }
        Ok(())
    }
}

fn show(output: Output, json: &str) -> Done {
    match output.format {
        Format::Json | Format::Jsonl => output.line(json),
        Format::Table => {
            let event: Value = serde_json::from_str(json).unwrap_or_default();
            output.line(&told(&event, output.style()))
        }
    }
}

/// An event in a line for people.
fn told(event: &Value, style: Style) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => plain(text).replace(['\n', '\t'], " "),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let (kind, data) = (text(&event["type"]), &event["data"]);
    let time = text(&event["timestamp"]);
    let time = time.split('T').nth(1).unwrap_or_default().to_owned();
    let state = kind.split('.').nth(1).unwrap_or(&kind);
    let named = style.state(state);
    let kind = kind.replacen(state, &named, 1) + &" ".repeat(16_usize.saturating_sub(kind.len()));
    let mut words = vec![style.dim(&time), kind];
    for name in ["queue", "type", "task_id", "worker_id", "name"] {
        if !data[name].is_null() {
            words.push(text(&data[name]));
        }
    }
    if let Some(duration) = data["duration_ms"].as_u64() {
        words.push(format!("{duration} ms"));
    }
    if let Some(share) = data["progress"].as_f64() {
        words.push(format!("{:.0} % {}", share * 100.0, text(&data["note"])));
    }
    for name in ["error", "reason"] {
        if !data[name].is_null() {
            words.push(text(&data[name]));
        }
    }
    if let Some(counts) = data["counts"].as_object() {
        let counts = counts.iter().filter(|(_, count)| count.as_u64() != Some(0));
        words.extend(counts.map(|(state, count)| format!("{count} {state}")));
    }
    words.join("  ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_is_in_it() {
        let event = serde_json::json!({
            "type": "task.failed", "timestamp": "2026-01-31T10:20:30.123Z", "id": "b-1",
            "data": {"task_id": "t1", "type": "a", "queue": "q", "error": "one\ntwo\u{1b}[31m", "duration_ms": 5}
        });
        let line = told(&event, Output::plain().style());
        assert!(line.starts_with("10:20:30.123Z  task.failed"), "{line}");
        assert!(line.ends_with("5 ms  one two\u{fffd}[31m") && !line.contains('\n'), "{line}");
    }
}
