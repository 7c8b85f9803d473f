//! `cargo xtask schema`: the committed dumps of what migrations make, so that each migration can be
//! reviewed by its effect.

use std::fs;

use crate::{Result, shell};

/// A dump: where it is committed, and who makes it.
type Dump = (&'static str, fn() -> windlass_core::Result<String>);

const DUMPS: &[Dump] =
    &[("crates/windlass-stores/schema/sqlite.sql", windlass_stores::sqlite::schema_dump)];

/// Write or compare.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only compare; fail when a dump is out of date.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> Result {
    if args.check {
        let offences = up_to_date()?;
        if offences.is_empty() {
            return Ok(());
        }
        return Err(offences.join("; ").into());
    }
    for (path, dump) in DUMPS {
        let file = shell::repository_root().join(path);
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&file, dump()?)?;
        println!("wrote {path}");
    }
    Ok(())
}

/// Finds dumps that are not what the migrations make.
pub(crate) fn up_to_date() -> Result<Vec<String>> {
    let mut offences = Vec::new();
    for (path, dump) in DUMPS {
        let committed = fs::read_to_string(shell::repository_root().join(path)).unwrap_or_default();
        if committed != dump()? {
            offences.push(format!("{path} is out of date: run `cargo xtask schema`"));
        }
    }
    Ok(offences)
}
