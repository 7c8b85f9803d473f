//! `cargo xtask schema`: the committed dumps of what migrations make, so that each migration can be
//! reviewed by its effect.

use std::fs;

use windlass_stores::postgres::PostgresOptions;
use windlass_testkit::servers::PostgresServer;
use windlass_testkit::servers::postgres::Care;

use crate::{Result, shell};

/// A dump: where it is committed, and who makes it.
type Dump = (&'static str, fn() -> Result<String>);

const DUMPS: &[Dump] = &[
    ("crates/windlass-stores/schema/sqlite.sql", sqlite),
    ("crates/windlass-stores/schema/postgres.sql", postgres),
];

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

fn sqlite() -> Result<String> {
    Ok(windlass_stores::sqlite::schema_dump()?)
}

/// From a server of its own.
fn postgres() -> Result<String> {
    let server = PostgresServer::start(Care::Careless);
    let options = PostgresOptions::of_url(&server.url("windlass"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(windlass_stores::postgres::schema_dump(options))?)
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
