//! The places where windlass keeps tasks, each behind [`windlass_core::Store`].
//!
//! This is the only crate that talks to a database. Every store has a folder with the same file
//! names in it; its statements are files under `sql/`, named after the methods of the trait.
//! Stores do not import each other.

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
