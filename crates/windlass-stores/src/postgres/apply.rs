//! Apply in PostgreSQL: fenced endings.
//!
//! Successes go in by one statement, all or none of each claim; a claim of which something was lost
//! answers with what is still open, which is sent again. Every other ending goes through a
//! transaction that takes the tasks out of their leases, decides and puts them where they belong.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use windlass_core::store::{Applied, ApplyParams, ApplyReply, ClaimParams, Refusal, WakeMark};
use windlass_core::{Claimed, Result, State, Transition, duration};

use super::Shared;
use super::batch::Batch;
use super::claim::{Given, Wanted};
use super::id::{Id, token_of};
use super::names::Known;
use super::pool::{Tries, transaction};
use super::row::{self, Row, by_token};
use super::session::Session;
use super::sql;
use crate::wakes::News;

/// How often what is still open of refused claims is sent again, at once.
const AGAIN_MAX: usize = 8;
/// How often, and how long after each other, a run is looked for that a transaction is completing.
const ATTACH_TURNS: usize = 5;
const ATTACH_PAUSE: Duration = Duration::from_millis(50);

/// A report that may be valid.
struct Report<'t> {
    /// Its place in the call.
    at: usize,
    transition: &'t Transition,
    id: Id,
    token: i64,
}

impl Report<'_> {
    fn lease(&self) -> (i64, i64) {
        (self.token, self.id.seq)
    }
}

/// What became of endings, and of the claim behind them.
pub(crate) struct Reported {
    pub(crate) outcomes: Vec<Applied>,
    pub(crate) given: Option<Result<Given>>,
}

/// What to claim behind endings.
pub(crate) enum Claimable {
    /// The first tasks of the lanes that are wanted.
    Lanes,
    /// What these references lead to.
    Referred(Vec<Wanted>),
    /// Nothing.
    Nothing,
}

/// Whether a commit waits for the disk by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Commit {
    Waits,
    /// Another one on the same connection follows and waits, before anybody is answered.
    IsFollowed,
}

/// True for an ending that only has to be noted.
pub(super) fn is_success(transition: &Transition) -> bool {
    let next = &transition.next;
    next.state == State::Completed
        && transition.next_if_cancelled == State::Completed
        && next.note.is_none()
}

impl Shared {
    pub(super) async fn apply(&self, params: &ApplyParams, mark: WakeMark) -> Result<ApplyReply> {
        let found = std::future::ready(Claimable::Lanes);
        let Reported { outcomes, given } = self.apply_by(params, found).await?;
        let claim = given.map(|given| given.map(|given| given.into_claim(mark)));
        Ok(ApplyReply { outcomes, claim })
    }

    /// Records endings; then claims, if asked, what was found meanwhile.
    pub(super) async fn apply_by(
        &self,
        params: &ApplyParams,
        found: impl Future<Output = Claimable>,
    ) -> Result<Reported> {
        let mut news = News::default();
        let Some(wanted) = &params.then_claim else {
            let session = self.work.session().await?;
            let outcomes =
                self.apply_all(&session, &params.transitions, Commit::Waits, &mut news).await?;
            self.tell(news);
            return Ok(Reported { outcomes, given: None });
        };
        let (outcomes, given) = if params.transitions.iter().all(is_success) {
            // Successes make nothing pending: the claim need not wait for their answer. Both go to
            // the server at once, on one connection, the successes first.
            let session = self.work.session().await?;
            let commit = self.make_ready_to_send(&session, &params.transitions).await?;
            let applying = self.apply_all(&session, &params.transitions, commit, &mut news);
            let claiming = self.claim_found(&session, wanted, found);
            let (outcomes, given) = tokio::join!(applying, claiming);
            let is_flushed = matches!(&given, Some(Ok(given)) if !given.tasks.is_empty());
            if outcomes.is_ok() && commit == Commit::IsFollowed && !is_flushed {
                // A claim that finds nothing commits nothing. On the same connection, and no other: a
                // server that crashed and is back may have forgotten what it had not on the disk.
                session.all(sql::FLUSH, &[]).await?;
            }
            if let (Err(_), Some(Ok(given))) = (&outcomes, &given) {
                self.hand_back(&given.tasks).await;
            }
            (outcomes?, given)
        } else {
            let session = self.work.session().await?;
            let outcomes =
                self.apply_all(&session, &params.transitions, Commit::Waits, &mut news).await?;
            (outcomes, self.claim_found(&session, wanted, found).await)
        };
        self.tell(news);
        // The endings are stored: an error of the claim must not have them all sent again.
        Ok(Reported { outcomes, given })
    }

