//! Where events are put up: a ring of the last ones, and for each filter the line of those that it wants.
//!
//! Whoever listens is a place in such a line and has no buffer of its own. All with the same filter share the
//! line, so that a filter is asked once for each event, and only those are woken for whom there is something.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;
use windlass_core::event::{Event, EventKind, Subject};
use windlass_core::{Error, ErrorKind, Reason, Result, Timestamp};

use super::filter::EventFilter;

/// Events that are kept.
pub(crate) const RING_MAX: usize = 10_000;
/// Filters that are different from each other.
const LINES_MAX: usize = 1_000;

/// An event as it is told.
#[derive(Debug)]
pub struct Told {
    /// Its name among all of this server: `<boot>-<number>`.
    pub id: String,
    /// What it tells.
    pub event: Event,
    /// The same as JSON.
    pub json: Bytes,
    pub(crate) number: u64,
}

#[derive(Serialize)]
struct Written<'a> {
    #[serde(rename = "type")]
    kind: EventKind,
    timestamp: Timestamp,
    id: &'a str,
    data: &'a Subject,
}

impl Told {
    fn new(boot: &str, number: u64, event: Event) -> Self {
        let id = id(boot, number);
        let written =
            Written { kind: event.kind, timestamp: event.at, id: &id, data: &event.subject };
        let json = serde_json::to_vec(&written).expect("an event is plain JSON").into();
        Self { id, event, json, number }
    }
}

fn id(boot: &str, number: u64) -> String {
    format!("{boot}-{number}")
}

pub(crate) struct Board {
    boot: String,
    ring: VecDeque<Arc<Told>>,
    /// The number of the last event.
    last: u64,
    lines: HashMap<EventFilter, Arc<Line>>,
    ring_max: usize,
}

/// The events that one filter wants, of those in the ring.
pub(crate) struct Line {
    state: Mutex<LineState>,
    /// How many there were.
    count: watch::Sender<u64>,
}

#[derive(Default)]
struct LineState {
    /// How many there were before those that are left.
    gone: u64,
    told: VecDeque<Arc<Told>>,
    /// The number up to which all events were looked at.
    seen: u64,
}

/// A place in a line.
pub(crate) struct Place {
    pub(crate) line: Arc<Line>,
    pub(crate) next: u64,
    /// The number up to which all was told.
    pub(crate) seen: u64,
    /// After the event of this number something is missing.
    gap: Option<u64>,
}

impl Board {
    pub(crate) fn new(boot: String) -> Self {
        Self { boot, ring: VecDeque::new(), last: 0, lines: HashMap::new(), ring_max: RING_MAX }
    }

    /// The id of the event of a number, be it one that nobody was told.
    pub(crate) fn id(&self, number: u64) -> String {
        id(&self.boot, number)
    }

    /// What one who listens is told in place of what is missing after an event.
    pub(crate) fn gap_after(&self, number: u64, event: Event) -> Arc<Told> {
        Arc::new(Told::new(&self.boot, number, event))
    }

    /// Puts events up.
    pub(crate) fn put(&mut self, events: Vec<Event>) {
        for event in events {
            let is_gap = |told: &Arc<Told>| told.event.kind == EventKind::Gap;
            if event.kind == EventKind::Gap && self.ring.back().is_some_and(is_gap) {
                // Nothing came in between: one hole.
                continue;
            }
            self.last += 1;
            let told = Arc::new(Told::new(&self.boot, self.last, event));
            for (filter, line) in &self.lines {
                if filter.wants(&told.event) {
                    line.state.lock().told.push_back(told.clone());
                }
            }
            self.ring.push_back(told);
            if self.ring.len() > self.ring_max {
                self.ring.pop_front();
            }
        }
        let first = self.ring.front().map_or(self.last + 1, |told| told.number);
        for line in self.lines.values() {
            line.settle(first, self.last);
        }
    }

    /// Forgets all: from here on nobody listens, so that what was is not what comes before the next event.
    pub(crate) fn clear(&mut self) {
        self.last += 1;
        self.ring.clear();
        for line in self.lines.values() {
            line.settle(self.last + 1, self.last);
        }
    }

    /// True when someone may want what is found by comparing figures.
    pub(crate) fn wants_figures(&self) -> bool {
        self.lines.keys().any(EventFilter::wants_figures)
    }

