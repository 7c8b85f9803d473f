//! Durable background work for Rust programs, on an embedded file.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use windlass::prelude::*;
//!
//! #[derive(Serialize, Deserialize)]
//! struct Greet { name: String }
//!
//! impl Task for Greet {
//!     const KIND: &'static str = "greet";
//!     type Output = String;
//! }
//!
//! async fn greet(task: Greet, _cx: Context<()>) -> Outcome<String> {
//!     Ok(format!("hello, {}", task.name))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> windlass::Result<()> {
//! let client = windlass::connect("memory:").await?; // or "sqlite:tasks.db"
//! let worker = client.worker().handle(greet).concurrency(8).start().await?;
//! let handle = client.enqueue(Greet { name: "world".into() }).await?;
//! assert_eq!(handle.wait().await?, "hello, world");
//! worker.stop().await?;
//! # Ok(())
//! # }
//! ```
//!
//! - [`Task`] is a payload that declares itself, with the [`Options`] of its kind; a submit may set
//!   its own through [`Configure`].
//! - A handler is any `async fn(T, Context<S>) -> Outcome<T::Output>`, or a [`Handler`]. Any error
//!   is retried; [`retry_after`], [`discard`], [`snooze`] and [`cancelled`] say otherwise.
//! - [`Client`] submits and looks after tasks, [`Handle`] waits for one, [`Worker`] runs them.
//! - [`testing`] runs handlers in tests without a database and without waiting.
#![cfg_attr(
    any(feature = "sqlite", feature = "postgres"),
    doc = "- [`transaction`] makes a task part of your own transaction, in SQLite or PostgreSQL."
)]
//!
//! The guide is in `docs/guide` of the repository; every program in it is compiled and run as a test.

pub mod testing;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub mod transaction;

pub use windlass_core as core;
pub use windlass_core::retry::Backoff;
pub use windlass_core::{
    Claimed, Ending, Error, ErrorKind, Priority, Result, State, TaskId, TaskRecord, Timestamp,
};
pub use windlass_engine::{
    ChangeCounts, Client, Configure, Context, Enqueue, EventFilter, Failure, Figures, Handle,
    Handler, Health, Inline, Listener, Metrics, Options, Outcome, QueueHandle, RawTask, RunHold,
    Task, TaskFailed, TaskQuery, Told, Unknown, Upkeep, UpkeepBuilder, Worker, WorkerBuilder,
    cancelled, discard, retry_after, snooze,
};
/// Traces for OpenTelemetry: who makes ids of spans, and contexts to hand on. See `docs/tracing.md`.
#[cfg(feature = "otel")]
pub mod otel {
    pub use windlass_engine::trace::{RunIds, follow, is_sampled, traceparent};
}
/// A driver of PostgreSQL, in the version whose transactions [`transaction::Within`] takes.
#[cfg(feature = "sqlx-0_9")]
pub use windlass_stores::postgres::sqlx;
/// A driver of PostgreSQL, in the version whose transactions [`transaction::Within`] takes.
#[cfg(feature = "postgres")]
pub use windlass_stores::postgres::tokio_postgres;
/// The driver of the embedded file, in the version whose transactions
/// [`transaction::Within`] takes.
#[cfg(feature = "sqlite")]
pub use windlass_stores::sqlite::rusqlite;
pub use windlass_stores::{
    Migration, Opening, SchemaStatus, open, open_as, schema_script, schema_status,
};

/// Everything that a program with tasks and handlers needs.
pub mod prelude {
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub use crate::transaction::{CompleteWithin, Within};
    pub use crate::{
        Backoff, Client, Configure, Context, Failure, Handle, Options, Outcome, Priority, Task,
        Worker, cancelled, discard, retry_after, snooze,
    };
}

/// Opens the store that a URL names, and makes a client of it.
pub async fn connect(url: &str) -> Result<Client> {
    Ok(Client::new(open(url).await?))
}

/// The guide's programs, compiled and run.
#[cfg(doctest)]
mod guide {
    macro_rules! pages {
        ($($name:ident = $file:literal;)*) => {
            $(#[doc = include_str!(concat!("../../../docs/guide/", $file, ".md"))]
            mod $name {})*
        };
    }
    pages! {
        getting_started = "getting-started";
        outcomes_and_retries = "outcomes-and-retries";
        queues_and_priorities = "queues-and-priorities";
        shutdown = "shutdown";
        testing = "testing";
        transactions = "transactions";
        uniqueness = "uniqueness";
    }
}
