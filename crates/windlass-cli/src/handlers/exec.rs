//! A command for every task: payload in, result out, and its exit status says how the run ended.

mod group;
mod reports;
mod streams;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use windlass::core::limits::Limits;
use windlass::{Context, Failure, Outcome, RawTask, WorkerBuilder, cancelled, discard, snooze};

use self::group::Running;
pub(crate) use self::group::settled;
use self::streams::{Output, input, listen};

/// The task can never succeed. (From `sysexits.h`: the input data was incorrect.)
const DISCARD: i32 = 65;
/// Not now. (From `sysexits.h`: temporary failure.)
const SNOOZE: i32 = 75;
const SNOOZE_FOR: Duration = Duration::from_secs(10);
/// How long a command that was asked to end may take for it.
const GRACE: Duration = Duration::from_secs(5);
/// How much of what a command wrote to stderr becomes the error; the end of it.
const ERROR_BYTES_MAX: usize = 16 * 1024;

/// A command for every task.
#[derive(Debug, Clone)]
pub(crate) struct Exec {
    /// For `sh -c`.
    pub(crate) command: String,
    /// Variables that it gets although they are among those that are hidden from commands.
    pub(crate) variables: Vec<String>,
}

/// Variables with secrets besides windlass's own: those of PostgreSQL's, Redis's and systemd's tools.
const SECRETS: [&str; 5] =
    ["PGPASSWORD", "PGPASSFILE", "REDISCLI_AUTH", "CREDENTIALS_DIRECTORY", "NOTIFY_SOCKET"];

/// Runs the command for tasks of all kinds.
pub(super) fn add(builder: WorkerBuilder<()>, exec: Exec) -> WorkerBuilder<()> {
    // A command of the same user could read all that was hidden from it in the environment of its parent.
    if let Err(error) = nix::sys::prctl::set_dumpable(false) {
        tracing::warn!(%error, "commands can read the environment of this worker");
    }
    add_with(builder, exec, GRACE)
}

fn add_with(builder: WorkerBuilder<()>, exec: Exec, grace: Duration) -> WorkerBuilder<()> {
    let exec = Arc::new(exec);
    builder.handle_any(move |task, cx| {
        let exec = Arc::clone(&exec);
        async move { execute(&exec, grace, task, cx).await }
    })
}

async fn execute(exec: &Exec, grace: Duration, task: RawTask, cx: Context<()>) -> Outcome<Bytes> {
    let limits = cx.client().config().limits;
    let mut shell = Command::new("sh");
    shell
        .stdin(input(&task.payload).map_err(|error| format!("keep the payload: {error}"))?)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let inherited = std::env::vars_os().map(|(name, _)| name);
    hide_secrets(&mut shell, inherited, &exec.variables);
    set_environment(&mut shell, &task, &cx);
    let (child, pipe) = reports::spawn(&mut shell, &exec.command)
        .map_err(|error| format!("start the command: {error}"))?;
    // From here on, whoever drops this run (a timeout, a lost lease, the end of the worker) ends the
    // command with it; the hold delays the report of its end until it is gone.
    let mut running = Running::new(child, grace, cx.hold())?;
    let mut output = Output::new(limits.result_bytes_max, ERROR_BYTES_MAX);
    let is_whole = tokio::select! {
        is_whole = listen(&mut running, &mut output, pipe, &cx) => is_whole?,
        () = cx.cancelled() => {
            running.end().await?;
            return Err(cancelled());
        }
    };
    // What a command leaves behind in its group ends with its run.
    let status = running.end().await?;
    if !is_whole {
        let most = limits.result_bytes_max;
        return Err(format!("the command printed more than {most} bytes, the most kept").into());
    }
    if status.success() && !output.complained().is_empty() {
        let (task, stderr) = (cx.task_id(), String::from_utf8_lossy(output.complained()));
        tracing::debug!(%task, stderr = stderr.trim(), "the command wrote to its standard error");
    }
    judge(status, output, &limits)
}

/// Hides from the command what is none of its business: tokens, and URLs of stores, which hold passwords. All of
/// ours go, so that none is forgotten when one is added; and those of others in which windlass finds secrets.
fn hide_secrets(
    shell: &mut Command,
    inherited: impl Iterator<Item = OsString>,
    variables: &[String],
) {
    let is_secret = |name: &OsString| {
        let name = name.as_encoded_bytes();
        let is_ours = name.starts_with(b"WINDLASS_") || name.starts_with(b"OTEL_EXPORTER_OTLP");
        is_ours || SECRETS.iter().any(|secret| secret.as_bytes() == name)
    };
    let is_handed_on = |name: &OsString| variables.iter().any(|variable| name == variable.as_str());
    for name in inherited.filter(is_secret).filter(|name| !is_handed_on(name)) {
        shell.env_remove(name);
    }
}

/// Names the task to the command.
fn set_environment(shell: &mut Command, task: &RawTask, cx: &Context<()>) {
    shell
        .env("WINDLASS_TASK_ID", cx.task_id().to_string())
        .env("WINDLASS_EPOCH", cx.epoch().to_string())
        .env("WINDLASS_ATTEMPT", cx.attempt().to_string())
        .env("WINDLASS_TYPE", task.kind.as_str())
        .env("WINDLASS_QUEUE", cx.queue().as_str())
        .env(reports::VARIABLE, reports::DESCRIPTOR.to_string());
    // The worker's own, if it was started with one, is not that of its tasks.
    match cx.traceparent() {
        Some(traceparent) => shell.env("TRACEPARENT", traceparent),
        None => shell.env_remove("TRACEPARENT"),
    };
}

/// What a command that has ended by itself makes of its run.
fn judge(status: ExitStatus, output: Output, limits: &Limits) -> Outcome<Bytes> {
    let error_bytes_max = limits.error_bytes_max;
    match status.code() {
        Some(0) if output.reports.is_result_too_long => {
            let most = limits.result_bytes_max;
            Err(format!("the command reported a result of more than {most} bytes, the most kept")
                .into())
        }
        Some(0) => Ok(output.result()),
        Some(SNOOZE) => Err(snooze(output.reports.snooze.unwrap_or(SNOOZE_FOR))),
        Some(DISCARD) => Err(discard(complaint(status, &output, error_bytes_max))),
        _ => Err(Failure::from(complaint(status, &output, error_bytes_max))),
    }
}

/// The end of what it wrote to stderr; its exit status when that is nothing.
fn complaint(status: ExitStatus, output: &Output, bytes_max: usize) -> String {
    use std::os::unix::process::ExitStatusExt;
    let text = String::from_utf8_lossy(output.complained());
    let text = text.trim();
    if text.is_empty() {
        return match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => status.to_string(),
        };
    }
    // The reason stands last, and bytes that are no text have made the text longer.
    let bytes_max = bytes_max.min(ERROR_BYTES_MAX);
    text[text.ceil_char_boundary(text.len().saturating_sub(bytes_max))..].to_owned()
}
