//! Many processes on one PostgreSQL: what each of them costs the server while it does nothing, and that
//! none waits for the others.

#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

#[path = "postgres_fleet/pauses.rs"]
mod pauses;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use windlass_core::store::{
    Action, Beat, Bid, ChangeParams, Depth, DocQuery, Duty, IdlePoll, Leadership, Reservation,
    Target, Term, WaitParams, Wake, WorkerCard,
};
use windlass_core::{Store, TaskId, WorkerId};
use windlass_stores::postgres::tokio_postgres::{Client, Config, NoTls};
use windlass_stores::postgres::{PostgresOptions, PostgresStore};
use windlass_testkit::PostgresServer;
use windlass_testkit::draft::{draft, queue};
use windlass_testkit::scene::claim_of;

/// Longer than anything here takes, on a machine that is busy otherwise too.
const WAIT_MAX: Duration = Duration::from_secs(60);
const TERM: Duration = Duration::from_secs(10);
const LEASE: Duration = Duration::from_secs(3_600);
const IDLE_MAX: Duration = Duration::from_millis(500);

/// A schema, and the processes in it.
struct Place {
    url: String,
    schema: String,
    /// A connection behind the stores' backs.
    other: Client,
}

impl Place {
    async fn fresh() -> Self {
        let (server, schema) = (PostgresServer::shared(), PostgresServer::new_schema());
        let url = server.url(&schema);
        let (plain, _) = url.split_once("&schema=").unwrap();
        let config: Config = plain.parse().unwrap();
        let (other, connection) = config.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        let place = Self { url, schema, other };
        place.open("first").await;
        let text = format!("SET search_path TO {}", place.schema);
        place.other.batch_execute(&text).await.unwrap();
        place
    }

    /// What the connections of a process are called.
    fn name(&self, process: &str) -> String {
        format!("{}_{process}", self.schema)
    }

    fn options(&self, process: &str) -> PostgresOptions {
        let url = format!("{}&application_name={}", self.url, self.name(process));
        PostgresOptions::of_url(&url).unwrap().fast()
    }

    async fn open(&self, process: &str) -> Arc<PostgresStore> {
        Arc::new(PostgresStore::open(self.options(process)).await.unwrap())
    }

    /// Waits until a query with the name of a process as its value answers so.
    async fn until(&self, process: &str, text: &str, is_so: impl Fn(i64) -> bool) {
        let looking = async {
            loop {
                let row = self.other.query_one(text, &[&self.name(process)]).await.unwrap();
                if is_so(row.get(0)) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(WAIT_MAX, looking).await.unwrap_or_else(|_| panic!("never: {text}"));
    }
}

const CONNECTIONS: &str = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
const LISTENING: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE application_name = $1 AND query LIKE 'LISTEN%'";
/// Of all, by the session that asks. (`pg_stat_activity` stands still in a transaction.)
const BLOCKED: &str = "SELECT count(*) FROM pg_locks
    WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid)) AND $1::text IS NOT NULL";

/// Must not wait for what another holds.
async fn at_once<T>(call: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), call).await.expect("it waits for a lock")
}

async fn seek(store: &PostgresStore, holder: &str) -> Leadership {
    let bid = Bid::Seek { holder: WorkerId::new(holder), term_length: TERM };
    at_once(store.lead(bid)).await.unwrap()
}

async fn lead(store: &PostgresStore, holder: &str) -> Term {
    match seek(store, holder).await {
        Leadership::Leading(term) => term,
        following => panic!("{following:?}"),
    }
}

fn leader_of(leadership: &Leadership) -> Option<&str> {
    let Leadership::Following { leader, .. } = leadership else { panic!("{leadership:?}") };
    leader.as_ref().map(WorkerId::as_str)
}

fn beat(worker: &str) -> Beat {
    Beat {
        worker: WorkerId::new(worker),
        card: WorkerCard::default(),
        lease: LEASE,
        held: None,
        progress: Vec::new(),
    }
}

