//! Reading what all clients have counted: at most once a second, however many ask, and without a look at any task.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use windlass_core::statistics::{RAW, Record, Sheet, Span, Step};
use windlass_core::store::{DocQuery, Document};
use windlass_core::{Error, ErrorKind, Result, Store, Timestamp};

use super::Inner;

/// How long what was read is told to others who ask.
const FRESH_FOR: Duration = Duration::from_secs(1);
/// How long that is so for what is older than [`RECENT`].
const OLD_FRESH_FOR: Duration = Duration::from_secs(30);
/// What changes all the time.
const RECENT: Duration = Duration::from_secs(15 * 60);
/// How long whoever asks waits for the store.
const PATIENCE: Duration = Duration::from_secs(5);
/// Documents in one answer of the store; each may have some hundred KiB.
const PAGE: usize = 50;
/// Documents of one class that are read.
const DOCUMENTS_MAX: usize = 5_000;
/// The text of all documents together that is kept in memory; what is older is left out.
const BYTES_MAX: usize = 256 << 20;

/// How far back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Period {
    /// The last minutes.
    Recent,
    /// Everything that is kept.
    All,
}

/// What was read.
#[derive(Debug, Clone)]
pub struct Read {
    /// When, by the clock of this process.
    pub now: Timestamp,
    /// Since when there are counts: the oldest that were read, or the start of this process if that is earlier.
    pub observed_since: Timestamp,
    /// Everything that was counted, each thing once, in no particular order.
    pub spans: Arc<Vec<Span>>,
}

/// What was read last.
#[derive(Default)]
pub(super) struct Reading(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    recent_at: Option<Instant>,
    all_at: Option<Instant>,
    raw: BTreeMap<String, Page>,
    steps: [BTreeMap<String, Page>; Step::ALL.len()],
    told: Option<Read>,
}

/// A document that was read.
#[derive(Clone)]
struct Page {
    version: u64,
    bytes: usize,
    start: Timestamp,
    /// Its name in what it is added to.
    name: String,
    /// Without its sheet.
    record: Arc<Record>,
    sheet: Arc<Sheet>,
}

pub(super) async fn read(inner: &Arc<Inner>, period: Period) -> Result<Read> {
    let silent = || Error::new(ErrorKind::Unavailable, "read the statistics in the store");
    let end = Instant::now() + PATIENCE;
    let known = Arc::clone(&inner.reading.0);
    // Whoever reads holds this: the others wait for what it finds.
    let mut known = tokio::time::timeout_at(end, known.lock_owned()).await.map_err(|_| silent())?;
    let is_fresh = |at: Option<Instant>, time| at.is_some_and(|at| at.elapsed() < time);
    let is_old_fresh = period == Period::Recent || is_fresh(known.all_at, OLD_FRESH_FOR);
    if let Some(told) = &known.told
        && is_old_fresh
        && is_fresh(known.recent_at, FRESH_FOR)
    {
        return Ok(told.clone());
    }
    let inner = Arc::clone(inner);
    // On its own, to its end: a call of a store is never dropped half-way.
    let reading = tokio::spawn(async move {
        let now = inner.clock.now();
        match is_old_fresh {
            true => known.refresh_recent(&inner.store, now).await?,
            false => known.refresh_all(&inner.store, now).await?,
        }
        let spans = Arc::new(known.spans(inner.unsaved()));
        let oldest = spans.iter().map(|span| span.start).min();
        let observed_since = oldest.map_or(inner.started_at, |at| at.min(inner.started_at));
        let told = Read { now, observed_since, spans };
        known.told = Some(told.clone());
        Ok(told)
    });
    let read = tokio::time::timeout_at(end, reading).await.map_err(|_| silent())?;
    read.map_err(|cause| silent().because(cause))?
}

impl Inner {
    /// What this client has counted and not saved.
    fn unsaved(&self) -> Vec<(Timestamp, Sheet)> {
        let live = self.live.lock().copy();
        live.into_iter().chain(self.pages.lock().copy_fresh()).collect()
    }
}

