//! The one thread that writes, and its group commit.
//!
//! Whatever is waiting (inserts, claims, endings, beats) goes into one transaction, and everyone is
//! answered after its commit. While one commit is on its way to the disk the next group collects;
//! a lone call goes at once. Nothing is driven by the caller's runtime: a call whose future is
//! dropped still runs to its end.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;
use tokio::sync::oneshot;
use windlass_core::{Clock, Error, ErrorKind, Reason, Result};

use super::connection::{bound_log, log_bytes_max, while_busy};
use super::error::During;
use super::transaction::Tx;
use super::watch::{self, Watch};
use crate::wakes::{News, Wakes};

/// Most items that one transaction takes up, unless a single call brings more.
const ITEMS_MAX: usize = 1_000;
/// Longest time that one transaction collects.
const COLLECT_MAX: Duration = Duration::from_millis(5);
/// How often the thread looks how much room is left for the write-ahead log.
const ROOM_EVERY: Duration = Duration::from_secs(1);

/// The way in to the writing thread.
#[derive(Debug)]
pub(super) struct Writer {
    inbox: Arc<Inbox>,
    thread: Option<JoinHandle<()>>,
}

/// How soon a call is taken up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    /// In turn.
    Normal,
    /// Before all others: beats, so that no load can cost a worker its leases.
    Urgent,
}

/// Calls that wait for the thread.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    calls: Mutex<Calls>,
    arrived: Condvar,
}

#[derive(Default)]
struct Calls {
    urgent: VecDeque<Box<dyn Call>>,
    normal: VecDeque<Box<dyn Call>>,
    is_closed: bool,
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Calls({} urgent, {} normal)", self.urgent.len(), self.normal.len())
    }
}

impl Inbox {
    /// Makes the thread look around: someone has begun to wait.
    pub(super) fn nudge(&self) {
        // Under the lock, so that it cannot fall between the thread's look and its rest.
        let _calls = self.calls.lock();
        self.arrived.notify_one();
    }
}

impl Calls {
    fn take(&mut self) -> Option<Box<dyn Call>> {
        self.urgent.pop_front().or_else(|| self.normal.pop_front())
    }
}

/// A call on its way through a transaction; may be run again after a rollback.
trait Call: Send {
    fn items(&self) -> usize;
    fn run(&mut self, tx: &mut Tx<'_>) -> Result<()>;
    fn answer(self: Box<Self>, commit: Result<()>);
}

struct Work<T, F> {
    items: usize,
    work: F,
    outcome: Option<Result<T>>,
    reply: oneshot::Sender<Result<T>>,
}

impl<T: Send, F: FnMut(&mut Tx<'_>) -> Result<T> + Send> Call for Work<T, F> {
    fn items(&self) -> usize {
        self.items
    }

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        // A panic must not take the thread, and with it every other caller, down.
        let work = AssertUnwindSafe(|| (self.work)(tx));
        let outcome = catch_unwind(work)
            .unwrap_or_else(|_| Err(Error::internal("a write to sqlite panicked")));
        // A refusal is an answer: by contract it comes before anything was written. Trouble with
        // the database is not, and takes the transaction with it.
        let trouble = outcome.as_ref().err().filter(|error| {
            matches!(
                error.kind(),
                ErrorKind::Unavailable | ErrorKind::Corrupt | ErrorKind::Internal
            )
        });
        let verdict = trouble.map_or(Ok(()), |error| Err(error.clone()));
        self.outcome = Some(outcome);
        verdict
    }

    fn answer(self: Box<Self>, commit: Result<()>) {
        let outcome = match (commit, self.outcome) {
            (Ok(()), Some(outcome)) => outcome,
            (Err(error), _) => Err(error),
            (Ok(()), None) => Err(closed()),
        };
        // The caller may have gone; its work is done all the same.
        let _ = self.reply.send(outcome);
    }
}

impl Writer {
    /// Starts the thread, which ends when this is dropped.
    pub(super) fn start(inbox: Arc<Inbox>, state: WriterState) -> Result<Self> {
        let its_inbox = Arc::clone(&inbox);
        let thread = std::thread::Builder::new()
            .name("windlass-sqlite".into())
            .spawn(move || state.serve(&its_inbox))
            .map_err(|cause| {
                Error::new(ErrorKind::Unavailable, "start the writing thread").because(cause)
            })?;
        Ok(Self { inbox, thread: Some(thread) })
    }

    /// Runs work in a transaction with others and answers after its commit. The work may be run
    /// more than once, of which only the last counts.
    pub(super) async fn call<T, F>(&self, urgency: Urgency, items: usize, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Tx<'_>) -> Result<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let call = Box::new(Work { items, work, outcome: None, reply });
        {
            let mut calls = self.inbox.calls.lock();
            match urgency {
                Urgency::Normal => calls.normal.push_back(call),
                Urgency::Urgent => calls.urgent.push_back(call),
            }
        }
        self.inbox.arrived.notify_one();
        answer.await.unwrap_or_else(|_| Err(closed()))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.inbox.calls.lock().is_closed = true;
        self.inbox.arrived.notify_one();
        // Waits until the file is closed: then its log has gone back into it, and it can be copied.
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the writing thread panicked");
        }
    }
}

