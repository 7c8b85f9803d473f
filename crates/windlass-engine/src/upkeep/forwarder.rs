//! The forwarder: makes scheduled and retrying tasks pending when their time has come.

use std::time::Duration;

use windlass_core::Timestamp;
use windlass_core::store::DutyReport;

use super::duties::Desk;

/// Longest sleep: something due sooner may have been submitted meanwhile.
const SLEEP_MAX: Duration = Duration::from_millis(250);
const SLEEP_MIN: Duration = Duration::from_millis(1);

pub(super) async fn forward(desk: Desk) {
    while !desk.stop.is_cancelled() {
        let store = &desk.link.store;
        let report = desk.until_done("promote", |duty| store.promote(duty)).await;
        desk.pause(sleep_after(report.as_ref(), desk.link.clock.now())).await;
    }
}

/// How long until the next promote. A record that cannot be read stays due: its time says nothing.
fn sleep_after(report: Option<&DutyReport>, now: Timestamp) -> Duration {
    let due = report.filter(|report| report.skipped_bad == 0).and_then(|report| report.next_due);
    due.map_or(SLEEP_MAX, |at| at.since(now)).clamp(SLEEP_MIN, SLEEP_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_record_that_stays_due_makes_no_busy_loop() {
        let now = Timestamp::from_millis(1_000);
        let report = |due, skipped_bad| DutyReport {
            next_due: Some(Timestamp::from_millis(due)),
            skipped_bad,
            ..DutyReport::default()
        };
        assert_eq!(sleep_after(Some(&report(900, 0)), now), SLEEP_MIN);
        assert_eq!(sleep_after(Some(&report(1_020, 0)), now), Duration::from_millis(20));
        assert_eq!(sleep_after(Some(&report(900, 1)), now), SLEEP_MAX);
        assert_eq!(sleep_after(None, now), SLEEP_MAX);
    }
}
