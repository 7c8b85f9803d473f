//! How a PostgreSQL store is opened.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Config as Server;
use tokio_postgres::config::{Host, SslMode};
use windlass_core::Clock;
use windlass_core::config::Config;
use windlass_core::limits::Limits;

use super::generation::GenerationRules;
use super::outbox::{Outbox, REFERRED_TOGETHER};

/// Most tasks in a row of `ready`. A claim locks whole rows, so a burst in few rows would be claimed by one process at a
/// time: 200 workers took 7 s for 2,000 tasks that were submitted in four rows. With rows of 64, claims and completions
/// of 500 tasks were 11 % slower.
const READY_TOGETHER_MAX: i64 = 256;
/// How long a connection may be idle: longer than the pauses of regular upkeep and heartbeats, so that
/// these keep theirs, and short beside the life of a process.
const CONNECTION_IDLE_MAX: Duration = Duration::from_secs(15);
/// The port of a server whose URL names none.
const PORT: u16 = 5432;

/// Where the server is, and how it is treated.
#[derive(Clone)]
pub struct PostgresOptions {
    pub(super) server: Server,
    pub(super) schema: String,
    pub(super) trust: Trust,
    pub(super) is_durable: bool,
    pub(super) creates: bool,
    pub(super) listens: bool,
    pub(super) pooler: Pooler,
    /// The server's own when absent.
    pub(super) clock: Option<Arc<dyn Clock>>,
    pub(super) limits: Limits,
    pub(super) ids_at_once_max: i64,
    pub(super) generation_rules: GenerationRules,
    pub(super) connection_idle_max: Duration,
    /// Where references to pending tasks go; nowhere without a broker.
    pub(super) outbox: Option<Arc<Outbox>>,
}

/// What stands between a store and its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pooler {
    /// Nothing; a pooler is refused.
    None,
    /// One that gives each client a connection for as long as it stays.
    Session,
    /// One that gives a connection for one transaction at a time.
    Transaction,
}

/// What a server must show of itself when it speaks TLS.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trust {
    /// Its certificate must come from someone that is trusted.
    pub checks_authority: bool,
    /// Its certificate must name the host.
    pub checks_name: bool,
    /// The certificates to trust, in PEM, instead of the system's. With some, `checks_authority` is implied.
    pub authorities: Option<PathBuf>,
}

impl Trust {
    /// True when a server must show a certificate of someone that is trusted. Certificates to trust imply
    /// that, as in libpq.
    pub(super) fn is_verified(&self) -> bool {
        self.checks_authority || self.authorities.is_some()
    }
}

impl PostgresOptions {
    /// A server; durable, in the schema `windlass`, which is made when it is not there.
    pub fn at(server: Server) -> Self {
        Self {
            server,
            schema: "windlass".into(),
            trust: Trust::default(),
            is_durable: true,
            creates: true,
            listens: true,
            pooler: Pooler::None,
            clock: None,
            limits: Config::default().limits,
            ids_at_once_max: 10_000,
            generation_rules: GenerationRules::default(),
            connection_idle_max: CONNECTION_IDLE_MAX,
            outbox: None,
        }
    }

    /// Keeps its tables in this schema.
    #[must_use]
    pub fn schema(self, schema: impl Into<String>) -> Self {
        Self { schema: schema.into(), ..self }
    }

    /// Trusts servers that show this much of themselves.
    #[must_use]
    pub fn trust(self, trust: Trust) -> Self {
        Self { trust, ..self }
    }

    /// Waits for the disk at every commit; the default.
    #[must_use]
    pub fn durable(self) -> Self {
        Self { is_durable: true, ..self }
    }

    /// Does not wait for the disk at every commit: a crash of the server may lose the last moments.
    #[must_use]
    pub fn fast(self) -> Self {
        Self { is_durable: false, ..self }
    }

    /// Refuses to make a schema that is not there.
    #[must_use]
    pub fn existing(self) -> Self {
        Self { creates: false, ..self }
    }

