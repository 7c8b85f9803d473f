//! The audit: one document for every change that an operator makes. Those of deletes are written by the
//! store, in the same step as the delete; all others here, right after the change.

use windlass_core::store::{Action, Audit};
use windlass_core::{Clock, SystemClock, TaskId};

use crate::access::Caller;
use crate::app::Shared;

/// What somebody did.
#[derive(Debug, Default)]
pub(crate) struct Deed {
    pub(crate) action: &'static str,
    /// To what, where that is not told by the tasks.
    pub(crate) subject: Option<String>,
    pub(crate) count: u64,
    pub(crate) tasks: Vec<TaskId>,
}

impl Deed {
    /// Something done to what is no task.
    pub(crate) fn to(action: &'static str, subject: String) -> Self {
        Self { action, subject: Some(subject), ..Self::default() }
    }
}

/// Notes a change to tasks, unless nothing was changed, or the store has noted it.
pub(crate) async fn note_change(shared: &Shared, caller: &Caller, action: Action, deed: Deed) {
    if deed.count > 0 && action != Action::Delete {
        note(shared, caller, Deed { action: action.as_str(), ..deed }).await;
    }
}

/// Notes what was done. By now it is done, so the caller is not told when this fails; the log is.
pub(crate) async fn note(shared: &Shared, caller: &Caller, deed: Deed) {
    let Deed { action, subject, count, tasks } = deed;
    let tasks = tasks.iter().take(Audit::TASKS_MAX).map(ToString::to_string).collect();
    let by = Some(caller.name());
    let audit = Audit { by, action: action.into(), subject, count, tasks, at: SystemClock.now() };
    let document = audit.document(uuid::Uuid::new_v4().simple());
    if let Err(error) = shared.store().save(document).await {
        tracing::error!(error = error.chain(), ?audit, "a change is missing in the audit");
    }
}
