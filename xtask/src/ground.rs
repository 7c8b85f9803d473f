//! A store of its own for a run, and the server that it needs; both are gone with it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use windlass_testkit::proxy::Proxy;
use windlass_testkit::servers::postgres::Care;
use windlass_testkit::servers::redis::Keeping;
use windlass_testkit::{PostgresServer, RedisServer};

use crate::Result;

/// How long a server may take to listen.
const START_MAX: Duration = Duration::from_secs(30);
/// What the schema, or the prefix of keys, is called.
const NAME: &str = "windlass";

/// A sort of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Store {
    Sqlite,
    Postgres,
    Redis,
}

pub(crate) struct Ground {
    pub(crate) url: String,
    server: Server,
}

enum Server {
    None,
    Postgres(PostgresServer),
    Redis(RedisServer),
}

impl Ground {
    /// A store that keeps what it was told, as a careful user would have it; its files are in the folder.
    pub(crate) fn lay(store: Store, folder: &Path) -> Self {
        let server = match store {
            Store::Sqlite => Server::None,
            Store::Postgres => Server::Postgres(PostgresServer::start(Care::Durable)),
            Store::Redis => Server::Redis(RedisServer::start(Keeping::Always)),
        };
        let url = match &server {
            Server::None => format!("sqlite:{}", folder.join("tasks.db").display()),
            Server::Postgres(server) => server.tcp_url(NAME),
            Server::Redis(server) => server.url(NAME),
        };
        Self { url, server }
    }

    /// Puts a proxy between the store and whoever opens it from now on; there is none in front of a file.
    pub(crate) async fn behind_proxy(&mut self) -> Option<Proxy> {
        let proxy = match &self.server {
            Server::None => return None,
            Server::Postgres(server) => Proxy::start(server.port()).await,
            Server::Redis(server) => Proxy::start(server.port()).await,
        };
        match &self.server {
            Server::None => {}
            Server::Postgres(server) => self.url = server.url_through(proxy.port(), NAME),
            Server::Redis(server) => self.url = server.url_through(proxy.port(), NAME),
        }
        Some(proxy)
    }
}

/// Where the server listens, once it has said so.
pub(crate) fn address(log: &Path) -> Result<String> {
    let end = Instant::now() + START_MAX;
    loop {
        let told = fs::read_to_string(log)?;
        if let Some((_, rest)) = told.split_once("http://")
            && let Some((address, _)) = rest.split_once(' ')
        {
            return Ok(format!("http://{address}"));
        }
        if Instant::now() > end {
            return Err(format!("the server does not listen: {told}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
