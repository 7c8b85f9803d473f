//! Inspect on Redis Streams: what an operator should know.

use windlass_core::store::{Depth, Filter, Finding, Inspection, Severity, StateCounts};
use windlass_core::{Error, ErrorKind, QueueName, Result, State};

use super::Shared;
use crate::reading::SCAN_MAX;
use crate::redis::fleet::{check_memory, or_finding};
use crate::redis::server::ServerFacts;

impl Shared {
    pub(super) async fn inspect(&self, depth: Depth) -> Result<Inspection> {
        let ping = self.fleet.ping().await?;
        let mut inspection = Inspection {
            now: ping.now,
            refusal: ping.refusal,
            version: self.fleet.common.facts.version.clone(),
            findings: self.fleet.promises(&self.fleet.common.facts),
            brokers: Vec::new(),
        };
        if depth == Depth::Ping {
            return Ok(inspection);
        }
        let facts = ServerFacts::read(&self.fleet.link).await?;
        inspection.version.clone_from(&facts.version);
        inspection.findings = self.fleet.promises(&facts);
        inspection.findings.extend(ping.finding.into_iter().chain(check_memory(&facts)));
        let queues = or_finding(self.all_queues().await, &mut inspection.findings)?;
        if depth == Depth::Repair && queues.is_some() {
            self.mend_all().await?;
        }
        for queue in queues.into_iter().flatten() {
            match self.compare_counts(&queue).await {
                Ok(found) => inspection.findings.extend(found),
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    inspection.findings.push(unusable(&queue, &error));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(inspection)
    }

    async fn counts(&self, queue: &QueueName) -> Result<StateCounts> {
        let records = self.queue_records(std::slice::from_ref(queue)).await?;
        let record = records.into_iter().next();
        let is_skipped = || Error::corrupt(format!("queue {queue} in redis cannot be used"));
        record.map(|record| record.counts).ok_or_else(is_skipped)
    }

    /// Compares the counters of a queue with its tasks.
    async fn compare_counts(&self, queue: &QueueName) -> Result<Option<Finding>> {
        let told = self.counts(queue).await?;
        let filter = Filter { queue: Some(queue.clone()), ..Filter::default() };
        let (mut counted, mut cursor) = (std::collections::HashMap::<State, u64>::new(), None);
        loop {
            let walk = self.walk(&filter, cursor.as_deref(), SCAN_MAX).await?;
            for row in &walk.rows {
                *counted.entry(row.state()).or_default() += 1;
            }
            cursor = walk.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        // Others go on while this looks: only what is left alone can be compared.
        let again = self.counts(queue).await?;
        let differs = |state: &State| {
            let seen = counted.get(state).copied().unwrap_or(0);
            let is_quiet = told.get(*state) == again.get(*state);
            // What is kept no longer is counted until it is pruned, and hidden already.
            let may_hide = matches!(state, State::Completed | State::Cancelled);
            is_quiet && told.get(*state) != seen && !(may_hide && told.get(*state) > seen)
        };
        Ok(State::ALL.into_iter().find(differs).map(|state| Finding {
            severity: Severity::Problem,
            subject: "counters",
            text: format!(
                "queue {queue} counts {} tasks as {state}, {} are there",
                told.get(state),
                counted.get(&state).copied().unwrap_or(0)
            ),
            advice: "the leader mends this; or run `windlass doctor --repair`".into(),
        }))
    }
}

fn unusable(queue: &QueueName, error: &Error) -> Finding {
    Finding {
        severity: Severity::Problem,
        subject: "queue",
        text: format!("queue {queue} is skipped: {}", error.chain()),
        advice: "look at the types of its keys (docs/redis.md has the table) and remove what windlass has not written"
            .into(),
    }
}
