//! Two callers in an order that chance hardly ever brings about: the test holds the lock at which one of
//! them has to wait.

#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::sync::Arc;
use std::time::Duration;

use windlass_core::store::{
    Action, Beat, ChangeParams, GetParams, Parts, Reservation, Target, WorkerCard,
};
use windlass_core::{State, Store, TaskId, WorkerId, history};
use windlass_stores::postgres::tokio_postgres::{Client, Config, NoTls};
use windlass_testkit::PostgresServer;
use windlass_testkit::draft::{draft, queue};
use windlass_testkit::scene::claim_of;

/// Somebody waits for a lock of the session that asks. (`pg_stat_activity` stands still in a transaction.)
const IS_ANYBODY_WAITING: &str = "SELECT EXISTS (
    SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid)))";
const WAIT_MAX: Duration = Duration::from_secs(30);

struct Stage {
    store: Arc<dyn Store>,
    /// A connection behind the store's back.
    other: Client,
    worker: WorkerId,
    task: TaskId,
}

impl Stage {
    /// A worker, and a task for it.
    async fn set() -> Self {
        let (server, schema) = (PostgresServer::shared(), PostgresServer::new_schema());
        let store = windlass_stores::open(&server.tcp_url(&schema)).await.unwrap();
        let url = server.url(&schema);
        let (plain, _) = url.split_once("&schema=").unwrap();
        let config: Config = plain.parse().unwrap();
        let (other, connection) = config.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        other.batch_execute(&format!("SET search_path TO {schema}")).await.unwrap();
        let worker = WorkerId::new("worker");
        let beat = Beat {
            worker: worker.clone(),
            card: WorkerCard::default(),
            lease: Duration::from_secs(3_600),
            held: None,
            progress: Vec::new(),
        };
        store.beat(beat).await.unwrap();
        let wanted = vec![Reservation { queue: queue("main"), count: 1 }];
        let task = store.reserve(wanted).await.unwrap().remove(0);
        store.insert(vec![draft().with_id(task.clone())]).await.unwrap();
        Self { store, other, worker, task }
    }

    /// Waits until somebody waits for what the other connection has locked.
    async fn somebody_waits(&self) {
        let looking = async {
            while !self.other.query_one(IS_ANYBODY_WAITING, &[]).await.unwrap().get::<_, bool>(0) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(WAIT_MAX, looking).await.expect("somebody should wait");
    }

    async fn state(&self) -> State {
        let params = GetParams { ids: vec![self.task.clone()], parts: Parts::NONE };
        self.store.get(params).await.unwrap()[0].as_ref().unwrap().state
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_waits_for_whoever_declares_its_worker_lost_and_then_gets_nothing() {
    let stage = Stage::set().await;
    let lose = "BEGIN; SELECT FROM worker WHERE id = 'worker' FOR UPDATE;
        UPDATE worker SET gone_at = 1 WHERE id = 'worker'";
    stage.other.batch_execute(lose).await.unwrap();
    let (store, wish) = (Arc::clone(&stage.store), claim_of(&stage.worker, 5));
    let claiming = tokio::spawn(async move { store.claim(wish).await });
    stage.somebody_waits().await;
    stage.other.batch_execute("COMMIT").await.unwrap();
    let error = claiming.await.unwrap().expect_err("the worker is lost");
    assert!(error.is_lease_lost(), "{error:?}");
    assert_eq!(stage.state().await, State::Pending);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_passes_by_what_somebody_else_takes_at_this_moment() {
    let stage = Stage::set().await;
    stage.other.batch_execute("BEGIN; SELECT FROM ready FOR UPDATE").await.unwrap();
    let claimed = stage.store.claim(claim_of(&stage.worker, 5)).await.unwrap().tasks;
    assert!(claimed.is_empty(), "{claimed:?}");
    stage.other.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(stage.store.claim(claim_of(&stage.worker, 5)).await.unwrap().tasks.len(), 1);
}

/// What a claim does, by hand.
const CLAIM: &str = "WITH gone AS (DELETE FROM ready RETURNING *)
    INSERT INTO lease (token, claimed_at, worker, los, positions, sinces, ranges)
    SELECT nextval('token_seq') * 2, clock(NULL), w.number, ARRAY[g.lo], ARRAY[g.position],
        ARRAY[g.since], int8multirange(int8range(g.lo, g.hi, '[]'))
    FROM gone AS g CROSS JOIN worker AS w";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_that_waited_for_a_claim_is_told_after_it() {
    let stage = Stage::set().await;
    stage.other.batch_execute("BEGIN; SELECT FROM ready FOR UPDATE").await.unwrap();
    let params = ChangeParams {
        target: Target::Tasks(vec![stage.task.clone()]),
        action: Action::Cancel,
        only_in: Vec::new(),
        by: None,
    };
    let store = Arc::clone(&stage.store);
    let cancelling = tokio::spawn(async move { store.change(params).await });
    stage.somebody_waits().await;
    // The clock of the store goes on meanwhile.
    stage.other.batch_execute("SELECT pg_sleep(0.02)").await.unwrap();
    stage.other.batch_execute(CLAIM).await.unwrap();
    stage.other.batch_execute("COMMIT").await.unwrap();
    cancelling.await.unwrap().unwrap();
    let params = GetParams { ids: vec![stage.task.clone()], parts: Parts::ALL };
    let record = stage.store.get(params).await.unwrap().remove(0).unwrap();
    assert!(record.is_cancel_requested, "{record:#?}");
    let timeline = history::timeline(&record);
    assert!(timeline.is_sorted_by_key(|entry| entry.at), "{timeline:#?}");
}
