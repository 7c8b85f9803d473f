//! The store on the disk whose power is cut.

use std::path::PathBuf;

use clap::ValueEnum;
use windlass_testkit::servers::postgres::{Care, Stop};
use windlass_testkit::servers::redis::Keeping;
use windlass_testkit::{PostgresServer, RedisServer};

use super::disk::Disk;
use crate::Result;

/// What the schema, or the prefix of keys, is called.
const SCHEMA: &str = "windlass";

/// Which store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum StoreKind {
    Sqlite,
    Postgres,
    /// With `appendfsync always`, or `everysec` under `fast`.
    Redis,
}

impl StoreKind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Redis => "redis",
        }
    }
}

/// A store, and whatever has to run for it.
pub(super) enum Victim {
    File(PathBuf),
    Postgres(Box<PostgresServer>),
    Redis(RedisServer),
}

impl Victim {
    /// Puts a store on a mounted disk.
    pub(super) fn on(disk: &Disk, kind: StoreKind, is_durable: bool) -> Result<Self> {
        let place = disk.mount_point();
        Ok(match kind {
            StoreKind::Sqlite => Self::File(place.join("tasks.db")),
            StoreKind::Postgres => {
                let server = PostgresServer::start_in(place, Care::Durable);
                // The tables are made before the load begins: that would take most of its time.
                let runtime = tokio::runtime::Runtime::new()?;
                runtime.block_on(windlass_stores::open(&server.tcp_url(SCHEMA)))?;
                // It was all made in a hurry; from here on the server itself sees to the disk.
                disk.flush()?;
                Self::Postgres(Box::new(server))
            }
            StoreKind::Redis => {
                let keeping = if is_durable { Keeping::Always } else { Keeping::EverySecond };
                let server = RedisServer::start_in(place, keeping);
                // Its folder and its first file must be on the disk before the load begins.
                disk.flush()?;
                Self::Redis(server)
            }
        })
    }

    pub(super) fn url(&self, durability: &str) -> String {
        match self {
            Self::File(path) => format!("sqlite:{}?durability={durability}", path.display()),
            Self::Postgres(server) => {
                format!("{}&durability={durability}", server.tcp_url(SCHEMA))
            }
            Self::Redis(server) => format!("{}&durability={durability}", server.url(SCHEMA)),
        }
    }

    /// Ends what runs for the store, without a chance to write anything.
    pub(super) fn end(&self) {
        match self {
            Self::File(_) => {}
            Self::Postgres(server) => server.stop(Stop::Immediate),
            Self::Redis(server) => server.kill(),
        }
    }

    pub(super) fn start_again(&self) {
        match self {
            Self::File(_) => {}
            Self::Postgres(server) => server.launch(),
            Self::Redis(server) => server.launch(),
        }
    }
}
