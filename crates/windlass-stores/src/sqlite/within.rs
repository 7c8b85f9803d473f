//! Submits and completions inside the caller's own transaction, on the caller's own connection to
//! the same file.
//!
//! Each call is all or nothing, also when the caller goes on after its error. What workers of this
//! process learn by a ring they learn here from the file: the writer sees that another connection
//! has committed.

use std::path::Path;

use rusqlite::{Connection, Transaction};
use uuid::Uuid;
use windlass_core::store::{Applied, Inserted};
use windlass_core::{Error, NewTask, Result, State, TaskId, Transition};

use super::SqliteStore;
use super::connection::Place;
use super::error::{During, is_busy};
use super::row::{Row, task_id, uuid_of};
use super::transaction::Tx;
use super::{migrate, sql};

impl SqliteStore {
    /// Stores a task inside a transaction on the same file: it exists if and only if that commits.
    /// Answers the id that it was given.
    ///
    /// The transaction takes the file's write lock here if it has not done so before, and
    /// everything else that writes waits for its end: keep it short. One that has read before may
    /// find that others have written since, and is refused ([`windlass_core::ErrorKind::Unavailable`]);
    /// `TransactionBehavior::Immediate` avoids that.
    pub fn insert_within(
        &self,
        transaction: &Transaction<'_>,
        mut task: NewTask,
    ) -> Result<(TaskId, Inserted)> {
        task.id = task_id(Uuid::now_v7());
        let limits = self.shared.options.limits;
        let inserted = self.within(transaction, |tx| tx.insert(&task, &limits))?;
        Ok((task.id, inserted))
    }

    /// Records the success of a run inside a transaction on the same file: the task is completed if
    /// and only if that commits. A lease that is not valid any more is
    /// [`windlass_core::ErrorKind::LeaseLost`], and the caller must roll back.
    pub fn complete_within(
        &self,
        transaction: &Transaction<'_>,
        completion: &Transition,
    ) -> Result<()> {
        let task = &completion.lease.task;
        self.within(transaction, |tx| match tx.apply(completion)? {
            Applied::Applied(_) => Ok(()),
            // Said twice by its own run; any other end of this run (a timeout, a release) was
            // recorded by the worker that has given it up.
            Applied::Already if tx.is_completed(task)? => Ok(()),
            Applied::Already | Applied::Refused(_) | Applied::Unrecorded => {
                Err(Error::lease_lost(format!("complete task {task} within a transaction")))
            }
        })
    }

    /// Runs work in a nested transaction.
    fn within<T>(
        &self,
        transaction: &Transaction<'_>,
        work: impl FnOnce(&mut Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        let connection: &Connection = transaction;
        self.check_place(connection)?;
        let nest = |step: &str| connection.execute_batch(step).during("nest a transaction");
        nest("SAVEPOINT windlass")?;
        let options = &self.shared.options;
        let (now, error_bytes_max) = (options.clock.now(), options.limits.error_bytes_max);
        let outcome = lock(connection).and_then(|()| {
            let mut tx = Tx::new(connection, now, error_bytes_max);
            let answer = work(&mut tx)?;
            tx.flush()?;
            Ok(answer)
        });
        match outcome {
            Ok(answer) => nest("RELEASE windlass").map(|()| answer),
            Err(error) => {
                // A full disk and its like have ended the whole transaction already.
                if !connection.is_autocommit() {
                    nest("ROLLBACK TO windlass; RELEASE windlass")?;
                }
                Err(error)
            }
        }
    }

    /// Refuses connections to another file.
    fn check_place(&self, connection: &Connection) -> Result<()> {
        let Place::File(ours) = &self.shared.options.place else {
            let text = "transactions of your own need sqlite in a file, not in memory";
            return Err(Error::unsupported(text));
        };
        let theirs = connection.path().map(Path::new);
        let real = |path: &Path| path.canonicalize().ok();
        if theirs.and_then(real).is_none_or(|theirs| Some(theirs) != real(ours)) {
            let ours = ours.display();
            let text = format!("the transaction is not on the file of the store, {ours}");
            return Err(Error::invalid(text));
        }
        Ok(())
    }
}

impl Tx<'_> {
    fn is_completed(&self, task: &TaskId) -> Result<bool> {
        let row = uuid_of(task).map(|id| Row::by_id(self, id)).transpose()?.flatten();
        Ok(row.is_some_and(|row| row.state == State::Completed))
    }
}

/// Takes the write lock, and looks whether the schema is the one that is known here.
fn lock(connection: &Connection) -> Result<()> {
    // Before anything is read: a transaction that reads first and writes then is refused by SQLite
    // when someone else has written in between.
    let locked = connection.prepare_cached(sql::LOCK).and_then(|mut lock| lock.execute([]));
    if !locked.as_ref().is_err_and(is_busy) {
        migrate::check(connection)?;
    }
    locked.map(drop).during("take the write lock")
}
