//! Events for tests.

use windlass_core::event::{Event, EventDetails, EventKind, EventQueue, EventTask, Subject};
use windlass_core::store::{QueueRecord, RunOrder, StateCounts, WorkerCard, WorkerRecord};
use windlass_core::{Epoch, Kind, Priority, QueueName, State, TaskId, Timestamp, WorkerId};

use super::happening::TaskEvent;
use super::other::{self, About, OtherEvent};
use crate::metrics::Figures;

pub(super) fn event(kind: EventKind, id: &str, epoch: Option<u128>) -> TaskEvent {
    let task = EventTask {
        id: TaskId::new(id),
        kind: Kind::stored("do"),
        queue: QueueName::stored("default"),
        priority: Priority::Normal,
        epoch: epoch.map(Epoch),
        more: EventDetails::default(),
    };
    TaskEvent { kind, at: Timestamp::default(), is_asked_for: false, task }
}

pub(super) fn task_event(kind: EventKind, queue: &str) -> Event {
    let TaskEvent { kind, at, mut task, .. } = event(kind, "t", None);
    task.queue = QueueName::stored(queue);
    Event { kind, at, subject: Subject::Task(task) }
}

pub(super) fn depth(queue: &str) -> Event {
    let counts = StateCounts::default();
    let queue = EventQueue { queue: QueueName::stored(queue), paused: false, counts };
    Event { kind: EventKind::QueueDepth, at: Timestamp::default(), subject: Subject::Queue(queue) }
}

pub(super) fn queue_event(kind: EventKind, queue: &str) -> OtherEvent {
    OtherEvent { kind, at: Timestamp::default(), about: About::Queue(QueueName::stored(queue)) }
}

pub(super) fn worker_event(kind: EventKind, id: &str, at_ms: i64) -> OtherEvent {
    let worker = other::worker(&WorkerId::new(id), &WorkerCard::default());
    OtherEvent { kind, at: Timestamp::from_millis(at_ms), about: About::Worker(worker) }
}

/// Figures of queues (name, is paused, how many are pending) and of workers that live.
pub(super) fn figures(queues: &[(&str, bool, u64)], workers: &[(&str, RunOrder)]) -> Figures {
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
        card: WorkerCard { slots: 4, doing: *order, ..WorkerCard::default() },
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
        lapsed: Vec::new(),
        brokers: Vec::new(),
    }
}
