//! When a generation of task numbers is closed, and what becomes of closed ones. Pure: `retention`
//! asks, and does it.

use std::time::Duration;

/// When generations are closed, dropped, and replaced by copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GenerationRules {
    /// One is closed after so many numbers, however young it is.
    pub used_max: i64,
    /// One that has given so many numbers is closed at [`GenerationRules::age_when_busy`].
    pub used_when_busy: i64,
    /// When a busy one is closed.
    pub age_when_busy: Duration,
    /// When one is closed that has given any number at all.
    pub age_max: Duration,
    /// From so many on, neighbours are merged.
    pub count_max: usize,
    /// How many neighbours are merged at once.
    pub merged_at_once: usize,
    /// A copy is made for so many rows that nobody needs, and not for fewer.
    pub garbage_min: i64,
    /// How long one is closed before it is dropped or copied: numbers that were reserved before may
    /// still come in.
    pub rest: Duration,
}

impl Default for GenerationRules {
    fn default() -> Self {
        Self {
            used_max: 10_000_000,
            used_when_busy: 10_000,
            age_when_busy: Duration::from_secs(3_600),
            age_max: Duration::from_secs(24 * 3_600),
            count_max: 48,
            merged_at_once: 8,
            garbage_min: 1_000,
            rest: Duration::from_secs(120),
        }
    }
}

/// A new generation is worth its partitions when it takes over a fair part of all tasks.
const PART_OF_ALL: i64 = 32;
/// A copy is made when this part of the rows, or less, is still needed.
const PART_LEFT: i64 = 8;
/// Most generations that are dropped at once: each is three tables to lock.
const DROPPED_AT_ONCE: usize = 16;

/// How a generation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Generation {
    pub(super) lo: i64,
    pub(super) hi: i64,
    /// Since it was opened.
    pub(super) age: Duration,
    /// Since it was closed.
    pub(super) closed: Option<Duration>,
    /// Numbers that were taken from it.
    pub(super) used: i64,
    /// Rows of tasks that stand nowhere.
    pub(super) pruned: i64,
    /// No task stands in it.
    pub(super) is_empty: bool,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Close the open generation and open another.
    Open,
    /// Drop those that begin with these numbers.
    Drop(Vec<i64>),
    /// Replace what lies between two numbers by a copy of what still stands.
    Rewrite { lo: i64, hi: i64 },
}

/// What generations need, the most urgent first; `alive` is how many tasks there are in all.
pub(super) fn next(
    rules: &GenerationRules,
    generations: &[Generation],
    alive: i64,
) -> Option<Step> {
    let open = generations.iter().find(|one| one.closed.is_none());
    if open.is_some_and(|open| is_to_close(rules, open, generations.len(), alive)) {
        return Some(Step::Open);
    }
    let has_rested = |one: &Generation| one.closed.is_some_and(|time| time >= rules.rest);
    let closed: Vec<_> = generations.iter().filter(|one| has_rested(one)).collect();
    let empty = closed.iter().filter(|one| one.is_empty).map(|one| one.lo);
    let empty: Vec<_> = empty.take(DROPPED_AT_ONCE).collect();
    if !empty.is_empty() {
        return Some(Step::Drop(empty));
    }
    let is_hollow =
        |one: &&&Generation| one.pruned >= rules.garbage_min && left(one) <= one.used / PART_LEFT;
    if let Some(one) = closed.iter().filter(is_hollow).max_by_key(|one| one.pruned) {
        return Some(Step::Rewrite { lo: one.lo, hi: one.hi });
    }
    if generations.len() <= rules.count_max {
        return None;
    }
    // Those between two neighbours of the list were dropped: their numbers go into the copy's range.
    let size = rules.merged_at_once.clamp(2, closed.len().max(2));
    let run =
        closed.windows(size).min_by_key(|run| run.iter().map(|one| left(one)).sum::<i64>())?;
    Some(Step::Rewrite { lo: run.first()?.lo, hi: run.last()?.hi })
}

fn is_to_close(rules: &GenerationRules, open: &Generation, count: usize, alive: i64) -> bool {
    let is_busy = open.used >= rules.used_when_busy && open.age >= rules.age_when_busy;
    let is_old = open.used >= 1 && open.age >= rules.age_max;
    (open.used >= rules.used_max || is_busy || is_old)
        && open.used >= alive / PART_OF_ALL
        // While merging does not get on, since someone holds a lock for hours.
        && count < rules.count_max * 2
}

