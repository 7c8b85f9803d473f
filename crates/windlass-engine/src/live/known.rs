//! What was told last of each queue and worker, and so whether what is heard is news.
//!
//! Whoever gives an order, joins, obeys or leaves says so itself, and that is told at once. The store's figures
//! are the net beneath: they show what nobody could say (a worker that was lost), and what was done past
//! windlass (by SQL, by a Go program, where a store carries no broadcasts). Since the word of it may be on its way,
//! what figures show of a worker that is there and of a queue counts only when they show it twice in a row and nothing
//! was heard in between; and what is told either way is known, so that it is not told again. Pure.

mod queues;
mod workers;

use windlass_core::event::{Event, Subject};

use super::order::Verdict;
use super::other::{About, OtherEvent};
use crate::metrics::Figures;
use queues::Queues;
use workers::Workers;

#[derive(Default)]
pub(crate) struct Known {
    queues: Queues,
    workers: Workers,
    /// How many events were heard.
    heard: Mark,
    /// Figures were looked at the last time that there was a reason to.
    is_looking: bool,
}

/// A moment in what was heard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark(u64);

/// What figures are good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// All who listen begin with them.
    First,
    /// Nobody wanted them for a while: what changed in the meantime is no news. Its word may still be on its way
    /// to someone who listens by now, so that it is not taken for known either.
    Anew,
    Next,
}

impl Known {
    /// What is there when someone begins to listen.
    pub(crate) fn of(figures: &Figures) -> Self {
        let mut known = Self { is_looking: true, ..Self::default() };
        known.look_as(Look::First, figures, Mark::default(), &mut Vec::new());
        known
    }

    /// Puts an event behind those that are told, or not.
    pub(crate) fn hear(&mut self, event: OtherEvent, told: &mut Vec<Event>) -> Verdict {
        self.heard.0 += 1;
        let OtherEvent { kind, at, about } = event;
        match about {
            About::Queue(queue) => match self.queues.hear(kind, queue, self.heard) {
                Some(queue) => {
                    told.push(Event { kind, at, subject: Subject::Queue(queue) });
                    Verdict::Told
                }
                None => Verdict::Known,
            },
            About::Worker(worker) => self.workers.hear(kind, at, worker, self.heard, told),
        }
    }

    /// Something was not heard: what is said next is told, be it known or not.
    pub(crate) fn miss(&mut self) {
        self.queues.miss();
        self.workers.miss();
    }

    /// To be noted before figures are read.
    pub(crate) fn mark(&self) -> Mark {
        self.heard
    }

    /// What figures show that nobody has said, read after a mark was noted.
    pub(crate) fn look(&mut self, figures: &Figures, since: Mark, told: &mut Vec<Event>) {
        let look = match std::mem::replace(&mut self.is_looking, true) {
            true => Look::Next,
            false => Look::Anew,
        };
        self.look_as(look, figures, since, told);
    }

    /// Nobody wants to know for now.
    pub(crate) fn look_away(&mut self) {
        self.is_looking = false;
    }

    fn look_as(&mut self, look: Look, figures: &Figures, since: Mark, told: &mut Vec<Event>) {
        self.workers.look(look, figures, since, told);
        self.queues.look(look, figures, since, told);
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::event::EventKind;
    use windlass_core::store::RunOrder;

    use super::super::testing::{figures, queue_event, worker_event};
    use super::*;

    const RUN: RunOrder = RunOrder::Run;

    /// What is told of these events; `late` for what comes too late.
    fn hear(known: &mut Known, events: &[OtherEvent]) -> Vec<&'static str> {
        let mut words = Vec::new();
        for event in events {
            let mut told = Vec::new();
            if known.hear(event.clone(), &mut told) == Verdict::Late {
                words.push("late");
            }
            words.extend(told.iter().map(|event| event.kind.as_str()));
        }
        words
    }

