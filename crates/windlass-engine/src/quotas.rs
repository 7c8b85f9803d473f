//! How a claim is shared out among queues.

use windlass_core::QueueName;
use windlass_core::dice::Dice;
use windlass_core::store::{PrioritySet, Quota};

/// The queues that a worker serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queues {
    /// Each with its weight.
    pub weighted: Vec<(QueueName, u32)>,
    /// In the order given, the next only when the one before is empty.
    pub is_strict: bool,
    /// Which priorities are served.
    pub priorities: PrioritySet,
}

/// The quotas of a claim of so many tasks.
///
/// Strict: all from the first queue, the rest from the next, and so on. Weighted: each queue its
/// share, what does not divide goes by lot; then, where a queue has less than its share, to whoever
/// has more, again by lot. So all get their share while all are backed up, and none waits for
/// another that is empty.
pub fn share(queues: &Queues, limit: usize, dice: &mut Dice) -> Vec<Quota> {
    let quota = |queue: &QueueName, at_most| Quota {
        queue: queue.clone(),
        at_most,
        priorities: queues.priorities,
    };
    if queues.is_strict || queues.weighted.len() == 1 {
        return queues.weighted.iter().map(|(queue, _)| quota(queue, limit)).collect();
    }
    let weights: Vec<u64> = queues.weighted.iter().map(|(_, weight)| u64::from(*weight)).collect();
    let total: u64 = weights.iter().sum::<u64>().max(1);
    let exact: Vec<u64> = weights.iter().map(|weight| limit as u64 * weight).collect();
    let mut shares: Vec<usize> =
        exact.iter().map(|exact| usize::try_from(exact / total).unwrap_or(limit)).collect();
    // By lot over the fractions that the division has cut off: so the shares are right on average.
    let fractions: Vec<u64> = exact.iter().map(|exact| exact % total).collect();
    for _ in shares.iter().sum::<usize>()..limit {
        shares[draw(&fractions, dice)] += 1;
    }
    let mut quotas: Vec<_> = queues
        .weighted
        .iter()
        .zip(&shares)
        .filter(|(_, share)| **share > 0)
        .map(|((queue, _), share)| quota(queue, *share))
        .collect();
    let first = draw(&weights, dice);
    let count = queues.weighted.len();
    quotas.extend((0..count).map(|step| quota(&queues.weighted[(first + step) % count].0, limit)));
    quotas
}

/// Draws one; the heavier, the likelier.
fn draw(weights: &[u64], dice: &mut Dice) -> usize {
    let mut point = dice.unit() * weights.iter().sum::<u64>() as f64;
    for (index, weight) in weights.iter().enumerate() {
        point -= *weight as f64;
        if point < 0.0 {
            return index;
        }
    }
    weights.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues(weights: &[(&str, u32)], is_strict: bool) -> Queues {
        Queues {
            weighted: weights.iter().map(|(n, w)| (QueueName::new(n).unwrap(), *w)).collect(),
            is_strict,
            priorities: PrioritySet::ALL,
        }
    }

    /// What each queue gets of many claims while all are backed up, in percent.
    fn shares(weights: &[(&str, u32)], limit: usize) -> Vec<f64> {
        let queues = queues(weights, false);
        let mut dice = Dice::seeded(1);
        let mut got = vec![0; weights.len()];
        for _ in 0..1_000 {
            let mut left = limit;
            for quota in share(&queues, limit, &mut dice) {
                let taken = quota.at_most.min(left);
                left -= taken;
                let index = weights.iter().position(|(n, _)| *n == quota.queue.as_str()).unwrap();
                got[index] += taken;
            }
            assert_eq!(left, 0);
        }
        got.iter().map(|n| 100.0 * *n as f64 / (1_000 * limit) as f64).collect()
    }

    #[test]
    fn weighted_shares_are_within_five_points() {
        for limit in [1, 2, 3, 10, 64, 1_000] {
            let got = shares(&[("a", 6), ("b", 3), ("c", 1)], limit);
            for (got, expected) in got.iter().zip([60.0, 30.0, 10.0]) {
                assert!((got - expected).abs() < 5.0, "limit {limit}: {got} for {expected}");
            }
        }
    }

    #[test]
    fn what_one_queue_does_not_have_goes_to_the_others() {
        let quotas = share(&queues(&[("a", 9), ("b", 1)], false), 10, &mut Dice::seeded(1));
        let of_b: usize =
            quotas.iter().filter(|quota| quota.queue.as_str() == "b").map(|q| q.at_most).sum();
        assert!(of_b >= 10);
    }

    #[test]
    fn strict_takes_the_queues_in_order() {
        let quotas = share(&queues(&[("a", 1), ("b", 9)], true), 10, &mut Dice::seeded(1));
        let names: Vec<_> = quotas.iter().map(|q| (q.queue.as_str(), q.at_most)).collect();
        assert_eq!(names, [("a", 10), ("b", 10)]);
    }
}
