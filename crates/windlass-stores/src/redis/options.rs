//! How a Redis store is opened.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use redis::ConnectionInfo;
use windlass_core::config::Config;
use windlass_core::limits::Limits;
use windlass_core::{Clock, SystemClock, Timestamp, duration};

/// Longest that a server may take to answer one call; a 1 MiB payload over a slow line fits.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Where the server is, and how it is treated.
#[derive(Clone)]
pub struct RedisOptions {
    pub(super) servers: Servers,
    /// The layout's own when absent.
    pub(super) prefix: Option<String>,
    /// The certificates to trust, in PEM, instead of the system's.
    pub(super) authorities: Option<PathBuf>,
    /// The caller knows that the server may lose its last moments.
    pub(super) expects_durable: bool,
    /// The caller knows that the server may throw keys away.
    pub(super) allows_eviction: bool,
    pub(super) creates: bool,
    /// The server's own when absent.
    pub(super) clock: Option<Arc<dyn Clock>>,
    pub(super) limits: Limits,
    pub(super) answer_max: Duration,
}

/// One server, or some of the nodes of a Cluster.
#[derive(Clone)]
pub(super) enum Servers {
    Single(Box<ConnectionInfo>),
    Cluster(Vec<ConnectionInfo>),
}

impl RedisOptions {
    /// A server, with keys that begin as its layout has it.
    pub fn at(server: ConnectionInfo) -> Self {
        Self::on(Servers::Single(Box::new(server)))
    }

    /// A Cluster, found through any of its nodes.
    pub fn cluster(nodes: Vec<ConnectionInfo>) -> Self {
        Self::on(Servers::Cluster(nodes))
    }

    fn on(servers: Servers) -> Self {
        Self {
            servers,
            prefix: None,
            authorities: None,
            expects_durable: true,
            allows_eviction: false,
            creates: true,
            clock: None,
            limits: Config::default().limits,
            answer_max: ANSWER_MAX,
        }
    }

    /// Keys begin with this.
    #[must_use]
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: Some(prefix.into()), ..self }
    }

    /// Trusts these authorities, in PEM, instead of the system's.
    #[must_use]
    pub fn authorities(self, path: impl Into<PathBuf>) -> Self {
        Self { authorities: Some(path.into()), ..self }
    }

    /// Says nothing about a server that may lose the writes of its last moments.
    #[must_use]
    pub fn fast(self) -> Self {
        Self { expects_durable: false, ..self }
    }

    /// Takes a server that throws keys away when its memory is full.
    #[must_use]
    pub fn allow_eviction(self) -> Self {
        Self { allows_eviction: true, ..self }
    }

    /// Opens only what is there already.
    #[must_use]
    pub fn existing(self) -> Self {
        Self { creates: false, ..self }
    }

    /// Tells time by this clock instead of the server's; for tests.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Takes nothing larger than this.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Gives a call up when its answer takes longer than this.
    #[must_use]
    pub fn answer_within(self, answer_max: Duration) -> Self {
        Self { answer_max, ..self }
    }

    /// The time that a test has set, as scripts take it: nothing for the server's own.
    pub(super) fn told_time(&self) -> Vec<u8> {
        self.clock
            .as_ref()
            .map(|clock| clock.now().as_millis().to_string().into_bytes())
            .unwrap_or_default()
    }

    /// The time of this machine, or that of a test.
    pub(super) fn wall_clock(&self) -> Timestamp {
        self.clock.as_ref().map_or_else(|| SystemClock.now(), |clock| clock.now())
    }

    /// What keys begin with, unless it was said.
    pub(crate) fn prefix_unless_set(mut self, prefix: &str) -> Self {
        self.prefix.get_or_insert_with(|| prefix.to_owned());
        self
    }

    /// What keys begin with.
    pub(crate) fn key_prefix(&self) -> &str {
        self.prefix.as_deref().unwrap_or_default()
    }

    /// The servers, without names and passwords.
    fn addresses(&self) -> Vec<String> {
        match &self.servers {
            Servers::Single(server) => vec![server.addr().to_string()],
            Servers::Cluster(nodes) => nodes.iter().map(|node| node.addr().to_string()).collect(),
        }
    }

    /// What is being done while a connection is made, for an error.
    pub(super) fn connecting(&self) -> String {
        format!("connect to {}", self.addresses().join(", "))
    }

    /// True when the keys of different queues may lie on different servers.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.servers, Servers::Cluster(_))
    }
}

/// Whole milliseconds, cut to what can be written everywhere.
pub(crate) fn millis(time: Duration) -> u64 {
    let most = Timestamp::MAX.as_millis();
    duration::as_millis_ceil(time).min(most).unsigned_abs()
}

impl fmt::Debug for RedisOptions {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions")
            .field("servers", &self.addresses())
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}
