//! A model check of the Redis store under concurrency: producers, workers that crash and report late or
//! twice, cancels, upkeep and an operator who flushes scripts, all at once through two handles on the
//! server's own clock. What the callers are told is held against a model: no task is claimed while it is held or after its
//! end, each ends once, and everything adds up afterwards.
//!
//! `WINDLASS_SEED=7 WINDLASS_TASKS=100000` replays a seed or makes it longer.

#![cfg(feature = "redis")]
#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use windlass_core::dice::Dice;
use windlass_core::retry::Backoff;
use windlass_core::state::finish;
use windlass_core::store::{
    Action, Applied, ApplyParams, Beat, Bid, ChangeParams, Changed, ClaimParams, Depth, Duty,
    GetParams, Inserted, Leadership, Parts, Quota, Reservation, Severity, Target, WorkerCard,
};
use windlass_core::{Claimed, Ending, Priority, State, Store, TaskId, WorkerId};
use windlass_stores::redis::driver::{Client, cmd};
use windlass_testkit::RedisServer;
use windlass_testkit::draft::{draft, queue, until_finished};

const LEASE: Duration = Duration::from_secs(1);
const QUEUES: [&str; 3] = ["a", "b", "c"];
const BACKOFF: Backoff = Backoff::Fixed { initial: Duration::from_millis(20), jitter: 0.5 };

/// What the model knows of a task.
#[derive(Default)]
struct Known {
    /// A worker believes that it holds it.
    is_held: bool,
    /// How it ended, and when that was known.
    ended: Option<(State, Instant)>,
}

/// What must be true of the store.
struct Model {
    tasks: Mutex<HashMap<TaskId, Known>>,
    violations: Mutex<Vec<String>>,
    is_over: AtomicBool,
    workers: AtomicUsize,
    seed: u64,
}

impl Model {
    fn violation(&self, text: String) {
        self.violations.lock().push(text);
    }

    fn claimed(&self, tasks: &[Claimed], since: Instant) {
        let mut known = self.tasks.lock();
        for task in tasks {
            let known = known.entry(task.id.clone()).or_default();
            if std::mem::replace(&mut known.is_held, true) {
                self.violation(format!("{} was claimed while it was held", task.id));
            }
            if let Some((state, at)) = known.ended
                && at < since
            {
                self.violation(format!("{} was claimed after it was {state}", task.id));
            }
        }
    }

    /// Whoever held these may not hold them any more.
    fn let_go(&self, tasks: &[Claimed]) {
        let mut known = self.tasks.lock();
        for task in tasks {
            known.entry(task.id.clone()).or_default().is_held = false;
        }
    }

    fn ended(&self, id: &TaskId, state: State) {
        let mut known = self.tasks.lock();
        let known = known.entry(id.clone()).or_default();
        if let Some((before, _)) = known.ended.replace((state, Instant::now())) {
            self.violation(format!("{id} ended twice: {before}, then {state}"));
        }
    }

    fn dice(&self, number: u64) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed.wrapping_mul(1_000).wrapping_add(number))
    }
}

async fn produce(store: Arc<dyn Store>, model: Arc<Model>, number: u64, count: usize) {
    let mut dice = model.dice(number);
    let mut made = 0;
    while made < count {
        let size = if dice.u8(..4) == 0 { dice.usize(1..4) } else { dice.usize(1..120) };
        let is_keyed = dice.u8(..4) == 0;
        let names: Vec<_> = (0..size).map(|_| QUEUES[dice.usize(..3)]).collect();
        let wanted = names.iter().map(|name| Reservation { queue: queue(name), count: 1 });
        let ids = store.reserve(wanted.collect()).await.unwrap();
        let mut tasks = Vec::new();
        for (name, id) in names.into_iter().zip(ids) {
            let priority = Priority::DESCENDING[dice.usize(..4)];
            let mut one = draft().queue(name).priority(priority).max_retries(3);
            if dice.u8(..20) == 0 {
                one = one.after(Duration::from_millis(dice.u64(1..100)));
            }
            if is_keyed && dice.bool() {
                one = one.unique(until_finished(&format!("key-{}", dice.u16(..2_000))));
            }
            tasks.push(one.with_id(id));
        }
        let answers = store.insert(tasks.clone()).await.unwrap();
        for (task, answer) in tasks.iter().zip(answers) {
            match answer {
                Inserted::New => {
                    model.tasks.lock().entry(task.id.clone()).or_default();
                }
                Inserted::Conflict { .. } => {}
                other => panic!("an insert was answered {other:?}"),
            }
        }
        made += size;
    }
}

