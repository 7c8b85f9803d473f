//! `cargo xtask torture NAME`: attacks with real processes and real faults, judged from outside.
//!
//! Each torture prints one JSON verdict on standard output; everything else goes to standard error.

mod chance;
pub(crate) mod guard;
pub(crate) mod power_cut;
pub(crate) mod processes;

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
    /// Kill, pause and stop the processes of a small installation on one SQLite file under load;
    /// every promise that can be seen from outside must hold.
    Sqlite(processes::Args),
    /// The same on a private PostgreSQL, which is restarted now and then and away for a minute once.
    Postgres(processes::ServerArgs),
    /// The same on a private Redis, whose connections are cut and scripts forgotten besides.
    Redis(processes::ServerArgs),
    /// The same with tasks on the keys of Go's asynq.
    Asynq(processes::ServerArgs),
    /// The same on a private PostgreSQL with two Redis in front, which are emptied, cut off and killed
    /// besides.
    Hybrid(processes::ServerArgs),
    /// The process that is killed by `power-cut`.
    #[command(hide = true)]
    PowerCutLoad(power_cut::LoadArgs),
    /// What all of these but `power-cut` have run for each task.
    #[command(hide = true)]
    Handler(processes::HandlerArgs),
    /// A process that ends with its owner.
    #[command(hide = true)]
    Tethered(guard::TetheredArgs),
}

pub(crate) fn run(args: Args) -> Result {
    match args.attack {
        Attack::PowerCut(args) => power_cut::run(&args),
        Attack::PowerCutLoad(args) => power_cut::run_load(&args),
        Attack::Sqlite(args) => processes::run_sqlite(&args),
        Attack::Postgres(args) => processes::run_postgres(&args),
        Attack::Redis(args) => processes::run_redis(&args),
        Attack::Asynq(args) => processes::run_asynq(&args),
        Attack::Hybrid(args) => processes::run_hybrid(&args),
        Attack::Handler(args) => processes::run_handler(&args),
        Attack::Tethered(args) => guard::run_tethered(&args),
    }
}
