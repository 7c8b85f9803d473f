//! One broker: a Redis that carries references. It may go away at any time; whoever notices counts it as
//! away until it answers again.

mod away;
mod listening;
mod settling;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Cmd, Value};
use windlass_core::store::RefusedReferences;
use windlass_core::{QueueName, Result, WorkerId};

use super::arrivals::Arrivals;
use super::reference::Rest;
use super::settled::{Settled, Untold};
use super::single::Waiter;
use super::wishes::Wish;
use super::{keys, reference, scripts};
use crate::postgres::outbox::Reference;
use crate::redis::RedisOptions;
use crate::redis::connection::Link;
use crate::redis::ears::Ears;
use crate::redis::reply::{Reply, next};
use crate::redis::script::Call;
use crate::wakes::Wakes;

/// Longest that a broker may take to answer before it counts as away.
const ANSWER_MAX: Duration = Duration::from_millis(500);
/// References in one call.
const PUSHED_AT_ONCE: usize = 500;
/// How long a claim that has references, or could have more urgent ones, waits for a less urgent broker.
pub(super) const MOMENT: Duration = Duration::from_millis(50);

pub(super) struct Broker {
    this: Weak<Self>,
    pub(super) name: &'static str,
    options: Arc<RedisOptions>,
    stem: String,
    link: Link,
    standing: Arc<Standing>,
    wakes: Arc<Wakes>,
    ears: Ears,
    waiter: Waiter,
    /// What is to be brought to a worker here as soon as a bell rings.
    wish: Mutex<Option<Wish>>,
    arrivals: Arc<Arrivals>,
    /// The numbers of the queues that someone here waits for.
    numbers: Mutex<HashMap<QueueName, i32>>,
    /// What became of references that workers here took, and the broker does not know yet.
    untold: Untold,
}

/// How a broker stands with this process: all its connections know it.
#[derive(Debug, Default)]
struct Standing {
    is_away: AtomicBool,
    /// What was met when it was last lost.
    why: Mutex<String>,
    /// References that could not be used, since the store was opened.
    gone_count: AtomicU64,
    busy_count: AtomicU64,
    paused_count: AtomicU64,
}

impl Standing {
    fn count(&self, how: Settled) {
        let count = match how {
            Settled::Claimed | Settled::Finished => return,
            Settled::Gone => &self.gone_count,
            Settled::Waits => &self.busy_count,
            Settled::Paused => &self.paused_count,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// How much a worker may have of a broker.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Amount {
    pub(super) tasks: usize,
    pub(super) suspects: usize,
    /// It is also to have what is in its list of taken references already.
    pub(super) looks_back: bool,
}

/// What a worker may have of a broker.
#[derive(Debug, Clone)]
pub(super) struct Share {
    /// The number of its quota.
    pub(super) quota: usize,
    /// If it is 0, only whether there is something is told.
    pub(super) at_most: usize,
    /// By queue and lane, in the order of claiming.
    pub(super) lanes: Vec<(i32, i16)>,
}

/// What a worker got of a broker.
pub(super) struct Taken {
    /// The worker's heartbeat is there.
    pub(super) is_known: bool,
    /// Rests of what others have taken: behind them nothing was taken of their queues.
    pub(super) awaited: Vec<Rest>,
    /// Nothing is to be taken behind this at all, also not of others.
    pub(super) is_over: bool,
    /// There is something in shares of which nothing was to be taken.
    pub(super) has_more: bool,
    /// References, each with its quota; without one where a worker had it already.
    pub(super) references: Vec<(Option<usize>, Reference)>,
}

impl Broker {
    pub(super) fn new(
        name: &'static str,
        options: RedisOptions,
        ledger: &str,
        wakes: &Arc<Wakes>,
    ) -> Arc<Self> {
        let options = options.prefix_unless_set(keys::PREFIX).answer_within(ANSWER_MAX);
        let stem = keys::stem(options.key_prefix(), ledger);
        let (standing, arrivals) = Default::default();
        Self::on(name, Arc::new(options), stem, standing, arrivals, Arc::clone(wakes))
    }

    fn on(
        name: &'static str,
        options: Arc<RedisOptions>,
        stem: String,
        standing: Arc<Standing>,
        arrivals: Arc<Arrivals>,
        wakes: Arc<Wakes>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            name,
            stem,
            link: Link::new(Arc::clone(&options)),
            options,
            standing,
            wakes,
            ears: Ears::default(),
            waiter: Waiter::default(),
            wish: Mutex::default(),
            arrivals,
            numbers: Mutex::default(),
            untold: Untold::default(),
        })
    }

