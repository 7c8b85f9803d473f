//! The leader's duties under way, and what each of them needs. Every loop survives any error and goes on.

use std::future::Future;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass_core::store::{Duty, DutyReport, Term};
use windlass_core::{Reason, Result};

use super::{forwarder, janitor, recoverer};
use crate::hush::Hush;
use crate::link::Link;
use crate::outage::warn_unless_outage;

/// The duties of one term, under way.
pub(crate) struct Duties {
    stop: CancellationToken,
    refused: CancellationToken,
    duties: JoinSet<()>,
}

/// What a duty needs.
#[derive(Clone)]
pub(super) struct Desk {
    pub(super) link: Arc<Link>,
    term: Term,
    pub(super) stop: CancellationToken,
    refused: CancellationToken,
    hush: Arc<Hush>,
}

impl Duties {
    /// Starts all duties.
    pub(crate) fn start(link: &Arc<Link>, term: Term) -> Self {
        let (stop, refused) = (CancellationToken::new(), CancellationToken::new());
        let desk = Desk {
            link: Arc::clone(link),
            term,
            stop: stop.clone(),
            refused: refused.clone(),
            hush: Arc::default(),
        };
        let mut duties = JoinSet::new();
        duties.spawn(forwarder::forward(desk.clone()));
        duties.spawn(recoverer::recover(desk.clone()));
        duties.spawn(janitor::clean(desk));
        Self { stop, refused, duties }
    }

    /// Ends when the store has refused the term.
    pub(crate) async fn refused(&self) {
        self.refused.cancelled().await;
    }

    /// Lets no duty begin another step.
    pub(crate) fn cancel(&self) {
        self.stop.cancel();
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Ends all duties, each after its present step.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        while self.duties.join_next().await.is_some() {}
    }
}

impl Desk {
    fn duty(&self) -> Duty {
        Duty { term: self.term, limit: self.link.config().upkeep.batch }
    }

    /// Repeats a step until there is no more to do; answers the last report, or nothing when it
    /// failed or the duties end.
    pub(super) async fn until_done<F, R>(&self, name: &'static str, step: F) -> Option<DutyReport>
    where
        F: Fn(Duty) -> R,
        R: Future<Output = Result<DutyReport>>,
    {
        while !self.stop.is_cancelled() {
            match step(self.duty()).await {
                Ok(report) => {
                    self.link.contact.answered();
                    if report.skipped_bad > 0 && self.hush.allows(name) {
                        tracing::error!(name, count = report.skipped_bad, "records cannot be read");
                    }
                    if !report.has_more {
                        return Some(report);
                    }
                }
                Err(error) => {
                    warn_unless_outage!(error, name, "upkeep failed; it goes on");
                    if error.reason() == Reason::StaleTerm {
                        self.refused.cancel();
                        self.stop.cancel();
                    }
                    return None;
                }
            }
        }
        None
    }

    /// Sleeps, or ends early with the duties.
    pub(super) async fn pause(&self, time: std::time::Duration) {
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = tokio::time::sleep(time) => {}
        }
    }
}
