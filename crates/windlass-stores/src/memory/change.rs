//! Change in memory: cancel, rerun, reschedule, delete.

use windlass_core::history::{self, Happening};
use windlass_core::state::{self, CancelVerdict, RerunVerdict};
use windlass_core::store::{
    AUDIT, Action, Audit, ChangeParams, ChangeReply, Changed, SaveDoc, Target,
};
use windlass_core::unique::Exit;
use windlass_core::{Result, State, TaskId};

use super::model::{Model, is_over};
use crate::filter::{SCAN_MAX, matches, read_cursor};

impl Model {
    pub(super) fn change(&mut self, params: ChangeParams) -> Result<ChangeReply> {
        let ChangeParams {
            target,
            action,
            only_in,
            by,
        } = params;
        let mut reply = ChangeReply::default();
        let mut deleted = Vec::new();
        match target {
            Target::Tasks(ids) => {
                for id in ids {
                    let number = self.visible(&id).map(|row| row.number);
                    let changed = number.map_or(Changed::NotFound, |number| {
                        self.change_one(number, action, &only_in, by.as_deref())
                    });
                    count(&mut reply, changed, id, &mut deleted);
                    reply.outcomes.push(changed);
                }
            }
            Target::Matching {
                filter,
                limit,
                cursor,
            } => {
                let now = self.now();
                let below = read_cursor(cursor.as_deref())?;
                let walk: Vec<_> = self
                    .rows
                    .range(..below)
                    .rev()
                    .take(SCAN_MAX)
                    .map(|(number, _)| *number)
                    .collect();
                for number in &walk {
                    if reply.changed_count >= limit as u64 {
                        break;
                    }
                    reply.next_cursor = Some(number.to_string());
                    let row = &self.rows[number];
                    if is_over(row, now) || !matches(&filter, &row.record) {
                        continue;
                    }
                    let id = row.record.id.clone();
                    let changed = self.change_one(*number, action, &only_in, by.as_deref());
                    count(&mut reply, changed, id, &mut deleted);
                }
                let last = reply
                    .next_cursor
                    .as_deref()
                    .map_or(Ok(below), |text| read_cursor(Some(text)))?;
                if self.rows.range(..last).next().is_none() {
                    reply.next_cursor = None;
                }
            }
        }
        self.record_delete(&deleted, action, by);
        Ok(reply)
    }

    fn change_one(
        &mut self,
        number: i64,
        action: Action,
        only_in: &[State],
        by: Option<&str>,
    ) -> Changed {
        let state = self.rows[&number].record.state;
        if !only_in.is_empty() && !only_in.contains(&state) {
            return Changed::Conflict(state);
        }
        let by = by.map(String::from);
        match action {
            Action::Cancel => match state::cancel(state) {
                CancelVerdict::AtOnce => self.cancel_at_once(number, by),
                CancelVerdict::Request => self.request_cancel(number, by),
                CancelVerdict::Finished => Changed::Conflict(state),
            },
            Action::Rerun => match state::rerun(state) {
                RerunVerdict::StartOver => self.start_over(number, by),
                RerunVerdict::RunNow => {
                    self.note(number, Happening::Rerun, by);
                    self.make_pending(number);
                    Changed::Done(Some(State::Pending))
                }
                RerunVerdict::Refused => Changed::Conflict(state),
            },
            Action::Reschedule(when) if state::reschedule(state) => {
                self.note(number, Happening::Rescheduled, by);
                let now = self.now();
                let mut row = self.take(number);
                row.record.run_at = Some(when.due(now).unwrap_or(now));
                self.settle(row, State::Scheduled);
                Changed::Done(Some(State::Scheduled))
            }
            Action::Delete if state::delete(state) => {
                let row = self.take(number);
                self.forget(&row, Exit::Deleted);
                Changed::Done(None)
            }
            Action::Reschedule(_) | Action::Delete => Changed::Conflict(state),
        }
    }

    fn cancel_at_once(&mut self, number: i64, by: Option<String>) -> Changed {
        self.note(number, Happening::Cancelled, by);
        let row = self.take(number);
        self.settle(row, State::Cancelled);
        Changed::Done(Some(State::Cancelled))
    }

    fn request_cancel(&mut self, number: i64, by: Option<String>) -> Changed {
        if !self.rows[&number].record.is_cancel_requested {
            self.note(number, Happening::CancelRequested, by);
            let now = self.now();
            if let Some(row) = self.rows.get_mut(&number) {
                row.record.is_cancel_requested = true;
                row.record.updated_at = now;
            }
        }
        Changed::Requested
    }

    fn start_over(&mut self, number: i64, by: Option<String>) -> Changed {
        let now = self.now();
        let mut row = self.take(number);
        let run = history::last_run(&row.record);
        let record = &mut row.record;
        if let (State::Completed, Some(at)) = (record.state, record.finished_at) {
            record.history.keep_completion(at, run);
        }
        record.history.asked(Happening::Rerun, now, by);
        record.attempts = 0;
        record.crashes = 0;
        record.result = None;
        record.progress = None;
        row.position = self.next_position();
        row.pending_at = now;
        row.was_given_back = false;
        self.settle(row, State::Pending);
        Changed::Done(Some(State::Pending))
    }

    fn note(&mut self, number: i64, what: Happening, by: Option<String>) {
        let now = self.now();
        if let Some(row) = self.rows.get_mut(&number) {
            row.record.history.asked(what, now, by);
        }
    }

    /// A delete must stay on record although the tasks do not.
    fn record_delete(&mut self, deleted: &[TaskId], action: Action, by: Option<String>) {
        if deleted.is_empty() {
            return;
        }
        let at = self.now();
        let audit = Audit {
            by,
            action: Audit::word(action).into(),
            count: deleted.len() as u64,
            tasks: deleted
                .iter()
                .take(Audit::TASKS_MAX)
                .map(ToString::to_string)
                .collect(),
            at,
        };
        let body = serde_json::to_string(&audit).expect("an audit entry is plain JSON");
        let key = format!("{at} {}", deleted[0]);
        let save = SaveDoc {
            class: AUDIT.into(),
            key,
            expected: None,
            body: Some(body),
        };
        self.save(save);
    }
}

fn count(reply: &mut ChangeReply, changed: Changed, id: TaskId, deleted: &mut Vec<TaskId>) {
    match changed {
        Changed::Done(to) => {
            reply.changed_count += 1;
            if to.is_none() {
                deleted.push(id);
            }
        }
        Changed::Requested => {
            reply.changed_count += 1;
            reply.requested_count += 1;
        }
        Changed::Conflict(_) | Changed::NotFound => {}
    }
}
