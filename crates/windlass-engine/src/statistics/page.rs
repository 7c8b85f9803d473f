//! What one client has counted in one minute, and how much of that the store has for sure.
//!
//! A document holds everything that was counted in its minute so far, so that writing it again counts nothing
//! twice. A write without an answer is looked up before the next. When the leader has added a document up, what
//! comes later goes into a document of its own: the next part.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_core::Timestamp;
use windlass_core::statistics::{Record, Sheet, Step};

use super::count::MINUTES_MAX;

/// So long after the end of a minute its document is not written again: the leader, who waits longer than
/// this, may have begun to add it up.
const REWRITTEN_FOR: Duration = Duration::from_secs(60);

/// The last minutes.
#[derive(Default)]
pub(super) struct Pages(BTreeMap<Timestamp, Page>);

/// One minute.
#[derive(Default)]
pub(super) struct Page {
    part: u32,
    /// The version of the part's document, where there is one.
    version: Option<u64>,
    /// What that document holds.
    saved: Sheet,
    /// What was sent on top of that, and not answered yet.
    sent: Sheet,
    /// What is to be sent next.
    fresh: Sheet,
}

/// A write of a document.
pub(super) struct Write {
    pub(super) part: u32,
    pub(super) expected: Option<u64>,
    pub(super) body: String,
}

impl Pages {
    /// Takes what was counted.
    pub(super) fn add(&mut self, counted: BTreeMap<Timestamp, Sheet>) {
        for (minute, sheet) in counted {
            self.0.entry(minute).or_default().fresh.merge(&sheet);
        }
        while self.0.len() > MINUTES_MAX {
            self.0.pop_first();
        }
    }

    /// The minutes that the store does not have in full, the newest first: that is what is looked at.
    pub(super) fn unsaved(&self) -> Vec<Timestamp> {
        self.0.iter().rev().filter(|(_, page)| page.is_unsaved()).map(|(at, _)| *at).collect()
    }

    /// A minute that is still here.
    pub(super) fn page(&mut self, minute: Timestamp) -> Option<&mut Page> {
        self.0.get_mut(&minute)
    }

    /// Forgets what is saved and over.
    pub(super) fn tidy(&mut self, now: Timestamp) {
        self.0.retain(|minute, page| page.is_unsaved() || !is_closed(*minute, now));
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// What the store does not have, by minute.
    pub(super) fn copy_fresh(&self) -> BTreeMap<Timestamp, Sheet> {
        let fresh = self.0.iter().filter(|(_, page)| !page.fresh.is_empty());
        fresh.map(|(minute, page)| (*minute, page.fresh.clone())).collect()
    }
}

impl Page {
    fn is_unsaved(&self) -> bool {
        !self.fresh.is_empty() || self.is_in_doubt()
    }

    /// True when a write had no answer.
    pub(super) fn is_in_doubt(&self) -> bool {
        !self.sent.is_empty()
    }

    pub(super) const fn part(&self) -> u32 {
        self.part
    }

    /// Ends a doubt by the version that the store has.
    pub(super) fn settle(&mut self, found: Option<u64>) {
        if found > self.version {
            return self.written(found);
        }
        if found.is_none() && self.version.is_some() {
            self.turn();
        }
        let sent = std::mem::take(&mut self.sent);
        self.fresh.merge(&sent);
    }

    /// What to write next, if anything is new.
    pub(super) fn write(&mut self, minute: Timestamp, now: Timestamp) -> Option<Write> {
        if self.fresh.is_empty() {
            return None;
        }
        if self.version.is_some() && is_closed(minute, now) {
            self.turn();
        }
        self.sent = std::mem::take(&mut self.fresh);
        let mut sheet = self.saved.clone();
        sheet.merge(&self.sent);
        Some(Write { part: self.part, expected: self.version, body: Record::of(sheet).text() })
    }

    /// The store has what was sent, in this version.
    pub(super) fn written(&mut self, version: Option<u64>) {
        let sent = std::mem::take(&mut self.sent);
        self.saved.merge(&sent);
        self.version = version;
    }