impl Known {
    /// Reads everything. From the shortest to the longest: what is added up meanwhile is found later again, and
    /// known by its name.
    async fn refresh_all(&mut self, store: &Arc<dyn Store>, now: Timestamp) -> Result<()> {
        let mut bytes_left = BYTES_MAX;
        self.raw = load(store, RAW, None, &self.raw, &mut bytes_left).await?;
        for (pages, step) in self.steps.iter_mut().zip(Step::ALL) {
            *pages = load(store, step.class(), None, pages, &mut bytes_left).await?;
        }
        self.all_at = Some(Instant::now());
        if self.raw.len() >= DOCUMENTS_MAX {
            // Nobody has led for long; the newest matter most.
            self.refresh_recent(store, now).await?;
        }
        self.recent_at = self.all_at;
        Ok(())
    }

    /// Reads the last minutes anew.
    async fn refresh_recent(&mut self, store: &Arc<dyn Store>, now: Timestamp) -> Result<()> {
        let since = now.before(RECENT).to_string();
        let mut bytes_left = BYTES_MAX;
        for (pages, class) in [(&mut self.raw, RAW), (&mut self.steps[0], Step::Minute.class())] {
            let new = load(store, class, Some(&since), pages, &mut bytes_left).await?;
            pages.split_off(&since);
            pages.extend(new);
        }
        self.recent_at = Some(Instant::now());
        Ok(())
    }

    /// Everything once: a document that is in a longer one already is not counted again.
    fn spans(&self, unsaved: Vec<(Timestamp, Sheet)>) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        let mut tell = |pages: &BTreeMap<String, Page>,
                        step: Step,
                        longer: Option<(Step, &BTreeMap<String, Page>)>| {
            for page in pages.values() {
                let is_held = longer.is_some_and(|(step, longer)| {
                    let holder = longer.get(&step.start_of(page.start).to_string());
                    holder.is_some_and(|holder| holder.record.holds(&page.name))
                });
                if !is_held {
                    spans.push(Span { start: page.start, step, sheet: Arc::clone(&page.sheet) });
                }
            }
        };
        let [minutes, tens, hours] = &self.steps;
        tell(&self.raw, Step::Minute, Some((Step::Minute, minutes)));
        tell(minutes, Step::Minute, Some((Step::TenMinutes, tens)));
        tell(tens, Step::TenMinutes, Some((Step::Hour, hours)));
        tell(hours, Step::Hour, None);
        let unsaved = unsaved.into_iter().map(|(start, sheet)| Span {
            start,
            step: Step::Minute,
            sheet: Arc::new(sheet),
        });
        spans.extend(unsaved);
        spans
    }
}

/// Reads the documents of a class from this key on; those that are known in the same version are not read
/// again letter by letter, and those that cannot be read are left out.
async fn load(
    store: &Arc<dyn Store>,
    class: &str,
    from: Option<&str>,
    known: &BTreeMap<String, Page>,
    bytes_left: &mut usize,
) -> Result<BTreeMap<String, Page>> {
    let mut pages = BTreeMap::new();
    let mut after = from.map(String::from);
    while pages.len() < DOCUMENTS_MAX {
        let query = DocQuery::Class { class: class.into(), after, limit: PAGE };
        let documents = store.load(query).await?;
        let is_last = documents.len() < PAGE;
        after = documents.last().map(|document| document.key.clone());
        for document in documents {
            let same = known.get(&document.key).filter(|page| page.version == document.version);
            let Some(page) = same.cloned().or_else(|| Page::of(&document)) else { continue };
            let Some(left) = bytes_left.checked_sub(page.bytes) else { return Ok(pages) };
            *bytes_left = left;
            pages.insert(document.key, page);
        }
        if is_last {
            break;
        }
    }
    Ok(pages)
}

impl Page {
    fn of(document: &Document) -> Option<Self> {
        let mut record = Record::read(&document.body).ok()?;
        let (time, name) = match document.key.split_once(' ') {
            Some((time, process)) => (time, process.to_owned()),
            None => (document.key.as_str(), record.name(&document.key)),
        };
        let start = time.parse().ok()?;
        let sheet = Arc::new(std::mem::take(&mut record.sheet));
        let (version, bytes) = (document.version, document.body.len());
        Some(Self { version, bytes, start, name, record: Arc::new(record), sheet })
    }
}
