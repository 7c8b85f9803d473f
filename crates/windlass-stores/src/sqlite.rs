//! The embedded store: one SQLite file, no server.
//!
//! One thread writes (`writer`) and commits in groups; reads have connections of their own. What
//! a write does to a task is decided by [`windlass_core::state`] and placed by `row`. Several
//! processes may use one file at once: each transaction begins with the write lock, so what it has
//! checked stays true until it commits.

mod apply;
mod beat;
mod broadcast;
mod change;
mod claim;
mod connection;
mod document;
mod error;
mod expire;
mod insert;
mod inspect;
mod lead;
mod list;
mod migrate;
mod options;
mod promote;
mod prune;
mod read;
mod readers;
mod row;
mod sql;
mod transaction;
mod watch;
mod within;
mod writer;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Notify;
use uuid::Uuid;
use windlass_core::store::{
    ApplyParams, ApplyReply, Beat, Bid, BroadcastStream, Capabilities, ChangeParams, ChangeReply,
    Claim, ClaimParams, Depth, DocQuery, Document, Durability, Duty, DutyReport, GetParams,
    Inserted, Inspection, Leadership, ListOrder, ListParams, Order, Orders, Page, Profile,
    QueueRecord, RETENTION_DEFAULT, Reservation, SaveDoc, Saved, WaitParams, Wake, WorkerRecord,
};
use windlass_core::unique::UniqueScope;
use windlass_core::{
    Error, ErrorKind, NewTask, Reason, Result, Store, TaskId, TaskRecord, WorkerId,
};

pub use options::SqliteOptions;
pub use rusqlite;

use crate::broadcasts::{self, Broadcasts};
use crate::wakes::Wakes;
use connection::Place;
use prune::Sweeps;
use readers::Readers;
use transaction::Tx;
use writer::{Inbox, Urgency, Writer, WriterState};

/// How long a write that found no room speaks for all.
const REFUSAL_COUNTS: Duration = Duration::from_secs(10);

/// A store in an SQLite file, or in memory.
#[derive(Clone)]
pub struct SqliteStore {
    shared: Arc<Shared>,
}

struct Shared {
    writer: Arc<Writer>,
    readers: Readers,
    wakes: Arc<Wakes>,
    options: SqliteOptions,
    /// When a write last found no room or no right.
    refused: Arc<Mutex<Option<(Instant, Error)>>>,
    broadcasts: Arc<Broadcasts>,
    /// This process has written broadcasts.
    published: Arc<Notify>,
    /// Where and when the leader looks for workers and queues to forget.
    sweeps: Arc<Mutex<Sweeps>>,
}

impl SqliteStore {
    /// Opens a file, made and migrated if need be.
    pub async fn open(options: SqliteOptions) -> Result<Self> {
        let opened = tokio::task::spawn_blocking(move || Self::open_blocking(options)).await;
        opened.unwrap_or_else(|cause| Err(Error::internal("open sqlite").because(cause)))
    }

    fn open_blocking(options: SqliteOptions) -> Result<Self> {
        // Before anything is set up, which writes.
        if let Place::File(path) = &options.place
            && !options.create
            && migrate::version(&connection::open_reader(path)?)? == 0
        {
            // Someone else's database, most likely: who only looks must not change it.
            let text = format!("no tasks of windlass in {}", path.display());
            return Err(Error::new(ErrorKind::NotFound, text));
        }
        let mut connection = connection::open_writer(&options)?;
        migrate::migrate(&mut connection)?;
        let inbox = Arc::new(Inbox::default());
        let wakes = Arc::new(Wakes::new({
            let inbox = Arc::clone(&inbox);
            move || inbox.nudge()
        }));
        let refused = Arc::default();
        let state = WriterState {
            connection,
            path: match &options.place {
                Place::Memory => None,
                Place::File(path) => Some(path.clone()),
            },
            clock: Arc::clone(&options.clock),
            wakes: Arc::clone(&wakes),
            error_bytes_max: options.limits.error_bytes_max,
            refused: Arc::clone(&refused),
        };
        let writer = Arc::new(Writer::start(inbox, state)?);
        let readers = match &options.place {
            Place::Memory => Readers::ThroughWriter(Arc::clone(&writer)),
            Place::File(path) => Readers::of_file(path.clone(), Arc::clone(&options.clock)),
        };
        let (broadcasts, published, sweeps) = Default::default();
        let shared =
            Shared { writer, readers, wakes, options, refused, broadcasts, published, sweeps };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Why nothing can be written, if that is so. An empty transaction costs the disk nothing; only who
    /// looks closely, or after a write was refused, has something written.
    async fn refusal(&self, depth: Depth) -> Result<Option<Error>> {
        let refused = self.shared.refused.lock().clone();
        // A small write may find room where a large one does not: the last word counts for a while.
        if let Some((at, error)) = &refused
            && at.elapsed() < REFUSAL_COUNTS
        {
            return Ok(Some(error.clone()));
        }
        let writes = depth != Depth::Ping || refused.is_some();
        let probe = move |tx: &mut Tx<'_>| {
            if writes {
                tx.execute(sql::INSPECT_WRITE, [])?;
            }
            Ok(())
        };
        match self.shared.writer.call(Urgency::Urgent, 1, probe).await {
            Ok(()) if writes => {
                *self.shared.refused.lock() = None;
                Ok(None)
            }
            Ok(()) => Ok(None),
            Err(error) if matches!(error.reason(), Reason::StorageFull | Reason::ReadOnly) => {
                Ok(Some(error))
            }
            Err(error) => Err(error),
        }
    }

