//! The contract between windlass and the places where tasks are kept.
//!
//! [`Store`] is the only seam: the engine and the server know no store by name. The conformance
//! suite in `windlass-testkit` asks every store for every rule that is written here.
//!
//! # Rules for all methods
//!
//! - **Time is the store's.** Callers send delays; the store adds them to its own clock. What lasts
//!   until an instant is over *at* that instant: a key is free, a record hidden, a task due.
//! - **Batches.** A method that takes a list answers each item, in the order given; one bad item
//!   hurts only itself. A method that fails as a whole has changed nothing, or (after a lost
//!   connection) may have: repeating `insert`, `apply`, `beat` and `lead` is always safe.
//! - **Fences.** Every write of a worker is conditional on the task's state *and* epoch, every write
//!   of a leader on its term. What is refused is told, not swallowed.
//! - **Cost.** A claim does not get dearer with backlog, history or dead rows; counts are kept, not
//!   computed.
//! - **Honesty.** What a store cannot offer answers [`crate::ErrorKind::Unsupported`], and its
//!   [`Capabilities`] say so.

mod apply;
mod change;
mod claim;
mod document;
mod insert;
mod kinds;
mod lead;
mod live;
mod presence;
mod profile;
mod read;

use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;

pub use apply::{Applied, ApplyParams, ApplyReply, Refusal};
pub use change::{Action, ChangeParams, ChangeReply, Changed, Target};
pub use claim::{CLAIM_BYTES_MAX, Claim, ClaimParams, PrioritySet, Quota};
pub use document::{AUDIT, Audit, DocQuery, Document, SaveDoc, Saved};
pub use insert::{Inserted, Reservation};
pub use kinds::{HandledKinds, NAMED_KINDS_MAX};
pub use lead::{Bid, Duty, DutyReport, Leadership, Term};
pub use live::{
    BROADCAST_BYTES_MAX, Broadcast, BroadcastStream, IdlePoll, WaitParams, Wake, WakeMark,
};
pub use presence::{
    Beat, GONE_WORKER_KEPT, HeldLeases, Order, Orders, ProgressReport, RunOrder, WorkerCard,
    WorkerRecord,
};
pub use profile::{
    BrokerState, Capabilities, Depth, Durability, Finding, Inspection, ListOrder, Profile,
    RETENTION_DEFAULT, RefusedReferences, Severity, WriteRefusal,
};
pub use read::{
    Filter, GetParams, IDLE_QUEUE_KEPT, ListParams, Page, Parts, QueueRecord, StateCounts,
};

use crate::error::Result;
use crate::task::{NewTask, TaskId, TaskRecord};
use crate::worker::WorkerId;

/// A place where tasks are kept.
#[async_trait]
pub trait Store: Any + Send + Sync {
    /// Name, capabilities, durability and limits. Never waits.
    fn profile(&self) -> Profile;

    /// The same store for a caller that must not be held up by others: heartbeats run through it on
    /// a thread and runtime of their own, so that neither a blocked handler nor a busy pool can
    /// cost a worker its leases.
    async fn dedicated(&self) -> Result<Arc<dyn Store>>;

    /// [`Depth::Ping`] asks whether the store answers and what time it has; [`Depth::Full`] also
    /// looks for everything that an operator should know, which may take a while;
    /// [`Depth::Repair`] then mends what can be mended without loss (counters).
    async fn inspect(&self, depth: Depth) -> Result<Inspection>;

    /// Makes ids for [`Store::insert`], in the order asked for. Asks the store at most once per
    /// block of ids, most often not at all. Ids that are never inserted are lost without harm.
    async fn reserve(&self, wanted: Vec<Reservation>) -> Result<Vec<TaskId>>;

