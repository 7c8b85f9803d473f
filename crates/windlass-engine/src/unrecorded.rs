//! Endings that the store could not record, since their queue cannot be used: kept, and reported again.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use windlass_core::QueueName;

use crate::quotas::Queues;
use crate::station::Station;
use crate::syncer::Judged;

/// The pause before the first repetition of a report; each further one waits twice as long.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The endings that wait for their queue.
#[derive(Default)]
pub(crate) struct UnrecordedEndings {
    kept: Vec<Judged>,
    tries: u32,
    due: Option<Instant>,
}

/// The queues of these endings. Nothing more is claimed there: that bounds how many endings can wait.
#[derive(Default)]
pub(crate) struct UnusableQueues(Mutex<BTreeSet<QueueName>>);

impl UnrecordedEndings {
    /// Ends when it is time to report them again; never while there are none.
    pub(crate) async fn due(&self) {
        match self.due {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    /// Takes all of them, to be reported.
    pub(crate) fn take(&mut self) -> Vec<Judged> {
        self.tries = self.tries.saturating_add(1);
        self.due = None;
        std::mem::take(&mut self.kept)
    }

    /// Keeps endings that a report has left.
    pub(crate) fn keep(&mut self, station: &Station, left: Vec<Judged>) {
        if let Some(first) = left.first()
            && station.hush.allows("unrecorded")
        {
            let (count, queue) = (left.len(), &first.task().queue);
            tracing::warn!(count, %queue, "endings wait for a queue that cannot be used");
        }
        self.kept.extend(left);
        if self.kept.is_empty() {
            self.tries = 0;
            self.due = None;
        } else if self.due.is_none() {
            let pause = PAUSE_MIN.saturating_mul(1 << self.tries.min(5)).min(PAUSE_MAX);
            let jitter = 0.8 + 0.4 * station.dice.lock().unit();
            self.due = Some(Instant::now() + pause.mul_f64(jitter));
        }
        let queues = self.kept.iter().map(|judged| judged.task().queue.clone()).collect();
        if station.unusable.set(queues) {
            station.intake.refresh();
        }
    }
}

impl UnusableQueues {
    /// Answers whether a queue can be used again.
    fn set(&self, queues: BTreeSet<QueueName>) -> bool {
        let before = std::mem::replace(&mut *self.0.lock(), queues.clone());
        !before.is_subset(&queues)
    }

    /// These queues without those that cannot be used.
    pub(crate) fn left_of<'a>(&self, queues: &'a Queues) -> Cow<'a, Queues> {
        let unusable = self.0.lock();
        if unusable.is_empty() {
            return Cow::Borrowed(queues);
        }
        let is_usable = |(queue, _): &&(QueueName, u32)| !unusable.contains(queue);
        let weighted = queues.weighted.iter().filter(is_usable).cloned().collect();
        Cow::Owned(Queues { weighted, ..*queues })
    }
}
