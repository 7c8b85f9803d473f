//! `http.webhook`: sends a request for a task, and its answer is how the run ended.
//!
//! `payload.rs` reads what to send, `address.rs` judges where it may go, `dial.rs` connects to what was judged,
//! `signature.rs` signs, `exchange.rs` sends and reads, `verdict.rs` judges the answer, and `open.rs` waits after a
//! 202.

mod address;
mod dial;
mod exchange;
mod open;
mod payload;
mod signature;
#[cfg(test)]
mod tests;
mod verdict;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use windlass::core::config::WebhookConfig;
use windlass::{Context, Failure, Outcome, RawTask, WorkerBuilder, cancelled, discard};

use self::address::Allow;
use self::dial::Dialer;
use self::exchange::{Answer, Sender};
use self::payload::Hook;
use self::signature::Secrets;
use crate::exit::{Done, Failure as Refused};

/// The kind of its tasks.
const KIND: &str = "http.webhook";
/// Its other name.
const ALIAS: &str = "webhook";
/// The result where there is no body.
const NOTHING: &[u8] = b"null";

/// Sends webhooks by the settings of a worker.
pub(crate) struct Webhook {
    dialer: Dialer,
    secrets: Secrets,
    time_max: Duration,
}

impl Webhook {
    /// By these settings.
    pub(crate) fn new(settings: &WebhookConfig) -> Done<Self> {
        let wrong = |why| Refused::usage(format!("webhook.allow: {why}"));
        let dialer = Dialer::new(Allow::parse(&settings.allow).map_err(wrong)?);
        let secrets = Secrets::of(&settings.secrets);
        Ok(Self { dialer, secrets, time_max: settings.timeout })
    }

    /// Adds it to a worker.
    pub(super) fn add(self, builder: WorkerBuilder<()>) -> WorkerBuilder<()> {
        let webhook = Arc::new(self);
        let run = move |task, cx| {
            let webhook = Arc::clone(&webhook);
            async move { webhook.run(task, cx).await }
        };
        builder.handle_raw(KIND, run.clone()).handle_raw(ALIAS, run)
    }

    async fn run(&self, task: RawTask, cx: Context<()>) -> Outcome<Bytes> {
        // No retry mends a payload.
        let hook = Hook::read(&task.payload).map_err(discard)?;
        let place = hook.place();
        let sender = Sender::of(&cx);
        let sent = sender.send(&self.dialer, &self.secrets, hook);
        let answer = tokio::select! {
            answer = tokio::time::timeout(self.time_max, sent) => answer,
            () = cx.cancelled() => return Err(cancelled()),
        };
        let late = |_| Failure::from(format!("{place}: no answer in {:?}", self.time_max));
        match answer.map_err(late)?? {
            Answer::Completed(body) if body.is_empty() => Ok(Bytes::from_static(NOTHING)),
            Answer::Completed(body) => Ok(body),
            Answer::Open => Err(open::until_ended(&cx).await),
        }
    }
}
