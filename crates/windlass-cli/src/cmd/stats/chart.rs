//! Small pictures of numbers, made of letters.

use serde_json::Value;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A row of bars, as many as there is room for: the newest stand at the right end. What is not zero is seen.
pub(super) fn sparkline(numbers: &[u64], width: usize) -> String {
    let shown = &numbers[numbers.len().saturating_sub(width)..];
    let most = shown.iter().copied().max().unwrap_or(0).max(1);
    let bar = |number: &u64| match number {
        0 => ' ',
        number => {
            let steps = (BARS.len() as u64 - 1) as f64;
            let height = (*number as f64 / most as f64 * steps).round() as usize;
            BARS[height.min(BARS.len() - 1)]
        }
    };
    shown.iter().map(bar).collect()
}

/// The numbers of a series under one name.
pub(super) fn numbers(series: &Value, name: &str) -> Vec<u64> {
    let points = series["points"].as_array().into_iter().flatten();
    points.map(|point| point[name].as_u64().unwrap_or(0)).collect()
}

/// The three percentiles of an answer: `12ms/40ms/1.2s`.
pub(super) fn spread(spread: &Value) -> String {
    let Some(median) = spread["p50"].as_f64() else { return String::from("-") };
    let at = |name: &str| span(spread[name].as_f64().unwrap_or(median));
    format!("{}/{}/{}", span(median), at("p95"), at("p99"))
}

/// A number of seconds with two digits that mean something.
pub(super) fn span(seconds: f64) -> String {
    let with = |number: f64, unit: &str| match number {
        n if n < 9.95 => format!("{n:.1}{unit}"),
        n => format!("{n:.0}{unit}"),
    };
    match seconds {
        s if s <= 0.0 => String::from("0"),
        s if s < 999.5e-6 => with(s * 1e6, "µs"),
        s if s < 999.5e-3 => with(s * 1e3, "ms"),
        s if s < 99.5 => with(s, "s"),
        s if s < 5_970.0 => with(s / 60.0, "m"),
        s if s < 358_200.0 => with(s / 3_600.0, "h"),
        s => with(s / 86_400.0, "d"),
    }
}

/// A rate of an answer.
pub(super) fn frequency(rate: &Value) -> String {
    match rate.as_f64().unwrap_or(0.0) {
        rate if rate > 0.0 && rate < 9.95 => format!("{rate:.1}"),
        rate => crate::table::grouped(rate.round() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_high_as_their_numbers_and_the_newest_stay() {
        assert_eq!(sparkline(&[0, 1, 50, 100], 10), " ▁▅█");
        assert_eq!(sparkline(&[9, 9, 0, 7], 2), " █");
        assert_eq!(sparkline(&[], 5), "");
        assert_eq!(sparkline(&[u64::MAX, 0], 5), "█ ");
    }

    #[test]
    fn spans_have_two_digits_and_the_unit_that_suits_them() {
        for (seconds, text) in [
            (0.0, "0"),
            (0.000_000_3, "0.3µs"),
            (0.000_512, "512µs"),
            (0.001_26, "1.3ms"),
            (0.25, "250ms"),
            (0.999_9, "1.0s"),
            (42.4, "42s"),
            (600.0, "10m"),
            (86_400.0, "24h"),
            (864_000.0, "10d"),
        ] {
            assert_eq!(span(seconds), text);
        }
    }

    #[test]
    fn what_is_not_there_is_a_dash() {
        assert_eq!(spread(&Value::Null), "-");
        let told = serde_json::json!({"p50": 0.001, "p95": 0.02, "p99": 3});
        assert_eq!(spread(&told), "1.0ms/20ms/3.0s");
    }
}
