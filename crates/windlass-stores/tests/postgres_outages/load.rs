//! A store under load: what it is given must come out once, whatever is done to its server.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use windlass_core::dice::Dice;
use windlass_core::retry::Backoff;
use windlass_core::state::{Ending, finish};
use windlass_core::store::{
    Applied, ApplyParams, Beat, ClaimParams, Filter, GetParams, HeldLeases, Parts, Quota,
    Reservation, WorkerCard,
};
use windlass_core::{Claimed, Result, State, Store, TaskId, WorkerId};
use windlass_testkit::draft::{draft, queue};

use crate::assert_healthy;

/// Longer than any outage here: nobody is to be declared lost.
const LEASE: Duration = Duration::from_secs(3_600);
const PAUSE: Duration = Duration::from_millis(10);

/// A store under load: tasks come in, are claimed and completed, every call repeated until it is
/// answered.
pub(crate) struct Load {
    pub(crate) store: Arc<dyn Store>,
    is_over: Arc<AtomicBool>,
    producers: Vec<JoinHandle<Vec<TaskId>>>,
    workers: Vec<JoinHandle<Vec<TaskId>>>,
}

impl Load {
    pub(crate) async fn start(url: &str) -> Self {
        let store = windlass_stores::open(url).await.unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let producers = (0..2)
            .map(|_| tokio::spawn(produce(Arc::clone(&store), Arc::clone(&is_over))))
            .collect();
        let workers = (0..3)
            .map(|number| {
                let worker = WorkerId::new(format!("worker-{number}"));
                tokio::spawn(work(Arc::clone(&store), worker, Arc::clone(&is_over)))
            })
            .collect();
        Self { store, is_over, producers, workers }
    }

    /// Ends the load; what was acknowledged must be there, completed once.
    pub(crate) async fn end(self) {
        self.is_over.store(true, Ordering::SeqCst);
        let mut submitted = Vec::new();
        for producer in self.producers {
            submitted.extend(producer.await.unwrap());
        }
        let mut completions: HashMap<TaskId, usize> = HashMap::new();
        for worker in self.workers {
            for task in worker.await.unwrap() {
                *completions.entry(task).or_default() += 1;
            }
        }
        // What the last claims brought and nobody heard of.
        let rest = WorkerId::new("rest");
        for task in work(Arc::clone(&self.store), rest, Arc::clone(&self.is_over)).await {
            *completions.entry(task).or_default() += 1;
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
        let pending = Filter { states: vec![State::Pending, State::Running], ..Filter::default() };
        let params = windlass_core::store::ListParams { filter: pending, limit: 9, cursor: None };
        assert_eq!(self.store.list(params).await.unwrap().tasks, []);
    }
}

/// Repeats a call until the store answers.
macro_rules! answered {
    ($what:literal, $call:expr) => {{
        let mut tries = 0;
        loop {
            match $call.await {
                Ok(answer) => break answer,
                Err(error) => {
                    assert!(error.is_unavailable(), "{}: {error:?}", $what);
                    tries += 1;
                    assert!(tries < 6_000, "{} was not answered in a minute", $what);
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }};
}

async fn produce(store: Arc<dyn Store>, is_over: Arc<AtomicBool>) -> Vec<TaskId> {
    let mut submitted = Vec::new();
    while !is_over.load(Ordering::SeqCst) {
        let wanted = vec![Reservation { queue: queue("main"), count: 5 }];
        let ids = answered!("reserve", store.reserve(wanted.clone()));
        let tasks: Vec<_> = ids.iter().map(|id| draft().with_id(id.clone())).collect();
        let answers = answered!("insert", store.insert(tasks.clone()));
        assert!(answers.iter().all(|answer| answer.is_new()), "{answers:?}");
        submitted.extend(ids);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    submitted
}

/// Works until the load is over and nothing is left; answers what it has completed.
async fn work(store: Arc<dyn Store>, worker: WorkerId, is_over: Arc<AtomicBool>) -> Vec<TaskId> {
    let mut completed = Vec::new();
    beat(&store, &worker).await;
    loop {
        let was_over = is_over.load(Ordering::SeqCst);
        let params = ClaimParams {
            worker: worker.clone(),
            quotas: vec![Quota::of(queue("main"), 20)],
            limit: 20,
            suspects_at_most: 1,
        };
        let tasks = match store.claim(params).await {
            Ok(claim) => claim.tasks,
            Err(error) => {
                assert!(error.is_unavailable(), "{error:?}");
                // Its answer may be lost, and with it the tasks.
                tokio::time::sleep(PAUSE).await;
                beat(&store, &worker).await;
                continue;
            }
        };
        if tasks.is_empty() {
            if was_over {
                return completed;
            }
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        let mut is_first = true;
        let outcomes = answered!("apply", async {
            let answer = apply(&store, &worker, &tasks).await;
            is_first &= answer.is_ok();
            answer
        });
        for (task, outcome) in tasks.iter().zip(outcomes) {
            match outcome {
                Applied::Applied(State::Completed) => completed.push(task.id.clone()),
                // The answer to the first was lost.
                Applied::Already if !is_first => completed.push(task.id.clone()),
                other => panic!("a completion came to {other:?}"),
            }
        }
    }
}

async fn apply(
    store: &Arc<dyn Store>,
    worker: &WorkerId,
    tasks: &[Claimed],
) -> Result<Vec<Applied>> {
    let done = |task: &Claimed| {
        let ending = Ending::Completed { result: None };
        finish(task, ending, &Backoff::default(), &mut Dice::seeded(1))
    };
    let params = ApplyParams {
        worker: worker.clone(),
        transitions: tasks.iter().map(done).collect(),
        then_claim: None,
    };
    Ok(store.apply(params).await?.outcomes)
}

/// Beats, holding nothing.
async fn beat(store: &Arc<dyn Store>, worker: &WorkerId) {
    let sign = Beat {
        worker: worker.clone(),
        card: WorkerCard::default(),
        lease: LEASE,
        held: Some(HeldLeases { leases: Vec::new(), older_than: Duration::ZERO }),
        progress: Vec::new(),
    };
    // Twice, a moment apart: what was claimed in this very millisecond is not unknown yet.
    for _ in 0..2 {
        answered!("beat", store.beat(sign.clone()));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
