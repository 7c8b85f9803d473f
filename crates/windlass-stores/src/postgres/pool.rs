//! The connections of a store: a few that are shared and pipelined, and some for transactions. One that
//! nobody has used for a while is closed: a fleet of idle processes must not fill the server.
//!
//! A caller may be dropped at any time (a timeout, a client that went away). Whatever it has begun
//! runs on in a task of its own, to its end, so that no connection is left in the middle of
//! something.

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Semaphore, SemaphorePermit};
use windlass_core::{Error, ErrorKind, Result};

use super::error::is_worth_repeating;
use super::options::PostgresOptions;
use super::outbox;
use super::session::{Purpose, Session};
use super::sql;

/// Most transactions and reads at once.
pub(super) const TRANSACTIONS_MAX: usize = 8;
/// Most heartbeats at once. A worker sends one at a time; a server sends those of all remote workers.
pub(super) const HEARTBEATS_MAX: usize = 2;
/// Least time between two looks whether a connection is idle for too long.
const IDLE_LOOK_MIN: Duration = Duration::from_millis(20);
/// Least time between two tries to connect; doubled up to [`PAUSE_MAX`] while they fail.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How often a transaction is tried that the server undoes for the sake of another.
const TRIES_MAX: u64 = 20;

/// A connection that many callers share; made anew when it is lost.
pub(super) struct Link {
    options: Arc<PostgresOptions>,
    purpose: Purpose,
    kept: Arc<Mutex<Kept>>,
    connecting: AsyncMutex<Pause>,
    /// Called before a new connection is used.
    connected: Box<dyn Fn() + Send + Sync>,
    /// Called with each notification.
    on_notification: Arc<dyn Fn(&str) + Send + Sync>,
}

/// The connection of a link, and when somebody last asked for it.
#[derive(Default)]
struct Kept {
    session: Option<Arc<Session>>,
    used_at: Option<Instant>,
}

#[derive(Default)]
struct Pause {
    length: Duration,
    until: Option<Instant>,
    why: Option<Error>,
}

impl Link {
    /// `connected` is called whenever a connection was made, before it is used.
    pub(super) fn new(
        options: Arc<PostgresOptions>,
        purpose: Purpose,
        connected: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let connected = Box::new(connected);
        Self {
            options,
            purpose,
            kept: Arc::default(),
            connecting: AsyncMutex::default(),
            connected,
            on_notification: Arc::new(|_| {}),
        }
    }

    /// Sets the handler for notifications; they come once a connection listens.
    pub(super) fn on_notification(
        mut self,
        handler: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        self.on_notification = Arc::new(handler);
        self
    }

    pub(super) async fn session(&self) -> Result<Arc<Session>> {
        if let Some(session) = self.present() {
            return Ok(session);
        }
        let mut pause = self.connecting.lock().await;
        if let Some(session) = self.present() {
            return Ok(session);
        }
        if let (Some(until), Some(why)) = (pause.until, &pause.why)
            && Instant::now() < until
        {
            return Err(why.clone());
        }
        let handler = Arc::clone(&self.on_notification);
        let handler = move |text: &str| handler(text);
        match Session::reconnect(&self.options, self.purpose, handler).await {
            Ok(session) => {
                let session = Arc::new(session);
                (self.connected)();
                let used_at = Some(Instant::now());
                *self.kept.lock() = Kept { session: Some(Arc::clone(&session)), used_at };
                *pause = Pause::default();
                let (kept, this) = (Arc::downgrade(&self.kept), Arc::downgrade(&session));
                tokio::spawn(close_when_idle(kept, this, self.options.connection_idle_max));
                Ok(session)
            }
            Err(error) => {
                // Many callers fail at once; only one of them should knock.
                pause.length = (pause.length * 2).clamp(PAUSE_MIN, PAUSE_MAX);
                pause.until = Some(Instant::now() + pause.length);
                pause.why = Some(error.clone());
                Err(error)
            }
        }
    }

    fn present(&self) -> Option<Arc<Session>> {
        let mut kept = self.kept.lock();
        let session = kept.session.as_ref().filter(|session| !session.is_closed()).cloned()?;
        kept.used_at = Some(Instant::now());
        Some(session)
    }
}

/// Closes the connection of a link once nobody has used it for so long; ends when it is replaced.
async fn close_when_idle(kept: Weak<Mutex<Kept>>, this: Weak<Session>, idle_max: Duration) {
    loop {
        let left = {
            let Some(kept) = kept.upgrade() else { return };
            let mut kept = kept.lock();
            let (Some(session), Some(used_at)) = (&kept.session, kept.used_at) else { return };
            if session.is_closed() || !std::ptr::eq(Arc::as_ptr(session), this.as_ptr()) {
                return;
            }
            let left = idle_max.saturating_sub(used_at.elapsed());
            // Whoever uses it holds it.
            if left.is_zero() && Arc::strong_count(session) == 1 {
                kept.session = None;
                return;
            }
            left
        };
        tokio::time::sleep(left.max(IDLE_LOOK_MIN)).await;
    }
}

/// Connections for transactions and reads, each used by one caller at a time.
pub(super) struct Pool {
    options: Arc<PostgresOptions>,
    purpose: Purpose,
    idle: Arc<Mutex<Idle>>,
    permits: Semaphore,
}

/// Connections that nobody uses, the one used last on top, each with the moment since when.
#[derive(Default)]
struct Idle {
    sessions: Vec<(Session, Instant)>,
    /// Somebody looks when they are to be closed.
    is_watched: bool,
}

