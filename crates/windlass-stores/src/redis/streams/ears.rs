//! Waiting for bells: a connection of its own blocks on the bells of the queues that this process waits
//! for, and rings here what rings there.
//!
//! A bell is heard by one process. Who hears it claims, and a claim that left something rings again. If
//! nobody here waits any more, the bell is put back. Whoever waits looks by itself every few seconds, so
//! that a bell that was lost with its hearer costs seconds and nothing else.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Cmd, Value};
use tokio::task::AbortHandle;
use windlass_core::store::Quota;
use windlass_core::{Priority, QueueName};

use super::{Shared, keys};
use crate::redis::connection::Blocking;
use crate::wakes::News;

/// How long one wait at the server lasts; whoever waits looks by itself as often.
const BLOCK: Duration = Duration::from_secs(5);
/// How much longer its answer may take before the connection counts as dead.
const GRACE: Duration = Duration::from_secs(3);
/// Time between two tries to connect.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Who listens, and for what.
#[derive(Default)]
pub(super) struct Ears {
    /// One for all queues; on a Cluster one for each.
    listening: Mutex<BTreeMap<String, Ear>>,
    /// The priorities that this process claims of each queue: it must not take others' bells.
    served: Mutex<HashMap<QueueName, BTreeSet<Priority>>>,
}

struct Ear {
    wanted: Arc<Mutex<BTreeSet<QueueName>>>,
    poke: String,
    task: AbortHandle,
}

impl Drop for Ears {
    fn drop(&mut self) {
        for ear in self.listening.get_mut().values() {
            ear.task.abort();
        }
    }
}

impl Ears {
    /// Notes what is claimed.
    pub(super) fn learn(&self, quotas: &[Quota]) {
        let mut served = self.served.lock();
        for quota in quotas {
            match served.get_mut(&quota.queue) {
                Some(known) => known.extend(quota.priorities.descending()),
                None => {
                    served.insert(quota.queue.clone(), quota.priorities.descending().collect());
                }
            }
        }
    }

    fn bells(&self, prefix: &str, queue: &QueueName) -> Vec<String> {
        let stem = keys::queue_stem(prefix, queue);
        let served = self.served.lock();
        let is_served =
            |priority: &Priority| served.get(queue).is_none_or(|known| known.contains(priority));
        let priorities = Priority::DESCENDING.into_iter().filter(is_served);
        priorities.map(|priority| keys::bell(&stem, priority)).collect()
    }
}

impl Shared {
    /// Has these queues listened for.
    pub(super) fn listen(&self, queues: &[QueueName]) {
        let is_cluster = self.common.options.is_cluster();
        let mut listening = self.ears.listening.lock();
        for queue in queues {
            let group = if is_cluster { queue.as_str() } else { "" };
            let running = listening.get(group).filter(|ear| !ear.task.is_finished());
            match running {
                Some(ear) => {
                    let is_new = ear.wanted.lock().insert(queue.clone());
                    if is_new {
                        self.poke(ear.poke.clone());
                    }
                }
                None => {
                    let wanted = Arc::new(Mutex::new(BTreeSet::from([queue.clone()])));
                    let stem = self.stem(queue);
                    let poke = format!("{stem}poke:{:016x}", fastrand::u64(..));
                    let hearing = hear(self.this.clone(), Arc::clone(&wanted), poke.clone());
                    let task = tokio::spawn(hearing).abort_handle();
                    listening.insert(group.to_owned(), Ear { wanted, poke, task });
                }
            }
        }
    }

    /// Has a listener look up from its wait: it is to listen for more.
    fn poke(&self, key: String) {
        let Some(shared) = self.this.upgrade() else { return };
        tokio::spawn(async move {
            let mut push = redis::cmd("LPUSH");
            push.arg(&key).arg(1);
            let mut expire = redis::cmd("PEXPIRE");
            expire.arg(&key).arg(u64::try_from(BLOCK.as_millis()).unwrap_or(5_000));
            // If it fails, the listener looks up by itself.
            for command in [push, expire] {
                if let Err(error) = shared.link.command("poke a listener", &command).await {
                    tracing::debug!(error = error.chain(), "a listener was not poked");
                }
            }
        });
    }
}

