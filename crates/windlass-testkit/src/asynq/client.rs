//! What a Go client does: it enqueues one task per call.

use std::collections::BTreeMap;

use prost::Message;

use super::keys::Keys;
use super::message::TaskMessage;
use super::peer::{GoError, Peer, script};

/// What a task gets that says nothing of it.
const RETRIES: i32 = 25;
const TIMEOUT_S: i64 = 1_800;

/// A task with the options of a Go client.
#[derive(Debug, Clone)]
pub struct GoTask {
    /// Chosen by chance when empty.
    pub id: String,
    /// The type.
    pub kind: String,
    /// Nothing is Go's nil.
    pub payload: Vec<u8>,
    /// The queue.
    pub queue: String,
    /// Most retries.
    pub max_retry: i32,
    /// Longest run; 0 for none.
    pub timeout_s: i64,
    /// End of all runs; 0 for none.
    pub deadline_s: i64,
    /// How long no other of its sort is taken; 0 for no lock.
    pub unique_s: i64,
    /// How much later it is due.
    pub process_in_s: i64,
    /// How long it is kept once it is completed.
    pub retention_s: i64,
    /// The group; empty for none.
    pub group: String,
    /// The submitter's notes.
    pub headers: BTreeMap<String, String>,
}

impl GoTask {
    /// A task with every default.
    pub fn new(kind: &str, payload: impl Into<Vec<u8>>) -> Self {
        Self {
            id: String::new(),
            kind: kind.into(),
            payload: payload.into(),
            queue: "default".into(),
            max_retry: RETRIES,
            timeout_s: 0,
            deadline_s: 0,
            unique_s: 0,
            process_in_s: 0,
            retention_s: 0,
            group: String::new(),
            headers: BTreeMap::new(),
        }
    }

    /// Under this id.
    #[must_use]
    pub fn id(self, id: &str) -> Self {
        Self { id: id.into(), ..self }
    }

    /// In this queue.
    #[must_use]
    pub fn queue(self, queue: &str) -> Self {
        Self { queue: queue.into(), ..self }
    }

    /// The message that asynq makes of it.
    fn message(&self, keys: &Keys) -> TaskMessage {
        let has_end = self.timeout_s != 0 || self.deadline_s != 0;
        let random = || format!("{:032x}", fastrand::u128(..));
        TaskMessage {
            kind: self.kind.clone(),
            payload: self.payload.clone(),
            id: if self.id.is_empty() { random() } else { self.id.clone() },
            queue: self.queue.clone(),
            retry: self.max_retry,
            timeout: if has_end { self.timeout_s } else { TIMEOUT_S },
            deadline: self.deadline_s,
            unique_key: match self.unique_s {
                0 => String::new(),
                _ => keys.lock(&self.kind, &self.payload),
            },
            retention: self.retention_s,
            group_key: self.group.clone(),
            headers: self.headers.clone(),
            ..TaskMessage::default()
        }
    }
}

impl Peer {
    /// Enqueues a task, now, for later or into its group; answers what was written.
    pub async fn enqueue(&self, task: &GoTask) -> Result<TaskMessage, GoError> {
        let keys = Keys::of(&task.queue);
        let message = task.message(&keys);
        self.publish_queue(&task.queue).await;
        let is_unique = task.unique_s > 0;
        let answer = match (task.process_in_s > 0, task.group.is_empty()) {
            (true, _) if is_unique => self.schedule_unique(task, &keys, &message).await?,
            (true, _) => self.schedule(task, &keys, &message).await?,
            (false, false) => self.add_to_group(task, &keys, &message).await?,
            (false, true) if is_unique => self.enqueue_unique(task, &keys, &message).await?,
            (false, true) => self.enqueue_plain(&keys, &message).await?,
        };
        match answer {
            1 => Ok(message),
            0 => Err(GoError::TaskIdConflict),
            _ => Err(GoError::DuplicateTask),
        }
    }

    async fn enqueue_plain(&self, keys: &Keys, message: &TaskMessage) -> Result<i64, GoError> {
        let script = script!("enqueue");
        let mut call = script.key(keys.task(&message.id));
        call.key(keys.key("pending"));
        call.arg(message.encode_to_vec()).arg(&message.id).arg(self.nanos());
        self.run(&call).await
    }

    async fn enqueue_unique(
        &self,
        task: &GoTask,
        keys: &Keys,
        message: &TaskMessage,
    ) -> Result<i64, GoError> {
        let script = script!("enqueue_unique");
        let mut call = script.key(&message.unique_key);
        call.key(keys.task(&message.id)).key(keys.key("pending"));
        call.arg(&message.id).arg(task.unique_s).arg(message.encode_to_vec()).arg(self.nanos());
        self.run(&call).await
    }

    async fn schedule(
        &self,
        task: &GoTask,
        keys: &Keys,
        message: &TaskMessage,
    ) -> Result<i64, GoError> {
        let script = script!("schedule");
        let mut call = script.key(keys.task(&message.id));
        call.key(keys.key("scheduled")).arg(message.encode_to_vec());
        call.arg(self.seconds() + task.process_in_s).arg(&message.id);
        self.run(&call).await
    }

    async fn schedule_unique(
        &self,
        task: &GoTask,
        keys: &Keys,
        message: &TaskMessage,
    ) -> Result<i64, GoError> {
        let script = script!("schedule_unique");
        let mut call = script.key(&message.unique_key);
        call.key(keys.task(&message.id)).key(keys.key("scheduled"));
        // The lock lasts from when the task is due.
        call.arg(&message.id).arg(task.process_in_s + task.unique_s);
        call.arg(self.seconds() + task.process_in_s).arg(message.encode_to_vec());
        self.run(&call).await
    }

    async fn add_to_group(
        &self,
        task: &GoTask,
        keys: &Keys,
        message: &TaskMessage,
    ) -> Result<i64, GoError> {
        let is_unique = task.unique_s > 0;
        let script =
            if is_unique { script!("add_to_group_unique") } else { script!("add_to_group") };
        let mut call = script.key(keys.task(&message.id));
        call.key(keys.group(&task.group)).key(keys.key("groups"));
        call.arg(message.encode_to_vec()).arg(&message.id).arg(self.seconds()).arg(&task.group);
        if is_unique {
            call.key(&message.unique_key).arg(task.unique_s);
        }
        self.run(&call).await
    }
}
