//! What happens to queues and workers, as it goes from process to process.

use serde::{Deserialize, Serialize};
use windlass_core::event::{EventKind, EventWorker, TEXT_BYTES_MAX};
use windlass_core::limits::clip;
use windlass_core::store::{Order, RunOrder, WorkerCard};
use windlass_core::{QueueName, Timestamp, WorkerId};

/// An event of a queue or a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OtherEvent {
    #[serde(rename = "k")]
    pub(crate) kind: EventKind,
    #[serde(rename = "t")]
    pub(crate) at: Timestamp,
    #[serde(rename = "d")]
    pub(crate) about: About,
}

/// Whom it is about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum About {
    /// Its counts are filled in by who has read them last, on nobody's way.
    #[serde(rename = "q")]
    Queue(QueueName),
    #[serde(rename = "w")]
    Worker(EventWorker),
}

/// What will be told of an order, once it is given. That a worker is told something is no event; that it
/// obeys is one.
pub(crate) fn ordering(order: &Order, now: Timestamp) -> Option<OtherEvent> {
    match order {
        Order::Queue { queue, order } => {
            let kind = match order {
                RunOrder::Run => EventKind::QueueResumed,
                RunOrder::Pause | RunOrder::Drain => EventKind::QueuePaused,
            };
            Some(OtherEvent { kind, at: now, about: About::Queue(queue.clone()) })
        }
        Order::Worker { .. } => None,
    }
}

/// What is told of a worker, by its card.
pub(crate) fn worker(id: &WorkerId, card: &WorkerCard) -> EventWorker {
    let text = |text: &str| clip(text, TEXT_BYTES_MAX).to_owned();
    EventWorker {
        id: id.clone(),
        name: text(&card.name),
        host: text(&card.host),
        slots: card.slots,
    }
}
