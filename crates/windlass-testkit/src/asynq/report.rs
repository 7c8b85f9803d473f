//! How the end of a run is written, by servers and by recoverers: whoever calls is believed.

use prost::Message;

use super::keys::Keys;
use super::message::TaskMessage;
use super::peer::{ARCHIVED_MAX, COUNTER_MAX, GoError, KEPT_S, Peer, script};
use super::server::GoRun;

impl Peer {
    /// Writes a success, whatever the worker thinks of its lease.
    pub async fn finish(&self, run: &GoRun) -> Result<(), GoError> {
        let (message, keys) = (&run.message, run.keys());
        let is_unique = !message.unique_key.is_empty();
        let is_kept = message.retention > 0;
        let script = match (is_kept, is_unique) {
            (false, false) => script!("done"),
            (false, true) => script!("done_unique"),
            (true, false) => script!("mark_as_complete"),
            (true, true) => script!("mark_as_complete_unique"),
        };
        let now = self.seconds();
        let mut call = script.key(keys.key("active"));
        call.key(keys.key("lease"));
        if is_kept {
            call.key(keys.key("completed"));
        }
        call.key(keys.task(&message.id));
        call.key(keys.of_day("processed", now)).key(keys.key("processed"));
        if is_unique {
            call.key(&message.unique_key);
        }
        call.arg(&message.id).arg(self.counter_end().await);
        if is_kept {
            let completed = TaskMessage { completed_at: now, ..message.clone() };
            call.arg(now + message.retention).arg(completed.encode_to_vec());
        }
        self.run(call.arg(COUNTER_MAX)).await
    }

    /// Writes a failure that is tried again.
    pub async fn retry(
        &self,
        message: &TaskMessage,
        error: &str,
        delay_s: i64,
        is_failure: bool,
    ) -> Result<(), GoError> {
        let (keys, now) = (Keys::of(&message.queue), self.seconds());
        let failed = TaskMessage {
            retried: message.retried + i32::from(is_failure),
            error_msg: error.into(),
            last_failed_at: now,
            ..message.clone()
        };
        let script = script!("retry");
        let mut call = script.key(keys.task(&message.id));
        call.key(keys.key("active")).key(keys.key("lease")).key(keys.key("retry"));
        call.key(keys.of_day("processed", now)).key(keys.of_day("failed", now));
        call.key(keys.key("processed")).key(keys.key("failed"));
        call.arg(&message.id).arg(failed.encode_to_vec()).arg(now + delay_s);
        call.arg(self.counter_end().await).arg(i64::from(is_failure)).arg(COUNTER_MAX);
        self.run(&call).await
    }

    /// Writes a failure that is the last.
    pub async fn archive(&self, message: &TaskMessage, error: &str) -> Result<(), GoError> {
        let (keys, now) = (Keys::of(&message.queue), self.seconds());
        let failed =
            TaskMessage { error_msg: error.into(), last_failed_at: now, ..message.clone() };
        let script = script!("archive");
        let mut call = script.key(keys.task(&message.id));
        call.key(keys.key("active")).key(keys.key("lease")).key(keys.key("archived"));
        call.key(keys.of_day("processed", now)).key(keys.of_day("failed", now));
        call.key(keys.key("processed")).key(keys.key("failed"));
        call.arg(&message.id).arg(failed.encode_to_vec()).arg(now).arg(now - KEPT_S);
        call.arg(ARCHIVED_MAX).arg(self.counter_end().await).arg(COUNTER_MAX);
        self.run(call.arg(keys.task(""))).await
    }
}
