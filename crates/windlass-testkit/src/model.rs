//! A model check of a store under concurrency: producers, workers that crash and report late or twice,
//! cancels, reruns, deletes and upkeep, all at once through two handles on the store's own clock. What the
//! callers are told is held against a model: no task is claimed while it is held or after its end, each ends
//! once, whatever has to be kept is there, and everything adds up afterwards.
//!
//! `WINDLASS_SEED=7 WINDLASS_TASKS=100000` replays a seed or makes it longer.

mod players;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use windlass_core::store::{GetParams, Parts};
use windlass_core::{Claimed, Epoch, State, Store, TaskId};

use crate::health::assert_healthy;

/// Longest that the number of open tasks may take to fall further once all are submitted.
const PATIENCE: Duration = Duration::from_secs(90);

/// What the model knows of a task.
#[derive(Default)]
struct Known {
    /// Under which epoch a worker holds it, and how long at least: until its lease may be over.
    held: Option<(Epoch, Instant)>,
    /// How it ended, and when that was known.
    ended: Option<(State, Instant)>,
    /// How often it may have ended: once, and once more for each rerun that was asked for.
    ends_left: u32,
    /// Its record is kept for a moment only.
    is_brief: bool,
    /// It may have been rerun.
    is_rerun: bool,
    /// It may have been deleted.
    is_deleted: bool,
    /// A cancel was asked of a run.
    is_cancel_requested: bool,
}

/// What must be true of the store.
struct Model {
    tasks: Mutex<HashMap<TaskId, Known>>,
    violations: Mutex<Vec<String>>,
    is_over: AtomicBool,
    pruned: AtomicU64,
    workers: AtomicUsize,
    heartbeats: AtomicUsize,
    /// Heartbeats that came too late for their lease: the machine was slow.
    late_heartbeats: AtomicUsize,
    seed: u64,
}

impl Model {
    fn violation(&self, text: String) {
        self.violations.lock().push(text);
    }

    /// Tasks were claimed between `since` and now by a worker whose lease lasts at least `until`.
    fn claimed(&self, tasks: &[Claimed], since: Instant, until: Instant) {
        let (mut known, now) = (self.tasks.lock(), Instant::now());
        for task in tasks {
            let known = known.entry(task.id.clone()).or_default();
            let before = known.held.replace((task.epoch, until));
            if before.is_some_and(|(_, until)| now < until) {
                self.violation(format!("{} was claimed while it was held", task.id));
            }
            if let Some((state, at)) = known.ended
                && at < since
                && known.ends_left == 0
            {
                self.violation(format!("{} was claimed after it was {state}", task.id));
            }
        }
    }

    /// Whoever held these may not hold them any more.
    fn let_go(&self, tasks: &[Claimed]) {
        self.change_held(tasks, None);
    }

    /// The lease under which these are held was renewed.
    fn renewed(&self, tasks: &[Claimed], until: Instant) {
        self.change_held(tasks, Some(until));
    }

    fn change_held(&self, tasks: &[Claimed], until: Option<Instant>) {
        let mut known = self.tasks.lock();
        for task in tasks {
            if let Some(known) = known.get_mut(&task.id)
                // Another may hold it by now: this one was too slow for its lease.
                && known.held.is_some_and(|(epoch, _)| epoch == task.epoch)
            {
                known.held = until.map(|until| (task.epoch, until));
            }
        }
    }

    fn ended(&self, id: &TaskId, state: State) {
        let mut known = self.tasks.lock();
        let known = known.entry(id.clone()).or_default();
        let before = known.ended.replace((state, Instant::now()));
        if known.ends_left == 0 {
            self.violation(format!("{id} ended too often: {before:?}, then {state}"));
        }
        known.ends_left = known.ends_left.saturating_sub(1);
    }

    /// Changes what is known of a task, if it is.
    fn change<T>(&self, id: &TaskId, change: impl FnOnce(&mut Known) -> T) -> Option<T> {
        self.tasks.lock().get_mut(id).map(change)
    }

    fn dice(&self, number: u64) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed.wrapping_mul(1_000).wrapping_add(number))
    }
}

