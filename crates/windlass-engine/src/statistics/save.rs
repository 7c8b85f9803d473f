//! Saving: a task in the background that is there only while something is new.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use windlass_core::dice::Dice;
use windlass_core::statistics::RAW;
use windlass_core::store::{DocQuery, SaveDoc, Saved};
use windlass_core::{Error, ErrorKind, Result, Timestamp};

use super::Inner;
use super::page::Write;
use crate::outage::warn_unless_outage;

/// How often what is new is saved, with a second of chance around it: a process that dies has lost at most the
/// last ten seconds.
const EVERY: Duration = Duration::from_secs(8);
/// Tries for one minute in one save: each may find that its document is not as it was left.
const TRIES_MAX: u32 = 4;

/// Has the task in the background save what was counted; starts it if it is not there.
pub(super) fn wake(inner: &Arc<Inner>) {
    if inner.is_saver_up.load(Ordering::Relaxed) || inner.is_saver_up.swap(true, Ordering::AcqRel) {
        return;
    }
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn(keep_saving(Saver(Arc::downgrade(inner))))),
        Err(_) => inner.is_saver_up.store(false, Ordering::Release),
    }
}

/// The task in the background; also when its runtime ends, the next count starts another.
struct Saver(Weak<Inner>);

impl Drop for Saver {
    fn drop(&mut self) {
        if let Some(inner) = self.0.upgrade() {
            inner.is_saver_up.store(false, Ordering::Release);
        }
    }
}

async fn keep_saving(saver: Saver) {
    let mut dice = Dice::thrown();
    let mut is_told = false;
    loop {
        tokio::time::sleep(EVERY.mul_f64(dice.signed_unit().mul_add(0.125, 1.0))).await;
        // Only while it saves: whoever lets go of a client must not find its store in use.
        let Some(inner) = saver.0.upgrade() else { return };
        match save_all(&inner).await {
            Ok(()) => is_told = false,
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                inner.live.lock().take();
                inner.pages.lock().clear();
            }
            Err(error) if !is_told => {
                is_told = true;
                warn_unless_outage!(error, "statistics will be saved later");
            }
            Err(_) => {}
        }
        let live = inner.live.lock();
        if live.is_empty() && inner.pages.lock().unsaved().is_empty() {
            // Under the lock: what is counted from now on starts another.
            drop(saver);
            return;
        }
    }
}

/// Saves everything that is new, on its own, to its end: a call of a store is never dropped half-way.
pub(super) async fn save(inner: &Arc<Inner>) -> Result<()> {
    let is_clean = inner.live.lock().is_empty() && inner.pages.lock().unsaved().is_empty();
    if is_clean {
        return Ok(());
    }
    let inner = Arc::clone(inner);
    let ended = |cause| {
        Error::new(ErrorKind::Unavailable, "the runtime ended before statistics were saved")
            .because(cause)
    };
    tokio::spawn(async move { save_all(&inner).await }).await.map_err(ended)?
}

async fn save_all(inner: &Inner) -> Result<()> {
    let _turn = inner.saving.lock().await;
    let counted = inner.live.lock().take();
    inner.pages.lock().add(counted);
    let unsaved = inner.pages.lock().unsaved();
    for minute in unsaved {
        save_minute(inner, minute).await?;
    }
    inner.pages.lock().tidy(inner.clock.now());
    Ok(())
}

async fn save_minute(inner: &Inner, minute: Timestamp) -> Result<()> {
    let (class, key) = (String::from(RAW), |part| format!("{minute} {}.{part}", inner.process));
    for _ in 0..TRIES_MAX {
        let in_doubt = |page: &mut super::page::Page| page.is_in_doubt().then(|| page.part());
        let doubtful = inner.pages.lock().page(minute).and_then(in_doubt);
        if let Some(part) = doubtful {
            let query = DocQuery::One { class: class.clone(), key: key(part) };
            let found = inner.store.load(query).await?.pop().map(|document| document.version);
            if let Some(page) = inner.pages.lock().page(minute) {
                page.settle(found);
            }
        }
        let now = inner.clock.now();
        let write = inner.pages.lock().page(minute).and_then(|page| page.write(minute, now));
        let Some(Write { part, expected, body }) = write else { return Ok(()) };
        let save = SaveDoc { class: class.clone(), key: key(part), expected, body: Some(body) };
        let answer = inner.store.save(save).await?;
        let mut pages = inner.pages.lock();
        let Some(page) = pages.page(minute) else { return Ok(()) };
        match answer {
            Saved::Done(version) => {
                page.written(version);
                return Ok(());
            }
            Saved::Outdated(_) => page.refused(),
        }
    }
    Ok(())
}
