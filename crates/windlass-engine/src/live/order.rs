//! The order in which the events of one task are told, wherever they come from.
//!
//! Events of one process come in order, those of several may overtake each other. An event has its place by
//! the claim that it belongs to and by its rank in a run; one that comes too late is left out, and a gap told
//! in its place. A start carries what its submit would have told, so that a submit which comes later, or
//! never (tasks of applications' own transactions), is told before its start all the same.

use std::collections::{HashMap, VecDeque};

use windlass_core::event::EventKind;
use windlass_core::{Epoch, TaskId, Timestamp};

use super::happening::{TaskEvent, submit_of};

/// Tasks that are remembered.
const TASKS_MAX: usize = 20_000;

/// Where an event stands among those of its task.
type Place = (Option<Epoch>, u8, Timestamp);

/// What was told last of each task.
pub(crate) struct Order {
    /// Submits are told since then, by the store's clock.
    since: Timestamp,
    last: HashMap<TaskId, Told>,
    /// The tasks in the order in which they were told of; what is not the latest of its task counts nothing.
    touched: VecDeque<(u64, TaskId)>,
    stamp: u64,
    /// No task that was submitted later than this was forgotten.
    forgotten: Timestamp,
    tasks_max: usize,
}

struct Told {
    place: Place,
    stamp: u64,
    created_at: Timestamp,
}

/// What becomes of an event.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    /// It is told, and perhaps its submit before it.
    Told,
    /// It was told already.
    Known,
    /// It comes too late.
    Late,
}

impl Order {
    pub(crate) fn since(since: Timestamp) -> Self {
        Self::with_capacity(since, TASKS_MAX)
    }

    fn with_capacity(since: Timestamp, tasks_max: usize) -> Self {
        Self {
            since,
            last: HashMap::new(),
            touched: VecDeque::new(),
            stamp: 0,
            forgotten: since,
            tasks_max,
        }
    }

    /// Puts an event behind those that are told, or not.
    pub(crate) fn judge(&mut self, event: TaskEvent, told: &mut Vec<TaskEvent>) -> Verdict {
        let place = place(&event);
        match self.last.get(&event.task.id) {
            Some(_) if event.kind == EventKind::TaskSubmitted => return Verdict::Known,
            Some(last) if place < last.place => return Verdict::Late,
            Some(_) => {}
            None if event.kind == EventKind::TaskStarted => {
                let is_missing = |at: &Timestamp| *at > self.since && *at > self.forgotten;
                if event.task.more.created_at.as_ref().is_some_and(is_missing) {
                    told.extend(submit_of(&event));
                }
            }
            None => {}
        }
        self.note(&event, place);
        told.push(event);
        Verdict::Told
    }

    fn note(&mut self, event: &TaskEvent, place: Place) {
        self.stamp += 1;
        let (stamp, id) = (self.stamp, &event.task.id);
        // What is not told with the event itself is not older than what it tells.
        let created_at = event.task.more.created_at;
        let created_at = created_at
            .or_else(|| self.last.get(id).map(|told| told.created_at))
            .unwrap_or(event.at);
        self.last.insert(id.clone(), Told { place, stamp, created_at });
        self.touched.push_back((stamp, id.clone()));
        while self.last.len() > self.tasks_max || self.touched.len() > 4 * self.tasks_max {
            let Some((stamp, id)) = self.touched.pop_front() else { break };
            if self.last.get(&id).is_some_and(|told| told.stamp == stamp)
                && let Some(told) = self.last.remove(&id)
            {
                self.forgotten = self.forgotten.max(told.created_at);
            }
        }
    }
}

