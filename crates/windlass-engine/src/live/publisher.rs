//! Tells other processes what happened here, while someone listens there. Nothing of it is on the way of
//! whoever made it happen: a task of its own looks who listens, packs what has gathered, and sends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::Instant;
use windlass_core::{Result, Store};

use super::audience::{Audience, FRESH_FOR};
use super::happening::TaskEvent;
use super::packet::{Marks, pack};

/// Events that wait; what comes when there are more is left out, and a gap told in its place.
const WAITING_MAX: usize = 10_000;
/// Time between two messages to others, in which the next ones gather.
const PACE: Duration = Duration::from_millis(15);
/// The pause after a failure, and how long it is tried again while nothing new comes.
const PAUSE: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Publisher {
    store: Arc<dyn Store>,
    origin: String,
    /// Others can be told at all.
    is_able: bool,
    began: Instant,
    /// Until then (ms since it began) it is known that nobody listens elsewhere.
    unwanted_until_ms: AtomicU64,
    waiting: Mutex<Waiting>,
    /// What only who drives has.
    driver: tokio::sync::Mutex<Driver>,
}

#[derive(Default)]
struct Waiting {
    events: Vec<TaskEvent>,
    marks: Marks,
    /// Somebody sees to it.
    is_driven: bool,
}

#[derive(Default)]
struct Driver {
    audience: Audience,
    looked: Option<(Instant, bool)>,
    /// The last message's.
    number: u64,
}

impl Publisher {
    pub(crate) fn new(store: Arc<dyn Store>, origin: String) -> Self {
        let is_able = store.profile().capabilities.has_broadcasts;
        Self {
            store,
            origin,
            is_able,
            began: Instant::now(),
            unwanted_until_ms: AtomicU64::new(0),
            waiting: Mutex::default(),
            driver: tokio::sync::Mutex::default(),
        }
    }

    /// False when it is known that nobody listens elsewhere.
    pub(crate) fn may_be_wanted(&self) -> bool {
        self.is_able && self.now_ms() >= self.unwanted_until_ms.load(Ordering::Relaxed)
    }

    /// Tells what is wanted elsewhere, soon.
    pub(crate) fn push(self: &Arc<Self>, home: &Handle, events: Vec<TaskEvent>, marks: Marks) {
        if !self.may_be_wanted() {
            return;
        }
        let is_driven = {
            let mut waiting = self.waiting.lock();
            waiting.add(events, marks);
            std::mem::replace(&mut waiting.is_driven, true)
        };
        if !is_driven {
            let drive = Drive { publisher: Arc::clone(self), is_done: false };
            // Where a runtime has ended, the future is dropped at once, and the next who comes tries again.
            home.spawn(drive.run());
        }
    }

    /// Sends until nothing waits, or nobody wants it.
    async fn drive(self: &Arc<Self>) {
        let mut driver = self.driver.lock().await;
        let mut since = Instant::now();
        loop {
            if self.waiting.lock().ends() {
                return;
            }
            match self.step(&mut driver).await {
                Ok(()) => {
                    since = Instant::now();
                    tokio::time::sleep(PACE).await;
                }
                Err(error) if since.elapsed() < PATIENCE => {
                    tracing::debug!(error = error.chain(), "events wait for the store");
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => {
                    tracing::warn!(error = error.chain(), "events are not told elsewhere");
                    let mut waiting = self.waiting.lock();
                    waiting.lose();
                    waiting.is_driven = false;
                    return;
                }
            }
        }
    }

    async fn step(&self, driver: &mut Driver) -> Result<()> {
        if !self.is_wanted(driver).await? {
            self.waiting.lock().take();
            return Ok(());
        }
        let (events, marks) = self.waiting.lock().take();
        let messages = pack(&self.origin, &mut driver.number, marks, &events);
        let sent = self.store.publish(messages).await;
        if sent.is_err() {
            // Whether they were told, nobody knows: told twice would be out of order.
            self.waiting.lock().miss();
        }
        sent
    }

    /// Whether someone listens elsewhere, as of a second ago at most.
    async fn is_wanted(&self, driver: &mut Driver) -> Result<bool> {
        if let Some((asked, is_wanted)) = driver.looked
            && asked.elapsed() < FRESH_FOR
        {
            return Ok(is_wanted);
        }
        let (asked, asked_ms) = (Instant::now(), self.now_ms());
        let is_wanted = driver.audience.look(&*self.store, &self.origin).await?;
        driver.looked = Some((asked, is_wanted));
        let fresh_ms = u64::try_from(FRESH_FOR.as_millis()).unwrap_or(u64::MAX);
        let until = if is_wanted { 0 } else { asked_ms + fresh_ms };
        self.unwanted_until_ms.store(until, Ordering::Relaxed);
        Ok(is_wanted)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Somebody drives. When it is dropped before it was done, with the runtime, the next may.
struct Drive {
    publisher: Arc<Publisher>,
    is_done: bool,
}

impl Drive {
    async fn run(mut self) {
        self.publisher.drive().await;
        self.is_done = true;
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        if !self.is_done {
            self.publisher.waiting.lock().is_driven = false;
        }
    }
}

impl Waiting {
    fn add(&mut self, events: Vec<TaskEvent>, marks: Marks) {
        self.marks.add(marks);
        if self.events.len() + events.len() > WAITING_MAX {
            self.lose();
        } else if self.events.is_empty() {
            self.events = events;
        } else {
            self.events.extend(events);
        }
    }

    fn take(&mut self) -> (Vec<TaskEvent>, Marks) {
        (std::mem::take(&mut self.events), std::mem::take(&mut self.marks))
    }

    /// True when there is nothing to do: whoever adds something from now on sees that nobody does it.
    fn ends(&mut self) -> bool {
        let is_empty = self.events.is_empty() && self.marks == Marks::default();
        self.is_driven = !is_empty;
        is_empty
    }

    /// Something before what waits is missing.
    fn miss(&mut self) {
        self.marks.has_gap = true;
    }

    /// What waits is left out.
    fn lose(&mut self) {
        self.events = Vec::new();
        self.miss();
    }
}