/// Listens until nobody here waits any more, or the store is gone.
async fn hear(shared: Weak<Shared>, wanted: Arc<Mutex<BTreeSet<QueueName>>>, poke: String) {
    let mut pause = PAUSE_MIN;
    let mut connection: Option<Blocking> = None;
    loop {
        let Some(store) = shared.upgrade() else { return };
        let options = Arc::clone(&store.common.options);
        let mut blocking = match connection.take() {
            Some(connection) => connection,
            None => {
                drop(store);
                match Blocking::connect(&options, BLOCK + GRACE).await {
                    Ok(made) => {
                        pause = PAUSE_MIN;
                        made
                    }
                    Err(error) => {
                        tracing::debug!(
                            error = error.chain(),
                            "cannot listen; whoever waits looks"
                        );
                        ring(&shared, &wanted);
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(PAUSE_MAX);
                        continue;
                    }
                }
            }
        };
        let Some(store) = shared.upgrade() else { return };
        let command = block_on(&store, &wanted.lock(), &poke);
        drop(store);
        let heard = tokio::time::timeout(BLOCK + GRACE, blocking.send(&command)).await;
        match heard {
            Ok(Ok(Value::Nil)) => {
                // Nothing rang: look once, and stop when nobody waits.
                let Some(store) = shared.upgrade() else { return };
                let mut wanted_now = wanted.lock();
                if !store.common.wakes.is_awaited() {
                    wanted_now.clear();
                    return;
                }
                drop(wanted_now);
                ring(&shared, &wanted);
                connection = Some(blocking);
            }
            Ok(Ok(value)) => {
                let bell = first_text(value);
                let Some(store) = shared.upgrade() else { return };
                let is_own = bell.as_deref() == Some(poke.as_str());
                match bell {
                    Some(bell) if !is_own && !store.common.wakes.is_awaited() => {
                        let mut push = redis::cmd("LPUSH");
                        push.arg(&bell).arg(1);
                        if let Err(error) = store.link.command("put a bell back", &push).await {
                            tracing::debug!(
                                error = error.chain(),
                                "a bell was lost; others look by themselves"
                            );
                        }
                        wanted.lock().clear();
                        return;
                    }
                    Some(_) if is_own => {}
                    _ => {
                        let queues = wanted.lock().clone();
                        let rung = queues.into_iter().filter(|queue| {
                            let stem = keys::queue_stem(&options.prefix, queue);
                            bell.as_ref().is_none_or(|bell| bell.starts_with(&stem))
                        });
                        store.common.wakes.tell(News { ready: rung.collect(), ..News::default() });
                    }
                }
                connection = Some(blocking);
            }
            Ok(Err(_)) | Err(_) => {
                // Broken, or no answer in time: this connection is never used again.
                ring(&shared, &wanted);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// Tells all that wait here to look.
fn ring(shared: &Weak<Shared>, wanted: &Mutex<BTreeSet<QueueName>>) {
    if let Some(store) = shared.upgrade() {
        let ready = wanted.lock().iter().cloned().collect();
        store.common.wakes.tell(News { ready, ..News::default() });
    }
}

fn block_on(store: &Shared, wanted: &BTreeSet<QueueName>, poke: &str) -> Cmd {
    let mut command = redis::cmd("BLPOP");
    for queue in wanted {
        command.arg(store.ears.bells(&store.common.options.prefix, queue));
    }
    command.arg(poke).arg(BLOCK.as_secs());
    command
}

fn first_text(value: Value) -> Option<String> {
    match value {
        Value::Array(values) => match values.into_iter().next()? {
            Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
            _ => None,
        },
        _ => None,
    }
}
