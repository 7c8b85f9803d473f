//! Runs tasks against any [`windlass_core::Store`], and cannot name one.
//!
//! - [`Client`] submits: concurrent submits become few inserts, each caller is answered when its
//!   task is durable. [`Handle`] waits for a task's end.
//! - [`WorkerBuilder`] sets a worker up; its roles have a file each: processor (claims and starts),
//!   syncer (reports ends), heartbeater (keeps leases, obeys orders, fences), subscriber (has orders
//!   fetched at once), scout (looks for queues), healthchecker, leader, and the leader's duties under `upkeep/`: forwarder, recoverer, janitor.
//! - [`Upkeep`] leads and does these duties in a process that runs no tasks.
//! - [`Metrics`] counts what a client and its workers do, and tells it to Prometheus.
//! - [`trace`] puts submits and runs into one trace, with the feature `otel`.
//! - [`Statistics`] keeps what was done in the store, minute by minute, and reads what all have kept.
//! - [`Listener`] hears live events, of all processes on the store.
//! - [`Handler`], [`Context`], [`Outcome`] and [`Failure`] are what handlers are written with.

mod batcher;
mod claim_pace;
mod client;
mod contact;
mod context;
mod dead_letters;
mod failure;
mod foreign;
mod handle;
mod handler;
mod healthchecker;
mod heartbeater;
mod hooks;
mod hush;
mod identity;
mod inline;
mod intake;
mod leader;
mod leases;
mod link;
mod live;
mod matching_change;
mod metrics;
mod outage;
mod paused_queues;
mod processor;
mod queue_handle;
mod quotas;
mod run;
mod scout;
mod slots;
mod station;
mod statistics;
mod store_clock;
mod subscriber;
mod suspects;
mod syncer;
mod task;
mod task_failed;
mod task_query;
pub mod trace;
mod unrecorded;
mod upkeep;
mod worker;
mod worker_directory;

pub use claim_pace::{ClaimPaces, ClaimTurn};
pub use client::{Client, Enqueue};
pub use context::{Context, RunHold};
pub use failure::{Failure, Outcome, cancelled, discard, retry_after, snooze};
pub use handle::Handle;
pub use handler::{Handler, RawTask};
pub use healthchecker::Health;
pub use inline::Inline;
pub use live::{EventFilter, Listener, Reach, Told};
pub use matching_change::MatchingChange;
pub use metrics::{Figures, Metrics};
pub use queue_handle::QueueHandle;
pub use quotas::{Queues, share};
pub use station::Unknown;
pub use statistics::{Period, Read, Statistics};
pub use task::{Configure, DEFAULT_QUEUE, Options, Task};
pub use task_failed::TaskFailed;
pub use task_query::{ChangeCounts, TaskQuery};
pub use upkeep::{Upkeep, UpkeepBuilder};
pub use worker::{Worker, WorkerBuilder};
