//! What commands print: tables for people on a terminal, the objects of the HTTP API for programs.

use std::io::{IsTerminal, Write};

use clap::ValueEnum;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::caller::{Answer, lenient};
use crate::cmd::Globals;
use crate::exit::{Code, Done, Failure};
use crate::table::Table;

/// A line for the person at the terminal, on stderr. Nobody need be there to read it: a closed pipe is
/// no reason to end.
macro_rules! tell {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}
pub(crate) use tell;

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// The object that the HTTP API answers with.
    Json,
    /// One object per line: each item of a list by itself.
    Jsonl,
}

/// Where results go, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    pub(crate) format: Format,
    is_colored: bool,
}

/// A list as the API answers with it; the items stay as they are, byte for byte.
#[derive(serde::Deserialize)]
pub(crate) struct List {
    pub(crate) data: Vec<Box<RawValue>>,
    #[serde(default)]
    pub(crate) next_cursor: Option<String>,
}

impl Output {
    /// As the flags say; without any, tables on a terminal and JSON elsewhere.
    pub(crate) fn of(globals: &Globals) -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let format = if is_terminal { Format::Table } else { Format::Json };
        let is_wanted = !globals.no_color && std::env::var_os("NO_COLOR").is_none();
        Self { format: globals.output.unwrap_or(format), is_colored: is_wanted && is_terminal }
    }

    /// For text that has no other form.
    pub(crate) fn plain() -> Self {
        Self { format: Format::Table, is_colored: false }
    }

    /// One object: as it came for programs, told in words for people.
    pub(crate) fn object(
        self,
        answer: &Answer,
        tell: impl FnOnce(&Value, Style) -> String,
    ) -> Done {
        match self.format {
            Format::Table => self.line(&tell(&answer.value()?, self.style())),
            Format::Json | Format::Jsonl => self.line(&one_line(&text(answer)?)),
        }
    }

    /// A list: as it came, item by item, or as a table.
    pub(crate) fn list(self, answer: &Answer, rows: impl FnOnce(&[Value], Style) -> Table) -> Done {
        match self.format {
            Format::Json => self.line(&one_line(&text(answer)?)),
            Format::Jsonl => {
                let list: List = answer.read()?;
                list.data.iter().try_for_each(|item| self.line(&one_line(item.get())))?;
                tell_of_more(&list);
                Ok(())
            }
            Format::Table => {
                let list: List = answer.read()?;
                self.table(&rows(&values(&list)?, self.style()))?;
                tell_of_more(&list);
                Ok(())
            }
        }
    }

    /// An object that has no route of its own in the API.
    pub(crate) fn value(self, value: &Value, tell: impl FnOnce(Style) -> String) -> Done {
        match self.format {
            Format::Table => self.line(&tell(self.style())),
            Format::Json | Format::Jsonl => self.line(&value.to_string()),
        }
    }

    pub(crate) fn table(self, table: &Table) -> Done {
        // A person with a screen sees whole lines; a file takes all there is.
        let columns = std::io::stdout().is_terminal().then(|| console::Term::stdout().size().1);
        self.line(&table.render_within(columns.map(usize::from)))
    }

    /// Prints a line; a reader that has gone away ends the command, as `head` does on purpose.
    pub(crate) fn line(self, line: &str) -> Done {
        let mut out = std::io::stdout().lock();
        match out.write_all(line.as_bytes()).and_then(|()| out.write_all(b"\n")) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
            Err(error) => Err(Failure::new(Code::Error, format!("print: {error}"))),
        }
    }

    /// True when a person looks on, and a screen can be drawn.
    pub(crate) fn is_screen(self) -> bool {
        self.format == Format::Table && std::io::stdout().is_terminal()
    }

    pub(crate) fn style(self) -> Style {
        Style { is_colored: self.is_colored }
    }
}

/// How words are made to stand out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    is_colored: bool,
}

impl Style {
    /// A state in its colour.
    pub(crate) fn state(self, state: &str) -> String {
        let word = console::style(state).force_styling(self.is_colored);
        let coloured = match state {
            "completed" => word.green(),
            "running" => word.cyan(),
            "retrying" => word.yellow(),
            "dead_letter" | "failed" => word.red(),
            "cancelled" | "gone" => word.dim(),
            _ => word,
        };
        coloured.to_string()
    }

    pub(crate) fn bold(self, text: &str) -> String {
        console::style(text).force_styling(self.is_colored).bold().to_string()
    }

    pub(crate) fn dim(self, text: &str) -> String {
        console::style(text).force_styling(self.is_colored).dim().to_string()
    }
}

/// The items as values, for a table.
pub(crate) fn values(list: &List) -> Done<Vec<Value>> {
    list.data
        .iter()
        .map(|item| lenient(item.get()))
        .collect::<Result<_, _>>()
        .map_err(|cause| Failure::new(Code::Error, format!("read the answer: {cause}")))
}

fn tell_of_more(list: &List) {
    if let Some(cursor) = &list.next_cursor {
        tell!("there is more: --cursor {}", for_a_shell(cursor));
    }
}

/// A word as a shell takes it; quotes are only where they are needed.
fn for_a_shell(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.,:/@%+=".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// JSON on one line: a line break can only stand between its tokens, never inside a string.
pub(crate) fn one_line(json: &str) -> String {
    json.replace(['\n', '\r'], " ")
}

fn text(answer: &Answer) -> Done<String> {
    String::from_utf8(answer.body.to_vec())
        .map_err(|_| Failure::new(Code::Error, "the answer is not text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_can_be_pasted_into_a_shell() {
        for (word, quoted) in [
            ("0190c8f0-7", "0190c8f0-7"),
            (r#"{"n":1,"q":null}"#, r#"'{"n":1,"q":null}'"#),
            ("it's", r"'it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(for_a_shell(word), quoted);
        }
    }
}
