//! Queues and kinds by number: a task's row holds numbers, and each process remembers their names for as
//! long as its connection lasts. What comes after may be another database, restored or made anew.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use windlass_core::{Error, Result};

use super::session::Session;
use super::sql;

/// Names that were met before; more than this are forgotten and asked for again.
const REMEMBERED_MAX: usize = 100_000;

/// One dictionary of the server, as far as it is known here.
pub(super) struct Names {
    find: &'static str,
    make: &'static str,
    name: &'static str,
    known: Mutex<Arc<Known>>,
}

/// Names and their numbers, as far as they were met.
#[derive(Default, Clone)]
pub(super) struct Known {
    ids: HashMap<Arc<str>, i32>,
    names: HashMap<i32, Arc<str>>,
}

impl Known {
    /// The number of a name.
    pub(super) fn id(&self, name: &str) -> Option<i32> {
        self.ids.get(name).copied()
    }

    /// The name of a number.
    pub(super) fn name(&self, id: i32) -> Option<&str> {
        self.names.get(&id).map(|name| &**name)
    }
}

impl Names {
    pub(super) fn of_queues() -> Self {
        let (find, make, name) = (sql::QUEUE_FIND, sql::QUEUE_MAKE, sql::QUEUE_NAMES);
        Self { find, make, name, known: Mutex::default() }
    }

    pub(super) fn of_kinds() -> Self {
        let (find, make, name) = (sql::KIND_FIND, sql::KIND_MAKE, sql::KIND_NAMES);
        Self { find, make, name, known: Mutex::default() }
    }

    /// Forgets every name.
    pub(super) fn forget(&self) {
        *self.known.lock() = Arc::default();
    }

    /// Sees to it that these names have numbers; answers with what is known then.
    pub(super) async fn learn(
        &self,
        session: &Session,
        wanted: impl Iterator<Item = &str>,
    ) -> Result<Arc<Known>> {
        let mut known = Arc::clone(&self.known.lock());
        let mut missing: Vec<String> =
            wanted.filter(|name| known.id(name).is_none()).map(String::from).collect();
        missing.sort_unstable();
        missing.dedup();
        for makes in [false, true] {
            if missing.is_empty() {
                break;
            }
            if makes {
                session.execute(self.make, &[&missing]).await?;
            }
            let rows = session.all(self.find, &[&missing]).await?;
            self.remember(&mut known, &rows);
            missing.retain(|name| known.id(name).is_none());
        }
        match missing.first() {
            None => Ok(known),
            Some(name) => Err(Error::corrupt(format!("{name:?} was given no number"))),
        }
    }

    /// Finds the names of these numbers, as far as they exist; answers with what is known then.
    pub(super) async fn learn_names(
        &self,
        session: &Session,
        wanted: impl Iterator<Item = i32>,
    ) -> Result<Arc<Known>> {
        let mut known = Arc::clone(&self.known.lock());
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
    fn remember(&self, known: &mut Arc<Known>, rows: &[tokio_postgres::Row]) {
        let mut all = self.known.lock();
        for row in rows {
            let (id, name): (i32, Arc<str>) = (row.get(0), row.get::<_, &str>(1).into());
            if all.ids.len() >= REMEMBERED_MAX {
                *all = Arc::default();
            }
            for one in [Arc::make_mut(&mut all), Arc::make_mut(known)] {
                one.ids.insert(Arc::clone(&name), id);
                one.names.insert(id, Arc::clone(&name));
            }
        }
    }
}
