//! The places where windlass keeps tasks, each behind [`windlass_core::Store`].
//!
//! This is the only crate that talks to a database. Every store has a folder with the same file
//! names in it; its statements are files under `sql/`, named after the methods of the trait.
//! Stores do not import each other.

#[cfg_attr(
    not(any(feature = "sqlite", feature = "postgres", feature = "redis")),
    expect(dead_code, reason = "other processes broadcast only where a store is shared")
)]
mod broadcasts;
mod changing;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod claimed;
mod crash_log;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
mod damage_log;
#[cfg(all(feature = "postgres", feature = "redis"))]
pub mod hybrid;
pub mod memory;
#[cfg(feature = "postgres")]
#[cfg_attr(
    not(feature = "redis"),
    expect(dead_code, unused_imports, reason = "brokers in front of PostgreSQL are Redis servers")
)]
pub mod postgres;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod queue_sweep;
mod reading;
#[cfg(feature = "redis")]
pub mod redis;
mod schema;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod url;
mod wakes;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod worker_sweep;

pub use schema::{Migration, SchemaStatus};
pub use url::{Opening, open, open_as, schema_script, schema_status};
