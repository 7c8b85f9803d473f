//! A Go program that uses hibiken/asynq 0.26, in our own words: the other side of the `redis+asynq://` store.
//!
//! Written from what is known of asynq's keys and scripts, one call per task as asynq does it, with its
//! defects. [`Peer`] is the connection with a clock; on it are what clients (`client`), servers (`server`, `report`),
//! their upkeep (`upkeep`), the inspector and the command line (`inspector`, `operator`) do. [`fixture`] has
//! what a real asynq wrote, [`Dump`] all keys of a database, [`audit`] judges them.
//!
//! Nothing here is shared with the store, neither keys nor messages: a mistake in both would prove nothing.

pub mod audit;
mod client;
mod dump;
pub mod fixture;
mod inspector;
mod keys;
pub mod message;
mod operator;
mod peer;
mod report;
mod server;
mod upkeep;

pub use client::GoTask;
pub use dump::{Content, Dump};
pub use inspector::{Listed, QueueStats, TaskInfo};
pub use keys::Keys;
pub use message::TaskMessage;
pub use operator::Shelf;
pub use peer::{GoError, Peer};
pub use server::{GoRun, GoServer, LEASE_S};
pub use upkeep::LEASE_EXPIRED;
