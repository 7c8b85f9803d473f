//! The outbox: where references to pending tasks go, if a broker stands in front of the database.
//!
//! Every row of `ready` is noted down in the statement that makes it: by triggers (`0007_own_notes.sql`), or
//! by the statement itself where it has to be fast. After the commit, and before the caller is answered,
//! the references are handed to whoever carries them; the notes of those that arrived go behind the
//! caller's back. What is left over is for a sweep.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio_postgres::Row as SqlRow;
use windlass_core::Result;

use super::batch::column;
use super::options::PostgresOptions;
use super::pool::Link;
use super::session::{Purpose, Session};
use super::sql;

/// How long what a claim has left over waits for the next claim, to go along with it.
const REST_WAITS: Duration = Duration::from_millis(1);

/// How long what has arrived stays in the outbox: whoever runs it needs the database now, and one removal
/// does for many. What a crash leaves there is pushed twice, which does no harm.
const FORGET_AFTER: Duration = Duration::from_millis(5);

/// Tasks in one row of `ready`: what one worker takes at once.
pub(super) const REFERRED_TOGETHER: i64 = 100;

/// A row of `ready`, as a broker knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Reference {
    /// The number of the queue.
    pub(crate) queue: i32,
    /// Twice the priority, and one more for suspects.
    pub(crate) lane: i16,
    /// Where the row stands in its lane.
    pub(crate) position: i64,
    /// The number of its first task.
    pub(crate) lo: i64,
    /// The number of its last task, when the reference was made.
    pub(crate) hi: i64,
}

/// A row that a transaction has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Made {
    /// The number of the transaction.
    pub(crate) transaction: i64,
    pub(crate) reference: Reference,
}

impl Made {
    /// Reads what statements tell: transaction, position, lo, hi, queue, lane.
    fn read(row: &SqlRow) -> Self {
        let (position, lo, hi) = (row.get(1), row.get(2), row.get(3));
        let reference = Reference { queue: row.get(4), lane: row.get(5), position, lo, hi };
        Self { transaction: row.get(0), reference }
    }
}

/// Takes references to brokers.
#[async_trait]
pub(crate) trait Carrier: Send + Sync {
    /// Takes references to their brokers, in the order given; answers those that arrived. Does not wait
    /// long for a broker that does not answer.
    async fn carry(&self, made: Vec<Made>) -> Vec<Made>;

    /// True while every broker is there: nobody need look for work in the database, or be told of it.
    fn carries_all(&self) -> bool;
}

/// What a store with a broker does about rows of `ready`.
pub(crate) struct Outbox {
    carrier: Arc<dyn Carrier>,
    /// For what nobody waits for.
    link: Link,
    arrived: Mutex<Arrived>,
    /// Someone who pushes nothing has told of work.
    is_told: AtomicBool,
    /// Rests of claims that no broker has been given yet.
    rests: Mutex<Vec<Made>>,
}

/// References that are with their brokers and still in the outbox.
#[derive(Default)]
struct Arrived {
    made: Vec<Made>,
    is_busy: bool,
}

impl Outbox {
    pub(crate) fn new(options: &PostgresOptions, carrier: Arc<dyn Carrier>) -> Arc<Self> {
        // Without an outbox: nobody is to hold himself.
        let options = Arc::new(PostgresOptions { outbox: None, ..options.clone() });
        let link = Link::new(options, Purpose::Hot, || {});
        let (arrived, is_told) = (Mutex::default(), AtomicBool::new(false));
        Arc::new(Self { carrier, link, arrived, is_told, rests: Mutex::default() })
    }

    /// True while every broker is there.
    pub(super) fn carries_all(&self) -> bool {
        self.carrier.carries_all()
    }

    /// Notes that someone has told of work: whoever pushes tells nobody.
    pub(super) fn heard(&self) {
        self.is_told.store(true, Ordering::Relaxed);
    }

    /// True when someone has told of work since this was last asked.
    pub(super) fn was_told(&self) -> bool {
        self.is_told.swap(false, Ordering::Relaxed)
    }

    /// Hands out what was made, after its commit. Whatever does not arrive stays in the outbox.
    pub(super) async fn hand_out(self: &Arc<Self>, made: Vec<Made>) {
        if made.is_empty() {
            return;
        }
        let arrived = self.carrier.carry(made).await;
        self.forget(arrived);
    }

    /// Notes what a claim has left over. It is handed out in front of the next claim, or in a moment.
    pub(super) fn note_rests(self: &Arc<Self>, rests: Vec<Made>) {
        if rests.is_empty() {
            return;
        }
        let mut waiting = self.rests.lock();
        let is_first = waiting.is_empty();
        waiting.extend(rests);
        drop(waiting);
        if is_first {
            let outbox = Arc::clone(self);
            tokio::spawn(async move {
                tokio::time::sleep(REST_WAITS).await;
                if let Some(handing) = outbox.hand_out_rests() {
                    handing.await;
                }
            });
        }
    }

    /// Hands out what claims before have left over, if there is anything.
    pub(super) fn hand_out_rests(
        self: &Arc<Self>,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let rests = std::mem::take(&mut *self.rests.lock());
        let outbox = (!rests.is_empty()).then(|| Arc::clone(self))?;
        Some(async move { outbox.hand_out(rests).await })
    }

    /// Has what arrived removed from the outbox, in a moment, with what arrives until then.
    fn forget(self: &Arc<Self>, made: Vec<Made>) {
        let mut arrived = self.arrived.lock();
        arrived.made.extend(made);
        if arrived.is_busy || arrived.made.is_empty() {
            return;
        }
        arrived.is_busy = true;
        drop(arrived);
        let outbox = Arc::clone(self);
        tokio::spawn(async move { outbox.forget_arrived().await });
    }

    /// Removes what arrived from the outbox.
    pub(super) async fn remove(&self, made: &[Made]) -> Result<()> {
        let transactions = column(made, |one| one.transaction);
        let los = column(made, |one| one.reference.lo);
        let session = self.link.session().await?;
        session.execute(sql::OUTBOX_FORGET, &[&transactions, &los]).await.map(drop)
    }

    async fn forget_arrived(&self) {
        loop {
            tokio::time::sleep(FORGET_AFTER).await;
            let made = {
                let mut arrived = self.arrived.lock();
                if arrived.made.is_empty() {
                    arrived.is_busy = false;
                    return;
                }
                std::mem::take(&mut arrived.made)
            };
            if let Err(error) = self.remove(&made).await {
                // A sweep will push them once more.
                tracing::debug!(error = error.chain(), "references are still in the outbox");
            }
        }
    }
}

/// Reads what a statement has made.
pub(super) fn made_by(rows: &[SqlRow]) -> Vec<Made> {
    rows.iter().map(Made::read).collect()
}

/// What the transaction that is open on this connection has made so far.
pub(super) async fn made_in(session: &Session) -> Result<Vec<Made>> {
    Ok(made_by(&session.all(sql::OUTBOX_MINE, &[]).await?))
}
