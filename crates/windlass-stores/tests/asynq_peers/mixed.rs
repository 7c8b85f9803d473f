//! One queue, worked by windlass and Go together while both die at random: nothing is lost, every task ends
//! once, and at any moment all keys are as asynq takes for granted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fastrand::Rng;
use windlass_core::store::{Applied, Filter};
use windlass_core::{State, TaskId, WorkerId};
use windlass_testkit::asynq::{GoRun, GoServer, GoTask};
use windlass_testkit::draft::draft;
use windlass_testkit::scene::{Run, Scene, completed, discarded, failed};

use crate::ground::Ground;

const SECOND: Duration = Duration::from_secs(1);
const TASKS: usize = 150;
const STEPS: usize = 1_500;

/// A fleet of both sorts, and what became of its tasks.
struct Fleet {
    ground: Ground,
    scene: Scene,
    rng: Rng,
    ours: Vec<(WorkerId, Vec<Run>)>,
    theirs: Vec<(GoServer, Vec<GoRun>)>,
    /// Runs of the dead, which may report late.
    ghosts: Vec<Run>,
    submitted: BTreeSet<String>,
    /// Accepted successes, and accepted last failures.
    done: BTreeMap<String, u32>,
    dead: BTreeMap<String, u32>,
    /// Runs that Go's counters must have counted, and failed ones among them.
    processed: i64,
    failed: i64,
    servers_started: i32,
}

impl Fleet {
    async fn new(seed: u64) -> Self {
        let ground = Ground::fresh().await;
        let scene = ground.scene().await;
        Self {
            ground,
            scene,
            rng: Rng::with_seed(seed),
            ours: Vec::new(),
            theirs: Vec::new(),
            ghosts: Vec::new(),
            submitted: BTreeSet::new(),
            done: BTreeMap::new(),
            dead: BTreeMap::new(),
            processed: 0,
            failed: 0,
            servers_started: 0,
        }
    }

    async fn recruit(&mut self) {
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
        let id = if self.rng.bool() {
            let task = draft().retention(Duration::ZERO).max_retries(2).max_crashes(50);
            self.scene.submit(task).await.to_string()
        } else {
            // Each crash that Go recovers spends a retry.
            let task = GoTask { max_retry: 2, ..GoTask::new("work", "{}").queue("main") };
            self.ground.peer.enqueue(&task).await.unwrap().id
        };
        self.submitted.insert(id);
    }

    async fn step(&mut self) {
        match self.rng.u32(..100) {
            0..12 if self.submitted.len() < TASKS => self.submit().await,
            0..30 => self.claim().await,
            30..45 => self.dequeue().await,
            45..62 => self.finish().await,
            62..79 => self.finish_go().await,
            79..82 => self.die().await,
            82..84 => self.late_report().await,
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
            0 => drop(self.scene.expire().await),
            1 => self.recover().await,
            2 => {
                let repaired = self.scene.tend().await.repaired;
                assert_eq!(repaired, 0, "a death breaks nothing");
            }
            _ => self.ground.peer.clean("main").await,
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
    async fn drain(&mut self) {
        for _ in 0..1_000 {
            self.pass_time().await;
            self.recover().await;
            self.scene.expire().await;
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
        let lost: Vec<_> = self.submitted.iter().filter(is_open).collect();
        panic!("these never ended: {lost:?}");
    }

    async fn judge(&self) {
        let often: Vec<_> =
            self.done.iter().chain(&self.dead).filter(|(_, count)| **count != 1).collect();
        assert!(often.is_empty(), "these ended more than once: {often:?}");
        let both: Vec<_> = self.done.keys().filter(|id| self.dead.contains_key(*id)).collect();
        assert!(both.is_empty(), "these succeeded and failed for good: {both:?}");
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

async fn check(seed: u64) {
    let mut fleet = Fleet::new(seed).await;
    fleet.recruit().await;
    for step in 0..STEPS {
        fleet.step().await;
        if step % 50 == 0 {
            fleet.ground.sound(&format!("at step {step} of seed {seed}")).await;
        }
    }
    fleet.drain().await;
    fleet.judge().await;
}

#[tokio::test]
async fn both_work_one_queue_and_die_at_random() {
    check(1).await;
}

#[tokio::test]
async fn both_work_one_queue_and_die_at_random_in_another_way() {
    check(2).await;
}
