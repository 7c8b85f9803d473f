//! Sign-ups in concurrent transactions, half of them rolled back, while the processes that run their
//! tasks are killed: exactly the committed ones have their task run, and the rows of its handler exist
//! exactly once.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use windlass::core::config::Config;
use windlass::core::store::{Depth, Severity};
use windlass::prelude::*;
use windlass::tokio_postgres::{self, NoTls};
use windlass_testkit::PostgresServer;
use windlass_testkit::fleet::SHORT_LEASE;

/// How many sign up; `WINDLASS_SIGNUPS` says otherwise.
const SIGNUPS: i64 = 1_500;
/// Transactions at once.
const CONNECTIONS: usize = 16;
/// Longest until everything has run, the leases of the killed included.
const DRAIN_MAX: Duration = Duration::from_secs(120);

#[derive(Serialize, Deserialize)]
struct Welcome {
    user: i64,
}

impl Task for Welcome {
    const KIND: &'static str = "welcome";
    type Output = ();
}

/// Where the worker processes find the store.
const PLACE: &str = "WINDLASS_SIGNUPS_URL";

async fn connect() -> tokio_postgres::Client {
    let url = std::env::var(PLACE).unwrap_or_else(|_| PostgresServer::shared().url(schema()));
    let config: tokio_postgres::Config = url.split_once("&schema=").unwrap().0.parse().unwrap();
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn schema() -> &'static str {
    static SCHEMA: OnceLock<String> = OnceLock::new();
    SCHEMA.get_or_init(PostgresServer::new_schema)
}

async fn welcome(task: Welcome, cx: Context<()>) -> Outcome<()> {
    let mut connection = connect().await;
    let tx = connection.transaction().await?;
    tx.execute("INSERT INTO welcomed (user_id) VALUES ($1)", &[&task.user]).await?;
    cx.complete_within(&tx, &()).await?;
    // Some are killed here.
    tokio::task::yield_now().await;
    tx.commit().await?;
    Ok(())
}

/// What a process does that will be killed; it is gone when its input is closed.
async fn work(url: &str) {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(3);
    });
    let store = windlass::open(url).await.unwrap();
    let client = Client::with_config(store, Config::parse(SHORT_LEASE).unwrap());
    client.worker().handle(welcome).concurrency(8).run().await.unwrap();
}

/// This same test, as a process that works.
fn start_worker(url: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "exactly_the_committed_signups_are_welcomed_exactly_once", "--nocapture"])
        .env(PLACE, url)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_the_committed_signups_are_welcomed_exactly_once() {
    if let Ok(url) = std::env::var(PLACE) {
        return work(&url).await;
    }
    let signups = std::env::var("WINDLASS_SIGNUPS").map_or(SIGNUPS, |text| text.parse().unwrap());
    let url = PostgresServer::shared().url(schema());
    let client = windlass::connect(&url).await.unwrap();
    let setup = "CREATE TABLE users (id int8 PRIMARY KEY); CREATE TABLE welcomed (user_id int8)";
    connect().await.batch_execute(setup).await.unwrap();

    let is_over = Arc::new(AtomicBool::new(false));
    let killer = {
        let (url, is_over) = (url.clone(), Arc::clone(&is_over));
        tokio::task::spawn_blocking(move || {
            let (mut kills, mut workers) = (0, vec![start_worker(&url), start_worker(&url)]);
            while !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(700));
                let mut oldest = workers.remove(0);
                oldest.kill().unwrap();
                oldest.wait().unwrap();
                kills += 1;
                workers.push(start_worker(&url));
            }
            (kills, workers)
        })
    };

    let next = Arc::new(AtomicI64::new(0));
    let visitors: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let (next, client) = (Arc::clone(&next), client.clone());
            tokio::spawn(async move {
                let mut connection = connect().await;
                loop {
                    let user = next.fetch_add(1, Ordering::Relaxed);
                    if user >= signups {
                        return;
                    }
                    let tx = connection.transaction().await.unwrap();
                    tx.execute("INSERT INTO users (id) VALUES ($1)", &[&user]).await.unwrap();
                    let submit =
                        client.enqueue(Welcome { user }).idempotency_key(&user.to_string());
                    submit.within(&tx).await.unwrap();
                    match user % 2 {
                        0 => tx.commit().await.unwrap(),
                        _ => tx.rollback().await.unwrap(),
                    }
                }
            })
        })
        .collect();
    for visitor in visitors {
        visitor.await.unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    let (kills, mut workers) = killer.await.unwrap();
    assert!(kills >= 1, "somebody should have been killed");

    let watcher = connect().await;
    let open = format!(
        "SELECT coalesce(sum(pending + running + retrying + scheduled), 0)::int8 FROM {}.counts",
        schema()
    );
    let started = Instant::now();
    while watcher.query_one(&open, &[]).await.unwrap().get::<_, i64>(0) > 0 {
        assert!(started.elapsed() < DRAIN_MAX, "tasks are left");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for worker in &mut workers {
        worker.kill().unwrap();
        worker.wait().unwrap();
    }

    let differences = "SELECT count(*) FROM
        (SELECT id, 1::int8 AS times FROM users
         EXCEPT SELECT user_id, count(*) FROM welcomed GROUP BY 1) AS missing";
    assert_eq!(watcher.query_one(differences, &[]).await.unwrap().get::<_, i64>(0), 0);
    let count = "SELECT (SELECT count(*) FROM users), (SELECT count(*) FROM welcomed)";
    let row = watcher.query_one(count, &[]).await.unwrap();
    assert_eq!((row.get(0), row.get(1)), ((signups + 1) / 2, (signups + 1) / 2));
    let inspection = client.store().inspect(Depth::Full).await.unwrap();
    let is_wrong = |subject| matches!(subject, "counters" | "places");
    for finding in inspection.findings.iter().filter(|finding| is_wrong(finding.subject)) {
        assert_eq!(finding.severity, Severity::Info, "{finding:?}");
    }
}
