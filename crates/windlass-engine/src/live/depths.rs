//! The counts of queues and of everything, told when they have changed. Pure.

use std::collections::HashMap;

use windlass_core::event::{Event, EventKind, EventQueue, EventSystem, Subject};
use windlass_core::store::{QueueRecord, StateCounts, WorkerRecord};
use windlass_core::{QueueName, State, Timestamp};

use crate::metrics::Figures;

/// Queues whose depth is told after one look; the others are told after the next ones.
const DEPTHS_MAX: usize = 500;

/// The counts that were told of queues.
#[derive(Default)]
pub(crate) struct Depths(HashMap<QueueName, StateCounts>);

impl Depths {
    /// What is different since the last look.
    pub(crate) fn look(&mut self, figures: &Figures, events: &mut Vec<Event>) {
        let (mut depths, mut before) = (0, std::mem::take(&mut self.0));
        for record in &figures.queues {
            let mut counts = before.remove(&record.name);
            if counts != Some(record.counts) && depths < DEPTHS_MAX {
                depths += 1;
                counts = Some(record.counts);
                let subject = Subject::Queue(queue(record));
                events.push(event(EventKind::QueueDepth, figures.now, subject));
            }
            if let Some(counts) = counts {
                self.0.insert(record.name.clone(), counts);
            }
        }
        events.push(event(EventKind::SystemMetrics, figures.now, Subject::System(system(figures))));
    }
}

fn event(kind: EventKind, at: Timestamp, subject: Subject) -> Event {
    Event { kind, at, subject }
}

fn queue(record: &QueueRecord) -> EventQueue {
    EventQueue { queue: record.name.clone(), paused: record.is_paused, counts: record.counts }
}

fn system(figures: &Figures) -> EventSystem {
    let mut counts = StateCounts::default();
    for queue in &figures.queues {
        for state in State::ALL {
            counts.add(state, queue.counts.get(state));
        }
    }
    let sum = |of: fn(&WorkerRecord) -> u32| {
        figures.workers.iter().map(|worker| u64::from(of(worker))).sum()
    };
    EventSystem {
        counts,
        queues: figures.queues.len() as u64,
        workers: figures.workers.len() as u64,
        slots_total: sum(|worker| worker.card.slots),
        slots_used: sum(WorkerRecord::slots_used),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::figures;
    use super::*;

    fn look(seen: &mut Depths, figures: &Figures) -> Vec<&'static str> {
        let mut events = Vec::new();
        seen.look(figures, &mut events);
        events.iter().map(|event| event.kind.as_str()).collect()
    }

    #[test]
    fn only_differences_are_told_and_the_counts_of_everything() {
        let mut seen = Depths::default();
        let first = figures(&[("a", true, 1)], &[]);
        assert_eq!(look(&mut seen, &first), ["queue.depth", "system.metrics"]);
        assert_eq!(look(&mut seen, &first), ["system.metrics"]);
        let other = figures(&[("a", false, 2), ("b", true, 0)], &[]);
        assert_eq!(look(&mut seen, &other), ["queue.depth", "queue.depth", "system.metrics"]);
    }

    #[test]
    fn very_many_queues_are_told_in_turns() {
        let names: Vec<_> = (0..DEPTHS_MAX + 10).map(|n| format!("q{n:05}")).collect();
        let queues: Vec<_> = names.iter().map(|name| (name.as_str(), false, 1)).collect();
        let figures = figures(&queues, &[]);
        let mut seen = Depths::default();
        assert_eq!(look(&mut seen, &figures).len(), DEPTHS_MAX + 1);
        assert_eq!(look(&mut seen, &figures).len(), 10 + 1);
        assert_eq!(look(&mut seen, &figures).len(), 1);
    }
}
