//! Memory that large bodies and large responses share, so that slow clients cannot take all of it.
//!
//! A permit counts bytes that are here: a body's as they arrive, a response's until its last piece has left. Each
//! connection and each token has a share. While memory is short, the slowest transfer is ended first: a client
//! that dawdles loses its own request, and others go on.

mod response;
mod transfer;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use response::ResponseMemory;
pub(crate) use transfer::Transfer;

use crate::access::Caller;
use crate::listen::Bounds;
use crate::problem::{Problem, Slug};

/// A body or a response of up to so many bytes needs no permit: all connections together can hold that much.
pub(crate) const SMALL_BYTES: usize = 16 * 1024;
/// What is larger leaves the last quarter of the memory to what is not.
const MEDIUM_BYTES: usize = 1024 * 1024;
/// How long a request waits for memory before it is refused; and for what its own connection or token holds.
const WAIT_MAX: Duration = Duration::from_secs(10);
const SHARE_WAIT_MAX: Duration = Duration::from_secs(2);
/// How long a request waits before slow transfers are ended for it: claims hold much memory for some milliseconds.
const END_AFTER: Duration = Duration::from_millis(200);
/// How often a request that waits looks for a slow transfer.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Transfers of at least so many bytes per second are not ended for want of memory.
const RATE_SAFE: f64 = 1024.0 * 1024.0;

/// Memory of a certain size.
#[derive(Clone)]
pub(crate) struct MemoryBudget(Arc<Inner>);

struct Inner {
    bytes_max: usize,
    state: Mutex<State>,
    released: Notify,
}

#[derive(Default)]
struct State {
    used: usize,
    shares: HashMap<Share, usize>,
    permits: HashMap<u64, Held>,
    last: u64,
    looked: Option<Instant>,
    /// Bytes that requests wait for.
    wanted: usize,
}

/// What one permit holds.
struct Held {
    bytes: usize,
    shares: Vec<Share>,
    transfer: Arc<Transfer>,
}

/// Who holds memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Share {
    Connection(u64),
    Token(String),
}

impl Share {
    fn bytes_max(&self, of: usize) -> usize {
        match self {
            Self::Connection(_) => of / 4,
            Self::Token(_) => of / 2,
        }
    }
}

/// Why there is no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shortage {
    Connection,
    Token,
    Server,
}

impl From<Shortage> for Problem {
    fn from(shortage: Shortage) -> Self {
        let (slug, text) = match shortage {
            Shortage::Connection => {
                (Slug::RateLimited, "this connection has too much on its way; try again")
            }
            Shortage::Token => (Slug::RateLimited, "this token has too much on its way; try again"),
            Shortage::Server => (Slug::Overloaded, "too much is on its way at once; try again"),
        };
        Problem::new(slug, text).retry_after(Duration::from_secs(1))
    }
}

impl MemoryBudget {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let (state, released) = Default::default();
        Self(Arc::new(Inner { bytes_max, state, released }))
    }

    /// A permit for nothing yet.
    fn permit(&self, shares: Vec<Share>, transfer: Arc<Transfer>) -> MemoryPermit {
        let mut state = self.0.state.lock();
        state.last += 1;
        let id = state.last;
        state.permits.insert(id, Held { bytes: 0, shares, transfer });
        MemoryPermit { budget: self.clone(), id }
    }

    /// Bytes that are held now.
    #[cfg(test)]
    fn used(&self) -> usize {
        self.0.state.lock().used
    }
}

impl State {
    /// Sets what a permit holds, unless that would be too much.
    fn set(&mut self, id: u64, bytes: usize, bytes_max: usize) -> Result<(), Shortage> {
        let Some(held) = self.permits.get(&id) else { return Ok(()) };
        let more = bytes.saturating_sub(held.bytes);
        // What is alone fits, however large it is: it could never fit otherwise.
        let fits = |used: usize, max: usize| used + more <= max || used == held.bytes;
        let reserve = if bytes > MEDIUM_BYTES { bytes_max / 4 } else { 0 };
        for share in &held.shares {
            let used = self.shares.get(share).copied().unwrap_or_default();
            if more > 0 && !fits(used, share.bytes_max(bytes_max)) {
                return Err(match share {
                    Share::Connection(_) => Shortage::Connection,
                    Share::Token(_) => Shortage::Token,
                });
            }
        }
        if more > 0 && !fits(self.used, bytes_max - reserve) {
            return Err(Shortage::Server);
        }
        self.force(id, bytes);
        Ok(())
    }

    /// Sets what a permit holds, whatever that comes to.
    fn force(&mut self, id: u64, bytes: usize) {
        let Some(held) = self.permits.get_mut(&id) else { return };
        let before = std::mem::replace(&mut held.bytes, bytes);
        self.used = self.used - before + bytes;
        for share in &held.shares {
            let used = self.shares.entry(share.clone()).or_default();
            *used = *used - before + bytes;
            if *used == 0 {
                self.shares.remove(share);
            }
        }
    }

