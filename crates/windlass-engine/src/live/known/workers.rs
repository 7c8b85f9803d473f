//! What was told last of each worker. A worker's id is never used again: who has left has left for ever.

use std::collections::{HashMap, HashSet, VecDeque};

use windlass_core::event::{Event, EventKind, EventWorker, Subject};
use windlass_core::store::{RunOrder, WorkerRecord};
use windlass_core::{Timestamp, WorkerId};

use super::super::order::Verdict;
use super::super::other;
use super::{Look, Mark};
use crate::metrics::Figures;

/// Workers that have left and are remembered, so that an earlier word of them is known to be late.
const GONE_MAX: usize = 1_000;

#[derive(Default)]
pub(super) struct Workers {
    known: HashMap<WorkerId, Worker>,
    /// Those that have left, in that order.
    gone: VecDeque<WorkerId>,
}

struct Worker {
    presence: Presence,
    is_active: bool,
    /// The time of what was heard last: several servers may speak for one worker.
    at: Timestamp,
    heard: Mark,
    /// Whoever listens was told, or began with it.
    is_sure: bool,
    /// The last look showed something else.
    differs: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Presence {
    /// A look has shown it; its own word may be on its way.
    Seen,
    There(EventWorker),
    Gone,
}

impl Workers {
    pub(super) fn hear(
        &mut self,
        kind: EventKind,
        at: Timestamp,
        worker: EventWorker,
        heard: Mark,
        told: &mut Vec<Event>,
    ) -> Verdict {
        let tell = |kind| Event { kind, at, subject: Subject::Worker(worker.clone()) };
        let known = self.known.entry(worker.id.clone()).or_insert_with(Worker::seen);
        known.heard = heard;
        let (is_gone, is_there) = match &known.presence {
            Presence::Seen => (false, false),
            Presence::There(_) => (false, true),
            Presence::Gone => (true, false),
        };
        let is_known = known.is_sure
            && match kind {
                EventKind::WorkerJoined => is_there,
                EventKind::WorkerLeft => is_gone,
                _ => false,
            };
        if is_known {
            return Verdict::Known;
        }
        if kind == EventKind::WorkerLeft {
            told.push(tell(kind));
            self.left(&worker.id);
            return Verdict::Told;
        }
        if is_gone || at < known.at {
            return Verdict::Late;
        }
        let is_active = match kind {
            EventKind::WorkerPaused => false,
            // What it does besides is told for itself.
            EventKind::WorkerJoined => known.is_active,
            _ => true,
        };
        let is_same = is_there && known.is_sure && known.is_active == is_active;
        if !is_there && kind != EventKind::WorkerJoined {
            // The word of another process, through which it has joined, is on its way.
            told.push(tell(EventKind::WorkerJoined));
        }
        if !is_same {
            told.push(tell(kind));
        }
        (known.presence, known.is_active) = (Presence::There(worker), is_active);
        (known.at, known.is_sure, known.differs) = (at, true, false);
        if is_same { Verdict::Known } else { Verdict::Told }
    }

    pub(super) fn miss(&mut self) {
        self.known.values_mut().for_each(|known| known.is_sure = false);
    }

    pub(super) fn look(
        &mut self,
        look: Look,
        figures: &Figures,
        since: Mark,
        told: &mut Vec<Event>,
    ) {
        for record in &figures.workers {
            let known = self.known.entry(record.id.clone()).or_insert_with(|| match look {
                Look::First | Look::Anew => Worker::of(record, look == Look::First),
                Look::Next => Worker::seen(),
            });
            if known.heard <= since {
                known.show(look, record, figures.now, told);
            }
        }
        let there = figures.workers.iter().map(|record| &record.id).chain(&figures.lapsed);
        let there: HashSet<&WorkerId> = there.collect();
        let is_missing = |(id, known): &(&WorkerId, &Worker)| {
            known.presence != Presence::Gone && known.heard <= since && !there.contains(*id)
        };
        let missing = self.known.iter().filter(is_missing);
        let missing: Vec<_> = missing.map(|(id, _)| id.clone()).collect();
        for id in missing {
            let worker = self.left(&id);
            let Some(known) = self.known.get_mut(&id) else { continue };
            known.is_sure = look == Look::Next;
            // Nothing is sooner than this where a worker was lost, and who is gone does not come back: one look is
            // enough.
            if let (Look::Next, Some(worker)) = (look, worker) {
                let (kind, subject) = (EventKind::WorkerLeft, Subject::Worker(worker));
                told.push(Event { kind, at: figures.now, subject });
            }
        }
    }

    /// Notes that a worker is gone, and answers what is known of it.
    fn left(&mut self, id: &WorkerId) -> Option<EventWorker> {
        let known = self.known.get_mut(id)?;
        let before = std::mem::replace(&mut known.presence, Presence::Gone);
        known.is_sure = true;
        if before != Presence::Gone {
            self.gone.push_back(id.clone());
        }
        if self.gone.len() > GONE_MAX
            && let Some(oldest) = self.gone.pop_front()
        {
            self.known.remove(&oldest);
        }
        match before {
            Presence::There(worker) => Some(worker),
            Presence::Seen | Presence::Gone => None,
        }
    }
}

impl Worker {
    fn seen() -> Self {
        Self {
            presence: Presence::Seen,
            is_active: true,
            at: Timestamp::default(),
            heard: Mark::default(),
            is_sure: true,
            differs: false,
        }
    }

