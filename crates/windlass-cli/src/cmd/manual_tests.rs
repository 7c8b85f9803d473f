//! `docs/cli.md` is rendered from the commands themselves.

use std::fmt::Write;
use std::path::Path;

use clap::{CommandFactory, Parser};

use super::Cli;

const INTRODUCTION: &str = "\
# The command line

Every command of `windlass` with its options, as `--help` shows them. Rendered from the commands by a
test: after a change of theirs, `WINDLASS_BLESS=1 cargo test -p windlass-cli manual` writes it anew.

- With neither `--store` nor `--server` a command talks to `sqlite:windlass.db` in the current folder.
  Commands that only read do not make it.
- `-o json` prints the very object that the [HTTP API](http.md) answers with, `-o jsonl` one item of a
  list per line. Tables are for people, and come only on a terminal; logs go to the standard error.
- What deletes, or changes all that match a filter, asks on a terminal and wants `--yes` elsewhere.
  (`dlq retry` does not: it takes nothing away.)

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | something went wrong |
| 2 | the command line, a value or a setting is wrong |
| 3 | not found |
| 4 | the present state forbids it |
| 5 | unauthorized or forbidden, by a server or by the store |
| 6 | the awaited task ended dead or cancelled |
| 7 | the time to wait was over |
| 8 | some of many could not be done |
| 69 | the store or server cannot be reached, or is not ready. `serve` and `worker` end so when it is away at their start; once they run they wait for it |
| 130 | interrupted |
";

#[test]
fn the_manual_shows_every_command_as_it_is() {
    let mut manual = String::from(INTRODUCTION);
    describe(&mut manual, &[], Cli::command().term_width(96).build_for_manual());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    if std::env::var_os("WINDLASS_BLESS").is_some() {
        std::fs::write(&path, &manual).expect("the manual can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let hint = "docs/cli.md is not what the commands say: run with WINDLASS_BLESS=1";
    assert!(written == manual, "{hint}");
}

/// The command lines in a file of `deploy/`, word by word.
fn command_lines(text: &str) -> Vec<Vec<String>> {
    let words = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
    let listed = |list: &str| {
        let list = list.trim_end_matches(']').split(',');
        list.map(|word| word.trim().trim_matches('"').to_owned()).collect::<Vec<_>>()
    };
    let line = |line: &str| {
        let line = line.trim();
        if let Some(unit) = line.strip_prefix("ExecStart=/usr/bin/windlass ") {
            return Some(words(&unit.replace("$ARGUMENTS", "").replace("%i", "mail")));
        }
        if let Some(list) = line.strip_prefix("args: [").or(line.strip_prefix("CMD [")) {
            return Some(listed(list));
        }
        let test = line.strip_prefix("test: [\"CMD\", \"windlass\", ").map(listed);
        test.or_else(|| {
            let command = line.strip_prefix("command: ")?;
            let is_ours = command.starts_with("serve") || command.starts_with("worker");
            is_ours.then(|| words(command))
        })
    };
    text.lines().filter_map(line).collect()
}

#[test]
fn every_command_line_in_deploy_is_understood() {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let mut count = 0;
    for folder in ["", "compose", "kubernetes", "systemd"] {
        for file in std::fs::read_dir(deploy.join(folder)).expect("a folder").flatten() {
            let Ok(text) = std::fs::read_to_string(file.path()) else { continue };
            for words in command_lines(&text) {
                count += 1;
                let words = std::iter::once("windlass").chain(words.iter().map(String::as_str));
                if let Err(error) = Cli::try_parse_from(words) {
                    panic!("{}: {error}", file.path().display());
                }
            }
        }
    }
    // A server and a worker five times, and a health check; a container, a unit, a manifest of each.
    assert_eq!(count, 5 * 3 + 1 + 2 + 3, "command lines in deploy/");
}

trait BuildForManual {
    fn build_for_manual(self) -> Self;
}

impl BuildForManual for clap::Command {
    /// Complete with what subcommands inherit, and without the colours of a terminal.
    fn build_for_manual(mut self) -> Self {
        self = self.color(clap::ColorChoice::Never);
        self.build();
        self
    }
}

fn describe(manual: &mut String, parents: &[&str], command: clap::Command) {
    let path: Vec<&str> = parents.iter().copied().chain([command.get_name()]).collect();
    let help = command.clone().render_help().to_string();
    let title = path.join(" ");
    let help = if parents.is_empty() { help } else { without_globals(&help) };
    write!(manual, "\n## `{title}`\n\n```text\n{}\n```\n", trimmed(&help)).expect("a text");
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        describe(manual, &path, inner.clone());
    }
}

/// What every command takes is shown once, at the top.
fn without_globals(help: &str) -> String {
    let is_global = |part: &&str| !part.starts_with("Global options:");
    help.split("\n\n").filter(is_global).collect::<Vec<_>>().join("\n\n")
}

/// Without spaces at the ends of lines, which nobody sees and everybody's editor removes.
fn trimmed(help: &str) -> String {
    help.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim_end().to_owned()
}