async fn work(store: Arc<dyn Store>, model: Arc<Model>, number: u64) {
    let mut dice = model.dice(100 + number);
    let mut worker = new_worker(&model);
    let (mut held, mut ghosts): (Vec<Claimed>, Vec<Claimed>) = (Vec::new(), Vec::new());
    loop {
        let is_over = model.is_over.load(Ordering::SeqCst);
        if store.beat(beat(&worker)).await.is_err() {
            // Too slow for its lease: all that it held is given away.
            model.let_go(&held);
            held.clear();
            worker = new_worker(&model);
            continue;
        }
        if !is_over && held.len() < 200 {
            let since = Instant::now();
            let params = ClaimParams {
                worker: worker.clone(),
                quotas: QUEUES.iter().map(|name| Quota::of(queue(name), 80)).collect(),
                limit: dice.usize(1..150),
                suspects_at_most: 5,
            };
            let claim = store.claim(params).await;
            let tasks = claim.map_or_else(|_| Vec::new(), |claim| claim.tasks);
            model.claimed(&tasks, since);
            if tasks.is_empty() && held.is_empty() {
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
            held.extend(tasks);
        }
        if dice.u8(..40) == 0 && !is_over {
            // A crash: everything is abandoned; some of it is reported all the same, later.
            model.let_go(&held);
            ghosts.append(&mut held);
            worker = new_worker(&model);
            continue;
        }
        if !ghosts.is_empty() && dice.u8(..6) == 0 {
            let late = ghosts.split_off(ghosts.len() - ghosts.len().min(30));
            report(&store, &model, &worker, &late, &mut dice).await;
        }
        if is_over && held.is_empty() {
            return;
        }
        let count = if is_over { held.len() } else { dice.usize(0..=held.len()) };
        dice.shuffle(&mut held);
        let ended = held.split_off(held.len() - count);
        model.let_go(&ended);
        report(&store, &model, &worker, &ended, &mut dice).await;
        if dice.u8(..10) == 0 {
            report(&store, &model, &worker, &ended, &mut dice).await;
        }
    }
}

/// Reports endings of all sorts; notes those that the store accepted as ends of their tasks.
async fn report(
    store: &Arc<dyn Store>,
    model: &Model,
    worker: &WorkerId,
    tasks: &[Claimed],
    dice: &mut fastrand::Rng,
) {
    let endings = tasks.iter().map(|task| {
        let ending = match dice.u8(..100) {
            0..80 => Ending::Completed { result: None },
            80..90 => Ending::Failed { error: "boom".into(), retry_after: None },
            90..93 => Ending::Discarded { error: "no use".into() },
            93..96 => Ending::Snoozed { delay: Duration::from_millis(dice.u64(1..50)) },
            _ => Ending::Released,
        };
        finish(task, ending, &BACKOFF, &mut Dice::seeded(dice.u64(..)))
    });
    let params =
        ApplyParams { worker: worker.clone(), transitions: endings.collect(), then_claim: None };
    let outcomes = store.apply(params).await.unwrap().outcomes;
    for (task, outcome) in tasks.iter().zip(outcomes) {
        if let Applied::Applied(state) = outcome
            && state.is_terminal()
        {
            model.ended(&task.id, state);
        }
    }
}

async fn cancel(store: Arc<dyn Store>, model: Arc<Model>) {
    let mut dice = model.dice(200);
    while !model.is_over.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let Some(id) = dice.choice(model.tasks.lock().keys().cloned().collect::<Vec<_>>()) else {
            continue;
        };
        let params = ChangeParams {
            target: Target::Tasks(vec![id.clone()]),
            action: Action::Cancel,
            only_in: Vec::new(),
            by: None,
        };
        if store.change(params).await.unwrap().outcomes == [Changed::Done(Some(State::Cancelled))] {
            model.ended(&id, State::Cancelled);
        }
    }
}

