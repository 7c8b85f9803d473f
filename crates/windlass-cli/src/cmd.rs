//! The command line: which commands there are, and what they exit with.

mod bench;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use windlass::core::{ErrorKind, Result};

/// A task queue that starts with one command and does not lose a task.
#[derive(Parser)]
#[command(name = "windlass", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure a store: tasks per second, and what a backlog costs.
    Bench(bench::Args),
}

pub(crate) async fn run(cli: Cli) -> Result<()> {
    match cli.command {
        Command::Bench(args) => bench::run(args).await,
    }
}

/// What the process exits with, so that scripts can tell errors apart.
pub(crate) fn exit_code(kind: ErrorKind) -> ExitCode {
    ExitCode::from(match kind {
        ErrorKind::Invalid | ErrorKind::Unsupported => 2,
        ErrorKind::NotFound => 3,
        ErrorKind::Conflict => 4,
        ErrorKind::Unavailable => 69,
        // The enum may grow; what has no code of its own is an error like any other.
        _ => 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
