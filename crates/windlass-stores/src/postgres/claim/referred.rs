//! Claims of the rows that references lead to: by the statement of every claim, with a lane for each
//! reference in which there is one row to take.

use std::collections::HashSet;

use windlass_core::store::{CLAIM_BYTES_MAX, Claim, ClaimParams, WakeMark};
use windlass_core::{Claimed, Result};

use super::{LOCKED_PAUSE, LOCKED_TRIES, Lanes, Wish, as_i64};
use crate::claimed::ClaimedTasks;
use crate::damage_log::log_skipped;
use crate::postgres::batch::column;
use crate::postgres::error::is_damage;
use crate::postgres::outbox::Reference;
use crate::postgres::session::Session;
use crate::postgres::{Shared, sql};

/// A reference that a claim has, and the quota for which it counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) reference: Reference,
    pub(crate) quota: usize,
}

/// Why a reference gave nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unused {
    /// Its row is not there (any more), or another reference of the claim leads to it.
    Gone,
    /// Its row waits for another claim: this one has enough, or may not have it, or someone holds it.
    Waits,
    /// Its queue is paused.
    Paused,
}

/// What a claim by references was given.
#[derive(Debug, Default)]
pub(crate) struct Given {
    pub(crate) tasks: Vec<Claimed>,
    /// The references that gave nothing.
    pub(crate) unused: Vec<(Reference, Unused)>,
    /// Part of the claim had no answer: more may be leased.
    pub(crate) is_cut_short: bool,
}

impl Given {
    pub(in crate::postgres) fn into_claim(self, mark: WakeMark) -> Claim {
        let Self { tasks, is_cut_short, .. } = self;
        Claim { tasks, mark, is_cut_short }
    }
}

impl Shared {
    /// Claims from the lanes of the quotas, or what references lead to if there are some.
    pub(in crate::postgres) async fn claim_by(
        &self,
        session: &Session,
        params: &ClaimParams,
        wanted: Option<&[Wanted]>,
    ) -> Result<Given> {
        match wanted {
            Some(wanted) => self.claim_referred(session, params, wanted).await,
            None => {
                let ClaimedTasks { tasks, is_cut_short } = self.claim(session, params).await?;
                Ok(Given { tasks, unused: Vec::new(), is_cut_short })
            }
        }
    }

    /// Claims what references lead to, in their order. Where a row of one queue fails the statement, that queue is skipped;
    /// the sweep finds its rows again.
    async fn claim_referred(
        &self,
        session: &Session,
        params: &ClaimParams,
        wanted: &[Wanted],
    ) -> Result<Given> {
        let claimed = self.claim_sound(session, params, wanted).await;
        if !claimed.as_ref().is_err_and(is_damage) {
            return claimed;
        }
        let mut given = Given::default();
        for (at, quota) in params.quotas.iter().enumerate() {
            let own: Vec<_> = wanted.iter().filter(|one| one.quota == at).copied().collect();
            if own.is_empty() {
                continue;
            }
            // What other queues have given counts too.
            let suspects = given.tasks.iter().filter(|task| task.is_suspect()).count();
            let params = ClaimParams {
                limit: params.limit.saturating_sub(given.tasks.len()),
                suspects_at_most: params.suspects_at_most.saturating_sub(suspects),
                ..params.clone()
            };
            let bytes: usize = given.tasks.iter().map(|task| task.payload.len()).sum();
            if params.limit == 0 || bytes >= CLAIM_BYTES_MAX {
                given.unused.extend(own.iter().map(|one| (one.reference, Unused::Waits)));
                continue;
            }
            match self.claim_sound(session, &params, &own).await {
                Ok(more) => {
                    given.tasks.extend(more.tasks);
                    given.unused.extend(more.unused);
                    given.is_cut_short |= more.is_cut_short;
                }
                Err(error) if is_damage(&error) => {
                    log_skipped(&quota.queue, &error.chain());
                    given.unused.extend(own.iter().map(|one| (one.reference, Unused::Gone)));
                }
                Err(error) if given.tasks.is_empty() => return Err(error),
                Err(error) => {
                    tracing::warn!(error = error.chain(), "a claim was cut short");
                    given.is_cut_short = true;
                    break;
                }
            }
        }
        Ok(given)
    }

