//! Where facts are written for the auditor: files that only grow, each line by a single write.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use windlass_testkit::audit::{Fact, Line, Log};

use crate::Result;

/// The names of journals end so.
const ENDING: &str = "facts";

/// A file of facts. Several processes may write to one: a single appending write is not torn apart.
pub(super) struct Journal(File);

impl Journal {
    pub(super) fn open(folder: &Path, name: &str) -> Result<Self> {
        let path = folder.join(name).with_extension(ENDING);
        Ok(Self(OpenOptions::new().create(true).append(true).open(path)?))
    }

    /// Writes a fact of this moment. When this returns the fact stands, whatever happens to this
    /// process.
    pub(super) fn say(&self, fact: Fact) -> Result {
        let line = format!("{}\n", Line::now(fact));
        let written = (&self.0).write(line.as_bytes())?;
        if written != line.len() {
            return Err("a fact was written in part".into());
        }
        Ok(())
    }
}

/// Everything that anybody wrote.
pub(super) fn read(folder: &Path) -> Result<Log> {
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == ENDING) {
            texts.push(std::fs::read_to_string(path)?);
        }
    }
    Ok(Log::read(texts.iter().map(String::as_str))?)
}
