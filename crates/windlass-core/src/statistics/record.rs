//! A sheet as a document of a store.

use serde::{Deserialize, Serialize};

use super::sheet::Sheet;
use crate::error::{Error, Result};

/// The form that is written and read here; documents of any other are left alone.
const FORM: u8 = 1;
/// Longest document that is read.
pub const RECORD_BYTES_MAX: usize = 16 << 20;
/// Names that a record remembers; the oldest are forgotten first, long after what they name is gone.
pub const HOLDS_MAX: usize = 1_000;

/// A sheet, and what it was made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    #[serde(rename = "v")]
    form: u8,
    /// Sets it apart from an earlier one of the same time that is gone.
    #[serde(default)]
    id: String,
    /// The names of what was added up here, as far as they are not forgotten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    holds: Vec<String>,
    /// What was counted.
    #[serde(rename = "q")]
    pub sheet: Sheet,
}

impl Record {
    /// A record that no other was added to.
    pub fn of(sheet: Sheet) -> Self {
        Self { form: FORM, id: String::new(), holds: Vec::new(), sheet }
    }

    /// Reads a document, which anyone may have written.
    pub fn read(body: &str) -> Result<Self> {
        if body.len() > RECORD_BYTES_MAX {
            return Err(Error::corrupt("a record of statistics is too long"));
        }
        let record: Self = serde_json::from_str(body)
            .map_err(|cause| Error::corrupt("a record of statistics").because(cause))?;
        if record.form != FORM {
            let text = format!("a record of statistics in form {}", record.form);
            return Err(Error::corrupt(text));
        }
        Ok(record)
    }

    /// The text of its document.
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("a record is plain JSON")
    }

    /// Adds what is told under this name, unless it is in here already.
    pub fn absorb(&mut self, name: &str, sheet: &Sheet) {
        if self.holds(name) {
            return;
        }
        if self.id.is_empty() {
            self.id = blake3::hash(name.as_bytes()).to_hex()[..16].to_owned();
        }
        self.sheet.merge(sheet);
        self.holds.push(name.to_owned());
        if self.holds.len() > HOLDS_MAX {
            self.holds.remove(0);
        }
    }

    /// True when what is told under this name is in here.
    pub fn holds(&self, name: &str) -> bool {
        self.holds.iter().any(|held| held == name)
    }

    /// Its name for the record of a longer time, given the key of its document. One that is made again after
    /// it was added up has another.
    pub fn name(&self, key: &str) -> String {
        format!("{key} {}", self.id)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::name::{Kind, QueueName};

    fn sheet(submitted: u64) -> Sheet {
        let mut sheet = Sheet::default();
        sheet.cell(&QueueName::stored("q"), &Kind::stored("k")).submitted = submitted;
        sheet
    }

    fn submitted(record: &Record) -> u64 {
        record.sheet.cells().map(|(_, _, cell)| cell.submitted).sum()
    }

    #[test]
    fn what_is_added_twice_counts_once() {
        let mut minute = Record::of(Sheet::default());
        minute.absorb("a.0", &sheet(3));
        minute.absorb("b.0", &sheet(4));
        minute.absorb("a.0", &sheet(3));
        assert_eq!(submitted(&minute), 7);
        let back = Record::read(&minute.text()).unwrap();
        assert_eq!(back, minute);
        assert!(back.holds("a.0") && !back.holds("a.1"));
    }

    #[test]
    fn a_record_that_is_made_again_has_another_name() {
        let made = |first| {
            let mut record = Record::of(Sheet::default());
            record.absorb(first, &sheet(1));
            record.absorb("later", &sheet(1));
            record.name("12:00")
        };
        assert_eq!(made("a.0"), made("a.0"));
        assert_ne!(made("a.0"), made("a.1"));
    }

    #[test]
    fn the_oldest_names_are_forgotten_first() {
        let mut record = Record::of(Sheet::default());
        for number in 0..=HOLDS_MAX {
            record.absorb(&number.to_string(), &sheet(1));
        }
        assert!(!record.holds("0") && record.holds("1") && record.holds(&HOLDS_MAX.to_string()));
    }

    #[test]
    fn documents_of_another_form_are_refused() {
        for body in [
            "",
            "null",
            "[]",
            "{}",
            r#"{"v":1}"#,
            r#"{"v":2,"q":{}}"#,
            r#"{"v":1,"q":[]}"#,
            r#"{"v":1,"q":{"a":{"b":{"c":-1}}}}"#,
            r#"{"v":1,"q":{"a":{"b":{"w":"x"}}}}"#,
            r#"{"v":1,"q":{},"holds":7}"#,
        ] {
            assert!(Record::read(body).is_err(), "{body}");
        }
        assert!(Record::read(r#"{"v":1,"q":{}}"#).is_ok());
        assert!(Record::read(&" ".repeat(RECORD_BYTES_MAX + 1)).is_err());
        assert!(Record::read(&"[".repeat(100_000)).is_err());
    }

    proptest! {
        #[test]
        fn no_document_is_too_strange(body in r#"(\{|\}|\[|\]|"v":1|"q"|:|,|"|[0-9a-z]){0,40}"#) {
            let _ = Record::read(&body);
        }
    }
}