    /// The same broker on a connection of its own.
    pub(super) fn another(&self) -> Arc<Self> {
        let (options, standing) = (Arc::clone(&self.options), Arc::clone(&self.standing));
        let (arrivals, wakes) = (Arc::clone(&self.arrivals), Arc::clone(&self.wakes));
        Self::on(self.name, options, self.stem.clone(), standing, arrivals, wakes)
    }

    /// In front of all keys.
    pub(super) fn stem(&self) -> &str {
        &self.stem
    }

    pub(super) fn is_away(&self) -> bool {
        self.standing.is_away.load(Ordering::Relaxed)
    }

    /// Why it is away, if it is.
    pub(super) fn why_away(&self) -> Option<String> {
        self.is_away().then(|| self.standing.why.lock().clone())
    }

    /// How many references could not be used since the store was opened.
    pub(super) fn refused(&self) -> RefusedReferences {
        let told = |count: &AtomicU64| count.load(Ordering::Relaxed);
        RefusedReferences {
            gone_count: told(&self.standing.gone_count),
            busy_count: told(&self.standing.busy_count),
            paused_count: told(&self.standing.paused_count),
        }
    }

    /// Pushes references, in the order given; false where not all are known to have arrived.
    pub(super) async fn push(&self, references: &[Reference]) -> bool {
        for some in references.chunks(PUSHED_AT_ONCE) {
            let mut call = scripts::PUSH.on(&[&self.stem]);
            some.iter().for_each(|one| call.add(reference::write(one)));
            if self.is_away() || self.ask(call).await.is_err() {
                return false;
            }
        }
        true
    }

    /// Takes references for a worker, and tells what became of those before.
    pub(super) async fn take(
        &self,
        worker: &WorkerId,
        wanted: Amount,
        shares: &[Share],
    ) -> Result<Taken> {
        let settled = self.untold.take(worker);
        let call = scripts::TAKE.on(&[&self.stem]).arg(worker.as_str());
        let call = call.arg(wanted.tasks).arg(wanted.suspects);
        let mut call = call.arg(i32::from(wanted.looks_back)).arg(settled.len());
        for (how, text) in &settled {
            call.add(how.as_str());
            call.add(text);
        }
        for share in shares {
            call.add(share.at_most);
            call.add(share.lanes.len());
            share.lanes.iter().for_each(|(queue, lane)| call.add(format!("{queue}:{lane}")));
        }
        let reply = match self.ask(call).await {
            Ok(reply) => reply,
            Err(error) => {
                // Told again with the next take; twice does no harm.
                self.untold.note(worker, settled);
                return Err(error);
            }
        };
        let mut parts = reply.list()?;
        let told = next(&mut parts, "take")?.number()?;
        let (is_known, has_more, is_over) = (told & 1 != 0, told & 2 != 0, told & 4 != 0);
        let awaited = next(&mut parts, "take")?.list()?.map(Reply::text);
        let awaited = awaited.collect::<Result<Vec<_>>>()?.into_iter().map(Rest).collect();
        let mut references = Vec::new();
        while let Some(number) = parts.next() {
            let at =
                usize::try_from(number.number()?).ok().and_then(|number| number.checked_sub(1));
            let quota = at.and_then(|at| shares.get(at)).map(|share| share.quota);
            let text = next(&mut parts, "take")?.text()?;
            match reference::read(&text) {
                Some(reference) => references.push((quota, reference)),
                None => {
                    tracing::warn!(text, broker = self.name, "what is no reference is dropped");
                    self.untold.note(worker, [(Settled::Gone, text)]);
                }
            }
        }
        Ok(Taken { is_known, awaited, is_over, has_more, references })
    }

