//! A Go program's connection and clock.

use std::fmt;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Client, Cmd, FromRedisValue, ScriptInvocation, cmd};
use windlass_core::Clock;

use super::keys::{CANCEL, QUEUES};

/// asynq's counters begin again after this one.
pub(super) const COUNTER_MAX: i64 = i64::MAX;
/// How long counters of a day, and tasks in the archive, are kept.
pub(super) const KEPT_S: i64 = 90 * 24 * 3_600;
/// Most tasks in the archive of a queue.
pub(super) const ARCHIVED_MAX: i64 = 10_000;

/// One of asynq's scripts.
macro_rules! script {
    ($name:literal) => {
        redis::Script::new(include_str!(concat!("../../lua/asynq/", $name, ".lua")))
    };
}
pub(super) use script;

/// A Go program: a connection to the server, and its idea of the time.
#[derive(Clone)]
pub struct Peer {
    client: Client,
    connection: MultiplexedConnection,
    time: Time,
}

#[derive(Clone)]
enum Time {
    Of(Arc<dyn Clock>),
    /// It stands still, in nanoseconds.
    Still(i64),
}

/// Why asynq did not do something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GoError {
    /// The task is not where it should be.
    NotFound,
    /// A script has failed, or found something that must not be.
    Internal(String),
    /// There is a task with this id.
    TaskIdConflict,
    /// The lock is taken.
    DuplicateTask,
    /// The queue is not in `asynq:queues`.
    QueueNotFound,
    /// The queue has tasks.
    QueueNotEmpty,
    /// The state of the task does not allow it.
    WrongState,
    /// The worker's own idea of its lease says that it is over, so it writes nothing.
    LeaseOver,
}

impl Peer {
    /// A program on a database of a server, by this clock.
    pub async fn connect(url: &str, clock: Arc<dyn Clock>) -> Self {
        let client = Client::open(url).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        Self { client, connection, time: Time::Of(clock) }
    }

    /// The same program while its clock stands at this instant.
    #[must_use]
    pub fn at_nanos(&self, nanos: i64) -> Self {
        Self { time: Time::Still(nanos), ..self.clone() }
    }

    /// Nanoseconds since the Unix epoch.
    pub(super) fn nanos(&self) -> i64 {
        match &self.time {
            Time::Of(clock) => clock.now().as_millis() * 1_000_000,
            Time::Still(nanos) => *nanos,
        }
    }

    /// Whole seconds since the Unix epoch, as all scores are.
    pub fn seconds(&self) -> i64 {
        self.nanos().div_euclid(1_000_000_000)
    }

    /// When a day's counter is to go. The server's own clock decides about that, whatever tests do to ours.
    pub(super) async fn counter_end(&self) -> i64 {
        let (seconds, _): (i64, i64) = self.plain(&cmd("TIME")).await;
        seconds + KEPT_S
    }

    /// Runs a command that cannot fail.
    pub async fn plain<T: FromRedisValue>(&self, command: &Cmd) -> T {
        command.query_async(&mut self.connection.clone()).await.unwrap()
    }

    /// Runs commands that cannot fail, in one trip.
    pub(super) async fn many<T: FromRedisValue>(
        &self,
        commands: impl Iterator<Item = Cmd>,
    ) -> Vec<T> {
        let mut pipeline = redis::pipe();
        for command in commands {
            pipeline.add_command(command);
        }
        pipeline.query_async(&mut self.connection.clone()).await.unwrap()
    }

    /// Runs a script.
    pub(super) async fn run<T: FromRedisValue>(
        &self,
        call: &ScriptInvocation<'_>,
    ) -> Result<T, GoError> {
        call.invoke_async(&mut self.connection.clone()).await.map_err(GoError::of)
    }

    /// Makes sure that a queue is known; asynq does it before each submit.
    pub(super) async fn publish_queue(&self, queue: &str) {
        self.plain::<i64>(cmd("SADD").arg(QUEUES).arg(queue)).await;
    }

    /// Refuses a queue that is not known, as the inspector does first of all.
    pub(super) async fn check_queue(&self, queue: &str) -> Result<(), GoError> {
        let is_known: bool = self.plain(cmd("SISMEMBER").arg(QUEUES).arg(queue)).await;
        if is_known { Ok(()) } else { Err(GoError::QueueNotFound) }
    }

    /// Asks whoever runs a task to stop; nobody need hear it.
    pub async fn cancel(&self, id: &str) -> i64 {
        self.plain(cmd("PUBLISH").arg(CANCEL).arg(id)).await
    }

    /// Listens to cancels; each message is the id of a task.
    pub async fn cancels(&self) -> redis::aio::PubSub {
        let mut listener = self.client.get_async_pubsub().await.unwrap();
        listener.subscribe(CANCEL).await.unwrap();
        listener
    }
}

impl GoError {
    fn of(error: redis::RedisError) -> Self {
        let text = error.to_string();
        if text.contains("NOT") && text.contains("FOUND") {
            return Self::NotFound;
        }
        Self::Internal(text)
    }
}

impl fmt::Display for GoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
