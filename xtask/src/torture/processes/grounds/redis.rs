//! A private Redis that waits for the disk. One that writes every second will not do, although only its
//! process is killed here: while it flushes it answers before it has written, for up to two seconds.

use std::io;
use std::path::Path;

use windlass_testkit::RedisServer;
use windlass_testkit::servers::redis::Keeping;

use super::super::ground::{Ground, Server};

/// Connections that call and wait are cut, those that listen, and scripts are forgotten.
const NUISANCES: &[&str] =
    &["CLIENT KILL TYPE normal SKIPME yes", "CLIENT KILL TYPE pubsub", "SCRIPT FLUSH"];

pub(in super::super) fn lay(_folder: &Path) -> Box<dyn Ground> {
    Box::new(RedisServer::start(Keeping::Always))
}

impl Ground for RedisServer {
    fn url(&self) -> String {
        self.url("torture")
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }
}

impl Server for RedisServer {
    fn leave(&self) {
        self.kill();
    }

    fn come_back(&self) {
        self.launch();
    }

    fn nuisances(&self) -> &'static [&'static str] {
        NUISANCES
    }

    fn annoy(&self, nuisance: &str) -> io::Result<()> {
        let words: Vec<_> = nuisance.split(' ').collect();
        let answer = self.operate(&words)?;
        match answer.starts_with('-') {
            true => Err(io::Error::other(answer)),
            false => Ok(()),
        }
    }
}
