//! Windows and series: what spans come to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::cell::Cell;
use super::sheet::Sheet;
use super::step::Step;
use crate::clock::Timestamp;
use crate::name::{Kind, QueueName};

/// A sheet with its time.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// When it begins.
    pub start: Timestamp,
    /// How long it is.
    pub step: Step,
    /// What was counted.
    pub sheet: Arc<Sheet>,
}

/// Which cells are meant; an absent part allows all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Select {
    /// Of this queue.
    pub queue: Option<QueueName>,
    /// Of this kind.
    pub kind: Option<Kind>,
}

/// One point of a series.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Where its stretch of time begins.
    pub start: Timestamp,
    /// What happened then.
    pub cell: Cell,
}

impl Select {
    fn allows(&self, queue: &QueueName, kind: &Kind) -> bool {
        self.queue.as_ref().is_none_or(|wanted| wanted == queue)
            && self.kind.as_ref().is_none_or(|wanted| wanted == kind)
    }

    /// The cells that are meant, added up.
    fn sum(&self, into: &mut Cell, sheet: &Sheet) {
        let chosen = sheet.cells().filter(|(queue, kind, _)| self.allows(queue, kind));
        chosen.for_each(|(_, _, cell)| into.merge(cell));
    }
}

impl Span {
    /// True when at least half of it lies after an instant.
    fn is_after(&self, instant: Timestamp) -> bool {
        self.start.after(self.step.length() / 2) >= instant
    }
}

/// What happened since an instant, by whatever `group` says of a cell; nothing leaves the cell out.
pub fn window<K: Ord>(
    spans: &[Span],
    since: Timestamp,
    group: impl Fn(&QueueName, &Kind) -> Option<K>,
) -> BTreeMap<K, Cell> {
    let mut sums: BTreeMap<K, Cell> = BTreeMap::new();
    for span in spans.iter().filter(|span| span.is_after(since)) {
        for (queue, kind, cell) in span.sheet.cells() {
            if let Some(key) = group(queue, kind) {
                sums.entry(key).or_default().merge(cell);
            }
        }
    }
    sums
}

/// The last so many minutes up to now, the present stretch included, without gaps.
pub fn series(spans: &[Span], now: Timestamp, minutes: u32, select: &Select) -> Vec<Point> {
    let step = Step::for_series(minutes);
    let count = (u64::from(minutes) * 60).div_ceil(step.length().as_secs());
    let last = step.start_of(now);
    let at = |back: u64| last.before(Duration::from_secs(back * step.length().as_secs()));
    let mut points: BTreeMap<Timestamp, Cell> =
        (0..count).map(|back| (at(back), Cell::default())).collect();
    for span in spans {
        if let Some(cell) = points.get_mut(&step.start_of(span.start)) {
            select.sum(cell, &span.sheet);
        }
    }
    points.into_iter().map(|(start, cell)| Point { start, cell }).collect()
}