    /// Stores tasks, each durable when this returns, and wakes workers that wait for them.
    ///
    /// Inside one call tasks become pending in the order given. Repeating a call with the same ids
    /// answers [`Inserted::New`] again and stores nothing twice, as long as the record exists; an id
    /// that is in use for another kind, queue or payload is [`Inserted::Bad`]. An
    /// item that fails validation, or asks for what the store cannot carry (a priority where there
    /// are none), is [`Inserted::Bad`]. Of both keys, the idempotency key is looked
    /// at first; a task takes both or neither.
    async fn insert(&self, tasks: Vec<NewTask>) -> Result<Vec<Inserted>>;

    /// Leases pending tasks to a worker.
    ///
    /// The quotas are served in the order given, each at most as far as it says, until `limit` is
    /// reached; a queue may be named again later in the list. Inside a queue the higher priority
    /// goes first, then the task that became pending first; work that was given back, and a
    /// suspect, may stand elsewhere among those of its priority. A paused queue gives nothing.
    ///
    /// At most `suspects_at_most` of the tasks have two crashes or more; others of that sort stay
    /// pending and hold up nobody.
    ///
    /// A claim stops when its payloads have [`CLAIM_BYTES_MAX`] bytes: one that brings so many may have left
    /// tasks behind.
    ///
    /// A worker that is unknown, has left or was declared lost gets
    /// [`crate::ErrorKind::LeaseLost`] with [`crate::Reason::WorkerLost`]. One whose lease has run out but who is not declared lost
    /// gets nothing until it has beaten again.
    async fn claim(&self, params: ClaimParams) -> Result<Claim>;

    /// Records how runs ended, each only while its lease is valid, and if asked claims the next
    /// tasks in the same trip.
    ///
    /// A lease is valid while the task runs under its epoch. A lease that was applied before is
    /// [`Applied::Already`], whatever the repetition says, at least until a later run of the task was
    /// applied. Anything else is [`Applied::Refused`], except in a queue that is damaged: a report that cannot be
    /// recorded there is [`Applied::Unrecorded`], and those of other queues are recorded. Where a cancel was requested the store takes
    /// `next_if_cancelled` in the same atomic step. A terminal state frees the keys that it frees
    /// by [`crate::unique::is_freed_by`].
    async fn apply(&self, params: ApplyParams) -> Result<ApplyReply>;

    /// Waits until work may be there in one of the queues, one of the tasks is finished or gone, the
    /// worker may have orders, or the time is over.
    ///
    /// A wake-up may be spurious, but none is missed that comes after `since`, the mark of the
    /// claim that found nothing or of the last beat; except that orders given through another process
    /// may wait for the next beat. Dropping the future loses nothing.
    async fn wait(&self, params: WaitParams) -> Result<Wake>;

    /// Registers a worker or renews everything that it holds, in one step.
    ///
    /// Answers which of its queues are paused, which of its runs were cancelled and which of the leases in
    /// `held` it has lost. With `held`, what the store thinks it holds, is not named there and was claimed
    /// longer ago than `held.older_than` goes back to pending: no attempt, no crash (its claim's reply was lost). A
    /// worker that has left or was declared lost gets [`crate::ErrorKind::LeaseLost`] with
    /// [`crate::Reason::WorkerLost`] for [`GONE_WORKER_KEPT`] and until upkeep has forgotten it. Its id is then that of
    /// a new worker: it holds nothing, and the epochs of its former leases are refused as before.
    async fn beat(&self, beat: Beat) -> Result<Orders>;

    /// Ends a worker: everything it holds goes back at once, no attempt spent. Answers how many
    /// tasks went back. Unknown workers are no error.
    async fn leave(&self, worker: WorkerId) -> Result<u64>;

    /// Seeks, renews or resigns the leadership of upkeep.
    ///
    /// Terms grow with every new holding, also of the same holder, across restarts
    /// (`max(last + 1, clock in ms)`). A holder that seeks again while it leads gets its term
    /// again. A renewal after the term has run out is refused even if nobody else leads.
    ///
    /// A seek while another leads only reads, takes no lock and waits for nobody. A seek that meets
    /// another bid, or a step of the last leader, may answer that it follows nobody: seek again in a
    /// moment. Renewals and duties of a leader never wait for those who seek.
    async fn lead(&self, bid: Bid) -> Result<Leadership>;

