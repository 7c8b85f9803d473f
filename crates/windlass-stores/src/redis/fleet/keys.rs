//! The names of the fleet's keys, after its stem.
//!
//! | after the stem of the fleet | type |
//! |---|---|
//! | `workers` | hash: worker → times, order, card |
//! | `leases`, `gone` | sorted set: live workers by the end of their lease; those that are gone by when |
//! | `unclean` | set: workers that are gone and may still hold tasks |
//! | `lead` | hash: holder, until when, highest term |
//! | `doc:<class>`, `names:<class>` | hash: documents; sorted set: their keys in order |
//! | `born` | string: the name of these data |
//! | `touched` | sorted set: queues by a number that grows with each announcement of a write |
//! | `orders` | channel: workers that may have orders |
//! | `broadcasts` | channel: what processes tell each other |

/// What is known of workers.
pub(super) fn workers(fleet: &str) -> String {
    format!("{fleet}workers")
}

/// Workers that are gone and may still hold tasks.
pub(super) fn unclean(fleet: &str) -> String {
    format!("{fleet}unclean")
}

/// The name of these data; another after they were wiped.
pub(super) fn born(fleet: &str) -> String {
    format!("{fleet}born")
}

/// The queues by when they were last touched.
pub(super) fn touched(fleet: &str) -> String {
    format!("{fleet}touched")
}

/// The channel that tells of orders to workers.
pub(super) fn orders(fleet: &str) -> String {
    format!("{fleet}orders")
}

/// The channel of broadcasts.
pub(super) fn broadcasts(fleet: &str) -> String {
    format!("{fleet}broadcasts")
}
