//! What cargo knows of the workspace and of everything that it is built from.

use std::process::Command;

use serde_json::Value;

use crate::{Result, shell};

/// The answer of `cargo metadata` with these options.
pub(crate) fn metadata(options: &[&str]) -> Result<Value> {
    let text =
        shell::output(shell::cargo().args(["metadata", "--format-version", "1"]).args(options))?;
    Ok(serde_json::from_str(&text)?)
}

/// The platform of this machine, such as `x86_64-unknown-linux-gnu`.
pub(crate) fn host_platform() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let about = shell::output(Command::new(rustc).arg("-vV"))?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.ok_or("rustc -vV names no host")?.to_owned())
}

/// A list of the answer.
pub(crate) fn list<'a>(value: &'a Value, field: &str) -> Result<&'a Vec<Value>> {
    value[field].as_array().ok_or_else(|| format!("cargo metadata has no list {field}").into())
}
