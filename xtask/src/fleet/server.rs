//! The store under a fleet: a private server, and what it is made to do.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use windlass_core::Store;
use windlass_stores::hybrid::{HybridOptions, HybridStore};
use windlass_stores::postgres::tokio_postgres::{Client, Config, NoTls};
use windlass_stores::postgres::{PostgresOptions, PostgresStore};
use windlass_stores::redis::RedisOptions;
use windlass_testkit::servers::postgres::Care;
use windlass_testkit::servers::redis::Keeping;
use windlass_testkit::{PostgresServer, RedisServer};

use super::{FleetStore, TICK, rounded};
use crate::Result;

const CONNECTIONS: &str = include_str!("connections.sql");
const CALLS: &str = include_str!("calls.sql");
/// The schema, or what keys begin with.
const NAME: &str = "windlass";
/// Statements that are named in the verdict.
const NAMED_MAX: usize = 8;
/// Room for the time in which all start.
const CONNECTIONS_PER_PROCESS: usize = 8;
/// What the kernel counts time in.
const TICKS_PER_SECOND: f64 = 100.0;

pub(super) struct Server {
    ledger: Option<Ledger>,
    broker: Option<RedisServer>,
    pub(super) url: String,
}

struct Ledger {
    _server: PostgresServer,
    client: Client,
    /// The server's first process.
    postmaster: u32,
}

/// What a server has done so far, or between two looks.
pub(super) struct Cost {
    pub(super) at: Instant,
    pub(super) seconds: f64,
    pub(super) statements: f64,
    pub(super) cpu_seconds: f64,
    pub(super) by_name: BTreeMap<String, f64>,
}

impl Server {
    pub(super) async fn start(store: FleetStore, processes: usize) -> Result<Self> {
        let ledger = match store {
            FleetStore::Redis => None,
            FleetStore::Postgres | FleetStore::Hybrid => {
                let most = 100 + processes * CONNECTIONS_PER_PROCESS;
                let extra = [
                    format!("max_connections={most}"),
                    "shared_preload_libraries=pg_stat_statements".into(),
                ];
                Some(PostgresServer::start_with(Care::Durable, &extra))
            }
        };
        let broker = match store {
            FleetStore::Postgres => None,
            FleetStore::Redis => Some(RedisServer::start(Keeping::Always)),
            FleetStore::Hybrid => Some(RedisServer::start(Keeping::Nothing)),
        };
        let url = match (&ledger, &broker) {
            (Some(ledger), _) => ledger.tcp_url(NAME),
            (None, Some(redis)) => redis.url(NAME),
            (None, None) => return Err("a fleet needs a store".into()),
        };
        let ledger = match ledger {
            Some(server) => Some(Ledger::of(server).await?),
            None => None,
        };
        Ok(Self { ledger, broker, url })
    }

    /// The broker in front, as a worker's command line names it.
    pub(super) fn broker(&self) -> Option<String> {
        let redis = self.broker.as_ref().filter(|_| self.ledger.is_some())?;
        Some(redis.url(NAME))
    }

    pub(super) async fn open(&self) -> Result<Arc<dyn Store>> {
        if self.ledger.is_none() {
            return Ok(windlass_stores::open(&self.url).await?);
        }
        // So that connections of this program are not counted among those of the fleet.
        let url = format!("{}&application_name=observer", self.url);
        let options = PostgresOptions::of_url(&url)?;
        Ok(match self.broker() {
            None => Arc::new(PostgresStore::open(options).await?),
            Some(broker) => {
                let options = HybridOptions::one(options, RedisOptions::of_url(&broker)?)?;
                Arc::new(HybridStore::open(options).await?)
            }
        })
    }

    /// Connections of the fleet to PostgreSQL, or else to Redis.
    pub(super) async fn connections(&self) -> Result<f64> {
        if let Some(ledger) = &self.ledger {
            return Ok(ledger.client.query_one(CONNECTIONS, &[]).await?.get(0));
        }
        let info = self.info("clients")?;
        let count = info.lines().find_map(|line| line.strip_prefix("connected_clients:"));
        Ok(count.and_then(|count| count.trim().parse().ok()).unwrap_or(0.0))
    }

    /// Waits until there are no more connections than this, or for as long as that may take.
    pub(super) async fn settle(&self, most: f64, at_most: Duration) -> Result {
        let end = Instant::now() + at_most;
        while self.connections().await? > most && Instant::now() < end {
            tokio::time::sleep(TICK).await;
        }
        Ok(())
    }

