//! Tells other processes what happened here, while someone listens there. Nothing of it is on the way of
//! whoever made it happen: a task of its own looks who listens, packs what has gathered, and sends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;
use windlass_core::{Result, Store};

use super::audience::{Audience, FRESH_FOR};
use super::hub::Hub;
use super::packet::{News, pack};
use crate::outage::warn_unless_outage;

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
    /// Those who listen here, who hear of queues and workers by the store as all others do, and so in the same
    /// order.
    hub: Arc<Hub>,
    /// Others can be told at all.
    is_able: bool,
    began: Instant,
    /// Until then (ms since it began) it is known that nobody listens elsewhere.
    unwanted_until_ms: AtomicU64,
    waiting: Mutex<Waiting>,
    /// How much of what was ever pushed is dealt with.
    dealt: watch::Sender<u64>,
    /// What only who drives has.
    driver: tokio::sync::Mutex<Driver>,
}

#[derive(Default)]
struct Waiting {
    news: News,
    /// How often something was pushed.
    pushed: u64,
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
    pub(crate) fn new(store: Arc<dyn Store>, origin: String, hub: Arc<Hub>) -> Self {
        let is_able = store.profile().capabilities.has_broadcasts;
        Self {
            store,
            origin,
            hub,
            is_able,
            began: Instant::now(),
            unwanted_until_ms: AtomicU64::new(0),
            waiting: Mutex::default(),
            dealt: watch::Sender::default(),
            driver: tokio::sync::Mutex::default(),
        }
    }

    /// Others can be told at all.
    pub(crate) fn is_able(&self) -> bool {
        self.is_able
    }

    /// False when it is known that nobody listens elsewhere.
    pub(crate) fn may_be_wanted(&self) -> bool {
        self.is_able && self.now_ms() >= self.unwanted_until_ms.load(Ordering::Relaxed)
    }

    /// Tells what is wanted, soon.
    pub(crate) fn push(self: &Arc<Self>, home: &Handle, news: News) {
        let (is_driven, has_lost) = {
            let mut waiting = self.waiting.lock();
            let has_others = !news.others.is_empty() || !waiting.news.others.is_empty();
            let has_lost = !waiting.news.add(news, WAITING_MAX) && has_others;
            waiting.pushed += 1;
            (std::mem::replace(&mut waiting.is_driven, true), has_lost)
        };
        if has_lost {
            self.hub.miss();
        }
        if !is_driven {
            let drive = Drive { publisher: Arc::clone(self), is_done: false };
            // Where a runtime has ended, the future is dropped at once, and the next who comes tries again.
            home.spawn(drive.run());
        }
    }

    /// Waits until what was pushed before is told, or cannot be. While the store is away, that is long.
    pub(crate) async fn all_told(&self) {
        let pushed = self.waiting.lock().pushed;
        let mut dealt = self.dealt.subscribe();
        let _ = dealt.wait_for(|dealt| *dealt >= pushed).await;
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
                    warn_unless_outage!(error, "events are not told elsewhere");
                    if self.waiting.lock().lose() {
                        self.hub.miss();
                    }
                    return;
                }
            }
        }
    }

    async fn step(&self, driver: &mut Driver) -> Result<()> {
        let is_wanted = self.is_wanted(driver).await?;
        let (news, pushed) = self.waiting.lock().take();
        let news = match is_wanted {
            true => news,
            false if self.hub.is_active() => News::of_others(news.others),
            false => News::default(),
        };
        let messages = pack(&self.origin, &mut driver.number, &news);
        let sent = match messages.is_empty() {
            true => Ok(()),
            false => self.store.publish(messages).await,
        };
        match &sent {
            Ok(()) => {
                self.dealt.send_replace(pushed);
            }
            // Whether they were told, nobody knows: told twice would be out of order. The gap is told next.
            Err(_) => {
                self.waiting.lock().news.marks.has_gap = true;
                if !news.others.is_empty() {
                    self.hub.miss();
                }
            }
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
    fn take(&mut self) -> (News, u64) {
        (std::mem::take(&mut self.news), self.pushed)
    }

    /// True when there is nothing to do: whoever adds something from now on sees that nobody does it.
    fn ends(&mut self) -> bool {
        let is_empty = self.news.is_empty();
        self.is_driven = !is_empty;
        is_empty
    }

    /// What waits is left out, and nobody sees to it. True when there were events of queues or workers among it.
    fn lose(&mut self) -> bool {
        self.is_driven = false;
        let has_others = !self.news.others.is_empty();
        self.news.lose();
        has_others
    }
}
