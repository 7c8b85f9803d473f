//! What a store is and how it does: answers of `profile` and `inspect`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::error::Reason;
use crate::limits::Limits;
use crate::unique::UniqueScope;

/// What a store is.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Its sort, e.g. `sqlite`.
    pub name: &'static str,
    /// What it can do.
    pub capabilities: Capabilities,
    /// What it promises about acknowledged writes.
    pub durability: Durability,
    /// How large things may be.
    pub limits: Limits,
    /// How long completed and cancelled tasks are kept whose submitter does not say.
    pub retention_default: Duration,
}

/// How long completed and cancelled tasks are kept in most stores.
pub const RETENTION_DEFAULT: Duration = Duration::from_secs(86_400);

/// What a store can and cannot do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Tasks of one queue have priorities.
    pub has_priorities: bool,
    /// How far a unique key reaches.
    pub unique_scope: UniqueScope,
    /// How exact a schedule is.
    pub schedule_resolution: Duration,
    /// In what order lists come.
    pub list_order: ListOrder,
    /// A completed task that is kept for no time is gone at its end, without waiting for a prune, and the
    /// memory of that end with it.
    pub forgets_at_once: bool,
    /// Other processes can use the same store at the same time.
    pub is_shared: bool,
    /// A task can be submitted or completed in the caller's own transaction.
    pub has_transactions: bool,
    /// `publish` and `subscribe` work, and reach every process that uses the store.
    pub has_broadcasts: bool,
}

/// In what order a store lists tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListOrder {
    /// The last submitted first.
    NewestFirst,
    /// The last reserved id first: what was reserved early and submitted late stands further down.
    NewestReserved,
    /// One state after the other, newest in that state first.
    StateByState,
}

/// What a store promises about acknowledged writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Durability {
    /// Nothing acknowledged is lost: process kill, power cut, restart.
    Durable,
    /// The writes of the last moments may be lost in a power cut.
    Window {
        /// In words, for people.
        loss: String,
    },
    /// All is lost with the process.
    Volatile,
}

impl Durability {
    /// In one word, as store URLs and answers have it.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Durable => "durable",
            Self::Window { .. } => "fast",
            Self::Volatile => "volatile",
        }
    }
}

/// How closely to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Does it answer?
    Ping,
    /// Is it well?
    Full,
    /// Is it well, and mend what can be mended without loss.
    Repair,
}

/// How a store does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Its clock.
    pub now: Timestamp,
    /// Why it accepts no writes; nothing while it does.
    pub refusal: Option<WriteRefusal>,
    /// The version of the server or library behind it.
    pub version: String,
    /// What an operator should know; for a ping only what is known without looking.
    pub findings: Vec<Finding>,
    /// The brokers in front of it, the urgent one first; most stores have none.
    pub brokers: Vec<BrokerState>,
}

/// Why a store answers, but accepts no writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteRefusal {
    /// Sorts it.
    pub reason: Reason,
    /// Says it in a few words, for `/readyz`: it names no address, path or key.
    pub text: &'static str,
}

impl Inspection {
    /// True while the store accepts writes.
    pub fn is_writable(&self) -> bool {
        self.refusal.is_none()
    }
}

/// How a broker in front of a store is, as this process sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokerState {
    /// `high`, `low`, or `all` where there is only one.
    pub name: &'static str,
    /// It answers.
    pub is_up: bool,
    /// What it gave that could not be used, since the store was opened.
    pub refused: RefusedReferences,
}

/// References to tasks that a broker gave and the database did not honour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RefusedReferences {
    /// They led nowhere, and were dropped.
    pub gone_count: u64,
    /// Their tasks were for another claim, and they went back.
    pub busy_count: u64,
    /// Their queue is paused, and they went back.
    pub paused_count: u64,
}

/// One thing that an operator should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What was looked at, in one word.
    pub subject: &'static str,
    /// What was seen, in a sentence.
    pub text: String,
    /// What to do about it; empty when there is nothing to do.
    pub advice: String,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Just to know.
    Info,
    /// Not good in the long run.
    Warning,
    /// Promises are broken.
    Problem,
}
