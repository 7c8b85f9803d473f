//! The binary `windlass`. Commands live in `cmd`, one file each.

mod cmd;
#[cfg_attr(not(test), expect(dead_code, reason = "the commands that use it are being written"))]
mod handlers;

use std::process::ExitCode;

use clap::Parser;

/// The exit code of a command that was interrupted.
const INTERRUPTED: u8 = 130;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = tokio::select! {
        outcome = cmd::run(cmd::Cli::parse()) => outcome,
        // Dropping the command removes what it has made for itself.
        () = interrupted() => return ExitCode::from(INTERRUPTED),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", error.chain());
            cmd::exit_code(error.kind())
        }
    }
}

/// Ends at SIGINT or SIGTERM; never, where they cannot be listened for.
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
