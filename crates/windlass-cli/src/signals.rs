//! SIGINT and SIGTERM.

use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{Code, Done, Failure};
use crate::service;

/// Both signals, listened for from the moment this is made.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(crate) fn listen() -> Done<Self> {
        let failed = |cause| Failure::new(Code::Error, format!("listen for signals: {cause}"));
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
        })
    }

    /// Ends at the next signal.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Ends at the first signal that comes when this time has passed.
    async fn after(&mut self, time: Duration) {
        let since = Instant::now();
        loop {
            self.next().await;
            if since.elapsed() >= time {
                return;
            }
        }
    }
}

/// Ends at the first signal; never, where they cannot be listened for.
pub(crate) async fn any() {
    match Signals::listen() {
        Ok(mut signals) => signals.next().await,
        Err(_) => std::future::pending().await,
    }
}

/// Signals within this time are one: `timeout` and shells send theirs to a process and to its whole group.
const ONE_SIGNAL: Duration = Duration::from_millis(200);

/// Runs work that ends in good order when `stop` is cancelled by the first signal; a second one ends
/// it at once.
pub(crate) async fn until_signalled(
    stop: tokio_util::sync::CancellationToken,
    work: impl Future<Output = Done>,
) -> Done {
    let mut signals = Signals::listen()?;
    let mut work = std::pin::pin!(work);
    tokio::select! {
        outcome = &mut work => return outcome,
        () = signals.next() => stop.cancel(),
    }
    service::stopping();
    tracing::info!("stopping; a second signal stops at once");
    tokio::select! {
        outcome = work => outcome,
        () = signals.after(ONE_SIGNAL) => Err(Failure::new(Code::Interrupted, "stopped at once")),
    }
}
