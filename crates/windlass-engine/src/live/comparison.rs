//! What has changed between two looks at the store's figures, told as events. Pure.

use std::collections::HashMap;

use windlass_core::Timestamp;
use windlass_core::event::{
    Event, EventKind, EventQueue, EventSystem, EventWorker, Subject, TEXT_BYTES_MAX,
};
use windlass_core::limits::clip;
use windlass_core::store::{QueueRecord, StateCounts, WorkerRecord};

use crate::metrics::Figures;

/// Queues whose depth is told after one look; the others are told after the next ones.
const DEPTHS_MAX: usize = 500;

/// What was told of queues and workers.
#[derive(Default)]
pub(crate) struct Comparison {
    queues: HashMap<String, Seen>,
    workers: HashMap<String, (EventWorker, bool)>,
    /// There was a look before.
    has_begun: bool,
}

struct Seen {
    is_paused: bool,
    counts: StateCounts,
}

impl Comparison {
    /// What is different since the last look. The first one tells only the counts.
    pub(crate) fn look(&mut self, figures: &Figures) -> Vec<Event> {
        let mut events = Vec::new();
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        self.workers(figures, is_first, &mut events);
        self.queues(figures, is_first, &mut events);
        events.push(event(EventKind::SystemMetrics, figures.now, Subject::System(system(figures))));
        events
    }

    fn workers(&mut self, figures: &Figures, is_first: bool, events: &mut Vec<Event>) {
        let mut before = std::mem::take(&mut self.workers);
        for record in &figures.workers {
            let (worker, is_active) = (worker(record), Figures::is_active(record));
            let tell = |kind| event(kind, figures.now, Subject::Worker(worker.clone()));
            match before.remove(record.id.as_str()) {
                None if !is_first => events.push(tell(EventKind::WorkerJoined)),
                Some((_, true)) if !is_active => events.push(tell(EventKind::WorkerPaused)),
                Some((_, false)) if is_active => events.push(tell(EventKind::WorkerResumed)),
                None | Some(_) => {}
            }
            self.workers.insert(record.id.as_str().to_owned(), (worker, is_active));
        }
        let left = before.into_values();
        let tell = |(worker, _)| event(EventKind::WorkerLeft, figures.now, Subject::Worker(worker));
        events.extend(left.map(tell));
    }

    fn queues(&mut self, figures: &Figures, is_first: bool, events: &mut Vec<Event>) {
        let (mut depths, mut before) = (0, std::mem::take(&mut self.queues));
        for record in &figures.queues {
            let tell = |kind| event(kind, figures.now, Subject::Queue(queue(record)));
            let before = before.remove(record.name.as_str());
            let was_paused = before.as_ref().is_some_and(|before| before.is_paused);
            if was_paused != record.is_paused && !is_first {
                let kind = match record.is_paused {
                    true => EventKind::QueuePaused,
                    false => EventKind::QueueResumed,
                };
                events.push(tell(kind));
            }
            let mut counts = before.map(|before| before.counts);
            if counts != Some(record.counts) && depths < DEPTHS_MAX {
                depths += 1;
                counts = Some(record.counts);
                events.push(tell(EventKind::QueueDepth));
            }
            let is_paused = record.is_paused;
            if let Some(counts) = counts {
                self.queues.insert(record.name.as_str().to_owned(), Seen { is_paused, counts });
            }
        }
    }
}

fn event(kind: EventKind, at: Timestamp, subject: Subject) -> Event {
    Event { kind, at, subject }
}

fn worker(record: &WorkerRecord) -> EventWorker {
    let text = |text: &str| clip(text, TEXT_BYTES_MAX).to_owned();
    let card = &record.card;
    EventWorker {
        id: record.id.clone(),
        name: text(&card.name),
        host: text(&card.host),
        slots: card.slots,
    }
}

fn queue(record: &QueueRecord) -> EventQueue {
    EventQueue { queue: record.name.clone(), paused: record.is_paused, counts: record.counts }
}

fn system(figures: &Figures) -> EventSystem {
    let mut counts = StateCounts::default();
    for queue in &figures.queues {
        for state in windlass_core::State::ALL {
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
    use windlass_core::store::{RunOrder, WorkerCard};
    use windlass_core::{QueueName, State, WorkerId};

    use super::*;

    fn figures(queues: &[(&str, bool, u64)], workers: &[(&str, RunOrder)]) -> Figures {
        let queue = |(name, is_paused, pending): &(&str, bool, u64)| {
            let mut counts = StateCounts::default();
            counts.add(State::Pending, *pending);
            QueueRecord {
                name: QueueName::stored(name),
                is_paused: *is_paused,
                counts,
                pending: [0; 4],
                oldest_pending_at: None,
            }
        };
        let worker = |(id, order): &(&str, RunOrder)| WorkerRecord {
            id: WorkerId::new(id),
            card: WorkerCard { slots: 4, ..WorkerCard::default() },
            order: *order,
            started_at: Timestamp::default(),
            beat_at: Timestamp::default(),
            lease_until: Timestamp::MAX,
            is_gone: false,
            running_count: 0,
        };
        Figures {
            now: Timestamp::default(),
            queues: queues.iter().map(queue).collect(),
            workers: workers.iter().map(worker).collect(),
            brokers: Vec::new(),
        }
    }

    fn kinds(events: &[Event]) -> Vec<&'static str> {
        events.iter().map(|event| event.kind.as_str()).collect()
    }

    #[test]
    fn only_differences_are_told_and_the_counts_of_everything() {
        let mut seen = Comparison::default();
        let run = RunOrder::Run;
        let first = seen.look(&figures(&[("a", true, 1)], &[("w", run)]));
        assert_eq!(kinds(&first), ["queue.depth", "system.metrics"]);
        let same = seen.look(&figures(&[("a", true, 1)], &[("w", run)]));
        assert_eq!(kinds(&same), ["system.metrics"]);
        let other = seen.look(&figures(&[("a", false, 2), ("b", true, 0)], &[("v", run)]));
        let words = [
            "worker.joined",
            "worker.left",
            "queue.resumed",
            "queue.depth",
            "queue.paused",
            "queue.depth",
            "system.metrics",
        ];
        assert_eq!(kinds(&other), words);
        let paused = seen.look(&figures(&[], &[("v", RunOrder::Pause)]));
        assert_eq!(kinds(&paused), ["worker.paused", "system.metrics"]);
        let resumed = seen.look(&figures(&[], &[("v", run)]));
        assert_eq!(kinds(&resumed), ["worker.resumed", "system.metrics"]);
    }

    #[test]
    fn very_many_queues_are_told_in_turns() {
        let names: Vec<_> = (0..DEPTHS_MAX + 10).map(|n| format!("q{n:05}")).collect();
        let queues: Vec<_> = names.iter().map(|name| (name.as_str(), false, 1)).collect();
        let figures = figures(&queues, &[]);
        let mut seen = Comparison::default();
        assert_eq!(seen.look(&figures).len(), DEPTHS_MAX + 1);
        assert_eq!(seen.look(&figures).len(), 10 + 1);
        assert_eq!(seen.look(&figures).len(), 1);
    }
}
