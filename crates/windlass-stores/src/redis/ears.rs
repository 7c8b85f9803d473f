//! Waiting for bells: a connection of its own blocks on the bells of the queues that this process waits
//! for, and rings here what rings there.
//!
//! A bell is heard by one process. Who hears it claims, and a claim that left something rings again. If
//! nobody here waits any more, the bell is put back. Whoever waits looks by itself after each silence, so
//! that a bell that was lost with its hearer, or never rung, costs that time and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Cmd, Value};
use tokio::task::AbortHandle;
use windlass_core::QueueName;
use windlass_core::store::IdlePoll;

use super::connection::{Blocking, Link};
use super::error::is_script_missing;
use super::options::RedisOptions;
use super::script::Call;
use crate::wakes::{News, Wakes};

/// Longest that one wait at the server may last.
pub(crate) const BLOCK_MAX: Duration = Duration::from_secs(5);
/// How much longer its answer may take before the connection counts as dead.
const GRACE: Duration = Duration::from_secs(3);
/// Who listens for more queues than these takes all bells when it hears one: each would be a claim that looks at all of
/// them, and after a burst there are as many bells as queues.
const FEW_QUEUES: usize = 100;
/// Time between two tries to connect.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Someone for whom bells ring.
pub(crate) trait Listening: Send + Sync + Sized + 'static {
    fn this(&self) -> Weak<Self>;
    fn ears(&self) -> &Ears;
    fn server(&self) -> &Arc<RedisOptions>;
    fn link(&self) -> &Link;
    fn wakes(&self) -> &Wakes;

    /// The lists that ring for a queue.
    fn bells(&self, queue: &QueueName) -> Vec<String>;

    /// What the keys begin with by which listeners for a queue are had to look up.
    fn poke_stem(&self, queue: &QueueName) -> String;

    /// How long the next wait at the bells lasts, after so many in a row in which nothing happened. Not all
    /// processes in step.
    fn block(_silences: u32, _idle_poll: IdlePoll) -> Duration {
        BLOCK_MAX.mul_f64(0.75 + fastrand::f64() / 4.0)
    }

    /// What is asked for right behind a bell, in the same trip.
    fn behind_bell(&self) -> Option<Call> {
        None
    }

    /// Takes in what came of it.
    fn take_in(&self, _answer: Value) {}

    /// Which of these queues may have work although no bell has rung.
    fn look_for_work(&self, queues: Vec<QueueName>) -> impl Future<Output = Vec<QueueName>> + Send;
}

/// Who listens, and for what.
#[derive(Default)]
pub(crate) struct Ears {
    /// One for all queues; on a Cluster one for each.
    listening: Mutex<BTreeMap<String, Ear>>,
}

struct Ear {
    wanted: Arc<Mutex<Wanted>>,
    poke: String,
    task: AbortHandle,
}

/// What a listener listens for.
#[derive(Default)]
struct Wanted {
    queues: BTreeSet<QueueName>,
    /// How often to look for work that nobody rings for, as the last who asked wants it.
    idle_poll: IdlePoll,
    /// How often somebody has asked for it. Who has asked is about to wait, and may not be counted among
    /// those that wait yet.
    asked: u64,
    /// It listens no more: another has to be made.
    is_over: bool,
}

impl Wanted {
    /// Ends the listener, unless somebody waits or has asked since it began its last wait.
    fn ends(&mut self, asked_before: u64, wakes: &Wakes) -> bool {
        self.is_over = self.asked == asked_before && !wakes.is_awaited();
        self.is_over
    }
}

impl Drop for Ears {
    fn drop(&mut self) {
        for ear in self.listening.get_mut().values() {
            ear.task.abort();
        }
    }
}

/// Has these queues listened for.
pub(crate) fn listen<T: Listening>(layout: &T, queues: &[QueueName], idle_poll: IdlePoll) {
    let is_cluster = layout.server().is_cluster();
    let mut listening = layout.ears().listening.lock();
    for queue in queues {
        let group = if is_cluster { queue.as_str() } else { "" };
        let running = listening.get(group).filter(|ear| !ear.task.is_finished());
        let is_new = running.and_then(|ear| {
            let mut wanted = ear.wanted.lock();
            wanted.asked += 1;
            wanted.idle_poll = idle_poll;
            (!wanted.is_over).then(|| wanted.queues.insert(queue.clone()))
        });
        match (running, is_new) {
            (Some(ear), Some(is_new)) => {
                if is_new {
                    poke(layout, ear.poke.clone());
                }
            }
            (_, _) => {
                let queues = BTreeSet::from([queue.clone()]);
                let wanted = Wanted { queues, idle_poll, ..Wanted::default() };
                let wanted = Arc::new(Mutex::new(wanted));
                let stem = layout.poke_stem(queue);
                let poke = format!("{stem}poke:{:016x}", fastrand::u64(..));
                let hearing = hear(layout.this(), Arc::clone(&wanted), poke.clone());
                let task = tokio::spawn(hearing).abort_handle();
                listening.insert(group.to_owned(), Ear { wanted, poke, task });
            }
        }
    }
}

/// Has a listener look up from its wait: it is to listen for more.
fn poke<T: Listening>(layout: &T, key: String) {
    let Some(layout) = layout.this().upgrade() else { return };
    tokio::spawn(async move {
        let mut push = redis::cmd("LPUSH");
        push.arg(&key).arg(1);
        let mut expire = redis::cmd("PEXPIRE");
        expire.arg(&key).arg(u64::try_from(BLOCK_MAX.as_millis()).unwrap_or(5_000));
        // If it fails, the listener looks up by itself.
        for command in [push, expire] {
            if let Err(error) = layout.link().command("poke a listener", &command).await {
                tracing::debug!(error = error.chain(), "a listener was not poked");
            }
        }
    });
}

