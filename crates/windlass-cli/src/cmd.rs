//! The command line: which commands there are, and what they share.

mod audit;
mod bench;
mod bulk;
#[cfg(test)]
mod bulk_tests;
mod completion;
mod config;
mod dev;
mod dlq;
mod doctor;
mod enqueue;
mod events;
mod filters;
mod health;
mod ids;
#[cfg(test)]
mod manual_tests;
mod migrate;
mod queue;
mod serve;
mod stats;
mod task;
mod token;
mod wait;
mod worker;
mod workers;

use std::path::PathBuf;
use std::sync::OnceLock;

use clap::{Parser, Subcommand};
use windlass::Client;
use windlass_server::App;

use crate::caller::{Access, Caller};
use crate::exit::Done;
use crate::logs;
use crate::output::{Format, Output};
use crate::settings::Settings;

const EXAMPLES: &str = "\
Examples:
  windlass dev                                     server, page and worker on an embedded file
  windlass enqueue echo '{\"hello\":\"world\"}' --wait    submit a task and wait for its result
  windlass task list --state dead_letter           what went wrong
  windlass worker --queue mail=3 --queue default   a worker for two queues, three to one
  windlass worker --exec './handle.sh'             a worker that runs a command per task

Exit codes: 0 ok, 1 error, 2 usage or invalid, 3 not found, 4 conflict, 5 unauthorized or forbidden,
6 the task ended dead or cancelled, 7 timed out, 8 partly failed, 69 unreachable, 130 interrupted.";

/// A task queue that starts with one command and does not lose a task.
#[derive(Parser)]
#[command(name = "windlass", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

/// What every command takes.
#[derive(clap::Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Globals {
    /// The store to talk to directly, e.g. sqlite:windlass.db (the default). A URL with a password
    /// belongs into WINDLASS_STORE: flags can be seen in the list of processes.
    #[arg(long, global = true, value_name = "URL", conflicts_with = "server")]
    pub(crate) store: Option<String>,
    /// A broker in front of a PostgreSQL store, e.g. redis://127.0.0.1; or two of them, high=URL and
    /// low=URL. With a password it belongs into WINDLASS_BROKER, with a comma between two.
    #[arg(long, global = true, value_name = "URL", conflicts_with = "server")]
    pub(crate) broker: Vec<String>,
    /// The server to talk to in place of a store, e.g. http://127.0.0.1:8080; also WINDLASS_URL, with
    /// WINDLASS_TOKEN.
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// A file of certificates, in PEM, to trust at an https:// server in place of those that the system trusts;
    /// also WINDLASS_CA_CERT.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) ca_cert: Option<PathBuf>,
    /// How to print; by default a table on a terminal and JSON elsewhere.
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
    /// Prints without colours.
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
    /// A file of settings in place of ./windlass.toml.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Logs every run of a task and every request (debug); -vv logs everything, also of libraries.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// How lines of the log are written; text without. Logs go to standard error.
    #[arg(long, global = true, value_enum, value_name = "FORMAT")]
    pub(crate) log_format: Option<logs::Format>,
}

#[derive(Subcommand)]
enum Command {
    /// Start server, page and worker in one process, on an embedded file.
    Dev(dev::Args),
    /// Start the server: HTTP API, page and upkeep.
    Serve(serve::Args),
    /// Start a worker that runs built-in tasks or a command of yours.
    Worker(worker::Args),
    /// Submit a task, or many.
    Enqueue(enqueue::Args),
    /// Look at tasks, wait for them, cancel, retry, snooze or delete them.
    #[command(subcommand, after_help = "Example:\n  windlass task list --state dead_letter")]
    Task(task::Command),
    /// Look at queues, pause, resume or purge them.
    #[command(subcommand, after_help = "Example:\n  windlass queue list")]
    Queue(queue::Command),
    /// Look at dead letters, run them again or remove them.
    #[command(subcommand, after_help = "Example:\n  windlass dlq retry --all")]
    Dlq(dlq::Command),
    /// Look at workers.
    #[command(subcommand, after_help = "Example:\n  windlass workers list")]
    Workers(workers::Command),
    /// Follow what happens to tasks, queues and workers, as it happens.
    Events(events::Args),
    /// Count tasks, queues and workers, and show what was done lately.
    Stats(stats::Args),
    /// Make, list and revoke the access tokens of servers on a store.
    #[command(
        subcommand,
        after_help = "Example:\n  windlass token create --name ann --scope admin"
    )]
    Token(token::Command),
    /// Show who changed what, oldest first.
    Audit(audit::Args),
    /// Look for anything wrong in a store, and say what to do about it.
    Doctor(doctor::Args),
    /// Ask whether a server, or a store, is ready; for health checks.
    Health(health::Args),
    /// Show or bring up to date the schema of a store.
    #[command(subcommand, after_help = "Example:\n  windlass migrate status")]
    Migrate(migrate::Command),
    /// Show the settings and where each comes from.
    #[command(subcommand, after_help = "Example:\n  windlass config show")]
    Config(config::Command),
    /// Measure a store: tasks per second, latency, and what a backlog costs.
    Bench(bench::Args),
    /// Print a completion script for a shell.
    Completion(completion::Args),
}

