//! A private PostgreSQL that waits for the disk.

use std::path::Path;

use windlass_testkit::PostgresServer;
use windlass_testkit::servers::postgres::{Care, Stop};

use super::super::ground::{Ground, Server};

pub(in super::super) fn lay(_folder: &Path) -> Box<dyn Ground> {
    Box::new(PostgresServer::start(Care::Durable))
}

impl Ground for PostgresServer {
    fn url(&self) -> String {
        self.tcp_url("windlass")
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }
}

impl Server for PostgresServer {
    fn leave(&self) {
        self.stop(Stop::Immediate);
    }

    fn come_back(&self) {
        self.launch();
    }
}
