//! A store that fails on demand, around one that works.
//!
//! [`FaultyStore`] hands every call on to a real store; [`Faults`] are its switches. Nothing is
//! mocked: what a fault does not touch happens as always.

mod delegate;

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;
use windlass_core::store::Claim;
use windlass_core::{Error, ErrorKind, QueueName, Result, Store};

/// The methods of a store that can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is named after its method")]
pub enum Method {
    Dedicated,
    Inspect,
    Reserve,
    Insert,
    Claim,
    Apply,
    Wait,
    Beat,
    Leave,
    Lead,
    Promote,
    Expire,
    Prune,
    Tend,
    Change,
    Order,
    Get,
    List,
    Queues,
    Workers,
    Load,
    Save,
    Publish,
    Subscribe,
}

/// One way to reach a store: what goes wrong here does not go wrong for others.
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    faults: Faults,
}

/// The switches of a [`FaultyStore`]; clones share them.
#[derive(Clone, Default)]
pub struct Faults(Arc<Shared>);

#[derive(Default)]
struct Shared {
    setting: watch::Sender<Setting>,
    planned: Mutex<HashMap<Method, VecDeque<Planned>>>,
    partial_inserts: Mutex<VecDeque<(usize, ErrorKind)>>,
    partial_claims: Mutex<VecDeque<PartialClaim>>,
    calls: watch::Sender<HashMap<Method, u64>>,
    refusals: Mutex<HashMap<Method, u64>>,
}

/// What stays as it is until switched.
#[derive(Debug, Clone, Default)]
struct Setting {
    is_away: bool,
    is_cut: bool,
    held: HashSet<Method>,
    held_replies: HashSet<Method>,
    damaged: HashSet<QueueName>,
}

/// What happens to one coming call.
enum Planned {
    /// Nothing out of the ordinary.
    Passes,
    /// It is not executed.
    Fails(ErrorKind),
    /// It is executed, and the caller gets this error.
    LosesItsReply(ErrorKind),
}

/// What the caller of a claim hears of its answer.
enum PartialClaim {
    /// So many tasks, and that the rest had no answer.
    CutShort(usize),
    /// An error; the endings in front of the claim are answered.
    Fails(ErrorKind),
}

impl FaultyStore {
    /// A way to this store, without faults at first.
    pub fn around(inner: Arc<dyn Store>) -> (Arc<dyn Store>, Faults) {
        let faults = Faults::default();
        (Arc::new(Self { inner, faults: faults.clone() }), faults)
    }

    /// Sends one call through the faults.
    async fn pass<T>(
        &self,
        method: Method,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let loses_reply = self.faults.enter(method).await?;
        let answer = call.await;
        if answer.as_ref().is_err_and(Error::is_lease_lost) {
            *self.faults.0.refusals.lock().unwrap().entry(method).or_default() += 1;
        }
        self.faults.leave(method).await?;
        match loses_reply {
            Some(kind) => Err(Error::new(kind, format!("{method:?}: the reply was lost"))),
            None => answer,
        }
    }
}

impl Faults {
    /// From now on every call is answered `Unavailable`, those under way too.
    pub fn go_away(&self) {
        self.set(|setting| setting.is_away = true);
    }

    /// Ends [`Faults::go_away`].
    pub fn come_back(&self) {
        self.set(|setting| setting.is_away = false);
    }

    /// From now on no call is executed or answered, for ever: to the others, and to the store, whoever
    /// calls from here is dead.
    pub fn cut(&self) {
        self.set(|setting| setting.is_cut = true);
    }

    /// Calls of this method wait, unexecuted, until released. They are never dropped.
    pub fn hold(&self, method: Method) {
        self.set(|setting| _ = setting.held.insert(method));
    }

    /// Calls of this method are executed; their answers wait until released.
    pub fn hold_replies(&self, method: Method) {
        self.set(|setting| _ = setting.held_replies.insert(method));
    }

    /// Ends [`Faults::hold`] and [`Faults::hold_replies`].
    pub fn release(&self, method: Method) {
        self.set(|setting| {
            setting.held.remove(&method);
            setting.held_replies.remove(&method);
        });
    }

    /// From now on no end of a run can be recorded in this queue.
    pub fn damage(&self, queue: &QueueName) {
        self.set(|setting| _ = setting.damaged.insert(queue.clone()));
    }

    /// Ends [`Faults::damage`].
    pub fn undo_damage(&self, queue: &QueueName) {
        self.set(|setting| _ = setting.damaged.remove(queue));
    }

    /// The next call of this method is executed, but its caller gets `Unavailable`.
    pub fn lose_reply(&self, method: Method) {
        self.lose_reply_as(method, ErrorKind::Unavailable);
    }

    /// The next call of this method is executed, but its caller gets an error of this kind.
    pub fn lose_reply_as(&self, method: Method, kind: ErrorKind) {
        self.planned().entry(method).or_default().push_back(Planned::LosesItsReply(kind));
    }

    /// The next claim that brings something, alone or behind an apply, is executed. Its caller hears of its first
    /// `count` tasks.
    pub fn cut_claim_short(&self, count: usize) {
        self.partial_claims().push_back(PartialClaim::CutShort(count));
    }

