//! How an SQLite store is opened.

use std::path::PathBuf;
use std::sync::Arc;

use windlass_core::config::Config;
use windlass_core::limits::Limits;
use windlass_core::{Clock, SystemClock};

use super::connection::Place;

/// Where the data is, and how it is treated.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    pub(super) place: Place,
    pub(super) is_durable: bool,
    pub(super) create: bool,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) limits: Limits,
}

impl SqliteOptions {
    /// A file, made when it is not there; durable.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            place: Place::File(path.into()),
            is_durable: true,
            create: true,
            clock: Arc::new(SystemClock),
            limits: Config::default().limits,
        }
    }

    /// A database in memory, gone with the store.
    pub fn in_memory() -> Self {
        Self { place: Place::Memory, ..Self::at("") }
    }

    /// Waits for the disk at every commit; the default.
    #[must_use]
    pub fn durable(self) -> Self {
        Self { is_durable: true, ..self }
    }

    /// Does not wait for the disk at every commit: a power cut may lose the last moments.
    #[must_use]
    pub fn fast(self) -> Self {
        Self { is_durable: false, ..self }
    }

    /// Refuses to make a new file.
    #[must_use]
    pub fn existing(self) -> Self {
        Self { create: false, ..self }
    }

    /// Tells time by this clock.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Other upper bounds than the defaults.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }
}
