//! Leadership.

use std::time::Duration;

use windlass_core::store::{Bid, Leadership, Term};
use windlass_core::{Result, WorkerId};

use super::{Fleet, LEAD};
use crate::redis::options::millis;
use crate::redis::reply::next;

impl Fleet {
    pub(in crate::redis) async fn lead(&self, bid: &Bid) -> Result<Leadership> {
        let call = self.on(&LEAD);
        let call = match bid {
            Bid::Seek { holder, term_length } => {
                call.arg("seek").arg(holder.as_str()).arg(millis(*term_length))
            }
            Bid::Renew { term, term_length } => {
                call.arg("renew").arg(term.to_string()).arg(millis(*term_length))
            }
            Bid::Resign { term } => call.arg("resign").arg(term.to_string()).arg(0),
        };
        let mut parts = self.ask(call).await?.list()?;
        let leads = next(&mut parts, "lead")?.number()? == 1;
        let told = next(&mut parts, "lead")?;
        if leads {
            return Ok(Leadership::Leading(Term(told.number()?.unsigned_abs())));
        }
        let leader = told.text()?;
        let leader = (!leader.is_empty()).then(|| WorkerId::new(leader));
        let bid_after = next(&mut parts, "lead")?.number()?;
        let bid_after = Duration::from_millis(u64::try_from(bid_after).unwrap_or(0));
        Ok(Leadership::Following { leader, bid_after })
    }
}
