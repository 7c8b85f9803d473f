//! Inspect on Redis Streams: what an operator should know.

use std::collections::{BTreeSet, HashMap};

use windlass_core::store::{Depth, Filter, Finding, Inspection, Severity, StateCounts};
use windlass_core::{Error, ErrorKind, QueueName, Result, State};

use super::id::Id;
use super::{Shared, scripts};
use crate::reading::SCAN_MAX;
use crate::redis::fleet::{check_memory, or_finding};
use crate::redis::server::ServerFacts;
use crate::redis::troubles::read_damage;

/// Maximum number of unreadable records that a finding of one queue names.
const UNREADABLE_NAMED_MAX: usize = 20;

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
        inspection.findings.extend(self.fleet.find_damage().await?);
        let queues = or_finding(self.all_queues().await, &mut inspection.findings)?;
        if depth == Depth::Repair && queues.is_some() {
            self.mend_all().await?;
        }
        for queue in queues.into_iter().flatten() {
            let damage = self.find_damage(&queue).await?;
            let is_named = !damage.is_empty();
            inspection.findings.extend(damage);
            match self.check_records(&queue).await {
                Ok(found) => inspection.findings.extend(found),
                // The findings above name the key that causes this error.
                Err(error) if error.kind() == ErrorKind::Corrupt && is_named => {}
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    inspection.findings.push(unusable(&queue, &error));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(inspection)
    }

    /// The keys of a queue that have a wrong type.
    async fn find_damage(&self, queue: &QueueName) -> Result<Vec<Finding>> {
        let call = scripts::DAMAGE.on(&[self.stem(queue)]).arg(self.options().told_time());
        read_damage(&format!("queue {queue}"), self.ask(call).await?)
    }

    async fn counts(&self, queue: &QueueName) -> Result<StateCounts> {
        let records = self.queue_records(std::slice::from_ref(queue)).await?;
        let record = records.into_iter().next();
        let is_skipped = || Error::corrupt(format!("queue {queue} in redis cannot be used"));
        record.map(|record| record.counts).ok_or_else(is_skipped)
    }

    /// Walks the tasks of a queue: names unreadable records, or compares the counters with the tasks.
    async fn check_records(&self, queue: &QueueName) -> Result<Option<Finding>> {
        let told = self.counts(queue).await?;
        let filter = Filter { queue: Some(queue.clone()), ..Filter::default() };
        let (mut counted, mut cursor) = (HashMap::<State, u64>::new(), None);
        let mut unreadable = BTreeSet::new();
        loop {
            let walk = self.walk(&filter, cursor.as_deref(), SCAN_MAX).await?;
            for row in &walk.rows {
                *counted.entry(row.state()).or_default() += 1;
            }
            unreadable.extend(walk.unreadable);
            // One id over the maximum shows that there are more.
            while unreadable.len() > UNREADABLE_NAMED_MAX + 1 {
                unreadable.pop_last();
            }
            cursor = walk.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        if !unreadable.is_empty() {
            // Counters cannot be compared: an unreadable record does not show its state.
            return Ok(Some(unreadable_records(queue, &unreadable)));
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

fn unreadable_records(queue: &QueueName, ids: &BTreeSet<Id>) -> Finding {
    let named: Vec<_> =
        ids.iter().take(UNREADABLE_NAMED_MAX).map(|id| id.task_id().to_string()).collect();
    let more = if ids.len() > UNREADABLE_NAMED_MAX { " and more" } else { "" };
    Finding {
        severity: Severity::Problem,
        subject: "records",
        text: format!(
            "queue {queue} has records that cannot be read: {}{more}; these tasks do not run",
            named.join(", ")
        ),
        advice: "delete these tasks; if a delete does not find a task, remove its field from the hash `d` (docs/redis.md)"
            .into(),
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