    /// The store has not taken it, since the document is not as it was left: it was added up, or is not ours.
    pub(super) fn refused(&mut self) {
        self.turn();
        let sent = std::mem::take(&mut self.sent);
        self.fresh.merge(&sent);
    }

    fn turn(&mut self) {
        self.part += 1;
        self.version = None;
        self.saved = Sheet::default();
    }
}

fn is_closed(minute: Timestamp, now: Timestamp) -> bool {
    now >= minute.after(Step::Minute.length() + REWRITTEN_FOR)
}

#[cfg(test)]
mod tests {
    use windlass_core::{Kind, QueueName};

    use super::*;

    const MINUTE: Timestamp = Timestamp::from_millis(0);
    const SOON: Timestamp = Timestamp::from_millis(61_000);

    fn page(count: u64) -> Page {
        let mut page = Page::default();
        more(&mut page, count);
        page
    }

    fn more(page: &mut Page, count: u64) {
        page.fresh.cell(&QueueName::stored("q"), &Kind::stored("k")).submitted += count;
    }

    /// What a write says: part, expected version, tasks.
    fn next(page: &mut Page, now: Timestamp) -> (u32, Option<u64>, u64) {
        let Write { part, expected, body } = page.write(MINUTE, now).unwrap();
        let sheet = Record::read(&body).unwrap().sheet;
        (part, expected, sheet.cells().map(|(_, _, cell)| cell.submitted).sum())
    }

    #[test]
    fn a_document_holds_everything_of_its_minute_so_far() {
        let mut page = page(3);
        assert_eq!(next(&mut page, SOON), (0, None, 3));
        page.written(Some(1));
        assert!(!page.is_unsaved());
        more(&mut page, 4);
        assert_eq!(next(&mut page, SOON), (0, Some(1), 7));
    }

    #[test]
    fn a_write_that_got_lost_is_sent_again() {
        let mut page = page(3);
        next(&mut page, SOON);
        more(&mut page, 4);
        assert!(page.is_in_doubt());
        page.settle(None);
        assert_eq!(next(&mut page, SOON), (0, None, 7));
    }

    #[test]
    fn a_write_whose_answer_got_lost_counts_once() {
        let mut page = page(3);
        next(&mut page, SOON);
        more(&mut page, 4);
        page.settle(Some(1));
        assert_eq!(next(&mut page, SOON), (0, Some(1), 7));
        page.settle(Some(1));
        assert_eq!(next(&mut page, SOON), (0, Some(1), 7), "this one did not arrive");
    }

    #[test]
    fn what_comes_after_the_document_was_added_up_goes_into_the_next_part() {
        let mut page = page(3);
        next(&mut page, SOON);
        page.written(Some(1));
        more(&mut page, 4);
        next(&mut page, SOON);
        page.refused();
        assert_eq!(next(&mut page, SOON), (1, None, 4));
        page.written(Some(1));
        more(&mut page, 5);
        next(&mut page, SOON);
        page.settle(None);
        assert_eq!(next(&mut page, SOON), (2, None, 5), "gone while a write had no answer");
    }

    #[test]
    fn a_document_of_a_minute_long_over_is_not_written_again() {
        let late = Timestamp::from_millis(120_000);
        let mut page = page(3);
        next(&mut page, late);
        page.written(Some(1));
        more(&mut page, 4);
        assert_eq!(next(&mut page, late), (1, None, 4));
    }

    #[test]
    fn minutes_that_cannot_be_saved_are_bounded_and_the_newest_stay() {
        let mut pages = Pages::default();
        for minute in 0..=MINUTES_MAX as i64 {
            let mut sheet = Sheet::default();
            sheet.cell(&QueueName::stored("q"), &Kind::stored("k")).submitted = 1;
            pages.add(BTreeMap::from([(Timestamp::from_millis(minute * 60_000), sheet)]));
        }
        let unsaved = pages.unsaved();
        assert_eq!((unsaved.len(), unsaved[MINUTES_MAX - 1].as_millis()), (MINUTES_MAX, 60_000));
        pages.tidy(Timestamp::from_millis(i64::MAX));
        assert_eq!(pages.unsaved().len(), MINUTES_MAX, "what is not saved is not forgotten");
    }
}
