//! The healthchecker: asks now and then whether the store answers, and tells whoever wants to know.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_core::store::Depth;

use crate::station::Station;

/// How a worker stands with its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    /// The last question was answered.
    pub is_reachable: bool,
    /// How long the answer took.
    pub lag: Duration,
    /// How long ago the store last answered anything.
    pub silent_for: Duration,
}

/// Starts the role; it ends when told to stop.
pub(crate) fn start(
    station: Arc<Station>,
    health: watch::Sender<Health>,
    stop: CancellationToken,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let every = station.client.config().worker.heartbeat;
        while !stop.is_cancelled() {
            let asked = Instant::now();
            let mut answer = station.store.inspect(Depth::Ping);
            let is_reachable = match tokio::time::timeout(every, &mut answer).await {
                Ok(answer) => answer.is_ok(),
                Err(_) => {
                    // Told at once; the answer itself is still awaited, never dropped.
                    health.send_replace(look(&station, false, asked));
                    answer.await.is_ok()
                }
            };
            if is_reachable {
                station.contact.answered();
            }
            health.send_replace(look(&station, is_reachable, asked));
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(every) => {}
            }
        }
    })
}

fn look(station: &Station, is_reachable: bool, asked: Instant) -> Health {
    Health { is_reachable, lag: asked.elapsed(), silent_for: station.contact.silent_for() }
}
