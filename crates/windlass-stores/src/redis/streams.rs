//! The store for the highest rates: streams of ids in consumer groups, records apart.
//!
//! `docs/redis.md` has the keys and the rules. A plain submit, claim, success and promote are one script
//! call for up to 200 tasks. Everything else looks at tasks, lets [`windlass_core::state`] decide, and
//! has them placed by a script if they are still as they were seen (`place`, `row`).
//!
//! The entry of a task in its lane is its fence: it only grows, and a task that is taken from a worker
//! gets a new one.

mod apply;
mod beat;
mod change;
mod claim;
mod document;
mod ears;
mod epoch;
mod expire;
mod id;
mod insert;
mod inspect;
mod keys;
mod large;
mod lead;
mod list;
mod moves;
mod names;
mod news;
mod place;
mod promote;
mod read;
mod record;
mod reply;
mod row;
mod scripts;
mod tend;
mod worker;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use uuid::Uuid;
use windlass_core::event::{EventFilter, EventStream};
use windlass_core::store::{
    ApplyParams, ApplyReply, Beat, Bid, Capabilities, ChangeParams, ChangeReply, Claim,
    ClaimParams, Depth, DocQuery, Document, Durability, Duty, DutyReport, GetParams, Inserted,
    Inspection, Leadership, ListOrder, ListParams, Order, Orders, Page, Profile, QueueRecord,
    Reservation, SaveDoc, Saved, SeriesParams, SeriesPoint, WaitParams, Wake, WorkerRecord,
};
use windlass_core::unique::UniqueScope;
use windlass_core::{
    Error, ErrorKind, NewTask, QueueName, Result, Store, TaskId, TaskRecord, WorkerId,
};

use super::connection::{Line, Link};
use super::options::RedisOptions;
use super::script::Call;
use super::server::ServerFacts;
use crate::wakes::Wakes;
use ears::Ears;
use names::Names;
use news::Herald;
use reply::Reply;

/// Most tasks in one call of a script: more gains nothing, and a script holds up everybody.
const AT_ONCE: usize = 200;

/// How often a wait for the end of tasks looks by itself.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(10);
const LOOK_EVERY_MAX: Duration = Duration::from_secs(1);
/// The same while others are heard.
const LOOK_EVERY_HEARING: Duration = Duration::from_secs(5);

/// A store in Redis, on Streams.
#[derive(Clone)]
pub struct StreamsStore {
    shared: Arc<Shared>,
}

/// One handle: a connection of its own, driven by the runtime that uses it.
struct Shared {
    this: Weak<Shared>,
    common: Arc<Common>,
    /// In front of the keys that belong to no queue.
    fleet: String,
    link: Link,
    ears: Ears,
    herald: Herald,
}

/// What all handles of one opening share.
struct Common {
    options: Arc<RedisOptions>,
    /// Sets what this process tells apart from what others do: it has rung for that already.
    name: String,
    facts: ServerFacts,
    wakes: Wakes,
    names: Names,
    data: Mutex<Data>,
}

/// What is known of the data as such.
#[derive(Default)]
struct Data {
    /// Their name as it was last seen.
    born: Option<String>,
    /// They were not the same any more.
    was_wiped: bool,
}

impl StreamsStore {
    /// Opens a store; asks the server what it promises.
    pub async fn open(options: RedisOptions) -> Result<Self> {
        let options = Arc::new(options);
        let link = Link::new(Arc::clone(&options));
        let facts = ServerFacts::read(&link).await?;
        facts.check(options.allows_eviction)?;
        if let (Durability::Window { loss }, true) = (&facts.durability, options.expects_durable) {
            tracing::warn!(loss, "this redis does not keep all that it acknowledges");
        }
        if let Some(policy) = facts.evicting() {
            tracing::warn!(policy, "this redis throws tasks away when its memory is full");
        }
        let common = Arc::new(Common {
            options,
            name: new_name(),
            facts,
            wakes: Wakes::new(|| {}),
            names: Names::default(),
            data: Mutex::default(),
        });
        let store = Self::on(common, link);
        store.shared.find_data().await?;
        Ok(store)
    }

