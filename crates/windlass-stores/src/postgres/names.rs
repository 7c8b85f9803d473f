//! Queues and kinds by number: a task's row holds numbers, and each process remembers their names for as
//! long as its connection lasts. What comes after may be another database, restored or made anew.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;
use windlass_core::Result;

use super::error::is_lock_timeout;
use super::pool::{Pool, transaction};
use super::session::Session;
use super::sql;

/// Names that were met before; more than this are forgotten and asked for again.
const REMEMBERED_MAX: usize = 100_000;

/// Names that are copied for each that is learned; when there are more, they join the others.
const RECENT_MAX: usize = 256;

/// How long a call waits for names that somebody else is making, and for each of them after that was too
/// long. More than the commit of another process takes; others of the call wait as long.
const PATIENCE: &str = "SET LOCAL lock_timeout TO '300ms'";
const PATIENCE_SPENT: &str = "SET LOCAL lock_timeout TO '1ms'";
/// How long such a name is only looked for, so that not every call waits for it.
const BUSY_FOR: Duration = Duration::from_secs(2);

/// One dictionary of the server, as far as it is known here.
pub(super) struct Names {
    find: &'static str,
    make: &'static str,
    name: &'static str,
    known: Mutex<Known>,
    /// Held by whoever makes names, one at a time; has those that were found in the making elsewhere, and
    /// when.
    making: AsyncMutex<HashMap<String, Instant>>,
}

/// Names and their numbers, as far as they were met. Cheap to clone, and a clone does not change: a caller that
/// learns a name copies the few recent ones, and all of them only now and then.
#[derive(Default, Clone)]
pub(super) struct Known {
    settled: Arc<Dictionary>,
    recent: Arc<Dictionary>,
}

#[derive(Default, Clone)]
struct Dictionary {
    ids: HashMap<Arc<str>, i32>,
    names: HashMap<i32, Arc<str>>,
}

impl Known {
    /// The number of a name.
    pub(super) fn id(&self, name: &str) -> Option<i32> {
        self.recent.ids.get(name).or_else(|| self.settled.ids.get(name)).copied()
    }

    /// The name of a number.
    pub(super) fn name(&self, id: i32) -> Option<&str> {
        let name = self.recent.names.get(&id).or_else(|| self.settled.names.get(&id));
        name.map(|name| &**name)
    }

    fn len(&self) -> usize {
        self.settled.ids.len() + self.recent.ids.len()
    }

    fn insert(&mut self, name: &Arc<str>, id: i32) {
        if self.recent.ids.len() >= RECENT_MAX {
            let recent = std::mem::take(&mut self.recent);
            let settled = Arc::make_mut(&mut self.settled);
            settled.ids.extend(recent.ids.iter().map(|(name, id)| (Arc::clone(name), *id)));
            settled.names.extend(recent.names.iter().map(|(id, name)| (*id, Arc::clone(name))));
        }
        let recent = Arc::make_mut(&mut self.recent);
        recent.ids.insert(Arc::clone(name), id);
        recent.names.insert(id, Arc::clone(name));
    }
}

impl Names {
    pub(super) fn of_queues() -> Self {
        let (find, make, name) = (sql::QUEUE_FIND, sql::QUEUE_MAKE, sql::QUEUE_NAMES);
        Self { find, make, name, known: Mutex::default(), making: AsyncMutex::default() }
    }

    pub(super) fn of_kinds() -> Self {
        let (find, make, name) = (sql::KIND_FIND, sql::KIND_MAKE, sql::KIND_NAMES);
        Self { find, make, name, known: Mutex::default(), making: AsyncMutex::default() }
    }

    /// Forgets every name.
    pub(super) fn forget(&self) {
        *self.known.lock() = Known::default();
    }

    /// What is known by now.
    pub(super) fn known(&self) -> Known {
        self.known.lock().clone()
    }

    /// Finds the numbers of these names; answers with what is known then, and which have none.
    pub(super) async fn find(
        &self,
        session: &Session,
        wanted: impl Iterator<Item = &str>,
    ) -> Result<(Known, Vec<String>)> {
        let mut known = self.known();
        let mut missing: Vec<String> =
            wanted.filter(|name| known.id(name).is_none()).map(String::from).collect();
        missing.sort_unstable();
        missing.dedup();
        if !missing.is_empty() {
            let rows = session.all(self.find, &[&missing]).await?;
            self.remember(&mut known, &rows);
            missing.retain(|name| known.id(name).is_none());
        }
        Ok((known, missing))
    }

