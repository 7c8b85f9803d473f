//! The heartbeater: shows that the worker lives, learns what it shall do, and stops it when its
//! leases can no longer be trusted.
//!
//! It has an OS thread, a runtime and a connection of its own, so that neither a handler that blocks
//! the runtime nor a busy pool can cost the worker its leases.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use windlass_core::store::{Beat, HeldLeases, Orders, WorkerCard};
use windlass_core::{Error, ErrorKind, Result, Store};

use crate::outage::warn_unless_outage;
use crate::station::{Beaten, Station};

/// The pause after a beat that failed.
const PAUSE: Duration = Duration::from_millis(250);
/// How often at most a heartbeat is sent early, for instance because of progress.
const EARLY_HEARTBEAT_EVERY: Duration = Duration::from_secs(1);
/// How often the wall clock is looked at: while a machine sleeps, its monotonic clock stands still.
const WALL_LOOK: Duration = Duration::from_secs(1);

/// The running role.
pub(crate) struct Heartbeater {
    stop: CancellationToken,
    ended: tokio::sync::oneshot::Receiver<()>,
}

impl Heartbeater {
    /// Starts the role.
    pub(crate) async fn start(station: Arc<Station>) -> Result<Self> {
        let stop = CancellationToken::new();
        let (end, ended) = tokio::sync::oneshot::channel();
        let store = station.store.dedicated().await?;
        let has_own_thread = station.settings.has_own_thread;
        let role = beat_on(station, store, stop.clone());
        let work = async move {
            role.await;
            let _ = end.send(());
        };
        if !has_own_thread {
            tokio::spawn(work);
            return Ok(Self { stop, ended });
        }
        let failed =
            |cause| Error::new(ErrorKind::Unavailable, "start the heartbeat").because(cause);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        std::thread::Builder::new()
            .name("windlass-heartbeat".into())
            .spawn(move || runtime.block_on(work))
            .map_err(failed)?;
        Ok(Self { stop, ended })
    }

    /// Ends the role.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        let _ = self.ended.await;
    }
}

async fn beat_on(station: Arc<Station>, store: Arc<dyn Store>, stop: CancellationToken) {
    let every = station.client.config().worker.heartbeat;
    while !stop.is_cancelled() {
        let began = Instant::now();
        let next = match beat_once(&station, &store).await {
            Ok(orders) => {
                obey(&station, began, orders);
                began + every
            }
            Err(error) if error.is_lease_lost() => {
                let (lost, id) = station.lose();
                tracing::warn!(%lost, %id, "this worker was declared lost; it goes on anew");
                began + PAUSE / 10
            }
            Err(error) => {
                if station.hush.allows("heartbeat") {
                    warn_unless_outage!(error, "heartbeat failed");
                }
                Instant::now() + PAUSE
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep_until(next) => {}
            () = station.beat_now.notified() => {}
            () = early_heartbeat_due(&station, began) => {}
            () = fenced(&station) => {}
        }
    }
}

/// Ends when there is something to report, but not before another heartbeat may be sent.
async fn early_heartbeat_due(station: &Station, last: Instant) {
    station.link.early_heartbeat.notified().await;
    tokio::time::sleep_until(last + EARLY_HEARTBEAT_EVERY).await;
}

/// One beat; while its answer is awaited, the worker's own deadline is still kept.
async fn beat_once(station: &Arc<Station>, store: &Arc<dyn Store>) -> Result<Orders> {
    let config = &station.client.config().worker;
    let worker = station.identity.id();
    let began = Instant::now();
    let held = station.should_name_held().then(|| HeldLeases {
        leases: station.leases.of(&worker),
        older_than: station.unknown_after(),
    });
    let has_named_held = held.is_some();
    let progress = station.leases.take_progress();
    let beat = Beat {
        worker: worker.clone(),
        card: card(station),
        lease: config.lease,
        held,
        progress: progress.clone(),
    };
    let sent = station.identity.sending();
    let mut answer = store.beat(beat);
    let orders = loop {
        tokio::select! {
            orders = &mut answer => break orders,
            () = fenced(station) => {}
        }
    };
    let orders = orders.inspect_err(|_| station.leases.keep_progress(progress))?;
    station.identity.renewed(sent, config.lease);
    station.contact.answered_at(began, orders.now);
    station.beaten.send_replace(Some(Beaten { worker, mark: orders.mark }));
    if has_named_held {
        station.named_held(began);
    }
    Ok(orders)
}

/// Ends when the worker's own deadline has passed, after giving up its runs.
async fn fenced(station: &Station) {
    loop {
        match station.identity.fence_at() {
            Some(at) => tokio::time::sleep_until(at.min(Instant::now() + WALL_LOOK)).await,
            None => std::future::pending().await,
        }
        if let Some(lease_end) = station.identity.lapse() {
            tracing::error!("no heartbeat was answered in time; all runs are given up");
            station.leases.lose_all(lease_end);
            return;
        }
    }
}

fn obey(station: &Station, sent: Instant, orders: Orders) {
    station.link.clock.hear(orders.now);
    station.leases.cancel(&orders.cancels);
    station.leases.stop(&orders.lost);
    station.paused_queues.report(orders.paused_queues);
    if station.paused_queues.is_any() {
        station.intake.wake();
    }
    if !orders.given_back.is_empty() {
        // Their claim may have been answered while the beat was on its way.
        station.leases.stop_given_back(&orders.given_back, sent);
        let count = orders.given_back.len();
        tracing::info!(count, "tasks of a claim without an answer went back");
    }
    station.order.send_if_modified(|order| {
        let is_new = *order != orders.order;
        *order = orders.order;
        is_new
    });
}

fn card(station: &Station) -> WorkerCard {
    let queues = Arc::clone(&station.queues.borrow());
    WorkerCard {
        host: host(),
        pid: std::process::id(),
        name: station.settings.name.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        queues: queues.weighted.iter().map(|(queue, _)| queue.clone()).collect(),
        weights: queues.weighted.iter().map(|(_, weight)| *weight).collect(),
        is_strict: queues.is_strict,
        slots: u32::try_from(station.slots.total()).unwrap_or(u32::MAX),
        slots_used: u32::try_from(station.slots.taken()).unwrap_or(u32::MAX),
        doing: *station.order.borrow(),
        is_leader: station.link.is_leader.load(Ordering::Relaxed),
        kinds: station.kinds.clone(),
    }
}

fn host() -> String {
    std::fs::read_to_string("/etc/hostname").map(|name| name.trim().to_owned()).unwrap_or_default()
}
