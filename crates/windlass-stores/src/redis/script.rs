//! Scripts: their texts are files under `lua/`, put together when they are first used, called by their
//! digest, and sent in full when the server does not know them (any more).

use redis::{Arg, Cmd, ToRedisArgs};

/// One script.
pub(crate) struct Script {
    /// Named after what it does.
    pub(crate) name: &'static str,
    text: String,
    digest: String,
}

impl Script {
    pub(crate) fn new(name: &'static str, parts: &[&str]) -> Self {
        let text = parts.join("\n");
        let digest = redis::Script::new(&text).get_hash().to_owned();
        Self { name, text, digest }
    }

    /// A call with the text instead of its digest: it needs nothing to be known beforehand, and makes
    /// the server know it.
    pub(crate) fn in_full(&self, call: &Cmd) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(&self.text);
        for arg in call.args_iter().skip(2) {
            if let Arg::Simple(arg) = arg {
                command.arg(arg);
            }
        }
        command
    }

    /// Begins a call on these stems, of which the script makes the names of its keys.
    ///
    /// A stem is a key that never exists. So a node of a Cluster answers `ASK` for as long as the slot is open, and
    /// no script runs while the keys of its queue lie on two nodes; nobody asks the other node, which would run it on
    /// what it has. To name every key would do no more: some are nearly always absent, and the names of others
    /// (lists of retentions, locks, tasks) only the script knows.
    pub(crate) fn on(&'static self, keys: &[impl AsRef<[u8]>]) -> Call {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.digest).arg(keys.len());
        for key in keys {
            command.arg(key.as_ref());
        }
        Call { script: self, command, is_brief: false }
    }
}

/// A call of a script as it comes together.
pub(crate) struct Call {
    pub(crate) script: &'static Script,
    pub(crate) command: Cmd,
    /// Others wait for its answer: it is not repeated for long while its slot moves.
    pub(crate) is_brief: bool,
}

impl Call {
    /// Makes it fail soon while its slot moves: its sender has other queues to ask.
    pub(crate) fn brief(self) -> Self {
        Self { is_brief: true, ..self }
    }

    /// Adds an argument.
    pub(crate) fn arg(mut self, value: impl ToRedisArgs) -> Self {
        self.command.arg(value);
        self
    }

    /// Adds an argument to a call that is held elsewhere.
    pub(crate) fn add(&mut self, value: impl ToRedisArgs) {
        self.command.arg(value);
    }
}