    /// Ends the slowest transfers, until there is enough for those who wait, but no more than a share of the memory
    /// at a time: many of those who wait need less than they ask for.
    fn end_slowest(&mut self, bytes_max: usize) {
        let now = Instant::now();
        if self.looked.is_some_and(|looked| now - looked < LOOK_EVERY) {
            return;
        }
        self.looked = Some(now);
        let (ended, going): (Vec<_>, Vec<_>) =
            self.permits.values().partition(|held| held.transfer.is_ended());
        let wanted = self.wanted.min(bytes_max / 4);
        let mut freed: usize = ended.iter().map(|held| held.bytes).sum();
        let paced = going.into_iter().filter(|held| held.bytes > 0);
        let paced = paced.filter_map(|held| Some((held.transfer.rate(now)?, held)));
        let mut slow: Vec<_> = paced.filter(|(rate, _)| *rate < RATE_SAFE).collect();
        slow.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (_, held) in slow {
            if freed >= wanted {
                return;
            }
            held.transfer.end();
            freed += held.bytes;
        }
    }
}

/// Memory that is held until this is dropped.
pub(crate) struct MemoryPermit {
    budget: MemoryBudget,
    id: u64,
}

impl MemoryPermit {
    /// Holds so many bytes from now on; waits for them a little.
    pub(crate) async fn hold(&self, bytes: usize) -> Result<(), Problem> {
        let Inner { bytes_max, state, released } = &*self.budget.0;
        if state.lock().set(self.id, bytes, *bytes_max).is_ok() {
            return Ok(());
        }
        let (_wanted, began) = (Wanted::new(&self.budget, bytes), Instant::now());
        loop {
            let release = released.notified();
            let shortage = {
                let mut state = state.lock();
                match state.set(self.id, bytes, *bytes_max) {
                    Ok(()) => return Ok(()),
                    Err(shortage) => {
                        if shortage == Shortage::Server && began.elapsed() >= END_AFTER {
                            state.end_slowest(*bytes_max);
                        }
                        shortage
                    }
                }
            };
            let wait_max = match shortage {
                Shortage::Connection | Shortage::Token => SHARE_WAIT_MAX,
                Shortage::Server => WAIT_MAX,
            };
            if began.elapsed() >= wait_max {
                return Err(shortage.into());
            }
            let _ = tokio::time::timeout(LOOK_EVERY, release).await;
        }
    }

    /// Reserves this many bytes if the budget has room for them now; never waits.
    pub(crate) fn try_hold(&self, bytes: usize) -> bool {
        let Inner { bytes_max, state, .. } = &*self.budget.0;
        state.lock().set(self.id, bytes, *bytes_max).is_ok()
    }

    /// Holds so many bytes although there may be no room: they are here already.
    pub(crate) fn set(&self, bytes: usize) {
        self.budget.0.state.lock().force(self.id, bytes);
        self.budget.0.released.notify_waiters();
    }
}

/// Bytes that a request waits for, as long as it does.
struct Wanted<'a> {
    budget: &'a MemoryBudget,
    bytes: usize,
}

impl<'a> Wanted<'a> {
    fn new(budget: &'a MemoryBudget, bytes: usize) -> Self {
        budget.0.state.lock().wanted += bytes;
        Self { budget, bytes }
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.budget.0.state.lock().wanted -= self.bytes;
    }
}

impl Drop for MemoryPermit {
    fn drop(&mut self) {
        let mut state = self.budget.0.state.lock();
        state.force(self.id, 0);
        state.permits.remove(&self.id);
        drop(state);
        self.budget.0.released.notify_waiters();
    }
}

/// Where the requests of one connection get their memory; rides on each of them.
#[derive(Clone)]
pub(crate) struct ConnectionMemory {
    number: u64,
    bodies: MemoryBudget,
    responses: MemoryBudget,
    /// Ends the connection.
    ended: CancellationToken,
}

impl ConnectionMemory {
    pub(crate) fn new(
        number: u64,
        bodies: &MemoryBudget,
        responses: &MemoryBudget,
        ended: CancellationToken,
    ) -> Self {
        Self { number, bodies: bodies.clone(), responses: responses.clone(), ended }
    }

    /// Memory for a body, and how it comes in.
    pub(crate) fn body(&self, caller: Option<&Caller>) -> (MemoryPermit, Arc<Transfer>) {
        let transfer = Arc::new(Transfer::new(CancellationToken::new()));
        (self.bodies.permit(self.shares(caller), transfer.clone()), transfer)
    }

