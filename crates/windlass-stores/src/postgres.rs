//! The store for fleets of machines: PostgreSQL 14 or newer.
//!
//! A task's row is written once. Where a task stands is told by which place holds its number, and
//! places hold ranges and sets of numbers, so that claiming and completing write nothing per task:
//! `docs/postgres.md` has the layout and the rules that keep it true. Everything that is not a plain
//! submit, claim or success takes tasks out of their places in a transaction, lets
//! [`windlass_core::state`] decide, and puts them where they belong (`row`, `batch`).

mod apply;
mod batch;
mod beat;
mod between;
mod broadcast;
pub(crate) mod brokered;
mod change;
mod claim;
mod digest;
mod document;
mod ended;
mod error;
mod expire;
mod generation;
mod gone_workers;
mod hints;
mod id;
mod insert;
mod inspect;
mod lead;
mod list;
mod migrate;
mod names;
mod news;
mod options;
pub(crate) mod outbox;
mod pool;
mod pooled;
mod promote;
mod prune;
mod read;
mod reserve;
mod retention;
mod row;
mod session;
mod sql;
mod tls;
mod url;
mod within;

use std::fmt;
use std::future::Future;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Once, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use uuid::Uuid;
use windlass_core::store::{
    ApplyParams, ApplyReply, Beat, Bid, BroadcastStream, Capabilities, ChangeParams, ChangeReply,
    Claim, ClaimParams, Depth, DocQuery, Document, Durability, Duty, DutyReport, GetParams,
    Inserted, Inspection, Leadership, ListOrder, ListParams, Order, Orders, Page, Profile,
    QueueRecord, RETENTION_DEFAULT, Reservation, SaveDoc, Saved, WaitParams, Wake, WorkerRecord,
};
use windlass_core::unique::UniqueScope;
use windlass_core::{
    Error, ErrorKind, NewTask, Result, Store, TaskId, TaskRecord, Timestamp, WorkerId,
};

pub use generation::GenerationRules;
pub use options::{PostgresOptions, Trust};
#[cfg(feature = "sqlx-0_9")]
pub use sqlx;
pub use tokio_postgres;
pub use within::{Bell, Connection};

use crate::broadcasts::{self, Broadcasts};
use crate::queue_sweep::QueueSweep;
use crate::wakes::Wakes;
use crate::worker_sweep::WorkerSweep;
use ended::EndLookups;
use names::Names;
use news::Herald;
use pool::{HEARTBEATS_MAX, Link, Pool, TRANSACTIONS_MAX, to_the_end, transaction};
use session::{Purpose, Session};

/// How long a wait for work trusts hints before it looks by itself, while it hears others. A NOTIFY can be
/// lost only with the connection that would hear it, and whoever notifies nobody is noticed by the leader.
const LOOK_EVERY_LISTENING: Duration = Duration::from_secs(10);

/// A store in a PostgreSQL database.
#[derive(Clone)]
pub struct PostgresStore {
    shared: Arc<Shared>,
}

struct Shared {
    this: Weak<Shared>,
    options: Arc<PostgresOptions>,
    /// Sets this handle's notifications apart from others'.
    name: String,
    /// Sets this schema's locks and notifications apart from others'.
    salt: i64,
    channel: String,
    submits: Link,
    work: Link,
    telling: Link,
    pool: Pool,
    /// For submits that wait for a key of someone's open transaction.
    patient: Pool,
    /// For heartbeats: whatever else goes on, no worker is lost for want of a connection.
    heartbeats: Pool,
    end_lookups: EndLookups,
    opened_at: Instant,
    queues: Names,
    kinds: Names,
    block: Mutex<reserve::Block>,
    /// Tells the schema from any other, once it was asked.
    identity: Mutex<Option<String>>,
    /// How many ranges the next claim had better lock.
    claim_ranges: AtomicI64,
    chores: Mutex<prune::Chores>,
    /// Where the leader looks for workers to forget.
    worker_sweep: Mutex<WorkerSweep>,
    /// When the leader looks for queues to forget.
    queue_sweep: Mutex<QueueSweep>,
    patience: Mutex<retention::Patience>,
    hints: hints::Hints,
    wakes: Arc<Wakes>,
    herald: Herald,
    broadcasts: Arc<Broadcasts>,
}

