//! Tables for people, and the small words in them.

use console::{measure_text_width, truncate_str};
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
        self.render_within(None)
    }

    /// Renders for a screen that is so many columns wide. Where that is too few, ids are shortened in the middle, and
    /// then long texts are cut.
    pub(crate) fn render_within(&self, columns_max: Option<usize>) -> String {
        if self.rows.is_empty() {
            return self.none.to_owned();
        }
        let mut rows: Vec<Vec<String>> = Vec::with_capacity(self.rows.len() + 1);
        rows.push(self.headings.iter().map(|name| name.to_uppercase()).collect());
        rows.extend(self.rows.iter().cloned());
        if columns_max.is_some_and(|most| total(&widths(&rows)) > most) {
            let is_id = |heading: &&str| ["id", "worker"].contains(heading);
            let ids = self.headings.iter().enumerate().filter(|(_, heading)| is_id(heading));
            for (column, _) in ids {
                for cell in rows.iter_mut().skip(1).filter_map(|row| row.get_mut(column)) {
                    *cell = short_id(cell);
                }
            }
        }
        let is_number: Vec<_> = (0..self.headings.len())
            .map(|column| {
                self.rows.iter().filter_map(|row| row.get(column)).all(|it| is_numeric(it))
            })
            .collect();
        let mut widths = widths(&rows);
        while columns_max.is_some_and(|most| total(&widths) > most) {
            let texts = widths.iter().enumerate().filter(|(at, _)| !is_number[*at]);
            let Some((widest, _)) = texts.max_by_key(|(_, width)| **width) else { break };
            if widths[widest] <= CUT_CHARS_MIN {
                break;
            }
            widths[widest] -= 1;
        }
        let line = |row: &Vec<String>| {
            let cells =
                row.iter().zip(&widths).zip(&is_number).map(|((cell, width), is_number)| {
                    let cell = truncate_str(cell, *width, "…");
                    let pad = " ".repeat(width.saturating_sub(measure_text_width(&cell)));
                    if *is_number { format!("{pad}{cell}") } else { format!("{cell}{pad}") }
                });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        rows.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Least width to which a column is cut.
const CUT_CHARS_MIN: usize = 8;
/// Characters at the beginning and at the end of a shortened id. The end sets tasks of the same moment apart.
const ID_HEAD: usize = 6;
const ID_TAIL: usize = 8;

/// The width of each column.
fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| measure_text_width(cell)).max().unwrap_or(0)
    };
    (0..columns).map(width).collect()
}

/// The width of a line.
fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + widths.len().saturating_sub(1) * 2
}

/// True for what is compared digit by digit: counts, rates, ages, and no number at all.
fn is_numeric(cell: &str) -> bool {
    let digits = cell.trim_end_matches(['s', 'm', 'h', 'd', '%']);
    cell == "-"
        || (!digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || ".,".contains(c)))
}

/// An id with its middle left out; commands take the part behind it.
fn short_id(id: &str) -> String {
    let length = id.chars().count();
    if length <= ID_HEAD + 1 + ID_TAIL {
        return id.to_owned();
    }
    let head: String = id.chars().take(ID_HEAD).collect();
    let tail: String = id.chars().skip(length - ID_TAIL).collect();
    format!("{head}…{tail}")
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
        assert_eq!(table.render(), " ID  STATE\n  1  pending\n100  running");
        assert_eq!(Table::new(&["id"], "nothing").render(), "nothing");
    }

    #[test]
    fn a_table_fits_the_screen_and_its_ids_keep_their_ends() {
        let mut table = Table::new(&["id", "type", "state", "count"], "nothing");
        let id = "0190c8f0-1234-8000-8000-00000000012c";
        table.row(
            [id, &"report.".repeat(8), "\u{1b}[32mcompleted\u{1b}[0m", "12"]
                .map(String::from)
                .to_vec(),
        );
        let lines = table.render_within(Some(60));
        assert!(lines.lines().all(|line| measure_text_width(line) <= 60), "{lines}");
        assert!(lines.contains("0190c8…0000012c") && lines.contains("completed"), "{lines}");
        assert!(lines.contains("report.report.") && lines.contains('…'), "{lines}");
        assert!(table.render_within(Some(200)).contains(id));
        assert!(table.render().contains(id));
    }

    #[test]
    fn numbers_stand_below_each_other() {
        let mut table = Table::new(&["queue", "pending", "oldest"], "nothing");
        table.row(["a", "1,234", "-"].map(String::from).to_vec());
        table.row(["b", "7", "5m"].map(String::from).to_vec());
        assert_eq!(
            table.render(),
            "QUEUE  PENDING  OLDEST\na        1,234       -\nb            7      5m"
        );
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
