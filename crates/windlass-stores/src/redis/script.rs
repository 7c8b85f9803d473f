//! Scripts: their texts are files under `lua/`, put together when they are first used, called by their
//! digest, and loaded again when the server has forgotten them.

use redis::{Cmd, ToRedisArgs};

/// One script.
pub(super) struct Script {
    /// Named after what it does.
    pub(super) name: &'static str,
    text: String,
    digest: String,
}

impl Script {
    pub(super) fn new(name: &'static str, parts: &[&str]) -> Self {
        let text = parts.join("\n");
        let digest = redis::Script::new(&text).get_hash().to_owned();
        Self { name, text, digest }
    }

    /// The command that makes a server know it.
    pub(super) fn loading(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(&self.text);
        command
    }

    /// Begins a call on these keys.
    pub(super) fn on(&'static self, keys: &[impl AsRef<[u8]>]) -> Call {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.digest).arg(keys.len());
        for key in keys {
            command.arg(key.as_ref());
        }
        Call { script: self, command }
    }
}

/// A call of a script as it comes together.
pub(super) struct Call {
    pub(super) script: &'static Script,
    pub(super) command: Cmd,
}

impl Call {
    /// Adds an argument.
    pub(super) fn arg(mut self, value: impl ToRedisArgs) -> Self {
        self.command.arg(value);
        self
    }

    /// Adds an argument to a call that is held elsewhere.
    pub(super) fn add(&mut self, value: impl ToRedisArgs) {
        self.command.arg(value);
    }
}
