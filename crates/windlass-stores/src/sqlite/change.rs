//! Change in SQLite: cancel, rerun, reschedule, delete.

use windlass_core::history::Happening;
use windlass_core::state::{self, CancelVerdict, RerunVerdict};
use windlass_core::store::{Action, ChangeParams, ChangeReply, Changed, Target};
use windlass_core::unique::Exit;
use windlass_core::{Result, State, Timestamp};

use super::list::Walk;
use super::row::{Row, uuid_of};
use super::sql;
use super::transaction::Tx;
use crate::changing::Changes;

impl Tx<'_> {
    pub(super) fn change(&mut self, params: &ChangeParams) -> Result<ChangeReply> {
        let mut changes = Changes::default();
        match &params.target {
            Target::Tasks(ids) => {
                for id in ids {
                    let row = match uuid_of(id) {
                        Some(id) => Row::by_id(self, id)?,
                        None => None,
                    };
                    let changed = match row.filter(|row| !row.is_over(self.now)) {
                        Some(row) => self.change_one(row, params)?,
                        None => Changed::NotFound,
                    };
                    changes.add(id, changed);
                    changes.reply.outcomes.push(changed);
                }
            }
            Target::Matching { filter, limit, cursor } => {
                let walk = Walk { filter, cursor: cursor.as_deref(), limit: *limit, now: self.now };
                let step = walk.step(self.connection, |row| row.get::<_, i64>(0))?;
                changes.reply.next_cursor = step.next_cursor;
                self.each(&step.found, |tx, row| {
                    let id = row.task_id();
                    let changed = tx.change_one(row, params)?;
                    changes.add(&id, changed);
                    Ok(())
                })?;
            }
        }
        if changes.has_deleted() {
            let number = self.next_number()?;
            self.save(&changes.audit(params, self.now, number))?;
        }
        Ok(changes.reply)
    }

    fn change_one(&mut self, mut row: Row, params: &ChangeParams) -> Result<Changed> {
        let (state, now) = (row.state, self.now);
        if !params.only_in.is_empty() && !params.only_in.contains(&state) {
            return Ok(Changed::Conflict(state));
        }
        let by = params.by.clone();
        Ok(match params.action {
            Action::Cancel => match state::cancel(state) {
                CancelVerdict::AtOnce => {
                    row.remember(|history| history.asked(Happening::Cancelled, now, by));
                    row.settle(self, State::Cancelled, None)?;
                    Changed::Done(Some(State::Cancelled))
                }
                CancelVerdict::Request => {
                    self.request_cancel(row, by)?;
                    Changed::Requested
                }
                CancelVerdict::Finished => Changed::Conflict(state),
            },
            Action::Rerun => match state::rerun(state) {
                RerunVerdict::Refused => Changed::Conflict(state),
                verdict @ (RerunVerdict::StartOver | RerunVerdict::RunNow) => {
                    self.rerun(row, verdict, by)?;
                    Changed::Done(Some(State::Pending))
                }
            },
            Action::Reschedule(when) if state::reschedule(state) => {
                row.remember(|history| history.asked(Happening::Rescheduled, now, by));
                row.run_at = Some(when.due(now).unwrap_or(now).as_millis());
                row.settle(self, State::Scheduled, None)?;
                Changed::Done(Some(State::Scheduled))
            }
            Action::Delete if state::delete(state) => {
                row.forget(self, Exit::Deleted)?;
                Changed::Done(None)
            }
            Action::Reschedule(_) | Action::Delete => Changed::Conflict(state),
        })
    }

    fn request_cancel(&mut self, mut row: Row, by: Option<String>) -> Result<()> {
        if row.is_cancel_requested {
            return Ok(());
        }
        let now = self.now;
        row.remember(|history| history.asked(Happening::CancelRequested, now, by));
        self.execute(sql::CANCEL_REQUEST, (row.number, now.as_millis(), row.history()))?;
        self.news.ordered.extend(row.run(self)?.map(|run| run.worker));
        Ok(())
    }

    fn rerun(&mut self, mut row: Row, verdict: RerunVerdict, by: Option<String>) -> Result<()> {
        let now = self.now;
        if verdict == RerunVerdict::StartOver {
            if let (State::Completed, Some(at)) = (row.state, row.finished_at) {
                let run = row.run(self)?;
                let at = Timestamp::from_millis(at);
                row.remember(|history| history.keep_completion(at, run));
            }
            row.attempts = 0;
            row.crashes = 0;
        }
        row.remember(|history| history.asked(Happening::Rerun, now, by));
        row.queue_up(self)
    }
}
