//! Leadership in PostgreSQL, and the term that every duty names.

use std::sync::Once;

use windlass_core::store::{Bid, Leadership, Term};
use windlass_core::{Error, Reason, Result, WorkerId};

use super::Shared;
use super::pool::transaction;
use super::session::Session;
use super::sql;

impl Shared {
    pub(super) async fn lead(&self, bid: &Bid) -> Result<Leadership> {
        transaction!(self.pool, session => self.bid(session, bid))
    }

    async fn bid(&self, session: &Session, bid: &Bid) -> Result<Leadership> {
        let (holder, until, last) = read(session, sql::LEAD).await?;
        let clock = self.now(session).await?;
        let now = clock.as_millis();
        let leader = holder.filter(|_| until > now);
        // Who knows nothing of the brokers would leave them to themselves.
        if self.options.outbox.is_none() && is_brokered(session).await? {
            if leader.is_some() && bid_of(bid).is_some_and(|term| i64::try_from(term.0) == Ok(last))
            {
                set(session, None, 0, last).await?;
                return Ok(following(None));
            }
            if leader.is_none() {
                tell_of_brokers();
            }
            return Ok(following(leader.as_ref()));
        }
        let is_current = |term: Term| leader.is_some() && i64::try_from(term.0) == Ok(last);
        match bid {
            Bid::Seek { holder, term_length } => {
                let term = match &leader {
                    Some(leader) if leader.as_str() != holder.as_str() => {
                        return Ok(following(Some(leader)));
                    }
                    Some(_) => last,
                    None => now.max(last.saturating_add(1)),
                };
                let until = clock.after(*term_length).as_millis();
                set(session, Some(holder.as_str()), until, term).await?;
                Ok(Leadership::Leading(Term(term.unsigned_abs())))
            }
            Bid::Renew { term, term_length } if is_current(*term) => {
                let until = clock.after(*term_length).as_millis();
                set(session, leader.as_deref(), until, last).await?;
                Ok(Leadership::Leading(*term))
            }
            Bid::Resign { term } if is_current(*term) => {
                set(session, None, 0, last).await?;
                Ok(following(None))
            }
            Bid::Renew { .. } | Bid::Resign { .. } => Ok(following(leader.as_ref())),
        }
    }
}

/// True while others use brokers in front of this database.
async fn is_brokered(session: &Session) -> Result<bool> {
    let row = session.one(sql::BROKER_IN_USE, &[]).await?;
    Ok(row.is_some_and(|row| row.get(0)))
}

/// Once: whoever named the brokers may only have passed by, and then this is over in a minute.
fn tell_of_brokers() {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        tracing::warn!(
            "this process names no broker, but others on the same database have within the last minute: it does not \
             lead until they are gone for so long, and nobody else does; delayed tasks wait. Name the same brokers everywhere"
        );
    });
}

/// The term that a bid names.
fn bid_of(bid: &Bid) -> Option<Term> {
    match bid {
        Bid::Seek { .. } => None,
        Bid::Renew { term, .. } | Bid::Resign { term } => Some(*term),
    }
}

/// Refuses a leader whose term is not the highest any more, and remembers a higher one. No other
/// term begins before the transaction ends.
pub(super) async fn check_term(session: &Session, term: Term) -> Result<()> {
    let asked = i64::try_from(term.0).unwrap_or(i64::MAX);
    let (_, _, mut highest) = read(session, sql::TERM_LOCK).await?;
    if asked > highest {
        let (holder, until, now_highest) = read(session, sql::LEAD).await?;
        highest = now_highest;
        if asked > highest {
            set(session, holder.as_deref(), until, asked).await?;
        }
    }
    if asked < highest {
        return Err(
            Error::lease_lost(format!("upkeep in term {term}")).reason_is(Reason::StaleTerm)
        );
    }
    Ok(())
}

async fn read(session: &Session, text: &'static str) -> Result<(Option<String>, i64, i64)> {
    let row = session.one(text, &[]).await?;
    row.map(|row| (row.get(0), row.get(1), row.get(2)))
        .ok_or_else(|| Error::corrupt("the row of the leader is missing"))
}

async fn set(session: &Session, holder: Option<&str>, until: i64, term: i64) -> Result<()> {
    session.execute(sql::LEAD_SET, &[&holder, &until, &term]).await?;
    Ok(())
}

fn following(leader: Option<&String>) -> Leadership {
    Leadership::Following { leader: leader.map(WorkerId::new) }
}
