//! The recoverer: takes tasks back from workers that were silent for longer than their lease.

use super::duties::Desk;

pub(super) async fn recover(desk: Desk) {
    let config = desk.link.config();
    while !desk.stop.is_cancelled() {
        desk.pause(config.upkeep.sweep).await;
        // After an outage all look silent: only who was in touch all the time may judge.
        if desk.link.contact.unbroken_for() < config.worker.lease {
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
