//! Parameters and answers of `reserve` and `insert`.

use crate::clock::Timestamp;
use crate::error::Error;
use crate::name::QueueName;
use crate::task::TaskId;

/// A wish for ids; some stores write the queue into the id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// The queue that the tasks will stand in.
    pub queue: QueueName,
    /// How many ids.
    pub count: usize,
}

/// What became of one inserted task.
#[derive(Debug, Clone)]
pub enum Inserted {
    /// It is stored under the id that it carries.
    New {
        /// The store's time when this call stored it: with it, [`crate::NewTask::into_record`] makes the record that
        /// the store has, and nobody need read that back. Absent where an earlier call has stored it; a store need
        /// not tell it to an application that stores a task in its own transaction.
        created_at: Option<Timestamp>,
    },
    /// A task with its idempotency key, or with its unique key under
    /// [`crate::unique::OnConflict::Return`], is there already; nothing was stored.
    Existing {
        /// The task that is there.
        id: TaskId,
        /// False when the idempotency key was used for a different kind, queue or payload.
        is_same_request: bool,
    },
    /// Its unique key is held by another task; nothing was stored.
    Conflict {
        /// The task that holds the key; its record may be gone already.
        holder: TaskId,
    },
    /// It cannot be stored as it is.
    Bad(Error),
}

impl Inserted {
    /// True for [`Inserted::New`].
    pub fn is_new(&self) -> bool {
        matches!(self, Self::New { .. })
    }

    /// When this call has stored it, if it has.
    pub fn created_at(&self) -> Option<Timestamp> {
        match self {
            Self::New { created_at } => *created_at,
            Self::Existing { .. } | Self::Conflict { .. } | Self::Bad(_) => None,
        }
    }
}
