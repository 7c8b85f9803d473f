//! What operators do: cancel, rerun, reschedule, delete, pause.

use windlass_core::store::{
    AUDIT, Action, Audit, ChangeParams, ChangeReply, Changed, DocQuery, Filter, Order, RunOrder,
    Target,
};
use windlass_core::{TaskId, When};

use super::Scene;
use crate::draft::queue;

/// Who acts in tests.
pub(crate) const OPERATOR: &str = "olivia";

impl Scene {
    /// Changes one task.
    pub async fn change(&self, id: &TaskId, action: Action) -> Changed {
        self.change_all(std::slice::from_ref(id), action).await[0]
    }

    /// Changes tasks by id.
    pub async fn change_all(&self, ids: &[TaskId], action: Action) -> Vec<Changed> {
        let params = ChangeParams {
            target: Target::Tasks(ids.to_vec()),
            action,
            only_in: Vec::new(),
            by: Some(OPERATOR.into()),
        };
        let reply = self.store.change(params).await.unwrap();
        assert_eq!(reply.outcomes.len(), ids.len(), "each task is answered");
        reply.outcomes
    }

    /// Changes one piece of what matches.
    pub async fn change_piece(
        &self,
        filter: Filter,
        action: Action,
        limit: usize,
        cursor: Option<String>,
    ) -> ChangeReply {
        let params = ChangeParams {
            target: Target::Matching { filter, limit, cursor },
            action,
            only_in: Vec::new(),
            by: Some(OPERATOR.into()),
        };
        self.store.change(params).await.unwrap()
    }

    /// Changes all that matches, piece by piece; adds up the counts.
    pub async fn change_matching(
        &self,
        filter: Filter,
        action: Action,
        limit: usize,
    ) -> ChangeReply {
        let mut sum = ChangeReply::default();
        for _ in 0..10_000 {
            let cursor = sum.next_cursor.take();
            let reply = self.change_piece(filter.clone(), action, limit, cursor).await;
            let count = reply.changed_count;
            assert!(count <= limit as u64, "a piece of {limit} changed {count} tasks");
            sum.changed_count += count;
            sum.requested_count += reply.requested_count;
            sum.next_cursor = reply.next_cursor;
            if sum.next_cursor.is_none() {
                return sum;
            }
        }
        panic!("the change of all that matches does not come to an end");
    }

    /// Cancels a task.
    pub async fn cancel(&self, id: &TaskId) -> Changed {
        self.change(id, Action::Cancel).await
    }

    /// Reruns a task.
    pub async fn rerun(&self, id: &TaskId) -> Changed {
        self.change(id, Action::Rerun).await
    }

    /// Moves a task to another time.
    pub async fn reschedule(&self, id: &TaskId, when: When) -> Changed {
        self.change(id, Action::Reschedule(when)).await
    }

    /// Deletes a task.
    pub async fn delete(&self, id: &TaskId) -> Changed {
        self.change(id, Action::Delete).await
    }

    /// Pauses or resumes a queue.
    pub async fn order_queue(&self, name: &str, order: RunOrder) {
        let order = Order::Queue { queue: queue(name), order };
        self.store.order(order).await.unwrap();
    }

    /// Every entry of the audit.
    pub async fn audits(&self) -> Vec<Audit> {
        let query = DocQuery::Class { class: AUDIT.into(), after: None, limit: 10_000 };
        let documents = self.store.load(query).await.unwrap();
        let read = |body: &str| serde_json::from_str(body).unwrap();
        documents.iter().map(|found| read(&found.body)).collect()
    }
}
