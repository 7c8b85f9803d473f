//! The leader: one process of all does the upkeep, in the name of a term that fences its writes.
//!
//! It drops leadership by its own monotonic clock, on any doubt, and resigns on shutdown.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_core::Result;
use windlass_core::dice::Dice;
use windlass_core::store::{Bid, Leadership, Term};

use crate::link::Link;
use crate::outage::warn_unless_outage;
use crate::upkeep::Duties;

/// Starts the role; it ends, resigned, when told to stop.
pub(crate) fn start(link: Arc<Link>, stop: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(async move {
        let every = link.config().upkeep.leader_renewal;
        let mut dice = Dice::thrown();
        while !stop.is_cancelled() {
            let mut bid_after = every;
            match seek(&link).await {
                Ok(Sought::Led(term, since)) => lead(&link, term, since, &stop).await,
                Ok(Sought::Following { bid_after: after }) => bid_after = after,
                Err(error) => warn_unless_outage!(error, "could not seek leadership"),
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(pause(every, bid_after, &mut dice)) => {}
            }
        }
    })
}

/// What came of seeking to lead.
enum Sought {
    /// The term, and the moment before it was asked for.
    Led(Term, Instant),
    Following {
        bid_after: Duration,
    },
}

/// How long a process that follows waits before it seeks again. It looks once in one to two renewals, since a
/// leader may resign, and when the term runs out; in a fleet not all at the same moment.
fn pause(renewal: Duration, bid_after: Duration, dice: &mut Dice) -> Duration {
    let look = renewal.mul_f64(1.0 + dice.unit());
    let bid = bid_after + renewal.mul_f64((0.02 + dice.unit()) / 4.0);
    look.min(bid)
}

async fn seek(link: &Link) -> Result<Sought> {
    let term_length = link.config().upkeep.leader_term;
    let asked = Instant::now();
    let bid = Bid::Seek { holder: link.holder.clone(), term_length };
    let answer = link.store.lead(bid).await?;
    link.contact.answered();
    Ok(match answer {
        Leadership::Leading(term) => Sought::Led(term, asked),
        Leadership::Following { bid_after, .. } => Sought::Following { bid_after },
    })
}

/// Leads until the term is lost, in doubt, or the process stops.
async fn lead(link: &Arc<Link>, term: Term, since: Instant, stop: &CancellationToken) {
    tracing::info!(%term, "leading");
    link.note_leadership(true);
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
            Err(error) => warn_unless_outage!(error, "could not renew the term"),
        }
    }
    duties.stop().await;
    tracing::info!(%term, "no longer leading");
    link.note_leadership(false);
    if let Err(error) = link.store.lead(Bid::Resign { term }).await {
        warn_unless_outage!(error, "could not resign; the term will run out");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RENEWAL: Duration = Duration::from_secs(3);

    /// A killed leader is followed by another within 12 s: its term of 10 s, and the longest pause behind it.
    #[test]
    fn pauses_end_soon_after_the_term_and_differ() {
        let mut dice = Dice::seeded(7);
        for left_ms in [0, 1, 500, 2_900, 9_999] {
            let left = Duration::from_millis(left_ms);
            let pauses: Vec<_> = (0..200).map(|_| pause(RENEWAL, left, &mut dice)).collect();
            let (least, most) = (pauses.iter().min().unwrap(), pauses.iter().max().unwrap());
            assert!(*most <= RENEWAL * 2 && *most <= left + Duration::from_secs(1), "{most:?}");
            assert!(
                *least > left.min(RENEWAL - Duration::from_millis(1)),
                "no bid before the term is over: {least:?}"
            );
            assert!(*most - *least > RENEWAL / 6, "in step: {least:?} to {most:?}");
        }
    }
}