    /// One that was there before anyone looked.
    fn of(record: &WorkerRecord, is_sure: bool) -> Self {
        let active = activity(record);
        Self {
            presence: Presence::There(other::worker(&record.id, &record.card)),
            is_active: active.unwrap_or(true),
            is_sure: is_sure && active.is_some(),
            ..Self::seen()
        }
    }

    /// Takes what a look shows of a worker that lives.
    fn show(&mut self, look: Look, record: &WorkerRecord, now: Timestamp, told: &mut Vec<Event>) {
        let worker = other::worker(&record.id, &record.card);
        let event = |kind| Event { kind, at: now, subject: Subject::Worker(worker.clone()) };
        let active = activity(record).unwrap_or(self.is_active);
        let is_other = match &mut self.presence {
            Presence::Seen => true,
            Presence::There(its) => {
                its.clone_from(&worker);
                active != self.is_active
            }
            Presence::Gone => return,
        };
        match look {
            Look::First | Look::Anew if is_other => *self = Self::of(record, look == Look::First),
            Look::Next if is_other && self.differs => {
                let kind = match (&self.presence, active) {
                    (Presence::Seen | Presence::Gone, _) => EventKind::WorkerJoined,
                    (Presence::There(_), true) => EventKind::WorkerResumed,
                    (Presence::There(_), false) => EventKind::WorkerPaused,
                };
                told.push(event(kind));
                (self.presence, self.is_active) = (Presence::There(worker), active);
                (self.is_sure, self.differs) = (true, false);
            }
            Look::First | Look::Anew | Look::Next => self.differs = is_other,
        }
    }
}

/// Whether a worker takes tasks; nothing while it may not have obeyed, or not have said so.
fn activity(record: &WorkerRecord) -> Option<bool> {
    let (ordered, does) = (record.order == RunOrder::Run, record.card.doing == RunOrder::Run);
    (ordered == does).then_some(does)
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{figures, worker_event};
    use super::*;

    fn hear(workers: &mut Workers, kind: EventKind, at_ms: i64) -> Vec<&'static str> {
        let event = worker_event(kind, "w", at_ms);
        let other::About::Worker(worker) = event.about else { panic!("it is of a worker") };
        let mut told = Vec::new();
        let verdict = workers.hear(kind, event.at, worker, Mark::default(), &mut told);
        let late = (verdict == Verdict::Late).then_some("late");
        told.iter().map(|event| event.kind.as_str()).chain(late).collect()
    }

    fn look(workers: &mut Workers, look: Look, figures: &Figures) -> Vec<&'static str> {
        let mut told = Vec::new();
        workers.look(look, figures, Mark::default(), &mut told);
        told.iter().map(|event| event.kind.as_str()).collect()
    }

    #[test]
    fn several_servers_may_speak_for_one_worker() {
        use EventKind::{WorkerJoined, WorkerLeft, WorkerPaused, WorkerResumed};
        let mut workers = Workers::default();
        for (kind, at_ms, words) in [
            (WorkerPaused, 2, vec!["worker.joined", "worker.paused"]),
            (WorkerJoined, 1, vec![]),
            (WorkerPaused, 3, vec![]),
            (WorkerResumed, 4, vec!["worker.resumed"]),
            (WorkerPaused, 3, vec!["late"]),
            (WorkerLeft, 1, vec!["worker.left"]),
            (WorkerLeft, 5, vec![]),
            (WorkerJoined, 6, vec!["late"]),
        ] {
            assert_eq!(hear(&mut workers, kind, at_ms), words, "{kind} at {at_ms}");
        }
    }

    #[test]
    fn a_worker_that_is_lost_has_left_at_once_and_one_that_may_yet_beat_has_not() {
        let mut workers = Workers::default();
        let mut figures = figures(&[], &[("w", RunOrder::Run), ("v", RunOrder::Run)]);
        look(&mut workers, Look::First, &figures);
        figures.lapsed = vec![figures.workers.pop().map(|record| record.id).unwrap()];
        assert!(look(&mut workers, Look::Next, &figures).is_empty());
        figures.lapsed.clear();
        assert_eq!(look(&mut workers, Look::Next, &figures), ["worker.left"]);
        assert!(look(&mut workers, Look::Next, &figures).is_empty());
    }

    #[test]
    fn a_worker_that_has_not_said_what_it_does_is_not_judged() {
        let mut workers = Workers::default();
        let mut figures = figures(&[], &[("w", RunOrder::Run)]);
        look(&mut workers, Look::First, &figures);
        figures.workers[0].order = RunOrder::Pause;
        for _ in 0..3 {
            assert!(look(&mut workers, Look::Next, &figures).is_empty());
        }
        assert_eq!(hear(&mut workers, EventKind::WorkerPaused, 1), ["worker.paused"]);
        for _ in 0..3 {
            assert!(look(&mut workers, Look::Next, &figures).is_empty());
        }
        figures.workers[0].card.doing = RunOrder::Pause;
        assert!(look(&mut workers, Look::Next, &figures).is_empty());
        figures.workers[0].order = RunOrder::Run;
        figures.workers[0].card.doing = RunOrder::Run;
        assert!(look(&mut workers, Look::Next, &figures).is_empty());
        assert_eq!(look(&mut workers, Look::Next, &figures), ["worker.resumed"]);
    }
}
