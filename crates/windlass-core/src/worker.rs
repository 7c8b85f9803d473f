//! A worker: one incarnation of one process that may hold leases.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The ids of workers that lease over HTTP begin like this, and no others.
const REMOTE_PREFIX: &str = "http-";

/// Names one incarnation of a worker; random at every start and never used again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkerId(Arc<str>);

impl WorkerId {
    /// Takes an id as text.
    pub fn new(id: impl AsRef<str>) -> Self {
        Self(id.as_ref().into())
    }

    /// Takes an id as text for a worker that leases over HTTP.
    pub fn remote(id: impl fmt::Display) -> Self {
        Self(format!("{REMOTE_PREFIX}{id}").into())
    }

    /// True for a worker that leases over HTTP, and cannot speak to the store itself.
    pub fn is_remote(&self) -> bool {
        self.0.starts_with(REMOTE_PREFIX)
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
