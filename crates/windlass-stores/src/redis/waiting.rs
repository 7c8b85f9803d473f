//! Waiting for work, orders and ends of tasks: what both layouts have in common.

use std::time::{Duration, Instant};

use windlass_core::store::{WaitParams, Wake};
use windlass_core::{Reason, Result, TaskId};

use super::ears::{self, Listening};
use super::fleet::Fleet;
use super::news::{self, Herald};

/// How often a wait for the end of tasks looks by itself.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(10);
const LOOK_EVERY_MAX: Duration = Duration::from_secs(1);

/// What others tell, and where.
pub(super) struct Channels {
    pub(super) names: Vec<String>,
    pub(super) patterns: Vec<String>,
}

/// A layout, as far as waiting goes.
pub(super) trait Waiting: Listening {
    /// How often a wait for the end of tasks looks by itself while others are heard.
    const LOOK_EVERY_HEARING: Duration;

    fn fleet(&self) -> &Fleet;
    fn herald(&self) -> &Herald;

    /// What others tell, and where.
    fn channels(&self) -> Channels;

    /// Something was told.
    fn heard(&self, channel: &str, payload: &[u8]);

    /// Has the ends of these tasks told.
    fn watch_ends(&self, tasks: &[TaskId]) -> impl Future<Output = Result<()>> + Send;

    /// Which of these tasks are finished or not there.
    fn ended(&self, tasks: Vec<TaskId>) -> impl Future<Output = Result<Vec<TaskId>>> + Send;
}

/// Waits as [`windlass_core::Store::wait`] promises.
pub(super) async fn wait<T: Waiting>(layout: &T, params: &WaitParams) -> Result<Wake> {
    if !params.queues.is_empty() && params.since.is_some() {
        ears::listen(layout, &params.queues, params.idle_poll);
    }
    if params.orders.is_some() || !params.tasks.is_empty() {
        news::subscribe(layout);
    }
    let wakes = &layout.fleet().common.wakes;
    let ended = async |tasks: Vec<TaskId>| layout.ended(tasks).await;
    if params.tasks.is_empty() {
        return wakes.wait(params.clone(), ended).await;
    }
    let started = Instant::now();
    let mut pause = LOOK_EVERY_MIN;
    loop {
        // Asked for before looking, in `Wakes::wait`: an end between the two is told.
        let is_told = match layout.watch_ends(&params.tasks).await {
            Ok(()) => true,
            // A server that is full takes no such mark: this wait looks by itself.
            Err(error) if error.reason() == Reason::StorageFull => false,
            Err(error) => return Err(error),
        };
        let left = params.at_most.saturating_sub(started.elapsed());
        let longest = match is_told && layout.herald().is_hearing() {
            true => T::LOOK_EVERY_HEARING,
            false => pause,
        };
        let at_most = left.min(longest);
        let wake = wakes.wait(WaitParams { at_most, ..params.clone() }, ended).await?;
        if wake != Wake::TimedOut || left <= longest {
            return Ok(wake);
        }
        pause = (pause + pause.mul_f64(0.5 + fastrand::f64())).min(LOOK_EVERY_MAX);
    }
}
