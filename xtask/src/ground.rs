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
    /// Redis with the keys of Go's asynq.
    Asynq,
    /// PostgreSQL with a Redis as broker.
    Hybrid,
}

impl Store {
    /// Those that are not made of another one.
    pub(crate) const BASIC: [Self; 3] = [Self::Sqlite, Self::Postgres, Self::Redis];
}

pub(crate) struct Ground {
    pub(crate) url: String,
    store: Store,
    server: Server,
    broker: Option<RedisServer>,
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
            Store::Postgres | Store::Hybrid => {
                Server::Postgres(PostgresServer::start(Care::Durable))
            }
            Store::Redis | Store::Asynq => Server::Redis(RedisServer::start(Keeping::Always)),
        };
        let broker = (store == Store::Hybrid).then(|| RedisServer::start(Keeping::Nothing));
        let mut ground = Self { url: String::new(), store, server, broker };
        ground.url = match ground.port() {
            None => format!("sqlite:{}", folder.join("tasks.db").display()),
            Some(port) => ground.url_through(port),
        };
        ground
    }

    /// The store as a command line names it.
    pub(crate) fn words(&self) -> Vec<String> {
        let broker = self.broker.as_ref().map(|broker| ("--broker", broker.url(NAME)));
        let words = [("--store", self.url.clone())].into_iter().chain(broker);
        words.flat_map(|(name, url)| [name.to_owned(), url]).collect()
    }

    /// Puts a proxy between the store and whoever opens it from now on; there is none in front of a file.
    pub(crate) async fn behind_proxy(&mut self) -> Option<Proxy> {
        let proxy = Proxy::start(self.port()?).await;
        self.url = self.url_through(proxy.port());
        Some(proxy)
    }

    fn port(&self) -> Option<u16> {
        match &self.server {
            Server::None => None,
            Server::Postgres(server) => Some(server.port()),
            Server::Redis(server) => Some(server.port()),
        }
    }

    fn url_through(&self, port: u16) -> String {
        match &self.server {
            Server::None => self.url.clone(),
            Server::Postgres(server) => server.url_through(port, NAME),
            Server::Redis(_) if self.store == Store::Asynq => {
                format!("redis+asynq://127.0.0.1:{port}/")
            }
            Server::Redis(server) => server.url_through(port, NAME),
        }
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
