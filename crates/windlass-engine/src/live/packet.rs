//! What processes tell each other: events, several in one message, numbered by who sends them.

use serde::{Deserialize, Serialize};
use windlass_core::store::BROADCAST_BYTES_MAX;

use super::happening::TaskEvent;
use super::other::OtherEvent;

/// What one message tells.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Packet {
    /// Which process says it.
    #[serde(rename = "o")]
    pub(crate) origin: String,
    /// The how manieth it is of that process: a jump shows that one was lost.
    #[serde(rename = "n")]
    pub(crate) number: u64,
    #[serde(rename = "e", default)]
    pub(crate) events: Vec<TaskEvent>,
    /// Those of queues and workers.
    #[serde(rename = "s", default)]
    pub(crate) others: Vec<OtherEvent>,
    /// Events before these were lost.
    #[serde(rename = "g", default)]
    pub(crate) has_gap: bool,
    /// A worker is gone of which nothing is known here: it is worth a look.
    #[serde(rename = "l", default)]
    pub(crate) has_look: bool,
}

/// What happened, on its way to those who want to know.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct News {
    pub(crate) events: Vec<TaskEvent>,
    pub(crate) others: Vec<OtherEvent>,
    pub(crate) marks: Marks,
}

/// What is to be told besides events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    pub(crate) has_gap: bool,
    pub(crate) has_look: bool,
}

impl News {
    pub(crate) const GAP: Self = Self::marked(Marks { has_gap: true, has_look: false });
    pub(crate) const LOOK: Self = Self::marked(Marks { has_gap: false, has_look: true });

    const fn marked(marks: Marks) -> Self {
        Self { events: Vec::new(), others: Vec::new(), marks }
    }

    pub(crate) fn of_tasks(events: Vec<TaskEvent>) -> Self {
        Self { events, ..Self::default() }
    }

