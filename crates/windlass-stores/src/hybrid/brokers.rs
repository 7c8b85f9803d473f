//! The brokers of a store: one for all priorities, or one for the urgent ones and one for the rest.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::future::join_all;
use parking_lot::Mutex;
use windlass_core::store::{BrokerState, Depth, Finding, IdlePoll, Severity};
use windlass_core::{Priority, QueueName, WorkerId};

use super::broker::Broker;
use super::options::HybridOptions;
use super::wishes::Wishes;
use crate::postgres::outbox::{Carrier, Made};
use crate::redis::ears;
use crate::wakes::Wakes;

/// The lanes from this one on are urgent: twice the priority, and one more for suspects.
const URGENT_FROM: i16 = 4;

/// The least time between two looks whether brokers are there.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Brokers {
    /// The urgent one first.
    all: Vec<Arc<Broker>>,
    looked: Mutex<Option<Instant>>,
}

impl Brokers {
    pub(super) fn new(options: &HybridOptions, ledger: &str, wakes: &Arc<Wakes>) -> Arc<Self> {
        let make = |(name, server): (&'static str, _)| Broker::new(name, server, ledger, wakes);
        Self::of(options.servers().into_iter().map(make).collect())
    }

    /// The same brokers on connections of their own.
    pub(super) fn another(&self) -> Arc<Self> {
        Self::of(self.all.iter().map(|broker| broker.another()).collect())
    }

    fn of(all: Vec<Arc<Broker>>) -> Arc<Self> {
        Arc::new(Self { all, looked: Mutex::default() })
    }

    /// Their names, the urgent one first.
    pub(super) fn names(&self) -> Vec<&'static str> {
        self.all.iter().map(|broker| broker.name).collect()
    }

    /// All of them, the urgent one first.
    pub(super) fn all(&self) -> &[Arc<Broker>] {
        &self.all
    }

    /// The number of the broker of a lane.
    pub(super) fn number_of(&self, lane: i16) -> usize {
        usize::from(lane < URGENT_FROM).min(self.all.len() - 1)
    }

    /// The number of the broker of a priority.
    pub(super) fn number_for(&self, priority: Priority) -> usize {
        self.number_of(i16::from(priority.as_number()) * 2)
    }

    /// Begins to wait for work in these queues.
    pub(super) fn listen(
        &self,
        queues: &[QueueName],
        numbers: &HashMap<QueueName, i32>,
        wishes: &Wishes,
    ) {
        for (at, broker) in self.all.iter().enumerate() {
            broker.learn(numbers);
            let wish = wishes.of_one_worker(numbers, |priority| self.number_for(priority) == at);
            broker.wait_for(wish);
            ears::listen(&**broker, queues, IdlePoll::default());
        }
    }

    pub(super) async fn beat(&self, worker: &WorkerId, lease: Duration) {
        join_all(self.all.iter().map(|broker| broker.beat(worker, lease))).await;
    }

    /// Gives back what a worker has taken that is gone.
    pub(super) async fn reclaim(&self, worker: &str) {
        join_all(self.all.iter().map(|broker| broker.reclaim(worker))).await;
    }

    pub(super) async fn pause(&self, queues: &[(i32, bool)]) {
        join_all(self.all.iter().map(|broker| broker.pause(queues))).await;
    }

    /// Sees whether they are there.
    pub(super) async fn look(&self) {
        join_all(self.all.iter().map(|broker| broker.look())).await;
    }

    /// Sees whether they are there, not too often, and on nobody's way but of the first who asks.
    pub(super) async fn look_now_and_then(self: &Arc<Self>) {
        let before = {
            let mut looked = self.looked.lock();
            if looked.is_some_and(|at| at.elapsed() < LOOK_PAUSE) {
                return;
            }
            looked.replace(Instant::now())
        };
        match before {
            Some(_) => {
                let brokers = Arc::clone(self);
                tokio::spawn(async move { brokers.look().await });
            }
            None => self.look().await,
        }
    }

    /// How they are.
    pub(super) fn states(&self) -> Vec<BrokerState> {
        let state = |broker: &Arc<Broker>| BrokerState {
            name: broker.name,
            is_up: !broker.is_away(),
            refused: broker.refused(),
        };
        self.all.iter().map(state).collect()
    }

    /// What an operator should know. A ping is answered to everybody, so it does not say why: the reason holds the
    /// broker's address.
    pub(super) fn findings(&self, depth: Depth) -> Vec<Finding> {
        let because = |why: String| match depth {
            Depth::Ping => String::new(),
            Depth::Full | Depth::Repair => format!(" ({why})"),
        };
        let finding = |(name, why): (&str, String)| Finding {
            severity: Severity::Warning,
            subject: "broker",
            text: format!(
                "broker {name} is away: its tasks are claimed from the database directly{}",
                because(why)
            ),
            advice: "start it, or look at the network, its URL and password; nothing is lost"
                .into(),
        };
        let away = self.all.iter().filter_map(|one| Some((one.name, one.why_away()?)));
        away.map(finding).collect()
    }
}

#[async_trait]
impl Carrier for Brokers {
    async fn carry(&self, made: Vec<Made>) -> Vec<Made> {
        let mut shares = vec![Vec::new(); self.all.len()];
        for one in made {
            shares[self.number_of(one.reference.lane)].push(one);
        }
        // All at once: one that is slow holds up nobody but its own.
        let pushing = self.all.iter().zip(shares).map(|(broker, share)| async move {
            let references: Vec<_> = share.iter().map(|one| one.reference).collect();
            if broker.push(&references).await { share } else { Vec::new() }
        });
        join_all(pushing).await.concat()
    }

    fn carries_all(&self) -> bool {
        !self.all.iter().any(|broker| broker.is_away())
    }
}
