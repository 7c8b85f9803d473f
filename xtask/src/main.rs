//! The chores of windlass, one file each. Run them with `cargo xtask CHORE`.
//!
//! Nothing of the product lives here, and the product never depends on it.

#![expect(clippy::print_stdout, reason = "a chore speaks to the person or the CI that runs it")]

mod artifact;
mod attack;
mod bench;
mod check;
mod dist;
mod events;
mod fleet;
mod fuzz_api;
mod ground;
mod metadata;
mod picture;
mod sbom;
mod schema;
mod settings;
mod setup;
mod shell;
mod test;
mod torture;

use std::process::ExitCode;

use clap::Parser;

/// What a chore answers; the error is one that a person reads.
type Result<T = (), E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// Chores of the windlass repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
enum Chore {
    /// Find what the tests need and install what is missing from Debian's packages.
    Setup,
    /// Run every test: setup, `cargo test --workspace`, short tortures.
    Test(test::Args),
    /// Check format, lints and the rules of the repository.
    Check,
    /// Write (or with --check compare) the committed schema dumps.
    Schema(schema::Args),
    /// Build what people install: the stripped binary and a Debian package.
    Dist(dist::Args),
    /// Write (or with --check compare) the page of all settings.
    Settings(settings::Args),
    /// Print the bill of materials of the binary, as CycloneDX.
    Sbom(sbom::Args),
    /// Attack windlass and let an independent auditor judge; prints one JSON verdict.
    Torture(torture::Args),
    /// Have schemathesis ask the API everything that its document allows, and forbids.
    FuzzApi(fuzz_api::Args),
    /// Have hostile clients attack the server; prints one JSON verdict for each attack.
    Attack(attack::Args),
    /// Draw what a few commands look like on a terminal, for the README.
    Picture,
    /// Have very many clients follow live events under load; prints one JSON verdict for each store.
    Events(events::Args),
    /// Run hundreds of worker processes on one store, idle, in a burst, restarted and without their leader; prints one
    /// JSON verdict.
    Fleet(fleet::Args),
    /// Measure: runs `windlass bench` as a release build.
    Bench(bench::Args),
}

fn main() -> ExitCode {
    let done = match Chore::parse() {
        Chore::Setup => setup::run(setup::Voice::Full),
        Chore::Test(args) => test::run(&args),
        Chore::Check => check::run(),
        Chore::Schema(args) => schema::run(&args),
        Chore::Dist(args) => dist::run(&args),
        Chore::Settings(args) => settings::run(&args),
        Chore::Sbom(args) => sbom::run(&args),
        Chore::Torture(args) => torture::run(args),
        Chore::FuzzApi(args) => fuzz_api::run(&args),
        Chore::Attack(args) => attack::run(&args),
        Chore::Picture => picture::run(),
        Chore::Events(args) => events::run(&args),
        Chore::Fleet(args) => fleet::run(&args),
        Chore::Bench(args) => bench::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", shell::chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}
