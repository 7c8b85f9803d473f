//! The store on asynq's keys beside programs that know nothing of windlass: what it writes is what they expect,
//! and what they do, or leave half done, it understands. Their part is played by plain commands.

#![cfg(feature = "redis")]
#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

mod active;
mod damage;
mod fields;
mod go_runs;
mod keeping;
mod mending;
mod others;
mod presence;
mod stage;