    /// Runs work in the next transaction.
    async fn write<T, F>(&self, items: usize, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Tx<'_>) -> Result<T> + Send + 'static,
    {
        self.shared.writer.call(Urgency::Normal, items, work).await
    }
}

/// The schema as text, for `cargo xtask schema`.
pub fn schema_dump() -> Result<String> {
    let mut connection = connection::open_writer(&SqliteOptions::in_memory())?;
    migrate::migrate(&mut connection)?;
    migrate::dump(&connection)
}

/// What the migrations do, for review: any opener of a file carries them out.
pub(crate) fn schema_script() -> String {
    let told = |step: &crate::Migration| format!("-- {}\n{}", step.name, step.sql);
    migrate::MIGRATIONS.iter().map(told).collect()
}

/// How the schema of a file stands, which is neither made nor changed.
pub(crate) async fn schema_status(options: SqliteOptions) -> Result<crate::SchemaStatus> {
    let look = move || {
        let applied = match &options.place {
            Place::Memory => 0,
            Place::File(path) => migrate::version(&connection::open_reader(path)?)?,
        };
        Ok(crate::SchemaStatus { applied, migrations: migrate::MIGRATIONS })
    };
    tokio::task::spawn_blocking(look).await.unwrap_or_else(|cause| {
        Err(Error::new(ErrorKind::Unavailable, "read the schema's version").because(cause))
    })
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("place", &self.shared.options.place).finish()
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn profile(&self) -> Profile {
        let options = &self.shared.options;
        let is_file = matches!(options.place, Place::File(_));
        Profile {
            name: "sqlite",
            capabilities: Capabilities {
                has_priorities: true,
                unique_scope: UniqueScope::Kind,
                schedule_resolution: Duration::from_millis(1),
                list_order: ListOrder::NewestFirst,
                forgets_at_once: false,
                is_shared: is_file,
                has_transactions: is_file,
                has_broadcasts: true,
            },
            durability: match (is_file, options.is_durable) {
                (false, _) => Durability::Volatile,
                (true, true) => Durability::Durable,
                (true, false) => Durability::Window {
                    loss: "a power cut may lose the commits since the last checkpoint".into(),
                },
            },
            retention_default: RETENTION_DEFAULT,
            limits: options.limits,
        }
    }

    async fn dedicated(&self) -> Result<Arc<dyn Store>> {
        // The writing thread is driven by no runtime and takes beats first: nothing to add.
        Ok(Arc::new(self.clone()))
    }

    async fn inspect(&self, depth: Depth) -> Result<Inspection> {
        if depth == Depth::Repair {
            self.write(1, |tx| tx.repair_counts()).await?;
        }
        let refusal = self.refusal(depth).await?;
        let now = self.shared.options.clock.now();
        let mut findings = match depth {
            Depth::Ping => Vec::new(),
            Depth::Full | Depth::Repair => self.shared.readers.read(inspect::findings).await?,
        };
        findings.extend(refusal.as_ref().filter(|_| depth != Depth::Ping).map(inspect::refused));
        let version = format!("SQLite {}", rusqlite::version());
        let refusal = refusal.as_ref().map(inspect::write_refusal);
        Ok(Inspection { now, refusal, version, findings, brokers: Vec::new() })
    }

    async fn reserve(&self, wanted: Vec<Reservation>) -> Result<Vec<TaskId>> {
        let count = wanted.iter().map(|wish| wish.count).sum();
        Ok((0..count).map(|_| row::task_id(Uuid::now_v7())).collect())
    }

    async fn insert(&self, tasks: Vec<NewTask>) -> Result<Vec<Inserted>> {
        let (limits, items) = (self.shared.options.limits, tasks.len());
        let insert =
            move |tx: &mut Tx<'_>| tasks.iter().map(|task| tx.insert(task, &limits)).collect();
        self.write(items, insert).await
    }

    async fn claim(&self, params: ClaimParams) -> Result<Claim> {
        let mark = self.shared.wakes.mark();
        let tasks = self.write(params.limit, move |tx| tx.claim(&params)).await?;
        Ok(Claim::new(tasks, mark))
    }

    async fn apply(&self, params: ApplyParams) -> Result<ApplyReply> {
        let (mark, items) = (self.shared.wakes.mark(), params.transitions.len());
        let apply = move |tx: &mut Tx<'_>| {
            let outcomes =
                params.transitions.iter().map(|t| tx.apply(t)).collect::<Result<Vec<_>>>()?;
            let claim = match &params.then_claim {
                None => None,
                Some(wanted) => match tx.claim(wanted) {
                    Err(error) if !error.is_lease_lost() => return Err(error),
                    answer => Some(answer.map(|tasks| Claim::new(tasks, mark))),
                },
            };
            Ok(ApplyReply { outcomes, claim })
        };
        self.write(items, apply).await
    }

