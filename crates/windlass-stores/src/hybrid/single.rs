//! Waiting for one list: a reference that is pushed there comes to the worker's own list at once, by one
//! blocking move, instead of a bell that rings and a take that follows.
//!
//! It has a list of its own there, for whichever claim of the worker comes next. If none comes in a moment,
//! since the worker has been paused or has no room any more, it is given back; if nobody is left to do that,
//! it lies there until the end of the worker's heartbeat.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::{Cmd, RedisError, Value};
use tokio::task::AbortHandle;
use windlass_core::store::{ClaimParams, Quota};
use windlass_core::{Priority, QueueName, WorkerId};

use super::broker::Broker;
use super::keys;
use crate::redis::connection::Blocking;
use crate::redis::ears::{BLOCK_MAX, Listening};
use crate::wakes::News;

/// How much longer an answer may take before the connection counts as dead.
const GRACE: Duration = Duration::from_secs(3);
/// Time between two tries to connect.
const PAUSE: Duration = Duration::from_millis(500);
/// How long what was moved may wait for a claim.
const GIVE_BACK_AFTER: Duration = Duration::from_millis(100);

/// The only list of a broker that a worker wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Single {
    pub(super) worker: WorkerId,
    pub(super) queue: QueueName,
    pub(super) number: i32,
    pub(super) lane: i16,
}

/// What the workers of this process have last asked for.
#[derive(Default)]
pub(super) struct Wishes {
    lists: Mutex<HashMap<WorkerId, BTreeSet<(QueueName, Priority)>>>,
    /// When a reference of a queue was last put back: a move would bring it again at once.
    put_back: Mutex<HashMap<QueueName, Instant>>,
}

impl Wishes {
    /// Notes what a worker asks for.
    pub(super) fn note(&self, params: &ClaimParams) {
        let of = |quota: &Quota| {
            let queue = quota.queue.clone();
            quota.priorities.descending().map(move |priority| (queue.clone(), priority))
        };
        let wish = params.quotas.iter().flat_map(of).collect();
        self.lists.lock().insert(params.worker.clone(), wish);
    }

    /// Notes that a reference of a queue was put back, since it is paused or someone holds the row.
    pub(super) fn note_put_back(&self, queue: &QueueName) {
        self.put_back.lock().insert(queue.clone(), Instant::now());
    }

    /// Forgets a worker that is gone.
    pub(super) fn forget(&self, worker: &WorkerId) {
        self.lists.lock().remove(worker);
    }

    /// The only list that is wanted of those for which `is_its` says so: of one worker, one queue and one
    /// priority. (Suspects stand in a list of their own; the bell rings for them.)
    pub(super) fn only(
        &self,
        numbers: &HashMap<QueueName, i32>,
        is_its: impl Fn(Priority) -> bool,
    ) -> Option<Single> {
        let lists = self.lists.lock();
        let wanted = |(worker, wish): (&WorkerId, &BTreeSet<(QueueName, Priority)>)| {
            let its = wish.iter().filter(|(_, priority)| is_its(*priority));
            its.map(|(queue, priority)| (worker.clone(), queue.clone(), *priority))
                .collect::<Vec<_>>()
        };
        let mut wanted = lists.iter().flat_map(wanted);
        let (worker, queue, priority) = wanted.next()?;
        let number = *numbers.get(&queue)?;
        let put_back = self.put_back.lock().get(&queue).copied();
        if put_back.is_some_and(|at| at.elapsed() < BLOCK_MAX) {
            return None;
        }
        let lane = i16::from(priority.as_number()) * 2;
        let single = Single { worker, queue, number, lane };
        wanted.next().is_none().then_some(single)
    }
}

/// Who waits for a single list, if anybody.
#[derive(Default)]
pub(super) struct Waiter {
    waiting: Mutex<Option<(Single, AbortHandle)>>,
    /// Someone will look after what was moved.
    is_looked_after: AtomicBool,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let Some((_, task)) = self.waiting.get_mut().take() {
            task.abort();
        }
    }
}

impl Waiter {
    /// Waits for this list, and for no other.
    pub(super) fn wait_for(&self, broker: &Arc<Broker>, single: Option<Single>) {
        let mut waiting = self.waiting.lock();
        if let Some((present, task)) = &*waiting {
            if Some(present) == single.as_ref() && !task.is_finished() {
                return;
            }
            // What it moves at this moment is found by the next take.
            task.abort();
        }
        *waiting = single.map(|single| {
            let moving = move_as_it_comes(Arc::downgrade(broker), single.clone());
            (single, tokio::spawn(moving).abort_handle())
        });
    }
}

/// Moves what comes, until nobody here waits any more or the store is gone.
async fn move_as_it_comes(broker: Weak<Broker>, single: Single) {
    let mut connection: Option<Blocking> = None;
    let mut is_known_to_move = true;
    loop {
        let Some(held) = broker.upgrade() else { return };
        let options = Arc::clone(held.server());
        let command = moving(&held, &single, is_known_to_move);
        drop(held);
        let mut blocking = match connection.take() {
            Some(connection) => connection,
            None => match Blocking::connect(&options, BLOCK_MAX + GRACE).await {
                Ok(made) => made,
                Err(_) => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            },
        };
        match tokio::time::timeout(BLOCK_MAX + GRACE, blocking.send(&command)).await {
            Ok(Ok(Value::Nil)) => {
                // Asked only now: the wait that this is for may not have begun before.
                let is_awaited = broker.upgrade().is_some_and(|held| held.wakes().is_awaited());
                if !is_awaited {
                    return;
                }
                connection = Some(blocking);
            }
            Ok(Ok(_)) => {
                let Some(held) = broker.upgrade() else { return };
                let ready = vec![single.queue.clone()];
                held.wakes().tell(News { ready, ..News::default() });
                look_after(&held, single.worker);
                // One at a time: the take that follows brings the rest.
                return;
            }
            Ok(Err(error)) if is_known_to_move && is_unknown_command(&error) => {
                is_known_to_move = false;
                connection = Some(blocking);
            }
            Ok(Err(_)) | Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Gives back what no claim has taken in a moment.
fn look_after(broker: &Arc<Broker>, worker: WorkerId) {
    if broker.waiter().is_looked_after.swap(true, Ordering::Relaxed) {
        return;
    }
    let broker = Arc::downgrade(broker);
    tokio::spawn(async move {
        tokio::time::sleep(GIVE_BACK_AFTER).await;
        let Some(broker) = broker.upgrade() else { return };
        broker.waiter().is_looked_after.store(false, Ordering::Relaxed);
        broker.give_back_moved(&worker).await;
    });
}

/// The move as the server knows it: older ones have another name for it.
fn moving(broker: &Broker, single: &Single, is_known: bool) -> Cmd {
    let from = keys::list(broker.stem(), single.number, single.lane);
    let to = keys::moved(broker.stem(), &single.worker);
    let mut command = redis::cmd(if is_known { "BLMOVE" } else { "BRPOPLPUSH" });
    command.arg(from).arg(to);
    if is_known {
        command.arg("RIGHT").arg("LEFT");
    }
    command.arg(BLOCK_MAX.as_secs());
    command
}

fn is_unknown_command(error: &RedisError) -> bool {
    error.to_string().contains("unknown command")
}
