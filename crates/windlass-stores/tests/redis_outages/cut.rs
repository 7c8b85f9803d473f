//! Connections of all types are killed, and scripts forgotten: nothing is lost, and whoever waits is woken
//! as before.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use windlass_core::store::{
    Beat, ClaimParams, Order, Quota, Reservation, RunOrder, WaitParams, Wake, WakeMark, WorkerCard,
};
use windlass_core::{Store, TaskId, WorkerId};
use windlass_testkit::draft::{draft, queue};
use windlass_testkit::servers::redis::Keeping;
use windlass_testkit::{Load, RedisServer};

use crate::restarts::open;

/// Longest that anything is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a connection is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    /// Calls.
    Normal,
    /// Hears what others tell.
    PubSub,
    /// Waits for work.
    Blocked,
}

/// The numbers of the store's connections of a sort.
fn connections(server: &RedisServer, sort: Sort) -> Vec<String> {
    let list = server.operate(&["CLIENT", "LIST"]).unwrap();
    let field = |line: &str, name: &str| {
        line.split(' ').find_map(|field| field.strip_prefix(name)).unwrap_or_default().to_owned()
    };
    let is_of_sort = |line: &&str| {
        let is_own = field(line, "cmd=").starts_with("client");
        let flags = field(line, "flags=");
        let found = match (flags.contains('P'), flags.contains('b')) {
            (true, _) => Sort::PubSub,
            (_, true) => Sort::Blocked,
            (false, false) => Sort::Normal,
        };
        !is_own && found == sort
    };
    let lines = list.lines().filter(|line| line.contains("flags="));
    lines.filter(is_of_sort).map(|line| field(line, "id=")).collect()
}

/// Waits until there is a connection of a sort that is none of those; there is no other signal for it.
async fn appears(server: &RedisServer, sort: Sort, but: &[String]) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = connections(server, sort);
        if found.iter().any(|id| !but.contains(id)) {
            return found;
        }
        assert!(Instant::now() < deadline, "no {sort:?} connection");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Kills the connections of a sort, when there are any; answers which.
async fn kill(server: &RedisServer, sort: Sort) -> Vec<String> {
    let found = appears(server, sort, &[]).await;
    for id in &found {
        // It may have gone by itself.
        server.operate(&["CLIENT", "KILL", "ID", id]).unwrap();
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_connections_and_forgotten_scripts_lose_nothing() {
    let server = RedisServer::start(Keeping::Nothing);
    let load = Load::start(open(&server).await);
    load.goes_on().await;
    for _ in 0..3 {
        // Once may not be enough: a call that nobody waits for, like a poke, may be the one that is hit.
        let cut = async {
            loop {
                let killed = kill(&server, Sort::Normal).await;
                appears(&server, Sort::Normal, &killed).await;
            }
        };
        load.is_hit_during(cut).await;
        for sort in [Sort::PubSub, Sort::Blocked] {
            kill(&server, sort).await;
            load.goes_on().await;
        }
        assert_eq!(server.operate(&["SCRIPT", "FLUSH"]).unwrap(), "+OK\r\n");
        load.goes_on().await;
    }
    load.end().await;
}

fn worker() -> WorkerId {
    WorkerId::new("worker")
}

fn sign() -> Beat {
    Beat {
        worker: worker(),
        card: WorkerCard::default(),
        lease: Duration::from_secs(3_600),
        held: None,
        progress: Vec::new(),
    }
}

/// Waits for work and orders; it must not be left alone with its patience.
async fn wait(store: &dyn Store, mark: WakeMark) {
    let params = WaitParams {
        queues: vec![queue("main")],
        orders: Some(worker()),
        since: Some(mark),
        at_most: PATIENCE,
        ..WaitParams::default()
    };
    assert_ne!(store.wait(params).await.unwrap(), Wake::TimedOut);
}

async fn submit(server: &RedisServer) -> TaskId {
    let store = open(server).await;
    let wanted = vec![Reservation { queue: queue("main"), count: 1 }];
    let id = store.reserve(wanted).await.unwrap().remove(0);
    store.insert(vec![draft().with_id(id.clone())]).await.unwrap();
    id
}

#[tokio::test]
async fn who_waits_for_work_is_woken_after_its_connection_was_killed() {
    let server = RedisServer::start(Keeping::Nothing);
    let store = open(&server).await;
    store.beat(sign()).await.unwrap();
    let waiting: JoinHandle<TaskId> = tokio::spawn(async move {
        loop {
            let quotas = vec![Quota::of(queue("main"), 1)];
            let params = ClaimParams { worker: worker(), quotas, limit: 1, suspects_at_most: 1 };
            let mut claim = store.claim(params).await.unwrap();
            match claim.tasks.pop() {
                Some(task) => return task.id,
                None => wait(&*store, claim.mark).await,
            }
        }
    });
    let killed = kill(&server, Sort::Blocked).await;
    appears(&server, Sort::Blocked, &killed).await;
    let id = submit(&server).await;
    assert_eq!(waiting.await.unwrap(), id);
}

#[tokio::test]
async fn who_waits_for_orders_is_woken_after_its_connection_was_killed() {
    let server = RedisServer::start(Keeping::Nothing);
    let store = open(&server).await;
    store.beat(sign()).await.unwrap();
    let waiting: JoinHandle<()> = tokio::spawn(async move {
        loop {
            let orders = store.beat(sign()).await.unwrap();
            match orders.order {
                RunOrder::Drain => return,
                RunOrder::Run | RunOrder::Pause => wait(&*store, orders.mark).await,
            }
        }
    });
    let killed = kill(&server, Sort::PubSub).await;
    appears(&server, Sort::PubSub, &killed).await;
    let order = Order::Worker { worker: worker(), order: RunOrder::Drain };
    open(&server).await.order(order).await.unwrap();
    waiting.await.unwrap();
}