    fn on(common: Arc<Common>, link: Link) -> Self {
        let shared = Arc::new_cyclic(|this| Shared {
            this: this.clone(),
            fleet: keys::fleet_stem(&common.options.prefix),
            common,
            link,
            ears: Ears::default(),
            herald: Herald::default(),
        });
        Self { shared }
    }
}

/// A name that nobody has had before. Data are given one when they have none, so that data that were made
/// anew are told from those before.
fn new_name() -> String {
    Uuid::new_v4().simple().to_string()
}

impl Shared {
    /// Calls a script.
    async fn ask(&self, call: Call) -> Result<Reply> {
        let name = call.script.name;
        Ok(Reply::new(name, self.link.call(call).await?))
    }

    /// Calls a script over a connection as it was when the call was made.
    async fn ask_over(line: &mut Line<'_>, call: Call) -> Result<Reply> {
        let name = call.script.name;
        Ok(Reply::new(name, line.call(call).await?))
    }

    fn stem(&self, queue: &QueueName) -> String {
        keys::queue_stem(&self.common.options.prefix, queue)
    }

    /// Groups queues by what one call may name: all of them, or on a Cluster each by itself.
    fn by_slot<'a, T>(&self, queues: &'a [T]) -> std::slice::Chunks<'a, T> {
        queues.chunks(if self.common.options.is_cluster() { 1 } else { queues.len().max(1) })
    }

    /// Sees whether windlass has been here before, and gives the data a name if not.
    async fn find_data(&self) -> Result<()> {
        let born = keys::born(&self.fleet);
        if self.common.options.creates {
            let mut command = redis::cmd("SET");
            command.arg(&born).arg(new_name()).arg("NX");
            self.link.command("name the data", &command).await?;
        }
        let mut command = redis::cmd("GET");
        command.arg(&born);
        match self.link.command("find the data", &command).await? {
            redis::Value::BulkString(name) => {
                self.recognise(&String::from_utf8_lossy(&name));
                Ok(())
            }
            _ => {
                let text = "no windlass data in this redis under this prefix";
                Err(Error::new(ErrorKind::NotFound, text))
            }
        }
    }

    /// Compares the name of the data with the one that was seen before; false when someone has wiped
    /// them, or the server came back without them.
    fn recognise(&self, name: &str) -> bool {
        let mut data = self.common.data.lock();
        if data.born.as_deref() == Some(name) {
            return true;
        }
        let is_first = data.born.replace(name.to_owned()).is_none();
        if !is_first {
            data.was_wiped = true;
            tracing::error!(
                prefix = self.common.options.prefix,
                "the data in redis are not those that were there before: they were wiped, or the \
                 server came back without them; every task in them is lost"
            );
        }
        is_first
    }

    async fn wait(&self, params: &WaitParams) -> Result<Wake> {
        if !params.queues.is_empty() && params.since.is_some() {
            self.listen(&params.queues);
        }
        if params.orders.is_some() || !params.tasks.is_empty() {
            self.subscribe_to_news();
        }
        let ended = async |tasks: Vec<TaskId>| self.ended(tasks).await;
        if params.tasks.is_empty() {
            return self.common.wakes.wait(params.clone(), ended).await;
        }
        let started = Instant::now();
        let mut pause = LOOK_EVERY_MIN;
        loop {
            // Asked for before looking, in [`Wakes::wait`]: an end between the two is told.
            self.watch_ends(&params.tasks).await?;
            let left = params.at_most.saturating_sub(started.elapsed());
            let longest = if self.is_hearing() { LOOK_EVERY_HEARING } else { pause };
            let at_most = left.min(longest);
            let wake =
                self.common.wakes.wait(WaitParams { at_most, ..params.clone() }, ended).await?;
            if wake != Wake::TimedOut || left <= longest {
                return Ok(wake);
            }
            pause = (pause + pause.mul_f64(0.5 + fastrand::f64())).min(LOOK_EVERY_MAX);
        }
    }
}

