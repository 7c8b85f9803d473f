//! `cargo xtask bench`: `windlass bench`, as a release build.

use crate::{Result, shell};

/// What to hand on.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Options of `windlass bench`, e.g. `--mode enqueue --producers 64 -o json`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result {
    shell::run(
        shell::cargo()
            .args(["run", "--release", "--quiet", "--package", "windlass-cli"])
            .args(["--", "bench"])
            .args(&args.options),
    )
}
