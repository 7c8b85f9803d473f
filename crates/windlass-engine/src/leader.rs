//! The leader: one process of all does the upkeep, in the name of a term that fences its writes.
//!
//! It drops leadership by its own monotonic clock, on any doubt, and resigns on shutdown.

use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_core::Result;
use windlass_core::store::{Bid, Leadership, Term};

use crate::station::Station;
use crate::upkeep::Upkeep;

/// Starts the role; it ends, resigned, when told to stop.
pub(crate) fn start(station: Arc<Station>, stop: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(async move {
        let every = station.client.config().upkeep.leader_renewal;
        while !stop.is_cancelled() {
            match seek(&station).await {
                Ok(Some((term, since))) => lead(&station, term, since, &stop).await,
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
async fn seek(station: &Station) -> Result<Option<(Term, Instant)>> {
    let term_length = station.client.config().upkeep.leader_term;
    let asked = Instant::now();
    let bid = Bid::Seek { holder: station.identity.id(), term_length };
    let answer = station.store.lead(bid).await?;
    station.contact.answered();
    Ok(match answer {
        Leadership::Leading(term) => Some((term, asked)),
        Leadership::Following { .. } => None,
    })
}

/// Leads until the term is lost, in doubt, or the worker stops.
async fn lead(station: &Arc<Station>, term: Term, since: Instant, stop: &CancellationToken) {
    tracing::info!(%term, "leading");
    let config = &station.client.config().upkeep;
    let upkeep = Upkeep::start(station, term);
    let mut good_until = since + config.leader_term;
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep_until(good_until) => break,
            () = upkeep.refused() => break,
            () = tokio::time::sleep(config.leader_renewal) => {}
        }
        let asked = Instant::now();
        let bid = Bid::Renew { term, term_length: config.leader_term };
        let mut answer = station.store.lead(bid);
        let answer = tokio::select! {
            answer = &mut answer => answer,
            () = tokio::time::sleep_until(good_until) => {
                // In doubt: the duties end now, the answer is still awaited.
                upkeep.cancel();
                answer.await
            }
        };
        match answer {
            Ok(Leadership::Leading(_)) if !upkeep.is_cancelled() => {
                station.contact.answered();
                good_until = asked + config.leader_term;
            }
            Ok(_) => break,
            Err(error) => tracing::warn!(error = error.chain(), "could not renew the term"),
        }
    }
    upkeep.stop().await;
    tracing::info!(%term, "no longer leading");
    if let Err(error) = station.store.lead(Bid::Resign { term }).await {
        tracing::warn!(error = error.chain(), "could not resign; the term will run out");
    }
}
