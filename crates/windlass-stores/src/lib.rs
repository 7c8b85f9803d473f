//! The places where windlass keeps tasks, each behind [`windlass_core::Store`].
//!
//! This is the only crate that talks to a database. Every store has a folder with the same file
//! names in it; its statements are files under `sql/`, named after the methods of the trait.
//! Stores do not import each other.

use std::sync::Arc;

use windlass_core::{Error, Result, Store};

/// Opens the store that a URL names.
pub async fn open(url: &str) -> Result<Arc<dyn Store>> {
    Err(Error::invalid(format!("no store for {url}")))
}
