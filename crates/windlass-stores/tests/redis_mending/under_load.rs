//! Broken again and again while work goes on: nothing is lost, and nothing is accepted twice.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use windlass_core::dice::Dice;
use windlass_core::retry::Backoff;
use windlass_core::state::finish;
use windlass_core::store::{
    Applied, ApplyParams, Beat, Bid, ClaimParams, Depth, Duty, Leadership, Quota, Reservation,
    Severity, WorkerCard,
};
use windlass_core::{Ending, Priority, State, Store, TaskId, WorkerId};
use windlass_stores::redis::driver::{Client, Cmd, cmd};
use windlass_testkit::RedisServer;
use windlass_testkit::draft::{draft, queue};

const TASKS: usize = 3_000;
const BACKOFF: Backoff = Backoff::Fixed { initial: Duration::from_millis(5), jitter: 0.0 };

/// What all players share.
struct Play {
    store: Arc<dyn Store>,
    prefix: String,
    accepted: Mutex<HashMap<TaskId, usize>>,
    is_over: AtomicBool,
    broken: AtomicU64,
}

async fn work(play: Arc<Play>, number: u64) {
    let worker = WorkerId::new(format!("worker-{number}"));
    let mut dice = fastrand::Rng::with_seed(number);
    while !play.is_over.load(Ordering::SeqCst) {
        let beat = Beat {
            worker: worker.clone(),
            card: WorkerCard::default(),
            lease: Duration::from_secs(600),
            held: None,
            progress: Vec::new(),
        };
        play.store.beat(beat).await.unwrap();
        let params = ClaimParams {
            worker: worker.clone(),
            quotas: vec![Quota::of(queue("main"), 40)],
            limit: dice.usize(1..40),
            suspects_at_most: 5,
        };
        let tasks = play.store.claim(params).await.unwrap().tasks;
        tokio::time::sleep(Duration::from_millis(dice.u64(1..4))).await;
        let end = |task| {
            let ending = Ending::Completed { result: None };
            finish(task, ending, &BACKOFF, &mut Dice::seeded(1))
        };
        let transitions: Vec<_> = tasks.iter().map(end).collect();
        let params = ApplyParams { worker: worker.clone(), transitions, then_claim: None };
        let outcomes = play.store.apply(params).await.unwrap().outcomes;
        let mut accepted = play.accepted.lock();
        for (task, outcome) in tasks.iter().zip(outcomes) {
            if let Applied::Applied(state) = outcome {
                assert_eq!(state, State::Completed);
                *accepted.entry(task.id.clone()).or_default() += 1;
            }
        }
    }
}

/// Somebody with access to the server and no idea.
async fn break_things(play: Arc<Play>) {
    let url = format!("redis://127.0.0.1:{}/", RedisServer::shared().port());
    let client = Client::open(url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut dice = fastrand::Rng::with_seed(9);
    while !play.is_over.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let key = |name: &str| format!("{}:{{main}}:{name}", play.prefix);
        let lane = key(&format!("s:{}", dice.u8(0..4) * 2));
        let command: Cmd = match dice.u8(..5) {
            0 => cmd("XGROUP").arg("DESTROY").arg(lane).arg("w").take(),
            1 => cmd("DEL").arg(lane).take(),
            2 => cmd("XTRIM").arg(lane).arg("MAXLEN").arg(3).take(),
            3 => cmd("DEL").arg(key("st")).take(),
            _ => cmd("HINCRBY").arg(key("st")).arg("p4").arg(dice.i8(..)).take(),
        };
        // The stream may just not be there.
        if command.query_async::<()>(&mut connection).await.is_ok() {
            play.broken.fetch_add(1, Ordering::SeqCst);
        }
    }
}

async fn keep_up(play: Arc<Play>) {
    let bid =
        Bid::Seek { holder: WorkerId::new("leader"), term_length: Duration::from_secs(3_600) };
    let Leadership::Leading(term) = play.store.lead(bid).await.unwrap() else {
        panic!("nobody else leads");
    };
    while !play.is_over.load(Ordering::SeqCst) {
        play.store.tend(Duty { term, limit: 1_000 }).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn submit(play: &Play) {
    for chunk in 0..TASKS / 100 {
        let wanted = vec![Reservation { queue: queue("main"), count: 100 }];
        let ids = play.store.reserve(wanted).await.unwrap();
        let priority = Priority::DESCENDING[chunk % 4];
        let tasks = ids.into_iter().map(|id| draft().priority(priority).with_id(id)).collect();
        let answers = play.store.insert(tasks).await.unwrap();
        assert!(answers.iter().all(|answer| answer.is_new()), "{answers:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_broken_every_task_is_completed_and_accepted_once() {
    let prefix = RedisServer::new_prefix();
    let store = windlass_stores::open(&RedisServer::shared().url(&prefix)).await.unwrap();
    let play = Arc::new(Play {
        store,
        prefix,
        accepted: Mutex::default(),
        is_over: AtomicBool::new(false),
        broken: AtomicU64::new(0),
    });
    let mut playing: Vec<_> =
        (0..3).map(|number| tokio::spawn(work(Arc::clone(&play), number))).collect();
    let breaking = tokio::spawn(break_things(Arc::clone(&play)));
    playing.push(tokio::spawn(keep_up(Arc::clone(&play))));
    submit(&play).await;
    breaking.abort();
    let _ = breaking.await;
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while play.accepted.lock().len() < TASKS {
        let missing = TASKS - play.accepted.lock().len();
        assert!(std::time::Instant::now() < deadline, "{missing} tasks do not come back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    play.is_over.store(true, Ordering::SeqCst);
    for player in playing {
        player.await.unwrap();
    }
    assert!(play.broken.load(Ordering::SeqCst) > 5, "hardly anything was broken");
    let twice = play.accepted.lock().iter().filter(|(_, count)| **count > 1).count();
    assert_eq!(twice, 0, "accepted twice");
    let findings = play.store.inspect(Depth::Repair).await.unwrap().findings;
    assert!(findings.iter().all(|found| found.severity != Severity::Problem), "{findings:#?}");
    let queues = play.store.queues().await.unwrap();
    assert_eq!(queues[0].counts.get(State::Completed), TASKS as u64);
}
