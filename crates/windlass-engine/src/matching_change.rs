//! A change to all tasks that match a filter, in pieces that leave room for other callers of the store.

use std::time::Duration;

use tokio::time::Instant;
use windlass_core::store::{Action, ChangeParams, ChangeReply, Filter, Target};
use windlass_core::{Result, Store};

/// Fewest and most tasks that one call of the store changes.
const PIECE_MIN: usize = 500;
const PIECE_MAX: usize = 5_000;
/// Pieces grow while a call takes less than half of this, and shrink when it takes longer: other callers of the store
/// wait behind a piece.
const PIECE_TIME: Duration = Duration::from_millis(50);

/// A change to all tasks that match a filter.
#[derive(Debug, Clone)]
pub struct MatchingChange {
    /// What is done to each.
    pub action: Action,
    /// Which tasks.
    pub filter: Filter,
    /// Who asks for it; kept in timelines.
    pub by: Option<String>,
    /// Where an earlier change of the same tasks ended.
    pub cursor: Option<String>,
}

impl MatchingChange {
    /// Changes what matches, until all is done or the instant has come. `next_cursor` in the reply says where to go on.
    /// It is also set when the store becomes unavailable after the first piece: the caller learns what was done.
    pub async fn run(self, store: &dyn Store, end: Option<Instant>) -> Result<ChangeReply> {
        let Self { action, filter, by, mut cursor } = self;
        let mut total = ChangeReply::default();
        let mut limit = PIECE_MIN;
        loop {
            let target = Target::Matching { filter: filter.clone(), limit, cursor };
            let params = ChangeParams { target, action, only_in: Vec::new(), by: by.clone() };
            let started = Instant::now();
            let reply = match store.change(params).await {
                Ok(reply) => reply,
                Err(error) if error.is_unavailable() && total.next_cursor.is_some() => {
                    tracing::warn!(error = error.chain(), "a change of many tasks is cut short");
                    return Ok(total);
                }
                Err(error) => return Err(error),
            };
            limit = next_limit(limit, started.elapsed());
            total.changed_count += reply.changed_count;
            total.requested_count += reply.requested_count;
            total.next_cursor = reply.next_cursor;
            cursor = total.next_cursor.clone();
            if cursor.is_none() || end.is_some_and(|end| Instant::now() >= end) {
                return Ok(total);
            }
        }
    }
}

/// The size of the next piece, after one of this size took this long.
fn next_limit(limit: usize, took: Duration) -> usize {
    let next = match took {
        quick if quick < PIECE_TIME / 2 => limit * 2,
        slow if slow > PIECE_TIME => limit / 2,
        _ => limit,
    };
    next.clamp(PIECE_MIN, PIECE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_grow_while_they_are_quick_and_shrink_when_slow() {
        let ms = Duration::from_millis;
        assert_eq!(next_limit(500, ms(4)), 1_000);
        assert_eq!(next_limit(4_000, ms(4)), PIECE_MAX);
        assert_eq!(next_limit(4_000, ms(40)), 4_000);
        assert_eq!(next_limit(4_000, ms(90)), 2_000);
        assert_eq!(next_limit(PIECE_MIN, ms(9_000)), PIECE_MIN);
    }
}
