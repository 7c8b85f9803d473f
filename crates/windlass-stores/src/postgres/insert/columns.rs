//! The rows of new tasks, column by column, and the places where they wait.

use bytes::Bytes;
use windlass_core::unique::Hold;
use windlass_core::{Error, Result, State, Timestamp, duration};

use super::{Coming, Naming, extras_of};
use crate::postgres::batch::{Batch, Place, column, slices};
use crate::postgres::row::{key_bit, lane, signed, size_bit};
use crate::postgres::session::Session;
use crate::postgres::sql;

/// Writes the rows of new tasks, and puts the tasks where they wait.
pub(super) async fn place(
    session: &Session,
    names: &Naming,
    batch: &mut Batch,
    stored: &[&Coming<'_>],
) -> Result<()> {
    if stored.is_empty() {
        return Ok(());
    }
    let columns = Columns::of(names, stored.iter().copied())?;
    let mut run_at = Vec::with_capacity(stored.len());
    for (one, queue) in stored.iter().zip(&columns.queues) {
        let task = one.task;
        let due = task.when.due(batch.now).map(Timestamp::as_millis);
        run_at.push(due.unwrap_or(0));
        let bits = key_bit(one.unique.map(|(_, hold)| hold)) | size_bit(&task.payload);
        let place = Place { seq: one.id.seq, queue: *queue, lane: lane(task.priority, 0), bits };
        let state = match due {
            Some(due) => {
                batch.make_wait(place, due, false);
                State::Scheduled
            }
            None => {
                batch.make_ready(place, None, 0);
                batch.tell_ready(&task.queue);
                State::Pending
            }
        };
        batch.count(*queue, task.priority, state, 1);
    }
    let (extras, payloads) = (slices(&columns.extras), slices(&columns.payloads));
    session
        .execute(
            sql::INSERT_ROWS,
            &[
                &batch.now.as_millis(),
                &columns.seqs,
                &columns.stamps,
                &columns.queues,
                &columns.kinds,
                &columns.priorities,
                &columns.max_retries,
                &columns.max_crashes,
                &columns.timeouts_ms,
                &columns.retentions_ms,
                &extras,
                &payloads,
                &run_at,
            ],
        )
        .await?;
    let keyed: Vec<_> =
        stored.iter().filter(|one| one.idempotency.is_some() || one.unique.is_some()).collect();
    if keyed.is_empty() {
        return Ok(());
    }
    let seqs = column(&keyed, |one| one.id.seq);
    let names: Vec<_> = keyed.iter().map(|one| one.task.idempotency_key.as_deref()).collect();
    let digests: Vec<Option<&[u8]>> =
        keyed.iter().map(|one| one.unique.as_ref().map(|(digest, _)| &digest.0[..])).collect();
    let holds = column(&keyed, |one| match one.unique {
        Some((_, Hold::For(time))) => Some(duration::as_millis_ceil(time)),
        Some((_, Hold::UntilFinished)) | None => None,
    });
    session.execute(sql::INSERT_KEYED, &[&seqs, &names, &digests, &holds]).await?;
    Ok(())
}

/// The columns of rows on their way into `task`.
pub(super) struct Columns {
    pub(super) seqs: Vec<i64>,
    pub(super) stamps: Vec<i64>,
    pub(super) queues: Vec<i32>,
    pub(super) kinds: Vec<i32>,
    pub(super) priorities: Vec<i16>,
    pub(super) max_retries: Vec<i32>,
    pub(super) max_crashes: Vec<i32>,
    pub(super) timeouts_ms: Vec<i64>,
    pub(super) retentions_ms: Vec<i64>,
    pub(super) extras: Vec<Bytes>,
    pub(super) payloads: Vec<Bytes>,
}

impl Columns {
    pub(super) fn of<'c, 't: 'c>(
        names: &Naming,
        coming: impl IntoIterator<Item = &'c Coming<'t>>,
    ) -> Result<Self> {
        let mut columns = Self {
            seqs: Vec::new(),
            stamps: Vec::new(),
            queues: Vec::new(),
            kinds: Vec::new(),
            priorities: Vec::new(),
            max_retries: Vec::new(),
            max_crashes: Vec::new(),
            timeouts_ms: Vec::new(),
            retentions_ms: Vec::new(),
            extras: Vec::new(),
            payloads: Vec::new(),
        };
        for one in coming {
            let task = one.task;
            let unknown = || Error::corrupt("a name was made and is not there");
            columns.seqs.push(one.id.seq);
            columns.stamps.push(one.id.stamp);
            columns.queues.push(names.queues.id(task.queue.as_str()).ok_or_else(unknown)?);
            columns.kinds.push(names.kinds.id(task.kind.as_str()).ok_or_else(unknown)?);
            columns.priorities.push(i16::from(task.priority.as_number()));
            columns.max_retries.push(signed(task.spec.max_retries));
            columns.max_crashes.push(signed(task.spec.max_crashes));
            columns.timeouts_ms.push(duration::as_millis_ceil(task.spec.timeout));
            columns.retentions_ms.push(duration::as_millis_ceil(task.spec.retention));
            columns.extras.push(extras_of(task));
            columns.payloads.push(task.payload.clone());
        }
        Ok(columns)
    }
}
