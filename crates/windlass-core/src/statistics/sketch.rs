//! How durations are spread, in buckets that grow with what they hold.
//!
//! The number of a bucket is the exponent and the first five binary digits of the duration in nanoseconds:
//! no logarithm, no rounding that could differ between machines, and adding two sketches is adding numbers.

use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Result};

/// Buckets for each doubling, as a power of two. Half a bucket is 1/64 of what it holds: the largest error.
const DIGITS: u32 = 5;
/// Durations are cut here: 2^50 ns are 13 days.
const NANOS_MAX: u64 = (1 << 50) - 1;
/// How many buckets there can be.
const BUCKETS_MAX: usize = bucket_of(NANOS_MAX) + 1;
/// Longest text of a sketch: a count of up to 20 digits for each bucket, and a gap.
const TEXT_BYTES_MAX: usize = BUCKETS_MAX * 26;

/// How durations are spread.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sketch {
    /// The number of the first bucket that is kept.
    first: usize,
    /// From the first bucket that holds something to the last.
    counts: Vec<u64>,
    count: u64,
    sum_nanos: u128,
}

impl Sketch {
    /// Counts a duration.
    pub fn add(&mut self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).min(NANOS_MAX);
        self.sum_nanos = self.sum_nanos.saturating_add(u128::from(nanos));
        self.put(bucket_of(nanos), 1);
    }

    /// Counts everything that another has counted.
    pub fn merge(&mut self, other: &Self) {
        if other.counts.is_empty() {
            return;
        }
        // Its ends first, so that room is made at most twice.
        self.put(other.first + other.counts.len() - 1, 0);
        self.put(other.first, 0);
        for (sum, count) in self.counts[other.first - self.first..].iter_mut().zip(&other.counts) {
            *sum = sum.saturating_add(*count);
        }
        self.count = self.count.saturating_add(other.count);
        self.sum_nanos = self.sum_nanos.saturating_add(other.sum_nanos);
    }

    /// How many durations were counted.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// True when nothing was counted.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The mean; exact.
    pub fn mean(&self) -> Option<Duration> {
        let nanos = self.sum_nanos.checked_div(u128::from(self.count))?;
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// The duration that this share of all do not exceed, at most 1/64 off.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        if self.count == 0 {
            return None;
        }
        let rank = (share.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0);
        let mut seen = 0_u64;
        for (at, count) in self.buckets() {
            seen = seen.saturating_add(*count);
            if seen as f64 >= rank {
                return Some(Duration::from_nanos(middle_of(at)));
            }
        }
        // Counts that were cut at the top: the last bucket is as far as we know.
        let last = self.first + self.counts.len().saturating_sub(1);
        Some(Duration::from_nanos(middle_of(last)))
    }

    fn buckets(&self) -> impl Iterator<Item = (usize, &u64)> {
        self.counts.iter().enumerate().map(|(at, count)| (self.first + at, count))
    }

    fn put(&mut self, bucket: usize, count: u64) {
        if self.counts.is_empty() {
            self.first = bucket;
        }
        if bucket < self.first {
            let missing = self.first - bucket;
            self.counts.splice(0..0, std::iter::repeat_n(0, missing));
            self.first = bucket;
        }
        let at = bucket - self.first;
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] = self.counts[at].saturating_add(count);
        self.count = self.count.saturating_add(count);
    }
}

/// The bucket of a duration that is not above [`NANOS_MAX`].
const fn bucket_of(nanos: u64) -> usize {
    if nanos < 1 << DIGITS {
        return nanos as usize;
    }
    let shift = 63 - nanos.leading_zeros() - DIGITS;
    ((shift as usize) << DIGITS) + (nanos >> shift) as usize
}

/// The middle of a bucket, in nanoseconds.
const fn middle_of(bucket: usize) -> u64 {
    let digits = 1_usize << DIGITS;
    if bucket < 2 * digits {
        return bucket as u64;
    }
    let shift = bucket / digits - 1;
    let lowest = ((bucket % digits + digits) as u64) << shift;
    lowest + (1_u64 << shift) / 2
}

impl fmt::Display for Sketch {
    /// The sum in nanoseconds, then a count for each bucket that holds something, with the number of the bucket,
    /// counted from the one before, in front of it where that is not 1: `1500;300:2,1,5:7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.counts.is_empty() {
            return Ok(());
        }
        write!(f, "{};", self.sum_nanos)?;
        let mut last = None;
        for (at, count) in self.buckets().filter(|(_, count)| **count > 0) {
            match last {
                None => write!(f, "{at}:")?,
                Some(last) if at == last + 1 => f.write_char(',')?,
                Some(last) => write!(f, ",{}:", at - last)?,
            }
            write!(f, "{count}")?;
            last = Some(at);
        }
        Ok(())
    }
}

impl FromStr for Sketch {
    type Err = Error;

    /// Reads what a document holds, which anyone may have written.
    fn from_str(text: &str) -> Result<Self> {
        let strange = || Error::corrupt("a sketch of durations");
        let mut sketch = Self::default();
        if text.is_empty() {
            return Ok(sketch);
        }
        if text.len() > TEXT_BYTES_MAX {
            return Err(strange());
        }
        let (sum, buckets) = text.split_once(';').ok_or_else(strange)?;
        sketch.sum_nanos = sum.parse().map_err(|_| strange())?;
        let mut at: Option<usize> = None;
        for part in buckets.split(',') {
            let (gap, count) = part.split_once(':').unwrap_or(("1", part));
            let gap: usize = gap.parse().map_err(|_| strange())?;
            let next = at.map_or(Some(gap), |at| at.checked_add(gap.max(1)));
            let next = next.filter(|next| *next < BUCKETS_MAX).ok_or_else(strange)?;
            let count = count.parse().map_err(|_| strange())?;
            // Only what holds something may be an end.
            if count > 0 {
                sketch.put(next, count);
            }
            at = Some(next);
        }
        Ok(sketch)
    }
}