    /// A place after an event that someone has seen, or at the end.
    pub(crate) fn place(&mut self, filter: &EventFilter, since: Since<'_>) -> Result<Place> {
        let line = self.line(filter)?;
        let oldest = self.ring.front().map_or(self.last + 1, |told| told.number);
        let (after, has_gap) = match since {
            Since::Now => (self.last, false),
            Since::Number(number) => (number.max(oldest - 1), number + 1 < oldest),
            Since::Id(id) => match self.number_of(id) {
                Some(number) => (number.max(oldest - 1), number + 1 < oldest),
                None => (self.last, true),
            },
        };
        let state = line.state.lock();
        let next = state.gone + state.told.partition_point(|told| told.number <= after) as u64;
        drop(state);
        Ok(Place { line, next, seen: after, gap: has_gap.then_some(after) })
    }

    /// The line of a filter is not kept longer than someone stands in it.
    pub(crate) fn tidy(&mut self) {
        self.lines.retain(|_, line| Arc::strong_count(line) > 1);
    }

    fn line(&mut self, filter: &EventFilter) -> Result<Arc<Line>> {
        if let Some(line) = self.lines.get(filter) {
            return Ok(line.clone());
        }
        if self.lines.len() >= LINES_MAX {
            let text = format!("there are {LINES_MAX} different filters of events already");
            return Err(Error::new(ErrorKind::Unavailable, text).reason_is(Reason::Crowded));
        }
        let told = self.ring.iter().filter(|told| filter.wants(&told.event)).cloned().collect();
        let state = LineState { gone: 0, told, seen: self.last };
        let count = watch::Sender::new(state.told.len() as u64);
        let line = Arc::new(Line { state: Mutex::new(state), count });
        self.lines.insert(filter.clone(), line.clone());
        Ok(line)
    }

    fn number_of(&self, id: &str) -> Option<u64> {
        let number = id.strip_prefix(&self.boot)?.strip_prefix('-')?;
        number.parse().ok().filter(|number| *number <= self.last)
    }
}

/// From where on someone wants to hear.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Since<'a> {
    /// From now on.
    Now,
    /// After the event of this number.
    Number(u64),
    /// After the event of this id, as someone says.
    Id(&'a str),
}

impl Line {
    /// Lets go of what is in the ring no more, and wakes who waits for what is new.
    fn settle(&self, first: u64, seen: u64) {
        let mut state = self.state.lock();
        while state.told.front().is_some_and(|told| told.number < first) {
            state.told.pop_front();
            state.gone += 1;
        }
        state.seen = seen;
        let count = state.gone + state.told.len() as u64;
        drop(state);
        self.count.send_if_modified(|told| std::mem::replace(told, count) != count);
    }
}

impl Place {
    /// The next events, none when there are none yet; and the number after which some before them are missing.
    pub(crate) fn take(&mut self, at_most: usize) -> (Option<u64>, Vec<Arc<Told>>) {
        let state = self.line.state.lock();
        let gap = self.gap.take();
        let end = state.gone + state.told.len() as u64;
        if self.next < state.gone {
            // Who is that far behind would not keep up with the rest of the ring, either.
            (self.next, self.seen) = (end, state.seen);
            return (Some(self.seen), Vec::new());
        }
        let at = usize::try_from(self.next - state.gone).unwrap_or(usize::MAX);
        let told: Vec<_> = state.told.iter().skip(at).take(at_most).cloned().collect();
        self.next += told.len() as u64;
        self.seen = match told.last() {
            Some(last) if self.next < end => last.number,
            Some(_) | None => state.seen,
        };
        (gap, told)
    }

    /// Hears when there is more.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.line.count.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::task_event;
    use super::*;
    use windlass_core::QueueName;

    fn board(ring_max: usize) -> Board {
        Board { ring_max, ..Board::new("boot".into()) }
    }

    fn events(queues: &[&str]) -> Vec<Event> {
        queues.iter().map(|queue| task_event(EventKind::TaskStarted, queue)).collect()
    }

    fn of(queue: &str) -> EventFilter {
        EventFilter::all().queue(Some(QueueName::stored(queue)))
    }

    /// What is there to take: queues, with `gap` before them.
    fn taken(place: &mut Place) -> Vec<String> {
        let (gap, told) = place.take(100);
        let gap = gap.map(|_| String::from("gap"));
        let queue =
            |told: &Arc<Told>| told.event.queue().map_or("gap", QueueName::as_str).to_owned();
        gap.into_iter().chain(told.iter().map(queue)).collect()
    }

