//! Parameters and answers of `load` and `save`: small documents with compare-and-set.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// The class of the documents that tell who changed what.
pub const AUDIT: &str = "audit";

/// A small piece of JSON kept beside the tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Its sort, e.g. `token`, `schedule`, `audit`.
    pub class: String,
    /// Its name among its sort.
    pub key: String,
    /// Grows with every write, from 1.
    pub version: u64,
    /// The JSON text, unchanged.
    pub body: String,
    /// When it was last written.
    pub updated_at: Timestamp,
}

/// Which documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocQuery {
    /// One.
    One {
        /// Its sort.
        class: String,
        /// Its name.
        key: String,
    },
    /// All of a sort, by key.
    Class {
        /// The sort.
        class: String,
        /// Only keys after this one.
        after: Option<String>,
        /// How many at most.
        limit: usize,
    },
}

/// A write of one document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaveDoc {
    /// Its sort.
    pub class: String,
    /// Its name.
    pub key: String,
    /// The version that the writer has seen; `None` when it must not exist yet.
    pub expected: Option<u64>,
    /// The new JSON text; `None` removes it.
    pub body: Option<String>,
}

/// What a write came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saved {
    /// It is written in this version, or removed.
    Done(Option<u64>),
    /// Someone else was there before: the version that is there now, if any.
    Outdated(Option<u64>),
}

/// What an audit document tells: one for every change that an operator makes, and for every delete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// Who, if they said.
    pub by: Option<String>,
    /// What.
    pub action: String,
    /// To what, where that is not told by the tasks: a queue, a worker, a token, a filter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// To how many tasks.
    pub count: u64,
    /// The first hundred of them.
    pub tasks: Vec<String>,
    /// When.
    pub at: Timestamp,
}

impl Audit {
    /// How many ids one entry names.
    pub const TASKS_MAX: usize = 100;

    /// The document that keeps it. Keys are in the order of time; `mark` sets this one apart from others of
    /// the same moment.
    pub fn document(&self, mark: impl std::fmt::Display) -> SaveDoc {
        SaveDoc {
            class: AUDIT.into(),
            key: format!("{} {mark}", self.at),
            expected: None,
            body: Some(serde_json::to_string(self).expect("an audit entry is plain JSON")),
        }
    }
}
