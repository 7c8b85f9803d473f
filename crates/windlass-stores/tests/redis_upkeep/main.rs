//! Upkeep on Redis: bounded steps, a server whose memory is full, and queues that are idle.

#![cfg(feature = "redis")]
#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

mod full;
mod idle;
mod retention;
mod stage;
