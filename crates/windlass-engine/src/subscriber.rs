//! The subscriber: learns immediately that there are orders (a cancelled run, pause, drain, a queue that was paused) and has
//! the heartbeater fetch them. The next beat would bring the same orders anyway, so a push that is lost
//! costs seconds, not correctness.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use windlass_core::store::{WaitParams, Wake};

use crate::outage::warn_unless_outage;
use crate::station::{Beaten, Station};

/// How long one wait lasts before it is begun anew.
const WAIT_AT_MOST: Duration = Duration::from_secs(30);
/// The pause after a wait that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Starts the role; it ends when told to stop.
pub(crate) fn start(station: Arc<Station>, stop: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut beaten = station.beaten.subscribe();
        while !stop.is_cancelled() {
            // From the mark of the last beat on: what came before it, it has told.
            let last = beaten.borrow_and_update().clone();
            tokio::select! {
                () = stop.cancelled() => {}
                _ = beaten.changed() => {}
                () = orders(&station, last) => {}
            }
        }
    })
}

/// Ends when a wait was over; asks for a beat when there may be orders.
async fn orders(station: &Station, last: Option<Beaten>) {
    let Some(last) = last else { return std::future::pending().await };
    let queues = Arc::clone(&station.queues.borrow());
    let params = WaitParams {
        orders: Some(last.worker),
        served_queues: queues.weighted.iter().map(|(queue, _)| queue.clone()).collect(),
        since: Some(last.mark),
        at_most: WAIT_AT_MOST,
        ..WaitParams::default()
    };
    match station.store.wait(params).await {
        Ok(Wake::Orders) => {
            station.beat_now.notify_one();
            // Until that beat has brought a new mark, the old one would only end the next wait.
            std::future::pending::<()>().await;
        }
        Ok(Wake::Work | Wake::Finished(_) | Wake::TimedOut) => {}
        Err(error) => {
            warn_unless_outage!(error, "wait for orders failed");
            tokio::time::sleep(PAUSE).await;
        }
    }
}
