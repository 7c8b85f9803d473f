//! A restart without the last moments: what the server does not know to have given out is given out again,
//! and of those who hold it only the last is believed.

use std::time::Duration;

use windlass_core::dice::Dice;
use windlass_core::retry::Backoff;
use windlass_core::state::finish;
use windlass_core::store::{
    Applied, ApplyParams, Beat, ClaimParams, Depth, GetParams, HeldLeases, Parts, ProgressReport,
    Quota, Refusal, Reservation, WorkerCard,
};
use windlass_core::{Claimed, Ending, Lease, State, Store, TaskId, TaskRecord, WorkerId};
use windlass_stores::redis::RedisOptions;
use windlass_stores::redis::streams::StreamsStore;
use windlass_testkit::RedisServer;
use windlass_testkit::draft::{draft, queue};
use windlass_testkit::servers::redis::{DataCopy, Keeping};

const LOST: Applied = Applied::Refused(Refusal::LeaseLost);

/// A worker in a process of its own.
struct Worker {
    id: WorkerId,
    store: StreamsStore,
}

impl Worker {
    async fn start(server: &RedisServer, name: &str) -> Self {
        let options = RedisOptions::of_url(&server.url("forgotten")).unwrap();
        let it =
            Self { id: WorkerId::new(name), store: StreamsStore::open(options).await.unwrap() };
        it.store.beat(it.sign()).await.unwrap();
        it
    }

    fn sign(&self) -> Beat {
        Beat {
            worker: self.id.clone(),
            card: WorkerCard::default(),
            lease: Duration::from_secs(3_600),
            held: None,
            progress: Vec::new(),
        }
    }

    async fn submit(&self) -> TaskId {
        let wanted = vec![Reservation { queue: queue("main"), count: 1 }];
        let id = self.store.reserve(wanted).await.unwrap().remove(0);
        self.store.insert(vec![draft().with_id(id.clone())]).await.unwrap();
        id
    }

    /// Claims the one task that there is.
    async fn claim(&self) -> Claimed {
        let quotas = vec![Quota::of(queue("main"), 1)];
        let worker = self.id.clone();
        let params = ClaimParams { worker, quotas, limit: 1, suspects_at_most: 1 };
        self.store.claim(params).await.unwrap().tasks.remove(0)
    }

    async fn report(&self, task: &Claimed, ending: Ending) -> Applied {
        let transition = finish(task, ending, &Backoff::default(), &mut Dice::seeded(1));
        let (worker, transitions) = (self.id.clone(), vec![transition]);
        let params = ApplyParams { worker, transitions, then_claim: None };
        self.store.apply(params).await.unwrap().outcomes.remove(0)
    }

    async fn record(&self, id: &TaskId) -> TaskRecord {
        let params = GetParams { ids: vec![id.clone()], parts: Parts::NONE };
        self.store.get(params).await.unwrap().remove(0).unwrap()
    }

    /// Tells of progress, and of what it holds; answers which of these leases are lost.
    async fn tell_progress(&self, task: &Claimed, note: &str) -> Vec<Lease> {
        let lease = lease_of(task);
        let report = ProgressReport { lease: lease.clone(), fraction: 0.5, note: note.into() };
        let held = HeldLeases { leases: vec![lease], older_than: Duration::from_secs(60) };
        let sign = Beat { held: Some(held), progress: vec![report], ..self.sign() };
        self.store.beat(sign).await.unwrap().lost
    }
}

fn lease_of(task: &Claimed) -> Lease {
    Lease { task: task.id.clone(), epoch: task.epoch }
}

fn done() -> Ending {
    Ending::Completed { result: None }
}

fn failed() -> Ending {
    Ending::Failed { error: "boom".into(), retry_after: None }
}

/// Kills the server and has it come back as it was when it was copied.
async fn go_back(server: &RedisServer, copy: &DataCopy, workers: &[&Worker]) {
    server.kill();
    server.restore_data(copy);
    server.launch();
    for worker in workers {
        // The first call of each meets the connection that broke.
        let _ = worker.store.inspect(Depth::Ping).await;
    }
}

/// A task that the first worker was given, of which the server does not know any more.
async fn forget_a_claim() -> (RedisServer, [Worker; 2], Claimed) {
    let server = RedisServer::start(Keeping::Always);
    let workers = [Worker::start(&server, "a").await, Worker::start(&server, "b").await];
    workers[0].submit().await;
    let copy = server.copy_data();
    let task = workers[0].claim().await;
    go_back(&server, &copy, &[&workers[0], &workers[1]]).await;
    (server, workers, task)
}

#[tokio::test]
async fn a_report_of_a_claim_that_was_forgotten_is_refused() {
    for ending in [done(), failed()] {
        let (_server, [first, second], task) = forget_a_claim().await;
        assert_eq!(first.report(&task, ending).await, LOST);
        let record = first.record(&task.id).await;
        assert_eq!((record.state, record.attempts, record.crashes), (State::Pending, 0, 0));
        let again = second.claim().await;
        assert_eq!(second.report(&again, done()).await, Applied::Applied(State::Completed));
    }
}

#[tokio::test]
async fn of_two_workers_that_were_given_one_task_the_second_is_believed() {
    for ending in [done(), failed()] {
        let (_server, [first, second], task) = forget_a_claim().await;
        let again = second.claim().await;
        assert_eq!(again.id, task.id);
        assert!(again.epoch > task.epoch, "a later epoch");
        assert_eq!(first.report(&task, ending.clone()).await, LOST, "before the second");
        assert_eq!(second.report(&again, done()).await, Applied::Applied(State::Completed));
        assert_eq!(first.report(&task, ending).await, LOST, "after the second");
        assert_eq!(second.report(&again, done()).await, Applied::Already);
        let record = first.record(&task.id).await;
        assert_eq!((record.attempts, record.crashes), (1, 0), "{record:#?}");
    }
}

#[tokio::test]
async fn a_worker_that_was_given_a_task_twice_is_believed_the_second_time() {
    let (_server, [worker, _], task) = forget_a_claim().await;
    let again = worker.claim().await;
    assert_eq!(again.id, task.id);
    assert_eq!(worker.report(&task, done()).await, LOST);
    assert_eq!(worker.report(&again, done()).await, Applied::Applied(State::Completed));
    assert_eq!(worker.report(&task, done()).await, LOST);
}

#[tokio::test]
async fn progress_of_a_claim_that_was_forgotten_is_not_taken() {
    let (_server, [first, second], task) = forget_a_claim().await;
    let again = second.claim().await;
    assert_eq!(second.tell_progress(&again, "of the second").await, []);
    assert_eq!(first.tell_progress(&task, "of the first").await, [lease_of(&task)]);
    let progress = first.record(&task.id).await.progress;
    assert_eq!(progress.map(|it| it.note).as_deref(), Some("of the second"));
}

#[tokio::test]
async fn a_claim_that_was_kept_is_good_after_the_restart() {
    let server = RedisServer::start(Keeping::Always);
    let worker = Worker::start(&server, "a").await;
    let id = worker.submit().await;
    let task = worker.claim().await;
    let copy = server.copy_data();
    go_back(&server, &copy, &[&worker]).await;
    assert_eq!(worker.tell_progress(&task, "half").await, []);
    let progress = worker.record(&id).await.progress;
    assert_eq!(progress.map(|it| it.note).as_deref(), Some("half"));
    assert_eq!(worker.report(&task, done()).await, Applied::Applied(State::Completed));
    assert_eq!(worker.report(&task, done()).await, Applied::Already);
}
