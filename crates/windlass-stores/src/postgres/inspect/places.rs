//! Tasks that stand in no place or in several: the doctor names them, and a repair lets the former run again.

use tokio_postgres::Row;
use windlass_core::store::{Finding, Severity};
use windlass_core::{QueueName, Result};

use super::finding;
use crate::postgres::Shared;
use crate::postgres::batch::{Batch, Place, column};
use crate::postgres::id::Id;
use crate::postgres::row::{lane, read_priority, unsigned};
use crate::postgres::session::Session;
use crate::postgres::sql;
use crate::wakes::News;

/// Most tasks that are named.
const NAMED_MAX: usize = 20;
/// Most tasks that one repair lets run again.
const PUT_BACK_MAX: i64 = 1_000_000;

impl Shared {
    /// Lets tasks that stand in no place wait at the end of their lanes. Nobody else may write meanwhile: a task that
    /// another transaction moves is in one of the places that are read here, before or after.
    pub(super) async fn put_back_lost(&self, session: &Session) -> Result<(News, Option<Finding>)> {
        let lost = session.all(sql::LOST, &[&PUT_BACK_MAX]).await?;
        if lost.is_empty() {
            return Ok((News::default(), None));
        }
        // The first number of a range is unique, also where the range ends before it.
        session.execute(sql::LOST_RANGES, &[]).await?;
        let mut batch = Batch::new(self.now(session).await?, &self.options);
        for row in &lost {
            let (priority, _) = read_priority(row.get(4));
            let crashes = unsigned(row.get(5));
            let lane = lane(priority, crashes);
            let place = Place { seq: row.get(0), queue: row.get(3), lane, bits: row.get(6) };
            batch.make_ready(place, None, crashes);
            if let Some(queue) = row.get::<_, Option<&str>>(2) {
                batch.tell_ready(&QueueName::stored(queue));
            }
        }
        let seqs: Vec<i64> = column(&lost, |row| row.get(0));
        session.execute(sql::LOST_NOTED, &[&seqs]).await?;
        let news = batch.write(session).await?;
        let named: Vec<_> = lost.iter().take(NAMED_MAX).map(named).collect();
        let text = format!(
            "{} tasks stood in no place and are pending again: {}",
            lost.len(),
            named.join(", ")
        );
        Ok((news, Some(finding(Severity::Warning, "places", text, ""))))
    }
}

/// How many tasks stand in no place or in several, and which.
pub(super) async fn findings(session: &Session) -> Result<Option<Finding>> {
    let row = session.one(sql::MISPLACED, &[]).await?;
    let misplaced: i64 = row.map_or(0, |row| row.get(0));
    if misplaced <= 0 {
        return Ok(None);
    }
    let limit = i64::try_from(NAMED_MAX).unwrap_or(i64::MAX);
    let twice = session.all(sql::TWICE, &[&limit]).await?;
    let lost = session.all(sql::LOST, &[&limit]).await?;
    let twice = twice.iter().map(|row| format!("{} in several", named(row)));
    let in_none = lost.iter().map(|row| format!("{} in none", named(row)));
    let names: Vec<_> = in_none.chain(twice).take(NAMED_MAX).collect();
    let mut text = format!("{misplaced} tasks stand in no place or in several");
    if !names.is_empty() {
        text.push_str(&format!(": {}", names.join(", ")));
    }
    let advice = match lost.is_empty() {
        true => "report this: it must not happen",
        false => {
            "report this: it must not happen; `windlass doctor --repair` makes tasks in no place pending again"
        }
    };
    Ok(Some(finding(Severity::Problem, "places", text, advice)))
}

/// The id and the queue, or the number of a task whose row is gone.
fn named(row: &Row) -> String {
    let seq: i64 = row.get(0);
    let id = match row.get::<_, Option<i64>>(1) {
        Some(stamp) => Id { seq, stamp }.task_id().to_string(),
        None => format!("number {seq}"),
    };
    match row.get::<_, Option<&str>>(2) {
        Some(queue) => format!("{id} of queue {queue}"),
        None => id,
    }
}
