//! The names of all keys. Scripts take the stem of a queue, or of the fleet, and add the rest; what
//! they add is in this table, which `docs/redis.md` repeats with the type and meaning of each.
//!
//! | after the stem of a queue | type |
//! |---|---|
//! | `s:<lane>` | stream: the ids of tasks that wait or run, in one group `w` |
//! | `c:<lane>` | stream: one line for each claim |
//! | `d` | hash: id → record |
//! | `b` | hash: id and `p` or `r` → a large payload or result |
//! | `g` | hash: id → progress |
//! | `z` | sorted set: scheduled and retrying ids by their time |
//! | `dead` | sorted set: ids of dead letters by their submit |
//! | `k:<ms>` | list: finished ids of about this retention, in lines with their time |
//! | `ks` | sorted set: those lists by the time of their first line |
//! | `u`, `ut` | hash: key digest → holder; sorted set: digests by their time |
//! | `cr` | hash: running ids whose cancellation was asked for |
//! | `back` | sorted set: pending ids that were given back, by the time since when they were pending |
//! | `lost` | sorted set: workers that get nothing any more |
//! | `j` | stream: ids in the order of their submit |
//! | `st` | hash: counters, `paused` |
//! | `mend` | hash: where sweeps go on |
//! | `term` | string: the highest term of a leader |
//! | `bell:<priority>` | list: rung when there may be work |
//! | `watch`, `ends` | string: someone waits for ends; channel that tells of them |

use windlass_core::{Priority, QueueName};

use super::record::Lane;

/// What keys begin with unless they are told otherwise.
pub(super) const PREFIX: &str = "wl";

/// In front of a queue's keys; the braces put them all into one slot of a Cluster.
pub(super) fn queue_stem(prefix: &str, queue: &QueueName) -> String {
    format!("{prefix}:{{{queue}}}:")
}

/// In front of the keys that belong to no queue. No queue can be called so.
pub(super) fn fleet_stem(prefix: &str) -> String {
    format!("{prefix}:{{~}}:")
}

/// A priority's bell in a queue.
pub(super) fn bell(stem: &str, priority: Priority) -> String {
    format!("{stem}bell:{}", priority.as_number())
}

/// The names of all queues.
pub(super) fn queues(fleet: &str) -> String {
    format!("{fleet}queues")
}

/// Large payloads and results of a queue.
pub(super) fn large(stem: &str) -> String {
    format!("{stem}b")
}

/// A lane of a queue.
pub(super) fn lane(stem: &str, lane: Lane) -> String {
    format!("{stem}s:{}", lane.0)
}

/// The journal of a queue.
pub(super) fn journal(stem: &str) -> String {
    format!("{stem}j")
}

/// The dead letters of a queue, by their submit.
pub(super) fn dead(stem: &str) -> String {
    format!("{stem}dead")
}

/// Set while someone waits for the end of a task.
pub(super) fn watch(stem: &str) -> String {
    format!("{stem}watch")
}

/// A pattern for the channels of all queues that tell of ends.
pub(super) fn all_ends(prefix: &str) -> String {
    format!("{prefix}:{{*}}:ends")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_of_a_queue_share_its_name_as_their_tag() {
        let stem = queue_stem("wl", &QueueName::stored("mail"));
        assert_eq!(stem, "wl:{mail}:");
        for key in [bell(&stem, Priority::High), large(&stem), journal(&stem), watch(&stem)] {
            assert!(key.starts_with("wl:{mail}:"), "{key}");
        }
        assert!(QueueName::new("~").is_err(), "the fleet's tag is no queue's");
    }
}
