//! Holds a store that went through a power cut against the ledger of what it had acknowledged.
//!
//! The audit knows nothing of how the store works; it reads and, at the end, drains it.

use std::collections::{BTreeMap, HashMap};

use windlass_core::dice::Dice;
use windlass_core::retry::Backoff;
use windlass_core::state::{self, Ending};
use windlass_core::store::{
    Applied, ApplyParams, Depth, GetParams, ListParams, Parts, Severity, StateCounts,
};
use windlass_core::{QueueName, State, Store, TaskId, TaskRecord, WorkerId};

use super::ledger::Ledger;
use super::load;
use crate::{Result, shell};

/// How much to read or finish in one call.
const PIECE: usize = 500;

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
    check_health(store, audit).await?;
    let records = read_all(store, audit).await?;
    check_losses(&records, ledger, audit);
    check_records(&records, ledger, audit);
    check_contents(store, &records, audit).await?;
    check_counters(store, &records, audit).await?;
    drain(store, &records, ledger, audit).await?;
    let drained = read_all(store, audit).await?;
    check_drained(&records, &drained, audit);
    check_counters(store, &drained, audit).await?;
    check_health(store, audit).await
}

async fn check_health(store: &dyn Store, audit: &mut Audit) -> Result {
    let inspection = store.inspect(Depth::Full).await?;
    if !inspection.is_writable {
        audit.wrong.push(String::from("the store takes no writes"));
    }
    for finding in inspection.findings {
        if finding.severity == Severity::Problem {
            let (subject, text) = (finding.subject, finding.text);
            audit.wrong.push(format!("{subject}: {text}"));
        }
    }
    Ok(())
}

async fn read_all(store: &dyn Store, audit: &mut Audit) -> Result<HashMap<TaskId, TaskRecord>> {
    let mut records = HashMap::new();
    let mut params = ListParams { limit: PIECE, ..ListParams::default() };
    loop {
        let page = store.list(params.clone()).await?;
        for record in page.tasks {
            if let Some(twin) = records.insert(record.id.clone(), record) {
                audit.wrong.push(format!("task {} is listed twice", twin.id));
            }
        }
        if page.next_cursor.is_none() {
            return Ok(records);
        }
        params.cursor = page.next_cursor;
    }
}

/// Everything acknowledged must be as it was acknowledged.
fn check_losses(records: &HashMap<TaskId, TaskRecord>, ledger: &Ledger, audit: &mut Audit) {
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
fn check_records(records: &HashMap<TaskId, TaskRecord>, ledger: &Ledger, audit: &mut Audit) {
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
async fn check_contents(
    store: &dyn Store,
    records: &HashMap<TaskId, TaskRecord>,
    audit: &mut Audit,
) -> Result {
    let ids: Vec<_> = records.keys().cloned().collect();
    for piece in ids.chunks(PIECE) {
        let params = GetParams {
            ids: piece.to_vec(),
            parts: Parts { payload: true, result: true, history: true },
        };
        let answers = store.get(params).await?;
        for (id, answer) in piece.iter().zip(answers) {
            let Some(record) = answer else {
                audit.wrong.push(format!("task {id} is listed and not found"));
                continue;
            };
            if record.payload != load::payload_of(id) {
                audit.wrong.push(format!("task {id} has another payload"));
            }
            let result = (record.state == State::Completed).then(|| load::result_of(id).into());
            if record.result != result {
                audit.wrong.push(format!("task {id} has another result"));
            }
        }
    }
    Ok(())
}

async fn check_counters(
    store: &dyn Store,
    records: &HashMap<TaskId, TaskRecord>,
    audit: &mut Audit,
) -> Result {
    let mut counted = BTreeMap::<QueueName, StateCounts>::new();
    for record in records.values() {
        let counts = counted.entry(record.queue.clone()).or_default();
        counts.add(record.state, 1);
    }
    let mut kept = BTreeMap::new();
    for queue in store.queues().await? {
        if queue.counts.total() > 0 {
            kept.insert(queue.name, queue.counts);
        }
    }
    if counted != kept {
        let wrong = format!("counters say {kept:?}, the tasks are {counted:?}");
        audit.wrong.push(wrong);
    }
    Ok(())
}

/// Lets the dead workers go and finishes what waits, under epochs that must all be new.
async fn drain(
    store: &dyn Store,
    records: &HashMap<TaskId, TaskRecord>,
    ledger: &Ledger,
    audit: &mut Audit,
) -> Result {
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
fn check_drained(
    before: &HashMap<TaskId, TaskRecord>,
    after: &HashMap<TaskId, TaskRecord>,
    audit: &mut Audit,
) {
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
