//! Brings together what happens here and what others tell, and puts it up for all who listen here.
//!
//! A hub works only while someone listens: a keeper (`keeper.rs`) hears the store's broadcasts, says that
//! someone listens, and puts events up in their order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use windlass_core::event::{Event, EventKind, Subject};
use windlass_core::{Error, ErrorKind, Reason, Result, Store};

use super::board::{Board, Place, Since, Told};
use super::filter::EventFilter;
use super::keeper;
use super::packet::News;
use crate::store_clock::StoreClock;

/// Those who listen at the same time.
const LISTENERS_MAX: usize = 5_000;
/// Events of this process that wait to be put up.
const INBOX_MAX: usize = 10_000;
/// Events that are taken at once.
const BATCH_MAX: usize = 64;

pub(crate) struct Hub {
    pub(super) store: Arc<dyn Store>,
    /// Names this process among those that tell each other.
    pub(super) origin: String,
    pub(super) clock: Arc<StoreClock>,
    pub(super) board: Mutex<Board>,
    pub(super) arrived: Notify,
    is_active: AtomicBool,
    listeners: AtomicUsize,
    /// What happened in this process.
    inbox: Mutex<News>,
    keeping: Mutex<Option<watch::Receiver<Standing>>>,
}

/// How it stands with hearing.
#[derive(Clone)]
pub(super) enum Standing {
    Begun,
    Up,
    Down(Error),
}

impl Hub {
    pub(crate) fn new(store: Arc<dyn Store>, origin: String, clock: Arc<StoreClock>) -> Self {
        Self {
            store,
            board: Mutex::new(Board::new(origin.clone())),
            origin,
            clock,
            arrived: Notify::new(),
            is_active: AtomicBool::new(false),
            listeners: AtomicUsize::new(0),
            inbox: Mutex::default(),
            keeping: Mutex::default(),
        }
    }

    /// True while someone listens here.
    pub(crate) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }

    /// Takes what happened in this process.
    pub(crate) fn push(&self, news: News) {
        self.inbox.lock().add(news, INBOX_MAX);
        self.arrived.notify_one();
    }

    /// Something happened that will not be heard here.
    pub(crate) fn miss(&self) {
        if self.is_active() {
            self.push(News::GAP);
        }
    }

    pub(super) fn take(&self) -> News {
        std::mem::take(&mut *self.inbox.lock())
    }

    /// Listens. Answers when nothing is missed any more, wherever it happens.
    pub(crate) async fn listen(
        self: &Arc<Self>,
        filter: EventFilter,
        since: Option<&str>,
    ) -> Result<Listener> {
        let seat = Seat::take(self)?;
        let mut standing = self.kept();
        match standing.wait_for(|standing| !matches!(standing, Standing::Begun)).await.as_deref() {
            Ok(Standing::Down(error)) => return Err(error.clone()),
            Ok(Standing::Up | Standing::Begun) => {}
            Err(_) => return Err(Error::new(ErrorKind::Unavailable, "the runtime ended")),
        }
        let place = self.board.lock().place(&filter, since.map_or(Since::Now, Since::Id))?;
        let changed = place.watch();
        Ok(Listener { seat, place, changed, ready: VecDeque::new() })
    }

    /// Has someone keep this hub, if nobody does.
    fn kept(self: &Arc<Self>) -> watch::Receiver<Standing> {
        let mut keeping = self.keeping.lock();
        let begin = || {
            let (said, standing) = watch::channel(Standing::Begun);
            self.is_active.store(true, Ordering::Release);
            tokio::spawn(keeper::keep(self.clone(), said));
            standing
        };
        // One whose runtime has ended keeps nothing.
        if keeping.as_ref().is_some_and(|standing| standing.has_changed().is_err()) {
            *keeping = None;
        }
        keeping.get_or_insert_with(begin).clone()
    }

    /// Ends the keeping; unless someone listens, and it does not have to.
    pub(super) fn ends(&self, must: bool) -> bool {
        let mut keeping = self.keeping.lock();
        if !must && self.listeners.load(Ordering::Acquire) > 0 {
            return false;
        }
        *keeping = None;
        self.is_active.store(false, Ordering::Release);
        *self.inbox.lock() = News::default();
        // Ids from before must not seem to be followed by what comes when someone listens again.
        self.board.lock().clear();
        true
    }

    pub(super) fn has_listeners(&self) -> bool {
        self.listeners.load(Ordering::Acquire) > 0
    }

    pub(super) fn gap(&self, reason: &'static str) -> Event {
        Event { kind: EventKind::Gap, at: self.clock.now(), subject: Subject::Gap { reason } }
    }
}

/// One of those who listen.
struct Seat(Arc<Hub>);

impl Seat {
    fn take(hub: &Arc<Hub>) -> Result<Self> {
        let seat = Self(hub.clone());
        if hub.listeners.fetch_add(1, Ordering::AcqRel) >= LISTENERS_MAX {
            let text = format!("{LISTENERS_MAX} listen to events already");
            return Err(Error::new(ErrorKind::Unavailable, text).reason_is(Reason::Crowded));
        }
        Ok(seat)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.listeners.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Hears live events, from [`crate::Client::listen`]. Dropping it ends that.
pub struct Listener {
    place: Place,
    changed: watch::Receiver<u64>,
    ready: VecDeque<Arc<Told>>,
    seat: Seat,
}

impl Listener {
    /// The next event. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Arc<Told> {
        loop {
            if let Some(told) = self.ready.pop_front() {
                return told;
            }
            self.ready = self.next_batch().await.into();
        }
    }

    /// The next events, at least one. Dropping the future loses nothing.
    pub async fn next_batch(&mut self) -> Vec<Arc<Told>> {
        loop {
            self.changed.borrow_and_update();
            let batch = self.take();
            if !batch.is_empty() {
                return batch;
            }
            if self.changed.changed().await.is_err() {
                // Cannot be while the hub is there, and we hold it.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Those events that are there already; none, perhaps.
    pub fn take(&mut self) -> Vec<Arc<Told>> {
        let (gap, mut told) = self.place.take(BATCH_MAX);
        if let Some(number) = gap {
            let hub = &self.seat.0;
            let event = hub.gap("this client has missed events that are kept no longer");
            told.insert(0, hub.board.lock().gap_after(number, event));
        }
        told
    }

    /// Up to where it has heard everything, as the id of an event: whoever comes back with it misses nothing, or is
    /// told of a gap.
    pub fn place(&self) -> String {
        self.seat.0.board.lock().id(self.place.seen)
    }

    /// Wants other events from now on: after those that it has heard, or after the event of an id.
    pub fn refilter(&mut self, filter: &EventFilter, since: Option<&str>) -> Result<()> {
        let since = since.map_or(Since::Number(self.place.seen), Since::Id);
        let mut board = self.seat.0.board.lock();
        self.place = board.place(filter, since)?;
        self.changed = self.place.watch();
        board.tidy();
        Ok(())
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Listener")
    }
}
