//! A queue in the hands of an operator.

use windlass_core::store::{Order, QueueRecord, RunOrder};
use windlass_core::{QueueName, Result, State};

use crate::client::Client;
use crate::task_query::{ChangeCounts, TaskQuery};

/// A queue, to pause, resume or purge it. A wrong name is reported by each call.
///
/// ```
/// # async fn operate(client: windlass_engine::Client) -> windlass_core::Result<()> {
/// let mail = client.queue("mail");
/// mail.pause().await?;
/// let waiting = mail.record().await?.map(|queue| queue.counts.total());
/// mail.resume().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct QueueHandle {
    client: Client,
    name: String,
}

impl QueueHandle {
    pub(crate) fn new(client: Client, name: &str) -> Self {
        Self { client, name: name.into() }
    }

    /// Stops the queue from giving out tasks, until [`QueueHandle::resume`]. Submits are accepted, running tasks finish,
    /// and workers release what they have claimed and not started. A queue that is not there is created.
    pub async fn pause(&self) -> Result<()> {
        self.order(RunOrder::Pause).await
    }

    /// Lets the queue give out tasks again.
    pub async fn resume(&self) -> Result<()> {
        self.order(RunOrder::Run).await
    }

    /// Removes everything that waits in the queue: pending, scheduled and retrying tasks.
    pub async fn purge(&self) -> Result<ChangeCounts> {
        State::WAITING.iter().fold(self.tasks(), |tasks, state| tasks.state(*state)).delete().await
    }

    /// The tasks of the queue.
    pub fn tasks(&self) -> TaskQuery {
        self.client.tasks().queue(&self.name)
    }

    /// What the store keeps of the queue; `None` where it has none of this name.
    pub async fn record(&self) -> Result<Option<QueueRecord>> {
        let name = QueueName::new(&self.name)?;
        let queues = self.client.watched().queues().await?;
        Ok(queues.into_iter().find(|queue| queue.name == name))
    }

    async fn order(&self, order: RunOrder) -> Result<()> {
        let queue = QueueName::new(&self.name)?;
        self.client.watched().order(Order::Queue { queue, order }).await?;
        Ok(())
    }
}
