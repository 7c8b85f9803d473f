//! Which of very many queues are asked for what is due: all of them, but not all at each pass.

use std::collections::BTreeMap;

use windlass_core::{QueueName, Timestamp};

/// Up to so many queues are asked at each pass.
const ASKED_MAX: usize = 1_000;
/// With more of them, each has its turn once in so many passes, that is, within a second.
const TURNS: usize = 4;

/// What a leader knows of the queues that it has asked.
#[derive(Default)]
pub(super) struct Turns {
    turn: usize,
    /// When the next is due, where something is scheduled.
    due: BTreeMap<QueueName, Timestamp>,
}

impl Turns {
    /// The queues to ask: those whose turn it is, and those where something is due by now.
    pub(super) fn choose(&mut self, mut queues: Vec<QueueName>, now: Timestamp) -> Vec<QueueName> {
        if queues.len() <= ASKED_MAX {
            return queues;
        }
        self.turn = (self.turn + 1) % TURNS;
        let mut number = 0;
        queues.retain(|queue| {
            number += 1;
            number % TURNS == self.turn || self.due.get(queue).is_some_and(|due| *due <= now)
        });
        queues
    }

    /// Notes when the next is due in a queue.
    pub(super) fn note(&mut self, queue: &QueueName, due: Option<Timestamp>) {
        match due {
            Some(due) => self.due.insert(queue.clone(), due),
            None => self.due.remove(queue),
        };
    }

    /// When the next is due in any of them.
    pub(super) fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        self.due.values().copied().filter(|due| *due > now).min()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn queues(count: usize) -> Vec<QueueName> {
        (0..count).map(|number| QueueName::stored(&format!("q{number:05}"))).collect()
    }

    #[test]
    fn each_of_very_many_has_its_turn_and_what_is_due_goes_first() {
        let (mut turns, all) = (Turns::default(), queues(5_000));
        let at = Timestamp::from_millis;
        turns.note(&all[7], Some(at(100)));
        turns.note(&all[8], Some(at(900)));
        let mut asked = BTreeSet::new();
        for _ in 0..TURNS {
            let chosen = turns.choose(all.clone(), at(100));
            assert!(chosen.len() <= 5_000 / TURNS + 1 && chosen.contains(&all[7]));
            asked.extend(chosen);
        }
        assert_eq!(asked.len(), 5_000);
        assert_eq!(turns.next_due(at(100)), Some(at(900)));
        turns.note(&all[8], None);
        assert_eq!(turns.next_due(at(100)), None);
        assert_eq!(turns.choose(queues(1_000), at(100)).len(), 1_000);
    }
}