impl Pool {
    pub(super) fn new(options: Arc<PostgresOptions>, purpose: Purpose, most: usize) -> Self {
        Self { options, purpose, idle: Arc::default(), permits: Semaphore::new(most) }
    }

    /// A connection that nobody else uses meanwhile.
    pub(super) async fn get(&self) -> Result<Held<'_>> {
        let permit = self.permits.acquire().await.map_err(|cause| {
            Error::new(ErrorKind::Unavailable, "get a connection to postgres").because(cause)
        })?;
        let idle = std::iter::from_fn(|| self.idle.lock().sessions.pop());
        let session = match idle.map(|(session, _)| session).find(|one| !one.is_closed()) {
            Some(session) => session,
            None => Session::reconnect(&self.options, self.purpose, |_| {}).await?,
        };
        session.wait_patiently(false);
        Ok(Held { session, pool: self, _permit: permit })
    }

    /// Takes over a connection that is in the middle of nothing.
    pub(super) fn adopt(&self, session: Session) {
        let mut idle = self.idle.lock();
        idle.sessions.push((session, Instant::now()));
        if !std::mem::replace(&mut idle.is_watched, true) {
            let watch = IdleWatch(Arc::downgrade(&self.idle));
            tokio::spawn(watch.close_idle(self.options.connection_idle_max));
        }
    }

    /// A connection with a transaction begun on it.
    pub(super) async fn begin(&self) -> Result<Held<'_>> {
        let held = self.get().await?;
        held.session.control("BEGIN").await?;
        Ok(held)
    }
}

/// Closes connections of a pool that are idle for too long, while it has any. Dropped early, with its
/// runtime, it leaves that to the next.
struct IdleWatch(Weak<Mutex<Idle>>);

impl IdleWatch {
    async fn close_idle(self, idle_max: Duration) {
        loop {
            let left = {
                let Some(idle) = self.0.upgrade() else { return };
                let mut idle = idle.lock();
                idle.sessions.retain(|(one, since)| !one.is_closed() && since.elapsed() < idle_max);
                let longest = idle.sessions.iter().map(|(_, since)| since.elapsed()).max();
                let Some(longest) = longest else {
                    idle.is_watched = false;
                    return;
                };
                idle_max.saturating_sub(longest)
            };
            tokio::time::sleep(left.max(IDLE_LOOK_MIN)).await;
        }
    }
}

impl Drop for IdleWatch {
    fn drop(&mut self) {
        if let Some(idle) = self.0.upgrade() {
            idle.lock().is_watched = false;
        }
    }
}

/// A connection out of the pool. Dropped without a word, as in a panic, it is closed, and the server
/// rolls back.
pub(super) struct Held<'p> {
    pub(super) session: Session,
    pool: &'p Pool,
    _permit: SemaphorePermit<'p>,
}

impl Held<'_> {
    /// Gives the connection back.
    pub(super) fn back(self) {
        if !self.session.is_closed() {
            self.pool.adopt(self.session);
        }
    }

    /// Commits, or rolls back after an error, and gives the connection back.
    pub(super) async fn end<T>(self, answer: Result<T>) -> Result<T> {
        let answer = match answer {
            Ok(answer) => {
                return match &self.pool.options.outbox {
                    None => self.commit().await.map(|()| answer),
                    Some(outbox) => {
                        let made = self.commit_and_tell().await?;
                        outbox.hand_out(made).await;
                        Ok(answer)
                    }
                };
            }
            Err(error) => {
                if let Err(cause) = self.session.control("ROLLBACK").await {
                    tracing::debug!(error = cause.chain(), "a rollback failed");
                    return Err(error);
                }
                Err(error)
            }
        };
        self.back();
        answer
    }

    async fn commit(self) -> Result<()> {
        let committed = self.session.control("COMMIT").await;
        self.back();
        committed
    }

    /// Commits; answers which rows of `ready` the transaction has made.
    async fn commit_and_tell(self) -> Result<Vec<outbox::Made>> {
        // Prepared, so that it is sent before the commit, and both at once.
        self.session.prepare(sql::OUTBOX_MINE).await?;
        let (made, committed) = tokio::join!(
            biased;
            outbox::made_in(&self.session),
            self.session.control("COMMIT"),
        );
        self.back();
        committed.map(|()| made)?
    }
}

/// How often something was tried.
#[derive(Default)]
pub(super) struct Tries(u64);

impl Tries {
    /// Whether an error is worth another try; waits a moment before it is.
    pub(super) async fn again(&mut self, error: &Error) -> bool {
        self.0 += 1;
        if self.0 >= TRIES_MAX || !is_worth_repeating(error) {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..=self.0 * 5))).await;
        true
    }
}

/// Runs work in a transaction, again where the server undoes it for the sake of another.
macro_rules! transaction {
    ($pool:expr, $session:ident => $work:expr) => {{
        let mut tries = $crate::postgres::pool::Tries::default();
        loop {
            let held = $pool.begin().await?;
            let answer = {
                let $session = &held.session;
                $work.await
            };
            match held.end(answer).await {
                Err(error) if tries.again(&error).await => {}
                answer => break answer,
            }
        }
    }};
}

pub(super) use transaction;

/// Runs work to its end, whatever becomes of the caller.
pub(crate) async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    tokio::spawn(work).await.unwrap_or_else(|cause| {
        Err(Error::new(ErrorKind::Unavailable, "work with postgres").because(cause))
    })
}