    #[test]
    fn everyone_gets_what_they_want_in_order() {
        let mut board = board(100);
        let mut all = board.place(&EventFilter::all(), Since::Now).unwrap();
        let mut some = board.place(&of("a"), Since::Now).unwrap();
        board.put(events(&["a", "b", "a"]));
        assert_eq!(taken(&mut all), ["a", "b", "a"]);
        assert_eq!(taken(&mut some), ["a", "a"]);
        assert!(taken(&mut all).is_empty() && taken(&mut some).is_empty());
    }

    #[test]
    fn who_falls_out_of_the_ring_gets_a_gap_and_goes_on_at_the_end() {
        let mut board = board(3);
        let mut slow = board.place(&EventFilter::all(), Since::Now).unwrap();
        let mut rare = board.place(&of("a"), Since::Now).unwrap();
        let mut idle = board.place(&of("c"), Since::Now).unwrap();
        board.put(events(&["a", "b", "b", "b"]));
        assert_eq!(taken(&mut slow), ["gap"]);
        assert_eq!(taken(&mut rare), ["gap"]);
        assert!(taken(&mut idle).is_empty(), "nothing that it wants is missing");
        board.put(events(&["a"]));
        assert_eq!(taken(&mut slow), ["a"]);
        assert_eq!(taken(&mut rare), ["a"]);
    }

    #[test]
    fn what_came_since_an_id_is_told_or_a_gap() {
        let mut board = board(3);
        board.put(events(&["a", "b", "a", "c"]));
        let mut check = |id: &str, expected: &[&str]| {
            let mut place = board.place(&EventFilter::all(), Since::Id(id)).unwrap();
            assert_eq!(taken(&mut place), expected, "{id}");
        };
        check("boot-4", &[]);
        check("boot-2", &["a", "c"]);
        check("boot-1", &["b", "a", "c"]);
        check("boot-0", &["gap", "b", "a", "c"]);
        check("boot-5", &["gap"]);
        check("other-3", &["gap"]);
        check("boot-x", &["gap"]);
        check("", &["gap"]);
    }

    #[test]
    fn another_filter_goes_on_where_the_last_one_was() {
        let mut board = board(100);
        let mut first = board.place(&of("a"), Since::Now).unwrap();
        board.put(events(&["a", "b", "c"]));
        assert_eq!(taken(&mut first), ["a"]);
        board.put(events(&["b", "a"]));
        let mut then = board.place(&of("b"), Since::Number(first.seen)).unwrap();
        assert_eq!(taken(&mut then), ["b"]);
    }

    #[test]
    fn a_gap_goes_to_all_and_only_once_in_a_row() {
        let mut board = board(100);
        let mut place = board.place(&of("a"), Since::Now).unwrap();
        let gap = || Event {
            kind: EventKind::Gap,
            at: Timestamp::default(),
            subject: Subject::Gap { reason: "test" },
        };
        board.put(vec![gap(), gap()]);
        board.put(vec![gap()]);
        board.put(events(&["a"]));
        assert_eq!(taken(&mut place), ["gap", "a"]);
    }

    #[test]
    fn an_id_from_before_nobody_listened_is_a_gap() {
        let mut board = board(100);
        board.put(events(&["a", "b"]));
        board.clear();
        board.put(events(&["c"]));
        let mut place = board.place(&EventFilter::all(), Since::Id("boot-2")).unwrap();
        assert_eq!(taken(&mut place), ["gap", "c"]);
    }

    #[test]
    fn lines_are_bounded_and_let_go_of() {
        let mut board = board(3);
        let places: Vec<_> =
            (0..LINES_MAX).map(|n| board.place(&of(&n.to_string()), Since::Now).unwrap()).collect();
        assert!(board.place(&EventFilter::all(), Since::Now).is_err());
        assert!(board.place(&of("7"), Since::Now).is_ok(), "it is there already");
        drop(places);
        board.tidy();
        assert!(board.place(&EventFilter::all(), Since::Now).is_ok());
    }

    #[test]
    fn an_event_is_written_as_documented() {
        let told = Told::new("b", 7, task_event(EventKind::TaskStarted, "q"));
        let json: serde_json::Value = serde_json::from_slice(&told.json).unwrap();
        assert_eq!(json["type"], "task.started");
        assert_eq!(json["id"], "b-7");
        assert_eq!(json["data"]["queue"], "q");
        assert!(json["timestamp"].as_str().unwrap().ends_with('Z'));
    }
}
