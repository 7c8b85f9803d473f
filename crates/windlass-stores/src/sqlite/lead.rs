//! Leadership in SQLite.

use windlass_core::store::{Bid, Leadership, Term};
use windlass_core::{Result, WorkerId};

use super::sql;
use super::transaction::Tx;

impl Tx<'_> {
    pub(super) fn lead(&mut self, bid: &Bid) -> Result<Leadership> {
        let now = self.now.as_millis();
        let (holder, until, last): (Option<String>, i64, i64) = self
            .one(sql::LEAD, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .unwrap_or((None, 0, 0));
        let leader = holder.filter(|_| until > now);
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
                Ok(following(None))
            }
            Bid::Renew { .. } | Bid::Resign { .. } => Ok(following(leader.as_ref())),
        }
    }
}

fn following(leader: Option<&String>) -> Leadership {
    Leadership::Following { leader: leader.map(WorkerId::new) }
}
