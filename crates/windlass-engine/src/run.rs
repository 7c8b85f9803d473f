//! One run of one task: timeout, panic, cancel and lost lease become endings here and nowhere else.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;
use tracing::Instrument;
use windlass_core::{Claimed, Ending};

use crate::context::RunContext;
use crate::foreign::no_handler;
use crate::leases::Controls;
use crate::slots::Slot;
use crate::station::Station;
use crate::trace;

/// Runs a task to its end, whatever that is.
pub(crate) async fn run(
    station: &Station,
    task: &Claimed,
    controls: &Arc<Controls>,
    slot: Slot,
) -> Ending {
    // Given up or called off while it waited; which of the two it was, the store knows.
    if controls.cancel.is_cancelled() {
        return Ending::Released;
    }
    let traced = trace::Run::begin(task, &controls.worker, &station.store);
    let (span, hooks) = (traced.span(), &station.registry.hooks);
    span.in_scope(|| {
        tracing::debug!("run started");
        hooks.before(task);
    });
    let limits = &station.client.config().limits;
    let started = Instant::now();
    let ending = work_on(station, task, controls, slot).instrument(span.clone()).await;
    let ending = ending.within(limits);
    span.in_scope(|| {
        log_end(&ending, started);
        hooks.after(task, &ending);
    });
    traced.end(&ending);
    ending
}

fn log_end(ending: &Ending, started: Instant) {
    // Without DEBUG nothing is computed.
    if tracing::enabled!(tracing::Level::DEBUG) {
        let (outcome, error) = ending.outcome();
        let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::debug!(outcome, duration_ms, error, "run ended");
    }
}

async fn work_on(
    station: &Station,
    task: &Claimed,
    controls: &Arc<Controls>,
    slot: Slot,
) -> Ending {
    let now = station.link.clock.now();
    let deadline = task.spec.extras.deadline;
    if deadline.is_some_and(|deadline| deadline <= now) {
        return Ending::DeadlinePassed { has_started: false };
    }
    let cx = RunContext::new(task, Arc::clone(controls), Arc::clone(&station.link));
    let (slot, held) = (Arc::new(slot), cx.clone());
    let started = std::panic::catch_unwind(AssertUnwindSafe(|| {
        station.registry.start(task.kind.as_str(), task.payload.clone(), cx, Arc::clone(&slot))
    }));
    let work = match started {
        Ok(Some(work)) => work,
        Ok(None) => return no_handler(&task.kind),
        Err(panic) => return panicked(panic.as_ref()),
    };
    let time_left = deadline.map(|deadline| deadline.since(now));
    let first = async {
        tokio::select! {
            biased;
            ending = work => ending,
            () = controls.stop.cancelled() => Ending::Released,
            () = pass(time_left) => Ending::DeadlinePassed { has_started: true },
            () = tokio::time::sleep(task.spec.timeout) => Ending::TimedOut,
        }
    };
    // Around all of it: what a handler holds may panic also when it is dropped.
    let ending = AssertUnwindSafe(first).catch_unwind().await;
    let ending = ending.unwrap_or_else(|panic| panicked(panic.as_ref()));
    // What the handler has left to end outside of this process must not meet the next run.
    held.released().await;
    drop(slot);
    let is_success = matches!(ending, Ending::Completed { .. });
    // A run that was given up was told so, and may have ended because of that: only a success is
    // surely its own.
    if controls.stop.is_cancelled() && !is_success { Ending::Released } else { ending }
}

/// Ends after a time, or never.
async fn pass(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Ending {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".into());
    Ending::Failed { error: format!("panicked: {text}"), retry_after: None }
}
