//! Who listens to live events: what they want, and the two ways to tell them, a WebSocket and a stream of
//! server-sent events.

pub(crate) mod socket;
pub(crate) mod stream;

use serde::Deserialize;
use windlass_core::{Kind, QueueName};
use windlass_engine::{EventFilter, Reach};

use crate::access::Caller;
use crate::problem::{Outcome, Problem};
use crate::query::Query;

/// Longest id of an event that is looked for.
const ID_BYTES_MAX: usize = 128;

/// What one who listens wants.
#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) filter: EventFilter,
    /// After which event.
    pub(crate) since: Option<String>,
}

/// The same, as a client says it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "an object such as {\"subscribe\":[\"task.*\"]}")]
struct Said {
    subscribe: Option<Names>,
    queue: Option<String>,
    r#type: Option<String>,
    since: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "subscribe: a list of names of events, such as [\"task.*\"]")]
enum Names {
    List(Vec<String>),
    One(String),
}

impl Wish {
    /// What a query asks for.
    pub(crate) fn of_query(query: &Query, caller: &Caller) -> Outcome<Self> {
        let text = |name| query.text(name).map(str::to_owned);
        let subscribe = text("subscribe").map(Names::One);
        let said =
            Said { subscribe, queue: text("queue"), r#type: text("type"), since: text("since") };
        Self::of(said, caller)
    }

    /// What a message asks for.
    pub(crate) fn of_message(message: &str, caller: &Caller) -> Outcome<Self> {
        // A list would be read as one, too: of all fields in their order.
        if !message.trim_start().starts_with('{') {
            return Err(Problem::field("message", "use an object, such as {\"queue\": \"mail\"}"));
        }
        let said = serde_json::from_str(message);
        Self::of(said.map_err(|error| Problem::field("message", error))?, caller)
    }

    fn of(said: Said, caller: &Caller) -> Outcome<Self> {
        let names = match said.subscribe {
            None => Vec::new(),
            Some(Names::List(names)) => names,
            Some(Names::One(names)) => {
                names.split(',').map(|name| name.trim().to_owned()).collect()
            }
        };
        let filter =
            EventFilter::of(&names).map_err(|error| Problem::of_field("subscribe", &error))?;
        // Names in a store may be older than our rules for names.
        let queue = said.queue.as_deref().map(QueueName::stored);
        if let Some(queue) = &queue {
            caller.check_queue(queue)?;
        }
        let kind = said.r#type.as_deref().map(Kind::stored);
        if said.since.as_ref().is_some_and(|since| since.len() > ID_BYTES_MAX) {
            return Err(Problem::field("since", "this is no id of an event"));
        }
        let filter = filter.queue(queue).kind(kind).reach(reach(caller));
        Ok(Self { filter, since: said.since })
    }
}

/// The queues that a caller may see; nothing where these are all.
fn reach(caller: &Caller) -> Option<Reach> {
    let patterns = caller.patterns()?;
    let caller = caller.clone();
    Some(Reach::new(patterns, move |queue| caller.reaches(queue)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(message: &str, word: &str) {
        let problem = Wish::of_message(message, &Caller::Local).unwrap_err();
        let text = serde_json::to_string(&problem).unwrap();
        assert!(text.contains(word), "{message}: {text}");
    }

    #[test]
    fn a_wish_is_read_strictly() {
        let wish = r#"{"subscribe":["task.*","queue.depth"],"queue":"mail","since":"b-1"}"#;
        let wish = Wish::of_message(wish, &Caller::Local).unwrap();
        assert_eq!(wish.since.as_deref(), Some("b-1"));
        let expected = EventFilter::of(&["task.*", "queue.depth"]).unwrap();
        assert_eq!(wish.filter, expected.queue(Some(QueueName::stored("mail"))));
        assert_eq!(Wish::of_message("{}", &Caller::Local).unwrap().filter, EventFilter::all());
        check("hello", "message");
        check("[]", "message");
        check(r#"{"subscribe":7}"#, "list of names");
        check(r#"{"subscribe":["task.odd"]}"#, "task.submitted");
        check(r#"{"filter":["task.*"]}"#, "unknown field");
        check(&format!(r#"{{"since":"{}"}}"#, "x".repeat(200)), "since");
    }
}