    /// Looks for the doings of other processes by itself instead of listening for them.
    #[must_use]
    pub fn polling(self) -> Self {
        Self { listens: false, ..self }
    }

    /// Expects a pooler before the server that gives a connection for one transaction at a time, such as
    /// PgBouncer in transaction mode: nothing is prepared, nothing is set for longer than a transaction,
    /// and nobody listens.
    #[must_use]
    pub fn pooled(self) -> Self {
        Self { pooler: Pooler::Transaction, listens: false, ..self }
    }

    /// Expects a pooler before the server that gives each client a connection for as long as it stays, such
    /// as PgBouncer in session mode. Nothing is done otherwise for it, but it is not refused.
    #[must_use]
    pub fn pooled_by_session(self) -> Self {
        Self { pooler: Pooler::Session, ..self }
    }

    /// True where the next transaction may meet another connection of the server's.
    pub(super) fn is_pooled(&self) -> bool {
        self.pooler == Pooler::Transaction
    }

    /// Tells time by this clock instead of the server's, for tests.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Other upper bounds than the defaults.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Reserves at most so many ids ahead; lists show tasks in the order of reserving.
    #[must_use]
    pub fn ids_at_once(self, most: u32) -> Self {
        Self { ids_at_once_max: i64::from(most), ..self }
    }

    /// Other rules than the defaults for dropping old tasks.
    #[must_use]
    pub fn generations(self, rules: GenerationRules) -> Self {
        Self { generation_rules: rules, ..self }
    }

    /// Closes connections that were idle for so long; 15 s by default.
    #[must_use]
    pub fn connection_idle_max(self, connection_idle_max: Duration) -> Self {
        Self { connection_idle_max, ..self }
    }

    /// What is being done while a connection is made, for an error: it names hosts and ports.
    pub(super) fn connecting(&self) -> String {
        let ports = self.server.get_ports();
        let place = |(at, host): (usize, &Host)| match host {
            Host::Tcp(name) => {
                // One port stands for all hosts.
                let port = ports.get(at).or(ports.first()).copied().unwrap_or(PORT);
                if name.contains(':') {
                    format!("[{name}]:{port}")
                } else {
                    format!("{name}:{port}")
                }
            }
            Host::Unix(path) => path.display().to_string(),
        };
        let mut places: Vec<_> = self.server.get_hosts().iter().enumerate().map(place).collect();
        if places.is_empty() {
            places.extend(self.server.get_hostaddrs().iter().map(ToString::to_string));
        }
        format!("connect to postgres at {}", places.join(", "))
    }

    /// The hosts on the network whose identity is not verified: anybody in between could stand in for one of them,
    /// read passwords and tasks, and change them.
    pub(super) fn unverified_hosts(&self) -> Vec<String> {
        if self.server.get_ssl_mode() == SslMode::Require && self.trust.is_verified() {
            return Vec::new();
        }
        let names = self.server.get_hosts().iter().filter_map(|host| match host {
            Host::Tcp(name) => Some(name.clone()),
            Host::Unix(_) => None,
        });
        let addresses = self.server.get_hostaddrs();
        let is_here = |name: &str| {
            name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        };
        if !addresses.is_empty() && addresses.iter().all(IpAddr::is_loopback) {
            return Vec::new();
        }
        names.filter(|name| !is_here(name)).collect()
    }

    /// How many tasks a row of `ready` may hold.
    pub(super) fn ready_together_max(&self) -> i64 {
        if self.outbox.is_some() { REFERRED_TOGETHER } else { READY_TOGETHER_MAX }
    }

    /// True while work is found in the database and nowhere else.
    pub(super) fn is_looked_for(&self) -> bool {
        self.outbox.as_ref().is_none_or(|outbox| !outbox.carries_all())
    }

    /// The time that statements are told, if it is not the server's.
    pub(super) fn told_time(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| clock.now().as_millis())
    }
}

impl fmt::Debug for PostgresOptions {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("hosts", &self.server.get_hosts())
            .field("database", &self.server.get_dbname())
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}