impl fmt::Debug for StreamsStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamsStore").field("options", &self.shared.common.options).finish()
    }
}

#[async_trait]
impl Store for StreamsStore {
    fn profile(&self) -> Profile {
        let common = &self.shared.common;
        Profile {
            name: "redis",
            capabilities: Capabilities {
                has_priorities: true,
                unique_scope: UniqueScope::QueueAndKind,
                schedule_resolution: Duration::from_millis(1),
                list_order: ListOrder::NewestFirst,
                is_shared: true,
                has_transactions: false,
                has_events: false,
                has_series: false,
            },
            durability: common.facts.durability.clone(),
            limits: common.options.limits,
        }
    }

    async fn dedicated(&self) -> Result<Arc<dyn Store>> {
        // A connection is driven by the runtime in which it is made, which is the caller's.
        let common = Arc::clone(&self.shared.common);
        let link = Link::new(Arc::clone(&common.options));
        Ok(Arc::new(Self::on(common, link)))
    }

    async fn inspect(&self, depth: Depth) -> Result<Inspection> {
        self.shared.inspect(depth).await
    }

    async fn reserve(&self, wanted: Vec<Reservation>) -> Result<Vec<TaskId>> {
        Ok(self.shared.reserve(&wanted))
    }

    async fn insert(&self, tasks: Vec<NewTask>) -> Result<Vec<Inserted>> {
        self.shared.insert(&tasks).await
    }

    async fn claim(&self, params: ClaimParams) -> Result<Claim> {
        let mark = self.shared.common.wakes.mark();
        let tasks = self.shared.claim(&params).await?;
        Ok(Claim { tasks, mark })
    }

    async fn apply(&self, params: ApplyParams) -> Result<ApplyReply> {
        let mark = self.shared.common.wakes.mark();
        self.shared.apply(&params, mark).await
    }

    async fn wait(&self, params: WaitParams) -> Result<Wake> {
        self.shared.wait(&params).await
    }

    async fn beat(&self, beat: Beat) -> Result<Orders> {
        let mark = self.shared.common.wakes.mark();
        self.shared.beat(&beat, mark).await
    }

    async fn leave(&self, worker: WorkerId) -> Result<u64> {
        self.shared.leave(&worker).await
    }

    async fn lead(&self, bid: Bid) -> Result<Leadership> {
        self.shared.lead(&bid).await
    }

    async fn promote(&self, duty: Duty) -> Result<DutyReport> {
        self.shared.promote(duty).await
    }

    async fn expire(&self, duty: Duty) -> Result<DutyReport> {
        self.shared.expire(duty).await
    }

    async fn prune(&self, duty: Duty) -> Result<DutyReport> {
        self.shared.prune(duty).await
    }

    async fn tend(&self, duty: Duty) -> Result<DutyReport> {
        self.shared.tend(duty).await
    }

    async fn change(&self, params: ChangeParams) -> Result<ChangeReply> {
        self.shared.change(&params).await
    }

    async fn order(&self, order: Order) -> Result<()> {
        self.shared.order(&order).await
    }

    async fn get(&self, params: GetParams) -> Result<Vec<Option<TaskRecord>>> {
        self.shared.get(&params).await
    }

    async fn list(&self, params: ListParams) -> Result<Page> {
        self.shared.list(&params).await
    }

    async fn queues(&self) -> Result<Vec<QueueRecord>> {
        self.shared.queues().await
    }

    async fn workers(&self) -> Result<Vec<WorkerRecord>> {
        self.shared.workers().await
    }

    async fn series(&self, _params: SeriesParams) -> Result<Vec<SeriesPoint>> {
        Err(Error::unsupported("statistics by minute in redis"))
    }

    async fn load(&self, query: DocQuery) -> Result<Vec<Document>> {
        self.shared.load(&query).await
    }

    async fn save(&self, save: SaveDoc) -> Result<Saved> {
        self.shared.save(&save).await
    }

    async fn subscribe(&self, _filter: EventFilter) -> Result<EventStream> {
        Err(Error::unsupported("live events in redis"))
    }
}
