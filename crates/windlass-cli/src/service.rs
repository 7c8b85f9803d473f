//! What systemd is told by a service of `Type=notify`. Elsewhere nobody listens, and nothing is sent.

use sd_notify::NotifyState;

/// It serves, or works. From now on it also shows that it is not stuck, if systemd wants to know.
pub(crate) fn ready() {
    tell(NotifyState::Ready);
    if let Some(patience) = sd_notify::watchdog_enabled() {
        // On the runtime that does the work: one that does not get on tells nothing. An outage of the
        // store is no reason to be restarted.
        tokio::spawn(async move {
            let mut tick = tokio::time::interval(patience / 2);
            loop {
                tick.tick().await;
                tell(NotifyState::Watchdog);
            }
        });
    }
}

/// It ends in good order, which may take a while.
pub(crate) fn stopping() {
    tell(NotifyState::Stopping);
}

fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "systemd cannot be told how this service is");
    }
}
