//! Inspect on asynq's keys: what an operator should know.

use windlass_core::Result;
use windlass_core::store::{Depth, Finding, Inspection, Severity};

use super::tend::Sweep;
use super::{Shared, damage};
use crate::redis::fleet::{check_memory, or_finding};
use crate::redis::server::ServerFacts;

impl Shared {
    pub(super) async fn inspect(&self, depth: Depth) -> Result<Inspection> {
        let ping = self.fleet.ping().await?;
        let facts = &self.fleet.common.facts;
        let mut inspection = Inspection {
            now: ping.now,
            refusal: ping.refusal,
            version: facts.version.clone(),
            findings: self.fleet.promises(facts),
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
        let findings = &mut inspection.findings;
        let workers = or_finding(self.fleet.known_workers().await, findings)?;
        let workers = workers.unwrap_or_default().into_keys().collect::<Vec<_>>();
        let queues = or_finding(self.all_queues().await, findings)?;
        for queue in queues.into_iter().flatten() {
            findings.extend(self.find_damage(&queue, &workers).await?);
            if depth == Depth::Repair {
                damage::skip(&queue, self.sweep_all_of(&queue, Sweep::Mend).await)?;
            }
            let found = self.sweep_all_of(&queue, Sweep::Count).await;
            let Some(found) = damage::skip(&queue, found)? else { continue };
            if found.count() > 0 {
                findings.push(Finding {
                    severity: Severity::Problem,
                    subject: "orphans",
                    text: format!("queue {queue} has what nobody will find: {}", found.in_words()),
                    advice: "the leader puts this right; or run `windlass doctor --repair`".into(),
                });
            }
        }
        Ok(inspection)
    }
}
