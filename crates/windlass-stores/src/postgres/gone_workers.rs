//! Forgets workers that are gone for long, when no task in PostgreSQL names them any more.

use windlass_core::store::GONE_WORKER_KEPT;
use windlass_core::{Result, Timestamp};

use super::Shared;
use super::session::Session;
use super::sql;
use crate::worker_sweep::{PIECE, Piece, Place, WORKERS_MAX, WorkerSweep};

/// The tables whose rows name a worker. A task that is taken up again moves from `done` to `fate` and never back under
/// the same worker, so the sweep looks at `done` first.
const TABLES: [&str; 2] = [sql::WORKER_SWEEP_DONE, sql::WORKER_SWEEP_FATE];

impl Shared {
    /// Takes a step of the sweep; answers whether there is another one to do now.
    pub(super) async fn forget_workers(
        &self,
        session: &Session,
        now: Timestamp,
        limit: usize,
    ) -> Result<bool> {
        // A sweep that fails begins anew.
        let mut sweep = std::mem::take(&mut *self.worker_sweep.lock());
        sweep_workers(session, &mut sweep, now, limit).await?;
        let has_more = sweep.has_more();
        *self.worker_sweep.lock() = sweep;
        Ok(has_more)
    }
}

async fn sweep_workers(
    session: &Session,
    sweep: &mut WorkerSweep,
    now: Timestamp,
    limit: usize,
) -> Result<()> {
    let gone_before = now.before(GONE_WORKER_KEPT).as_millis();
    if sweep.is_due(now) {
        let rows = session.all(sql::WORKER_SWEEP_BEGIN, &[&gone_before, &WORKERS_MAX]).await?;
        sweep.begin(now, rows.iter().map(|row| i64::from(row.get::<_, i32>(0))).collect());
    }
    let mut seen = 0;
    while let Some(Place { table, from }) = sweep.place()
        && seen < PIECE
    {
        let most = i64::try_from(PIECE).unwrap_or(i64::MAX);
        let Some(row) = session.one(TABLES[table], &[&from, &most]).await? else { break };
        let count: i64 = row.get(0);
        seen += usize::try_from(count).unwrap_or(PIECE);
        let named: Vec<i32> = row.get(2);
        let named = named.into_iter().map(i64::from).collect();
        let next = if count < most { None } else { row.get(1) };
        sweep.saw(Piece { named, next }, TABLES.len());
    }
    let unnamed = sweep.take(limit);
    if !unnamed.is_empty() {
        let unnamed: Vec<_> =
            unnamed.into_iter().filter_map(|number| i32::try_from(number).ok()).collect();
        session.execute(sql::WORKER_SWEEP_END, &[&unnamed, &gone_before]).await?;
    }
    Ok(())
}