/// Listens until nobody here waits any more, or the store is gone.
async fn hear<T: Listening>(layout: Weak<T>, wanted: Arc<Mutex<Wanted>>, poke: String) {
    let mut pause = PAUSE_MIN;
    let mut connection: Option<Blocking> = None;
    let mut silences = 0;
    // What had work already when it was last looked for: it is no news.
    let mut seen: BTreeSet<QueueName> = BTreeSet::new();
    // What is asked for behind a bell, in full when the server does not know it.
    let mut is_script_known = true;
    loop {
        let Some(store) = layout.upgrade() else { return };
        let options = Arc::clone(store.server());
        let mut blocking = match connection.take() {
            Some(connection) => connection,
            None => {
                drop(store);
                match Blocking::connect(&options, BLOCK_MAX + GRACE).await {
                    Ok(made) => {
                        pause = PAUSE_MIN;
                        made
                    }
                    Err(error) => {
                        tracing::debug!(
                            error = error.chain(),
                            "cannot listen; whoever waits looks"
                        );
                        ring(&layout, &wanted);
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(PAUSE_MAX);
                        continue;
                    }
                }
            }
        };
        let Some(store) = layout.upgrade() else { return };
        let (command, asked) = {
            let wanted = wanted.lock();
            let block = T::block(silences, wanted.idle_poll);
            (block_on(&*store, &wanted.queues, &poke, block), wanted.asked)
        };
        let behind = store.behind_bell().map(|call| match is_script_known {
            true => call.command,
            false => call.script.in_full(&call.command),
        });
        drop(store);
        let hearing = async {
            let Some(behind) = behind else { return blocking.send(&command).await };
            let (rung, answer) = blocking.send_both(&command, &behind).await;
            is_script_known = !answer.as_ref().is_err_and(is_script_missing);
            if let (Ok(answer), Some(store)) = (answer, layout.upgrade()) {
                store.take_in(answer);
            }
            rung
        };
        let heard = tokio::time::timeout(BLOCK_MAX + GRACE, hearing).await;
        match heard {
            Ok(Ok(Value::Nil)) => {
                // Nothing rang: look once, and stop when nobody waits.
                let Some(store) = layout.upgrade() else { return };
                let queues = {
                    let mut wanted = wanted.lock();
                    if wanted.ends(asked, store.wakes()) {
                        return;
                    }
                    wanted.queues.iter().cloned().collect()
                };
                let ready = store.look_for_work(queues).await;
                let is_news = ready.iter().any(|queue| !seen.contains(queue));
                silences = if is_news { 0 } else { silences + 1 };
                seen = ready.iter().cloned().collect();
                store.wakes().tell(News { ready, ..News::default() });
                connection = Some(blocking);
            }
            Ok(Ok(value)) => {
                let bell = first_text(value);
                let Some(store) = layout.upgrade() else { return };
                let is_own = bell.as_deref() == Some(poke.as_str());
                silences = 0;
                let is_over = !is_own && wanted.lock().ends(asked, store.wakes());
                if !is_own {
                    // Also when nobody waits: who is looking just now may have looked too early.
                    let queues = wanted.lock().queues.clone();
                    let takes_all = queues.len() > FEW_QUEUES && !is_over;
                    if takes_all {
                        // Before anybody is told: a bell that rings later is kept.
                        take_bells(&*store, &queues).await;
                    }
                    let rung = queues.into_iter().filter(|queue| {
                        takes_all
                            || bell.as_ref().is_none_or(|bell| store.bells(queue).contains(bell))
                    });
                    let ready = rung.collect();
                    store.wakes().tell(News { ready, ..News::default() });
                    // Whoever was woken is in more of a hurry than the next wait.
                    tokio::task::yield_now().await;
                }
                if is_over {
                    put_back(&*store, bell).await;
                    return;
                }
                connection = Some(blocking);
            }
            Ok(Err(_)) | Err(_) => {
                // Broken, or no answer in time: this connection is never used again.
                ring(&layout, &wanted);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// Takes the bells of all these queues.
async fn take_bells<T: Listening>(layout: &T, queues: &BTreeSet<QueueName>) {
    let mut delete = redis::cmd("DEL");
    for queue in queues {
        delete.arg(layout.bells(queue));
    }
    if let Err(error) = layout.link().command("take bells", &delete).await {
        tracing::debug!(error = error.chain(), "bells were left; each is heard by itself");
    }
}

/// Leaves a bell to others.
async fn put_back<T: Listening>(layout: &T, bell: Option<String>) {
    let Some(bell) = bell else { return };
    let mut push = redis::cmd("LPUSH");
    push.arg(&bell).arg(1);
    if let Err(error) = layout.link().command("put a bell back", &push).await {
        tracing::debug!(error = error.chain(), "a bell was lost; others look by themselves");
    }
}

/// Tells all that wait here to look.
fn ring<T: Listening>(layout: &Weak<T>, wanted: &Mutex<Wanted>) {
    if let Some(store) = layout.upgrade() {
        let ready = wanted.lock().queues.iter().cloned().collect();
        store.wakes().tell(News { ready, ..News::default() });
    }
}

fn block_on<T: Listening>(
    layout: &T,
    wanted: &BTreeSet<QueueName>,
    poke: &str,
    block: Duration,
) -> Cmd {
    let mut command = redis::cmd("BLPOP");
    for queue in wanted {
        command.arg(layout.bells(queue));
    }
    command.arg(poke).arg(format!("{:.3}", block.as_secs_f64()));
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
