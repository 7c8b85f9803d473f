//! What people do to a mixed fleet with the tools of either side, and how its members leave in peace.

use windlass_core::store::{Action, Changed};
use windlass_core::{State, TaskId};

use super::fleet::Fleet;

impl Fleet {
    /// A member of either sort shuts down: what it has not finished goes back at once.
    pub(super) async fn leave(&mut self) {
        if self.rng.bool() {
            let at = self.rng.usize(..self.ours.len());
            let (worker, runs) = self.ours.remove(at);
            assert_eq!(self.scene.leave(&worker).await, runs.len() as u64);
            self.ghosts.extend(runs);
        } else {
            let at = self.rng.usize(..self.theirs.len());
            let (server, runs) = self.theirs.remove(at);
            for run in &runs {
                server.abort(run).await.unwrap();
            }
            server.leave().await;
        }
        self.recruit().await;
    }

    /// Someone runs, archives, cancels or deletes a task with the tools of either side.
    pub(super) async fn meddle(&mut self) {
        let Some(id) = self.rng.choice(&self.submitted).cloned() else { return };
        match self.rng.u32(..5) {
            0 => self.run_with_go(&id).await,
            1 => self.run_with_windlass(&id).await,
            2 => self.archive_with_go(&id).await,
            3 => self.delete_with_go(&id).await,
            _ => self.delete_with_windlass(&id).await,
        }
    }

    async fn run_with_go(&mut self, id: &str) {
        // One that has succeeded would run again, with asynq's tools as well as with ours.
        if !self.done.contains_key(id) && self.ground.peer.run_task("main", id).await.is_ok() {
            self.dead.remove(id);
        }
    }

    async fn run_with_windlass(&mut self, id: &str) {
        if self.done.contains_key(id) {
            return;
        }
        if let Changed::Done(Some(State::Pending)) = self.scene.rerun(&TaskId::new(id)).await {
            self.dead.remove(id);
        }
    }

    async fn archive_with_go(&mut self, id: &str) {
        if !self.done.contains_key(id) && self.ground.peer.archive_task("main", id).await.is_ok() {
            self.dead.insert(id.to_owned(), 1);
        }
    }

    async fn delete_with_go(&mut self, id: &str) {
        if self.ground.peer.delete_task("main", id).await.is_ok() {
            self.forget(id);
        }
    }

    async fn delete_with_windlass(&mut self, id: &str) {
        let outcome = self.scene.change(&TaskId::new(id), Action::Delete).await;
        if outcome == Changed::Done(None) {
            self.forget(id);
        }
    }

    /// It is gone, and nobody expects anything of it any more.
    fn forget(&mut self, id: &str) {
        self.dead.remove(id);
        self.done.remove(id);
        self.submitted.retain(|known| known != id);
    }
}