fn place(event: &TaskEvent) -> Place {
    let rank = match event.kind {
        EventKind::TaskSubmitted => 0,
        EventKind::TaskStarted => 1,
        EventKind::TaskProgress => 2,
        EventKind::TaskCompleted | EventKind::TaskFailed => 3,
        EventKind::TaskRetrying | EventKind::TaskCancelled | EventKind::TaskDeadLetter => 4,
        // The enum may grow; what is told of a task at the latest comes last.
        _ => 5,
    };
    match event.is_asked_for {
        true => (event.task.epoch, 5, event.at),
        false => (event.task.epoch, rank, Timestamp::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::event;
    use super::*;

    const SINCE: Timestamp = Timestamp::from_millis(1_000);

    fn started(id: &str, epoch: u128, created_ms: i64) -> TaskEvent {
        let mut event = event(EventKind::TaskStarted, id, Some(epoch));
        event.task.more.created_at = Some(Timestamp::from_millis(created_ms));
        event
    }

    /// What is told of these events: kinds, with `late` for what is left out.
    fn told(order: &mut Order, events: Vec<TaskEvent>) -> Vec<&'static str> {
        let mut words = Vec::new();
        for event in events {
            let mut told = Vec::new();
            match order.judge(event, &mut told) {
                Verdict::Told => words.extend(told.iter().map(|event| event.kind.as_str())),
                Verdict::Known => {}
                Verdict::Late => words.push("late"),
            }
        }
        words
    }

    #[test]
    fn a_start_before_its_submit_tells_the_submit_first_and_only_once() {
        let mut order = Order::since(SINCE);
        let events = vec![
            started("t", 1, 2_000),
            event(EventKind::TaskSubmitted, "t", None),
            event(EventKind::TaskCompleted, "t", Some(1)),
        ];
        assert_eq!(told(&mut order, events), ["task.submitted", "task.started", "task.completed"]);
    }

    #[test]
    fn a_task_from_before_has_no_submit() {
        let mut order = Order::since(SINCE);
        assert_eq!(told(&mut order, vec![started("t", 1, 1_000)]), ["task.started"]);
    }

    #[test]
    fn what_belongs_to_an_earlier_run_comes_too_late() {
        let mut order = Order::since(SINCE);
        let events = vec![
            event(EventKind::TaskSubmitted, "t", None),
            event(EventKind::TaskCompleted, "t", Some(2)),
            event(EventKind::TaskStarted, "t", Some(2)),
            event(EventKind::TaskFailed, "t", Some(1)),
            event(EventKind::TaskCompleted, "u", Some(1)),
        ];
        let words = ["task.submitted", "task.completed", "late", "late", "task.completed"];
        assert_eq!(told(&mut order, events), words);
    }

    #[test]
    fn what_somebody_asked_for_is_told_in_the_order_of_time() {
        let asked = |kind, millis| TaskEvent {
            is_asked_for: true,
            at: Timestamp::from_millis(millis),
            ..event(kind, "t", Some(1))
        };
        let mut order = Order::since(SINCE);
        let events = vec![
            event(EventKind::TaskDeadLetter, "t", Some(1)),
            asked(EventKind::TaskRetrying, 5),
            asked(EventKind::TaskCancelled, 6),
            asked(EventKind::TaskRetrying, 7),
            asked(EventKind::TaskCancelled, 6),
            event(EventKind::TaskStarted, "t", Some(2)),
        ];
        let words = [
            "task.dead_letter",
            "task.retrying",
            "task.cancelled",
            "task.retrying",
            "late",
            "task.started",
        ];
        assert_eq!(told(&mut order, events), words);
    }

    #[test]
    fn a_task_that_was_forgotten_is_not_submitted_twice() {
        let mut order = Order::with_capacity(SINCE, 10);
        for n in 0..20 {
            let mut submit = event(EventKind::TaskSubmitted, &format!("t{n}"), None);
            submit.task.more.created_at = Some(Timestamp::from_millis(2_000 + n));
            told(&mut order, vec![submit]);
        }
        assert_eq!(told(&mut order, vec![started("t0", 1, 2_000)]), ["task.started"]);
        let new = told(&mut order, vec![started("new", 1, 3_000)]);
        assert_eq!(new, ["task.submitted", "task.started"]);
        assert!(order.last.len() <= 10 && order.touched.len() <= 40);
    }
}
