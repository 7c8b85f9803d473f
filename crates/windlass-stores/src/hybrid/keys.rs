//! The names of a broker's keys. Scripts take the stem and add the rest.
//!
//! | after the stem | type |
//! |---|---|
//! | `l:<queue>:<lane>` | list: references, the next one at the right |
//! | `taken:<worker>` | list: references that a worker has taken and the ledger has not answered for |
//! | `moved:<worker>` | list: references that came to a worker while it waited and no claim has taken yet |
//! | `rests` | sorted set, of limited life: rests of references that were taken for fewer tasks than they lead to |
//! | `held:<worker>` | list: references whose tasks a worker runs |
//! | `beat:<worker>` | string, of limited life: the worker's heartbeat |
//! | `workers` | set: workers that may have lists |
//! | `gone` | sorted set, by when, for a day: rows that were taken otherwise than by a claim; their references are dropped |
//! | `paused` | set: queues of which nothing is taken |
//! | `bell:<queue>` | list: rung when there may be work |
//! | `generation` | string: a name that nobody has had before |
//! | `alive` | string, of limited life: written to see whether that can be done |

use windlass_core::WorkerId;

/// What keys begin with unless they are told otherwise.
pub(super) const PREFIX: &str = "wl";

/// In front of all keys of one ledger. Several may share a broker.
pub(super) fn stem(prefix: &str, ledger: &str) -> String {
    format!("{prefix}:{{~{ledger}}}:")
}

/// A worker's heartbeat.
pub(super) fn beat(stem: &str, worker: &WorkerId) -> String {
    format!("{stem}beat:{worker}")
}

/// Workers that may have lists.
pub(super) fn workers(stem: &str) -> String {
    format!("{stem}workers")
}

/// A name that nobody has had before; gone when the broker has lost its keys.
pub(super) fn generation(stem: &str) -> String {
    format!("{stem}generation")
}

/// The references of a lane.
pub(super) fn list(stem: &str, queue: i32, lane: i16) -> String {
    format!("{stem}l:{queue}:{lane}")
}

/// The references that came to a worker while it waited.
pub(super) fn moved(stem: &str, worker: &WorkerId) -> String {
    format!("{stem}moved:{worker}")
}

/// A queue's bell.
pub(super) fn bell(stem: &str, queue: i32) -> String {
    format!("{stem}bell:{queue}")
}