    async fn claim_found(
        &self,
        session: &Session,
        wanted: &ClaimParams,
        found: impl Future<Output = Claimable>,
    ) -> Option<Result<Given>> {
        match found.await {
            Claimable::Lanes => Some(self.claim_by(session, wanted, None).await),
            Claimable::Referred(some) => Some(self.claim_by(session, wanted, Some(&some)).await),
            Claimable::Nothing => None,
        }
    }

    /// Sees to it that successes can be sent without waiting for anything, so that a claim that is
    /// sent after them also comes after them. Its commit waits for the disk, and with that for all
    /// that was committed before it on the server: theirs then need not.
    async fn make_ready_to_send(
        &self,
        session: &Session,
        transitions: &[Transition],
    ) -> Result<Commit> {
        if transitions.is_empty() {
            return Ok(Commit::Waits);
        }
        session.prepare(sql::FINISH).await?;
        let names = transitions.iter().map(|transition| transition.queue.as_str());
        self.queues.find(session, names).await?;
        // Behind a pooler the claim may go to a server that has crashed since, and is back.
        let is_one_server = !session.is_closed() && !self.options.is_pooled();
        Ok(if is_one_server { Commit::IsFollowed } else { Commit::Waits })
    }

    /// Gives back what was claimed and cannot be told to the worker. Where this fails too, its next
    /// beats do the same.
    async fn hand_back(&self, tasks: &[Claimed]) {
        let parts = |task: &Claimed| Some((token_of(task.epoch)?, Id::of(&task.id)?.seq));
        let leases: Vec<_> = tasks.iter().filter_map(parts).collect();
        if leases.is_empty() {
            return;
        }
        let given_back: Result<News> = async {
            transaction!(self.pool, session => async {
                let now = self.now(session).await?;
                self.give_back(session, &leases, now).await.map(|(_, news)| news)
            })
        }
        .await;
        match given_back {
            Ok(news) => self.tell(news),
            Err(error) => tracing::warn!(error = error.chain(), "a claim could not be told"),
        }
    }

    async fn apply_all(
        &self,
        session: &Session,
        transitions: &[Transition],
        commit: Commit,
        news: &mut News,
    ) -> Result<Vec<Applied>> {
        let mut outcomes = vec![Applied::Refused(Refusal::Gone); transitions.len()];
        let (mut successes, mut others, mut unsure) = (Vec::new(), Vec::new(), Vec::new());
        let mut met = HashSet::new();
        for (at, transition) in transitions.iter().enumerate() {
            let Some(id) = Id::of(&transition.lease.task) else {
                continue;
            };
            let Some(token) = token_of(transition.lease.epoch) else {
                unsure.push(Report { at, transition, id, token: -1 });
                continue;
            };
            let report = Report { at, transition, id, token };
            if !met.insert(report.lease()) {
                unsure.push(report);
            } else if is_success(transition) {
                successes.push(report);
            } else {
                others.push(report);
            }
        }
        let lost =
            self.apply_sorted(session, successes, others, commit, &mut outcomes, news).await?;
        // What has a lease of its own was to be completed in a transaction, and was not.
        let (back, lost): (Vec<_>, Vec<_>) = self.attach(lost).await?;
        unsure.extend(lost);
        if !back.is_empty() {
            let (successes, others): (Vec<_>, Vec<_>) =
                back.into_iter().partition(|report| is_success(report.transition));
            let commit = Commit::Waits;
            unsure.extend(
                self.apply_sorted(session, successes, others, commit, &mut outcomes, news).await?,
            );
        }
        if !unsure.is_empty() {
            let held = self.pool.get().await?;
            let told = tell_refusals(&held.session, &unsure, &mut outcomes, news).await;
            held.back();
            told?;
        }
        Ok(outcomes)
    }

