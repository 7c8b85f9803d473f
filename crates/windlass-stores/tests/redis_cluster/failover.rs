//! A master that is lost under load. Replication is asynchronous: what the master has acknowledged and not yet passed
//! on is lost with it. What is left must be consistent, no run is accepted twice, and everything goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use windlass_core::dice::Dice;
use windlass_core::retry::Backoff;
use windlass_core::state::finish;
use windlass_core::store::{
    Applied, ApplyParams, Beat, ClaimParams, Depth, Filter, GetParams, HeldLeases, ListParams,
    Parts, Quota, Reservation, Severity, WorkerCard,
};
use windlass_core::{Claimed, Ending, Epoch, Error, State, Store, TaskId, WorkerId};
use windlass_testkit::RedisCluster;
use windlass_testkit::draft::{draft, queue};

/// Completions after which the load has gone on.
const A_WHILE: u64 = 100;
/// Longest that anything is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// Before a call is repeated that was not answered: nobody tells when a master is there again.
const PAUSE: Duration = Duration::from_millis(10);

/// What everybody shares.
struct Ground {
    store: Arc<dyn Store>,
    submitted: Mutex<BTreeSet<TaskId>>,
    /// The runs of each task whose success was accepted.
    accepted: Mutex<BTreeMap<TaskId, Vec<Epoch>>>,
    completed: watch::Sender<u64>,
    is_over: watch::Sender<bool>,
}

impl Ground {
    fn is_over(&self) -> bool {
        *self.is_over.borrow()
    }

    async fn goes_on(&self) {
        let mut completed = self.completed.subscribe();
        let target = *completed.borrow() + A_WHILE;
        let reached = completed.wait_for(|count| *count >= target);
        assert!(tokio::time::timeout(PATIENCE, reached).await.is_ok(), "the load does not go on");
    }
}

async fn pause_after(error: &Error) {
    assert!(error.is_unavailable() || error.is_lease_lost(), "{error:?}");
    tokio::time::sleep(PAUSE).await;
}

async fn produce(ground: Arc<Ground>) {
    while !ground.is_over() {
        let wanted = vec![Reservation { queue: queue("main"), count: 5 }];
        let ids = ground.store.reserve(wanted).await.unwrap();
        let tasks: Vec<_> = ids.iter().map(|id| draft().with_id(id.clone())).collect();
        while let Err(error) = ground.store.insert(tasks.clone()).await {
            pause_after(&error).await;
        }
        ground.submitted.lock().extend(ids);
        // As fast as they are completed.
        let mut completed = ground.completed.subscribe();
        let mut over = ground.is_over.subscribe();
        let enough = ground.submitted.lock().len() as u64;
        let _ = tokio::time::timeout(Duration::from_secs(1), async {
            tokio::select! {
                _ = completed.wait_for(|count| count + 50 > enough) => {}
                _ = over.wait_for(|is_over| *is_over) => {}
            }
        })
        .await;
    }
}

/// Works until the load is over and nothing is left.
async fn work(ground: Arc<Ground>, worker: WorkerId) {
    let mut knows_all = false;
    loop {
        let was_over = ground.is_over();
        if !knows_all {
            // After an answer that was lost, tasks may be held that are not known here.
            match ground.store.beat(sign_of(&worker)).await {
                Ok(_) => knows_all = true,
                Err(error) => {
                    pause_after(&error).await;
                    continue;
                }
            }
        }
        let params = ClaimParams {
            worker: worker.clone(),
            quotas: vec![Quota::of(queue("main"), 20)],
            limit: 20,
            suspects_at_most: 1,
        };
        let tasks = match ground.store.claim(params).await {
            Ok(claim) => claim.tasks,
            Err(error) => {
                pause_after(&error).await;
                knows_all = false;
                continue;
            }
        };
        if tasks.is_empty() {
            if was_over {
                return;
            }
            tokio::task::yield_now().await;
            continue;
        }
        complete(&ground, &worker, &tasks).await;
    }
}

