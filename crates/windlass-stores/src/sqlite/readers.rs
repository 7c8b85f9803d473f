//! Reads beside the writer: a few connections of their own, so that no list or look-up waits for a
//! commit, nor holds one up.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::Semaphore;
use windlass_core::{Clock, Error, ErrorKind, Result, Timestamp};

use super::connection::open_reader;
use super::error::During;
use super::writer::{Urgency, Writer};

/// Most reads at once.
const READERS_MAX: usize = 4;

pub(super) enum Readers {
    /// Connections that only read.
    Pool(Arc<Pool>),
    /// A database in memory belongs to its one connection.
    ThroughWriter(Arc<Writer>),
}

pub(super) struct Pool {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn of_file(path: PathBuf, clock: Arc<dyn Clock>) -> Self {
        let permits = Arc::new(Semaphore::new(READERS_MAX));
        Self::Pool(Arc::new(Pool { path, clock, idle: Mutex::default(), permits }))
    }

    /// Runs a read that sees one state of the database from beginning to end.
    pub(super) async fn read<T, F>(&self, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: Fn(&Connection, Timestamp) -> Result<T> + Send + 'static,
    {
        match self {
            Self::ThroughWriter(writer) => {
                writer.call(Urgency::Normal, 1, move |tx| read(tx.connection, tx.now)).await
            }
            Self::Pool(pool) => {
                let pool = Arc::clone(pool);
                let closed = |_| Error::new(ErrorKind::Unavailable, "the sqlite store is closed");
                let permit = Arc::clone(&pool.permits).acquire_owned().await.map_err(closed)?;
                tokio::task::spawn_blocking(move || {
                    let _permit = permit;
                    pool.read(read)
                })
                .await
                .unwrap_or_else(|cause| {
                    Err(Error::new(ErrorKind::Unavailable, "read from sqlite").because(cause))
                })
            }
        }
    }
}

impl Pool {
    fn read<T>(&self, read: impl Fn(&Connection, Timestamp) -> Result<T>) -> Result<T> {
        let idle = self.idle.lock().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => open_reader(&self.path)?,
        };
        let snapshot = connection.unchecked_transaction().during("begin a read")?;
        // The clock after the snapshot: an instant that is over must not be judged by older data.
        let outcome = read(&snapshot, self.clock.now());
        let ended = snapshot.finish().during("end a read");
        if outcome.is_ok() && ended.is_ok() {
            self.idle.lock().push(connection);
        }
        outcome
    }
}