    /// Notes a worker's sign of life.
    pub(super) async fn beat(&self, worker: &WorkerId, lease: Duration) {
        let mut beat = redis::cmd("SET");
        beat.arg(keys::beat(&self.stem, worker)).arg(1);
        beat.arg("PX").arg(u64::try_from(lease.as_millis()).unwrap_or(u64::MAX).max(1));
        let mut list = redis::cmd("SADD");
        list.arg(keys::workers(&self.stem)).arg(worker.as_str());
        for command in [beat, list] {
            let sent = async {
                match self.link.command("beat", &command).await {
                    // A connection that broke since the last beat, as with a restart, says so only now.
                    Err(_) => self.link.command("beat", &command).await,
                    sent => sent,
                }
            };
            if self.is_away() || self.answered("beat", sent).await.is_err() {
                return;
            }
        }
    }

    /// Gives back what a worker has taken that is gone.
    pub(super) async fn reclaim(&self, worker: &str) {
        drop(self.untold.take(&WorkerId::new(worker)));
        let call = scripts::RECLAIM.on(&[&self.stem]).arg(worker);
        if !self.is_away() {
            drop(self.ask(call).await);
        }
    }

    /// Gives back what came to a worker by a move and no claim has taken.
    pub(super) async fn give_back_moved(&self, worker: &WorkerId) {
        let call = scripts::GIVE_BACK.on(&[&self.stem]).arg(worker.as_str());
        if !self.is_away() {
            drop(self.ask(call).await);
        }
    }

    /// Gives back what workers have taken whose heartbeat is over.
    pub(super) async fn reclaim_all(&self) -> Result<i64> {
        self.ask(scripts::RECLAIM.on(&[&self.stem])).await?.number()
    }

    /// The workers that may have lists here.
    pub(super) async fn workers(&self) -> Result<Vec<String>> {
        let mut command = redis::cmd("SMEMBERS");
        command.arg(keys::workers(&self.stem));
        let value = match self.command("read the workers", &command).await? {
            Value::Set(members) => Value::Array(members),
            other => other,
        };
        Reply::new("read the workers", value).list()?.map(Reply::text).collect()
    }

    /// Lets references of queues be taken, or not: by their numbers, and whether they are paused.
    pub(super) async fn pause(&self, queues: &[(i32, bool)]) {
        let mut call = scripts::PAUSE.on(&[&self.stem]);
        for (queue, is_paused) in queues {
            call.add(*queue);
            call.add(i32::from(*is_paused));
        }
        if !self.is_away() {
            drop(self.ask(call).await);
        }
    }

    /// Forgets the references of a lane, which are about to be pushed anew.
    pub(super) async fn clear(&self, queue: i32, lane: i16) -> Result<()> {
        let mut command = redis::cmd("DEL");
        command.arg(keys::list(&self.stem, queue, lane));
        self.command("clear a lane", &command).await.map(drop)
    }

    /// How many references of these lanes there are.
    pub(super) async fn count(&self, lanes: &[(i32, i16)]) -> Result<Vec<i64>> {
        let mut call = scripts::COUNT.on(&[&self.stem]);
        lanes.iter().for_each(|(queue, lane)| call.add(format!("{queue}:{lane}")));
        self.ask(call).await?.list()?.map(Reply::number).collect()
    }

    /// What tells this broker from one that has lost something: the run of its server, and a key of its
    /// own, which is made if it is not there.
    pub(super) async fn generation(&self) -> Result<String> {
        let mut make = redis::cmd("SET");
        make.arg(keys::generation(&self.stem))
            .arg(format!("{:032x}", fastrand::u128(..)))
            .arg("NX");
        self.command("name the generation", &make).await?;
        let mut read = redis::cmd("GET");
        read.arg(keys::generation(&self.stem));
        let own = self.command("read the generation", &read).await?;
        let own = Reply::new("read the generation", own).text()?;
        let mut about = redis::cmd("INFO");
        about.arg("server");
        let about = Reply::new("ask for the run", self.command("ask for the run", &about).await?);
        let about = about.text()?;
        let run = about.lines().find_map(|line| line.trim().strip_prefix("run_id:"));
        Ok(format!("{} {own}", run.unwrap_or_default()))
    }

    async fn ask(&self, call: Call) -> Result<Reply> {
        let name = call.script.name;
        let value = self.answered(name, self.link.call(call)).await?;
        Ok(Reply::new(name, value))
    }

    async fn command(&self, operation: &str, command: &Cmd) -> Result<Value> {
        self.answered(operation, self.link.command(operation, command)).await
    }
}
