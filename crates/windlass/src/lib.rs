//! The crate that applications depend on: core, engine and stores under one name.
//!
//! What will live here: `connect(url)`, the prelude and the testing harness. For now it re-exports
//! the contract and opens stores.

pub use windlass_core as core;
pub use windlass_stores::open;
