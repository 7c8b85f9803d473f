//! What an application says of its tasks: a payload that declares itself, and its options.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_core::config::Config;
use windlass_core::retry::Backoff;
use windlass_core::store::RETENTION_DEFAULT;
use windlass_core::task::Extras;
use windlass_core::unique::{Hold, OnConflict, Unique};
use windlass_core::{
    Error, Kind, NewTask, Priority, QueueName, Result, Spec, Tag, TaskId, Timestamp, When,
};

/// The queue of tasks that name none.
pub const DEFAULT_QUEUE: &str = "default";

/// A payload that declares what kind of task it is.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use windlass_engine::{Configure, Options, Task};
///
/// #[derive(Serialize, Deserialize)]
/// struct Welcome { address: String }
///
/// impl Task for Welcome {
///     const KIND: &'static str = "email.welcome";
///     type Output = ();
///     fn defaults() -> Options { Options::new().queue("mail").max_retries(8) }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a windlass task",
    note = "implement `Task` for your payload type: `impl Task for {Self} {{ const KIND: &'static str = \"…\"; type Output = (); }}`"
)]
pub trait Task: Serialize + DeserializeOwned + Send + 'static {
    /// Names the handler; the same in every program that submits or runs it.
    const KIND: &'static str;
    /// What its handler returns.
    type Output: Serialize + DeserializeOwned + Send + 'static;
    /// Options of every task of this kind, unless the submit says otherwise.
    fn defaults() -> Options {
        Options::new()
    }
}

/// Where, when and how often a task runs. Built with the methods of [`Configure`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    queue: Option<String>,
    priority: Option<Priority>,
    when: When,
    max_retries: Option<u32>,
    max_crashes: Option<u32>,
    timeout: Option<Duration>,
    retention: Option<Duration>,
    deadline: Option<Timestamp>,
    backoff: Option<Backoff>,
    tags: Vec<String>,
    metadata: BTreeMap<String, String>,
    idempotency_key: Option<String>,
    unique: Option<Unique>,
    on_conflict: OnConflict,
    traceparent: Option<String>,
    parent: Option<TaskId>,
}

impl Options {
    /// Everything as configured.
    pub fn new() -> Self {
        Self::default()
    }

    /// The queue that a task with these options goes to.
    pub(crate) fn queue_name(&self) -> &str {
        self.queue.as_deref().unwrap_or(DEFAULT_QUEUE)
    }

    /// Sets everything about its unique key at once; a key that is absent is derived from queue,
    /// kind and payload.
    #[must_use]
    pub fn unique_rule(mut self, rule: Unique) -> Self {
        self.on_conflict = rule.on_conflict;
        self.unique = Some(rule);
        self
    }

    /// Makes the checked task that [`crate::Client::insert_all`] takes; what is not set is as
    /// configured. Its id is reserved when it is submitted.
    pub fn into_task(self, kind: &str, payload: Bytes, config: &Config) -> Result<NewTask> {
        let defaults = &config.task;
        let task = NewTask {
            id: TaskId::new("not reserved yet"),
            kind: Kind::new(kind)?,
            queue: QueueName::new(self.queue_name())?,
            priority: self.priority.unwrap_or_default(),
            payload,
            when: self.when,
            spec: Spec {
                max_retries: self.max_retries.unwrap_or(defaults.max_retries),
                max_crashes: self.max_crashes.unwrap_or(defaults.max_crashes),
                timeout: self.timeout.unwrap_or(defaults.timeout),
                retention: self.retention.or(defaults.retention).unwrap_or(RETENTION_DEFAULT),
                extras: Extras {
                    deadline: self.deadline,
                    backoff: self.backoff,
                    tags: self.tags.iter().map(|tag| Tag::new(tag)).collect::<Result<_>>()?,
                    metadata: self.metadata,
                    traceparent: self.traceparent,
                    limit_key: None,
                    parent: self.parent,
                },
            },
            idempotency_key: self.idempotency_key,
            unique: self.unique.map(|unique| Unique { on_conflict: self.on_conflict, ..unique }),
        };
        task.validate(&config.limits)?;
        Ok(task)
    }
}

/// The settings of a task, on [`Options`] and on a submit alike.
pub trait Configure: Sized {
    /// What is being set.
    #[doc(hidden)]
    fn options_mut(&mut self) -> &mut Options;

