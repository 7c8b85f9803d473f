//! The janitor: removes what is kept no longer, adds statistics up, and lets the store tidy up.

use std::time::Duration;

use tokio::time::Instant;
use windlass_core::store::{
    AUDIT, Action, ChangeParams, DocQuery, Document, Filter, SaveDoc, Target,
};
use windlass_core::{Result, State};

use super::duties::Desk;
use crate::outage::warn_unless_outage;
use crate::statistics::{Rolled, roll_up};

/// How long it stays on record who changed what.
const AUDIT_AGE: Duration = Duration::from_secs(90 * 24 * 60 * 60);
/// How often statistics are added up to minutes, and every how many times to what is longer: no more often
/// than anything new can be there.
const STATISTICS_EVERY: Duration = Duration::from_secs(60);
const LONGER_EVERY: u64 = 10;
/// How often the audit is looked through.
const AUDIT_SWEEP: Duration = Duration::from_secs(60 * 60);

pub(super) async fn clean(desk: Desk) {
    let config = desk.link.config();
    let mut audit_at: Option<Instant> = None;
    let mut statistics_at: Option<Instant> = None;
    let mut statistics_rounds: u64 = 0;
    while !desk.stop.is_cancelled() {
        let store = &desk.link.store;
        desk.until_done("prune", |duty| store.prune(duty)).await;
        desk.until_done("tend", |duty| store.tend(duty)).await;
        if let Some(age) = config.task.dead_letter_retention {
            delete_dead_letters(&desk, age).await;
        }
        if statistics_at.is_none_or(|at| at.elapsed() >= STATISTICS_EVERY) {
            statistics_at = Some(Instant::now());
            let depth = match statistics_rounds.is_multiple_of(LONGER_EVERY) {
                true => Rolled::Everything,
                false => Rolled::Minutes,
            };
            statistics_rounds += 1;
            if let Err(error) = roll_up(store, desk.link.clock.now(), depth, &desk.stop).await {
                warn_unless_outage!(error, "could not add up statistics");
            }
        }
        if audit_at.is_none_or(|at| at.elapsed() >= AUDIT_SWEEP) {
            audit_at = Some(Instant::now());
            remove_old_audit(&desk).await;
        }
        desk.pause(config.upkeep.sweep).await;
    }
}

/// Removes the oldest of the audit.
async fn remove_old_audit(desk: &Desk) {
    let limit = desk.link.config().upkeep.batch;
    while !desk.stop.is_cancelled() {
        match remove_audit_piece(desk, limit).await {
            Ok(count) if count == limit => {}
            Ok(_) => return,
            Err(error) => {
                warn_unless_outage!(error, "could not remove the old part of the audit");
                return;
            }
        }
    }
}

async fn remove_audit_piece(desk: &Desk, limit: usize) -> Result<usize> {
    let (store, mut count) = (&desk.link.store, 0);
    let query = DocQuery::Class { class: AUDIT.into(), after: None, limit };
    let documents = store.load(query).await?;
    let end = desk.link.clock.now().before(AUDIT_AGE);
    for Document { class, key, version, .. } in
        documents.into_iter().filter(|document| document.updated_at < end)
    {
        store.save(SaveDoc { class, key, expected: Some(version), body: None }).await?;
        count += 1;
    }
    Ok(count)
}

/// Removes dead letters over the configured age; without one they stay.
async fn delete_dead_letters(desk: &Desk, age: std::time::Duration) {
    let filter = Filter {
        states: vec![State::DeadLetter],
        finished_before: Some(desk.link.clock.now().before(age)),
        ..Filter::default()
    };
    let mut cursor = None;
    while !desk.stop.is_cancelled() {
        let target = Target::Matching {
            filter: filter.clone(),
            limit: desk.link.config().upkeep.batch,
            cursor: cursor.take(),
        };
        let params = ChangeParams {
            target,
            action: Action::Delete,
            only_in: vec![State::DeadLetter],
            by: Some("dead_letter_retention".into()),
        };
        match desk.link.store.change(params).await {
            Ok(reply) if reply.next_cursor.is_some() => cursor = reply.next_cursor,
            Ok(_) => return,
            Err(error) => {
                warn_unless_outage!(error, "could not remove old dead letters");
                return;
            }
        }
    }
}
