//! The names of all keys. Scripts take the stem of a queue and add the rest; what they add is in these
//! tables, which `docs/asynq.md` repeats with what each holds.
//!
//! | after `asynq:{<queue>}:`, as asynq has them | type |
//! |---|---|
//! | `t:<id>` | hash: a task |
//! | `pending`, `active` | list: ids; added at the left, taken from the right |
//! | `lease` | sorted set: ids of active tasks by the end of their lease |
//! | `scheduled`, `retry` | sorted set: ids by the time they are due |
//! | `archived`, `completed` | sorted set: ids by the time of death; by the time they are kept until |
//! | `paused` | string: there while the queue is paused |
//! | `processed`, `failed`, `processed:<day>`, `failed:<day>` | string: counters |
//! | `unique:<kind>:<md5>` | string: the id of the task that holds the lock |
//! | `groups`, `g:<group>` | set of names; sorted set: ids that wait to be aggregated |
//!
//! | after `wl:asynq:{<queue>}:`, windlass's own | type |
//! |---|---|
//! | `n` | string: the number of the last claim |
//! | `w:<worker>` | set: ids that a worker holds |
//! | `x` | sorted set: ids of cancelled tasks by the time they are kept until |
//! | `i` | hash: digest of an idempotency key → id |
//! | `u`, `ut` | hash: unique lock → until when, and id; sorted set: locks by their time |
//! | `groups` | set: names of groups that were seen |
//! | `lost` | sorted set: workers that get nothing any more |
//! | `term` | string: the highest term of a leader |
//! | `mend` | hash: where sweeps go on |
//! | `bell` | list: rung when there may be work |
//! | `watch`, `ends` | string: someone waits for ends; channel that tells of them |

use windlass_core::QueueName;

/// What the names of asynq begin with, everywhere but in tests.
pub const PREFIX: &str = "asynq";

/// In front of a queue's keys; the braces put them all into one slot of a Cluster.
pub fn queue_stem(prefix: &str, queue: &QueueName) -> String {
    format!("{prefix}:{{{queue}}}:")
}

/// In front of windlass's own keys of a queue, which lie in the same slot. Scripts know this rule.
pub fn own_stem(stem: &str) -> String {
    format!("wl:{stem}")
}

/// In front of windlass's own keys that belong to no queue.
pub fn fleet_stem(prefix: &str) -> String {
    format!("wl:{prefix}-fleet:{{~}}:")
}

/// The names of all queues.
pub fn queues(prefix: &str) -> String {
    format!("{prefix}:queues")
}

/// The channel over which asynq asks for cancellations.
pub fn cancel(prefix: &str) -> String {
    format!("{prefix}:cancel")
}

/// Servers by the time at which what they told of themselves is over.
pub fn servers(prefix: &str) -> String {
    format!("{prefix}:servers")
}

/// The same of what they run.
pub fn workers(prefix: &str) -> String {
    format!("{prefix}:workers")
}

/// What a server tells of itself; `server` is `<host>:<pid>:<id>`.
pub fn server(prefix: &str, server: &str) -> String {
    format!("{prefix}:servers:{{{server}}}")
}

/// What a server runs.
pub fn workers_of(prefix: &str, server: &str) -> String {
    format!("{prefix}:workers:{{{server}}}")
}

/// A unique lock.
pub fn unique(stem: &str, kind: &str, digest: &str) -> String {
    format!("{stem}unique:{kind}:{digest}")
}

/// The bell of a queue.
pub fn bell(stem: &str) -> String {
    format!("{}bell", own_stem(stem))
}

/// A pattern for the channels of all queues that tell of ends.
pub fn all_ends(prefix: &str) -> String {
    format!("wl:{prefix}:{{*}}:ends")
}

/// A pattern for all keys of asynq that belong to a queue.
pub fn all_of_queues(prefix: &str) -> String {
    format!("{prefix}:{{*}}:*")
}

/// The queue of a key, and what follows the queue's stem in its name.
pub fn read<'a>(prefix: &str, key: &'a str) -> Option<(QueueName, &'a str)> {
    let rest = key.strip_prefix(prefix)?.strip_prefix(":{")?;
    let (queue, part) = rest.split_once("}:")?;
    Some((QueueName::stored(queue), part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_asynq_have_its_names_and_our_own_lie_beside_them() {
        let stem = queue_stem(PREFIX, &QueueName::stored("mail"));
        assert_eq!(stem, "asynq:{mail}:");
        assert_eq!(unique(&stem, "a:b", "00ff"), "asynq:{mail}:unique:a:b:00ff");
        assert_eq!(bell(&stem), "wl:asynq:{mail}:bell");
        assert_eq!(server(PREFIX, "h:1:x"), "asynq:servers:{h:1:x}");
        assert_eq!(workers_of(PREFIX, "h:1:x"), "asynq:workers:{h:1:x}");
        let group = read(PREFIX, "asynq:{mail}:g:digest:7");
        assert_eq!(group, Some((QueueName::stored("mail"), "g:digest:7")));
    }

    #[test]
    fn no_queue_has_the_keys_of_the_fleet() {
        // Queues that Go made can be called anything.
        let own = own_stem(&queue_stem(PREFIX, &QueueName::stored("~")));
        assert_ne!(own, fleet_stem(PREFIX));
    }
}
