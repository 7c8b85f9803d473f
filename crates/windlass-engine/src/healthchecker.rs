//! The healthchecker: asks now and then whether the store answers, and tells whoever wants to know.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_core::store::{Depth, Finding, Severity, WriteRefusal};

use crate::link::Link;

/// How a process stands with its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    /// The last question was answered.
    pub is_reachable: bool,
    /// The store accepts writes, by its last answer.
    pub is_writable: bool,
    /// How long the answer took.
    pub lag: Duration,
    /// How long ago the store last answered anything.
    pub silent_for: Duration,
}

impl Health {
    /// What is told before the first question.
    pub(crate) const GOOD: Self = Self {
        is_reachable: true,
        is_writable: true,
        lag: Duration::ZERO,
        silent_for: Duration::ZERO,
    };
}

/// How many heartbeats a worker lets pass between two pings while the store answers those and other calls.
pub(crate) const WORKER_HEARTBEATS_PER_PING: u32 = 6;
/// How long, in heartbeats, the store may stay silent before a worker pings it.
const SILENT_MAX: f64 = 1.2;
/// A server pings at every heartbeat: load balancers route requests by the result.
pub(crate) const SERVER_HEARTBEATS_PER_PING: u32 = 1;

/// Starts the role, which ends when `stop` is cancelled. It pings once in `heartbeats_per_ping` heartbeats, and sooner
/// when the store is silent or refuses writes.
pub(crate) fn start(
    link: Arc<Link>,
    health: watch::Sender<Health>,
    heartbeats_per_ping: u32,
    stop: CancellationToken,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let every = link.config().worker.heartbeat;
        let mut is_writable = true;
        let mut is_first = true;
        while !stop.is_cancelled() {
            let asked = Instant::now();
            let mut answer = link.store.inspect(Depth::Ping);
            let answer = match tokio::time::timeout(every, &mut answer).await {
                Ok(answer) => answer,
                Err(_) => {
                    // Told at once; the answer itself is still awaited, never dropped.
                    health.send_replace(look(&link, false, is_writable, asked));
                    answer.await
                }
            };
            let is_reachable = answer.is_ok();
            if let Ok(inspection) = answer {
                note_refusal(inspection.refusal, is_writable);
                if std::mem::take(&mut is_first) {
                    note_warnings(&inspection.findings);
                }
                is_writable = inspection.is_writable();
                // The clock of an answer that was long on its way is of no use.
                if asked.elapsed() < every {
                    link.clock.hear(inspection.now);
                }
                link.contact.answered_at(asked, inspection.now);
            }
            health.send_replace(look(&link, is_reachable, is_writable, asked));
            let heartbeats = if is_reachable && is_writable { heartbeats_per_ping } else { 1 };
            tokio::select! {
                () = stop.cancelled() => {}
                () = wait_for_next_ping(&link, every, heartbeats) => {}
            }
        }
    })
}

/// Ends after so many heartbeats, or sooner when the store has not answered for longer than one.
async fn wait_for_next_ping(link: &Link, every: Duration, heartbeats: u32) {
    if heartbeats == 1 {
        return tokio::time::sleep(every).await;
    }
    let end = Instant::now() + every * heartbeats;
    let silent_max = every.mul_f64(SILENT_MAX);
    loop {
        let left = silent_max.saturating_sub(link.contact.silent_for());
        if left.is_zero() || Instant::now() >= end {
            return;
        }
        tokio::time::sleep_until(end.min(Instant::now() + left)).await;
    }
}

/// Logs when the store begins or ceases to refuse writes.
fn note_refusal(refusal: Option<WriteRefusal>, was_writable: bool) {
    match refusal {
        Some(refusal) if was_writable => {
            tracing::error!(reason = refusal.text, "the store accepts no writes");
        }
        None if !was_writable => tracing::info!("the store accepts writes again"),
        Some(_) | None => {}
    }
}

/// Logs what an operator should know about the store, once, when a worker or a server starts.
fn note_warnings(findings: &[Finding]) {
    for finding in findings.iter().filter(|finding| finding.severity > Severity::Info) {
        let Finding { subject, text, advice, .. } = finding;
        tracing::warn!(subject, finding = text, advice, "the store has a problem");
    }
}

fn look(link: &Link, is_reachable: bool, is_writable: bool, asked: Instant) -> Health {
    let (lag, silent_for) = (asked.elapsed(), link.contact.silent_for());
    Health { is_reachable, is_writable, lag, silent_for }
}
