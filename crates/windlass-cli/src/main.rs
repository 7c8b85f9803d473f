//! The binary `windlass`. Commands live in `cmd`, one file each.

mod cmd;

use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    match cmd::run(cmd::Cli::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", error.chain());
            cmd::exit_code(error.kind())
        }
    }
}