    fn look_since(known: &mut Known, since: Mark, figures: &Figures) -> Vec<&'static str> {
        let mut told = Vec::new();
        known.look(figures, since, &mut told);
        told.iter().map(|event| event.kind.as_str()).collect()
    }

    fn look(known: &mut Known, figures: &Figures) -> Vec<&'static str> {
        let since = known.mark();
        look_since(known, since, figures)
    }

    /// Someone has begun to listen, and looks.
    fn known(figures: &Figures) -> Known {
        let mut known = Known::of(figures);
        assert!(look(&mut known, figures).is_empty());
        known
    }

    fn paused() -> OtherEvent {
        queue_event(EventKind::QueuePaused, "q")
    }

    fn resumed() -> OtherEvent {
        queue_event(EventKind::QueueResumed, "q")
    }

    #[test]
    fn what_changes_nothing_is_not_told() {
        let mut known = known(&figures(&[("q", true, 1)], &[]));
        let events = [paused(), resumed(), resumed(), paused(), paused()];
        assert_eq!(hear(&mut known, &events), ["queue.resumed", "queue.paused"]);
        let other = queue_event(EventKind::QueueResumed, "never seen");
        assert!(hear(&mut known, &[other]).is_empty());
    }

    #[test]
    fn after_a_gap_the_next_word_is_told_whatever_was_known() {
        let mut known = known(&figures(&[("q", true, 1)], &[("w", RUN)]));
        known.miss();
        assert_eq!(hear(&mut known, &[paused(), paused()]), ["queue.paused"]);
        let unseen = queue_event(EventKind::QueueResumed, "unseen");
        assert_eq!(hear(&mut known, &[unseen]), ["queue.resumed"]);
        let joined = worker_event(EventKind::WorkerJoined, "w", 1);
        assert_eq!(hear(&mut known, &[joined.clone(), joined]), ["worker.joined"]);
    }

    #[test]
    fn what_nobody_says_is_told_when_figures_show_it_twice() {
        let mut known = known(&figures(&[("q", false, 1)], &[]));
        let after = figures(&[("q", true, 1), ("new", true, 0)], &[("w", RUN)]);
        assert!(look(&mut known, &after).is_empty());
        let words = ["worker.joined", "queue.paused", "queue.paused"];
        assert_eq!(look(&mut known, &after), words);
        assert!(look(&mut known, &after).is_empty());
        assert!(hear(&mut known, &[paused()]).is_empty(), "it was told");
        assert_eq!(hear(&mut known, &[resumed()]), ["queue.resumed"]);
    }

    #[test]
    fn figures_that_are_older_than_the_word_count_nothing() {
        let before = figures(&[("q", false, 1)], &[]);
        let mut known = known(&before);
        let since = known.mark();
        hear(&mut known, &[paused(), worker_event(EventKind::WorkerJoined, "w", 1)]);
        assert!(look_since(&mut known, since, &before).is_empty());
        let after = figures(&[("q", true, 1)], &[("w", RUN)]);
        for _ in 0..3 {
            assert!(look(&mut known, &after).is_empty());
        }
    }

    #[test]
    fn the_word_comes_before_the_second_look() {
        let mut known = known(&figures(&[("q", false, 1)], &[]));
        let after = figures(&[("q", true, 1)], &[("w", RUN)]);
        assert!(look(&mut known, &after).is_empty());
        let joined = worker_event(EventKind::WorkerJoined, "w", 1);
        assert_eq!(hear(&mut known, &[joined, paused()]), ["worker.joined", "queue.paused"]);
        assert!(look(&mut known, &after).is_empty());
    }

    #[test]
    fn what_changed_while_nobody_wanted_to_know_is_no_news_but_its_word_is() {
        let mut known = known(&figures(&[("q", false, 1)], &[("w", RUN)]));
        known.look_away();
        let after = figures(&[("q", true, 1)], &[("v", RUN)]);
        assert!(look(&mut known, &after).is_empty());
        assert!(look(&mut known, &after).is_empty());
        let left = worker_event(EventKind::WorkerLeft, "w", 1);
        let joined = worker_event(EventKind::WorkerJoined, "v", 1);
        let words = ["queue.paused", "worker.left", "worker.joined"];
        assert_eq!(hear(&mut known, &[paused(), left, joined]), words);
    }
}
