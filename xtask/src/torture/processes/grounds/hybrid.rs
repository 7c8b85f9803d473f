//! A private PostgreSQL that waits for the disk, and two Redis in front of it that keep nothing.
//!
//! The database is restarted as ever. The brokers are emptied, cut off, restarted and left dead for a
//! while, which nobody may mind.

use std::io;
use std::path::Path;

use windlass_testkit::servers::postgres::{Care, Stop};
use windlass_testkit::servers::redis::Keeping;
use windlass_testkit::{PostgresServer, RedisServer};

use super::super::ground::{Ground, Server};

/// Each is for one broker. One that dies is back when something is done to it again.
const NUISANCES: &[&str] = &[
    "high FLUSHALL",
    "low FLUSHALL",
    "high FLUSHALL",
    "low FLUSHALL",
    "high CLIENT KILL TYPE normal SKIPME yes",
    "low CLIENT KILL TYPE normal SKIPME yes",
    "high SCRIPT FLUSH",
    "low SCRIPT FLUSH",
    "high DIES",
    "low DIES",
];

struct Hybrid {
    ledger: PostgresServer,
    high: RedisServer,
    low: RedisServer,
}

pub(in super::super) fn lay(_folder: &Path) -> Box<dyn Ground> {
    Box::new(Hybrid {
        ledger: PostgresServer::start(Care::Durable),
        high: RedisServer::start(Keeping::Nothing),
        low: RedisServer::start(Keeping::Nothing),
    })
}

impl Ground for Hybrid {
    fn url(&self) -> String {
        self.ledger.tcp_url("windlass")
    }

    fn brokers(&self) -> Vec<String> {
        let (high, low) = (self.high.url("torture"), self.low.url("torture"));
        vec![format!("high={high}"), format!("low={low}")]
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }
}

impl Server for Hybrid {
    fn leave(&self) {
        self.ledger.stop(Stop::Immediate);
    }

    fn come_back(&self) {
        self.ledger.launch();
    }

    fn nuisances(&self) -> &'static [&'static str] {
        NUISANCES
    }

    fn annoy(&self, nuisance: &str) -> io::Result<()> {
        let mut words = nuisance.split(' ');
        let broker = if words.next() == Some("high") { &self.high } else { &self.low };
        if broker.pid().is_none() {
            broker.launch();
        }
        let words: Vec<_> = words.collect();
        if words == ["DIES"] {
            broker.kill();
            return Ok(());
        }
        let answer = broker.operate(&words)?;
        match answer.starts_with('-') {
            true => Err(io::Error::other(answer)),
            false => Ok(()),
        }
    }
}
