//! What a handler knows of its run.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use windlass_core::{Claimed, Epoch, Kind, QueueName, TaskId};

use crate::client::Client;
use crate::leases::ProgressNote;

/// What a handler knows of its run, and the worker's state.
pub struct Context<S> {
    run: RunContext,
    state: Arc<S>,
}

/// The part of a context that does not depend on the worker's state.
#[derive(Clone)]
pub(crate) struct RunContext(Arc<Inner>);

struct Inner {
    id: TaskId,
    epoch: Epoch,
    kind: Kind,
    queue: QueueName,
    attempt: u32,
    crashes: u32,
    cancel: CancellationToken,
    progress: ProgressNote,
    client: Client,
}

impl RunContext {
    pub(crate) fn new(
        task: &Claimed,
        cancel: CancellationToken,
        progress: ProgressNote,
        client: Client,
    ) -> Self {
        Self(Arc::new(Inner {
            id: task.id.clone(),
            epoch: task.epoch,
            kind: task.kind.clone(),
            queue: task.queue.clone(),
            attempt: task.attempts,
            crashes: task.crashes,
            cancel,
            progress,
            client,
        }))
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
        &self.run.0.id
    }

    /// The fencing token of this run: larger than that of any earlier run of this task.
    pub fn epoch(&self) -> Epoch {
        self.run.0.epoch
    }

    /// Differs from run to run; for outside systems that take an idempotency key per attempt.
    pub fn idempotency_token(&self) -> String {
        format!("{}:{}", self.run.0.id, self.run.0.epoch)
    }

    /// The kind under which the task was submitted.
    pub fn kind(&self) -> &Kind {
        &self.run.0.kind
    }

    /// The queue that the task stood in.
    pub fn queue(&self) -> &QueueName {
        &self.run.0.queue
    }

    /// The number of this run against the retry budget, from 1.
    pub fn attempt(&self) -> u32 {
        self.run.0.attempt
    }

    /// How many runs of this task were lost with their worker.
    pub fn crashes(&self) -> u32 {
        self.run.0.crashes
    }

    /// A client of the same store, to submit more tasks.
    pub fn client(&self) -> &Client {
        &self.run.0.client
    }

    /// Tells how far the run has come, from 0 to 1; sent with the next heartbeat.
    pub async fn progress(&self, fraction: f64, note: &str) {
        self.run.0.progress.set(fraction, note);
    }

    /// Ends when the run should stop: it was cancelled, or its lease is lost.
    pub async fn cancelled(&self) {
        self.run.0.cancel.cancelled().await;
    }

    /// True when the run should stop.
    pub fn is_cancelled(&self) -> bool {
        self.run.0.cancel.is_cancelled()
    }
}
