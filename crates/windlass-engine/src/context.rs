//! What a handler knows of its run.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::Serialize;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use windlass_core::dice::Dice;
use windlass_core::limits::check_size;
use windlass_core::state::finish;
use windlass_core::{
    Claimed, Ending, Epoch, Kind, Priority, QueueName, Result, Tag, TaskId, Timestamp, Transition,
    WorkerId,
};

use crate::client::Client;
use crate::leases::Controls;
use crate::link::Link;
use crate::task::encode_result;
use crate::trace;

/// What a handler knows of its run, and the worker's state.
pub struct Context<S> {
    run: RunContext,
    state: Arc<S>,
}

/// The part of a context that does not depend on the worker's state.
#[derive(Clone)]
pub(crate) struct RunContext(Arc<Inner>);

struct Inner {
    /// Without its payload, which the handler has.
    task: Claimed,
    started: Instant,
    controls: Arc<Controls>,
    link: Arc<Link>,
    /// Who delays the report of the run's end; nobody, for most runs.
    holds: OnceLock<TaskTracker>,
}

/// Delays the report of a run's end, and keeps its slot taken, until it is dropped; see [`Context::hold`].
pub struct RunHold {
    _token: TaskTrackerToken,
    controls: Arc<Controls>,
}

impl RunHold {
    /// From when on another worker may run the task, once the lease is lost or about to be; nothing while it is held.
    pub fn lease_end(&self) -> Option<Instant> {
        self.controls.lease_end()
    }
}

impl RunContext {
    pub(crate) fn new(task: &Claimed, controls: Arc<Controls>, link: Arc<Link>) -> Self {
        let task = Claimed { payload: Bytes::new(), ..task.clone() };
        let (started, holds) = (Instant::now(), OnceLock::new());
        Self(Arc::new(Inner { task, started, controls, link, holds }))
    }

    /// Ends when nobody delays the report of the run's end.
    pub(crate) async fn released(&self) {
        if let Some(holds) = self.0.holds.get() {
            holds.close();
            holds.wait().await;
        }
    }

    pub(crate) fn with_state<S>(self, state: Arc<S>) -> Context<S> {
        Context { run: self, state }
    }
}

impl<S> Context<S> {
    /// What the worker was given with `.state(…)`.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// Names the task.
    pub fn task_id(&self) -> &TaskId {
        &self.run.0.task.id
    }

    /// The fencing token of this run: larger than that of any earlier run of this task.
    pub fn epoch(&self) -> Epoch {
        self.run.0.task.epoch
    }

    /// The worker that holds the lease of this run: with the task and the epoch, all that a report of its
    /// end needs.
    pub fn worker_id(&self) -> &WorkerId {
        &self.run.0.controls.worker
    }

    /// The same for every run of this task: the key to hand to a payment provider, which then charges once however
    /// often the task runs. It is the task's id.
    pub fn idempotency_key(&self) -> &str {
        self.run.0.task.id.as_str()
    }

    /// Names this run, and no other run of this task: `task_id:epoch`. A retry has another token.
    pub fn run_token(&self) -> String {
        format!("{}:{}", self.run.0.task.id, self.run.0.task.epoch)
    }

    /// The kind under which the task was submitted.
    pub fn kind(&self) -> &Kind {
        &self.run.0.task.kind
    }

    /// The queue that the task stood in.
    pub fn queue(&self) -> &QueueName {
        &self.run.0.task.queue
    }

    /// The priority of the task in its queue.
    pub fn priority(&self) -> Priority {
        self.run.0.task.priority
    }

    /// The number of this run against the retry budget, from 1.
    pub fn attempt(&self) -> u32 {
        self.run.0.task.attempts
    }

    /// How many runs after the first a failing task may have.
    pub fn max_retries(&self) -> u32 {
        self.run.0.task.spec.max_retries
    }

    /// True when the task is dead if this run fails.
    pub fn is_last_attempt(&self) -> bool {
        self.attempt() > self.max_retries()
    }

    /// How many runs of this task were lost with their worker.
    pub fn crashes(&self) -> u32 {
        self.run.0.task.crashes
    }

    /// The tags that the submitter gave the task.
    pub fn tags(&self) -> &[Tag] {
        &self.run.0.task.spec.extras.tags
    }

    /// The notes that the submitter gave the task.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.run.0.task.spec.extras.metadata
    }

    /// When the task was submitted.
    pub fn created_at(&self) -> Timestamp {
        self.run.0.task.created_at
    }

    /// The instant at which the run is stopped whatever its timeout, if the submitter set one.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.run.0.task.spec.extras.deadline
    }

    /// The present instant by the store's clock, which deadlines and schedules go by. In a test it is the clock of
    /// the harness.
    pub fn now(&self) -> Timestamp {
        self.run.0.link.clock.now()
    }

    /// The W3C trace context to hand on to whatever the handler calls: that of its span where OpenTelemetry knows it
    /// (feature `otel`), else the one that the task was submitted with.
    pub fn traceparent(&self) -> Option<String> {
        trace::traceparent().or_else(|| self.run.0.task.spec.extras.traceparent.clone())
    }

    /// A client of the same store, to submit more tasks.
    pub fn client(&self) -> &Client {
        &self.run.0.link.client
    }

    /// Reports how far the run has come, from 0 to 1. The worker sends the last report of each run once a second; a
    /// task that completes has come to 1.
    pub async fn progress(&self, fraction: f64, note: &str) {
        self.run.0.controls.set_progress(fraction, note);
        self.run.0.link.early_heartbeat.notify_one();
    }

    /// Ends when the run should stop: it was cancelled, or its lease is lost.
    pub async fn cancelled(&self) {
        self.run.0.controls.cancel.cancelled().await;
    }

    /// True when the run should stop.
    pub fn is_cancelled(&self) -> bool {
        self.run.0.controls.cancel.is_cancelled()
    }

    /// Delays the report of this run's end until the hold is dropped, however the run ends: for handlers with
    /// something outside of this process, such as a command, that must be gone before the task runs again.
    /// A run over its timeout, or given up, is dropped; a hold that a background task has taken over lives on.
    /// The lease is renewed meanwhile, and the slot stays taken.
    pub fn hold(&self) -> RunHold {
        let holds = self.run.0.holds.get_or_init(TaskTracker::new);
        RunHold { _token: holds.token(), controls: Arc::clone(&self.run.0.controls) }
    }

    /// What the success of this run comes to, for those who record it by other means than the
    /// worker's, such as the handler's own transaction.
    #[doc(hidden)]
    pub fn completion<O: Serialize>(&self, output: &O) -> Result<Transition> {
        let (run, config) = (&self.run.0, self.client().config());
        let result = encode_result(output)?;
        let size = result.as_ref().map_or(0, Bytes::len);
        check_size("result", size, config.limits.result_bytes_max)?;
        let ending = Ending::Completed { result };
        let transition = finish(&run.task, ending, &config.task.retry, &mut Dice::thrown());
        Ok(transition.took(run.started.elapsed()))
    }
}
