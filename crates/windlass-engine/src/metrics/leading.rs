//! Whether this process leads, as far as its own bids tell.

use parking_lot::Mutex;
use tokio::time::Instant;
use windlass_core::Result;
use windlass_core::store::{Bid, Leadership, Term};

/// The term that somebody in this process holds, and until when it surely lasts.
#[derive(Default)]
pub(super) struct Leading(Mutex<Option<(Term, Instant)>>);

impl Leading {
    pub(super) fn is_so(&self) -> bool {
        self.0.lock().is_some_and(|(_, until)| Instant::now() < until)
    }

    /// Notes what a bid, made at this instant, has come to. Several may bid in one process.
    pub(super) fn note(&self, bid: &Bid, asked: Instant, answer: &Result<Leadership>) {
        let mut held = self.0.lock();
        match (bid, answer) {
            (
                Bid::Seek { term_length, .. } | Bid::Renew { term_length, .. },
                Ok(Leadership::Leading(term)),
            ) => *held = Some((*term, asked + *term_length)),
            (Bid::Renew { term, .. }, Ok(Leadership::Following { .. }))
            | (Bid::Resign { term }, _) => {
                held.take_if(|(its, _)| its == term);
            }
            // Another of this process may lead; and without an answer the term runs out by itself.
            (Bid::Seek { .. }, Ok(Leadership::Following { .. }))
            | (Bid::Seek { .. } | Bid::Renew { .. }, Err(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use windlass_core::{Error, WorkerId};

    use super::*;

    const LENGTH: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_term_counts_until_it_is_over_lost_or_resigned() {
        let leading = Leading::default();
        let seek = Bid::Seek { holder: WorkerId::new("a"), term_length: LENGTH };
        let renew = Bid::Renew { term: Term(7), term_length: LENGTH };
        let (leads, follows) = (
            Leadership::Leading(Term(7)),
            Leadership::Following { leader: None, bid_after: LENGTH },
        );
        let note = |bid, answer| leading.note(bid, Instant::now(), &answer);
        note(&seek, Ok(follows.clone()));
        assert!(!leading.is_so());
        note(&seek, Ok(leads.clone()));
        assert!(leading.is_so());
        note(&seek, Ok(follows.clone()));
        assert!(leading.is_so(), "it was another who sought");
        tokio::time::advance(LENGTH / 2).await;
        note(&renew, Ok(leads.clone()));
        tokio::time::advance(LENGTH / 2).await;
        note(&renew, Err(Error::corrupt("no answer")));
        assert!(leading.is_so());
        tokio::time::advance(LENGTH / 2).await;
        assert!(!leading.is_so(), "it was not renewed in time");
        note(&seek, Ok(leads.clone()));
        note(&Bid::Resign { term: Term(6) }, Ok(follows.clone()));
        assert!(leading.is_so());
        note(&Bid::Resign { term: Term(7) }, Ok(follows.clone()));
        assert!(!leading.is_so());
        note(&seek, Ok(leads));
        note(&renew, Ok(follows));
        assert!(!leading.is_so());
    }
}