impl Serialize for Sketch {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sketch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sketch(nanos: &[u64]) -> Sketch {
        let mut sketch = Sketch::default();
        nanos.iter().for_each(|nanos| sketch.add(Duration::from_nanos(*nanos)));
        sketch
    }

    fn merged(sketches: &[&Sketch]) -> Sketch {
        let mut sum = Sketch::default();
        sketches.iter().for_each(|one| sum.merge(one));
        sum
    }

    /// Durations from nothing to beyond the largest that is told apart, all sizes alike.
    fn nanos() -> impl Strategy<Value = u64> {
        (0_u32..52, any::<u64>()).prop_map(|(bits, digits)| digits & ((1 << bits) - 1))
    }

    #[test]
    fn buckets_follow_each_other_without_gap_or_overlap() {
        let mut last = None;
        for shift in 0..50 {
            for digits in 0..4_096_u64 {
                let nanos = ((1 << shift) + (digits << shift >> 12)).min(NANOS_MAX);
                let bucket = bucket_of(nanos);
                assert!(last.is_none_or(|last| bucket == last || bucket == last + 1), "{nanos}");
                last = Some(bucket);
            }
        }
        assert_eq!(last, Some(BUCKETS_MAX - 1));
    }

    #[test]
    fn nothing_counted_has_no_percentile() {
        assert_eq!(sketch(&[]).quantile(0.5), None);
        assert_eq!(sketch(&[]).mean(), None);
        assert_eq!(sketch(&[]).to_string(), "");
    }

    #[test]
    fn the_text_is_short_and_can_be_read() {
        let text = sketch(&[1_000_000, 1_000_000, 1_050_000, 90_000_000]).to_string();
        assert_eq!(text, "93050000;509:2,3:1,202:1");
    }

    #[test]
    fn strange_texts_are_refused() {
        for text in [
            "x",
            ";",
            "1",
            "1;",
            "1;a:1",
            "1;1:b",
            "1;1472:1",
            "1;1:1,99999:1",
            "-1;1:1",
            "1;1:-1",
            "1;18446744073709551615:1",
            "1;1:1,18446744073709551615:1",
            "1;1:1,",
            "1;:1",
            "1;1::1",
        ] {
            assert!(text.parse::<Sketch>().is_err(), "{text}");
        }
        assert!("1;".repeat(TEXT_BYTES_MAX).parse::<Sketch>().is_err());
    }

    #[test]
    fn counts_at_the_top_of_their_range_are_cut() {
        let text =
            "340282366920938463463374607431768211455;7:18446744073709551615,18446744073709551615";
        let most: Sketch = text.parse().unwrap();
        let twice = merged(&[&most, &most]);
        assert_eq!(twice.count(), u64::MAX);
        assert!(twice.quantile(1.0).is_some() && twice.mean().is_some());
    }

    proptest! {
        #[test]
        fn the_middle_of_a_bucket_is_near_all_it_holds(nanos in nanos()) {
            let (kept, middle) = (nanos.min(NANOS_MAX), middle_of(bucket_of(nanos.min(NANOS_MAX))));
            prop_assert!(middle.abs_diff(kept) as f64 <= kept as f64 / 64.0, "{kept} {middle}");
        }

        #[test]
        fn percentiles_are_near_those_of_the_durations_themselves(
            mut all in prop::collection::vec(nanos(), 1..400), share in 0.0..=1.0_f64,
        ) {
            let sketch = sketch(&all);
            all.sort_unstable();
            let rank = (share * all.len() as f64).ceil().max(1.0) as usize;
            let exact = all[rank - 1].min(NANOS_MAX);
            let told = sketch.quantile(share).unwrap().as_nanos() as u64;
            prop_assert!(told.abs_diff(exact) as f64 <= exact as f64 / 64.0, "{exact} {told}");
        }

        #[test]
        fn merging_is_counting_together_in_any_order(
            a in prop::collection::vec(nanos(), 0..50),
            b in prop::collection::vec(nanos(), 0..50),
            c in prop::collection::vec(nanos(), 0..50),
        ) {
            let together = sketch(&[a.clone(), b.clone(), c.clone()].concat());
            let (a, b, c) = (sketch(&a), sketch(&b), sketch(&c));
            prop_assert_eq!(&merged(&[&a, &b, &c]), &together);
            prop_assert_eq!(&merged(&[&c, &a, &b]), &together);
            prop_assert_eq!(&merged(&[&a, &merged(&[&b, &c])]), &together);
        }

        #[test]
        fn a_text_leads_back_to_its_sketch(all in prop::collection::vec(nanos(), 0..300)) {
            let sketch = sketch(&all);
            prop_assert_eq!(sketch.to_string().parse::<Sketch>().unwrap(), sketch);
        }

        #[test]
        fn no_text_is_too_strange_to_be_refused_in_peace(text in "[0-9:;,]{0,60}|.{0,60}") {
            if let Ok(sketch) = text.parse::<Sketch>() {
                let _ = (sketch.quantile(0.5), sketch.mean(), sketch.to_string());
            }
        }
    }
}
