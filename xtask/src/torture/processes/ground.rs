//! The store on which the processes stand: a file, or a private server that can go away.

use std::path::Path;

use windlass_testkit::PostgresServer;
use windlass_testkit::servers::postgres::{Care, Stop};

/// Where tasks are kept.
pub(super) enum Ground {
    /// A SQLite file.
    File { url: String },
    /// A PostgreSQL of its own, gone with this.
    Server(Box<PostgresServer>),
}

impl Ground {
    pub(super) fn file(folder: &Path) -> Self {
        Self::File { url: format!("sqlite:{}", folder.join("tasks.db").display()) }
    }

    pub(super) fn server() -> Self {
        Self::Server(Box::new(PostgresServer::start(Care::Durable)))
    }

    /// The store of all processes.
    pub(super) fn url(&self) -> String {
        match self {
            Self::File { url } => url.clone(),
            Self::Server(server) => server.tcp_url("windlass"),
        }
    }

    /// The server, if there is one that could go away.
    pub(super) fn goes_away(&self) -> bool {
        matches!(self, Self::Server(_))
    }

    /// Ends the server as in a crash.
    pub(super) fn leave(&self) {
        if let Self::Server(server) = self {
            server.stop(Stop::Immediate);
        }
    }

    /// Starts the server again, and waits until it answers.
    pub(super) fn come_back(&self) {
        if let Self::Server(server) = self {
            server.launch();
        }
    }
}
