//! A broker that does not answer: it counts as away until it does.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Value;
use windlass_core::{Error, ErrorKind, Result};

use super::super::scripts;
use super::{ANSWER_MAX, Broker, Standing};

/// Time between two tries to reach a broker that is away.
const KNOCK_MIN: Duration = Duration::from_millis(100);
const KNOCK_MAX: Duration = Duration::from_secs(1);

impl Broker {
    /// Sees whether it is there, unless it is known not to be: who has nothing to push or to take would not notice.
    pub(in crate::hybrid) async fn look(&self) {
        if !self.is_away() {
            // A failure is noted where it is met.
            drop(self.ask(scripts::ALIVE.on(&[&self.stem])).await);
        }
    }

    /// Waits for an answer; where there is none, the broker is away.
    pub(super) async fn answered(
        &self,
        operation: &str,
        call: impl Future<Output = Result<Value>>,
    ) -> Result<Value> {
        let answer = tokio::time::timeout(ANSWER_MAX, call).await.unwrap_or_else(|cause| {
            let text = format!("{operation} at broker {}: no answer in {ANSWER_MAX:?}", self.name);
            Err(Error::new(ErrorKind::Unavailable, text).because(cause))
        });
        answer.inspect_err(|error| self.lose(error))
    }

    fn lose(&self, error: &Error) {
        *self.standing.why.lock() = error.chain();
        if self.standing.is_away.swap(true, Ordering::Relaxed) {
            return;
        }
        tracing::warn!(
            broker = self.name,
            error = error.chain(),
            "a broker is away; tasks are claimed from the database meanwhile"
        );
        // Whoever waits at the broker hears nothing more from it.
        self.wakes.ring_all();
        tokio::spawn(knock(self.this.clone(), Arc::clone(&self.standing)));
    }
}

/// Tries to reach a broker until it answers.
async fn knock(broker: Weak<Broker>, standing: Arc<Standing>) {
    let mut pause = KNOCK_MIN;
    loop {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(KNOCK_MAX);
        let Some(broker) = broker.upgrade() else {
            // Other handles will see for themselves.
            standing.is_away.store(false, Ordering::Relaxed);
            return;
        };
        let call = scripts::ALIVE.on(&[&broker.stem]);
        let asked = tokio::time::timeout(ANSWER_MAX, broker.link.call(call)).await;
        if matches!(asked, Ok(Ok(_))) {
            tracing::info!(broker = broker.name, "a broker is back");
            standing.is_away.store(false, Ordering::Relaxed);
            broker.wakes.ring_all();
            return;
        }
    }
}