    /// Into this queue.
    #[must_use]
    fn queue(mut self, queue: &str) -> Self {
        self.options_mut().queue = Some(queue.into());
        self
    }

    /// With this priority inside its queue.
    #[must_use]
    fn priority(mut self, priority: Priority) -> Self {
        self.options_mut().priority = Some(priority);
        self
    }

    /// Not before this time has passed.
    #[must_use]
    fn delay(mut self, delay: Duration) -> Self {
        self.options_mut().when = When::After(delay);
        self
    }

    /// Not before this instant.
    #[must_use]
    fn at(mut self, instant: Timestamp) -> Self {
        self.options_mut().when = When::At(instant);
        self
    }

    /// Runs after the first that a failing task may have.
    #[must_use]
    fn max_retries(mut self, retries: u32) -> Self {
        self.options_mut().max_retries = Some(retries);
        self
    }

    /// Runs lost with their worker that it survives.
    #[must_use]
    fn max_crashes(mut self, crashes: u32) -> Self {
        self.options_mut().max_crashes = Some(crashes);
        self
    }

    /// Longest run.
    #[must_use]
    fn timeout(mut self, timeout: Duration) -> Self {
        self.options_mut().timeout = Some(timeout);
        self
    }

    /// No run starts at or after this instant, and a run is stopped at it.
    #[must_use]
    fn deadline(mut self, deadline: Timestamp) -> Self {
        self.options_mut().deadline = Some(deadline);
        self
    }

    /// The pauses before its retries.
    #[must_use]
    fn backoff(mut self, backoff: Backoff) -> Self {
        self.options_mut().backoff = Some(backoff);
        self
    }

    /// How long the finished task is kept.
    #[must_use]
    fn retention(mut self, retention: Duration) -> Self {
        self.options_mut().retention = Some(retention);
        self
    }

    /// A word to find it by; may be given several times.
    #[must_use]
    fn tag(mut self, tag: &str) -> Self {
        self.options_mut().tags.push(tag.into());
        self
    }

    /// A note of the submitter's; may be given several times.
    #[must_use]
    fn metadata(mut self, key: &str, value: &str) -> Self {
        self.options_mut().metadata.insert(key.into(), value.into());
        self
    }

    /// A repeated submit with this key returns the first task, as long as that is kept.
    #[must_use]
    fn idempotency_key(mut self, key: &str) -> Self {
        self.options_mut().idempotency_key = Some(key.into());
        self
    }

    /// No second task with this key until this one is finished.
    #[must_use]
    fn unique(mut self, key: &str) -> Self {
        self.options_mut().unique = Some(unique(key, Hold::UntilFinished));
        self
    }

    /// No second task with this key for this long, finished or not.
    #[must_use]
    fn unique_for(mut self, key: &str, time: Duration) -> Self {
        self.options_mut().unique = Some(unique(key, Hold::For(time)));
        self
    }

    /// A submit that meets the unique key of another task gets that task instead of an error.
    #[must_use]
    fn or_existing(mut self) -> Self {
        self.options_mut().on_conflict = OnConflict::Return;
        self
    }

    /// The W3C trace context of the submitter.
    #[must_use]
    fn traceparent(mut self, traceparent: &str) -> Self {
        self.options_mut().traceparent = Some(traceparent.into());
        self
    }
}

impl Configure for Options {
    fn options_mut(&mut self) -> &mut Options {
        self
    }
}

fn unique(key: &str, hold: Hold) -> Unique {
    Unique { key: Some(key.into()), hold, on_conflict: OnConflict::Reject }
}

/// The payload as stored: JSON.
pub(crate) fn encode<T: Serialize>(what: &str, value: &T) -> Result<Bytes> {
    serde_json::to_vec(value)
        .map(Bytes::from)
        .map_err(|cause| Error::invalid(format!("write {what} as JSON")).because(cause))
}

/// A result as stored. Nothing stands for null, which is what most handlers return: no store has to
/// write a row for it.
pub(crate) fn encode_result<T: Serialize>(output: &T) -> Result<Option<Bytes>> {
    Ok(Some(encode("the result", output)?).filter(|bytes| &bytes[..] != b"null"))
}