    pub(super) async fn cost(&self) -> Result<Cost> {
        let (mut by_name, mut cpu_seconds) = (BTreeMap::new(), 0.0);
        if let Some(ledger) = &self.ledger {
            for row in ledger.client.query(CALLS, &[]).await? {
                let (query, calls): (String, f64) = (row.get(0), row.get(1));
                *by_name.entry(name_of(&query)).or_insert(0.0) += calls;
            }
            cpu_seconds += cpu_seconds_of_family(ledger.postmaster)?;
        }
        if let Some(redis) = &self.broker {
            for line in self.info("commandstats")?.lines() {
                let Some((name, rest)) = line.split_once(":calls=") else { continue };
                let calls = rest.split(',').next().unwrap_or_default().parse().unwrap_or(0.0);
                *by_name.entry(name.replace("cmdstat_", "redis ")).or_insert(0.0) += calls;
            }
            let pid = redis.pid().ok_or("the broker is gone")?;
            cpu_seconds += times(pid)?[..2].iter().sum::<f64>() / TICKS_PER_SECOND;
        }
        let statements = by_name.values().sum();
        Ok(Cost { at: Instant::now(), seconds: 0.0, statements, cpu_seconds, by_name })
    }

    /// The most frequent statements, per second.
    pub(super) async fn statements(&self, cost: &Cost) -> Result<Value> {
        let mut named: Vec<_> = cost.by_name.iter().collect();
        named.sort_by(|one, other| other.1.total_cmp(one.1));
        let rate = |(name, count): (&String, &f64)| {
            (name.clone(), Value::from(rounded(count / cost.seconds)))
        };
        Ok(Value::Object(named.into_iter().take(NAMED_MAX).map(rate).collect::<Map<_, _>>()))
    }

    /// A section of what Redis says of itself.
    fn info(&self, section: &str) -> Result<String> {
        let port = self.broker.as_ref().ok_or("there is no Redis")?.port();
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.write_all(format!("INFO {section}\r\nQUIT\r\n").as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }
}

impl Ledger {
    async fn of(server: PostgresServer) -> Result<Self> {
        let url = server.tcp_url(NAME);
        let (plain, _) = url.split_once('?').ok_or("a URL without parameters")?;
        let mut config: Config = plain.parse()?;
        config.application_name("observer");
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        client.batch_execute(include_str!("prepare.sql")).await?;
        let row = client.query_one(include_str!("process.sql"), &[]).await?;
        let own = u32::try_from(row.get::<_, i32>(0))?;
        Ok(Self { _server: server, client, postmaster: parent(own)? })
    }
}

/// The first word of a statement's comment, by which its file is called; or the statement itself.
fn name_of(query: &str) -> String {
    let line = query.trim_start().lines().next().unwrap_or_default();
    match line.strip_prefix("-- ").and_then(|rest| rest.split_once(':')) {
        Some((name, _)) => name.to_owned(),
        None => line.chars().take(40).collect(),
    }
}

/// The fields of `/proc/PID/stat` behind the program's name.
fn stat(pid: u32) -> Result<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, rest) = text.rsplit_once(')').ok_or("a process without a name")?;
    Ok(rest.split_whitespace().map(Into::into).collect())
}

fn parent(pid: u32) -> Result<u32> {
    Ok(stat(pid)?.get(1).ok_or("a process without a parent")?.parse()?)
}

/// Time of a process in user mode and in the kernel, and that of its children that have ended.
fn times(pid: u32) -> Result<[f64; 4]> {
    let fields = stat(pid)?;
    let mut times = [0.0; 4];
    for (time, field) in times.iter_mut().zip(fields.iter().skip(11)) {
        *time = field.parse()?;
    }
    Ok(times)
}

/// Time of a process and of all its children, also those that have ended.
fn cpu_seconds_of_family(first: u32) -> Result<f64> {
    let mut ticks: f64 = times(first)?.iter().sum();
    for entry in fs::read_dir("/proc")? {
        let Ok(pid) = entry?.file_name().to_string_lossy().parse::<u32>() else { continue };
        // It may end meanwhile.
        if parent(pid).is_ok_and(|its| its == first) {
            ticks += times(pid).map_or(0.0, |times| times[..2].iter().sum());
        }
    }
    Ok(ticks / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_go_by_the_names_of_their_files() {
        assert_eq!(name_of("-- wait_probe: whether work is there.\nSELECT $1"), "wait_probe");
        assert_eq!(name_of("BEGIN"), "BEGIN");
    }

    #[test]
    fn a_process_has_a_parent_and_has_spent_time() {
        assert_ne!(parent(std::process::id()).unwrap(), 0);
        assert!(times(1).is_ok_and(|times| times.iter().all(|time| *time >= 0.0)));
    }
}
