//! A store under load: tasks come in, are claimed and completed, every call repeated until it is
//! answered. What the store is given must come out once, whatever is done to its server.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use windlass_core::dice::Dice;
use windlass_core::retry::Backoff;
use windlass_core::state::finish;
use windlass_core::store::{
    Applied, ApplyParams, Beat, Claim, ClaimParams, Filter, GetParams, HeldLeases, ListParams,
    Orders, Parts, Quota, Reservation, WaitParams, WakeMark, WorkerCard,
};
use windlass_core::{Claimed, Result, State, Store, TaskId, WorkerId};

use crate::draft::{MAIN, draft, queue};
use crate::health::assert_healthy;
use crate::scene::completed;

/// Longer than any outage in tests: nobody is to be declared lost.
const LEASE: Duration = Duration::from_secs(3_600);
/// Before a call is repeated that was not answered: nobody tells when a server is back.
const PAUSE: Duration = Duration::from_millis(10);
/// How often such a call is repeated.
const TRIES_MAX: u32 = 6_000;
/// Longest that anything is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// Tasks in one insert, and tasks that may be open: so few that some worker waits at most times.
const AT_ONCE: u32 = 5;
const OPEN_MAX: usize = 10;
/// Completions after which a load has gone on.
const A_WHILE: u64 = 50;

/// Tasks that come and go.
pub struct Load {
    store: Arc<dyn Store>,
    ground: Arc<Ground>,
    producers: Vec<JoinHandle<Vec<TaskId>>>,
    workers: Vec<JoinHandle<Vec<TaskId>>>,
}

/// What everybody in a load shares.
struct Ground {
    pulse: watch::Sender<Pulse>,
    /// Producers wait for workers.
    room: Semaphore,
}

/// How a load goes.
#[derive(Debug, Clone, Copy, Default)]
struct Pulse {
    completed: u64,
    /// Calls that the store could not answer.
    unanswered: u64,
    is_over: bool,
}

impl Load {
    /// Begins.
    pub fn start(store: Arc<dyn Store>) -> Self {
        let ground = Arc::new(Ground {
            pulse: watch::Sender::new(Pulse::default()),
            room: Semaphore::new(OPEN_MAX),
        });
        let hand = |name: String| Hand {
            store: Arc::clone(&store),
            ground: Arc::clone(&ground),
            worker: WorkerId::new(name),
        };
        let producers =
            (0..2).map(|number| tokio::spawn(hand(format!("producer-{number}")).produce()));
        let workers = (0..3).map(|number| tokio::spawn(hand(format!("worker-{number}")).work()));
        Self {
            producers: producers.collect(),
            workers: workers.collect(),
            store: Arc::clone(&store),
            ground: Arc::clone(&ground),
        }
    }

    /// Waits until tasks have been completed for a while.
    pub async fn goes_on(&self) {
        let target = self.ground.pulse.borrow().completed + A_WHILE;
        self.reaches("the load does not go on", |pulse| pulse.completed >= target).await;
    }

    /// Does something to the server, and waits until somebody has met a store that does not answer.
    pub async fn is_hit_by(&self, fault: impl Future<Output = ()>) {
        let before = self.ground.pulse.borrow().unanswered;
        fault.await;
        self.reaches("nobody is hit", |pulse| pulse.unanswered > before).await;
    }

    /// Does something to the server again and again, until somebody has met a store that does not answer.
    pub async fn is_hit_during(&self, faults: impl Future<Output = Infallible>) {
        let before = self.ground.pulse.borrow().unanswered;
        tokio::select! {
            () = self.reaches("nobody is hit", |pulse| pulse.unanswered > before) => {}
            never = faults => match never {},
        }
    }

    async fn reaches(&self, complaint: &str, is_there: impl FnMut(&Pulse) -> bool) {
        let mut pulse = self.ground.pulse.subscribe();
        let reached = tokio::time::timeout(PATIENCE, pulse.wait_for(is_there)).await;
        // What was reached is a lock: to look again with it in hand would wait for a writer that waits for it.
        let is_reached = reached.is_ok_and(|reached| reached.is_ok());
        let last = *self.ground.pulse.borrow();
        assert!(is_reached, "{complaint}: {last:?}");
    }

    /// Ends the load; what was acknowledged must be there, completed once.
    pub async fn end(self) {
        self.ground.pulse.send_modify(|pulse| pulse.is_over = true);
        let mut submitted = Vec::new();
        for producer in self.producers {
            submitted.extend(producer.await.unwrap());
        }
        let mut completions: HashMap<TaskId, usize> = HashMap::new();
        // And one more for what came in when the others had found nothing and gone.
        let (store, ground) = (Arc::clone(&self.store), self.ground);
        let rest = Hand { store, ground, worker: WorkerId::new("rest") };
        for worker in self.workers.into_iter().chain([tokio::spawn(rest.work())]) {
            for task in worker.await.unwrap() {
                *completions.entry(task).or_default() += 1;
            }
        }
        assert!(submitted.len() > 50, "the load was no load: {}", submitted.len());
        for ids in submitted.chunks(500) {
            let params = GetParams { ids: ids.to_vec(), parts: Parts::NONE };
            let records = self.store.get(params).await.unwrap();
            for (id, record) in ids.iter().zip(records) {
                let record = record.unwrap_or_else(|| panic!("{id} was acknowledged and is gone"));
                assert_eq!(record.state, State::Completed, "{record:#?}");
                assert_eq!((record.attempts, record.crashes), (1, 0), "{record:#?}");
                let count = completions.get(id).copied().unwrap_or(0);
                assert_eq!(count, 1, "completions of {id}");
            }
        }
        assert_healthy(self.store.as_ref()).await;
        let open = Filter { states: vec![State::Pending, State::Running], ..Filter::default() };
        let params = ListParams { filter: open, limit: 9, cursor: None };
        assert_eq!(self.store.list(params).await.unwrap().tasks, []);
    }
}