/// Plays on two handles on the same data, while something else goes on that they must not mind.
pub async fn play(
    one: Arc<dyn Store>,
    other: Arc<dyn Store>,
    meanwhile: impl Future<Output = Infallible> + Send + 'static,
) {
    let seed = variable("WINDLASS_SEED").unwrap_or_else(|| fastrand::u64(..100_000));
    let count = usize::try_from(variable("WINDLASS_TASKS").unwrap_or(10_000)).unwrap();
    let store = |number: u64| if number.is_multiple_of(2) { one.clone() } else { other.clone() };
    let model = Arc::new(Model {
        tasks: Mutex::default(),
        violations: Mutex::default(),
        is_over: AtomicBool::new(false),
        pruned: AtomicU64::new(0),
        workers: AtomicUsize::new(0),
        heartbeats: AtomicUsize::new(0),
        late_heartbeats: AtomicUsize::new(0),
        seed,
    });
    let meanwhile = tokio::spawn(meanwhile);
    let mut playing: Vec<_> = (0..4)
        .map(|number| tokio::spawn(players::work(store(number), model.clone(), number)))
        .collect();
    playing.push(tokio::spawn(players::operate(store(0), model.clone())));
    playing.push(tokio::spawn(players::keep_up(store(1), model.clone())));
    let producing: Vec<_> = (0..2)
        .map(|number| {
            tokio::spawn(players::produce(store(number), model.clone(), number, count / 2))
        })
        .collect();
    for producer in producing {
        producer.await.unwrap();
    }
    let (mut fewest, mut fallen_at) = (u64::MAX, Instant::now());
    loop {
        let open = open_count(&*one).await;
        if open == 0 {
            break;
        }
        if open < fewest {
            (fewest, fallen_at) = (open, Instant::now());
        }
        assert!(fallen_at.elapsed() < PATIENCE, "{open} tasks are left open; seed {seed}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    model.is_over.store(true, Ordering::SeqCst);
    for player in playing {
        player.await.unwrap();
    }
    assert!(!meanwhile.is_finished(), "seed {seed}: what went on meanwhile has ended");
    meanwhile.abort();
    let violations = std::mem::take(&mut *model.violations.lock());
    assert!(violations.is_empty(), "seed {seed}: {violations:#?}");
    let late = model.late_heartbeats.load(Ordering::SeqCst);
    let all = model.heartbeats.load(Ordering::SeqCst);
    assert!(
        late * 2 <= all,
        "seed {seed}: {late} of {all} heartbeats came too late to show anything"
    );
    check_ends(&*one, &model).await;
    assert!(model.pruned.load(Ordering::SeqCst) > 0, "seed {seed}: nothing was pruned");
    assert_healthy(&*one).await;
}

/// How many tasks are not finished.
async fn open_count(store: &dyn Store) -> u64 {
    let queues = store.queues().await.unwrap();
    let open = |state: &State| !state.is_terminal();
    let states = || State::ALL.into_iter().filter(open);
    queues.iter().map(|queue| states().map(|state| queue.counts.get(state)).sum::<u64>()).sum()
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// Every task has ended as the model knows; what the model does not know was done by an expire.
async fn check_ends(store: &dyn Store, model: &Model) {
    let ids: Vec<_> = model.tasks.lock().keys().cloned().collect();
    for ids in ids.chunks(500) {
        let params = GetParams { ids: ids.to_vec(), parts: Parts::NONE };
        for (id, record) in ids.iter().zip(store.get(params).await.unwrap()) {
            let seed = model.seed;
            let tasks = model.tasks.lock();
            let known = &tasks[id];
            let Some(record) = record else {
                let has_ended = known.ended.is_some() || known.is_cancel_requested;
                let may_be_gone = known.is_deleted || (known.is_brief && has_ended);
                assert!(may_be_gone, "seed {seed}: {id} is gone");
                continue;
            };
            match known.ended {
                _ if known.is_rerun => {}
                Some((state, _)) => assert_eq!(record.state, state, "seed {seed}: {record:#?}"),
                None => {
                    let is_by_expire = record.state == State::Cancelled || record.crashes > 3;
                    assert!(is_by_expire, "seed {seed}: ended by nobody: {record:#?}");
                }
            }
            let is_within = record.attempts <= 4 || known.is_rerun;
            assert!(is_within, "seed {seed}: {record:#?}");
        }
    }
}
