//! A fleet of both sorts: who works, what they do at each step, and what must have come of it.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use windlass_core::store::{Applied, Filter};
use windlass_core::{State, TaskId, WorkerId};
use windlass_stores::redis::driver::cmd;
use windlass_testkit::asynq::{GoError, GoRun, GoServer, GoTask, Keys};
use windlass_testkit::draft::draft;
use windlass_testkit::scene::{Run, Scene, completed, discarded, failed};

use crate::ground::Ground;

const SECOND: Duration = Duration::from_secs(1);
const TASKS: usize = 150;

/// A fleet of both sorts, and what became of its tasks.
pub(super) struct Fleet {
    pub(super) ground: Ground,
    pub(super) scene: Scene,
    seed: u64,
    pub(super) rng: Rng,
    pub(super) ours: Vec<(WorkerId, Vec<Run>)>,
    pub(super) theirs: Vec<(GoServer, Vec<GoRun>)>,
    /// Runs of the dead, which may report late.
    pub(super) ghosts: Vec<Run>,
    /// In the order of their submits.
    pub(super) submitted: Vec<String>,
    /// Accepted successes, and accepted last failures.
    pub(super) done: BTreeMap<String, u32>,
    pub(super) dead: BTreeMap<String, u32>,
    /// Runs that Go's counters must have counted, and failed ones among them.
    processed: i64,
    failed: i64,
    servers_started: i32,
}

impl Fleet {
    pub(super) async fn new(seed: u64) -> Self {
        let ground = Ground::fresh().await;
        let scene = ground.scene().await;
        Self {
            ground,
            scene,
            seed,
            rng: Rng::with_seed(seed),
            ours: Vec::new(),
            theirs: Vec::new(),
            ghosts: Vec::new(),
            submitted: Vec::new(),
            done: BTreeMap::new(),
            dead: BTreeMap::new(),
            processed: 0,
            failed: 0,
            servers_started: 0,
        }
    }

    pub(super) async fn recruit(&mut self) {
        while self.ours.len() < 3 {
            self.ours.push((self.scene.worker().await, Vec::new()));
        }
        while self.theirs.len() < 3 {
            self.servers_started += 1;
            let name = format!("go-{}", self.servers_started);
            let who = (name.as_str(), self.servers_started, name.as_str());
            let server = GoServer::start(self.ground.peer.clone(), who, &[("main", 1)]);
            self.theirs.push((server, Vec::new()));
        }
    }

    async fn submit(&mut self) {
        let number = self.submitted.len();
        let kept = Duration::from_secs(self.rng.choice([0, 20]).unwrap());
        let later = Duration::from_secs(self.rng.choice([0, 0, 15]).unwrap());
        let id = if self.rng.bool() {
            let task = draft().retention(kept).max_retries(2).max_crashes(50);
            self.scene.submit(task.after(later)).await.to_string()
        } else {
            // Each crash that Go recovers spends a retry.
            let task = GoTask {
                max_retry: 2,
                unique_s: self.rng.choice([0, 86_400]).unwrap(),
                process_in_s: later.as_secs().cast_signed(),
                retention_s: kept.as_secs().cast_signed(),
                ..GoTask::new("work", format!("{number} {}", self.servers_started)).queue("main")
            };
            match self.ground.peer.enqueue(&task).await {
                Ok(message) => message.id,
                // Tasks were deleted meanwhile, and one with this number is there.
                Err(error) => return assert_eq!(error, GoError::DuplicateTask),
            }
        };
        self.submitted.push(id);
    }

    pub(super) async fn step(&mut self) {
        match self.rng.u32(..100) {
            0..14 if self.submitted.len() < TASKS => self.submit().await,
            0..28 => self.claim().await,
            28..42 => self.dequeue().await,
            42..58 => self.finish().await,
            58..74 => self.finish_go().await,
            74..77 => self.die().await,
            77..79 => self.leave().await,
            79..81 => self.late_report().await,
            81..86 => self.meddle().await,
            _ => self.pass_time().await,
        }
    }

    async fn claim(&mut self) {
        let at = self.rng.usize(..self.ours.len());
        let (worker, runs) = &mut self.ours[at];
        for task in self.scene.claim(worker, self.rng.usize(1..4)).await {
            runs.push(Run { worker: worker.clone(), task });
        }
    }

    async fn dequeue(&mut self) {
        let at = self.rng.usize(..self.theirs.len());
        let (server, runs) = &mut self.theirs[at];
        runs.extend(server.dequeue(&["main"]).await);
    }

    async fn finish(&mut self) {
        let at = self.rng.usize(..self.ours.len());
        let Some(run) = self.ours[at].1.pop() else { return };
        let ending = match self.rng.u32(..10) {
            0..7 => completed(),
            7..9 => failed("boom"),
            _ => discarded("no use"),
        };
        let outcome = self.scene.finish(&run, ending).await;
        let Applied::Applied(state) = outcome else {
            panic!("{} beats in time, and is refused: {outcome:?}", run.worker);
        };
        self.ended(run.id.as_str(), state);
    }

