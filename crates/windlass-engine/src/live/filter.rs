//! Which events someone wants to hear.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use windlass_core::event::{Event, EventKind, Subject};
use windlass_core::limits::clip;
use windlass_core::{Error, Kind, QueueName, Result};

/// Patterns in one wish.
const PATTERNS_MAX: usize = 32;

/// Which events someone wants to hear; all of them by default. A gap is told to everybody.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EventFilter {
    /// One bit for each kind.
    kinds: u32,
    queue: Option<QueueName>,
    kind: Option<Kind>,
    reach: Option<Reach>,
}

/// Queues that someone may see at all. Two with the same name are the same.
#[derive(Clone)]
pub struct Reach {
    name: Arc<str>,
    allows: Arc<dyn Fn(&QueueName) -> bool + Send + Sync>,
}

impl Default for EventFilter {
    fn default() -> Self {
        Self { kinds: u32::MAX, queue: None, kind: None, reach: None }
    }
}

impl EventFilter {
    /// Everything.
    pub fn all() -> Self {
        Self::default()
    }

    /// Only events of these names: `task.completed`, all of a sort as in `task.*`, or `*`. All when there are
    /// none.
    pub fn of<P: AsRef<str>>(patterns: &[P]) -> Result<Self> {
        if patterns.is_empty() {
            return Ok(Self::default());
        }
        if patterns.len() > PATTERNS_MAX {
            return Err(Error::invalid(format!("at most {PATTERNS_MAX} names of events")));
        }
        let mut kinds = 0;
        for pattern in patterns {
            kinds |= bits_of(pattern.as_ref())?;
        }
        Ok(Self { kinds, ..Self::default() })
    }

    /// Only events of this queue.
    #[must_use]
    pub fn queue(self, queue: Option<QueueName>) -> Self {
        Self { queue, ..self }
    }

    /// Only events of tasks of this kind.
    #[must_use]
    pub fn kind(self, kind: Option<Kind>) -> Self {
        Self { kind, ..self }
    }

    /// Only events of queues that may be seen; what concerns no queue is not told then.
    #[must_use]
    pub fn reach(self, reach: Option<Reach>) -> Self {
        Self { reach, ..self }
    }

    /// True for an event that is wanted.
    pub fn wants(&self, event: &Event) -> bool {
        if event.kind == EventKind::Gap {
            return true;
        }
        if self.kinds & bit(event.kind) == 0 {
            return false;
        }
        let is_of_kind = |wanted: &Kind| match &event.subject {
            Subject::Task(task) => task.kind == *wanted,
            Subject::Worker(_) | Subject::Queue(_) | Subject::System(_) | Subject::Gap { .. } => {
                false
            }
        };
        let queue = event.queue();
        self.queue.as_ref().is_none_or(|wanted| queue == Some(wanted))
            && self.kind.as_ref().is_none_or(is_of_kind)
            && self
                .reach
                .as_ref()
                .is_none_or(|reach| queue.is_some_and(|queue| reach.allows(queue)))
    }

    /// True when it may want events that are found by comparing what the store has.
    pub(crate) fn wants_figures(&self) -> bool {
        let others =
            EventKind::ALL.into_iter().filter(|kind| !kind.is_of_task() && *kind != EventKind::Gap);
        self.kind.is_none() && self.kinds & others.fold(0, |bits, kind| bits | bit(kind)) != 0
    }
}

impl Reach {
    /// The queues for which `allows` is true; `name` tells this rule from others.
    pub fn new(
        name: impl AsRef<str>,
        allows: impl Fn(&QueueName) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.as_ref().into(), allows: Arc::new(allows) }
    }

    fn allows(&self, queue: &QueueName) -> bool {
        (self.allows)(queue)
    }
}

impl PartialEq for Reach {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Reach {}

impl Hash for Reach {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl fmt::Debug for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reach({})", self.name)
    }
}

fn bit(kind: EventKind) -> u32 {
    1 << kind as u8
}

fn bits_of(pattern: &str) -> Result<u32> {
    let matches = |kind: &EventKind| match pattern.strip_suffix('*') {
        Some("") => true,
        Some(sort) => sort.ends_with('.') && kind.as_str().starts_with(sort),
        None => kind.as_str() == pattern,
    };
    match EventKind::ALL.into_iter().filter(matches).fold(0, |bits, kind| bits | bit(kind)) {
        0 => {
            let names: Vec<_> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
            let (pattern, names) = (clip(pattern, 64), names.join(", "));
            let text = format!(
                "there is no event {pattern:?}; use *, task.*, worker.*, queue.*, system.*, or: {names}"
            );
            Err(Error::invalid(text))
        }
        bits => Ok(bits),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{depth, task_event};
    use super::*;

    fn check(filter: &EventFilter, wanted: &[(EventKind, &str)], unwanted: &[(EventKind, &str)]) {
        let make = |(kind, queue): &(EventKind, &str)| match kind.is_of_task() {
            true => task_event(*kind, queue),
            false => depth(queue),
        };
        for one in wanted {
            assert!(filter.wants(&make(one)), "{filter:?} wants {one:?}");
        }
        for one in unwanted {
            assert!(!filter.wants(&make(one)), "{filter:?} does not want {one:?}");
        }
    }

    #[test]
    fn names_and_sorts_are_understood() {
        use EventKind::{QueueDepth, TaskCompleted, TaskFailed};
        check(&EventFilter::all(), &[(TaskFailed, "a"), (QueueDepth, "a")], &[]);
        check(&EventFilter::of(&["*"]).unwrap(), &[(TaskFailed, "a"), (QueueDepth, "a")], &[]);
        check(&EventFilter::of(&["task.*"]).unwrap(), &[(TaskFailed, "a")], &[(QueueDepth, "a")]);
        let some = EventFilter::of(&["task.completed", "queue.*"]).unwrap();
        check(&some, &[(TaskCompleted, "a"), (QueueDepth, "a")], &[(TaskFailed, "a")]);
        for odd in ["", "task", "task.", "tas*", "task.odd", "tasks.*", ".*"] {
            let error = EventFilter::of(&[odd]).unwrap_err().to_string();
            assert!(error.contains("task.submitted"), "{odd}: {error}");
        }
        assert!(EventFilter::of(&["*"; 33]).is_err());
    }

    #[test]
    fn a_queue_a_kind_and_a_reach_narrow_it_down() {
        use EventKind::{QueueDepth, TaskFailed};
        let mail = EventFilter::all().queue(Some(QueueName::stored("mail")));
        check(&mail, &[(TaskFailed, "mail"), (QueueDepth, "mail")], &[(TaskFailed, "other")]);
        let kind = EventFilter::all().kind(Some(Kind::stored("do")));
        check(&kind, &[(TaskFailed, "mail")], &[(QueueDepth, "mail")]);
        let odd = EventFilter::all().kind(Some(Kind::stored("odd")));
        check(&odd, &[], &[(TaskFailed, "mail")]);
        let reach = Reach::new("a*", |queue: &QueueName| queue.as_str().starts_with('a'));
        let reach = EventFilter::all().reach(Some(reach));
        check(&reach, &[(TaskFailed, "all")], &[(TaskFailed, "mail"), (QueueDepth, "mail")]);
    }
}
