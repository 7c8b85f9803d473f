//! Who ends a server when the process that started it is gone.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Waits for the end of its input, then ends the server. Not for ever: where nobody collects the dead,
/// an ended process still has its number.
const SCRIPT: &str = "read -r _; kill -0 \"$1\" 2>/dev/null || exit 0; kill -\"$2\" \"$1\" 2>/dev/null; \
                      for _ in $(seq 100); do kill -0 \"$1\" 2>/dev/null || break; sleep 0.1; done; \
                      rm -rf \"$3\"";

/// What a server ends by at once; they do not agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    Kill,
    /// PostgreSQL's own processes end with it.
    Quit,
    /// PgBouncer 1.18 does not mind the one before.
    Terminate,
}

/// Starts a process that ends the server and removes its folder when this process is gone, however it
/// ends.
pub(super) fn watch(server: u32, signal: Signal, folder: &Path) -> Child {
    let signal = match signal {
        Signal::Kill => "KILL",
        Signal::Quit => "QUIT",
        Signal::Terminate => "TERM",
    };
    Command::new("sh")
        .args(["-c", SCRIPT, "watchdog", &server.to_string(), signal])
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap()
}
