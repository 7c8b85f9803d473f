//! Waiting for one list: a reference that is pushed there comes to the worker's own list at once, by one
//! blocking move, instead of a bell that rings.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Cmd, RedisError, Value};
use tokio::task::AbortHandle;
use windlass_core::WorkerId;

use super::broker::Broker;
use super::keys;
use super::wishes::{List, Wish};
use crate::redis::connection::Blocking;
use crate::redis::ears::{BLOCK_MAX, Listening};
use crate::redis::reply::Reply;
use crate::wakes::News;

/// How much longer an answer may take before the connection counts as dead.
const GRACE: Duration = Duration::from_secs(3);
/// Time between two tries to connect.
const PAUSE: Duration = Duration::from_millis(500);

/// The only list of a broker that a worker wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Single {
    worker: WorkerId,
    list: List,
}

impl Single {
    /// What is wanted, if that is one list.
    pub(super) fn of(wish: &Wish) -> Option<Self> {
        match wish.lists.as_slice() {
            [list] => Some(Self { worker: wish.worker.clone(), list: list.clone() }),
            _ => None,
        }
    }
}

/// Who waits for a single list, if anybody.
#[derive(Default)]
pub(super) struct Waiter {
    waiting: Mutex<Option<(Single, AbortHandle)>>,
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
            Ok(Ok(moved)) => {
                let Some(held) = broker.upgrade() else { return };
                held.arrived(&single.worker, Reply::new("move", moved));
                let ready = vec![single.list.queue.clone()];
                held.wakes().tell(News { ready, ..News::default() });
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

/// The move as the server knows it: older ones have another name for it.
fn moving(broker: &Broker, single: &Single, is_known: bool) -> Cmd {
    let from = keys::list(broker.stem(), single.list.number, single.list.lane);
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
