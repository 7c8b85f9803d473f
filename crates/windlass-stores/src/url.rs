//! From a URL to a store.

use std::sync::Arc;

use windlass_core::{Error, Result, Store, SystemClock};

use crate::memory::MemoryStore;

/// Opens the store that a URL names: `memory:` (gone with the process).
pub async fn open(url: &str) -> Result<Arc<dyn Store>> {
    match url.split_once(':') {
        Some(("memory", "")) => Ok(Arc::new(MemoryStore::new(Arc::new(SystemClock)))),
        _ => Err(Error::invalid(format!("no store for {url}"))),
    }
}
