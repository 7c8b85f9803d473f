//! Stores in Redis 6.2 or newer, and what its layouts share: the connection, the URL, what the server
//! promises, and how scripts are called.

pub mod asynq;
mod connection;
mod error;
mod options;
mod script;
mod server;
pub mod streams;
mod url;

pub use options::RedisOptions;
pub use redis as driver;