/// About how many tasks still stand in a generation: at least as many as do.
fn left(one: &Generation) -> i64 {
    (one.used - one.pruned).max(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);
    const RULES: fn() -> GenerationRules = GenerationRules::default;

    fn open(used: i64, age: Duration) -> Generation {
        let lo = 1_000 << 32;
        let hi = 1_001 << 32;
        Generation { lo, hi, age, closed: None, used, pruned: 0, is_empty: false }
    }

    fn closed(number: i64, used: i64, pruned: i64) -> Generation {
        let (lo, hi) = (number << 32, (number + 1) << 32);
        let (age, closed) = (HOUR * 9, Some(HOUR));
        Generation { lo, hi, age, closed, used, pruned, is_empty: used == pruned }
    }

    fn check_open(used: i64, age: Duration, alive: i64, expected: bool) {
        let step = next(&RULES(), &[open(used, age)], alive);
        assert_eq!(step == Some(Step::Open), expected, "{used} numbers after {age:?}, {alive}");
    }

    #[test]
    fn a_generation_is_closed_when_it_is_full_or_old_enough() {
        check_open(9_999_999, HOUR / 2, 0, false);
        check_open(10_000_000, Duration::ZERO, 0, true);
        check_open(9_999, HOUR, 0, false);
        check_open(10_000, HOUR, 0, true);
        check_open(10_000, HOUR - Duration::from_millis(1), 0, false);
        check_open(1, HOUR * 24, 0, true);
        check_open(1, HOUR * 24 - Duration::from_millis(1), 0, false);
    }

    #[test]
    fn a_generation_without_tasks_is_never_closed() {
        check_open(0, HOUR * 1_000, 0, false);
    }

    #[test]
    fn a_generation_is_not_closed_while_it_is_small_beside_all_tasks() {
        check_open(10_000, HOUR * 48, 320_000, true);
        check_open(10_000, HOUR * 48, 320_032, false);
    }

    #[test]
    fn no_generation_is_opened_while_merging_does_not_get_on() {
        let mut all: Vec<_> = (0..95).map(|number| closed(number, 9, 0)).collect();
        all.push(open(10_000_000, HOUR));
        assert_ne!(next(&RULES(), &all, 0), Some(Step::Open), "96 of them");
        all.remove(0);
        assert_eq!(next(&RULES(), &all, 0), Some(Step::Open), "95 of them");
    }

    #[test]
    fn empty_generations_are_dropped_together() {
        let all = [closed(1, 5, 5), closed(2, 5, 1), closed(3, 7, 7), open(1, HOUR)];
        assert_eq!(next(&RULES(), &all, 9), Some(Step::Drop(vec![1 << 32, 3 << 32])));
    }

    #[test]
    fn what_was_closed_a_moment_ago_is_left_alone() {
        let young = Generation { closed: Some(HOUR / 60), ..closed(1, 5_000, 5_000) };
        assert_eq!(next(&RULES(), &[young, open(1, HOUR)], 9), None);
    }

    #[test]
    fn a_generation_is_copied_when_an_eighth_is_left() {
        let with = |pruned| [closed(1, 8_000, pruned), open(1, HOUR)];
        assert_eq!(next(&RULES(), &with(6_999), 9), None);
        let step = Some(Step::Rewrite { lo: 1 << 32, hi: 2 << 32 });
        assert_eq!(next(&RULES(), &with(7_000), 9), step);
    }

    #[test]
    fn a_copy_is_not_made_for_a_handful_of_rows() {
        let mut few = closed(1, 999, 999);
        few.is_empty = false;
        assert_eq!(next(&RULES(), &[few, open(1, HOUR)], 9), None);
    }

    #[test]
    fn the_cheapest_neighbours_are_merged_when_there_are_too_many() {
        let mut all: Vec<_> = (0..47).map(|number| closed(number, 500, 0)).collect();
        for cheap in &mut all[20..28] {
            cheap.pruned = 100;
        }
        all.push(open(1, HOUR));
        assert_eq!(next(&RULES(), &all, 9), None, "48 are few enough");
        all.insert(47, closed(47, 500, 0));
        let step = Some(Step::Rewrite { lo: 20 << 32, hi: 28 << 32 });
        assert_eq!(next(&RULES(), &all, 9), step);
    }
}
