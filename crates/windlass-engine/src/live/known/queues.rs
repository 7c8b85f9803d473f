//! What was told last of each queue.

use std::collections::HashMap;

use windlass_core::QueueName;
use windlass_core::event::{Event, EventKind, EventQueue, Subject};
use windlass_core::store::StateCounts;

use super::{Look, Mark};
use crate::metrics::Figures;

#[derive(Default)]
pub(super) struct Queues {
    known: HashMap<QueueName, Queue>,
    /// Something was missed, perhaps of queues that are not known here.
    has_missed: bool,
}

struct Queue {
    is_paused: bool,
    /// As of the last look.
    counts: StateCounts,
    heard: Mark,
    /// Whoever listens was told, or began with it.
    is_sure: bool,
    /// The last look showed something else.
    differs: bool,
}

impl Queue {
    fn running(is_sure: bool) -> Self {
        Self {
            is_paused: false,
            counts: StateCounts::default(),
            heard: Mark::default(),
            is_sure,
            differs: false,
        }
    }

    fn told(&self, queue: QueueName) -> EventQueue {
        EventQueue { queue, paused: self.is_paused, counts: self.counts }
    }
}

impl Queues {
    /// The queue as it is told; nothing when that is known.
    pub(super) fn hear(
        &mut self,
        kind: EventKind,
        queue: QueueName,
        heard: Mark,
    ) -> Option<EventQueue> {
        let is_paused = kind == EventKind::QueuePaused;
        let is_sure = !self.has_missed;
        let known = self.known.entry(queue.clone()).or_insert_with(|| Queue::running(is_sure));
        let is_known = known.is_sure && known.is_paused == is_paused;
        (known.heard, known.differs) = (heard, false);
        (known.is_paused, known.is_sure) = (is_paused, true);
        (!is_known).then(|| known.told(queue))
    }

    pub(super) fn miss(&mut self) {
        self.has_missed = true;
        self.known.values_mut().for_each(|known| known.is_sure = false);
    }

    pub(super) fn look(
        &mut self,
        look: Look,
        figures: &Figures,
        since: Mark,
        told: &mut Vec<Event>,
    ) {
        let mut before = std::mem::take(&mut self.known);
        for record in &figures.queues {
            let known = before.remove(&record.name);
            let mut known = known.unwrap_or_else(|| Queue::running(!self.has_missed));
            known.counts = record.counts;
            let is_other = known.heard <= since && known.is_paused != record.is_paused;
            match look {
                Look::First | Look::Anew if is_other => {
                    known.is_paused = record.is_paused;
                    known.is_sure = look == Look::First;
                }
                Look::Next if is_other && known.differs => {
                    (known.is_paused, known.is_sure) = (record.is_paused, true);
                    known.differs = false;
                    let kind = match record.is_paused {
                        true => EventKind::QueuePaused,
                        false => EventKind::QueueResumed,
                    };
                    let subject = Subject::Queue(known.told(record.name.clone()));
                    told.push(Event { kind, at: figures.now, subject });
                }
                Look::First | Look::Anew | Look::Next => known.differs = is_other,
            }
            self.known.insert(record.name.clone(), known);
        }
        // One that figures do not show is gone, unless it was made since.
        before.retain(|_, known| known.heard > since);
        self.known.extend(before);
    }
}
