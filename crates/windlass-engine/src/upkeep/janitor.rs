//! The janitor: removes what is kept no longer, and lets the store tidy up.

use windlass_core::State;
use windlass_core::store::{Action, ChangeParams, Filter, Target};

use super::duties::Desk;

pub(super) async fn clean(desk: Desk) {
    let config = desk.link.config();
    while !desk.stop.is_cancelled() {
        let store = &desk.link.store;
        desk.until_done("prune", |duty| store.prune(duty)).await;
        desk.until_done("tend", |duty| store.tend(duty)).await;
        if let Some(age) = config.task.dead_letter_retention {
            delete_dead_letters(&desk, age).await;
        }
        desk.pause(config.upkeep.sweep).await;
    }
}

/// Removes dead letters over the configured age; without one they stay.
async fn delete_dead_letters(desk: &Desk, age: std::time::Duration) {
    let filter = Filter {
        states: vec![State::DeadLetter],
        finished_before: Some(desk.link.store_now().before(age)),
        ..Filter::default()
    };
    let mut cursor = None;
    while !desk.stop.is_cancelled() {
        let target = Target::Matching {
            filter: filter.clone(),
            limit: desk.link.config().upkeep.batch,
            cursor: cursor.take(),
        };
        let params = ChangeParams {
            target,
            action: Action::Delete,
            only_in: vec![State::DeadLetter],
            by: Some("dead_letter_retention".into()),
        };
        match desk.link.store.change(params).await {
            Ok(reply) if reply.next_cursor.is_some() => cursor = reply.next_cursor,
            Ok(_) => return,
            Err(error) => {
                tracing::warn!(error = error.chain(), "could not remove old dead letters");
                return;
            }
        }
    }
}
