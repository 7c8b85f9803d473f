//! Who is connected, who of them is idle and since when: who has been idle longest leaves first when it gets
//! crowded, and who is idle or stalled for too long leaves anyway.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Bounds;

/// All connections that are idle, in the order in which they became so.
#[derive(Default)]
pub(super) struct Crowd(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    idle: BTreeMap<u64, Weak<Presence>>,
    last: u64,
    /// How many were asked to leave and are still there.
    leaving: usize,
}

impl Crowd {
    /// Asks whoever has been idle longest to leave; false when nobody is about to.
    pub(super) fn thin_out(&self) -> bool {
        loop {
            let mut queue = self.0.lock();
            let Some((_, oldest)) = queue.idle.pop_first() else { return queue.leaving > 0 };
            // Let go before the connection is: its end needs this lock.
            queue.leaving += 1;
            drop(queue);
            match oldest.upgrade() {
                Some(oldest) if !oldest.is_leaving.swap(true, Ordering::Relaxed) => {
                    oldest.leave.notify_one();
                    return true;
                }
                Some(_) | None => self.0.lock().leaving -= 1,
            }
        }
    }

    fn enter(&self, presence: &Weak<Presence>) -> u64 {
        let mut queue = self.0.lock();
        queue.last += 1;
        let ticket = queue.last;
        queue.idle.insert(ticket, presence.clone());
        ticket
    }

    fn exit(&self, ticket: u64) {
        self.0.lock().idle.remove(&ticket);
    }
}

/// One connection among all.
pub(super) struct Presence {
    crowd: Arc<Crowd>,
    own: Weak<Self>,
    doing: Mutex<Doing>,
    leave: Notify,
    is_leaving: AtomicBool,
    bounds: Bounds,
}

struct Doing {
    /// Where it stands among the idle.
    ticket: u64,
    idle_since: Instant,
    /// The requests under way; of those with an answer that is for the client to take, how it does.
    requests: HashMap<u64, Option<Taking>>,
    last: u64,
}

/// How a client takes an answer.
#[derive(Clone, Copy)]
struct Taking {
    since: Instant,
    /// Bytes since then.
    bytes: usize,
    /// When it has to be over; never where nobody knows how much it is.
    until: Option<Instant>,
}

impl Taking {
    fn new(until: Option<Instant>) -> Self {
        Self { since: Instant::now(), bytes: 0, until }
    }

    fn ends_at(&self, bounds: &Bounds) -> Instant {
        let at = self.since + bounds.write_stall;
        self.until.map_or(at, |until| until.min(at))
    }
}

impl Presence {
    /// A connection that has not asked for anything yet.
    pub(super) fn new(crowd: &Arc<Crowd>, bounds: Bounds) -> Arc<Self> {
        Arc::new_cyclic(|own| {
            let doing = Doing {
                ticket: crowd.enter(own),
                idle_since: Instant::now(),
                requests: HashMap::new(),
                last: 0,
            };
            let (crowd, own, doing) = (crowd.clone(), own.clone(), Mutex::new(doing));
            let (leave, is_leaving) = Default::default();
            Self { crowd, own, doing, leave, is_leaving, bounds }
        })
    }

    /// A request has come.
    pub(super) fn begin(self: &Arc<Self>) -> Asked {
        let mut doing = self.doing.lock();
        if doing.requests.is_empty() {
            self.crowd.exit(doing.ticket);
        }
        doing.last += 1;
        let number = doing.last;
        doing.requests.insert(number, None);
        Asked { presence: self.clone(), number }
    }

    /// Ends when it should make room for others.
    pub(super) async fn asked_to_leave(&self) {
        self.leave.notified().await;
    }

    pub(super) fn is_idle(&self) -> bool {
        self.doing.lock().requests.is_empty()
    }

    /// When the connection is to be closed if nothing happens on it; nothing while it works for its client.
    pub(super) fn ends_at(&self) -> Option<Instant> {
        let (doing, bounds) = (self.doing.lock(), &self.bounds);
        if doing.requests.is_empty() {
            return Some(doing.idle_since + bounds.head_read);
        }
        doing.requests.values().flatten().map(|taking| taking.ends_at(bounds)).min()
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut queue = self.crowd.0.lock();
        queue.idle.remove(&self.doing.get_mut().ticket);
        queue.leaving -= usize::from(*self.is_leaving.get_mut());
    }
}

/// A request under way, until its answer was taken.
pub(super) struct Asked {
    presence: Arc<Presence>,
    number: u64,
}