    /// Records endings; answers the reports that were not accepted.
    async fn apply_sorted<'t>(
        &self,
        session: &Session,
        successes: Vec<Report<'t>>,
        others: Vec<Report<'t>>,
        commit: Commit,
        outcomes: &mut [Applied],
        news: &mut News,
    ) -> Result<Vec<Report<'t>>> {
        let mut lost = Vec::new();
        if !successes.is_empty() {
            lost.extend(self.finish(session, successes, commit, outcomes, news).await?);
        }
        if !others.is_empty() {
            lost.extend(self.end(others, outcomes).await?);
        }
        Ok(lost)
    }

    /// Puts runs that have a lease of their own back under the token of their claim; answers those,
    /// and the others. A transaction that is still about to complete one is given a moment, not more:
    /// other endings wait here, too. If it is rolled back later, the worker's beats give the task back.
    async fn attach<'t>(
        &self,
        lost: Vec<Report<'t>>,
    ) -> Result<(Vec<Report<'t>>, Vec<Report<'t>>)> {
        let mut back = HashSet::new();
        let mut left: Vec<_> = lost.iter().map(Report::lease).collect();
        for turn in 0..ATTACH_TURNS {
            if left.is_empty() {
                break;
            }
            if turn > 0 {
                tokio::time::sleep(ATTACH_PAUSE).await;
            }
            let (tokens, seqs): (Vec<_>, Vec<_>) = left.into_iter().unzip();
            let told: Vec<(i64, i64, bool)> = transaction!(self.pool, session => async {
                let rows = session.all(sql::ATTACH, &[&tokens, &seqs]).await?;
                Ok(rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect())
            })?;
            back.extend(told.iter().filter(|one| one.2).map(|one| (one.0, one.1)));
            left = told.iter().filter(|one| !one.2).map(|one| (one.0, one.1)).collect();
        }
        Ok(lost.into_iter().partition(|report| back.contains(&report.lease())))
    }

    /// Records successes; answers the reports that were not accepted.
    async fn finish<'t>(
        &self,
        session: &Session,
        mut successes: Vec<Report<'t>>,
        mut commit: Commit,
        outcomes: &mut [Applied],
        news: &mut News,
    ) -> Result<Vec<Report<'t>>> {
        let mut lost = Vec::new();
        let names = successes.iter().map(|report| report.transition.queue.as_str());
        let (queues, _) = self.queues.find(session, names).await?;
        for _ in 0..AGAIN_MAX {
            let mut tries = Tries::default();
            let refused = loop {
                let sent = self.finish_once(session, &queues, &successes, commit).await;
                // Only what is sent at once goes before the commit that follows.
                commit = Commit::Waits;
                match sent {
                    Err(error) if tries.again(&error).await => {}
                    answer => break answer?,
                }
            };
            let (accepted, rest): (Vec<_>, Vec<_>) =
                successes.into_iter().partition(|report| !refused.contains_key(&report.token));
            for report in &accepted {
                outcomes[report.at] = Applied::Applied(State::Completed);
                news.ended.push(report.transition.lease.task.clone());
            }
            let is_open = |report: &Report<'_>| {
                refused.get(&report.token).is_some_and(|open| open.contains(&report.id.seq))
            };
            let (open, gone): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_open);
            lost.extend(gone);
            successes = open;
            if successes.is_empty() {
                return Ok(lost);
            }
        }
        lost.extend(successes);
        Ok(lost)
    }

    /// Sends successes; answers the refused claims, each with what is still open of it.
    async fn finish_once(
        &self,
        session: &Session,
        queues: &Known,
        successes: &[Report<'_>],
        commit: Commit,
    ) -> Result<HashMap<i64, HashSet<i64>>> {
        let leases: Vec<_> = successes.iter().map(Report::lease).collect();
        let (tokens, sets) = by_token(&leases);
        let kept = Kept::of(successes);
        let mut counts: BTreeMap<(i64, i32, i16), i32> = BTreeMap::new();
        let (mut result_tokens, mut result_seqs, mut outputs) = (vec![], vec![], vec![]);
        let (mut key_tokens, mut key_seqs) = (vec![], vec![]);
        for report in successes {
            let transition = report.transition;
            let queue = queues.id(transition.queue.as_str()).unwrap_or(0);
            let priority = i16::from(transition.priority.as_number());
            *counts.entry((report.token, queue, priority)).or_default() += 1;
            if let Some(output) = &transition.next.result {
                result_tokens.push(report.token);
                result_seqs.push(report.id.seq);
                outputs.push(&output[..]);
            }
            if report.token & 1 == 1 {
                key_tokens.push(report.token);
                key_seqs.push(report.id.seq);
            }
        }
        let count_tokens: Vec<_> = counts.keys().map(|key| key.0).collect();
        let count_queues: Vec<_> = counts.keys().map(|key| key.1).collect();
        let count_priorities: Vec<_> = counts.keys().map(|key| key.2).collect();
        let counts: Vec<_> = counts.into_values().collect();
        let rows = session
            .all(
                sql::FINISH,
                &[
                    &self.options.told_time(),
                    &tokens,
                    &sets,
                    &kept.tokens,
                    &kept.blocks,
                    &kept.firsts,
                    &kept.lasts,
                    &kept.retentions_ms,
                    &kept.offsets,
                    &kept.took,
                    &count_tokens,
                    &count_queues,
                    &count_priorities,
                    &counts,
                    &result_tokens,
                    &result_seqs,
                    &outputs,
                    &key_tokens,
                    &key_seqs,
                    &(commit == Commit::IsFollowed),
                ],
            )
            .await?;
        let read = |row: &tokio_postgres::Row| {
            let open: Vec<i64> = row.get(1);
            (row.get(0), open.into_iter().collect())
        };
        Ok(rows.iter().map(read).collect())
    }

    /// Records endings that are no plain success; answers the reports that were not accepted.
    async fn end<'t>(
        &self,
        others: Vec<Report<'t>>,
        outcomes: &mut [Applied],
    ) -> Result<Vec<Report<'t>>> {
        let leases: Vec<_> = others.iter().map(Report::lease).collect();
        let (news, accepted) = transaction!(self.pool, session => async {
            let found = row::take_held(session, &leases).await?;
            // After the locks: a cancel that was asked for until then is seen.
            let now = self.now(session).await?;
            let mut batch = Batch::new(now, &self.options);
            let mut accepted = HashMap::new();
            let mut rows: HashMap<_, _> = Row::load(session, found)
                .await?
                .into_iter()
                .filter_map(|row| Some(((row.token()?, row.id.seq), row)))
                .collect();
            for report in &others {
                let Some(mut row) = rows.remove(&report.lease()) else {
                    continue;
                };
                let transition = report.transition;
                row.applied = Some(report.token);
                row.started_at = transition.took.map(|took| now.before(took).as_millis());
                row.retention_ms = duration::as_millis_ceil(transition.retention);
                let state = transition.chosen_state(row.is_cancel_requested);
                accepted.insert(report.lease(), state);
                row.end_run(&mut batch, state, transition.next.clone());
            }
            Ok((batch.write(session).await?, accepted))
        })?;
        self.tell(news);
        let mut lost = Vec::new();
        for report in others {
            match accepted.get(&report.lease()) {
                Some(state) => outcomes[report.at] = Applied::Applied(*state),
                None => lost.push(report),
            }
        }
        Ok(lost)
    }
}

