//! Change in memory: cancel, rerun, reschedule, delete.

use windlass_core::history::{self, Happening};
use windlass_core::state::{self, CancelVerdict, RerunVerdict};
use windlass_core::store::{Action, ChangeParams, ChangeReply, Changed, Target};
use windlass_core::unique::Exit;
use windlass_core::{Result, State};

use super::model::Model;
use crate::changing::Changes;

impl Model {
    pub(super) fn change(&mut self, params: &ChangeParams) -> Result<ChangeReply> {
        let mut changes = Changes::default();
        match &params.target {
            Target::Tasks(ids) => {
                for id in ids {
                    let number = self.visible(id).map(|row| row.number);
                    let changed =
                        number.map_or(Changed::NotFound, |number| self.change_one(number, params));
                    changes.add(id, changed);
                    changes.reply.outcomes.push(changed);
                }
            }
            Target::Matching { filter, limit, cursor } => {
                let page = self.walk(filter, cursor.as_deref(), *limit)?;
                changes.reply.next_cursor = page.next_cursor;
                for number in page.numbers {
                    let id = self.rows[&number].record.id.clone();
                    let changed = self.change_one(number, params);
                    changes.add(&id, changed);
                }
            }
        }
        if changes.has_deleted() {
            let number = self.next_number();
            self.save(changes.audit(params, self.now(), number));
        }
        Ok(changes.reply)
    }

    fn change_one(&mut self, number: i64, params: &ChangeParams) -> Changed {
        let state = self.rows[&number].record.state;
        if !params.only_in.is_empty() && !params.only_in.contains(&state) {
            return Changed::Conflict(state);
        }
        let by = params.by.clone();
        match params.action {
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
                let row = self.remove(number);
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
                self.news.ordered.extend(row.record.worker.clone());
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
}
