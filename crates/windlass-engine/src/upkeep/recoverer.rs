//! The recoverer: takes tasks back from workers that were silent for longer than their lease.

use tokio::time::Instant;
use windlass_core::store::Depth;

use super::duties::Desk;
use crate::outage::warn_unless_outage;

pub(super) async fn recover(desk: Desk) {
    let config = desk.link.config();
    while !desk.stop.is_cancelled() {
        desk.pause(config.upkeep.sweep).await;
        // After an outage all look silent: only who was in touch all the time may judge.
        if !is_in_touch(&desk).await {
            continue;
        }
        let store = &desk.link.store;
        if let Some(report) = desk.until_done("expire", |duty| store.expire(duty)).await
            && report.done > 0
        {
            tracing::warn!(count = report.done, "tasks of lost workers were taken back");
        }
    }
}

/// Reads the store's clock, by which leases run out. True when this process has been in touch with the store for a
/// whole lease, in which that clock has made no step: right after a step ahead all look silent, too.
async fn is_in_touch(desk: &Desk) -> bool {
    let (contact, asked) = (&desk.link.contact, Instant::now());
    match desk.link.store.inspect(Depth::Ping).await {
        Ok(inspection) => {
            contact.answered_at(asked, inspection.now);
            contact.unbroken_for() >= desk.link.config().worker.lease
        }
        Err(error) => {
            warn_unless_outage!(error, "lost workers are not looked for");
            false
        }
    }
}