impl Asked {
    /// There is an answer. One whose size is known has to be taken within some time.
    pub(super) fn is_ready(&self, is_sized: bool) {
        let until = is_sized.then(|| Instant::now() + self.presence.bounds.response_time);
        self.presence.doing.lock().requests.insert(self.number, Some(Taking::new(until)));
    }

    /// So many bytes were taken, and it is for the client to take more.
    pub(super) fn is_offered(&self, taken: usize) {
        let bounds = &self.presence.bounds;
        let least = bounds.bytes_in(bounds.write_stall).max(1);
        let mut doing = self.presence.doing.lock();
        let request = doing.requests.entry(self.number).or_default();
        let taking = request.get_or_insert_with(|| Taking::new(None));
        taking.bytes += taken;
        if taking.bytes >= least {
            *taking = Taking::new(taking.until);
        }
    }

    /// The client has taken what there is, and there may be more later.
    pub(super) fn is_awaited(&self) {
        self.presence.doing.lock().requests.insert(self.number, None);
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let mut doing = self.presence.doing.lock();
        doing.requests.remove(&self.number);
        if doing.requests.is_empty() {
            doing.idle_since = Instant::now();
            doing.ticket = self.presence.crowd.enter(&self.presence.own);
        }
    }
}

/// How often a connection is looked at besides, so that what began after the last look is noticed in time.
pub(super) fn look_every(bounds: &Bounds) -> Duration {
    bounds.head_read.min(bounds.write_stall).max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn is_asked(presence: &Presence) -> bool {
        presence.asked_to_leave().now_or_never().is_some()
    }

    #[tokio::test]
    async fn who_has_been_idle_longest_leaves_first() {
        let crowd = Arc::new(Crowd::default());
        let [first, second, third] = [(); 3].map(|()| Presence::new(&crowd, Bounds::default()));
        let busy = third.begin();
        drop(first.begin());
        assert!(crowd.thin_out());
        assert!(is_asked(&second) && !is_asked(&first), "the first has just been busy");
        assert!(crowd.thin_out() && is_asked(&first));
        assert!(crowd.thin_out() && !is_asked(&third), "two are about to leave");
        drop((first, second));
        assert!(!crowd.thin_out(), "nobody is idle");
        drop(busy);
        assert!(crowd.thin_out() && is_asked(&third));
        drop(third);
        drop(Presence::new(&crowd, Bounds::default()));
        assert!(!crowd.thin_out(), "it has left by itself");
    }

    #[tokio::test(start_paused = true)]
    async fn the_answer_that_is_taken_slowest_counts() {
        let (crowd, bounds) = (Arc::new(Crowd::default()), Bounds::default());
        let presence = Presence::new(&crowd, bounds);
        assert_eq!(presence.ends_at(), Some(Instant::now() + bounds.head_read));
        let (stalled, lively) = (presence.begin(), presence.begin());
        assert_eq!(presence.ends_at(), None, "it is worked for");
        let began = Instant::now();
        stalled.is_ready(true);
        tokio::time::advance(Duration::from_secs(5)).await;
        lively.is_ready(false);
        // A byte now and then is no progress.
        stalled.is_offered(1);
        assert_eq!(presence.ends_at(), Some(began + bounds.write_stall));
        stalled.is_offered(bounds.bytes_in(bounds.write_stall));
        assert_eq!(presence.ends_at(), Some(Instant::now() + bounds.write_stall));
        drop(stalled);
        assert_eq!(presence.ends_at(), Some(Instant::now() + bounds.write_stall));
        lively.is_awaited();
        assert_eq!(presence.ends_at(), None, "who waits for us is not the one who stalls");
        drop(lively);
        assert!(presence.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_of_a_known_size_has_an_end() {
        let (crowd, bounds) = (Arc::new(Crowd::default()), Bounds::default());
        let presence = Presence::new(&crowd, bounds);
        let (sized, endless) = (presence.begin(), presence.begin());
        let began = Instant::now();
        sized.is_ready(true);
        endless.is_ready(false);
        let step = bounds.write_stall / 2;
        while began.elapsed() + step < bounds.response_time {
            tokio::time::advance(step).await;
            for answer in [&sized, &endless] {
                answer.is_offered(bounds.bytes_in(bounds.write_stall));
            }
        }
        assert_eq!(presence.ends_at(), Some(began + bounds.response_time));
        drop(sized);
        assert_eq!(presence.ends_at(), Some(Instant::now() + bounds.write_stall));
    }
}