    /// Sees to it that these names have numbers; answers with what is known then. Names that somebody's
    /// open transaction is making have none yet.
    ///
    /// They are made on a connection of the pool: whoever shares `session` must not wait for others'
    /// transactions.
    pub(super) async fn learn(
        &self,
        session: &Session,
        pool: &Pool,
        wanted: impl Iterator<Item = &str>,
    ) -> Result<Known> {
        let (known, missing) = self.find(session, wanted).await?;
        if missing.is_empty() {
            return Ok(known);
        }
        let mut busy = self.making.lock().await;
        // Looked for again: whoever had the turn before may have made them.
        let (_, mut unmade) = self.find(session, missing.iter().map(String::as_str)).await?;
        busy.retain(|_, met| met.elapsed() < BUSY_FOR);
        unmade.retain(|name| !busy.contains_key(name));
        if !unmade.is_empty() {
            for name in self.make(pool, unmade).await? {
                busy.insert(name, Instant::now());
            }
        }
        drop(busy);
        // Asked of the session that will use them, which may have come to another database meanwhile.
        let mut known = known;
        let rows = session.all(self.find, &[&missing]).await?;
        self.remember(&mut known, &rows);
        Ok(known)
    }

    /// Makes names; answers with those that somebody's open transaction is making.
    async fn make(&self, pool: &Pool, names: Vec<String>) -> Result<Vec<String>> {
        match self.make_together(pool, &names, PATIENCE).await {
            Err(error) if is_lock_timeout(&error) => {}
            made => return made.map(|()| Vec::new()),
        }
        let mut busy = Vec::new();
        for name in names {
            match self.make_together(pool, std::slice::from_ref(&name), PATIENCE_SPENT).await {
                Ok(()) => {}
                Err(error) if is_lock_timeout(&error) => busy.push(name),
                Err(error) => return Err(error),
            }
        }
        Ok(busy)
    }

    async fn make_together(
        &self,
        pool: &Pool,
        names: &[String],
        patience: &'static str,
    ) -> Result<()> {
        transaction!(pool, session => async {
            session.control(patience).await?;
            session.execute(self.make, &[&names]).await.map(drop)
        })
    }

    /// Finds the names of these numbers, as far as they exist; answers with what is known then.
    pub(super) async fn learn_names(
        &self,
        session: &Session,
        wanted: impl Iterator<Item = i32>,
    ) -> Result<Known> {
        let mut known = self.known();
        let mut missing: Vec<i32> = wanted.filter(|id| known.name(*id).is_none()).collect();
        missing.sort_unstable();
        missing.dedup();
        if !missing.is_empty() {
            let rows = session.all(self.name, &[&missing]).await?;
            self.remember(&mut known, &rows);
        }
        Ok(known)
    }

    /// Adds to what a caller knows, and to what all do. The caller's share must not go with what
    /// others forget meanwhile.
    fn remember(&self, known: &mut Known, rows: &[tokio_postgres::Row]) {
        let mut all = self.known.lock();
        for row in rows {
            let (id, name): (i32, Arc<str>) = (row.get(0), row.get::<_, &str>(1).into());
            if all.len() >= REMEMBERED_MAX {
                *all = Known::default();
            }
            all.insert(&name, id);
            known.insert(&name, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_known_however_many_come_after_it_and_what_was_handed_out_stays_as_it_is() {
        let mut known = Known::default();
        let mut before = Vec::new();
        for id in 0..2_000 {
            before.push(known.clone());
            known.insert(&format!("name-{id}").into(), id);
            assert!(known.recent.ids.len() <= RECENT_MAX, "few are copied for the next");
        }
        for id in 0..2_000 {
            let name = format!("name-{id}");
            assert_eq!((known.id(&name), known.name(id)), (Some(id), Some(name.as_str())));
        }
        assert_eq!(known.len(), 2_000);
        for (id, earlier) in (0..).zip(&before) {
            assert_eq!(earlier.name(id), None, "it came after");
            assert!(id == 0 || earlier.name(id - 1).is_some(), "it came before");
        }
    }
}