/// Tasks that came into each queue and left it, per second, over the last minutes up to now, or since `observed_since`
/// where that is later. Queues that are not named had neither.
pub fn rates_per_second(
    spans: &[Span],
    now: Timestamp,
    observed_since: Timestamp,
) -> BTreeMap<QueueName, (f64, f64)> {
    /// Full steps beside the present one: a rate that follows and does not jump.
    const STEPS: u32 = 4;
    let step = Step::Minute;
    let last = step.start_of(now);
    let since = last.before(step.length() * STEPS);
    let mut counts: BTreeMap<&QueueName, (u64, u64)> = BTreeMap::new();
    let is_recent = |span: &&Span| (since..=last).contains(&step.start_of(span.start));
    for span in spans.iter().filter(is_recent) {
        for (queue, _, cell) in span.sheet.cells() {
            let (submitted, finished) = counts.entry(queue).or_default();
            *submitted += cell.submitted;
            *finished += cell.finished();
        }
    }
    let seconds = now.since(since.max(observed_since)).as_secs_f64().max(1.0);
    let rate = |count: u64| count as f64 / seconds;
    let rates = |(submitted, finished)| (rate(submitted), rate(finished));
    counts.into_iter().map(|(queue, counts)| (queue.clone(), rates(counts))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        format!("2026-03-04T{text}Z").parse().unwrap()
    }

    fn span(start: &str, step: Step, counts: &[(&str, &str, u64)]) -> Span {
        let mut sheet = Sheet::default();
        for (queue, kind, completed) in counts {
            sheet.cell(&QueueName::stored(queue), &Kind::stored(kind)).completed += completed;
        }
        Span { start: at(start), step, sheet: Arc::new(sheet) }
    }

    fn completed(points: &[Point]) -> Vec<u64> {
        points.iter().map(|point| point.cell.completed).collect()
    }

    #[test]
    fn a_series_has_a_point_for_every_step_and_zeros_in_gaps() {
        let spans = [
            span("11:55:00", Step::Minute, &[("mail", "send", 99)]),
            span("11:58:00", Step::Minute, &[("mail", "send", 3), ("bulk", "send", 4)]),
            span("11:58:00", Step::Minute, &[("mail", "send", 1)]),
            span("12:00:00", Step::Minute, &[("mail", "read", 5)]),
        ];
        let now = at("12:00:30");
        let told = |select: &Select| completed(&series(&spans, now, 4, select));
        assert_eq!(told(&Select::default()), [0, 8, 0, 5]);
        let queue = Some(QueueName::stored("mail"));
        assert_eq!(told(&Select { queue: queue.clone(), kind: None }), [0, 4, 0, 5]);
        let kind = Some(Kind::stored("send"));
        assert_eq!(told(&Select { queue, kind: kind.clone() }), [0, 4, 0, 0]);
        assert_eq!(told(&Select { queue: None, kind }), [0, 8, 0, 0]);
    }

    #[test]
    fn a_long_series_has_longer_steps() {
        let now = at("12:34:56");
        let shape = |minutes| {
            let points = series(&[], now, minutes, &Select::default());
            (points.len(), points[0].start, points[points.len() - 1].start)
        };
        assert_eq!(shape(1), (1, at("12:34:00"), at("12:34:00")));
        assert_eq!(shape(120), (120, at("10:35:00"), at("12:34:00")));
        assert_eq!(shape(121).0, 13);
        assert_eq!(shape(1_440), (144, "2026-03-03T12:40:00Z".parse().unwrap(), at("12:30:00")));
        assert_eq!(shape(10_080).0, 168);
    }

    #[test]
    fn a_window_reaches_back_to_its_start_and_groups_as_told() {
        let spans = [
            span("10:00:00", Step::Hour, &[("mail", "send", 1)]),
            span("11:00:00", Step::TenMinutes, &[("mail", "send", 10), ("bulk", "send", 20)]),
            span("11:59:00", Step::Minute, &[("mail", "read", 100)]),
        ];
        let by_queue = |since| -> Vec<(String, u64)> {
            let sums = window(&spans, at(since), |queue, _| Some(queue.to_string()));
            sums.into_iter().map(|(queue, cell)| (queue, cell.completed)).collect()
        };
        assert_eq!(by_queue("11:00:00"), [("bulk".into(), 20), ("mail".into(), 110)]);
        assert_eq!(by_queue("11:05:01"), [("mail".into(), 100)]);
        assert_eq!(by_queue("10:30:00"), [("bulk".into(), 20), ("mail".into(), 111)]);
        let none = window(&spans, at("09:00:00"), |_, _| None::<()>);
        assert!(none.is_empty());
    }

    #[test]
    fn rates_are_of_the_last_minutes() {
        let spans = [span("12:00:00", Step::Minute, &[("mail", "send", 27)])];
        let rates_at = |time| rates_per_second(&spans, at(time), at("09:00:00"));
        let rates = [(QueueName::stored("mail"), (0.0, 0.1))];
        assert_eq!(rates_at("12:00:30"), rates.into());
        assert_eq!(rates_at("12:05:00"), BTreeMap::new(), "it is too old");
        assert_eq!(rates_at("11:59:59"), BTreeMap::new(), "it is not over yet");
    }

    #[test]
    fn rates_count_only_the_time_that_was_observed() {
        let spans = [span("12:00:00", Step::Minute, &[("mail", "send", 27)])];
        let rates = rates_per_second(&spans, at("12:00:30"), at("12:00:03"));
        assert_eq!(rates, [(QueueName::stored("mail"), (0.0, 1.0))].into());
    }
}
