//! Waiting at a broker: who waits for what, and what comes meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use redis::Value;
use windlass_core::{QueueName, WorkerId};

use super::super::arrivals::{self, Arrivals};
use super::super::single::Single;
use super::super::wishes::Wish;
use super::super::{keys, reference, scripts};
use super::Broker;
use crate::redis::RedisOptions;
use crate::redis::connection::Link;
use crate::redis::ears::{Ears, Listening};
use crate::redis::reply::Reply;
use crate::redis::script::Call;
use crate::wakes::Wakes;

impl Broker {
    /// References that came to workers here while they waited.
    pub(in crate::hybrid) fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    /// From now on brings what comes to the worker that wants it, if there is one.
    pub(in crate::hybrid) fn wait_for(&self, wish: Option<Wish>) {
        if let Some(this) = self.this.upgrade() {
            self.waiter.wait_for(&this, wish.as_ref().and_then(Single::of));
        }
        *self.wish.lock() = wish;
    }

    /// Takes in a reference that has come to a worker.
    pub(in crate::hybrid) fn arrived(&self, worker: &WorkerId, reference: Reply) {
        let text = reference.text().unwrap_or_default();
        let Some(this) = self.this.upgrade() else { return };
        match reference::read(&text) {
            Some(reference) if self.wakes.is_awaited() => arrivals::keep(&this, worker, reference),
            // Nobody here waits any more, and others do.
            Some(_) => {
                let worker = worker.clone();
                tokio::spawn(async move { this.give_back_moved(&worker).await });
            }
            // The next take finds out what it is.
            None => {}
        }
    }

    /// Learns the numbers of queues that someone waits for.
    pub(in crate::hybrid) fn learn(&self, numbers: &HashMap<QueueName, i32>) {
        let mut known = self.numbers.lock();
        known.extend(numbers.iter().map(|(queue, number)| (queue.clone(), *number)));
    }
}

impl Listening for Broker {
    fn this(&self) -> Weak<Self> {
        self.this.clone()
    }

    fn ears(&self) -> &Ears {
        &self.ears
    }

    fn server(&self) -> &Arc<RedisOptions> {
        &self.options
    }

    fn link(&self) -> &Link {
        &self.link
    }

    fn wakes(&self) -> &Wakes {
        &self.wakes
    }

    fn bells(&self, queue: &QueueName) -> Vec<String> {
        let number = self.numbers.lock().get(queue).copied();
        number.map(|number| keys::bell(&self.stem, number)).into_iter().collect()
    }

    fn poke_stem(&self, _queue: &QueueName) -> String {
        self.stem.clone()
    }

    fn behind_bell(&self) -> Option<Call> {
        let wish = self.wish.lock();
        let wish = wish.as_ref().filter(|_| !self.options.is_cluster())?;
        let mut call = scripts::FETCH.on(&[&self.stem]).arg(wish.worker.as_str());
        wish.lists.iter().for_each(|list| call.add(format!("{}:{}", list.number, list.lane)));
        Some(call)
    }

    fn take_in(&self, answer: Value) {
        let Ok(mut parts) = Reply::new("fetch", answer).list() else { return };
        if let (Some(worker), Some(reference)) = (parts.next(), parts.next())
            && let Ok(worker) = worker.text()
        {
            self.arrived(&WorkerId::new(&worker), reference);
        }
    }

    /// Whoever waits looks by itself now and then: a bell may have been lost with its hearer.
    async fn look_for_work(&self, queues: Vec<QueueName>) -> Vec<QueueName> {
        queues
    }
}
