//! `cargo xtask torture NAME`: attacks with real processes and real faults, judged from outside.
//!
//! Each torture prints one JSON verdict on standard output; everything else goes to standard error.

pub(crate) mod power_cut;

use clap::Subcommand;

use crate::Result;

/// Which attack.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    attack: Attack,
}

#[derive(Subcommand)]
enum Attack {
    /// Cut the power of the disk under a store at full load, again and again; nothing
    /// acknowledged may be missing afterwards.
    PowerCut(power_cut::Args),
    /// The process that is killed by `power-cut`.
    #[command(hide = true)]
    PowerCutLoad(power_cut::LoadArgs),
}

pub(crate) fn run(args: Args) -> Result {
    match args.attack {
        Attack::PowerCut(args) => power_cut::run(&args),
        Attack::PowerCutLoad(args) => power_cut::run_load(&args),
    }
}
