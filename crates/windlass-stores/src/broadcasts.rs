//! Broadcasts inside one process: one task hears what is published in a store, for all who listen here,
//! as long as someone does.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};
use windlass_core::limits::check_size;
use windlass_core::store::{BROADCAST_BYTES_MAX, Broadcast, BroadcastStream};
use windlass_core::{Error, ErrorKind, Result};

/// Messages that one who listens may lag behind; then it finds a gap.
const LAG_MAX: usize = 1_024;
/// Time between two tries to hear.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

pub(crate) struct Broadcasts {
    heard: broadcast::Sender<Broadcast>,
    hearing: Mutex<Option<watch::Receiver<Standing>>>,
}

/// How it stands with the way to the store.
#[derive(Clone)]
enum Standing {
    Begun,
    Up,
    Down(Error),
}

impl Default for Broadcasts {
    fn default() -> Self {
        Self { heard: broadcast::Sender::new(LAG_MAX), hearing: Mutex::default() }
    }
}

impl Broadcasts {
    /// Tells a message to who listens in this process.
    pub(crate) fn say(&self, message: String) {
        // Nobody may listen.
        let _ = self.heard.send(Broadcast::Said(message));
    }

    /// Listens to what is said in this process.
    pub(crate) fn listen(&self) -> BroadcastStream {
        told_to(self.heard.subscribe())
    }

    /// Listens, as soon as the store is heard. `hear` brings what is published to an [`Ear`] until its
    /// connection ends, and is called again then; nobody calls it while one of the calls is under way.
    pub(crate) async fn hear<F>(
        self: &Arc<Self>,
        hear: impl Fn(Ear) -> F + Send + 'static,
    ) -> Result<BroadcastStream>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let (stream, mut standing) = {
            let mut hearing = self.hearing.lock();
            let stream = self.listen();
            let standing = hearing.get_or_insert_with(|| {
                let (said, standing) = watch::channel(Standing::Begun);
                let ear = Ear { broadcasts: Arc::clone(self), standing: Arc::new(said) };
                tokio::spawn(hear_on(ear, hear));
                standing
            });
            (stream, standing.clone())
        };
        match standing.wait_for(|standing| !matches!(standing, Standing::Begun)).await.as_deref() {
            Ok(Standing::Down(error)) => Err(error.clone()),
            Ok(Standing::Up | Standing::Begun) => Ok(stream),
            Err(_) => Err(Error::internal("the receiver of broadcasts has ended")),
        }
    }

    /// Ends the hearing, if nobody listens any more.
    fn ends(&self) -> bool {
        let mut hearing = self.hearing.lock();
        let is_unwanted = self.heard.receiver_count() == 0;
        if is_unwanted {
            *hearing = None;
        }
        is_unwanted
    }
}

/// Where what was heard goes.
#[derive(Clone)]
pub(crate) struct Ear {
    broadcasts: Arc<Broadcasts>,
    standing: Arc<watch::Sender<Standing>>,
}

impl Ear {
    /// From now on everything is heard.
    pub(crate) fn begin(&self) {
        // Told again: what was said since the way was lost was not heard.
        if let Standing::Down(_) = self.standing.send_replace(Standing::Up) {
            self.miss();
        }
    }

    pub(crate) fn say(&self, message: String) {
        self.broadcasts.say(message);
    }

    /// Something may have been missed.
    pub(crate) fn miss(&self) {
        let _ = self.broadcasts.heard.send(Broadcast::Gap);
    }
}

/// Hears until nobody listens.
async fn hear_on<F: Future<Output = Result<()>>>(ear: Ear, hear: impl Fn(Ear) -> F) {
    let mut pause = PAUSE_MIN;
    loop {
        let ended = tokio::select! {
            ended = hear(ear.clone()) => ended.err(),
            () = ear.broadcasts.heard.closed() => None,
        };
        if ear.broadcasts.ends() {
            return;
        }
        if matches!(*ear.standing.borrow(), Standing::Up) {
            ear.miss();
            pause = PAUSE_MIN;
        }
        let error =
            ended.unwrap_or_else(|| Error::new(ErrorKind::Unavailable, "broadcasts are not heard"));
        tracing::debug!(error = error.chain(), "broadcasts are not heard; trying again");
        ear.standing.send_replace(Standing::Down(error));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = ear.broadcasts.heard.closed() => {}
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn told_to(listener: broadcast::Receiver<Broadcast>) -> BroadcastStream {
    Box::pin(stream::unfold(listener, async |mut listener| match listener.recv().await {
        Ok(told) => Some((told, listener)),
        Err(broadcast::error::RecvError::Lagged(_)) => Some((Broadcast::Gap, listener)),
        Err(broadcast::error::RecvError::Closed) => None,
    }))
}

/// Refuses messages that not every store could carry.
pub(crate) fn check(messages: &[String]) -> Result<()> {
    messages.iter().try_for_each(|one| check_size("a message", one.len(), BROADCAST_BYTES_MAX))
}
