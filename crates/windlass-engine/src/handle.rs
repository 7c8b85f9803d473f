//! A submitted task, to wait for or to call off.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use windlass_core::dice::Dice;
use windlass_core::store::{Changed, WaitParams};
use windlass_core::{Error, ErrorKind, Result, State, TaskId, TaskRecord};

use crate::client::Client;
use crate::task::Task;
use crate::task_failed::TaskFailed;

/// How long one wait in the store lasts before it is begun anew.
const WAIT_AT_MOST: Duration = Duration::from_secs(30);

/// A submitted task.
pub struct Handle<T> {
    client: Client,
    id: TaskId,
    is_new: bool,
    task: PhantomData<fn() -> T>,
}

impl<T: Task> Handle<T> {
    pub(crate) fn new(client: Client, id: TaskId, is_new: bool) -> Self {
        Self { client, id, is_new, task: PhantomData }
    }

    /// Names the task.
    pub fn id(&self) -> &TaskId {
        &self.id
    }

    /// False when an idempotency or unique key led to a task that was there already.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Everything that is kept of the task.
    pub async fn record(&self) -> Result<TaskRecord> {
        let why = "it was deleted, or it ended and nothing of it is kept";
        let gone = || Error::new(ErrorKind::NotFound, format!("no task {}: {why}", self.id));
        self.client.get(&self.id).await?.ok_or_else(gone)
    }

    /// Calls the task off: at once when it waits, else when its run ends.
    pub async fn cancel(&self) -> Result<Changed> {
        self.client.cancel(&self.id).await
    }

    /// Waits until the task is finished and returns what its handler returned. A task that ended dead or cancelled is
    /// an error of kind `Conflict` whose source is a [`TaskFailed`]; one that is gone is an error of kind `NotFound`.
    ///
    /// A task whose retention is zero may be gone before the wait has begun: give one a retention whose
    /// output you want.
    ///
    /// A store that is away is waited for as well, however long that takes: the task may go on
    /// meanwhile. Who wants to wait no longer than some time says so with `tokio::time::timeout`.
    pub async fn wait(&self) -> Result<T::Output> {
        let mut dice = Dice::thrown();
        loop {
            match self.wait_once().await {
                Ok(Some(output)) => return Ok(output),
                Ok(None) => {}
                Err(error) if error.is_unavailable() => {
                    tracing::debug!(task = %self.id, error = error.chain(), "waiting for the store");
                    let pause = 0.1 + 0.4 * dice.unit();
                    tokio::time::sleep(Duration::from_secs_f64(pause)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// What the handler returned, without waiting: `None` while the task is not finished. Errors as
    /// [`Handle::wait`].
    pub async fn output(&self) -> Result<Option<T::Output>> {
        let record = self.record().await?;
        match record.state {
            State::Completed => self.read(&record).map(Some),
            State::DeadLetter | State::Cancelled => Err(TaskFailed::new(&record).into_error()),
            State::Scheduled | State::Pending | State::Running | State::Retrying => Ok(None),
        }
    }

    async fn wait_once(&self) -> Result<Option<T::Output>> {
        let params = WaitParams {
            tasks: vec![self.id.clone()],
            at_most: WAIT_AT_MOST,
            ..WaitParams::default()
        };
        self.client.store().wait(params).await?;
        self.output().await
    }

    fn read(&self, record: &TaskRecord) -> Result<T::Output> {
        // A handler without a result, in whatever language, has returned null.
        let bytes = record.result.as_deref().unwrap_or(b"null");
        serde_json::from_slice(bytes).map_err(|cause| {
            Error::corrupt(format!("read the result of task {}", self.id)).because(cause)
        })
    }
}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({})", self.id)
    }
}
