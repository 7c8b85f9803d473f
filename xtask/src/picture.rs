//! `cargo xtask picture`: runs a few commands of the real binary on a terminal of its own and draws
//! what a person would see, for the README.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::{Result, shell};

/// Where the drawing goes.
const PICTURE: &str = "docs/tour.svg";
const COLUMNS: u16 = 104;
const ROWS: u16 = 200;
const CELL_WIDTH: f32 = 8.4;
const LINE_HEIGHT: f32 = 18.0;
const MARGIN: f32 = 16.0;

/// What is shown, in this order.
const COMMANDS: &[&str] = &[
    r#"windlass enqueue echo '{"hello":"world"}' --wait"#,
    r#"windlass enqueue fail '{"message":"no luck","times":1}' --queue mail --tag demo"#,
    "windlass enqueue noop --count 10000",
    "windlass enqueue report.monthly --queue reports --delay 2h --priority high",
    "windlass queue list",
    "windlass task list --limit 4",
    "windlass workers list",
];

pub(crate) fn run() -> Result {
    shell::run(shell::cargo().args([
        "build",
        "--release",
        "--quiet",
        "--package",
        "windlass-cli",
    ]))?;
    let folder = tempfile::tempdir()?;
    let binary = target_folder()?.join("release");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    let _dev = start(&path, folder.path())?;
    let mut screen = vt100::Parser::new(ROWS, COLUMNS, 0);
    for command in COMMANDS {
        screen.process(format!("\x1b[1;32m$\x1b[0m \x1b[1m{command}\x1b[0m\r\n").as_bytes());
        screen.process(&on_a_terminal(command, &path, folder.path())?);
        screen.process(b"\r\n");
    }
    std::fs::write(shell::repository_root().join(PICTURE), draw(screen.screen()))?;
    println!("drew {PICTURE}");
    Ok(())
}

/// Ends the process with this.
struct Dev(Child);

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server and worker for the commands to talk to, once it listens.
fn start(path: &str, folder: &Path) -> Result<Dev> {
    let mut child = Command::new("windlass")
        .args(["dev", "--port", "0"])
        .env("PATH", path)
        .current_dir(folder)
        .stderr(Stdio::piped())
        .spawn()?;
    let log = child.stderr.take().ok_or("no standard error")?;
    let dev = Dev(child);
    let mut lines = BufReader::new(log).lines();
    let listens =
        lines.by_ref().map_while(std::result::Result::ok).any(|line| line.contains("http://"));
    std::thread::spawn(move || lines.for_each(drop));
    if listens { Ok(dev) } else { Err("windlass dev ended early".into()) }
}

/// What a command prints when it believes that a person looks on.
fn on_a_terminal(command: &str, path: &str, folder: &Path) -> Result<Vec<u8>> {
    let output = shell::program("script")?
        .args(["--quiet", "--return", "--command", command, "/dev/null"])
        .env("PATH", path)
        .env("TERM", "xterm-256color")
        .env("COLUMNS", COLUMNS.to_string())
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()?;
    if !output.status.success() {
        return Err(format!("{command} ended with {}", output.status).into());
    }
    Ok(output.stdout)
}

fn target_folder() -> Result<std::path::PathBuf> {
    let text =
        shell::output(shell::cargo().args(["metadata", "--format-version", "1", "--no-deps"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&text)?;
    Ok(metadata["target_directory"].as_str().ok_or("cargo metadata names no target")?.into())
}

/// The screen as a drawing, without the empty lines below.
fn draw(screen: &vt100::Screen) -> String {
    let is_empty = |row: &u16| (0..COLUMNS).all(|at| cell_text(screen, *row, at).trim().is_empty());
    let used = (0..ROWS).rev().find(|row| !is_empty(row)).map_or(0, |row| row + 1);
    let width = f32::from(COLUMNS) * CELL_WIDTH + 2.0 * MARGIN;
    let height = f32::from(used) * LINE_HEIGHT + 2.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"ui-monospace,Menlo,Consolas,monospace\" \
         font-size=\"14\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#16181d\"/>\n"
    );
    for row in 0..used {
        let y = MARGIN + f32::from(row) * LINE_HEIGHT + 13.0;
        for (start, text, look) in pieces(screen, row) {
            let x = MARGIN + f32::from(start) * CELL_WIDTH;
            // A text of a known length: fonts differ in width, columns must not.
            let length = text.chars().count() as f32 * CELL_WIDTH;
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" textLength=\"{length:.1}\" {look}>{}</text>",
                escaped(&text)
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// Runs of cells in a row that look alike, each with its first column.
fn pieces(screen: &vt100::Screen, row: u16) -> Vec<(u16, String, String)> {
    let mut pieces: Vec<(u16, String, String)> = Vec::new();
    for at in 0..COLUMNS {
        let text = cell_text(screen, row, at);
        let look = look(screen, row, at);
        match pieces.last_mut() {
            Some((_, piece, known)) if *known == look => piece.push_str(&text),
            _ => pieces.push((at, text, look)),
        }
    }
    for (_, text, _) in &mut pieces {
        text.truncate(text.trim_end().len());
    }
    pieces.retain(|(_, text, _)| !text.is_empty());
    pieces
}

fn cell_text(screen: &vt100::Screen, row: u16, at: u16) -> String {
    let text = screen.cell(row, at).map(|cell| cell.contents().to_owned()).unwrap_or_default();
    if text.is_empty() { String::from(" ") } else { text }
}

fn look(screen: &vt100::Screen, row: u16, at: u16) -> String {
    let Some(cell) = screen.cell(row, at) else { return String::new() };
    let colour = match cell.fgcolor() {
        vt100::Color::Idx(1) => "#ff7b72",
        vt100::Color::Idx(2) => "#7ee787",
        vt100::Color::Idx(3) => "#f2cc60",
        vt100::Color::Idx(6) => "#76e3ea",
        _ if cell.dim() => "#8b949e",
        _ => "#e6edf3",
    };
    let weight = if cell.bold() { " font-weight=\"bold\"" } else { "" };
    format!("fill=\"{colour}\"{weight}")
}

/// Spaces that no viewer folds into one, and nothing that ends a text.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace(' ', "\u{a0}")
}
