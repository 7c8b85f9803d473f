//! What other processes tell: orders to workers, and ends of tasks that someone waits for. Published by
//! the scripts themselves; a message that is lost costs the time to the next beat or look, no more.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::Mutex;
use redis::{Cmd, RedisError, RedisResult};
use tokio::task::AbortHandle;

use super::connection::subscriber;
use super::options::RedisOptions;
use super::waiting::{Channels, Waiting};

/// How long the scripts of a queue are asked to tell of ends; asked again in good time.
pub(super) const WATCH: Duration = Duration::from_secs(15);
/// How long a silence lasts before the server is asked whether it is still there.
const PING_EVERY: Duration = Duration::from_secs(10);
/// Time between two tries to connect.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Who hears what others tell.
#[derive(Default)]
pub(super) struct Herald {
    hearing: Mutex<Option<Hearing>>,
}

struct Hearing {
    task: AbortHandle,
    is_up: Arc<AtomicBool>,
}

impl Drop for Herald {
    fn drop(&mut self) {
        if let Some(hearing) = self.hearing.get_mut().take() {
            hearing.task.abort();
        }
    }
}

impl Herald {
    /// True while what others tell is heard.
    pub(super) fn is_hearing(&self) -> bool {
        let hearing = self.hearing.lock();
        hearing.as_ref().is_some_and(|hearing| hearing.is_up.load(Ordering::Relaxed))
    }
}

/// Begins to hear what others tell, if nobody does yet.
pub(super) fn subscribe<T: Waiting>(layout: &T) {
    let mut hearing = layout.herald().hearing.lock();
    if hearing.as_ref().is_some_and(|hearing| !hearing.task.is_finished()) {
        return;
    }
    let is_up = Arc::default();
    let task = tokio::spawn(hear(layout.this(), Arc::clone(&is_up))).abort_handle();
    *hearing = Some(Hearing { task, is_up });
}

/// Has a queue tell of ends, by this key.
pub(super) fn watch(key: String) -> Cmd {
    let mut command = redis::cmd("SET");
    command.arg(key).arg(1);
    command.arg("PX").arg(u64::try_from(WATCH.as_millis()).unwrap_or(u64::MAX));
    command
}

/// Hears until the store is gone.
async fn hear<T: Waiting>(layout: Weak<T>, is_up: Arc<AtomicBool>) {
    let mut pause = PAUSE_MIN;
    loop {
        let Some(store) = layout.upgrade() else { return };
        let (options, wanted) = (Arc::clone(&store.fleet().common.options), store.channels());
        drop(store);
        let begun = || {
            is_up.store(true, Ordering::Relaxed);
            // Whatever was told before was not heard.
            if let Some(store) = layout.upgrade() {
                store.fleet().common.wakes.ring_all();
            }
        };
        let heard = |channel: &str, payload: &[u8]| {
            if let Some(store) = layout.upgrade() {
                store.heard(channel, payload);
            }
        };
        let ended = hear_channels(&options, &wanted, begun, heard).await;
        if is_up.swap(false, Ordering::Relaxed) {
            pause = PAUSE_MIN;
        }
        if let Err(error) = ended {
            tracing::debug!(%error, "cannot hear what others tell; will look");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Hears channels over a connection of their own, until that ends.
pub(super) async fn hear_channels(
    options: &RedisOptions,
    wanted: &Channels,
    begun: impl FnOnce(),
    heard: impl Fn(&str, &[u8]),
) -> RedisResult<()> {
    let listening = async {
        let mut channels = subscriber(options)?.get_async_pubsub().await?;
        for name in &wanted.names {
            channels.subscribe(name).await?;
        }
        for pattern in &wanted.patterns {
            channels.psubscribe(pattern).await?;
        }
        Ok::<_, RedisError>(channels)
    };
    let late = || RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
    let channels =
        tokio::time::timeout(PAUSE_MAX * 2, listening).await.unwrap_or_else(|_| Err(late()))?;
    begun();
    let (mut sink, mut messages) = channels.split();
    loop {
        match tokio::time::timeout(PING_EVERY, messages.next()).await {
            Ok(Some(message)) => heard(message.get_channel_name(), message.get_payload_bytes()),
            Ok(None) => return Ok(()),
            // Silence: does anyone speak at all?
            Err(_) => match tokio::time::timeout(PAUSE_MAX, sink.ping::<()>()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return Ok(()),
            },
        }
    }
}
