//! What processes can stand on, a file for each.

pub(super) mod asynq;
pub(super) mod hybrid;
pub(super) mod postgres;
pub(super) mod redis;
pub(super) mod sqlite;
