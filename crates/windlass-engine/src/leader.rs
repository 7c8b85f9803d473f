//! The leader: one process of all does the upkeep, in the name of a term that fences its writes.
//!
//! It drops leadership by its own monotonic clock, on any doubt, and resigns on shutdown.

use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_core::Result;
use windlass_core::store::{Bid, Leadership, Term};

use crate::link::Link;
use crate::upkeep::Duties;

/// Starts the role; it ends, resigned, when told to stop.
pub(crate) fn start(link: Arc<Link>, stop: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(async move {
        let every = link.config().upkeep.leader_renewal;
        while !stop.is_cancelled() {
            match seek(&link).await {
                Ok(Some((term, since))) => lead(&link, term, since, &stop).await,
                Ok(None) => {}
                Err(error) => tracing::warn!(error = error.chain(), "could not seek leadership"),
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(every) => {}
            }
        }
    })
}

/// Seeks to lead; answers the term, and the moment before it was asked for.
async fn seek(link: &Link) -> Result<Option<(Term, Instant)>> {
    let term_length = link.config().upkeep.leader_term;
    let asked = Instant::now();
    let bid = Bid::Seek { holder: link.holder.clone(), term_length };
    let answer = link.store.lead(bid).await?;
    link.contact.answered();
    Ok(match answer {
        Leadership::Leading(term) => Some((term, asked)),
        Leadership::Following { .. } => None,
    })
}

/// Leads until the term is lost, in doubt, or the process stops.
async fn lead(link: &Arc<Link>, term: Term, since: Instant, stop: &CancellationToken) {
    tracing::info!(%term, "leading");
    let config = &link.config().upkeep;
    let duties = Duties::start(link, term);
    let mut good_until = since + config.leader_term;
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep_until(good_until) => break,
            () = duties.refused() => break,
            () = tokio::time::sleep(config.leader_renewal) => {}
        }
        let asked = Instant::now();
        let bid = Bid::Renew { term, term_length: config.leader_term };
        let mut answer = link.store.lead(bid);
        let answer = tokio::select! {
            answer = &mut answer => answer,
            () = tokio::time::sleep_until(good_until) => {
                // In doubt: the duties end now, the answer is still awaited.
                duties.cancel();
                answer.await
            }
        };
        match answer {
            Ok(Leadership::Leading(_)) if !duties.is_cancelled() => {
                link.contact.answered();
                good_until = asked + config.leader_term;
            }
            Ok(_) => break,
            Err(error) => tracing::warn!(error = error.chain(), "could not renew the term"),
        }
    }
    duties.stop().await;
    tracing::info!(%term, "no longer leading");
    if let Err(error) = link.store.lead(Bid::Resign { term }).await {
        tracing::warn!(error = error.chain(), "could not resign; the term will run out");
    }
}