/// What a command works with.
pub(crate) struct Desk {
    pub(crate) settings: Settings,
    pub(crate) output: Output,
    /// The client of the store that was opened, if any.
    opened: OnceLock<Client>,
}

impl Desk {
    fn set(globals: &Globals) -> Done<Self> {
        let settings = Settings::gather(globals, Vec::new())?;
        Ok(Self { settings, output: Output::of(globals), opened: OnceLock::new() })
    }

    async fn caller(&self, access: Access) -> Done<Caller> {
        if let Some(client) = self.opened.get() {
            return Ok(Caller::Store(App::new(client.clone())));
        }
        let caller = Caller::connect(&self.settings, access).await?;
        if let Caller::Store(app) = &caller {
            // A command opens one store, once.
            let _ = self.opened.set(app.client().clone());
        }
        Ok(caller)
    }

    /// Runs a command that submits or changes something to its end: those who listen are told, and statistics saved.
    /// It has done its work without that.
    async fn to_its_end(&self, command: impl Future<Output = Done>) -> Done {
        let done = command.await;
        let Some(client) = self.opened.get() else { return done };
        client.all_told().await;
        if let Err(error) = client.statistics().save().await {
            tracing::warn!(error = error.chain(), "statistics are not saved");
        }
        done
    }
}

impl Cli {
    /// The commands that stop by themselves in an orderly way when a signal comes.
    pub(crate) fn minds_signals(&self) -> bool {
        matches!(self.command, Command::Dev(_) | Command::Serve(_) | Command::Worker(_))
    }

    /// The commands that submit or run tasks, of which there are traces.
    #[cfg(feature = "otel")]
    pub(crate) fn is_traced(&self) -> bool {
        self.minds_signals() || matches!(self.command, Command::Enqueue(_))
    }

    pub(crate) fn is_measurement(&self) -> bool {
        matches!(self.command, Command::Bench(_))
    }

    pub(crate) fn globals(&self) -> &Globals {
        &self.globals
    }
}

pub(crate) async fn run(cli: Cli) -> Done {
    let globals = &cli.globals;
    match cli.command {
        Command::Dev(args) => dev::run(args, globals).await,
        Command::Serve(args) => serve::run(args, globals).await,
        Command::Worker(args) => worker::run(args, globals).await,
        Command::Enqueue(args) => {
            let desk = Desk::set(globals)?;
            desk.to_its_end(enqueue::run(args, &desk)).await
        }
        Command::Task(command) => {
            let desk = Desk::set(globals)?;
            desk.to_its_end(task::run(command, &desk)).await
        }
        Command::Dlq(command) => {
            let desk = Desk::set(globals)?;
            desk.to_its_end(dlq::run(command, &desk)).await
        }
        Command::Queue(command) => queue::run(command, &Desk::set(globals)?).await,
        Command::Workers(command) => workers::run(command, &Desk::set(globals)?).await,
        Command::Events(args) => events::run(args, &Desk::set(globals)?).await,
        Command::Stats(args) => stats::run(args, &Desk::set(globals)?).await,
        Command::Token(command) => token::run(command, &Desk::set(globals)?).await,
        Command::Audit(args) => audit::run(args, &Desk::set(globals)?).await,
        Command::Doctor(args) => doctor::run(args, &Desk::set(globals)?).await,
        Command::Health(args) => health::run(args, globals).await,
        Command::Migrate(command) => migrate::run(command, &Desk::set(globals)?).await,
        Command::Config(command) => config::run(command, &Desk::set(globals)?),
        Command::Bench(args) => bench::run(args, globals).await,
        Command::Completion(args) => completion::run(args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_examples_in_its_help() {
        fn check(command: &clap::Command) {
            if command.get_name() == "help" {
                return;
            }
            for inner in command.get_subcommands() {
                check(inner);
            }
            let name = command.get_name();
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(after.starts_with("Example"), "{name} has no examples");
            assert!(command.get_about().is_some(), "{name} does not say what it does");
        }
        check(&Cli::command());
    }
}
