//! The store on which the processes stand: what every torture of processes needs of it.

use std::path::Path;

/// Where tasks are kept.
pub(super) trait Ground {
    /// The store of all processes.
    fn url(&self) -> String;

    /// False where all tasks of a queue are equal.
    fn has_priorities(&self) -> bool {
        true
    }

    /// The brokers in front of it, as on a command line.
    fn brokers(&self) -> Vec<String> {
        Vec::new()
    }

    /// The server behind it, where there is one.
    fn server(&self) -> Option<&dyn Server> {
        None
    }
}

/// A private server, gone with this.
pub(super) trait Server {
    /// Ends it as in a crash.
    fn leave(&self);

    /// Starts it again, and waits until it answers.
    fn come_back(&self);

    /// What its operator can do to it that nobody may mind, each as a line.
    fn nuisances(&self) -> &'static [&'static str] {
        &[]
    }

    /// Does one of these.
    fn annoy(&self, _nuisance: &str) -> std::io::Result<()> {
        Ok(())
    }
}

/// Makes a ground for an installation that keeps its files in this folder.
pub(super) type Lay = fn(&Path) -> Box<dyn Ground>;
