//! What tests came to, and the words of those that failed: they are said again at the very end, since
//! whoever reads a long log reads its end.

use std::ops::AddAssign;

/// Lines of a failed program's words that are said again.
const LINES_MAX: usize = 60;

/// Tests by how they went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tally {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// What some tests came to.
#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct Summary {
    pub(super) tally: Tally,
    /// One for each program that was not satisfied.
    pub(super) complaints: Vec<String>,
}

impl AddAssign for Summary {
    fn add_assign(&mut self, other: Self) {
        self.tally += other.tally;
        self.complaints.extend(other.complaints);
    }
}

impl Summary {
    /// Of what a program printed.
    pub(super) fn of(heading: &str, text: &str, is_satisfied: bool) -> Self {
        let mut tally = Tally::default();
        text.lines().filter_map(parse_result).for_each(|result| tally += result);
        let complaints = if is_satisfied { Vec::new() } else { vec![complaint(heading, text)] };
        Self { tally, complaints }
    }

    /// Of one thing that is done or not.
    pub(super) fn of_one(heading: &str, text: &str, is_passed: bool) -> Self {
        let tally =
            Tally { passed: u64::from(is_passed), failed: u64::from(!is_passed), skipped: 0 };
        let complaints = if is_passed { Vec::new() } else { vec![complaint(heading, text)] };
        Self { tally, complaints }
    }

    /// Of one thing that cannot be done here.
    pub(super) fn of_skipped() -> Self {
        Self { tally: Tally { skipped: 1, ..Tally::default() }, complaints: Vec::new() }
    }
}

/// What failed, in a program's words: from where it begins to list failures on, else its last words.
fn complaint(heading: &str, text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let listed = lines.iter().position(|line| *line == "failures:");
    let from = listed.unwrap_or(lines.len().saturating_sub(LINES_MAX));
    let told = &lines[from..lines.len().min(from + LINES_MAX)];
    let failed: Vec<&str> = lines
        .iter()
        .copied()
        .filter(|line| line.starts_with("test ") && line.ends_with("FAILED"))
        .collect();
    format!("{heading}\n{}\n{}", failed.join("\n"), told.join("\n"))
}

/// Reads `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; …`.
fn parse_result(line: &str) -> Option<Tally> {
    let (_, counts) = line.split_once("test result: ")?;
    let count = |word: &str| {
        counts
            .split(['.', ';'])
            .filter_map(|part| part.trim().split_once(' '))
            .find(|(_, name)| *name == word)
            .and_then(|(number, _)| number.parse().ok())
    };
    Some(Tally { passed: count("passed")?, failed: count("failed")?, skipped: count("ignored")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_of_a_test_binary_is_read() {
        let line = "test result: FAILED. 12 passed; 3 failed; 4 ignored; 0 measured; 9 filtered out; finished in 0.02s";
        let tally = Tally { passed: 12, failed: 3, skipped: 4 };
        assert_eq!(parse_result(line), Some(tally));
    }

    #[test]
    fn other_lines_count_nothing() {
        assert_eq!(parse_result("test a::b ... ok"), None);
        assert_eq!(parse_result("test result: who knows"), None);
    }

    #[test]
    fn what_failed_is_said_with_its_words_and_the_rest_is_not() {
        let text = "test a::b ... ok\ntest a::c ... FAILED\n\nfailures:\n\n---- a::c stdout ----\nfour is not five\n";
        let summary = Summary::of("a program", text, false);
        let [complaint] = &summary.complaints[..] else { panic!("{summary:?}") };
        assert!(complaint.starts_with("a program\ntest a::c ... FAILED\nfailures:"), "{complaint}");
        assert!(
            complaint.contains("four is not five") && !complaint.contains("a::b"),
            "{complaint}"
        );
    }

    #[test]
    fn a_program_that_dies_without_a_list_is_quoted_from_its_end() {
        let text: String = (0..100).map(|line| format!("line {line}\n")).collect();
        let summary = Summary::of("a program", &text, false);
        let [complaint] = &summary.complaints[..] else { panic!("{summary:?}") };
        assert!(complaint.ends_with("line 99") && !complaint.contains("line 39\n"), "{complaint}");
    }
}