    async fn finish_go(&mut self) {
        let at = self.rng.usize(..self.theirs.len());
        let (server, runs) = &mut self.theirs[at];
        let Some(run) = runs.pop() else { return };
        let id = run.message.id.clone();
        if self.rng.u32(..10) < 7 {
            server.succeed(&run).await.unwrap();
            return self.ended(&id, State::Completed);
        }
        server.fail(&run, "boom", 5).await.unwrap();
        let is_last = run.message.retried >= run.message.retry;
        self.ended(&id, if is_last { State::DeadLetter } else { State::Retrying });
    }

    fn ended(&mut self, id: &str, state: State) {
        self.processed += 1;
        match state {
            State::Completed => *self.done.entry(id.to_owned()).or_default() += 1,
            State::DeadLetter => *self.dead.entry(id.to_owned()).or_default() += 1,
            _ => {}
        }
        self.failed += i64::from(state != State::Completed);
    }

    /// One of either sort dies with all that it runs; another takes its place.
    async fn die(&mut self) {
        if self.rng.bool() {
            let at = self.rng.usize(..self.ours.len());
            self.ghosts.extend(self.ours.remove(at).1);
        } else {
            let at = self.rng.usize(..self.theirs.len());
            self.theirs.remove(at);
        }
        self.recruit().await;
    }

    /// A worker that was thought dead reports after all: it counts as long as nobody took the task.
    async fn late_report(&mut self) {
        if self.ghosts.is_empty() {
            return;
        }
        let run = self.ghosts.swap_remove(self.rng.usize(..self.ghosts.len()));
        if let Applied::Applied(state) = self.scene.finish(&run, completed()).await {
            self.ended(run.id.as_str(), state);
        }
    }

    /// Some seconds pass: the living beat, and both sorts do their upkeep, in any order.
    async fn pass_time(&mut self) {
        self.ground.advance(SECOND * self.rng.u32(1..6));
        for (worker, _) in &self.ours {
            self.scene.beat(worker).await;
        }
        for (server, _) in &self.theirs {
            server.beat().await;
        }
        if self.rng.bool() {
            self.scene.promote().await;
        } else {
            self.ground.peer.forward("main").await;
        }
        match self.rng.u32(..4) {
            0 => self.expire().await,
            1 => self.recover().await,
            2 => {
                let repaired = self.scene.tend().await.repaired;
                assert_eq!(repaired, 0, "a death breaks nothing");
            }
            _ => self.ground.peer.clean("main").await,
        }
    }

    /// windlass takes over from the dead; a task of Go's survives three of them.
    async fn expire(&mut self) {
        self.scene.expire().await;
        let peer = self.ground.peer.clone();
        let archived = Keys::of("main").key("archived");
        let archived: Vec<String> = peer.plain(cmd("ZRANGE").arg(archived).arg(0).arg(-1)).await;
        for id in archived.iter().filter(|id| !self.dead.contains_key(*id)).collect::<Vec<_>>() {
            let error = peer.task_info("main", id).await.unwrap().message.error_msg;
            assert!(error.contains("lost too often"), "{id} is dead of {error}");
            self.ended(id, State::DeadLetter);
        }
    }

    async fn recover(&mut self) {
        for id in self.ground.peer.recover("main", 5).await {
            let state = self.ground.peer.task_info("main", &id).await.unwrap().state;
            let is_dead = state == "archived";
            self.ended(&id, if is_dead { State::DeadLetter } else { State::Retrying });
        }
    }

    /// Nobody dies any more, and everything is worked off.
    pub(super) async fn drain(&mut self) {
        for _ in 0..1_000 {
            self.pass_time().await;
            self.recover().await;
            self.expire().await;
            self.claim().await;
            self.dequeue().await;
            while self.ours.iter().any(|(_, runs)| !runs.is_empty()) {
                self.finish().await;
            }
            while self.theirs.iter().any(|(_, runs)| !runs.is_empty()) {
                self.finish_go().await;
            }
            if self.done.len() + self.dead.len() == self.submitted.len() {
                return;
            }
        }
        let is_open = |id: &&String| !self.done.contains_key(*id) && !self.dead.contains_key(*id);
        let mut lost = Vec::new();
        for id in self.submitted.iter().filter(is_open) {
            lost.push((id, self.ground.peer.task_info("main", id).await));
        }
        panic!("seed {}: these never ended: {lost:#?}", self.seed);
    }

    pub(super) async fn judge(&self) {
        let often: Vec<_> =
            self.done.iter().chain(&self.dead).filter(|(_, count)| **count != 1).collect();
        assert!(often.is_empty(), "these ended more than once: {often:?}");
        let both: Vec<_> = self.done.keys().filter(|id| self.dead.contains_key(*id)).collect();
        assert!(both.is_empty(), "these succeeded and failed for good: {both:?}");
        // What is kept for a while goes.
        self.ground.advance(SECOND * 60);
        self.scene.prune().await;
        let dump = self.ground.sound("in the end").await;
        assert_eq!(dump.members("asynq:{main}:archived").len(), self.dead.len());
        let stats = self.ground.peer.stats("main").await.unwrap();
        assert_eq!(stats.total, (self.processed, self.failed), "every ending is counted once");
        let left = self.scene.list(Filter::default()).await;
        assert!(left.iter().all(|record| self.dead.contains_key(record.id.as_str())));
        for id in self.done.keys() {
            assert!(
                self.scene.find(&TaskId::new(id)).await.is_none(),
                "{id} is done and still there"
            );
        }
        self.scene.books_balance("in the end").await;
    }
}