    /// Claims what references lead to, where no row fails the statement.
    async fn claim_sound(
        &self,
        session: &Session,
        params: &ClaimParams,
        wanted: &[Wanted],
    ) -> Result<Given> {
        let mut wish = Wish::new(params);
        let mut given = Given::default();
        // One statement must not meet a range twice.
        let mut met = HashSet::new();
        let mut is_first = |one: &&Wanted| met.insert((one.reference.position, one.reference.lo));
        let (mut open, twice): (Vec<Wanted>, Vec<_>) = wanted.iter().partition(&mut is_first);
        given.unused.extend(twice.iter().map(|one| (one.reference, Unused::Gone)));
        for turn in 0..=LOCKED_TRIES {
            let lanes = wish.lanes_of(&open);
            let rows = self.claim_rows(session, &wish, &lanes, as_i64(open.len())).await?;
            let found = self.read_rows(session, &lanes, &rows).await?;
            let used: HashSet<_> = found.iter().map(|taken| taken.order.0).collect();
            let taken_over = self.take_over(&mut wish, found, &mut given.tasks).await;
            // What was claimed must not be lost with the rest.
            if let Err(error) = taken_over {
                if given.tasks.is_empty() {
                    return Err(error);
                }
                tracing::warn!(error = error.chain(), "a claim was cut short");
                given.is_cut_short = true;
            }
            let mut number = 0;
            open.retain(|_| {
                number += 1;
                !used.contains(&number)
            });
            if open.is_empty() {
                break;
            }
            let reasons = match self.why_unused(session, params, &open).await {
                Err(error) if given.tasks.is_empty() => return Err(error),
                // Whoever takes one of them next will see.
                Err(_) => vec![Unused::Waits; open.len()],
                Ok(reasons) => reasons,
            };
            let is_last = turn == LOCKED_TRIES || !given.tasks.is_empty();
            let mut reasons = reasons.into_iter();
            open.retain(|one| {
                let reason = reasons.next().unwrap_or(Unused::Gone);
                let stays = reason == Unused::Waits && !is_last;
                if !stays {
                    given.unused.push((one.reference, reason));
                }
                stays
            });
            if given.tasks.is_empty() {
                self.check_worker(session, params, &Lanes::default()).await?;
            }
            if open.is_empty() {
                break;
            }
            tokio::time::sleep(LOCKED_PAUSE).await;
        }
        Ok(given)
    }

    /// Why references gave nothing, beside them.
    async fn why_unused(
        &self,
        session: &Session,
        params: &ClaimParams,
        open: &[Wanted],
    ) -> Result<Vec<Unused>> {
        let names = column(open, |one| params.quotas[one.quota].queue.as_str());
        let lanes = column(open, |one| one.reference.lane);
        let positions = column(open, |one| one.reference.position);
        let los = column(open, |one| one.reference.lo);
        let rows = session.all(sql::READY_THERE, &[&names, &lanes, &positions, &los]).await?;
        let mut reasons = vec![Unused::Gone; open.len()];
        for row in &rows {
            let at = usize::try_from(row.get::<_, i64>(0) - 1).unwrap_or(usize::MAX);
            if let Some(reason) = reasons.get_mut(at) {
                *reason = if row.get(1) { Unused::Paused } else { Unused::Waits };
            }
        }
        Ok(reasons)
    }
}

impl Wish<'_> {
    /// A lane for each reference.
    fn lanes_of(&self, references: &[Wanted]) -> Lanes {
        let mut all = Lanes::default();
        for Wanted { reference, quota } in references {
            let share = &self.params.quotas[*quota];
            all.names.push(share.queue.as_str().to_owned());
            all.lanes.push(reference.lane);
            all.quotas.push(i32::try_from(*quota).unwrap_or(i32::MAX));
            all.most.push(as_i64(share.at_most.saturating_sub(self.given[*quota])));
            all.hints.push(reference.position);
            all.rows.push(1);
            all.untils.push(reference.position);
            all.firsts.push(Some(reference.lo));
        }
        all
    }
}
