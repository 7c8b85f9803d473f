//! Queues that cannot be used, for example since a key of one has another type: they are skipped, and logged now and
//! then.

use windlass_core::store::{Finding, Severity};
use windlass_core::{ErrorKind, QueueName, Result};

use super::reply::{Reply, next};
pub(super) use crate::damage_log::log_skipped;

/// How a script answers for a queue with a damaged key.
pub(super) const DAMAGED: &str = "damaged";

/// The answer of a script for one queue, or what is wrong with a queue that is damaged.
pub(super) fn damage_in(answer: Reply) -> Result<std::result::Result<Reply, String>> {
    if !answer.begins_with(DAMAGED) {
        return Ok(Ok(answer));
    }
    Ok(Err(answer.list()?.nth(1).map_or_else(|| Ok(String::new()), Reply::text)?))
}

/// The result of work on one queue; nothing, and a line in the log, when the queue cannot be used.
pub(super) fn skip<T>(queue: &QueueName, result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            log_skipped(queue, &error.chain());
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Reads the reply of a `damage` script. `owner` is the queue, or the fleet, that has the keys.
pub(super) fn read_damage(owner: &str, reply: Reply) -> Result<Vec<Finding>> {
    let (mut parts, mut findings) = (reply.list()?, Vec::new());
    while let Some(key) = parts.next() {
        let (key, found) = (key.text()?, next(&mut parts, "damage")?.text()?);
        let wanted = next(&mut parts, "damage")?.text()?;
        findings.push(Finding {
            severity: Severity::Problem,
            subject: "damage",
            text: format!("{owner} has damaged data: key {key} is a {found} and should be a {wanted}"),
            advice: "find out who wrote this key, rename or remove it, and run `windlass doctor --repair`"
                .into(),
        });
    }
    Ok(findings)
}
