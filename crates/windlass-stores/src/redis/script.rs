//! Scripts: their texts are files under `lua/`, put together when they are first used, called by their
//! digest, and sent in full when the server does not know them (any more).

use redis::{Arg, Cmd, ToRedisArgs};

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

    /// A call with the text instead of its digest: it needs nothing to be known beforehand, and makes
    /// the server know it.
    pub(super) fn in_full(&self, call: &Cmd) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(&self.text);
        for arg in call.args_iter().skip(2) {
            if let Arg::Simple(arg) = arg {
                command.arg(arg);
            }
        }
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