impl PostgresStore {
    /// Opens a store; its schema is made and migrated if need be.
    pub async fn open(options: PostgresOptions) -> Result<Self> {
        warn_of_unverified_hosts(&options);
        let store = Self::on(Arc::new(options), Arc::new(Wakes::new(|| {})));
        let shared = Arc::clone(&store.shared);
        to_the_end(async move {
            let session = Session::connect(&shared.options, Purpose::Plain, |_| {}).await?;
            migrate::migrate(&session, &shared.options).await?;
            shared.pool.adopt(session);
            Ok(())
        })
        .await?;
        Ok(store)
    }

    /// A handle with connections of its own, made when they are needed.
    fn on(options: Arc<PostgresOptions>, wakes: Arc<Wakes>) -> Self {
        let salt = digest::schema_salt(&options.schema);
        let shared = Arc::new_cyclic(|this: &Weak<Shared>| Shared {
            this: this.clone(),
            name: Uuid::new_v4().simple().to_string(),
            salt,
            channel: format!("windlass_{:016x}", salt.cast_unsigned()),
            submits: Link::new(Arc::clone(&options), Purpose::Hot, forgetting(this)),
            work: Link::new(Arc::clone(&options), Purpose::Hot, forgetting(this))
                .on_notification(news::notification_handler(this)),
            telling: Link::new(Arc::clone(&options), Purpose::News, || {}),
            pool: Pool::new(Arc::clone(&options), Purpose::Plain, TRANSACTIONS_MAX),
            patient: Pool::new(Arc::clone(&options), Purpose::Plain, TRANSACTIONS_MAX),
            heartbeats: Pool::new(Arc::clone(&options), Purpose::Heartbeats, HEARTBEATS_MAX),
            end_lookups: EndLookups::default(),
            opened_at: Instant::now(),
            queues: Names::of_queues(),
            kinds: Names::of_kinds(),
            block: Mutex::default(),
            identity: Mutex::default(),
            claim_ranges: AtomicI64::new(claim::RANGES_MIN),
            chores: Mutex::default(),
            worker_sweep: Mutex::default(),
            queue_sweep: Mutex::default(),
            patience: Mutex::default(),
            hints: hints::Hints::default(),
            wakes,
            herald: Herald::default(),
            broadcasts: Arc::default(),
            options: Arc::clone(&options),
        });
        Self { shared }
    }

    /// Runs work to its end, whatever becomes of the caller.
    async fn run<T, F>(&self, work: impl FnOnce(Arc<Shared>) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        to_the_end(work(Arc::clone(&self.shared))).await
    }
}

/// Warns, once in a process, of servers on the network that need not prove who they are.
fn warn_of_unverified_hosts(options: &PostgresOptions) {
    static WARNED: Once = Once::new();
    let hosts = options.unverified_hosts();
    if !hosts.is_empty() {
        WARNED.call_once(|| {
            tracing::warn!(
                hosts = hosts.join(", "),
                "the connection to postgres is not verified; set sslmode=verify-full in its URL"
            );
        });
    }
}

/// Forgets what was learned over an earlier connection: the next may lead to a database that was
/// restored or made anew, where names and numbers are others.
fn forgetting(this: &Weak<Shared>) -> impl Fn() + Send + Sync + 'static {
    let this = this.clone();
    move || {
        if let Some(shared) = this.upgrade() {
            shared.queues.forget();
            shared.kinds.forget();
            *shared.block.lock() = reserve::Block::default();
            *shared.identity.lock() = None;
        }
    }
}

/// How the schema of a database stands, which is neither made nor changed.
pub(crate) async fn schema_status(options: PostgresOptions) -> Result<crate::SchemaStatus> {
    let session = Session::connect(&options, Purpose::Plain, |_| {}).await?;
    let applied = migrate::version(&session, &options).await?;
    Ok(crate::SchemaStatus { applied, migrations: migrate::MIGRATIONS })
}

/// What brings the schema of a database up to date, as a script.
pub(crate) async fn schema_script(options: PostgresOptions) -> Result<String> {
    let session = Session::connect(&options, Purpose::Plain, |_| {}).await?;
    migrate::script(&session, &options).await
}

/// The schema as text, for `cargo xtask schema`; made and migrated if need be.
pub async fn schema_dump(options: PostgresOptions) -> Result<String> {
    let session = Session::connect(&options, Purpose::Plain, |_| {}).await?;
    migrate::migrate(&session, &options).await?;
    migrate::dump(&session).await
}

