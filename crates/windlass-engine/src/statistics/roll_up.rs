//! Adding up: the leader makes one document of all those of a minute, later one of ten minutes, then of an hour.
//!
//! A document is written with the names of all that is in it before those are removed. Whoever crashes between
//! the two finds them again, and they count once. Two who lead at the same time disturb each other by versions,
//! never the counts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use windlass_core::statistics::{RAW, Record, Sheet, Step};
use windlass_core::store::{DocQuery, Document, SaveDoc, Saved};
use windlass_core::{Result, Store, Timestamp};

/// So long after the end of a minute every process has saved what it had to say about it.
const SETTLED_AFTER: Duration = Duration::from_secs(90);
/// Documents in one answer of the store; each may have some hundred KiB.
const PAGE: usize = 50;
/// Pages of one class in one go.
const PAGES_MAX: usize = 100;
/// What cannot be read is left alone for so long (a newer version may have written it) and then removed.
const UNREADABLE_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// Adds up everything that is old enough.
pub(crate) async fn roll_up(
    store: &Arc<dyn Store>,
    now: Timestamp,
    stop: &CancellationToken,
) -> Result<()> {
    let roller = Roller { store, now, stop };
    roller.walk(RAW, |key| ripe_minute(key, now)).await?;
    for step in Step::ALL {
        roller.walk(step.class(), |key| ripe_step(key, step, now)).await?;
    }
    Ok(())
}

/// What becomes of a document.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// It stays, and all after it, too.
    Stays,
    /// It is added to the document of this step and time, under the name that it has there.
    AddedTo { step: Step, start: Timestamp, name: Option<String> },
    /// It goes.
    Goes,
    /// It is not ours.
    Unreadable,
}

/// What becomes of a document that a process wrote.
fn ripe_minute(key: &str, now: Timestamp) -> Fate {
    let Some((time, process)) = key.split_once(' ') else { return Fate::Unreadable };
    let Ok(start) = time.parse::<Timestamp>() else { return Fate::Unreadable };
    let start = Step::Minute.start_of(start);
    if start.after(Step::Minute.length() + SETTLED_AFTER) > now {
        return Fate::Stays;
    }
    Fate::AddedTo { step: Step::Minute, start, name: Some(process.to_owned()) }
}

/// What becomes of a document that was added up before. All parts of a longer step go at once, so that no
/// point of a series falls between.
fn ripe_step(key: &str, step: Step, now: Timestamp) -> Fate {
    let Ok(start) = key.parse::<Timestamp>() else { return Fate::Unreadable };
    match step.longer() {
        None if start.after(step.length() + step.kept()) > now => Fate::Stays,
        None => Fate::Goes,
        Some(longer) => {
            let start = longer.start_of(start);
            if start.after(longer.length() + step.kept()) > now {
                return Fate::Stays;
            }
            Fate::AddedTo { step: longer, start, name: None }
        }
    }
}

struct Roller<'a> {
    store: &'a Arc<dyn Store>,
    now: Timestamp,
    stop: &'a CancellationToken,
}

/// A document that is being added to another.
struct Source {
    document: Document,
    name: String,
    sheet: Sheet,
}

impl Roller<'_> {
    /// Goes through a class from its oldest document, page by page, up to the first that stays.
    async fn walk(&self, class: &str, fate: impl Fn(&str) -> Fate) -> Result<()> {
        let mut after = None;
        for _ in 0..PAGES_MAX {
            let query = DocQuery::Class { class: class.into(), after: after.take(), limit: PAGE };
            let documents = self.store.load(query).await?;
            let is_last = documents.len() < PAGE;
            after = documents.last().map(|document| document.key.clone());
            let mut groups: BTreeMap<(Step, Timestamp), Vec<Source>> = BTreeMap::new();
            let mut stays = false;
            for document in documents {
                match fate(&document.key) {
                    Fate::Stays => {
                        stays = true;
                        break;
                    }
                    Fate::Goes => self.remove(&document).await?,
                    Fate::Unreadable => self.pass_over(&document).await?,
                    Fate::AddedTo { step, start, name } => match Record::read(&document.body) {
                        Ok(record) => {
                            let name = name.unwrap_or_else(|| record.name(&document.key));
                            let source = Source { document, name, sheet: record.sheet };
                            groups.entry((step, start)).or_default().push(source);
                        }
                        Err(_) => self.pass_over(&document).await?,
                    },
                }
            }
            for ((step, start), sources) in groups {
                if self.stop.is_cancelled() {
                    return Ok(());
                }
                self.add_up(step, start, sources).await?;
            }
            if is_last || stays {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn add_up(&self, step: Step, start: Timestamp, sources: Vec<Source>) -> Result<()> {
        let (class, key) = (step.class().to_owned(), start.to_string());
        let query = DocQuery::One { class: class.clone(), key: key.clone() };
        let found = self.store.load(query).await?.pop();
        let expected = found.as_ref().map(|document| document.version);
        let mut record = match found.map(|document| Record::read(&document.body)) {
            Some(Ok(record)) => record,
            None => Record::of(Sheet::default()),
            Some(Err(error)) => {
                let error = error.chain();
                tracing::warn!(class, key, error, "unreadable statistics are begun anew");
                Record::of(Sheet::default())
            }
        };
        let mut is_new = false;
        for source in sources.iter().filter(|source| !source.sheet.is_empty()) {
            is_new |= !record.holds(&source.name);
            record.absorb(&source.name, &source.sheet);
        }
        if is_new {
            let save = SaveDoc { class, key, expected, body: Some(record.text()) };
            match self.store.save(save).await? {
                Saved::Done(_) => {}
                // Somebody else leads by now, and does the same.
                Saved::Outdated(_) => return Ok(()),
            }
        }
        for source in &sources {
            self.remove(&source.document).await?;
        }
        Ok(())
    }

    /// Removes a document as it was read. One that was written again meanwhile stays until the next time.
    async fn remove(&self, document: &Document) -> Result<()> {
        let Document { class, key, version, .. } = document.clone();
        self.store.save(SaveDoc { class, key, expected: Some(version), body: None }).await?;
        Ok(())
    }

    async fn pass_over(&self, document: &Document) -> Result<()> {
        if self.now.since(document.updated_at) < UNREADABLE_FOR {
            return Ok(());
        }
        let (class, key) = (&document.class, &document.key);
        tracing::warn!(class, key, "unreadable statistics are removed");
        self.remove(document).await
    }
}
