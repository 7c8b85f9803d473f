//! The words and decisions of windlass.
//!
//! Everything here is pure: what a task is, which transitions its life cycle allows, when a failed
//! run is tried again, which keys keep a task unique, and the contract every store keeps. There is
//! no I/O, no runtime and no driver in this crate, so each decision can be tested by calling a
//! function.
//!
//! Start with [`state`] (the life cycle) and [`store::Store`] (the seam behind which stores live).

pub mod clock;
pub mod config;
pub mod dice;
pub mod duration;
pub mod error;
pub mod event;
pub mod history;
pub mod json;
pub mod limits;
pub mod metric;
pub mod name;
pub mod retry;
pub mod state;
pub mod statistics;
pub mod store;
pub mod task;
pub mod unique;
pub mod worker;

pub use clock::{Clock, ManualClock, SystemClock, Timestamp, When};
pub use error::{Error, ErrorKind, Reason, Result};
pub use name::{Kind, QueueName, Tag};
pub use state::{Ending, State, Transition};
pub use store::Store;
pub use task::{Claimed, Epoch, Lease, NewTask, Priority, Spec, TaskId, TaskRecord};
pub use worker::WorkerId;
