//! The binary `windlass`. Commands live in `cmd`, one file each; what tasks a worker of the binary can
//! run lives in `handlers`.

#![deny(clippy::print_stderr, reason = "it panics where nobody reads; see `output::tell`")]

mod caller;
mod cmd;
mod confirm;
mod exit;
mod handlers;
mod memory;
mod output;
mod service;
mod settings;
mod signals;
mod table;

use std::process::ExitCode;

use clap::Parser;

use crate::cmd::Cli;
use crate::exit::{Code, Failure};
use crate::output::tell;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    log_to_stderr(&cli);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = match runtime.enable_all().on_thread_park(memory::tidy).build() {
        Ok(runtime) => runtime,
        Err(error) => return end(Err(Failure::new(Code::Error, format!("start: {error}")))),
    };
    let outcome = runtime.block_on(async {
        if cli.minds_signals() {
            return cmd::run(cli).await;
        }
        tokio::select! {
            outcome = cmd::run(cli) => outcome,
            // Dropping the command removes what it has made for itself.
            () = signals::any() => Err(Failure::silent(Code::Interrupted)),
        }
    });
    // Not waited for: a handler that blocks its thread must not keep the process.
    runtime.shutdown_background();
    end(outcome)
}

fn end(outcome: exit::Done) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.text.is_empty() {
                tell!("error: {failure}");
            }
            ExitCode::from(failure.code as u8)
        }
    }
}

/// Long-running commands tell what they do; the others speak up when something is wrong.
fn log_to_stderr(cli: &Cli) {
    use tracing_subscriber::EnvFilter;
    let level = match (cli.verbose(), cli.minds_signals()) {
        // What a measurement does on purpose is no cause for warnings.
        (0, false) if cli.is_measurement() => "error",
        (0, false) => "warn",
        (0, true) | (1, false) => "warn,windlass=info,windlass_engine=info,windlass_server=info",
        (1, true) | (2, _) => "info,windlass=debug,windlass_engine=debug,windlass_server=debug",
        _ => "debug,windlass=trace,windlass_engine=trace,windlass_server=trace",
    };
    let filter = EnvFilter::try_from_env("WINDLASS_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    // A second subscriber cannot come up here; a test harness may have set its own.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(is_terminal && std::env::var_os("NO_COLOR").is_none())
        .with_target(false)
        // It would complain on stderr, too, and panic.
        .log_internal_errors(false)
        .try_init();
}
