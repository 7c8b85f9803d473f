//! The stores of this crate as the test kit asks for them.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

#[cfg(feature = "redis")]
mod asynq;
#[cfg(feature = "redis")]
mod damage;
#[cfg(feature = "redis")]
mod documented_user;
#[cfg(all(feature = "postgres", feature = "redis"))]
mod hybrid;
#[cfg(all(feature = "postgres", feature = "redis"))]
mod hybrid_pair;
#[cfg(all(feature = "postgres", feature = "redis"))]
mod hybrid_user;
#[cfg(feature = "postgres")]
mod pgbouncer;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "postgres")]
mod schema;
#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "redis")]
pub(crate) use asynq::{AsynqClusterSubject, AsynqSubject, AsynqUserSubject};
#[cfg(all(feature = "postgres", feature = "redis"))]
pub(crate) use hybrid::HybridSubject;
#[cfg(all(feature = "postgres", feature = "redis"))]
pub(crate) use hybrid_pair::HybridPairSubject;
#[cfg(all(feature = "postgres", feature = "redis"))]
pub(crate) use hybrid_user::HybridUserSubject;
#[cfg(feature = "postgres")]
pub(crate) use pgbouncer::PgBouncerSubject;
#[cfg(feature = "postgres")]
pub(crate) use postgres::PostgresSubject;
#[cfg(feature = "redis")]
pub(crate) use redis::{ClusterSubject, RedisSubject, RedisUserSubject};
#[cfg(feature = "sqlite")]
pub(crate) use sqlite::SqliteSubject;
