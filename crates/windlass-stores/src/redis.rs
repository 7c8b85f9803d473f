//! Stores in Redis 6.2 or newer, and what its layouts share: the connection, the URL, what the server
//! promises, how scripts are called, what belongs to no queue, and how one waits.

mod asking;
pub mod asynq;
pub(crate) mod connection;
mod cursor;
pub(crate) mod ears;
mod error;
mod fleet;
mod news;
mod options;
pub(crate) mod reply;
mod rounds;
pub(crate) mod script;
mod server;
pub mod streams;
mod troubles;
mod url;
mod waiting;

pub use options::RedisOptions;
pub use redis as driver;
