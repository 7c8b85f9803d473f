//! Hooks around every run of a worker, for logging, metrics and tracing.

use std::panic::{AssertUnwindSafe, catch_unwind};

use windlass_core::{Claimed, Ending};

type Before = Box<dyn Fn(&Claimed) + Send + Sync>;
type After = Box<dyn Fn(&Claimed, &Ending) + Send + Sync>;

/// What a worker calls before and after each run.
#[derive(Default)]
pub(crate) struct Hooks {
    before: Vec<Before>,
    after: Vec<After>,
}

impl Hooks {
    pub(crate) fn add_before(&mut self, hook: impl Fn(&Claimed) + Send + Sync + 'static) {
        self.before.push(Box::new(hook));
    }

    pub(crate) fn add_after(&mut self, hook: impl Fn(&Claimed, &Ending) + Send + Sync + 'static) {
        self.after.push(Box::new(hook));
    }

    /// Tells that a run begins; in the order in which the hooks were added.
    pub(crate) fn before(&self, task: &Claimed) {
        self.before.iter().for_each(|hook| guarded(task, || hook(task)));
    }

    /// Tells how a run has ended; the other way round, so that hooks nest.
    pub(crate) fn after(&self, task: &Claimed, ending: &Ending) {
        self.after.iter().rev().for_each(|hook| guarded(task, || hook(task, ending)));
    }
}

/// A hook that panics must not cost a task its run, nor the run its report.
fn guarded(task: &Claimed, hook: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(hook)).is_err() {
        tracing::error!(id = %task.id, kind = %task.kind, "a hook panicked");
    }
}