fn sign_of(worker: &WorkerId) -> Beat {
    Beat {
        worker: worker.clone(),
        card: WorkerCard::default(),
        lease: Duration::from_secs(3_600),
        held: Some(HeldLeases { leases: Vec::new(), older_than: Duration::ZERO }),
        progress: Vec::new(),
    }
}

async fn complete(ground: &Ground, worker: &WorkerId, tasks: &[Claimed]) {
    let end = |task: &Claimed| {
        let ending = Ending::Completed { result: None };
        finish(task, ending, &Backoff::default(), &mut Dice::seeded(1))
    };
    let params = ApplyParams {
        worker: worker.clone(),
        transitions: tasks.iter().map(end).collect(),
        then_claim: None,
    };
    let outcomes = loop {
        match ground.store.apply(params.clone()).await {
            Ok(reply) => break reply.outcomes,
            Err(error) => pause_after(&error).await,
        }
    };
    let mut accepted = ground.accepted.lock();
    for (task, outcome) in tasks.iter().zip(outcomes) {
        // A run that the new master does not know of is refused.
        if let Applied::Applied(_) | Applied::Already = outcome {
            accepted.entry(task.id.clone()).or_default().push(task.epoch);
            ground.completed.send_modify(|count| *count += 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failover_what_is_left_is_consistent_and_work_goes_on() {
    let cluster = RedisCluster::start_with_replicas();
    let store = windlass_stores::open(&cluster.url("failover")).await.unwrap();
    let ground = Arc::new(Ground {
        store: Arc::clone(&store),
        submitted: Mutex::default(),
        accepted: Mutex::default(),
        completed: watch::Sender::new(0),
        is_over: watch::Sender::new(false),
    });
    let mut players = vec![tokio::spawn(produce(Arc::clone(&ground)))];
    for number in 0..3 {
        let worker = WorkerId::new(format!("worker-{number}"));
        players.push(tokio::spawn(work(Arc::clone(&ground), worker)));
    }
    ground.goes_on().await;
    // The queue's master first, then that of the fleet, if it is another.
    for key in ["failover:{main}:d", "failover:{~}:workers"] {
        let master = cluster.owner_of(key);
        master.kill();
        cluster.await_new_owner(key, master);
        ground.goes_on().await;
        master.launch();
        cluster.await_health();
    }
    ground.is_over.send_replace(true);
    for player in players {
        tokio::time::timeout(PATIENCE, player).await.unwrap().unwrap();
    }

    // What the sweep of a leader does in time is done at once.
    store.inspect(Depth::Repair).await.unwrap();
    let findings = store.inspect(Depth::Full).await.unwrap().findings;
    let is_problem = |severity, subject| severity == Severity::Problem && subject != "durability";
    let has_problem = findings.iter().any(|found| is_problem(found.severity, found.subject));
    assert!(!has_problem, "{findings:#?}");
    // What lost its place is pending again now.
    work(Arc::clone(&ground), WorkerId::new("rest")).await;
    let open = Filter { states: vec![State::Pending, State::Running], ..Filter::default() };
    let left = store.list(ListParams { filter: open, limit: 9, cursor: None }).await.unwrap();
    assert_eq!(left.tasks, [], "nothing is stuck");

    let accepted = ground.accepted.lock().clone();
    for (task, epochs) in &accepted {
        let different: BTreeSet<_> = epochs.iter().collect();
        assert_eq!(different.len(), epochs.len(), "{task}: a run was accepted twice: {epochs:?}");
    }
    let submitted: Vec<_> = ground.submitted.lock().iter().cloned().collect();
    for ids in submitted.chunks(500) {
        let params = GetParams { ids: ids.to_vec(), parts: Parts::NONE };
        for record in store.get(params).await.unwrap().into_iter().flatten() {
            assert_eq!(record.state, State::Completed, "{record:#?}");
            assert_eq!((record.attempts, record.crashes), (1, 0), "{record:#?}");
        }
    }
}
