//! The upkeep of a Go server: forwarder, janitor, recoverer, aggregator. Each call is one turn.

use redis::cmd;

use super::keys::Keys;
use super::message::{TaskMessage, decode};
use super::peer::{GoError, Peer, script};

/// What a task is told whose server died.
pub const LEASE_EXPIRED: &str = "asynq: task lease expired";
/// How long after its end a lease is taken back: clocks differ.
const GRACE_S: i64 = 30;
/// How many records one step of the janitor removes.
const JANITOR_BATCH: i64 = 100;
/// How long an aggregation may take.
const AGGREGATION_S: i64 = 120;

impl Peer {
    /// The forwarder: what is due becomes pending.
    pub async fn forward(&self, queue: &str) {
        let keys = Keys::of(queue);
        for source in ["scheduled", "retry"] {
            let script = script!("forward");
            let mut call = script.key(keys.key(source));
            call.key(keys.key("pending")).arg(self.seconds()).arg(keys.task(""));
            call.arg(self.nanos()).arg(keys.group(""));
            while self.run::<i64>(&call).await.unwrap() > 0 {}
        }
    }

    /// The janitor: completed tasks whose time is over go.
    pub async fn clean(&self, queue: &str) {
        let keys = Keys::of(queue);
        let script = script!("delete_expired_completed");
        let mut call = script.key(keys.key("completed"));
        call.arg(self.seconds()).arg(keys.task("")).arg(JANITOR_BATCH);
        while self.run::<i64>(&call).await.unwrap() > 0 {}
    }

    /// The recoverer: tasks whose lease is over for more than 30 s are failures. Answers their ids.
    pub async fn recover(&self, queue: &str, delay_s: i64) -> Vec<String> {
        let keys = Keys::of(queue);
        let script = script!("list_lease_expired");
        let mut call = script.key(keys.key("lease"));
        call.arg(self.seconds() - GRACE_S).arg(keys.task(""));
        let messages: Vec<Vec<u8>> = self.run(&call).await.unwrap();
        let mut recovered = Vec::new();
        for message in messages {
            let message: TaskMessage = decode(&message);
            let outcome = match message.retried >= message.retry {
                true => self.archive(&message, LEASE_EXPIRED).await,
                false => self.retry(&message, LEASE_EXPIRED, delay_s, true).await,
            };
            // Another recoverer, or the worker itself, may have been faster.
            if outcome.is_ok() {
                recovered.push(message.id);
            }
        }
        self.reclaim(queue).await;
        recovered
    }

    /// The aggregator looks at a group: after a grace without new tasks it becomes a set, whose key is
    /// answered.
    pub async fn aggregate(&self, queue: &str, group: &str, grace_s: i64) -> Option<String> {
        let keys = Keys::of(queue);
        let set = format!("{}:{:016x}", keys.group(group), fastrand::u64(..));
        let script = script!("aggregation_check");
        let mut call = script.key(keys.group(group));
        call.key(&set).key(keys.key("aggregation_sets")).key(keys.key("groups"));
        call.arg(0).arg(0).arg(grace_s).arg(self.seconds() + AGGREGATION_S);
        call.arg(self.seconds()).arg(group);
        let has_made: i64 = self.run(&call).await.unwrap();
        (has_made == 1).then_some(set)
    }

    /// The task that a set came to is enqueued: its tasks go.
    pub async fn aggregated(&self, queue: &str, set: &str) -> Result<(), GoError> {
        let keys = Keys::of(queue);
        let script = script!("delete_aggregation_set");
        let mut call = script.key(set);
        self.run(call.key(keys.key("aggregation_sets")).arg(keys.task(""))).await
    }

    /// Sets whose aggregation died go back into their groups.
    pub async fn reclaim(&self, queue: &str) {
        let script = script!("reclaim_stale_aggregation_sets");
        let mut call = script.key(Keys::of(queue).key("aggregation_sets"));
        self.run::<()>(call.arg(self.seconds())).await.unwrap();
    }

    /// The groups that the aggregator would look at.
    pub async fn groups(&self, queue: &str) -> Vec<String> {
        self.plain(cmd("SMEMBERS").arg(Keys::of(queue).key("groups"))).await
    }
}
