//! What leaders do: seek a term, promote, expire, prune, tend.

use std::time::Duration;

use windlass_core::store::{Bid, Duty, DutyReport, Leadership, Term};
use windlass_core::{Result, WorkerId};

use super::{LEASE, MS, Scene};

/// How long a term lasts in tests.
pub(super) const TERM: Duration = Duration::from_secs(10);

/// How much one piece of upkeep may do unless a test says otherwise.
const LIMIT: usize = 1_000;

impl Scene {
    /// Seeks leadership for somebody.
    pub async fn seek(&self, holder: &str) -> Leadership {
        let bid = Bid::Seek { holder: WorkerId::new(holder), term_length: TERM };
        self.store.lead(bid).await.unwrap()
    }

    /// Makes somebody the leader, who must succeed. A bid may give way to upkeep that is under way: then nobody leads,
    /// and the bid is made again.
    pub async fn lead_as(&self, holder: &str) -> Term {
        loop {
            match self.seek(holder).await {
                Leadership::Leading(term) => return term,
                Leadership::Following { leader: None, .. } => tokio::task::yield_now().await,
                Leadership::Following { leader: Some(leader), .. } => {
                    panic!("{holder} should lead, but {leader} does")
                }
            }
        }
    }

    /// Renews a term.
    pub async fn renew(&self, term: Term) -> Leadership {
        let bid = Bid::Renew { term, term_length: TERM };
        self.store.lead(bid).await.unwrap()
    }

    /// Resigns a term.
    pub async fn resign(&self, term: Term) -> Leadership {
        self.store.lead(Bid::Resign { term }).await.unwrap()
    }

    /// A duty in the name of the scene's usual leader, who takes the lead if nobody has it.
    pub async fn duty(&self) -> Duty {
        Duty { term: self.lead_as("leader").await, limit: LIMIT }
    }

    /// Promotes what is due, to the end.
    pub async fn promote(&self) -> DutyReport {
        let duty = self.duty().await;
        to_the_end("promote", || self.store.promote(duty)).await
    }

    /// Expires lost workers, to the end.
    pub async fn expire(&self) -> DutyReport {
        let duty = self.duty().await;
        to_the_end("expire", || self.store.expire(duty)).await
    }

    /// Prunes what is past its retention, to the end.
    pub async fn prune(&self) -> DutyReport {
        let duty = self.duty().await;
        to_the_end("prune", || self.store.prune(duty)).await
    }

    /// Does the store's own upkeep, to the end.
    pub async fn tend(&self) -> DutyReport {
        let duty = self.duty().await;
        to_the_end("tend", || self.store.tend(duty)).await
    }

    /// Lets every lease run out and declares the silent workers lost.
    pub async fn lose_all_workers(&self) -> DutyReport {
        self.advance(LEASE + MS);
        self.expire().await
    }
}

/// Repeats a piece of upkeep until there is no more to do at once; adds up what was done.
async fn to_the_end<F>(what: &str, mut once: impl FnMut() -> F) -> DutyReport
where
    F: Future<Output = Result<DutyReport>>,
{
    let mut sum = DutyReport::default();
    for _ in 0..10_000 {
        let report = once().await.unwrap();
        let (done, repaired) = (sum.done + report.done, sum.repaired + report.repaired);
        sum = DutyReport { done, repaired, ..report };
        if !report.has_more {
            return sum;
        }
    }
    panic!("{what} always says that there is more to do");
}
