//! The store that shares its data with Go's asynq: the same keys, the same fields, the same messages.
//!
//! `docs/asynq.md` has the keys and the rules.

pub mod keys;
pub mod message;
