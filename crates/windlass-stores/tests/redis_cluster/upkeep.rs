//! A leader at work beside a load, and tasks that need one: due later, and kept for a moment only.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use windlass_core::store::{Bid, Duty, GetParams, Leadership, Parts, Reservation, WaitParams};
use windlass_core::{Result, State, Store, TaskId, WorkerId};
use windlass_testkit::draft::{draft, queue};

/// Longest that a producer waits before it looks at its tasks again.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Longest that the last tasks may take.
const PATIENCE: Duration = Duration::from_secs(60);
const LIMIT: usize = 1_000;

/// A leader, and a producer whose tasks it promotes and prunes.
pub(crate) struct Upkeep {
    store: Arc<dyn Store>,
    is_enough: watch::Sender<bool>,
    is_over: watch::Sender<bool>,
    leader: JoinHandle<()>,
    producer: JoinHandle<Produced>,
}

#[derive(Default)]
struct Produced {
    kept: Vec<TaskId>,
    pruned: Vec<TaskId>,
}

impl Upkeep {
    pub(crate) fn start(store: Arc<dyn Store>) -> Self {
        let (is_enough, is_over) = (watch::Sender::new(false), watch::Sender::new(false));
        let leader = tokio::spawn(lead(Arc::clone(&store), is_over.subscribe()));
        let producer = tokio::spawn(produce(Arc::clone(&store), is_enough.subscribe()));
        Self { store, is_enough, is_over, leader, producer }
    }

    /// Ends the producer; its tasks have come to their ends, each in one run.
    pub(crate) async fn end(self) {
        self.is_enough.send_replace(true);
        let produced = tokio::time::timeout(PATIENCE, self.producer).await;
        let Produced { kept, pruned } =
            produced.expect("the last tasks come to their end").unwrap();
        self.is_over.send_replace(true);
        self.leader.await.unwrap();
        assert!(!kept.is_empty() && !pruned.is_empty(), "the leader had nothing to do");
        for id in kept {
            let record = record_of(&self.store, &id).await.expect("an acknowledged task");
            assert_eq!(record.state, State::Completed, "{record:#?}");
            assert_eq!((record.attempts, record.crashes), (1, 0), "{record:#?}");
        }
        let term = seek(&self.store).await.unwrap();
        while self.store.prune(Duty { term, limit: LIMIT }).await.unwrap().done > 0 {}
        for id in pruned {
            assert_eq!(record_of(&self.store, &id).await, None, "its time is over");
        }
    }
}

async fn record_of(store: &Arc<dyn Store>, id: &TaskId) -> Option<windlass_core::TaskRecord> {
    let params = || GetParams { ids: vec![id.clone()], parts: Parts::NONE };
    insist(|| store.get(params())).await.remove(0)
}

/// Repeats a call until it is answered; a pause is in the call itself, which a Cluster repeats for some time.
async fn insist<T, F: Future<Output = Result<T>>>(call: impl Fn() -> F) -> T {
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_unavailable(), "{error:?}"),
        }
        tokio::task::yield_now().await;
    }
}

async fn seek(store: &Arc<dyn Store>) -> Result<windlass_core::store::Term> {
    let holder = WorkerId::new("leader");
    match store.lead(Bid::Seek { holder, term_length: Duration::from_secs(3_600) }).await? {
        Leadership::Leading(term) => Ok(term),
        other => panic!("nobody else leads: {other:?}"),
    }
}

async fn lead(store: Arc<dyn Store>, over: watch::Receiver<bool>) {
    let term = insist(|| seek(&store)).await;
    while !*over.borrow() {
        for duty in 0..4 {
            let params = Duty { term, limit: LIMIT };
            let done = match duty {
                0 => store.promote(params).await,
                1 => store.prune(params).await,
                2 => store.expire(params).await,
                _ => store.tend(params).await,
            };
            if let Err(error) = done {
                assert!(error.is_unavailable(), "{error:?}");
            }
        }
        tokio::task::yield_now().await;
    }
}

async fn produce(store: Arc<dyn Store>, enough: watch::Receiver<bool>) -> Produced {
    let mut produced = Produced::default();
    while !*enough.borrow() {
        let wanted = vec![Reservation { queue: queue("main"), count: 4 }];
        let ids = store.reserve(wanted).await.unwrap();
        let later = || draft().after(Duration::from_millis(20));
        let task = |(number, id): (usize, &TaskId)| match number % 2 {
            0 => later().with_id(id.clone()),
            _ => later().retention(Duration::from_millis(1)).with_id(id.clone()),
        };
        let tasks: Vec<_> = ids.iter().enumerate().map(task).collect();
        let answers = insist(|| store.insert(tasks.clone())).await;
        assert!(answers.iter().all(|answer| answer.is_new()), "{answers:?}");
        for id in &ids {
            await_end(&store, id).await;
        }
        for (number, id) in ids.into_iter().enumerate() {
            match number % 2 {
                0 => produced.kept.push(id),
                _ => produced.pruned.push(id),
            }
        }
    }
    produced
}

async fn await_end(store: &Arc<dyn Store>, id: &TaskId) {
    loop {
        match record_of(store, id).await {
            Some(record) if record.state != State::Completed => {}
            Some(_) | None => return,
        }
        let params =
            || WaitParams { tasks: vec![id.clone()], at_most: LOOK_EVERY, ..WaitParams::default() };
        insist(|| store.wait(params())).await;
    }
}
