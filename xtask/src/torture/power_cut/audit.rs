//! Holds a store that went through a power cut against the ledger of what it had acknowledged.
//!
//! The audit knows nothing of how the store works; it reads and, at the end, drains it.

use std::collections::HashMap;

use windlass_core::dice::Dice;
use windlass_core::retry::Backoff;
use windlass_core::state::{self, Ending};
use windlass_core::store::{Applied, ApplyParams};
use windlass_core::{State, Store, TaskId, TaskRecord, WorkerId};
use windlass_testkit::audit::{Dump, counter_trouble};

use super::ledger::Ledger;
use super::load;
use crate::{Result, shell};

/// How much to finish in one call.
const PIECE: usize = 500;

/// The tasks of a store.
type Records = HashMap<TaskId, TaskRecord>;

/// What came out.
#[derive(Debug, Default)]
pub(super) struct Audit {
    pub(super) acked_inserts: u64,
    pub(super) acked_claims: u64,
    pub(super) acked_applies: u64,
    pub(super) lost_inserts: u64,
    pub(super) lost_claims: u64,
    pub(super) lost_applies: u64,
    /// Acknowledged by a machine that had no power any more; binds nobody.
    pub(super) late_acks: u64,
    /// Of those, inserts that are not there.
    pub(super) late_lost_inserts: u64,
    /// Each loss in words.
    pub(super) losses: Vec<String>,
    /// What no profile allows: strangers, wrong counters, damage.
    pub(super) wrong: Vec<String>,
}

impl Audit {
    /// Everything acknowledged that is not there any more.
    pub(super) const fn lost(&self) -> u64 {
        self.lost_inserts + self.lost_claims + self.lost_applies
    }

    pub(super) fn add(&mut self, other: Self) {
        self.acked_inserts += other.acked_inserts;
        self.acked_claims += other.acked_claims;
        self.acked_applies += other.acked_applies;
        self.lost_inserts += other.lost_inserts;
        self.lost_claims += other.lost_claims;
        self.lost_applies += other.lost_applies;
        self.late_acks += other.late_acks;
        self.late_lost_inserts += other.late_lost_inserts;
        self.losses.extend(other.losses);
        self.wrong.extend(other.wrong);
    }
}

/// Audits the store behind a URL; a store that cannot be audited is wrong.
pub(super) async fn run(url: &str, ledger: &Ledger) -> Audit {
    let mut audit = Audit {
        acked_inserts: ledger.acked_inserts.len() as u64,
        acked_claims: ledger.acked_claims.len() as u64,
        acked_applies: ledger.acked_applies.len() as u64,
        late_acks: ledger.late_acks,
        ..Audit::default()
    };
    let looked = match windlass_stores::open(url).await {
        Ok(store) => look(store.as_ref(), ledger, &mut audit).await,
        Err(error) => Err(error.into()),
    };
    if let Err(error) = looked {
        let text = shell::chain(error.as_ref());
        audit.wrong.push(format!("the audit failed: {text}"));
    }
    audit
}

async fn look(store: &dyn Store, ledger: &Ledger, audit: &mut Audit) -> Result {
    let records = read(store, audit).await?;
    check_losses(&records, ledger, audit);
    check_records(&records, ledger, audit);
    check_contents(&records, audit);
    drain(store, &records, ledger, audit).await?;
    let drained = read(store, audit).await?;
    check_drained(&records, &drained, audit);
    Ok(())
}

/// Everything that is there; what looking brings to light is wrong already.
async fn read(store: &dyn Store, audit: &mut Audit) -> Result<Records> {
    let dump = Dump::of(store).await?;
    audit.wrong.extend(dump.troubles);
    audit.wrong.extend(counter_trouble(dump.tasks.values(), &dump.queues));
    Ok(dump.tasks)
}

