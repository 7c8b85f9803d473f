//! A task to be submitted in a test: everything has a default, each call changes one thing.

use std::time::Duration;

use bytes::Bytes;
use windlass_core::task::Extras;
use windlass_core::unique::{Hold, OnConflict, Unique};
use windlass_core::{Kind, NewTask, Priority, QueueName, Spec, Tag, TaskId, When};

/// The queue of tasks that do not say otherwise.
pub const MAIN: &str = "main";
/// How long finished records are kept unless a test says otherwise.
pub const RETENTION: Duration = Duration::from_secs(3_600);

/// A task without an id.
#[derive(Debug, Clone)]
pub struct Draft(NewTask);

/// A draft with every default: kind `work` in queue `main`, due now, 3 retries, 3 crashes.
pub fn draft() -> Draft {
    Draft(NewTask {
        id: TaskId::new("not reserved yet"),
        kind: kind("work"),
        queue: queue(MAIN),
        priority: Priority::Normal,
        payload: Bytes::from_static(b"{}"),
        when: When::Now,
        spec: Spec {
            max_retries: 3,
            max_crashes: 3,
            timeout: Duration::from_secs(300),
            retention: RETENTION,
            extras: Extras::default(),
        },
        idempotency_key: None,
        unique: None,
    })
}

/// A queue's name.
pub fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

/// A kind's name.
pub fn kind(name: &str) -> Kind {
    Kind::new(name).unwrap()
}

/// A unique key that is held until the task is finished.
pub fn until_finished(key: &str) -> Unique {
    Unique { key: Some(key.into()), hold: Hold::UntilFinished, on_conflict: OnConflict::Reject }
}

/// A unique key that is held for a time.
pub fn held_for(key: &str, time: Duration) -> Unique {
    Unique { hold: Hold::For(time), ..until_finished(key) }
}

impl Draft {
    /// The task under an id.
    pub fn with_id(self, id: TaskId) -> NewTask {
        NewTask { id, ..self.0 }
    }

    /// The queue that it will stand in.
    pub fn queue_name(&self) -> &QueueName {
        &self.0.queue
    }

    /// Into another queue.
    #[must_use]
    pub fn queue(mut self, name: &str) -> Self {
        self.0.queue = queue(name);
        self
    }

    /// Of another kind.
    #[must_use]
    pub fn kind(mut self, name: &str) -> Self {
        self.0.kind = kind(name);
        self
    }

    /// With another payload.
    #[must_use]
    pub fn payload(mut self, payload: impl Into<Bytes>) -> Self {
        self.0.payload = payload.into();
        self
    }

    /// With another priority.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.0.priority = priority;
        self
    }

    /// Due at another time.
    #[must_use]
    pub fn when(mut self, when: When) -> Self {
        self.0.when = when;
        self
    }

    /// Due later.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        self.when(When::After(delay))
    }

    /// With another number of retries.
    #[must_use]
    pub fn max_retries(mut self, count: u32) -> Self {
        self.0.spec.max_retries = count;
        self
    }

    /// With another number of crashes survived.
    #[must_use]
    pub fn max_crashes(mut self, count: u32) -> Self {
        self.0.spec.max_crashes = count;
        self
    }

    /// Kept for another time once finished.
    #[must_use]
    pub fn retention(mut self, time: Duration) -> Self {
        self.0.spec.retention = time;
        self
    }

    /// With these extras.
    #[must_use]
    pub fn extras(mut self, extras: Extras) -> Self {
        self.0.spec.extras = extras;
        self
    }

    /// With a tag.
    #[must_use]
    pub fn tag(mut self, tag: &str) -> Self {
        self.0.spec.extras.tags.push(Tag::new(tag).unwrap());
        self
    }

    /// With an idempotency key.
    #[must_use]
    pub fn idempotency(mut self, key: &str) -> Self {
        self.0.idempotency_key = Some(key.into());
        self
    }

    /// With a unique key.
    #[must_use]
    pub fn unique(mut self, unique: Unique) -> Self {
        self.0.unique = Some(unique);
        self
    }

    /// Changed in a way that no other method has a word for.
    #[must_use]
    pub fn but(mut self, change: impl FnOnce(&mut NewTask)) -> Self {
        change(&mut self.0);
        self
    }
}
