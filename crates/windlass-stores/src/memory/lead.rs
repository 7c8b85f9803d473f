//! Leadership in memory.

use std::time::Duration;

use windlass_core::WorkerId;
use windlass_core::store::{Bid, Leadership, Term};

use super::model::Model;

impl Model {
    pub(super) fn lead(&mut self, bid: Bid) -> Leadership {
        let now = self.now();
        let leader = &mut self.leader;
        let leads_now = leader.holder.is_some() && leader.until > now;
        match bid {
            Bid::Seek { holder, term_length } => {
                if leads_now && leader.holder.as_ref() != Some(&holder) {
                    return following(leader.holder.clone(), leader.until.since(now));
                }
                if !leads_now {
                    let clock = u64::try_from(now.as_millis()).unwrap_or(0);
                    leader.term = clock.max(leader.term.saturating_add(1));
                    leader.holder = Some(holder);
                }
                leader.until = now.after(term_length);
                Leadership::Leading(Term(leader.term))
            }
            Bid::Renew { term, term_length } if leads_now && leader.term == term.0 => {
                leader.until = now.after(term_length);
                Leadership::Leading(term)
            }
            Bid::Resign { term } if leads_now && leader.term == term.0 => {
                leader.holder = None;
                following(None, Duration::ZERO)
            }
            Bid::Renew { .. } | Bid::Resign { .. } => {
                let bid_after = if leads_now { leader.until.since(now) } else { Duration::ZERO };
                following(leader.holder.clone().filter(|_| leads_now), bid_after)
            }
        }
    }
}

fn following(leader: Option<WorkerId>, bid_after: Duration) -> Leadership {
    Leadership::Following { leader, bid_after }
}
