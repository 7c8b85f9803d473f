//! Leadership in PostgreSQL, and the term that every duty names.
//!
//! ```text
//! seek     a plain read; only where nobody leads: FOR UPDATE SKIP LOCKED, then a new term
//! renew    one UPDATE (FOR NO KEY UPDATE)
//! a duty   FOR KEY SHARE until its transaction ends
//! ```
//!
//! A duty and a renewal do not conflict. A new term conflicts with both, and gives way: so nobody waits
//! for those who seek, and no term begins while a step of an older one can still commit.

use std::sync::Once;
use std::time::Duration;

use tokio_postgres::Row as SqlRow;
use windlass_core::store::{Bid, Leadership, Term};
use windlass_core::{Error, Reason, Result, Timestamp, WorkerId, duration};

use super::Shared;
use super::pool::transaction;
use super::session::Session;
use super::sql;

/// How long brokers count as in use after somebody has said so.
const BROKERS_IN_USE: Duration = Duration::from_secs(60);

/// How leadership stands.
struct Standing {
    /// Who leads, while the term lasts.
    leader: Option<String>,
    until: Timestamp,
    /// The highest term ever.
    term: i64,
    now: Timestamp,
}

impl Shared {
    pub(super) async fn lead(&self, bid: &Bid) -> Result<Leadership> {
        let leadership = match bid {
            Bid::Seek { holder, term_length } => self.seek(holder, *term_length).await,
            Bid::Renew { term, term_length } => self.renew(*term, *term_length).await,
            Bid::Resign { term } => self.resign(*term).await,
        }?;
        // What others make pending without a broker is for the leader to push, and it has to hear of it.
        if matches!(leadership, Leadership::Leading(_)) && self.options.outbox.is_some() {
            self.listen();
        }
        Ok(leadership)
    }

    async fn seek(&self, holder: &WorkerId, term_length: Duration) -> Result<Leadership> {
        loop {
            let standing = self.standing().await?;
            let leadership = match &standing.leader {
                Some(leader) if leader.as_str() != holder.as_str() => {
                    return Ok(standing.following());
                }
                Some(_) => self.renew(Term(standing.term.unsigned_abs()), term_length).await,
                None => {
                    transaction!(self.pool, session => self.begin_term(session, holder, term_length))
                }
            }?;
            match leadership {
                // Another call of the same holder has begun a term meanwhile: it gets that one.
                Leadership::Following { leader: Some(leader), .. } if leader == *holder => {}
                leadership => return Ok(leadership),
            }
        }
    }

    /// How leadership stands, read on the shared connection: most processes of a fleet need no other for it.
    async fn standing(&self) -> Result<Standing> {
        let session = self.work.session().await?;
        let row = session.one(sql::LEAD_READ, &[&self.options.told_time()]).await?;
        row.as_ref().map(Standing::read).ok_or_else(missing)
    }

    /// Begins a new term, if still nobody leads and nothing is in the way.
    async fn begin_term(
        &self,
        session: &Session,
        holder: &WorkerId,
        term_length: Duration,
    ) -> Result<Leadership> {
        let knows_brokers = self.options.outbox.is_some();
        let row = session.one(sql::LEAD, &[&self.options.told_time(), &knows_brokers]).await?;
        let Some(row) = row else { return Ok(following(None, Duration::ZERO)) };
        let standing = Standing::read(&row);
        if standing.leader.is_some() {
            return Ok(standing.following());
        }
        // Who knows nothing of the brokers would leave them to themselves.
        if row.get(4) {
            warn_of_brokers();
            return Ok(following(None, BROKERS_IN_USE));
        }
        let now = standing.now;
        let term = now.as_millis().max(standing.term.saturating_add(1));
        set(session, Some(holder.as_str()), now.after(term_length).as_millis(), term).await?;
        Ok(Leadership::Leading(Term(term.unsigned_abs())))
    }

    async fn renew(&self, term: Term, term_length: Duration) -> Result<Leadership> {
        let knows_brokers = self.options.outbox.is_some();
        let length_ms = duration::as_millis_ceil(term_length).min(Timestamp::MAX.as_millis());
        let held = self.pool.get().await?;
        let told = self.options.told_time();
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&told, &number(term), &length_ms, &knows_brokers];
        let renewed = held.session.one(sql::LEAD_RENEW, &values).await;
        held.back();
        if renewed?.is_some() {
            return Ok(Leadership::Leading(term));
        }
        let standing = self.standing().await?;
        if standing.leader.is_some() && standing.term == number(term) {
            // The term lasts: others have begun to use brokers, of which this process knows nothing.
            return self.resign(term).await;
        }
        Ok(standing.following())
    }

    async fn resign(&self, term: Term) -> Result<Leadership> {
        let held = self.pool.get().await?;
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 2] =
            [&self.options.told_time(), &number(term)];
        let resigned = held.session.one(sql::LEAD_RESIGN, &values).await;
        held.back();
        match resigned? {
            Some(_) => Ok(following(None, Duration::ZERO)),
            None => Ok(self.standing().await?.following()),
        }
    }
}

impl Standing {
    /// Reads holder, until, term, now.
    fn read(row: &SqlRow) -> Self {
        let (until, now) = (row.get(1), row.get(3));
        let leader = row.get::<_, Option<String>>(0).filter(|_| until > now);
        let (until, now) = (Timestamp::from_millis(until), Timestamp::from_millis(now));
        Self { leader, until, term: row.get(2), now }
    }

    fn following(&self) -> Leadership {
        let left = self.leader.iter().map(|_| self.until.since(self.now)).sum();
        following(self.leader.as_ref(), left)
    }
}

/// Once: whoever named the brokers may only have passed by, and then this is over in a minute.
fn warn_of_brokers() {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        tracing::warn!(
            "this process names no broker, but others on the same database have within the last minute: it does not \
             lead until they are gone for so long, and nobody else does; delayed tasks wait. Name the same brokers everywhere"
        );
    });
}

/// Refuses a leader whose term is not the highest any more, and remembers a higher one. No other
/// term begins before the transaction ends.
pub(super) async fn check_term(session: &Session, term: Term) -> Result<()> {
    let asked = number(term);
    let row = session.one(sql::TERM_LOCK, &[]).await?;
    let mut highest: i64 = row.map(|row| row.get(0)).ok_or_else(missing)?;
    if asked > highest {
        let row = session.one(sql::TERM_RAISE, &[]).await?.ok_or_else(missing)?;
        highest = row.get(2);
        if asked > highest {
            set(session, row.get(0), row.get(1), asked).await?;
        }
    }
    if asked < highest {
        return Err(
            Error::lease_lost(format!("upkeep in term {term}")).reason_is(Reason::StaleTerm)
        );
    }
    Ok(())
}

async fn set(session: &Session, holder: Option<&str>, until: i64, term: i64) -> Result<()> {
    session.execute(sql::LEAD_SET, &[&holder, &until, &term]).await?;
    Ok(())
}

fn number(term: Term) -> i64 {
    i64::try_from(term.0).unwrap_or(i64::MAX)
}

fn missing() -> Error {
    Error::corrupt("the row of the leader is missing")
}

fn following(leader: Option<&String>, bid_after: Duration) -> Leadership {
    Leadership::Following { leader: leader.map(WorkerId::new), bid_after }
}
