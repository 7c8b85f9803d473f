//! A body or a response on its way: how fast it moves, and whether it has to end.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Over which time a rate is taken. What is younger has none yet.
const RATE_TIME: Duration = Duration::from_secs(1);

/// How fast something moves.
pub(crate) struct Transfer {
    pace: Mutex<Pace>,
    ended: CancellationToken,
}

struct Pace {
    /// It is for the client to go on.
    is_moving: bool,
    since: Instant,
    bytes: usize,
    rate: Option<f64>,
}

impl Transfer {
    /// One that has not begun. `ended` is what ends it.
    pub(crate) fn new(ended: CancellationToken) -> Self {
        let pace = Pace { is_moving: false, since: Instant::now(), bytes: 0, rate: None };
        Self { pace: Mutex::new(pace), ended }
    }

    /// From now on it is for the client to go on.
    pub(crate) fn begin(&self) {
        let mut pace = self.pace.lock();
        if !pace.is_moving {
            *pace = Pace { is_moving: true, since: Instant::now(), bytes: 0, rate: pace.rate };
        }
    }

    /// It is not for the client to go on, for now.
    pub(crate) fn rest(&self) {
        self.pace.lock().is_moving = false;
    }

    /// So many bytes have moved.
    pub(crate) fn moved(&self, bytes: usize) {
        let (mut pace, now) = (self.pace.lock(), Instant::now());
        if now - pace.since >= RATE_TIME {
            pace.rate = Some(pace.rate_over(now));
            (pace.since, pace.bytes) = (now, 0);
        }
        pace.bytes += bytes;
    }

    /// Bytes per second of late; nothing where it is not the client's turn, or too early to say.
    pub(super) fn rate(&self, now: Instant) -> Option<f64> {
        let pace = self.pace.lock();
        match pace.is_moving {
            true if now - pace.since >= RATE_TIME => Some(pace.rate_over(now)),
            true => pace.rate,
            false => None,
        }
    }

    pub(super) fn end(&self) {
        self.ended.cancel();
    }

    pub(super) fn is_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Resolves when it has to end.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }
}

impl Pace {
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
    fn rate_over(&self, now: Instant) -> f64 {
        self.bytes as f64 / (now - self.since).as_secs_f64()
    }
}
