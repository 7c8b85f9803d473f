//! Leadership in SQLite.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row};
use windlass_core::store::{Bid, Leadership, Term};
use windlass_core::{Result, Timestamp, WorkerId};

use super::error::During;
use super::sql;
use super::transaction::Tx;

impl Tx<'_> {
    pub(super) fn lead(&mut self, bid: &Bid) -> Result<Leadership> {
        let now = self.now.as_millis();
        let (holder, until, last): (Option<String>, i64, i64) = self
            .one(sql::LEAD, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .unwrap_or((None, 0, 0));
        let leader = holder.filter(|_| until > now);
        let bid_after = leader.iter().map(|_| Timestamp::from_millis(until).since(self.now)).sum();
        let is_current = |term: Term| leader.is_some() && i64::try_from(term.0) == Ok(last);
        match bid {
            Bid::Seek { holder, term_length } => {
                let term = match &leader {
                    Some(leader) if leader.as_str() != holder.as_str() => {
                        return Ok(following(Some(leader), bid_after));
                    }
                    Some(_) => last,
                    None => now.max(last.saturating_add(1)),
                };
                let until = self.now.after(*term_length).as_millis();
                self.execute(sql::LEAD_SET, (holder.as_str(), until, term))?;
                Ok(Leadership::Leading(Term(term.unsigned_abs())))
            }
            Bid::Renew { term, term_length } if is_current(*term) => {
                let until = self.now.after(*term_length).as_millis();
                self.execute(sql::LEAD_SET, (&leader, until, last))?;
                Ok(Leadership::Leading(*term))
            }
            Bid::Resign { term } if is_current(*term) => {
                self.execute(sql::LEAD_SET, (None::<String>, 0, last))?;
                Ok(following(None, Duration::ZERO))
            }
            Bid::Renew { .. } | Bid::Resign { .. } => Ok(following(leader.as_ref(), bid_after)),
        }
    }
}

/// Who follows another than this holder, read without the writer's lock; nothing where a bid is needed.
pub(super) fn leader_beside(
    connection: &Connection,
    holder: &WorkerId,
    now: Timestamp,
) -> Result<Option<Leadership>> {
    let name = "read who leads";
    let mut statement = connection.prepare_cached(sql::LEAD).during(name)?;
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let row: Option<(Option<String>, i64)> =
        statement.query_row([], read).optional().during(name)?;
    Ok(row.and_then(|(leader, until)| {
        let (leader, until) = (leader?, Timestamp::from_millis(until));
        let leads = until > now && leader != holder.as_str();
        leads.then(|| following(Some(&leader), until.since(now)))
    }))
}

fn following(leader: Option<&String>, bid_after: Duration) -> Leadership {
    Leadership::Following { leader: leader.map(WorkerId::new), bid_after }
}