    /// The next claim that brings something, alone or behind an apply, is executed. Its caller gets an error; what
    /// the apply itself has done is answered.
    pub fn lose_claim(&self, kind: ErrorKind) {
        self.partial_claims().push_back(PartialClaim::Fails(kind));
    }

    /// True when all faults of claims have happened.
    pub fn were_claims_spoiled(&self) -> bool {
        self.partial_claims().is_empty()
    }

    /// Spoils the answer to a claim as planned.
    fn spoil_claim(&self, mut claim: Claim) -> Result<Claim> {
        let mut planned = self.partial_claims();
        if claim.tasks.is_empty() {
            return Ok(claim);
        }
        match planned.pop_front() {
            Some(PartialClaim::Fails(kind)) => Err(Error::new(kind, "claim: as planned")),
            Some(PartialClaim::CutShort(count)) => {
                claim.tasks.truncate(count);
                claim.is_cut_short = true;
                Ok(claim)
            }
            None => Ok(claim),
        }
    }

    fn partial_claims(&self) -> MutexGuard<'_, VecDeque<PartialClaim>> {
        self.0.partial_claims.lock().unwrap()
    }

    /// The next calls of this method fail and are not executed.
    pub fn fail(&self, method: Method, count: usize, kind: ErrorKind) {
        let failures = (0..count).map(|_| Planned::Fails(kind));
        self.planned().entry(method).or_default().extend(failures);
    }

    /// The next insert stores only its first `count` tasks, and fails.
    pub fn store_part(&self, count: usize, kind: ErrorKind) {
        self.0.partial_inserts.lock().unwrap().push_back((count, kind));
    }

    /// The next call of this method goes well, whatever is planned after it.
    pub fn pass_one(&self, method: Method) {
        self.planned().entry(method).or_default().push_back(Planned::Passes);
    }

    /// True when a fault that was planned for this method has not happened yet.
    pub fn is_planned(&self, method: Method) -> bool {
        self.planned().get(&method).is_some_and(|planned| !planned.is_empty())
    }

    /// How often the method was called.
    pub fn calls(&self, method: Method) -> u64 {
        self.0.calls.borrow().get(&method).copied().unwrap_or(0)
    }

    /// How often the store itself has answered `LeaseLost`.
    pub fn refusals(&self, method: Method) -> u64 {
        self.0.refusals.lock().unwrap().get(&method).copied().unwrap_or(0)
    }

    /// How often anything was called.
    pub fn calls_in_all(&self) -> u64 {
        self.0.calls.borrow().values().sum()
    }

    /// Waits for the next call of this method.
    pub async fn called(&self, method: Method) {
        self.called_again(method, 1).await;
    }

    /// Waits until this method was called so many times more.
    pub async fn called_again(&self, method: Method, times: u64) {
        let wanted = self.calls(method) + times;
        let mut calls = self.0.calls.subscribe();
        let enough = |calls: &HashMap<_, _>| calls.get(&method).is_some_and(|n| *n >= wanted);
        calls.wait_for(enough).await.expect("the sender is ours");
    }

    /// Counts a call and lets it through or not; answers the error that its caller gets instead of the reply.
    async fn enter(&self, method: Method) -> Result<Option<ErrorKind>> {
        self.0.calls.send_modify(|calls| *calls.entry(method).or_default() += 1);
        self.until(|setting| !setting.held.contains(&method)).await;
        if self.0.setting.borrow().is_away {
            return Err(unavailable(method, "the store is away"));
        }
        let planned = self.planned().get_mut(&method).and_then(VecDeque::pop_front);
        match planned {
            Some(Planned::Fails(kind)) => Err(Error::new(kind, format!("{method:?}: as planned"))),
            Some(Planned::LosesItsReply(kind)) => Ok(Some(kind)),
            Some(Planned::Passes) | None => Ok(None),
        }
    }

    async fn leave(&self, method: Method) -> Result<()> {
        self.until(|setting| !setting.held_replies.contains(&method)).await;
        if self.0.setting.borrow().is_away {
            return Err(unavailable(method, "the store has gone away"));
        }
        Ok(())
    }

    /// Waits for a setting; for ever where the connection is cut.
    async fn until(&self, is_fine: impl Fn(&Setting) -> bool) {
        let mut setting = self.0.setting.subscribe();
        let is_fine = |setting: &Setting| !setting.is_cut && is_fine(setting);
        setting.wait_for(is_fine).await.expect("the sender is ours");
    }

    /// Ends when the store goes away or the connection is cut.
    async fn gone(&self) {
        let mut setting = self.0.setting.subscribe();
        setting.wait_for(|s| s.is_away || s.is_cut).await.expect("the sender is ours");
    }

    fn set(&self, change: impl FnOnce(&mut Setting)) {
        self.0.setting.send_modify(change);
    }

    fn planned(&self) -> MutexGuard<'_, HashMap<Method, VecDeque<Planned>>> {
        self.0.planned.lock().unwrap()
    }
}

fn unavailable(method: Method, why: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{method:?}: {why}"))
}