/// What the writing thread owns.
pub(super) struct WriterState {
    pub(super) connection: Connection,
    /// Where other processes may write too.
    pub(super) path: Option<PathBuf>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) wakes: Arc<Wakes>,
    pub(super) error_bytes_max: usize,
    /// When a write last found no room or no right; told to whoever asks how the store does.
    pub(super) refused: Arc<Mutex<Option<(Instant, Error)>>>,
}

impl WriterState {
    fn serve(self, inbox: &Inbox) {
        let mut watch = self.path.as_deref().map(|path| Watch::of(path, &self.connection));
        let mut room = self.path.as_deref().map(LogRoom::of);
        loop {
            let mut calls = inbox.calls.lock();
            if let Some(first) = calls.take() {
                drop(calls);
                if let Some(room) = &mut room {
                    room.look(&self.connection);
                }
                self.serve_group(first, inbox);
            } else if calls.is_closed {
                return;
            } else {
                // An idle process rests until someone calls or waits.
                if watch.is_some() && self.wakes.is_awaited() {
                    inbox.arrived.wait_for(&mut calls, watch::EVERY);
                } else {
                    inbox.arrived.wait(&mut calls);
                }
                drop(calls);
            }
            if let Some(watch) = &mut watch
                && self.wakes.is_awaited()
                && watch.sees_others(&self.connection)
            {
                self.wakes.ring_all();
                let paused = watch.new_pauses(&self.connection);
                self.wakes.tell(News { paused, ..News::default() });
            }
        }
    }

    /// One transaction with all that is waiting.
    fn serve_group(&self, first: Box<dyn Call>, inbox: &Inbox) {
        // In the group from the start: also a transaction that cannot begin is answered to it.
        let mut group = vec![first];
        let outcome = self.commit(|tx| {
            let started = Instant::now();
            let mut items = 0;
            while let Some(call) = group.last_mut() {
                items += call.items();
                call.run(tx)?;
                if items >= ITEMS_MAX || started.elapsed() >= COLLECT_MAX {
                    break;
                }
                match inbox.calls.lock().take() {
                    Some(next) => group.push(next),
                    None => break,
                }
            }
            Ok(())
        });
        match outcome {
            Ok(()) => group.into_iter().for_each(|call| call.answer(Ok(()))),
            Err(error) if group.len() <= 1 => {
                group.into_iter().for_each(|call| call.answer(Err(error.clone())));
            }
            // Each alone, so that one bad call hurts only itself.
            Err(_) => {
                for mut call in group {
                    let outcome = self.commit(|tx| call.run(tx));
                    call.answer(outcome);
                }
            }
        }
    }

    /// Runs work inside `BEGIN IMMEDIATE … COMMIT` and rings afterwards.
    fn commit(&self, work: impl FnOnce(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        while_busy(|| self.connection.execute_batch("BEGIN IMMEDIATE")).during("begin")?;
        let mut tx = Tx::new(&self.connection, self.clock.now(), self.error_bytes_max);
        let outcome = work(&mut tx)
            .and_then(|()| tx.flush())
            .and_then(|()| while_busy(|| self.connection.execute_batch("COMMIT")).during("commit"));
        if let Err(error) = outcome {
            // Some errors have rolled back already.
            if !self.connection.is_autocommit()
                && let Err(cause) = self.connection.execute_batch("ROLLBACK")
            {
                tracing::error!(%cause, "could not roll back");
            }
            if matches!(error.reason(), Reason::StorageFull | Reason::ReadOnly) {
                *self.refused.lock() = Some((Instant::now(), error.clone()));
            }
            return Err(error);
        }
        self.wakes.tell(tx.news);
        Ok(())
    }
}

/// How large the write-ahead log may grow, while others fill the disk too.
struct LogRoom<'a> {
    path: &'a Path,
    bytes: u64,
    looked_at: Instant,
}

impl<'a> LogRoom<'a> {
    fn of(path: &'a Path) -> Self {
        Self { path, bytes: log_bytes_max(path), looked_at: Instant::now() }
    }

    fn look(&mut self, connection: &Connection) {
        if self.looked_at.elapsed() < ROOM_EVERY {
            return;
        }
        self.looked_at = Instant::now();
        let bytes = log_bytes_max(self.path);
        if bytes == self.bytes {
            return;
        }
        match bound_log(connection, bytes) {
            Ok(()) => self.bytes = bytes,
            Err(error) => tracing::warn!(error = error.chain(), "the log keeps its old bound"),
        }
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Unavailable, "the sqlite store is closed")
}
