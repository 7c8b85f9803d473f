//! Cargo, asked by a program that cargo itself runs.

use std::process::Command;

/// What cargo tells a program about the package that it belongs to. Some build scripts ask for these, and
/// cargo runs them again when they have changed: everything on top would then be built anew.
const OF_A_PACKAGE: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];

/// The cargo that runs this program, else the one on the PATH, as if asked from a shell.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let is_of_a_package =
            OF_A_PACKAGE.iter().any(|start| name.to_string_lossy().starts_with(start));
        if is_of_a_package {
            command.env_remove(name);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_this_package_is_handed_on() {
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "cargo runs this test");
        let command = cargo();
        let removed = |name: &str| {
            command.get_envs().any(|(changed, value)| changed == name && value.is_none())
        };
        assert!(removed("CARGO_MANIFEST_DIR"));
        assert!(!removed("PATH"));
    }
}
