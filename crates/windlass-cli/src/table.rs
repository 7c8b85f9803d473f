//! Tables for people, and the small words in them.

use console::measure_text_width;
use serde_json::Value;

/// Longest text in a cell.
const CELL_CHARS_MAX: usize = 60;

/// Columns of text under headings.
pub(crate) struct Table {
    headings: &'static [&'static str],
    rows: Vec<Vec<String>>,
    /// What to say when there is no row.
    none: &'static str,
}

impl Table {
    pub(crate) fn new(headings: &'static [&'static str], none: &'static str) -> Self {
        Self { headings, rows: Vec::new(), none }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub(crate) fn render(&self) -> String {
        if self.rows.is_empty() {
            return self.none.to_owned();
        }
        let headings: Vec<String> = self.headings.iter().map(|name| name.to_uppercase()).collect();
        let width = |column: usize| {
            let cells = self.rows.iter().chain([&headings]).filter_map(|row| row.get(column));
            cells.map(|cell| measure_text_width(cell)).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.headings.len()).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).map(|(cell, width)| {
                format!("{cell}{}", " ".repeat(width.saturating_sub(measure_text_width(cell))))
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let lines: Vec<_> = [&headings].into_iter().chain(&self.rows).map(line).collect();
        lines.join("\n")
    }
}

/// A field as a cell: text without what could move the cursor, cut where it is long.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::from("-"),
        Value::String(text) => cut(&plain(text)),
        other => cut(&other.to_string()),
    }
}

/// A text of others with control characters made visible: they could rewrite the terminal.
pub(crate) fn plain(text: &str) -> String {
    let visible = |c: char| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c };
    text.chars().map(visible).collect()
}

/// How long ago a time of an answer was.
pub(crate) fn age(value: &Value) -> String {
    let Some(Ok(then)) = value.as_str().map(str::parse::<windlass::Timestamp>) else {
        return String::from("-");
    };
    use windlass::core::{Clock, SystemClock};
    let now = SystemClock.now();
    if then > now {
        return format!("in {}", short(then.since(now).as_secs_f64()));
    }
    format!("{} ago", short(now.since(then).as_secs_f64()))
}

/// A number of seconds in the unit that suits it.
pub(crate) fn short(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => format!("{:.0}ms", s * 1_000.0),
        s if s < 60.0 => format!("{s:.0}s"),
        s if s < 3_600.0 => format!("{:.0}m", (s / 60.0).floor()),
        s if s < 86_400.0 => format!("{:.0}h", (s / 3_600.0).floor()),
        s => format!("{:.0}d", (s / 86_400.0).floor()),
    }
}

/// 1234567 as `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count of an answer.
pub(crate) fn count(value: &Value) -> String {
    grouped(value.as_u64().unwrap_or_default())
}

fn cut(text: &str) -> String {
    let line = text.replace(['\n', '\t'], " ");
    if line.chars().count() <= CELL_CHARS_MAX {
        return line;
    }
    let kept: String = line.chars().take(CELL_CHARS_MAX - 1).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["id", "state"], "nothing");
        table.row(vec!["1".into(), "pending".into()]);
        table.row(vec!["100".into(), "running".into()]);
        assert_eq!(table.render(), "ID   STATE\n1    pending\n100  running");
        assert_eq!(Table::new(&["id"], "nothing").render(), "nothing");
    }

    #[test]
    fn a_hostile_text_cannot_move_the_cursor_or_break_the_line() {
        assert_eq!(cell(&Value::from("a\u{1b}[2J\nb")), "a\u{fffd}[2J b");
        assert_eq!(cell(&Value::from("x".repeat(100))).chars().count(), CELL_CHARS_MAX);
    }

    #[test]
    fn large_numbers_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }

    #[test]
    fn spans_have_the_unit_that_suits_them() {
        for (seconds, text) in [(0.25, "250ms"), (59.0, "59s"), (61.0, "1m"), (7_200.0, "2h")] {
            assert_eq!(short(seconds), text);
        }
    }
}
