//! `windlass completion`: a script that lets a shell complete commands and options.

use clap::CommandFactory;

use super::Cli;
use crate::exit::Done;

const EXAMPLES: &str = "\
Examples:
  windlass completion bash > /etc/bash_completion.d/windlass
  windlass completion zsh > \"${fpath[1]}/_windlass\"
  windlass completion fish > ~/.config/fish/completions/windlass.fish";

/// For which shell.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The shell.
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

pub(crate) fn run(args: Args) -> Done {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "windlass", &mut script);
    let output = crate::output::Output::plain();
    output.line(String::from_utf8_lossy(&script).trim_end())
}
