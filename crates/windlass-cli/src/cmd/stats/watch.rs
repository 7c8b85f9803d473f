//! `windlass stats --watch`: the same again and again, drawn over itself.

use std::io::Write;
use std::time::Duration;

use console::{Term, measure_text_width, truncate_str};
use serde_json::Value;

use super::chart::{frequency, numbers, sparkline, spread};
use super::{Args, both};
use crate::caller::Caller;
use crate::exit::{Code, Done, Failure};
use crate::output::{Format, Output, Style};
use crate::table::{cell, count, grouped};

/// How often it is drawn anew.
const EVERY: Duration = Duration::from_secs(2);
/// Another screen than the one with the shell's lines, and no cursor on it.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

pub(super) async fn run(args: &Args, caller: &Caller, output: Output) -> Done {
    if output.format != Format::Table {
        loop {
            let (stats, _) = both(args, caller).await?;
            output.line(&stats.to_string())?;
            tokio::time::sleep(EVERY).await;
        }
    }
    if !output.is_screen() {
        loop {
            let (stats, series) = both(args, caller).await?;
            let picture = picture(args, &stats, &series, output.style(), (24, 80));
            output.line(&format!("{}\n", picture.join("\n")))?;
            tokio::time::sleep(EVERY).await;
        }
    }
    let mut last = both(args, caller).await?;
    // Dropped also when a signal ends the command.
    let screen = Screen::enter()?;
    let mut trouble = None;
    loop {
        let (rows, columns) = Term::stdout().size();
        let size = (usize::from(rows), usize::from(columns));
        let mut lines = picture(args, &last.0, &last.1, output.style(), size);
        if let Some(trouble) = &trouble {
            lines.truncate(size.0.saturating_sub(2));
            lines.push(truncated(&format!("! {trouble}"), size.1));
        }
        screen.draw(&lines)?;
        tokio::time::sleep(EVERY).await;
        // A store or server that is away for a moment is no reason to leave.
        match both(args, caller).await {
            Ok(told) => (last, trouble) = (told, None),
            Err(failure) if failure.code == Code::Unreachable => trouble = Some(failure.text),
            Err(failure) => return Err(failure),
        }
    }
}

/// A screen of its own; what was there before comes back at the end.
struct Screen;

impl Screen {
    fn enter() -> Done<Self> {
        write(ENTER)?;
        Ok(Self)
    }

    fn draw(&self, lines: &[String]) -> Done {
        write(&frame(lines))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = write(LEAVE);
    }
}

fn write(text: &str) -> Done {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::new(Code::Error, format!("draw: {error}")))
}

/// Lines over those of the last time: each is written over and its rest cleared, so that nothing is ever blank
/// in between. Terminals that can, show it all at once.
fn frame(lines: &[String]) -> String {
    let mut text = String::from("\x1b[?2026h\x1b[H");
    for (at, line) in lines.iter().enumerate() {
        if at > 0 {
            text.push_str("\r\n");
        }
        text.push_str(line);
        text.push_str("\x1b[K");
    }
    text.push_str("\x1b[J\x1b[?2026l");
    text
}

/// What is drawn, no line wider and no more lines than there is room for.
fn picture(
    args: &Args,
    stats: &Value,
    series: &Value,
    style: Style,
    (rows, columns): (usize, usize),
) -> Vec<String> {
    let mut lines = vec![format!("{}  every 2 s, Ctrl-C ends", style.bold("windlass stats"))];
    lines.push(states(stats, style));
    let workers = &stats["workers"];
    lines.push(format!(
        "queues {}  workers {}  slots {} of {} busy",
        count(&stats["queues"]["total"]),
        count(&workers["live"]),
        count(&workers["slots_used"]),
        count(&workers["slots"]),
    ));
    lines.push(String::new());
    let subject = args.subject();
    lines.push(style.bold(&format!("last hour, minute by minute: {subject}")));
    for (name, title) in [("completed", "completed"), ("failed", "failed")] {
        let all = numbers(series, name);
        let most = all.iter().copied().max().unwrap_or(0);
        let bars = sparkline(&all, columns.saturating_sub(11));
        lines.push(format!("{title:<10} {bars}"));
        let sum: u64 = all.iter().fold(0, |sum, number| sum.saturating_add(*number));
        let told =
            format!("{:<10} {} in all, at most {} a minute", "", grouped(sum), grouped(most));
        lines.push(style.dim(&told));
    }
    lines.push(String::new());
    let heading = table_line(
        "of",
        &["per min", "failed", "wait p50/p95/p99", "run p50/p95/p99"].map(String::from),
    );
    lines.push(style.bold(&heading));
    lines.push(tally_line(&subject, &series["total"]));
    if !args.is_of_some() {
        let queues = stats["windows"]["1h"]["queues"].as_array().into_iter().flatten();
        lines.extend(queues.map(|tally| tally_line(&cell(&tally["queue"]), tally)));
    }
    // The last row stays free: a terminal may scroll when it is written to its end.
    lines.truncate(rows.saturating_sub(1).max(1));
    lines.into_iter().map(|line| truncated(&line, columns)).collect()
}

