//! Events for tests.

use windlass_core::event::{Event, EventDetails, EventKind, EventQueue, EventTask, Subject};
use windlass_core::store::StateCounts;
use windlass_core::{Epoch, Kind, Priority, QueueName, TaskId, Timestamp};

use super::happening::TaskEvent;

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
