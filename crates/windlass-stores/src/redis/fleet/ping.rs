//! Whether the server answers and accepts writes, and how full it is.

use windlass_core::store::{Finding, Severity, WriteRefusal};
use windlass_core::{Error, ErrorKind, Reason, Result, Timestamp};

use super::{Fleet, PING};
use crate::redis::reply::next;
use crate::redis::server::{Memory, ServerFacts};

/// The server's answer to a ping.
pub(in crate::redis) struct PingReply {
    pub(in crate::redis) now: Timestamp,
    pub(in crate::redis) refusal: Option<WriteRefusal>,
    /// More about the refusal, for an operator.
    pub(in crate::redis) finding: Option<Finding>,
}

impl Fleet {
    /// Asks the server for its time and whether it accepts writes; writes nothing.
    pub(in crate::redis) async fn ping(&self) -> Result<PingReply> {
        let mut parts = match self.ask(self.on(&PING)).await {
            Ok(reply) => reply.list()?,
            Err(error) if matches!(error.reason(), Reason::StorageFull | Reason::ReadOnly) => {
                let (now, refusal) = (self.now().await?, refusal_of(&error));
                let finding = Finding {
                    severity: Severity::Problem,
                    subject: "writes",
                    text: format!("{}: {}", refusal.text, error.chain()),
                    advice: advice_on(refusal.reason).into(),
                };
                return Ok(PingReply { now, refusal: Some(refusal), finding: Some(finding) });
            }
            Err(error) => return Err(error),
        };
        let now = next(&mut parts, "ping")?.time()?;
        let key = next(&mut parts, "ping")?.text()?;
        let key = if key.is_empty() { self.find_strange_names().await? } else { Some(key) };
        let Some(key) = key else {
            return Ok(PingReply { now, refusal: None, finding: None });
        };
        let text = "a key of windlass is of a wrong type; `windlass doctor` names it";
        let finding = Finding {
            severity: Severity::Problem,
            subject: "keys",
            text: format!("the key {key} is of another type than windlass writes"),
            advice: "find out who wrote it, and rename it: windlass writes its own again".into(),
        };
        let refusal = WriteRefusal { reason: Reason::Unspecified, text };
        Ok(PingReply { now, refusal: Some(refusal), finding: Some(finding) })
    }
}

impl Fleet {
    /// The key with the names of all queues, if it is of a wrong type and the script of the ping cannot look at it: it is
    /// asynq's then, and in a slot of its own.
    async fn find_strange_names(&self) -> Result<Option<String>> {
        let key = &self.names.queues;
        if key.starts_with(self.stem()) {
            return Ok(None);
        }
        let found = self.link.command("ping", redis::cmd("TYPE").arg(key)).await?;
        let is_usable =
            matches!(&found, redis::Value::SimpleString(it) if it == "set" || it == "none");
        Ok((!is_usable).then(|| key.clone()))
    }
}

/// The result of a part of an inspection; none, and a finding, when damaged data do not allow it.
pub(in crate::redis) fn or_finding<T>(
    result: Result<T>,
    findings: &mut Vec<Finding>,
) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            findings.push(Finding {
                severity: Severity::Problem,
                subject: "keys",
                text: format!("the inspection is incomplete: {}", error.chain()),
                advice: "repair the keys that are named, and run `windlass doctor` again".into(),
            });
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn refusal_of(error: &Error) -> WriteRefusal {
    let reason = error.reason();
    let text = match reason {
        Reason::StorageFull if error.chain().contains("MISCONF") => {
            "the server cannot write its data to its disk"
        }
        Reason::StorageFull => "the server's memory is full (maxmemory)",
        _ => "the server is a read-only replica, or its user may not write",
    };
    WriteRefusal { reason, text }
}

fn advice_on(reason: Reason) -> &'static str {
    match reason {
        Reason::StorageFull => {
            "raise maxmemory or make room; upkeep goes on and removes what is kept no longer"
        }
        _ => "point the URL at the primary, and give the user the rights that docs/redis.md lists",
    }
}

/// A server whose memory is full, or nearly so.
pub(in crate::redis) fn check_memory(facts: &ServerFacts) -> Option<Finding> {
    let Memory { used, max } = facts.memory.filter(|memory| memory.is_nearly_full())?;
    let (severity, effect) = match used < max {
        true => (Severity::Warning, "submits are refused when it is full"),
        false => (Severity::Problem, "submits are refused until there is room"),
    };
    Some(Finding {
        severity,
        subject: "memory",
        text: format!("{used} of {max} bytes are in use (maxmemory); {effect}"),
        advice: "raise maxmemory, or keep finished tasks for a shorter time".into(),
    })
}