    /// Moves scheduled and retrying tasks whose time has come to pending, the longest due first.
    async fn promote(&self, duty: Duty) -> Result<DutyReport>;

    /// Declares workers lost whose lease has run out, and takes back what they hold
    /// ([`crate::state::expire`]). Once declared, a worker is not accepted again while it is remembered
    /// ([`GONE_WORKER_KEPT`]).
    async fn expire(&self, duty: Duty) -> Result<DutyReport>;

    /// Removes records whose retention is over, with the keys that they free. (Reads hide them from
    /// the moment it is over.)
    async fn prune(&self, duty: Duty) -> Result<DutyReport>;

    /// The store's own upkeep, whatever it has: keys that have freed themselves, workers that are gone and queues that are
    /// idle for long, space, repairs.
    async fn tend(&self, duty: Duty) -> Result<DutyReport>;

    /// Cancels, reruns, reschedules or deletes tasks, named or found by a filter. A filter is worked
    /// through in bounded pieces: call again with the reply's cursor. A delete leaves one document
    /// of class [`AUDIT`] behind.
    async fn change(&self, params: ChangeParams) -> Result<ChangeReply>;

    /// Tells a queue or a worker to run, pause or drain. A queue that is not known yet is made; a
    /// worker that is unknown or gone is [`crate::ErrorKind::NotFound`].
    ///
    /// No claim that begins after a pause was answered gets a task of the queue. Workers that wait for orders and
    /// serve the queue ([`WaitParams::served_queues`]) are woken, and each beat from then on lists the queue
    /// ([`Orders::paused_queues`]).
    async fn order(&self, order: Order) -> Result<()>;

    /// Reads tasks by id, in the order asked for; `None` where there is none (any more).
    async fn get(&self, params: GetParams) -> Result<Vec<Option<TaskRecord>>>;

    /// Reads a page of tasks, without payloads, results and histories. A page may be short, even
    /// empty; only a missing cursor means the end. A cursor that cannot be read, or a
    /// limit of 0, is [`crate::ErrorKind::Invalid`]. Following the cursors shows every task exactly
    /// once that matches during the whole walk.
    async fn list(&self, params: ListParams) -> Result<Page>;

    /// All queues that have tasks, have had an order, or had tasks within [`IDLE_QUEUE_KEPT`], with counts by state, by
    /// name. A queue that is idle for longer may be forgotten by upkeep.
    async fn queues(&self) -> Result<Vec<QueueRecord>>;

    /// All registered workers, and those that left or were declared lost within the last hour, by id.
    async fn workers(&self) -> Result<Vec<WorkerRecord>>;

    /// Reads small documents (tokens, schedules, limits, settings, audit), by key.
    async fn load(&self, query: DocQuery) -> Result<Vec<Document>>;

    /// Writes or removes one document, if its version is still the expected one.
    async fn save(&self, save: SaveDoc) -> Result<Saved>;

    /// Tells messages to everyone who has subscribed, here and in other processes, in the order given.
    /// Nothing is kept: who subscribes later does not hear them (but for what may still be on its way), and
    /// who is away hears [`Broadcast::Gap`] instead. A message above [`BROADCAST_BYTES_MAX`] is
    /// [`crate::ErrorKind::Invalid`], and none is told.
    async fn publish(&self, messages: Vec<String>) -> Result<()>;

    /// Hears every message that is published after this returns, its own process's too. The stream does not
    /// end: it finds its way back to the store by itself, with [`Broadcast::Gap`] before what comes next.
    /// A subscriber that does not read is not waited for: it finds a gap. Dropping the stream ends it.
    async fn subscribe(&self) -> Result<BroadcastStream>;
}