async fn submit(store: &PostgresStore) -> TaskId {
    let wanted = vec![Reservation { queue: queue("main"), count: 1 }];
    let id = store.reserve(wanted).await.unwrap().remove(0);
    store.insert(vec![draft().with_id(id.clone())]).await.unwrap();
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seek_while_another_leads_takes_no_lock() {
    let place = Place::fresh().await;
    let (first, second) = (place.open("first").await, place.open("second").await);
    lead(&first, "first").await;
    place.other.batch_execute("BEGIN; SELECT FROM leader FOR UPDATE").await.unwrap();
    assert_eq!(leader_of(&seek(&second, "second").await), Some("first"));
    place.other.batch_execute("COMMIT").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bid_gives_way_to_upkeep_and_leads_after_it() {
    let place = Place::fresh().await;
    let store = place.open("second").await;
    // A step of a leader whose term is over, which has not committed yet.
    place.other.batch_execute("BEGIN; SELECT FROM leader FOR KEY SHARE").await.unwrap();
    assert_eq!(leader_of(&seek(&store, "second").await), None);
    place.other.batch_execute("COMMIT").await.unwrap();
    lead(&store, "second").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_and_steps_of_upkeep_do_not_wait_for_each_other() {
    let place = Place::fresh().await;
    let store = place.open("first").await;
    let term = lead(&store, "first").await;
    place.other.batch_execute("BEGIN; SELECT FROM leader FOR KEY SHARE").await.unwrap();
    let renewed = at_once(store.lead(Bid::Renew { term, term_length: TERM })).await.unwrap();
    assert_eq!(renewed, Leadership::Leading(term));
    place.other.batch_execute("COMMIT; BEGIN; UPDATE leader SET until = until").await.unwrap();
    at_once(store.promote(Duty { term, limit: 10 })).await.unwrap();
    place.other.batch_execute("COMMIT").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_falls_silent_in_a_step_is_replaced() {
    let place = Place::fresh().await;
    let term_lock = include_str!("../sql/postgres/term_lock.sql");
    place.other.batch_execute(&format!("BEGIN; {term_lock};")).await.unwrap();
    // The server ends the silent session, which would hold back every later term.
    let bidding = async {
        let store = place.open("second").await;
        while !matches!(seek(&store, "second").await, Leadership::Leading(_)) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    // Sessions may otherwise be idle in a transaction for 60 s, and this one for ever.
    tokio::time::timeout(WAIT_MAX, bidding).await.expect("somebody should lead");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_process_keeps_two_connections() {
    let place = Place::fresh().await;
    let options = place.options("worker").connection_idle_max(IDLE_MAX);
    let store = Arc::new(PostgresStore::open(options).await.unwrap());
    let heartbeats = store.dedicated().await.unwrap();
    let worker = WorkerId::new("worker");
    heartbeats.beat(beat("worker")).await.unwrap();
    // At work it takes what it needs.
    submit(&store).await;
    let reads: Vec<_> = (0..8)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.queues().await.unwrap() })
        })
        .collect();
    for read in reads {
        read.await.unwrap();
    }
    let claim = store.claim(claim_of(&worker, 5)).await.unwrap();
    assert_eq!(claim.tasks.len(), 1);
    let leader = place.open("leader").await;
    lead(&leader, "leader").await;
    // And then it does what an idle worker does.
    let has_waited = Notify::new();
    let idle = async {
        loop {
            heartbeats.beat(beat("worker")).await.unwrap();
            store.inspect(Depth::Ping).await.unwrap();
            seek(&store, "worker").await;
            let claim = store.claim(claim_of(&worker, 5)).await.unwrap();
            let wait = WaitParams {
                queues: vec![queue("main")],
                since: Some(claim.mark),
                at_most: IDLE_MAX / 5,
                ..WaitParams::default()
            };
            // It wakes once when it begins to listen.
            if store.wait(wait).await.unwrap() == Wake::Work {
                has_waited.notify_one();
            }
        }
    };
    let counted = async {
        has_waited.notified().await;
        place.until("worker", CONNECTIONS, |count| count <= 2).await;
    };
    tokio::select! {
        () = counted => {}
        () = idle => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_does_nothing_keeps_no_connection_and_goes_on_later() {
    let place = Place::fresh().await;
    let options = place.options("client").connection_idle_max(IDLE_MAX);
    let store = PostgresStore::open(options).await.unwrap();
    for _ in 0..2 {
        submit(&store).await;
        place.until("client", CONNECTIONS, |count| count == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_who_wait_for_a_task_share_one_connection() {
    let place = Place::fresh().await;
    let (server, elsewhere) = (place.open("server").await, place.open("elsewhere").await);
    let id = submit(&elsewhere).await;
    let waits: Vec<_> = (0..300)
        .map(|_| {
            let (server, tasks) = (Arc::clone(&server), vec![id.clone()]);
            let params = WaitParams { tasks, at_most: WAIT_MAX, ..WaitParams::default() };
            tokio::spawn(async move { server.wait(params).await.unwrap() })
        })
        .collect();
    place.until("server", LISTENING, |count| count == 1).await;
    let params = ChangeParams {
        target: Target::Tasks(vec![id.clone()]),
        action: Action::Cancel,
        only_in: Vec::new(),
        by: None,
    };
    elsewhere.change(params).await.unwrap();
    for wait in waits {
        assert_eq!(wait.await.unwrap(), Wake::Finished(vec![id.clone()]));
    }
    // One hears, one looks, and the one over which it was opened.
    let row = place.other.query_one(CONNECTIONS, &[&place.name("server")]).await.unwrap();
    assert!(row.get::<_, i64>(0) <= 3, "{} connections", row.get::<_, i64>(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_needs_none_of_the_connections_that_others_use() {
    let place = Place::fresh().await;
    let store = place.open("server").await;
    place.other.batch_execute("BEGIN; LOCK TABLE document").await.unwrap();
    let reads: Vec<_> = (0..20)
        .map(|_| {
            let store = Arc::clone(&store);
            let query = DocQuery::Class { class: "any".into(), after: None, limit: 1 };
            tokio::spawn(async move { store.load(query).await })
        })
        .collect();
    place.until("server", BLOCKED, |count| count == 8).await;
    store.beat(beat("remote")).await.unwrap();
    assert!(!reads.iter().any(|read| read.is_finished()), "it has waited for another");
    place.other.batch_execute("COMMIT").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_cannot_hear_looks_as_often_as_it_was_told() {
    let place = Place::fresh().await;
    let deaf = PostgresStore::open(place.options("deaf").polling()).await.unwrap();
    deaf.beat(beat("worker")).await.unwrap();
    let mark = deaf.claim(claim_of(&WorkerId::new("worker"), 5)).await.unwrap().mark;
    let other = place.open("other").await;
    submit(&other).await;
    let wait = |pause: Duration, at_most: Duration| WaitParams {
        queues: vec![queue("main")],
        since: Some(mark),
        at_most,
        idle_poll: IdlePoll { min: pause, max: pause },
        ..WaitParams::default()
    };
    let seldom = wait(Duration::from_secs(3_600), Duration::from_millis(300));
    assert_eq!(deaf.wait(seldom).await.unwrap(), Wake::TimedOut);
    let often = wait(Duration::from_millis(5), WAIT_MAX);
    assert_eq!(deaf.wait(often).await.unwrap(), Wake::Work);
}

/// A process that listens looks for work itself only every 7.5 to 10 s. The leader wakes it for tasks that nobody has
/// notified it of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_rings_for_tasks_that_were_submitted_quietly() {
    let place = Place::fresh().await;
    let (leader, store) = (place.open("leader").await, place.open("worker").await);
    let term = lead(&leader, "leader").await;
    store.beat(beat("worker")).await.unwrap();
    let mark = async || store.claim(claim_of(&WorkerId::new("worker"), 5)).await.unwrap().mark;
    let wait = |name: &str, since, at_most| WaitParams {
        queues: vec![queue(name)],
        since: Some(since),
        at_most,
        ..WaitParams::default()
    };
    // It rings for every queue when it begins to listen.
    let begun = store.wait(wait("none", mark().await, WAIT_MAX)).await.unwrap();
    assert_eq!(begun, Wake::Work);
    let since = mark().await;
    let text = "SELECT enqueue('mail', queue => 'main', options => '{\"quiet\": true}')";
    place.other.query_one(text, &[]).await.unwrap();
    let promoting = async {
        loop {
            leader.promote(Duty { term, limit: 10 }).await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let rung = async {
        for _ in 0..8 {
            let wake = store.wait(wait("main", since, Duration::from_secs(4))).await.unwrap();
            if wake == Wake::Work {
                return true;
            }
        }
        false
    };
    let is_rung = tokio::select! {
        is_rung = rung => is_rung,
        () = promoting => false,
    };
    assert!(is_rung, "nobody rang within 4 s, eight times");
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_with_a_broker_listens_although_it_waits_for_nothing() {
    use windlass_stores::hybrid::{HybridOptions, HybridStore};
    use windlass_stores::redis::RedisOptions;
    use windlass_testkit::RedisServer;

    let place = Place::fresh().await;
    let prefix = RedisServer::new_prefix();
    let broker = RedisOptions::of_url(&RedisServer::shared().url(&prefix)).unwrap();
    let options = HybridOptions::one(place.options("serve"), broker).unwrap();
    let store = HybridStore::open(options.sweep_every(Duration::from_secs(3_600))).await.unwrap();
    let bid = Bid::Seek { holder: WorkerId::new("serve"), term_length: LEASE };
    let Leadership::Leading(term) = store.lead(bid).await.unwrap() else { panic!("nobody leads") };
    place.until("serve", LISTENING, |count| count == 1).await;
    // The first step compares everything; those behind it push what they hear of.
    let duty = Duty { term, limit: 10 };
    store.promote(duty).await.unwrap();
    place.other.query_one("SELECT enqueue('mail', queue => 'main')", &[]).await.unwrap();
    store.beat(beat("worker")).await.unwrap();
    let claiming = async {
        while store.claim(claim_of(&WorkerId::new("worker"), 5)).await.unwrap().tasks.is_empty() {
            store.promote(duty).await.unwrap();
        }
    };
    tokio::time::timeout(WAIT_MAX, claiming).await.expect("the task should come");
}
