//! Queues and kinds by number: a task's row holds numbers, and each process remembers their names.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use windlass_core::Result;

use super::session::Session;
use super::sql;

/// Names that were met before; more than this are forgotten and asked for again.
const REMEMBERED_MAX: usize = 100_000;

/// One dictionary of the server, as far as it is known here.
pub(super) struct Names {
    find: &'static str,
    make: &'static str,
    name: &'static str,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    ids: HashMap<Arc<str>, i32>,
    names: HashMap<i32, Arc<str>>,
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

    /// The number of a name, if it was met before.
    pub(super) fn id(&self, name: &str) -> Option<i32> {
        self.known.lock().ids.get(name).copied()
    }

    /// The name of a number, if it was met before.
    pub(super) fn name(&self, id: i32) -> Option<Arc<str>> {
        self.known.lock().names.get(&id).cloned()
    }

    /// Sees to it that these names have numbers, and that they are known here.
    pub(super) async fn learn(
        &self,
        session: &Session,
        wanted: impl Iterator<Item = &str>,
    ) -> Result<()> {
        let mut missing: Vec<String> = {
            let known = self.known.lock();
            wanted.filter(|name| !known.ids.contains_key(*name)).map(String::from).collect()
        };
        missing.sort_unstable();
        missing.dedup();
        for makes in [false, true] {
            if missing.is_empty() {
                return Ok(());
            }
            if makes {
                session.execute(self.make, &[&missing]).await?;
            }
            for row in session.all(self.find, &[&missing]).await? {
                self.remember(row.get(0), row.get(1));
            }
            missing.retain(|name| self.id(name).is_none());
        }
        Ok(())
    }

    /// Sees to it that the names of these numbers are known here, as far as they exist.
    pub(super) async fn learn_names(
        &self,
        session: &Session,
        wanted: impl Iterator<Item = i32>,
    ) -> Result<()> {
        let mut missing: Vec<i32> = {
            let known = self.known.lock();
            wanted.filter(|id| !known.names.contains_key(id)).collect()
        };
        missing.sort_unstable();
        missing.dedup();
        if missing.is_empty() {
            return Ok(());
        }
        for row in session.all(self.name, &[&missing]).await? {
            self.remember(row.get(0), row.get(1));
        }
        Ok(())
    }

    fn remember(&self, id: i32, name: &str) {
        let name: Arc<str> = name.into();
        let mut known = self.known.lock();
        if known.ids.len() >= REMEMBERED_MAX {
            *known = Known::default();
        }
        known.ids.insert(Arc::clone(&name), id);
        known.names.insert(id, name);
    }
}
