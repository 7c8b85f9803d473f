//! What the leader of a store with brokers reads and writes down when it compares them with the ledger.

use std::time::Duration;

use windlass_core::store::Duty;
use windlass_core::{Result, duration};

use crate::postgres::lead::check_term;
use crate::postgres::outbox::{Made, Reference, made_by};
use crate::postgres::pool::transaction;
use crate::postgres::session::Values;
use crate::postgres::{PostgresStore, sql};

/// How many rows of `ready` a lane has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LaneCount {
    pub(crate) queue: i32,
    pub(crate) lane: i16,
    pub(crate) rows: i64,
    /// How many of them may not have been pushed yet.
    pub(crate) unpushed: i64,
}

impl PostgresStore {
    /// True when someone who pushes nothing has told of work since this was last asked.
    pub(crate) fn was_told_of_work(&self) -> bool {
        self.shared.options.outbox.as_ref().is_some_and(|outbox| outbox.was_told())
    }

    /// What is left in the outbox for so long, in these lanes.
    pub(crate) async fn outbox_left(
        &self,
        age: Duration,
        lanes: Vec<i16>,
        limit: i64,
    ) -> Result<Vec<Made>> {
        let age_ms = duration::as_millis_ceil(age);
        self.run(|shared| async move {
            let held = shared.pool.get().await?;
            let rows = held.session.all(sql::OUTBOX_LEFT, &[&age_ms, &lanes, &limit]).await;
            held.back();
            Ok(made_by(&rows?))
        })
        .await
    }

    /// Removes references from the outbox that are with their brokers.
    pub(crate) async fn outbox_forget(&self, made: Vec<Made>) -> Result<()> {
        self.run(|shared| async move {
            match &shared.options.outbox {
                Some(outbox) if !made.is_empty() => outbox.remove(&made).await,
                Some(_) | None => Ok(()),
            }
        })
        .await
    }

    /// Empties the outbox of these lanes; answers how many rows it had, of so many at most.
    pub(crate) async fn outbox_drop(&self, lanes: Vec<i16>, limit: i64) -> Result<u64> {
        self.run(|shared| async move {
            let held = shared.pool.get().await?;
            let dropped = held.session.execute(sql::OUTBOX_DROP, &[&lanes, &limit]).await;
            held.back();
            dropped
        })
        .await
    }

    /// Under which generation a broker held references of all pending tasks.
    pub(crate) async fn broker_generation(&self, name: &'static str) -> Result<Option<String>> {
        self.run(|shared| async move {
            let held = shared.pool.get().await?;
            let row = held.session.one(sql::BROKER_GENERATION, &[&name]).await;
            held.back();
            Ok(row?.and_then(|row| row.get(0)))
        })
        .await
    }

    /// Notes that a broker holds references of all pending tasks, or that it may not.
    pub(crate) async fn set_broker_generation(
        &self,
        duty: Duty,
        name: &'static str,
        generation: Option<String>,
    ) -> Result<()> {
        self.run(|shared| async move {
            transaction!(shared.pool, session => async {
                check_term(session, duty.term).await?;
                session.execute(sql::BROKER_SET, &[&name, &generation]).await.map(drop)
            })
        })
        .await
    }

    /// How many rows of `ready` each lane has that has some.
    pub(crate) async fn ready_counts(&self) -> Result<Vec<LaneCount>> {
        self.run(|shared| async move {
            let held = shared.pool.get().await?;
            let rows = held.session.all(sql::READY_COUNTS, &[]).await;
            held.back();
            let read = |row: &tokio_postgres::Row| LaneCount {
                queue: row.get(0),
                lane: row.get(1),
                rows: row.get(2),
                unpushed: row.get(3),
            };
            Ok(rows?.iter().map(read).collect())
        })
        .await
    }

    /// Rows of a lane, from the last before this position down; a few more where several share one.
    pub(crate) async fn ready_stretch(
        &self,
        (queue, lane): (i32, i16),
        before: i64,
        limit: i64,
    ) -> Result<Vec<Reference>> {
        self.run(|shared| async move {
            let held = shared.pool.get().await?;
            let values: Values<'_> = &[&queue, &lane, &before, &limit];
            let rows = held.session.all(sql::READY_STRETCH, values).await;
            held.back();
            Ok(made_by(&rows?).into_iter().map(|made| made.reference).collect())
        })
        .await
    }

    /// All queues by their numbers, and whether they are paused.
    pub(crate) async fn queues_paused(&self) -> Result<Vec<(i32, bool)>> {
        self.run(|shared| async move {
            let held = shared.pool.get().await?;
            let rows = held.session.all(sql::QUEUES_PAUSED, &[]).await;
            held.back();
            Ok(rows?.iter().map(|row| (row.get(0), row.get(1))).collect())
        })
        .await
    }
}