    /// Memory for a response. One that leaves too slowly ends the connection.
    pub(crate) fn response(&self, caller: Option<&Caller>) -> ResponsePermit {
        let transfer = Arc::new(Transfer::new(self.ended.clone()));
        let memory = self.responses.permit(self.shares(caller), transfer.clone());
        ResponsePermit { memory, transfer }
    }

    /// Memory for what a response is made of, as long as nobody knows how much that is. It is no one's share.
    pub(crate) fn draft(&self) -> MemoryPermit {
        self.responses.permit(Vec::new(), Arc::new(Transfer::new(CancellationToken::new())))
    }

    fn shares(&self, caller: Option<&Caller>) -> Vec<Share> {
        let token = match caller {
            Some(Caller::Token(token)) => Some(Share::Token(token.id.clone())),
            Some(Caller::Local) | None => None,
        };
        token.into_iter().chain([Share::Connection(self.number)]).collect()
    }
}

/// Memory for a response, and how it goes out.
pub(crate) struct ResponsePermit {
    pub(crate) memory: MemoryPermit,
    pub(crate) transfer: Arc<Transfer>,
}

/// The two budgets of a server.
pub(crate) struct Budgets {
    pub(crate) bodies: MemoryBudget,
    pub(crate) responses: MemoryBudget,
}

impl Budgets {
    pub(crate) fn new(bounds: &Bounds) -> Self {
        let Bounds { body_bytes_max, response_bytes_max, .. } = *bounds;
        let (bodies, responses) = (body_bytes_max, response_bytes_max);
        Self { bodies: MemoryBudget::new(bodies), responses: MemoryBudget::new(responses) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1024;

    /// A transfer that belongs to one connection.
    fn of(budget: &MemoryBudget, connection: u64) -> (MemoryPermit, Arc<Transfer>) {
        let transfer = Arc::new(Transfer::new(CancellationToken::new()));
        (budget.permit(vec![Share::Connection(connection)], transfer.clone()), transfer)
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_gets_its_share_and_others_the_rest() {
        let budget = MemoryBudget::new(400 * KIB);
        let [(first, _), (second, _), (third, _)] = [1, 1, 2].map(|number| of(&budget, number));
        first.hold(60 * KIB).await.unwrap();
        let refused = second.hold(60 * KIB).await.unwrap_err();
        assert_eq!(refused.slug(), Slug::RateLimited);
        third.hold(100 * KIB).await.unwrap();
        drop(first);
        second.hold(60 * KIB).await.unwrap();
        assert_eq!(budget.used(), 160 * KIB);
        drop((second, third));
        assert_eq!((budget.used(), budget.0.state.lock().shares.len()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_slowest_transfer_makes_room() {
        let budget = MemoryBudget::new(100 * KIB);
        let mut held: Vec<_> = (0..4).map(|number| of(&budget, number)).collect();
        for (speed, (permit, transfer)) in held.iter().enumerate() {
            permit.hold(25 * KIB).await.unwrap();
            transfer.begin();
            transfer.moved(speed * KIB);
        }
        tokio::time::advance(Duration::from_secs(2)).await;
        let (late, _) = of(&budget, 9);
        let slowest = held.remove(0);
        let ended = async {
            slowest.1.ended().await;
            drop(slowest);
        };
        let (held_now, ()) = tokio::join!(late.hold(25 * KIB), ended);
        held_now.unwrap();
        assert!(held.iter().all(|(_, transfer)| !transfer.is_ended()), "one was enough");
    }

    #[tokio::test(start_paused = true)]
    async fn transfers_that_rest_or_are_quick_keep_their_memory() {
        let budget = MemoryBudget::new(100 * KIB);
        let [(resting, resting_too), (quick, quick_too)] = [1, 2].map(|number| of(&budget, number));
        resting.hold(25 * KIB).await.unwrap();
        quick.hold(75 * KIB).await.unwrap();
        resting_too.begin();
        resting_too.rest();
        quick_too.begin();
        quick_too.moved(64 * 1024 * KIB);
        tokio::time::advance(Duration::from_secs(2)).await;
        let refused = of(&budget, 3).0.hold(10 * KIB).await.unwrap_err();
        assert_eq!(refused.slug(), Slug::Overloaded);
        assert!(!resting_too.is_ended() && !quick_too.is_ended());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_large_leaves_room_for_what_is_not() {
        let budget = MemoryBudget::new(16 * MEDIUM_BYTES);
        let large: Vec<_> = (0..4).map(|number| of(&budget, number).0).collect();
        for permit in &large[..3] {
            permit.hold(4 * MEDIUM_BYTES).await.unwrap();
        }
        assert_eq!(large[3].hold(2 * MEDIUM_BYTES).await.unwrap_err().slug(), Slug::Overloaded);
        large[3].hold(MEDIUM_BYTES).await.unwrap();
    }
}
