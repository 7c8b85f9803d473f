//! The binary `windlass`. Commands live in `cmd`, one file each; what tasks a worker of the binary can
//! run lives in `handlers`.

#![deny(clippy::print_stderr, reason = "it panics where nobody reads; see `output::tell`")]

mod caller;
mod cmd;
mod confirm;
mod exit;
mod handlers;
mod http_store;
mod logs;
mod memory;
mod output;
mod service;
mod settings;
mod signals;
mod table;
#[cfg(feature = "otel")]
mod telemetry;
#[cfg(not(feature = "otel"))]
#[path = "telemetry/off.rs"]
mod telemetry;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::cmd::Cli;
use crate::exit::{Code, Failure};
use crate::output::tell;
use crate::telemetry::Telemetry;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long the end of the process waits for threads: a handler that blocks its thread must not keep it longer.
const CLOSE_MAX: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = match runtime.enable_all().on_thread_park(memory::tidy).build() {
        Ok(runtime) => runtime,
        Err(error) => return end(Err(Failure::new(Code::Error, format!("start: {error}")))),
    };
    let telemetry = match Telemetry::of_environment(&cli, runtime.handle()) {
        Ok(telemetry) => telemetry,
        Err(failure) => return end(Err(failure)),
    };
    logs::to_stderr(&cli, &telemetry);
    telemetry.tell();
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
    if !matches!(&outcome, Err(failure) if failure.code == Code::Interrupted) {
        telemetry.hand_over();
    }
    // Drops what still holds the store, which closes an embedded file and copies its log back.
    runtime.shutdown_timeout(CLOSE_MAX);
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
