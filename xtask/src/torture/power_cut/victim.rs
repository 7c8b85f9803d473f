//! The store on the disk whose power is cut.

use std::path::PathBuf;

use clap::ValueEnum;
use windlass_testkit::PostgresServer;
use windlass_testkit::servers::postgres::{Care, Stop};

use super::disk::Disk;
use crate::Result;

/// Where a server keeps the tables.
const SCHEMA: &str = "windlass";

/// Which store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum StoreKind {
    Sqlite,
    Postgres,
}

impl StoreKind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }
}

/// A store, and whatever has to run for it.
pub(super) enum Victim {
    File(PathBuf),
    Server(Box<PostgresServer>),
}

impl Victim {
    /// Puts a store on a mounted disk.
    pub(super) fn on(disk: &Disk, kind: StoreKind) -> Result<Self> {
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
                Self::Server(Box::new(server))
            }
        })
    }

    pub(super) fn url(&self, durability: &str) -> String {
        match self {
            Self::File(path) => format!("sqlite:{}?durability={durability}", path.display()),
            Self::Server(server) => {
                format!("{}&durability={durability}", server.tcp_url(SCHEMA))
            }
        }
    }

    /// Ends what runs for the store, without a chance to write anything.
    pub(super) fn end(&self) {
        if let Self::Server(server) = self {
            server.stop(Stop::Immediate);
        }
    }

    pub(super) fn start_again(&self) {
        if let Self::Server(server) = self {
            server.launch();
        }
    }
}
