//! Other programs: where they are, and running them.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;

/// Debian keeps the tools of administrators outside the PATH of ordinary users.
const PLACES_BEYOND_PATH: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// The top folder of this repository.
pub(crate) fn repository_root() -> PathBuf {
    let manifest_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest_folder.parent().expect("xtask is a folder inside the repository").to_path_buf()
}

/// The cargo that runs this chore, else the one on the PATH; it works in the repository's top folder.
pub(crate) fn cargo() -> Command {
    let mut command = windlass_testkit::cargo();
    command.current_dir(repository_root());
    command
}

/// Debian keeps each version of PostgreSQL in a folder of its own.
const POSTGRES_VERSIONS: &str = "/usr/lib/postgresql";

/// Finds a program on the PATH or in Debian's places.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = std::fs::read_dir(POSTGRES_VERSIONS).into_iter().flatten().flatten();
    std::env::split_paths(&path)
        .chain(PLACES_BEYOND_PATH.iter().map(PathBuf::from))
        .chain(versions.map(|version| version.path().join("bin")))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// A command for a program that may lie beyond the PATH.
pub(crate) fn program(name: &str) -> Result<Command> {
    let file = find_program(name)
        .ok_or_else(|| format!("no program {name}: `cargo xtask setup` installs it"))?;
    Ok(Command::new(file))
}

/// This very program. Not by its path: cargo may have put a newer build there in the meantime.
pub(crate) fn this_program() -> Command {
    Command::new("/proc/self/exe")
}

/// Runs a command on this terminal; anything but success is an error.
pub(crate) fn run(command: &mut Command) -> Result {
    let status = command
        .stdin(Stdio::null())
        .status()
        .map_err(|cause| format!("start {}: {cause}", name_of(command)))?;
    if status.success() {
        return Ok(());
    }
    Err(format!("{} ended with {status}", name_of(command)).into())
}

/// Runs a command and answers what it printed; anything but success is an error with all of that.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|cause| format!("start {}: {cause}", name_of(command)))?;
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout)?);
    }
    let [complaints, said] = [&output.stderr, &output.stdout]
        .map(|text| String::from_utf8_lossy(text).trim().to_owned());
    let told = if said.is_empty() { complaints } else { format!("{complaints}\n{said}") };
    Err(format!("{} ended with {}: {told}", name_of(command), output.status).into())
}

/// An error and every cause behind it, in one line.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| (*error).source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

fn name_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_and_an_unknown_one_is_not() {
        assert!(find_program("sh").is_some());
        assert!(find_program("no-such-program-anywhere").is_none());
    }

    #[test]
    fn a_failing_command_is_an_error_with_its_complaint() {
        let script = "echo broken >&2; echo why; exit 3";
        let error = output(Command::new("sh").args(["-c", script])).unwrap_err().to_string();
        assert!(error.contains("broken") && error.contains("why"), "{error}");
    }
}