impl Shared {
    /// The store's clock.
    async fn now(&self, session: &Session) -> Result<Timestamp> {
        if let Some(told) = self.options.told_time() {
            return Ok(Timestamp::from_millis(told));
        }
        let row = session.one(sql::CLOCK, &[&None::<i64>]).await?;
        let row = row.ok_or_else(|| Error::corrupt("the clock had no answer"))?;
        Ok(Timestamp::from_millis(row.get(0)))
    }

    async fn wait(&self, params: &WaitParams) -> Result<Wake> {
        self.listen();
        let started = Instant::now();
        let mut looks = 0;
        loop {
            let left = params.at_most.saturating_sub(started.elapsed());
            let longest = self.look_after(params, looks);
            let at_most = left.min(longest);
            let ended = async |tasks: Vec<TaskId>| self.ended(tasks).await;
            let wake = self.wakes.wait(WaitParams { at_most, ..params.clone() }, ended).await?;
            if wake != Wake::TimedOut || left <= longest {
                return Ok(wake);
            }
            let is_polled = !params.queues.is_empty() && self.options.is_looked_for();
            if is_polled && self.has_work(params).await? {
                return Ok(Wake::Work);
            }
            looks += 1;
        }
    }

    /// How long a wait that has looked so often goes on before it looks again.
    fn look_after(&self, params: &WaitParams, looks: u32) -> Duration {
        let for_work = match self.is_listening() {
            // Processes that went idle together must not look together.
            true => LOOK_EVERY_LISTENING.mul_f64(0.75 + fastrand::f64() / 4.0),
            false => params.idle_poll.pause(looks, fastrand::f64()),
        };
        match (params.tasks.is_empty(), params.queues.is_empty()) {
            (true, _) => for_work,
            // Nobody notifies of ends.
            (false, true) => ended::pause(looks, self.opened_at.elapsed()),
            (false, false) => for_work.min(ended::pause(looks, self.opened_at.elapsed())),
        }
    }

    /// Which of these tasks are finished or not there, asked for all who wait here at once.
    async fn ended(&self, tasks: Vec<TaskId>) -> Result<Vec<TaskId>> {
        let gone = || Error::new(ErrorKind::Unavailable, "the store was closed");
        let shared = self.this.upgrade().ok_or_else(gone)?;
        let look_up = |shared: Arc<Self>, tasks: Vec<TaskId>| async move {
            let held = shared.pool.get().await?;
            let ended = read::ended(&held.session, &tasks).await;
            held.back();
            ended
        };
        self.end_lookups.ended(tasks, shared, look_up).await
    }

    /// Looks for work on the shared connection: an idle process needs no other for it.
    async fn has_work(&self, params: &WaitParams) -> Result<bool> {
        let names: Vec<_> = params.queues.iter().map(|queue| queue.as_str()).collect();
        let session = self.work.session().await?;
        let row = session.one(sql::WAIT_PROBE, &[&names]).await?;
        Ok(row.is_some_and(|row| row.get(0)))
    }
}

impl AsRef<EndLookups> for Shared {
    fn as_ref(&self) -> &EndLookups {
        &self.end_lookups
    }
}

