//! What someone has broken by hand in a Redis, key by key: the sweep of `tend` finds it, the tasks run, each
//! is accepted once, and the counters are right again.

#![cfg(feature = "redis")]
#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

mod counters;
mod lanes;
mod named;
mod places;
mod stage;
mod types;
mod under_load;
mod unreadable;