    pub(crate) fn of_others(others: Vec<OtherEvent>) -> Self {
        Self { others, ..Self::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty() && self.others.is_empty() && self.marks == Marks::default()
    }

    /// Adds what is newer; false when it is too much, so that a gap is all that is left.
    pub(crate) fn add(&mut self, newer: Self, events_max: usize) -> bool {
        self.marks.has_gap |= newer.marks.has_gap;
        self.marks.has_look |= newer.marks.has_look;
        let count = |news: &Self| news.events.len() + news.others.len();
        if count(self) + count(&newer) > events_max {
            self.lose();
            return false;
        }
        self.others.extend(newer.others);
        if self.events.is_empty() {
            self.events = newer.events;
        } else {
            self.events.extend(newer.events);
        }
        true
    }

    /// Leaves all events out, with a gap in their place.
    pub(crate) fn lose(&mut self) {
        (self.events, self.others) = (Vec::new(), Vec::new());
        self.marks.has_gap = true;
    }
}

/// Room for what stands around events.
const FRAME_BYTES: usize = 200;

/// Packs events into messages, numbered from `number` on. What is too large for any message is left out, and
/// a gap told in its place.
pub(crate) fn pack(origin: &str, number: &mut u64, news: &News) -> Vec<String> {
    let mut marks = news.marks;
    let mut texts = Vec::with_capacity(news.others.len() + news.events.len());
    let others = news.others.iter().map(|event| (true, serde_json::to_string(event)));
    let tasks = news.events.iter().map(|event| (false, serde_json::to_string(event)));
    for (is_other, text) in others.chain(tasks) {
        match text {
            Ok(text) if text.len() + FRAME_BYTES <= BROADCAST_BYTES_MAX => {
                texts.push((is_other, text));
            }
            Ok(_) | Err(_) => marks.has_gap = true,
        }
    }
    let mut messages = Vec::new();
    let mut rest = texts.as_slice();
    while !rest.is_empty() || marks != Marks::default() {
        let mut bytes = FRAME_BYTES;
        let fits = |(_, text): &(bool, String)| {
            bytes += text.len() + 1;
            bytes <= BROADCAST_BYTES_MAX
        };
        let count = rest.iter().map(fits).take_while(|fits| *fits).count();
        let (these, after) = rest.split_at(count);
        *number += 1;
        messages.push(message(origin, *number, marks, these));
        (rest, marks) = (after, Marks::default());
    }
    messages
}

/// Those of queues and workers come first.
fn message(origin: &str, number: u64, marks: Marks, events: &[(bool, String)]) -> String {
    let gap = if marks.has_gap { r#","g":true"# } else { "" };
    let look = if marks.has_look { r#","l":true"# } else { "" };
    let list = |events: &[(bool, String)]| {
        events.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(",")
    };
    let (others, tasks) = events.split_at(events.partition_point(|(is_other, _)| *is_other));
    let (tasks, others) = match others.is_empty() {
        true => (list(tasks), String::new()),
        false => (list(tasks), format!(r#","s":[{}]"#, list(others))),
    };
    format!(r#"{{"o":"{origin}","n":{number}{gap}{look},"e":[{tasks}]{others}}}"#)
}

/// Reads a message; nothing when it is none of ours.
pub(crate) fn unpack(message: &str) -> Option<Packet> {
    serde_json::from_str(message).ok()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{event, queue_event, worker_event};
    use super::*;
    use windlass_core::event::EventKind;

    #[test]
    fn events_come_out_as_they_went_in_and_in_order() {
        let events = (0..200)
            .map(|n| event(EventKind::TaskStarted, &format!("task-{n}"), Some(n)))
            .collect();
        let others = (0..100)
            .map(|n| match n % 2 {
                0 => queue_event(EventKind::QueuePaused, &format!("queue-{n}")),
                _ => worker_event(EventKind::WorkerJoined, &format!("worker-{n}"), n),
            })
            .collect();
        let mut number = 6;
        let news = News { events, others, ..News::GAP };
        let messages = pack("here", &mut number, &news);
        assert!(messages.len() > 1 && messages.iter().all(|one| one.len() <= BROADCAST_BYTES_MAX));
        let packets: Vec<_> = messages.iter().map(|one| unpack(one).unwrap()).collect();
        let numbers: Vec<_> = packets.iter().map(|packet| packet.number).collect();
        assert_eq!(numbers, (7..=number).collect::<Vec<_>>());
        assert!(packets[0].has_gap && !packets[1].has_gap && !packets[0].has_look);
        let mut back = News::default();
        for packet in packets {
            back.events.extend(packet.events);
            back.others.extend(packet.others);
        }
        assert_eq!((back.events, back.others), (news.events, news.others));
    }

    #[test]
    fn what_fits_into_no_message_leaves_a_gap() {
        let mut large = event(EventKind::TaskFailed, "t", Some(1));
        large.task.more.error = Some("\u{1}".repeat(2_000));
        let messages = pack("here", &mut 0, &News::of_tasks(vec![large]));
        assert_eq!(messages.len(), 1);
        let packet = unpack(&messages[0]).unwrap();
        assert!(packet.has_gap && packet.events.is_empty());
    }

    #[test]
    fn marks_go_also_without_events_and_strange_messages_are_none() {
        let messages = pack("here", &mut 0, &News::LOOK);
        assert!(unpack(&messages[0]).unwrap().has_look);
        assert!(pack("here", &mut 0, &News::default()).is_empty());
        assert_eq!(unpack("{}"), None);
        assert_eq!(unpack("hello"), None);
    }

    #[test]
    fn what_is_too_much_is_a_gap() {
        let some = |count| News::of_others(vec![queue_event(EventKind::QueuePaused, "q"); count]);
        let mut news = some(5);
        assert!(news.add(some(5), 10) && !news.marks.has_gap);
        assert!(!news.add(some(1), 10) && news == News::GAP);
    }
}
