//! The tests that every store must pass, and what they need.
//!
//! - [`Subject`]: how a test gets at a store, moves its clock, opens it a second time.
//! - [`scene`]: one helper for each thing that clients, workers, leaders and operators do.
//! - [`conformance`]: the rules of `windlass_core::store`, one test each;
//!   `windlass_testkit::conformance!(MySubject);` asks a store for all of them.
//! - [`sequence`]: random sequences of calls in which a store must agree with the memory store;
//!   `windlass_testkit::sequences!(MySubject);`.
//! - [`asynq`]: the Go programs that share keys with the `redis+asynq://` store, in our own words.
//! - [`audit`]: judges a torture from the logs of independent processes and a dump of the store.
//! - [`faults`]: a store that fails on demand, around one that works.
//! - [`fleet`]: workers on one store in memory, driven by paused time.
//! - [`hearing`]: what a store broadcasts, and that it is heard again after an outage.
//! - [`servers`]: private servers, started by the tests and gone with them.
//! - [`load`]: a store under load, while something is done to its server.
//! - [`model`]: many callers at once, held against a model.
//! - [`proxy`]: stands between a store and its server and spoils the connection on demand.
//!
//! Time is shifted, never slept; nothing is mocked.

#![expect(clippy::unwrap_used, reason = "a test kit says what it expected by panicking")]

pub mod asynq;
pub mod audit;
mod cargo;
pub mod clock;
pub mod conformance;
pub mod draft;
pub mod faults;
pub mod fleet;
pub mod health;
pub mod hearing;
pub mod load;
pub mod model;
pub mod proxy;
pub mod scene;
pub mod sequence;
pub mod servers;
pub mod subject;

pub use cargo::cargo;
pub use clock::TokioClock;
pub use draft::Draft;
pub use faults::{Faults, FaultyStore, Method};
pub use fleet::{Fleet, Seat};
pub use health::assert_healthy;
pub use load::Load;
pub use proxy::Proxy;
pub use scene::{Run, Scene, check};
pub use servers::{PgBouncer, PostgresServer, RedisCluster, RedisServer};
pub use subject::{DAMAGE_RULES, MemorySubject, Subject};