/// Rows to keep of successes: one per claim, block and retention, each a slice of the flat columns.
#[derive(Default)]
struct Kept {
    tokens: Vec<i64>,
    blocks: Vec<i64>,
    firsts: Vec<i32>,
    lasts: Vec<i32>,
    retentions_ms: Vec<i64>,
    offsets: Vec<i16>,
    took: Vec<i32>,
}

impl Kept {
    fn of(successes: &[Report<'_>]) -> Self {
        let key = |report: &Report<'_>| {
            let retention_ms = duration::as_millis_ceil(report.transition.retention);
            (report.token, report.id.seq >> 10, retention_ms)
        };
        let mut sorted: Vec<_> = successes.iter().collect();
        sorted.sort_unstable_by_key(|report| (key(report), report.id.seq));
        let mut kept = Self::default();
        let mut last = None;
        for report in sorted {
            let at = i32::try_from(kept.offsets.len()).unwrap_or(i32::MAX - 1) + 1;
            if last != Some(key(report)) {
                let (token, block, retention_ms) = key(report);
                kept.tokens.push(token);
                kept.blocks.push(block);
                kept.retentions_ms.push(retention_ms);
                kept.firsts.push(at);
                kept.lasts.push(at);
                last = Some(key(report));
            }
            if let Some(end) = kept.lasts.last_mut() {
                *end = at;
            }
            kept.offsets.push(i16::try_from(report.id.seq & 1023).unwrap_or(0));
            let took = report.transition.took.map(|took| i32::try_from(took.as_millis()));
            kept.took.push(took.map_or(-1, |took| took.unwrap_or(i32::MAX)));
        }
        kept
    }
}

/// Tells why reports were not accepted.
async fn tell_refusals(
    session: &Session,
    unsure: &[Report<'_>],
    outcomes: &mut [Applied],
    news: &mut News,
) -> Result<()> {
    let seqs: Vec<_> = unsure.iter().map(|report| report.id.seq).collect();
    let rows = session.all(sql::APPLIED, &[&seqs]).await?;
    let mut known: HashMap<i64, (i64, [Option<i64>; 2])> = HashMap::new();
    for row in rows {
        known.insert(row.get(0), (row.get(1), [row.get(2), row.get(3)]));
    }
    for report in unsure {
        outcomes[report.at] = match known.get(&report.id.seq) {
            Some((stamp, applied)) if *stamp == report.id.stamp => {
                // The completion is the later of the two.
                match applied[1].or(applied[0]) == Some(report.token) {
                    true => {
                        // Perhaps in a transaction of its handler's, whose commit rings nobody here.
                        news.ended.push(report.transition.lease.task.clone());
                        Applied::Already
                    }
                    false => Applied::Refused(Refusal::LeaseLost),
                }
            }
            _ => Applied::Refused(Refusal::Gone),
        };
    }
    Ok(())
}
