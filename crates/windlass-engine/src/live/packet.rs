//! What processes tell each other: events, several in one message, numbered by who sends them.

use serde::{Deserialize, Serialize};
use windlass_core::store::BROADCAST_BYTES_MAX;

use super::happening::TaskEvent;

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
    /// Events before these were lost.
    #[serde(rename = "g", default)]
    pub(crate) has_gap: bool,
    /// Queues or workers were told something: it is worth a look.
    #[serde(rename = "l", default)]
    pub(crate) has_look: bool,
}

/// What is to be told besides events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    pub(crate) has_gap: bool,
    pub(crate) has_look: bool,
}

impl Marks {
    pub(crate) fn add(&mut self, other: Self) {
        self.has_gap |= other.has_gap;
        self.has_look |= other.has_look;
    }
}

/// Room for what stands around events.
const FRAME_BYTES: usize = 200;

/// Packs events into messages, numbered from `number` on. What is too large for any message is left out, and
/// a gap told in its place.
pub(crate) fn pack(
    origin: &str,
    number: &mut u64,
    mut marks: Marks,
    events: &[TaskEvent],
) -> Vec<String> {
    let mut texts = Vec::with_capacity(events.len());
    for event in events {
        match serde_json::to_string(event) {
            Ok(text) if text.len() + FRAME_BYTES <= BROADCAST_BYTES_MAX => texts.push(text),
            Ok(_) | Err(_) => marks.has_gap = true,
        }
    }
    let mut messages = Vec::new();
    let mut rest = texts.as_slice();
    while !rest.is_empty() || marks != Marks::default() {
        let mut bytes = FRAME_BYTES;
        let fits = |text: &String| {
            bytes += text.len() + 1;
            bytes <= BROADCAST_BYTES_MAX
        };
        let count = rest.iter().map(fits).take_while(|fits| *fits).count();
        let (these, others) = rest.split_at(count);
        *number += 1;
        messages.push(message(origin, *number, marks, these));
        (rest, marks) = (others, Marks::default());
    }
    messages
}

fn message(origin: &str, number: u64, marks: Marks, events: &[String]) -> String {
    let gap = if marks.has_gap { r#","g":true"# } else { "" };
    let look = if marks.has_look { r#","l":true"# } else { "" };
    let events = events.join(",");
    format!(r#"{{"o":"{origin}","n":{number}{gap}{look},"e":[{events}]}}"#)
}

/// Reads a message; nothing when it is none of ours.
pub(crate) fn unpack(message: &str) -> Option<Packet> {
    serde_json::from_str(message).ok()
}

#[cfg(test)]
mod tests {
    use super::super::testing::event;
    use super::*;
    use windlass_core::event::EventKind;

    #[test]
    fn events_come_out_as_they_went_in_and_in_order() {
        let events: Vec<_> = (0..200)
            .map(|n| event(EventKind::TaskStarted, &format!("task-{n}"), Some(n)))
            .collect();
        let mut number = 6;
        let marks = Marks { has_gap: true, has_look: false };
        let messages = pack("here", &mut number, marks, &events);
        assert!(messages.len() > 1 && messages.iter().all(|one| one.len() <= BROADCAST_BYTES_MAX));
        let packets: Vec<_> = messages.iter().map(|one| unpack(one).unwrap()).collect();
        let numbers: Vec<_> = packets.iter().map(|packet| packet.number).collect();
        assert_eq!(numbers, (7..=number).collect::<Vec<_>>());
        assert!(packets[0].has_gap && !packets[1].has_gap && !packets[0].has_look);
        let back: Vec<_> = packets.into_iter().flat_map(|packet| packet.events).collect();
        assert_eq!(back, events);
    }

    #[test]
    fn what_fits_into_no_message_leaves_a_gap() {
        let mut large = event(EventKind::TaskFailed, "t", Some(1));
        large.task.more.error = Some("\u{1}".repeat(2_000));
        let messages = pack("here", &mut 0, Marks::default(), &[large]);
        assert_eq!(messages.len(), 1);
        let packet = unpack(&messages[0]).unwrap();
        assert!(packet.has_gap && packet.events.is_empty());
    }

    #[test]
    fn marks_go_also_without_events_and_strange_messages_are_none() {
        let marks = Marks { has_gap: false, has_look: true };
        let messages = pack("here", &mut 0, marks, &[]);
        assert!(unpack(&messages[0]).unwrap().has_look);
        assert!(pack("here", &mut 0, Marks::default(), &[]).is_empty());
        assert_eq!(unpack("{}"), None);
        assert_eq!(unpack("hello"), None);
    }
}
