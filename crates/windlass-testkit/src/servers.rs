//! Private servers: real ones, started by the tests themselves, gone with the process that started
//! them however it ends.

pub mod pgbouncer;
pub mod postgres;
pub mod redis;
mod resharding;
mod watchdog;

pub use pgbouncer::PgBouncer;
pub use postgres::PostgresServer;
pub use redis::{RedisCluster, RedisServer};
pub use resharding::OpenSlot;
