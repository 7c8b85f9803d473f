//! The forwarder: makes scheduled and retrying tasks pending when their time has come.

use std::time::Duration;

use super::duties::Desk;

/// Longest sleep: something due sooner may have been submitted meanwhile.
const SLEEP_MAX: Duration = Duration::from_millis(250);
const SLEEP_MIN: Duration = Duration::from_millis(1);

pub(super) async fn forward(desk: Desk) {
    while !desk.stop.is_cancelled() {
        let store = &desk.link.store;
        let report = desk.until_done("promote", |duty| store.promote(duty)).await;
        let due = report.and_then(|report| report.next_due);
        let sleep = due.map_or(SLEEP_MAX, |at| at.since(desk.link.clock.now()));
        desk.pause(sleep.clamp(SLEEP_MIN, SLEEP_MAX)).await;
    }
}