/// Tasks by state on one line, those that there are none of left out.
fn states(stats: &Value, style: Style) -> String {
    let mut parts = vec![format!("tasks {}", count(&stats["tasks"]["total"]))];
    for (state, number) in stats["tasks"]["by_state"].as_object().into_iter().flatten() {
        if number.as_u64().unwrap_or(0) > 0 {
            parts.push(format!("{} {}", style.state(state), count(number)));
        }
    }
    parts.join("  ")
}

fn tally_line(name: &str, tally: &Value) -> String {
    let cells = [
        frequency(&tally["completed_per_minute"]),
        count(&tally["failed"]),
        spread(&tally["wait"]),
        spread(&tally["run_time"]),
    ];
    table_line(name, &cells)
}

/// Columns that fit into 80.
fn table_line(name: &str, cells: &[String; 4]) -> String {
    let [rate, failed, wait, run] = cells;
    let name = truncated(name, 19);
    let pad = " ".repeat(20_usize.saturating_sub(measure_text_width(&name)));
    format!("{name}{pad}{rate:>8} {failed:>7} {wait:>20} {run:>20}")
}

fn truncated(line: &str, columns: usize) -> String {
    truncate_str(line, columns.max(1), "…").into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cmd::stats::Window;

    fn args() -> Args {
        Args { window: Window::Hour, queue: None, kind: None, watch: true }
    }

    fn answers(queues: usize) -> (Value, Value) {
        let spread = json!({"mean": 0.1, "p50": 0.0123, "p95": 0.2345, "p99": 12.5});
        let tally = |name: &str| {
            json!({"queue": name, "completed": 7, "failed": 1234567, "completed_per_minute": 123456.7,
                "wait": spread, "run_time": spread})
        };
        let names = (0..queues).map(|at| format!("queue-{at}-{}", "x".repeat(100)));
        let queues: Vec<_> = names.map(|name| tally(&name)).collect();
        let points: Vec<_> =
            (0..60).map(|at| json!({"completed": at * 1000, "failed": at % 7})).collect();
        let stats = json!({
            "tasks": {"total": 12345678, "by_state": {"scheduled": 0, "pending": 9999999,
                "running": 1234567, "retrying": 1234567, "completed": 123456789,
                "dead_letter": 1234567, "cancelled": 1234567}},
            "queues": {"total": 3, "paused": 0},
            "workers": {"live": 2, "slots": 40, "slots_used": 7},
            "windows": {"1h": {"queues": queues}},
        });
        (stats, json!({"points": points, "total": tally("all")}))
    }

    fn plain_style() -> Style {
        Output::plain().style()
    }

    /// A terminal after these frames, one after the other.
    fn terminal(frames: &[String], rows: u16, columns: u16) -> Vec<String> {
        let mut terminal = vt100::Parser::new(rows, columns, 100);
        frames.iter().for_each(|frame| terminal.process(frame.as_bytes()));
        terminal.screen().rows(0, columns).collect()
    }

    #[test]
    fn a_picture_fits_into_80_columns_and_as_many_rows_as_there_are() {
        let (stats, series) = answers(50);
        for (rows, columns) in [(24, 80), (10, 80), (60, 200), (1, 20), (24, 40)] {
            let lines = picture(&args(), &stats, &series, plain_style(), (rows, columns));
            assert!(lines.len() < rows.max(2), "{} lines in {rows}", lines.len());
            for line in &lines {
                assert!(measure_text_width(line) <= columns, "{line}");
                assert!(!line.contains('\x1b'), "no colours were asked for: {line:?}");
            }
        }
    }

    #[test]
    fn a_frame_shows_its_lines_and_nothing_of_the_one_before() {
        let (stats, series) = answers(9);
        let long = picture(&args(), &stats, &series, plain_style(), (24, 80));
        let (stats, series) = answers(0);
        let short = picture(&args(), &stats, &series, plain_style(), (24, 80));
        let shown = terminal(&[ENTER.into(), frame(&long), frame(&short)], 24, 80);
        let expected: Vec<_> = short.iter().map(|line| line.trim_end().to_owned()).collect();
        let shown_lines: Vec<_> = shown.iter().map(|row| row.trim_end().to_owned()).collect();
        assert_eq!(shown_lines[..expected.len()], expected[..]);
        assert!(shown_lines[expected.len()..].iter().all(String::is_empty), "{shown:?}");
        assert!(
            shown.iter().any(|row| row.contains("completed") && row.contains('█')),
            "{shown:?}"
        );
    }

    #[test]
    fn leaving_brings_back_what_was_there_before() {
        let (stats, series) = answers(3);
        let lines = picture(&args(), &stats, &series, plain_style(), (24, 80));
        let mut terminal = vt100::Parser::new(24, 80, 0);
        for text in ["$ windlass stats --watch\r\n", ENTER, &frame(&lines), LEAVE] {
            terminal.process(text.as_bytes());
        }
        let screen = terminal.screen();
        assert!(screen.contents().starts_with("$ windlass stats --watch"));
        assert!(!screen.hide_cursor() && !screen.alternate_screen());
    }

    #[test]
    fn a_frame_never_clears_the_whole_screen_first() {
        let text = frame(&[String::from("a"), String::from("b")]);
        assert!(!text.contains("\x1b[2J"));
        assert!(text.find("\x1b[J").unwrap() > text.find('b').unwrap());
    }
}
