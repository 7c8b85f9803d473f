//! What reads have in common: matching a filter, bounds, and the cursor of a walk by submission.

use std::time::Duration;

use windlass_core::store::Filter;
use windlass_core::{Error, Result, TaskRecord};

/// Most records that one page looks at before it answers short: a page must not take long because
/// little matches.
pub(crate) const SCAN_MAX: usize = 10_000;

/// How long a worker that is gone is still listed; its mark is kept for longer.
pub(crate) const GONE_WORKER_SHOWN: Duration = Duration::from_secs(3_600);

/// True when a record has everything that the filter asks for.
pub(crate) fn matches(filter: &Filter, record: &TaskRecord) -> bool {
    (filter.states.is_empty() || filter.states.contains(&record.state))
        && filter.queue.as_ref().is_none_or(|queue| *queue == record.queue)
        && filter.kind.as_ref().is_none_or(|kind| *kind == record.kind)
        && filter.priority.is_none_or(|priority| priority == record.priority)
        && filter.tag.as_ref().is_none_or(|tag| record.spec.extras.tags.contains(tag))
        && filter.created_after.is_none_or(|after| record.created_at >= after)
        && filter.created_before.is_none_or(|before| record.created_at < before)
        && filter
            .finished_before
            .is_none_or(|before| record.finished_at.is_some_and(|at| at < before))
}

/// Reads the cursor of a walk from the newest record down: the number of the last one seen.
pub(crate) fn read_cursor(cursor: Option<&str>) -> Result<i64> {
    cursor.map_or(Ok(i64::MAX), |text| {
        text.parse().map_err(|_| Error::invalid(format!("cursor {text:?} is not one of ours")))
    })
}