    async fn wait(&self, params: WaitParams) -> Result<Wake> {
        let ended = async |tasks: Vec<TaskId>| {
            let read = move |connection: &_, now| read::ended(connection, &tasks, now);
            self.shared.readers.read(read).await
        };
        self.shared.wakes.wait(params, ended).await
    }

    async fn beat(&self, beat: Beat) -> Result<Orders> {
        let mark = self.shared.wakes.mark();
        self.shared.writer.call(Urgency::Urgent, 1, move |tx| tx.beat(&beat, mark)).await
    }

    async fn leave(&self, worker: WorkerId) -> Result<u64> {
        self.write(1, move |tx| tx.leave(&worker)).await
    }

    async fn lead(&self, bid: Bid) -> Result<Leadership> {
        if let Bid::Seek { holder, .. } = &bid {
            let holder = holder.clone();
            let read = move |connection: &_, now| lead::leader_beside(connection, &holder, now);
            if let Some(following) = self.shared.readers.read(read).await? {
                return Ok(following);
            }
        }
        self.shared.writer.call(Urgency::Urgent, 1, move |tx| tx.lead(&bid)).await
    }

    async fn promote(&self, duty: Duty) -> Result<DutyReport> {
        self.write(duty.limit, move |tx| tx.promote(duty)).await
    }

    async fn expire(&self, duty: Duty) -> Result<DutyReport> {
        self.write(duty.limit, move |tx| tx.expire(duty)).await
    }

    async fn prune(&self, duty: Duty) -> Result<DutyReport> {
        self.write(duty.limit, move |tx| tx.prune(duty)).await
    }

    async fn tend(&self, duty: Duty) -> Result<DutyReport> {
        let sweeps = Arc::clone(&self.shared.sweeps);
        self.write(duty.limit, move |tx| tx.tend(duty, &mut sweeps.lock())).await
    }

    async fn change(&self, params: ChangeParams) -> Result<ChangeReply> {
        self.write(1, move |tx| tx.change(&params)).await
    }

    async fn order(&self, order: Order) -> Result<()> {
        self.write(1, move |tx| tx.order(&order)).await
    }

    async fn get(&self, params: GetParams) -> Result<Vec<Option<TaskRecord>>> {
        let read = move |connection: &_, now| read::get(connection, &params, now);
        self.shared.readers.read(read).await
    }

    async fn list(&self, params: ListParams) -> Result<Page> {
        let read = move |connection: &_, now| read::list(connection, &params, now);
        self.shared.readers.read(read).await
    }

    async fn queues(&self) -> Result<Vec<QueueRecord>> {
        self.shared.readers.read(|connection, _| read::queues(connection)).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        self.shared.readers.read(read::workers).await
    }

    async fn load(&self, query: DocQuery) -> Result<Vec<Document>> {
        self.shared.readers.read(move |connection, _| document::load(connection, &query)).await
    }

    async fn save(&self, save: SaveDoc) -> Result<Saved> {
        self.write(1, move |tx| tx.save(&save)).await
    }

    async fn publish(&self, messages: Vec<String>) -> Result<()> {
        broadcasts::check(&messages)?;
        self.write(messages.len(), move |tx| tx.publish(&messages)).await?;
        self.shared.published.notify_waiters();
        Ok(())
    }

    async fn subscribe(&self) -> Result<BroadcastStream> {
        let shared = Arc::downgrade(&self.shared);
        self.shared.broadcasts.hear(move |ear| broadcast::tail(shared.clone(), ear)).await
    }
}