/// Reads on a connection of the pool.
macro_rules! read {
    ($store:expr, |$shared:ident, $session:ident| $work:expr) => {
        $store.run(|$shared| async move {
            let held = $shared.pool.get().await?;
            let answer = {
                let $session = &held.session;
                $work.await
            };
            held.back();
            answer
        })
    };
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("options", &self.shared.options).finish()
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn profile(&self) -> Profile {
        let options = &self.shared.options;
        Profile {
            name: "postgres",
            capabilities: Capabilities {
                has_priorities: true,
                unique_scope: UniqueScope::Kind,
                schedule_resolution: Duration::from_millis(1),
                list_order: ListOrder::NewestReserved,
                forgets_at_once: false,
                is_shared: true,
                has_transactions: true,
                has_broadcasts: self.shared.options.listens,
            },
            durability: match options.is_durable {
                true => Durability::Durable,
                false => Durability::Window {
                    loss: "a crash of the server may lose the commits of its last moments".into(),
                },
            },
            retention_default: RETENTION_DEFAULT,
            limits: options.limits,
        }
    }

    async fn dedicated(&self) -> Result<Arc<dyn Store>> {
        // Connections are driven by the runtime in which they are made, which is the caller's.
        let options = Arc::clone(&self.shared.options);
        Ok(Arc::new(Self::on(options, Arc::clone(&self.shared.wakes))))
    }

    async fn inspect(&self, depth: Depth) -> Result<Inspection> {
        self.run(|shared| async move { shared.inspect(depth).await }).await
    }

    async fn reserve(&self, wanted: Vec<Reservation>) -> Result<Vec<TaskId>> {
        self.run(|shared| async move { shared.reserve(&wanted).await }).await
    }

    async fn insert(&self, tasks: Vec<NewTask>) -> Result<Vec<Inserted>> {
        self.run(|shared| async move { shared.insert(&tasks).await }).await
    }

    async fn claim(&self, params: ClaimParams) -> Result<Claim> {
        let mark = self.shared.wakes.mark();
        let claiming = self.run(|shared| async move {
            let session = shared.work.session().await?;
            shared.claim(&session, &params).await
        });
        Ok(claiming.await?.into_claim(mark))
    }

    async fn apply(&self, params: ApplyParams) -> Result<ApplyReply> {
        let mark = self.shared.wakes.mark();
        self.run(|shared| async move { shared.apply(&params, mark).await }).await
    }

    async fn wait(&self, params: WaitParams) -> Result<Wake> {
        // Reads only: nothing is left behind by a caller that gives up but a connection, which is
        // closed.
        self.shared.wait(&params).await
    }

    async fn beat(&self, beat: Beat) -> Result<Orders> {
        let mark = self.shared.wakes.mark();
        self.run(|shared| async move { shared.beat(&beat, mark).await }).await
    }

    async fn leave(&self, worker: WorkerId) -> Result<u64> {
        self.run(|shared| async move { shared.leave(&worker).await }).await
    }

    async fn lead(&self, bid: Bid) -> Result<Leadership> {
        self.run(|shared| async move { shared.lead(&bid).await }).await
    }

    async fn promote(&self, duty: Duty) -> Result<DutyReport> {
        self.run(|shared| async move { shared.promote(duty).await }).await
    }

    async fn expire(&self, duty: Duty) -> Result<DutyReport> {
        self.run(|shared| async move { shared.expire(duty).await }).await
    }

    async fn prune(&self, duty: Duty) -> Result<DutyReport> {
        self.run(|shared| async move { shared.prune(duty).await }).await
    }

    async fn tend(&self, duty: Duty) -> Result<DutyReport> {
        self.run(|shared| async move { shared.tend(duty).await }).await
    }

    async fn change(&self, params: ChangeParams) -> Result<ChangeReply> {
        self.run(|shared| async move { shared.change(&params).await }).await
    }

    async fn order(&self, order: Order) -> Result<()> {
        self.run(|shared| async move { shared.order(&order).await }).await
    }

    async fn get(&self, params: GetParams) -> Result<Vec<Option<TaskRecord>>> {
        read!(self, |shared, session| shared.get(session, &params)).await
    }

    async fn list(&self, params: ListParams) -> Result<Page> {
        read!(self, |shared, session| shared.list(session, &params)).await
    }

    async fn queues(&self) -> Result<Vec<QueueRecord>> {
        read!(self, |shared, session| read::queues(session)).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        read!(self, |shared, session| async {
            let now = shared.now(session).await?;
            read::workers(session, now).await
        })
        .await
    }

    async fn load(&self, query: DocQuery) -> Result<Vec<Document>> {
        read!(self, |shared, session| document::load(session, &query)).await
    }

    async fn save(&self, save: SaveDoc) -> Result<Saved> {
        self.run(|shared| async move {
            transaction!(shared.pool, session => async {
                let now = shared.now(session).await?;
                document::save(session, &save, now).await
            })
        })
        .await
    }

    async fn publish(&self, messages: Vec<String>) -> Result<()> {
        broadcasts::check(&messages)?;
        self.shared.options.can_broadcast()?;
        self.shared.publish(&messages).await
    }

    async fn subscribe(&self) -> Result<BroadcastStream> {
        self.shared.options.can_broadcast()?;
        self.shared.hear_broadcasts().await
    }
}