async fn keep_up(store: Arc<dyn Store>, model: Arc<Model>) {
    let bid = Bid::Seek { holder: WorkerId::new("leader"), term_length: LEASE * 600 };
    let Leadership::Leading(term) = store.lead(bid).await.unwrap() else {
        panic!("nobody else leads");
    };
    let duty = Duty { term, limit: 1_000 };
    while !model.is_over.load(Ordering::SeqCst) {
        store.promote(duty).await.unwrap();
        store.expire(duty).await.unwrap();
        let repaired = store.tend(duty).await.unwrap().repaired;
        if repaired > 0 {
            model.violation(format!("{repaired} repairs though nobody broke anything"));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// An operator who has the server forget all scripts, again and again.
async fn flush_scripts(model: Arc<Model>) {
    let url = format!("redis://127.0.0.1:{}/", RedisServer::shared().port());
    let mut connection =
        Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
    while !model.is_over.load(Ordering::SeqCst) {
        let _: () = cmd("SCRIPT").arg("FLUSH").query_async(&mut connection).await.unwrap();
        tokio::time::sleep(Duration::from_millis(7)).await;
    }
}

fn new_worker(model: &Model) -> WorkerId {
    WorkerId::new(format!("worker-{}", model.workers.fetch_add(1, Ordering::SeqCst)))
}

fn beat(worker: &WorkerId) -> Beat {
    Beat {
        worker: worker.clone(),
        card: WorkerCard::default(),
        lease: LEASE,
        held: None,
        progress: Vec::new(),
    }
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_at_once_no_task_is_held_twice_lost_or_ended_twice() {
    let seed = variable("WINDLASS_SEED").unwrap_or_else(|| fastrand::u64(..100_000));
    let count = usize::try_from(variable("WINDLASS_TASKS").unwrap_or(10_000)).unwrap();
    let url = RedisServer::shared().url(&RedisServer::new_prefix());
    let one = windlass_stores::open(&url).await.unwrap();
    let other = windlass_stores::open(&url).await.unwrap();
    let store = |number: u64| if number.is_multiple_of(2) { one.clone() } else { other.clone() };
    let model = Arc::new(Model {
        tasks: Mutex::default(),
        violations: Mutex::default(),
        is_over: AtomicBool::new(false),
        workers: AtomicUsize::new(0),
        seed,
    });
    let mut playing: Vec<_> =
        (0..4).map(|number| tokio::spawn(work(store(number), model.clone(), number))).collect();
    playing.push(tokio::spawn(cancel(store(0), model.clone())));
    playing.push(tokio::spawn(keep_up(store(1), model.clone())));
    playing.push(tokio::spawn(flush_scripts(model.clone())));
    let producing: Vec<_> = (0..2)
        .map(|number| tokio::spawn(produce(store(number), model.clone(), number, count / 2)))
        .collect();
    for producer in producing {
        producer.await.unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(90);
    while open_count(&*one).await > 0 {
        assert!(Instant::now() < deadline, "tasks are left open; seed {seed}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    model.is_over.store(true, Ordering::SeqCst);
    for player in playing {
        player.await.unwrap();
    }
    let violations = std::mem::take(&mut *model.violations.lock());
    assert!(violations.is_empty(), "seed {seed}: {violations:#?}");
    check_ends(&*one, &model).await;
    let findings = one.inspect(Depth::Full).await.unwrap().findings;
    let problems: Vec<_> =
        findings.iter().filter(|finding| finding.severity == Severity::Problem).collect();
    assert!(problems.is_empty(), "seed {seed}: {problems:#?}");
}

/// Every task has ended as the model knows; what the model does not know was done by an expire.
async fn check_ends(store: &dyn Store, model: &Model) {
    let ids: Vec<_> = model.tasks.lock().keys().cloned().collect();
    for ids in ids.chunks(500) {
        let params = GetParams { ids: ids.to_vec(), parts: Parts::NONE };
        for (id, record) in ids.iter().zip(store.get(params).await.unwrap()) {
            let seed = model.seed;
            let record = record.unwrap_or_else(|| panic!("seed {seed}: {id} is gone"));
            match model.tasks.lock()[id].ended {
                Some((state, _)) => assert_eq!(record.state, state, "seed {seed}: {record:#?}"),
                None => {
                    let is_by_expire = record.state == State::Cancelled || record.crashes > 3;
                    assert!(is_by_expire, "seed {seed}: ended by nobody: {record:#?}");
                }
            }
            assert!(record.attempts <= 4, "seed {seed}: {record:#?}");
        }
    }
}
