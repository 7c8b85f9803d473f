//! The workers that beat through this process: what their beats tell.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use windlass_core::event::{EventKind, EventWorker};
use windlass_core::store::{Beat, Orders, ProgressReport, RunOrder};
use windlass_core::{Timestamp, WorkerId};

use super::other::{self, About, OtherEvent};

/// Workers that are remembered. One that is forgotten seems new with its next beat, which those who listen
/// know better.
const WORKERS_MAX: usize = 10_000;

/// The workers that have beaten through here, the last ones.
#[derive(Default)]
pub(crate) struct Beaten {
    known: HashMap<WorkerId, Known>,
    order: VecDeque<WorkerId>,
}

struct Known {
    worker: EventWorker,
    is_active: bool,
}

/// A beat on its way to the store.
pub(crate) struct Beating {
    worker: EventWorker,
    doing: RunOrder,
    /// What will be told of it; empty while nobody listens.
    pub(crate) progress: Vec<ProgressReport>,
}

impl Beating {
    pub(crate) fn of(beat: &Beat, progress: Vec<ProgressReport>) -> Self {
        let worker = other::worker(&beat.worker, &beat.card);
        Self { worker, doing: beat.card.doing, progress }
    }
}

impl Beaten {
    /// What a beat tells that was accepted. An order that it brings is obeyed from now on: nobody waits for the
    /// next beat, which would only say so to the store.
    pub(crate) fn beaten(&mut self, beating: &Beating, orders: &Orders) -> Vec<OtherEvent> {
        let worker = &beating.worker;
        let event =
            |kind| OtherEvent { kind, at: orders.now, about: About::Worker(worker.clone()) };
        let is_active = orders.order == RunOrder::Run;
        let mut events = Vec::new();
        let was_active = match self.known.entry(worker.id.clone()) {
            Entry::Occupied(mut known) => {
                let Known { worker: its, is_active: was_active } = known.get_mut();
                if its != worker {
                    *its = worker.clone();
                }
                std::mem::replace(was_active, is_active)
            }
            Entry::Vacant(vacant) => {
                vacant.insert(Known { worker: worker.clone(), is_active });
                self.order.push_back(worker.id.clone());
                events.push(event(EventKind::WorkerJoined));
                beating.doing == RunOrder::Run
            }
        };
        match (was_active, is_active) {
            (true, false) => events.push(event(EventKind::WorkerPaused)),
            (false, true) => events.push(event(EventKind::WorkerResumed)),
            (true, true) | (false, false) => {}
        }
        self.tidy();
        events
    }

    /// What is told of a worker that has left; nothing when it has not beaten through here.
    pub(crate) fn left(&mut self, worker: &WorkerId, now: Timestamp) -> Option<OtherEvent> {
        let known = self.known.remove(worker)?;
        let about = About::Worker(known.worker);
        Some(OtherEvent { kind: EventKind::WorkerLeft, at: now, about })
    }

    fn tidy(&mut self) {
        while self.known.len() > WORKERS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        // Those that have left are still in line.
        if self.order.len() > 2 * WORKERS_MAX {
            self.order.retain(|worker| self.known.contains_key(worker));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use windlass_core::store::{WakeMark, WorkerCard};

    use super::*;

    fn beat(beaten: &mut Beaten, id: &str, doing: RunOrder, order: RunOrder) -> Vec<&'static str> {
        let card = WorkerCard { doing, ..WorkerCard::default() };
        let (worker, lease) = (WorkerId::new(id), Duration::from_secs(1));
        let beat = Beat { worker, card, lease, held: None, progress: Vec::new() };
        let orders = Orders {
            order,
            paused_queues: Vec::new(),
            cancels: Vec::new(),
            lost: Vec::new(),
            given_back: Vec::new(),
            now: Timestamp::default(),
            mark: WakeMark::default(),
        };
        let told = beaten.beaten(&Beating::of(&beat, Vec::new()), &orders);
        told.iter().map(|event| event.kind.as_str()).collect()
    }

    #[test]
    fn a_worker_joins_once_and_obeys_with_the_answer_that_brings_the_order() {
        use RunOrder::{Drain, Pause, Run};
        let mut beaten = Beaten::default();
        assert_eq!(beat(&mut beaten, "w", Run, Run), ["worker.joined"]);
        assert!(beat(&mut beaten, "w", Run, Run).is_empty());
        assert_eq!(beat(&mut beaten, "w", Run, Pause), ["worker.paused"]);
        assert!(beat(&mut beaten, "w", Run, Drain).is_empty());
        assert!(beat(&mut beaten, "w", Pause, Pause).is_empty());
        assert_eq!(beat(&mut beaten, "w", Pause, Run), ["worker.resumed"]);
        // One that rested before it came here, and one that is told so with its first beat.
        assert_eq!(beat(&mut beaten, "v", Pause, Pause), ["worker.joined"]);
        assert_eq!(beat(&mut beaten, "u", Run, Pause), ["worker.joined", "worker.paused"]);
    }

    #[test]
    fn who_leaves_is_told_of_once_and_only_who_was_here() {
        let mut beaten = Beaten::default();
        beat(&mut beaten, "w", RunOrder::Run, RunOrder::Run);
        let mut left = |id| beaten.left(&WorkerId::new(id), Timestamp::default());
        assert_eq!(left("w").map(|event| event.kind), Some(EventKind::WorkerLeft));
        assert_eq!((left("w"), left("v")), (None, None));
    }

    #[test]
    fn only_so_many_are_remembered() {
        let mut beaten = Beaten::default();
        for n in 0..3 * WORKERS_MAX {
            beat(&mut beaten, &n.to_string(), RunOrder::Run, RunOrder::Run);
            if n % 2 == 0 {
                beaten.left(&WorkerId::new(n.to_string()), Timestamp::default());
            }
        }
        assert!(beaten.known.len() <= WORKERS_MAX && beaten.order.len() <= 2 * WORKERS_MAX);
    }
}
