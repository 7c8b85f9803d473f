//! Statistics that windlass keeps itself: what this process has done, minute by minute, kept in the store, where
//! it is added up with that of all others.
//!
//! Counting happens where metrics are counted, a batch at a time (`count.rs`), and touches memory only. A task
//! in the background saves what is new every some seconds (`save.rs`, `page.rs`), one document for each process
//! and minute, and ends when nothing is new. The leader adds these up to minutes, tens of minutes and hours
//! (`roll_up.rs`). Whoever wants to know reads all of them (`read.rs`). What the documents hold, and how it is
//! added up, is decided in [`windlass_core::statistics`].

mod count;
mod page;
mod read;
mod roll_up;
mod save;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use windlass_core::{Clock, Result, Store, SystemClock, Timestamp};

use count::Live;
use page::Pages;
use read::Reading;
pub use read::{Period, Read};
pub(crate) use roll_up::{Rolled, roll_up};

use crate::identity::fresh_id;

/// The statistics of one client and of all that works through it, and the way to those of all others. Cheap to
/// clone.
#[derive(Clone)]
pub struct Statistics(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    started_at: Timestamp,
    is_enabled: bool,
    /// Sets the documents of this client apart from those of others.
    process: String,
    /// What was counted since the last save.
    live: Mutex<Live>,
    /// What was counted in the last minutes, and how much of that is saved.
    pages: Mutex<Pages>,
    /// One save at a time.
    saving: tokio::sync::Mutex<()>,
    /// The task in the background is there.
    is_saver_up: AtomicBool,
    reading: Reading,
}

impl Statistics {
    pub(crate) fn new(store: &Arc<dyn Store>, is_enabled: bool) -> Self {
        Self::at(store, is_enabled, Arc::new(SystemClock))
    }

    /// The same by another clock.
    pub(crate) fn at(store: &Arc<dyn Store>, is_enabled: bool, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner {
            store: Arc::clone(store),
            started_at: clock.now(),
            clock,
            is_enabled,
            process: fresh_id().to_string(),
            live: Mutex::default(),
            pages: Mutex::default(),
            saving: tokio::sync::Mutex::default(),
            is_saver_up: AtomicBool::new(false),
            reading: Reading::default(),
        }))
    }

    /// True unless the settings say that nothing is to be counted here.
    pub fn is_enabled(&self) -> bool {
        self.0.is_enabled
    }

    /// Saves what is not saved yet. It is saved every some seconds anyway, and when a worker or an upkeep stops; a
    /// program that only submits may want this at its end.
    pub async fn save(&self) -> Result<()> {
        save::save(&self.0).await
    }

    /// What all clients of the store have counted, as of a second ago at most for what was saved until then.
    pub async fn read(&self, period: Period) -> Result<Read> {
        read::read(&self.0, period).await
    }

    fn now(&self) -> Timestamp {
        self.0.clock.now()
    }
}

impl std::fmt::Debug for Statistics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Statistics({})", self.0.process)
    }
}

#[cfg(test)]
mod tests;
