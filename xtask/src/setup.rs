//! `cargo xtask setup`: finds what the tests need, installs what is missing.

use std::process::Command;

use crate::{Result, shell};

/// A program that tests run, and the Debian package that brings it.
struct Need {
    program: &'static str,
    package: &'static str,
    purpose: &'static str,
}

/// Everything beyond Rust itself. A new need is one more line.
const NEEDS: &[Need] = &[
    Need { program: "mkfs.ext4", package: "e2fsprogs", purpose: "torture power-cut" },
    Need { program: "strip", package: "binutils", purpose: "cargo xtask dist" },
    Need { program: "curl", package: "curl", purpose: "the README's tour" },
    Need { program: "node", package: "nodejs", purpose: "the sample worker in JavaScript" },
    Need { program: "python3", package: "python3", purpose: "the sample worker in Python" },
    Need { program: "mount", package: "mount", purpose: "torture power-cut" },
    // The package also sets up a server of its own, which tests leave alone: they start theirs.
    // Its own instance is left alone, too.
    Need { program: "pgbouncer", package: "pgbouncer", purpose: "tests of pooled connections" },
    Need { program: "initdb", package: "postgresql", purpose: "tests of the PostgreSQL store" },
    // The same holds for this one.
    Need { program: "redis-server", package: "redis-server", purpose: "tests of the Redis store" },
    // 19 MB to fetch, 96 MB on disk. Its server is not started by tests at all.
    Need { program: "promtool", package: "prometheus", purpose: "checks of the alert rules" },
    Need { program: "systemd-analyze", package: "systemd", purpose: "checks of the units" },
];

/// How much to say.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Voice {
    /// What was found and what was installed.
    Full,
    /// Only what was installed.
    Quiet,
}

pub(crate) fn run(voice: Voice) -> Result {
    let mut missing = Vec::new();
    for need in NEEDS {
        match shell::find_program(need.program) {
            Some(place) if voice == Voice::Full => {
                println!("found      {} ({})", place.display(), need.purpose);
            }
            Some(_) => {}
            None => missing.push(need),
        }
    }
    if missing.is_empty() {
        if voice == Voice::Full {
            println!("Everything is there.");
        }
        return Ok(());
    }
    install(&missing)?;
    for need in missing {
        let place = shell::find_program(need.program).ok_or_else(|| {
            format!(
                "package {} is installed, but {} is still not there",
                need.package, need.program
            )
        })?;
        println!("installed  {} ({})", place.display(), need.purpose);
    }
    Ok(())
}

fn install(missing: &[&Need]) -> Result {
    let mut packages: Vec<_> = missing.iter().map(|need| need.package).collect();
    packages.sort_unstable();
    packages.dedup();
    let by_hand = format!("as root: apt-get install {}", packages.join(" "));
    if shell::find_program("apt-get").is_none() {
        let programs: Vec<_> = missing.iter().map(|need| need.program).collect();
        let programs = programs.join(", ");
        return Err(format!(
            "missing {programs}, and there is no apt-get here; on Debian, {by_hand}"
        )
        .into());
    }
    println!("installing {} from Debian's packages", packages.join(" "));
    shell::run(as_root("apt-get", &by_hand)?.args(["update", "--quiet"]))?;
    shell::run(
        as_root("apt-get", &by_hand)?
            .args(["install", "--yes", "--no-install-recommends", "--quiet"])
            .args(packages),
    )
}

/// A command with root's rights, through sudo where needed; never one that asks for a password.
fn as_root(program: &str, by_hand: &str) -> Result<Command> {
    let assignment = "DEBIAN_FRONTEND=noninteractive";
    let mut command = if nix::unistd::geteuid().is_root() {
        Command::new("env")
    } else if may_sudo() {
        let mut sudo = Command::new("sudo");
        sudo.args(["-n", "env"]);
        sudo
    } else {
        return Err(format!("neither root nor sudo (without a password): {by_hand}").into());
    };
    command.args([assignment, program]);
    Ok(command)
}

fn may_sudo() -> bool {
    shell::find_program("sudo").is_some()
        && shell::output(Command::new("sudo").args(["-n", "true"])).is_ok()
}
