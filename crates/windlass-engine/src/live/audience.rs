//! Who listens in other processes: documents in the store, one for each, renewed while someone does.
//!
//! A document that changes is alive. Whoever reads it goes by their own clock: one that has not changed for a
//! while belongs to a process that is gone, whatever the clocks of the others say.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use windlass_core::store::{DocQuery, Document, SaveDoc, Saved};
use windlass_core::{Result, Store, Timestamp};

/// The class of the documents.
const CLASS: &str = "listener";
/// How often a process that listens says so.
pub(crate) const RENEWED_EVERY: Duration = Duration::from_secs(5);
/// How long a document counts that does not change.
const ALIVE_FOR: Duration = Duration::from_secs(15);
/// When it is removed by whoever sees it.
const REMOVED_AFTER: Duration = Duration::from_secs(120);
/// Documents that are read.
const READ_MAX: usize = 200;
/// How long an answer to "does anyone listen?" is good for.
pub(crate) const FRESH_FOR: Duration = Duration::from_secs(1);

/// Those who listen elsewhere, as far as was seen.
#[derive(Default)]
pub(crate) struct Audience(HashMap<String, Seen>);

struct Seen {
    /// The version, and when it was written: one that is made anew begins with the first version again.
    written: (u64, Timestamp),
    since: Instant,
}

impl Audience {
    /// Looks who is there, but for the process itself; true when someone is.
    pub(crate) async fn look(&mut self, store: &dyn Store, own: &str) -> Result<bool> {
        let asked = Instant::now();
        let query = DocQuery::Class { class: CLASS.into(), after: None, limit: READ_MAX };
        let documents = store.load(query).await?;
        for old in self.note(&documents, own, asked) {
            // Whoever comes too late leaves it to the next.
            let _ = store.save(old).await;
        }
        Ok(self.is_there(asked))
    }

    fn note(&mut self, documents: &[Document], own: &str, now: Instant) -> Vec<SaveDoc> {
        let mut before = std::mem::take(&mut self.0);
        let mut old = Vec::new();
        for document in documents.iter().filter(|document| document.key != own) {
            let written = (document.version, document.updated_at);
            let same = before.remove(&document.key).filter(|seen| seen.written == written);
            let since = same.map_or(now, |seen| seen.since);
            if now.duration_since(since) >= REMOVED_AFTER {
                let (class, key) = (CLASS.into(), document.key.clone());
                old.push(SaveDoc { class, key, expected: Some(document.version), body: None });
                continue;
            }
            self.0.insert(document.key.clone(), Seen { written, since });
        }
        old
    }

    fn is_there(&self, now: Instant) -> bool {
        self.0.values().any(|seen| now.duration_since(seen.since) < ALIVE_FOR)
    }
}

/// The document of a process that listens.
pub(crate) struct Sign {
    key: String,
    version: Option<u64>,
}

impl Sign {
    pub(crate) fn new(key: &str) -> Self {
        Self { key: key.to_owned(), version: None }
    }

    /// Says that someone listens here.
    pub(crate) async fn renew(&mut self, store: &dyn Store) -> Result<()> {
        let body = format!(r#"{{"pid":{}}}"#, std::process::id());
        // Twice: a save without an answer may have been made, and somebody may have tidied up.
        for _ in 0..2 {
            let body = Some(body.clone());
            let (class, key, expected) = (CLASS.into(), self.key.clone(), self.version);
            match store.save(SaveDoc { class, key, expected, body }).await? {
                Saved::Done(version) => {
                    self.version = version;
                    return Ok(());
                }
                Saved::Outdated(version) => self.version = version,
            }
        }
        Ok(())
    }

    /// Says that nobody does any more.
    pub(crate) async fn remove(self, store: &dyn Store) -> Result<()> {
        let (class, key, expected) = (CLASS.into(), self.key, self.version);
        store.save(SaveDoc { class, key, expected, body: None }).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use windlass_testkit::fleet;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn whoever_renews_is_there_and_whoever_is_silent_is_forgotten() {
        let store = fleet::memory();
        let (mut audience, mut sign) = (Audience::default(), Sign::new("a"));
        assert!(!audience.look(&*store, "own").await.unwrap());
        for _ in 0..10 {
            sign.renew(&*store).await.unwrap();
            assert!(audience.look(&*store, "own").await.unwrap());
            tokio::time::advance(RENEWED_EVERY).await;
        }
        assert!(!audience.look(&*store, "a").await.unwrap(), "one does not tell oneself");
        assert!(audience.look(&*store, "own").await.unwrap());
        tokio::time::advance(ALIVE_FOR).await;
        assert!(!audience.look(&*store, "own").await.unwrap());
        sign.renew(&*store).await.unwrap();
        assert!(audience.look(&*store, "own").await.unwrap());
        sign.remove(&*store).await.unwrap();
        assert!(!audience.look(&*store, "own").await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_dead_process_left_is_removed_and_one_that_only_slept_comes_back() {
        let store = fleet::memory();
        let (mut audience, mut sign) = (Audience::default(), Sign::new("a"));
        sign.renew(&*store).await.unwrap();
        audience.look(&*store, "own").await.unwrap();
        tokio::time::advance(REMOVED_AFTER).await;
        audience.look(&*store, "own").await.unwrap();
        let query = DocQuery::Class { class: CLASS.into(), after: None, limit: 9 };
        assert!(store.load(query).await.unwrap().is_empty());
        sign.renew(&*store).await.unwrap();
        assert!(audience.look(&*store, "own").await.unwrap());
    }
}
