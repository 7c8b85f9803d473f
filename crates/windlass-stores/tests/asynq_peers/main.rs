//! The asynq layout beside Go's own asynq: what a real one wrote is read and worked, what windlass writes is
//! what Go would have written, and both work the same queues. Go is the test kit's `asynq::Peer`.

#![cfg(feature = "redis")]
#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

mod alike;
mod both_ways;
mod golden;
mod ground;
mod grouped;
mod inspected;
mod mixed;
mod orphans;
mod peer;
mod strange;
