//! One suspect at a time: a claim needs the worker's only pass to bring one, and the pass stays with
//! that task from its way here until its run has ended.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Clone, Default)]
pub(crate) struct Suspects(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Default)]
struct State {
    is_given: bool,
    /// A claim had to go without the pass since it was given.
    is_missed: bool,
}

/// The right to have a suspect here; free for another when dropped.
pub(crate) struct Pass(Suspects);

impl Suspects {
    /// The pass, unless a suspect runs, waits, or may be on its way.
    pub(crate) fn pass(&self) -> Option<Pass> {
        let mut state = self.0.state.lock();
        if state.is_given {
            state.is_missed = true;
            return None;
        }
        state.is_given = true;
        Some(Pass(self.clone()))
    }

    pub(crate) fn is_free(&self) -> bool {
        !self.0.state.lock().is_given
    }

    /// Ends when the pass is free that a claim went without: no wake-up tells of a suspect which that
    /// claim may have left behind.
    pub(crate) async fn freed(&self) {
        self.0.freed.notified().await;
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let State { is_missed, .. } = std::mem::take(&mut *self.0.0.state.lock());
        if is_missed {
            self.0.0.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn there_is_one_pass_and_who_missed_it_hears_when_it_is_free() {
        let suspects = Suspects::default();
        drop(suspects.pass());
        assert!(suspects.freed().now_or_never().is_none(), "nobody has missed it");
        let pass = suspects.pass();
        assert!(pass.is_some() && suspects.pass().is_none() && !suspects.is_free());
        drop(pass);
        assert!(suspects.freed().now_or_never().is_some() && suspects.is_free());
    }
}
