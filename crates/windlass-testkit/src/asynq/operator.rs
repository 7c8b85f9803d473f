//! What Asynqmon and the `asynq` command line change.

use redis::cmd;

use super::keys::{Keys, QUEUES};
use super::peer::{ARCHIVED_MAX, GoError, KEPT_S, Peer, script};

/// Where tasks lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shelf<'a> {
    /// In line.
    Pending,
    /// Running.
    Active,
    /// Due later.
    Scheduled,
    /// To be tried again.
    Retry,
    /// Failed for good.
    Archived,
    /// Kept after their success.
    Completed,
    /// In this group.
    Group(&'a str),
}

impl Shelf<'_> {
    pub(super) fn key(self, keys: &Keys) -> String {
        keys.key(match self {
            Shelf::Pending => "pending",
            Shelf::Active => "active",
            Shelf::Scheduled => "scheduled",
            Shelf::Retry => "retry",
            Shelf::Archived => "archived",
            Shelf::Completed => "completed",
            Shelf::Group(name) => return keys.group(name),
        })
    }
}

impl Peer {
    /// `asynq task run`.
    pub async fn run_task(&self, queue: &str, id: &str) -> Result<(), GoError> {
        self.check_queue(queue).await?;
        let keys = Keys::of(queue);
        let script = script!("run_task");
        let mut call = script.key(keys.task(id));
        call.key(keys.key("pending")).key(keys.key("groups"));
        told(self.run(call.arg(id).arg(keys.key("")).arg(keys.group(""))).await?)
    }

    /// `asynq task runall`.
    pub async fn run_all(&self, queue: &str, shelf: Shelf<'_>) -> Result<i64, GoError> {
        self.check_queue(queue).await?;
        let keys = Keys::of(queue);
        if let Shelf::Group(name) = shelf {
            let script = script!("run_all_aggregating");
            let mut call = script.key(shelf.key(&keys));
            call.key(keys.key("pending")).key(keys.key("groups"));
            return self.run(call.arg(keys.task("")).arg(name)).await;
        }
        let script = script!("run_all");
        let mut call = script.key(shelf.key(&keys));
        self.run(call.key(keys.key("pending")).arg(keys.task(""))).await
    }

    /// `asynq task archive`.
    pub async fn archive_task(&self, queue: &str, id: &str) -> Result<(), GoError> {
        self.check_queue(queue).await?;
        let (keys, now) = (Keys::of(queue), self.seconds());
        let script = script!("archive_task");
        let mut call = script.key(keys.task(id));
        call.key(keys.key("archived")).key(keys.key("groups"));
        call.arg(id).arg(now).arg(now - KEPT_S).arg(ARCHIVED_MAX);
        told(self.run(call.arg(keys.key("")).arg(keys.group(""))).await?)
    }

    /// `asynq task archiveall`.
    pub async fn archive_all(&self, queue: &str, shelf: Shelf<'_>) -> Result<i64, GoError> {
        self.check_queue(queue).await?;
        let (keys, now) = (Keys::of(queue), self.seconds());
        let script = script!("archive_all");
        let mut call = script.key(shelf.key(&keys));
        call.key(keys.key("archived")).key(keys.key("groups"));
        call.arg(now).arg(now - KEPT_S).arg(ARCHIVED_MAX).arg(keys.task(""));
        self.run(call.arg(if let Shelf::Group(name) = shelf { name } else { "" })).await
    }

    /// `asynq task delete`.
    pub async fn delete_task(&self, queue: &str, id: &str) -> Result<(), GoError> {
        self.check_queue(queue).await?;
        let keys = Keys::of(queue);
        let script = script!("delete_task");
        let mut call = script.key(keys.task(id));
        call.key(keys.key("groups")).arg(id);
        told(self.run(call.arg(keys.key("")).arg(keys.group(""))).await?)
    }

    /// `asynq task deleteall`.
    pub async fn delete_all(&self, queue: &str, shelf: Shelf<'_>) -> Result<i64, GoError> {
        self.check_queue(queue).await?;
        let keys = Keys::of(queue);
        let script = match shelf {
            Shelf::Pending => script!("delete_all_pending"),
            _ => script!("delete_all"),
        };
        let mut call = script.key(shelf.key(&keys));
        self.run(call.arg(keys.task(""))).await
    }

    /// `asynq queue pause`; false when it was paused.
    pub async fn pause(&self, queue: &str) -> bool {
        let mut set = cmd("SETNX");
        self.plain(set.arg(Keys::of(queue).key("paused")).arg(self.seconds())).await
    }

    /// `asynq queue resume`; false when it was not paused.
    pub async fn resume(&self, queue: &str) -> bool {
        self.plain(cmd("DEL").arg(Keys::of(queue).key("paused"))).await
    }

    /// `asynq queue remove`, with force or without.
    pub async fn remove_queue(&self, queue: &str, is_forced: bool) -> Result<(), GoError> {
        self.check_queue(queue).await?;
        let keys = Keys::of(queue);
        let script = script!("remove_queue");
        let mut call = script.key(keys.key("pending"));
        for name in ["active", "scheduled", "retry", "archived", "lease"] {
            call.key(keys.key(name));
        }
        let answer: i64 = self.run(call.arg(keys.task("")).arg(i64::from(is_forced))).await?;
        if answer != 1 {
            return Err(GoError::QueueNotEmpty);
        }
        self.plain::<i64>(cmd("SREM").arg(QUEUES).arg(queue)).await;
        Ok(())
    }
}

/// What a script's number says.
fn told(answer: i64) -> Result<(), GoError> {
    match answer {
        1 => Ok(()),
        0 => Err(GoError::NotFound),
        _ => Err(GoError::WrongState),
    }
}
