//! What operators and failures do to a Redis Cluster: slots that move under load, masters that are lost.

#![cfg(feature = "redis")]
#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

mod failover;
mod reshard;
mod upkeep;
