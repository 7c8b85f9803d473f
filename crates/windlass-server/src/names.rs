//! New names: each new queue, and each new type of task, stays in the store for long, so a caller may bring only so
//! many.

use std::collections::HashSet;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use windlass_core::config::ServerConfig;
use windlass_core::{NewTask, QueueName, Result, Store};

use crate::access::Caller;
use crate::access::bucket::Allowance;
use crate::problem::{Outcome, Problem, Slug};

/// How old what is known of the store's queues may be before a name counts as new.
const FRESH: Duration = Duration::from_secs(5);

/// The names that are known here.
pub(crate) struct Names {
    queues: Known,
    kinds: Known,
    /// When the store was last asked for its queues.
    asked: Mutex<Option<Instant>>,
    names_max: usize,
}

/// The names of one sort.
struct Known {
    what: &'static str,
    seen: Mutex<HashSet<String>>,
    allowance: Allowance,
}

impl Names {
    pub(crate) fn new(config: &ServerConfig) -> Self {
        let known = |what| Known {
            what,
            seen: Mutex::default(),
            allowance: Allowance::new(config.new_names_per_minute),
        };
        let (asked, names_max) = (Mutex::default(), config.names_max);
        Self { queues: known("queue"), kinds: known("type"), asked, names_max }
    }

    /// Asks the store for its queues where one of these tasks names a queue that is not known here.
    pub(crate) async fn learn<'a>(
        &self,
        store: &dyn Store,
        tasks: impl Iterator<Item = &'a NewTask>,
    ) -> Result<()> {
        self.learn_queues(store, tasks.map(|task| &task.queue)).await
    }

    async fn learn_queues<'a>(
        &self,
        store: &dyn Store,
        mut queues: impl Iterator<Item = &'a QueueName>,
    ) -> Result<()> {
        let is_new = |queue: &QueueName| !self.queues.seen.lock().contains(queue.as_str());
        let is_fresh = |asked: Instant| asked.elapsed() < FRESH;
        if !queues.any(is_new) || self.asked.lock().is_some_and(is_fresh) {
            return Ok(());
        }
        *self.asked.lock() = Some(Instant::now());
        let queues = store.queues().await?;
        self.queues.seen.lock().extend(queues.into_iter().map(|queue| queue.name.to_string()));
        Ok(())
    }

    /// The problem of a queue whose name is one too many.
    pub(crate) async fn check_queue(
        &self,
        store: &dyn Store,
        caller: &Caller,
        queue: &QueueName,
    ) -> Outcome<()> {
        self.learn_queues(store, std::iter::once(queue)).await?;
        self.queues.check(caller, queue.as_str(), self.names_max)
    }

    /// The problem of a task that brings a new name too many.
    pub(crate) fn check(&self, caller: &Caller, task: &NewTask) -> Outcome<()> {
        self.queues.check(caller, task.queue.as_str(), self.names_max)?;
        self.kinds.check(caller, task.kind.as_str(), self.names_max)
    }
}

impl Known {
    fn check(&self, caller: &Caller, name: &str, names_max: usize) -> Outcome<()> {
        let mut seen = self.seen.lock();
        if seen.contains(name) {
            return Ok(());
        }
        let what = self.what;
        if seen.len() >= names_max {
            let text =
                format!("there are {names_max} names already (server.names_max): use one of them");
            return Err(Problem::field(what, text));
        }
        self.allowance.take(caller).map_err(|wait| {
            let text = format!(
                "{what} {name:?} is new, and too many new ones came within a minute (server.new_names_per_minute)"
            );
            Problem::new(Slug::RateLimited, text).retry_after(wait)
        })?;
        seen.insert(name.to_owned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::config::Config;

    use super::*;

    fn known(per_minute: u32) -> Known {
        let config = Config::parse(&format!("server.new_names_per_minute = {per_minute}")).unwrap();
        Names::new(&config.server).queues
    }

    fn check(known: &Known, name: &str) -> Option<Slug> {
        known.check(&Caller::Local, name, 4).err().map(|problem| problem.slug())
    }

    #[tokio::test(start_paused = true)]
    async fn new_names_are_few_a_minute_and_few_in_all() {
        let known = known(2);
        assert_eq!((check(&known, "a"), check(&known, "b")), (None, None));
        assert_eq!(check(&known, "c"), Some(Slug::RateLimited));
        assert_eq!(check(&known, "a"), None, "it is not new");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!((check(&known, "c"), check(&known, "d")), (None, None));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(check(&known, "e"), Some(Slug::InvalidRequest));
        assert_eq!(check(&known, "d"), None);
    }
}
