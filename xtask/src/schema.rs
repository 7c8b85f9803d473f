//! `cargo xtask schema`: the committed dumps of what migrations make, so that each migration can be
//! reviewed by its effect.

use crate::Result;

/// Write or compare.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only compare; fail when a dump is out of date.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> Result {
    let _ = args.check;
    Err("no store has a schema yet".into())
}