/// One who produces or works.
struct Hand {
    store: Arc<dyn Store>,
    ground: Arc<Ground>,
    worker: WorkerId,
}

impl Hand {
    fn is_over(&self) -> bool {
        self.ground.pulse.borrow().is_over
    }

    /// Waits until the load is over.
    async fn over(&self) {
        let mut pulse = self.ground.pulse.subscribe();
        // The sender is this hand's own.
        let _ = pulse.wait_for(|pulse| pulse.is_over).await;
    }

    /// Notes that a call was not answered, and waits before it is repeated.
    async fn hit(&self, what: &str, error: &windlass_core::Error) {
        assert!(error.is_unavailable(), "{what}: {error:?}");
        self.ground.pulse.send_modify(|pulse| pulse.unanswered += 1);
        tokio::time::sleep(PAUSE).await;
    }

    /// Repeats a call until the store answers; tells how often it was in vain.
    async fn insist<T, F>(&self, what: &str, call: impl Fn() -> F) -> (T, u32)
    where
        F: Future<Output = Result<T>>,
    {
        for tries in 0..TRIES_MAX {
            match call().await {
                Ok(answer) => return (answer, tries),
                Err(error) => self.hit(what, &error).await,
            }
        }
        panic!("{what} was not answered, however often it was repeated");
    }

    async fn produce(self) -> Vec<TaskId> {
        let mut submitted = Vec::new();
        while !self.is_over() {
            tokio::select! {
                room = self.ground.room.acquire_many(AT_ONCE) => room.unwrap().forget(),
                () = self.over() => break,
            }
            let wanted = vec![Reservation { queue: queue(MAIN), count: AT_ONCE as usize }];
            let reserve = || self.store.reserve(wanted.clone());
            let (ids, _) = self.insist("reserve", reserve).await;
            let tasks: Vec<_> = ids.iter().map(|id| draft().with_id(id.clone())).collect();
            let insert = || self.store.insert(tasks.clone());
            let (answers, _) = self.insist("insert", insert).await;
            assert!(answers.iter().all(|answer| answer.is_new()), "{answers:?}");
            submitted.extend(ids);
        }
        submitted
    }

    /// Works until the load is over and nothing is left; answers what it has completed.
    async fn work(self) -> Vec<TaskId> {
        let mut completed = Vec::new();
        self.give_back().await;
        loop {
            let was_over = self.is_over();
            let Claim { tasks, mark, is_cut_short } = match self.claim().await {
                Ok(claim) => claim,
                Err(error) => {
                    // Its answer may be lost, and with it the tasks.
                    self.hit("claim", &error).await;
                    self.give_back().await;
                    continue;
                }
            };
            let is_empty = tasks.is_empty();
            if !is_empty {
                completed.extend(self.complete(&tasks).await);
            }
            match (is_cut_short, is_empty) {
                // Only now: a heartbeat that names nothing gives back what the answer has brought, too.
                (true, _) => self.give_back().await,
                (false, true) if was_over => return completed,
                (false, true) => self.wait(mark).await,
                (false, false) => {}
            }
        }
    }

    async fn claim(&self) -> Result<Claim> {
        let params = ClaimParams {
            worker: self.worker.clone(),
            quotas: vec![Quota::of(queue(MAIN), 20)],
            limit: 20,
            suspects_at_most: 1,
        };
        self.store.claim(params).await
    }

    /// Waits for work, and as workers do for orders.
    async fn wait(&self, mark: WakeMark) {
        let params = WaitParams {
            queues: vec![queue(MAIN)],
            orders: Some(self.worker.clone()),
            since: Some(mark),
            at_most: PATIENCE,
            ..WaitParams::default()
        };
        tokio::select! {
            wake = self.store.wait(params) => if let Err(error) = wake {
                self.hit("wait", &error).await;
            },
            () = self.over() => {}
        }
    }

    async fn complete(&self, tasks: &[Claimed]) -> Vec<TaskId> {
        let done =
            |task: &Claimed| finish(task, completed(), &Backoff::default(), &mut Dice::seeded(1));
        let params = ApplyParams {
            worker: self.worker.clone(),
            transitions: tasks.iter().map(done).collect(),
            then_claim: None,
        };
        let apply = || self.store.apply(params.clone());
        let (reply, tries) = self.insist("apply", apply).await;
        for (task, outcome) in tasks.iter().zip(reply.outcomes) {
            match outcome {
                Applied::Applied(State::Completed) => {}
                // The answer to an earlier one was lost.
                Applied::Already if tries > 0 => {}
                other => panic!("a completion of {} came to {other:?}", task.id),
            }
        }
        self.ground.room.add_permits(tasks.len());
        self.ground.pulse.send_modify(|pulse| pulse.completed += tasks.len() as u64);
        tasks.iter().map(|task| task.id.clone()).collect()
    }

    /// Beats, holding nothing, until the store's clock has moved: what was claimed in its very
    /// millisecond is not unknown yet.
    async fn give_back(&self) {
        let began = self.beat().await.now;
        while self.beat().await.now <= began {}
    }

    async fn beat(&self) -> Orders {
        let sign = Beat {
            worker: self.worker.clone(),
            card: WorkerCard::default(),
            lease: LEASE,
            held: Some(HeldLeases { leases: Vec::new(), older_than: Duration::ZERO }),
            progress: Vec::new(),
        };
        self.insist("beat", || self.store.beat(sign.clone())).await.0
    }
}
