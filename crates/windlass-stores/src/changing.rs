//! What changes have in common: counting what was done, and the record of a delete.

use windlass_core::store::{Audit, ChangeParams, ChangeReply, Changed, SaveDoc, Target};
use windlass_core::{TaskId, Timestamp};

/// The reply to a change as it comes together.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) reply: ChangeReply,
    deleted: Vec<TaskId>,
}

impl Changes {
    /// Counts what was done to one task.
    pub(crate) fn add(&mut self, id: &TaskId, changed: Changed) {
        match changed {
            Changed::Done(Some(_)) => self.reply.changed_count += 1,
            Changed::Done(None) => {
                self.reply.changed_count += 1;
                self.deleted.push(id.clone());
            }
            Changed::Requested => {
                self.reply.changed_count += 1;
                self.reply.requested_count += 1;
            }
            Changed::Conflict(_) | Changed::HeldElsewhere(_) | Changed::NotFound => {}
        }
    }

    /// True when there is a delete to tell of.
    pub(crate) fn has_deleted(&self) -> bool {
        !self.deleted.is_empty()
    }

    /// The document that tells of a delete, which must stay on record although the tasks do not.
    /// `number` sets it apart from others of the same moment.
    pub(crate) fn audit(&self, params: &ChangeParams, at: Timestamp, number: i64) -> SaveDoc {
        let subject = match &params.target {
            Target::Tasks(_) => None,
            Target::Matching { filter, .. } => Some(filter.to_string()),
        };
        let audit = Audit {
            by: params.by.clone(),
            action: params.action.as_str().into(),
            subject,
            count: self.deleted.len() as u64,
            tasks: self.deleted.iter().take(Audit::TASKS_MAX).map(ToString::to_string).collect(),
            at,
        };
        audit.document(format_args!("{number:020}"))
    }
}