/// Everything acknowledged must be as it was acknowledged.
fn check_losses(records: &Records, ledger: &Ledger, audit: &mut Audit) {
    for id in &ledger.acked_inserts {
        if !records.contains_key(id) {
            audit.lost_inserts += 1;
            audit.losses.push(format!("task {id} is not there"));
        }
    }
    let late_lost = ledger.late_inserts.keys().filter(|id| !records.contains_key(*id));
    audit.late_lost_inserts += late_lost.count() as u64;
    for (id, epoch) in &ledger.acked_claims {
        let kept = records.get(id).and_then(|record| record.epoch);
        if kept != Some(*epoch) {
            audit.lost_claims += 1;
            let loss = format!("task {id} was claimed as {epoch} and has {kept:?}");
            audit.losses.push(loss);
        }
    }
    for (id, run) in &ledger.acked_applies {
        let kept = records.get(id).map(|record| record.state);
        if kept != Some(run.state) {
            audit.lost_applies += 1;
            let loss = format!("task {id} was {} and is {kept:?}", run.state);
            audit.losses.push(loss);
        }
    }
}

/// Nothing may be there that was never sent, nor in a state that nobody asked for.
fn check_records(records: &Records, ledger: &Ledger, audit: &mut Audit) {
    for (id, record) in records {
        if !ledger.sent_inserts.contains(id) {
            audit.wrong.push(format!("task {id} was never sent"));
        }
        let is_unfinished =
            matches!(record.state, State::Pending | State::Scheduled | State::Running);
        let is_asked_for = ledger
            .sent_applies
            .get(id)
            .is_some_and(|run| run.state == record.state && Some(run.epoch) == record.epoch);
        if !is_unfinished && !is_asked_for {
            let state = record.state;
            audit.wrong.push(format!("task {id} is {state}, which nobody asked for"));
        }
    }
}

/// Payloads and results come back byte for byte.
fn check_contents(records: &Records, audit: &mut Audit) {
    for (id, record) in records {
        if record.payload != load::payload_of(id) {
            audit.wrong.push(format!("task {id} has another payload"));
        }
        let result = (record.state == State::Completed).then(|| load::result_of(id).into());
        if record.result != result {
            audit.wrong.push(format!("task {id} has another result"));
        }
    }
}

/// Lets the dead workers go and finishes what waits, under epochs that must all be new.
async fn drain(store: &dyn Store, records: &Records, ledger: &Ledger, audit: &mut Audit) -> Result {
    for worker in &ledger.workers {
        store.leave(WorkerId::new(worker)).await?;
    }
    let worker = WorkerId::new("auditor");
    load::beat(store, &worker).await?;
    let (backoff, mut dice) = (Backoff::default(), Dice::seeded(0));
    loop {
        let claim = store.claim(load::claim_params(&worker, PIECE)?).await?;
        if claim.tasks.is_empty() {
            return Ok(());
        }
        let mut transitions = Vec::new();
        for task in &claim.tasks {
            let (id, epoch) = (&task.id, task.epoch);
            if records.get(id).and_then(|record| record.epoch) >= Some(epoch) {
                audit.wrong.push(format!("task {id} was given epoch {epoch} again"));
            }
            // Only after the loss of a claim, which is counted; a durable store never gets here.
            if ledger.acked_claims.get(id) >= Some(&epoch) {
                audit.losses.push(format!("task {id} was given epoch {epoch} anew"));
            }
            let result = Some(load::result_of(id).into());
            let ending = Ending::Completed { result };
            transitions.push(state::finish(task, ending, &backoff, &mut dice));
        }
        let params = ApplyParams { worker: worker.clone(), transitions, then_claim: None };
        let reply = store.apply(params).await?;
        let is_done = |outcome: &Applied| *outcome == Applied::Applied(State::Completed);
        if !reply.outcomes.iter().all(is_done) {
            audit.wrong.push(String::from("the auditor's own apply was refused"));
        }
    }
}

/// After the drain nothing waits for a worker, and what rested before it is as it was.
fn check_drained(before: &Records, after: &Records, audit: &mut Audit) {
    let is_drained = |state| matches!(state, State::Pending | State::Running);
    for (id, record) in before {
        let kept = after.get(id).map(|record| (record.state, record.epoch));
        if !is_drained(record.state) && kept != Some((record.state, record.epoch)) {
            let state = record.state;
            audit.wrong.push(format!("task {id} was {state} and is {kept:?} after the drain"));
        }
    }
    for (id, record) in after {
        if is_drained(record.state) || !before.contains_key(id) {
            audit.wrong.push(format!("task {id} is {} after the drain", record.state));
        }
    }
}

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;
