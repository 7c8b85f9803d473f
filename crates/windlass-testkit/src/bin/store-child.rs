//! A process that uses a store, for tests of what several processes do to one store, and of what a
//! process finds on a disk that is full or cannot be written.
//!
//! `store-child WHAT URL [COUNT]` prints one line per fact; a failure is `error KIND REASON TEXT`,
//! with exit code 1.

#![expect(clippy::print_stdout, reason = "the lines are its answers")]
#![expect(clippy::unwrap_used, reason = "a test's process says what it expected by panicking")]

use std::sync::Arc;
use std::time::Duration;

use windlass_core::dice::Dice;
use windlass_core::retry::Backoff;
use windlass_core::state::finish;
use windlass_core::store::{
    Applied, ApplyParams, Beat, ClaimParams, Depth, Quota, Reservation, WaitParams, WorkerCard,
};
use windlass_core::{Claimed, Ending, Error, Result, State, Store, WorkerId};
use windlass_testkit::draft::{MAIN, draft, queue};

const LEASE: Duration = Duration::from_secs(60);
const BATCH: usize = 10;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (what, url) = (arguments[0].as_str(), arguments[1].as_str());
    let count = arguments.get(2).map_or(0, |count| count.parse().unwrap());
    if let Err(error) = run(what, url, count).await {
        report(&error);
        std::process::exit(1);
    }
}

async fn run(what: &str, url: &str, count: usize) -> Result<()> {
    let store = windlass_stores::open(url).await?;
    println!("open");
    match what {
        "open" => Ok(()),
        "insert" => insert(&store, count).await,
        "singles" => singles(&store, count).await,
        "fill" => fill(&store).await,
        "drain" => drain(&store, count).await,
        "wait" => wait(&store).await,
        other => panic!("no such command: {other}"),
    }
}

/// Inserts tasks and prints each id after its commit.
async fn insert(store: &Arc<dyn Store>, count: usize) -> Result<()> {
    for _ in 0..count.div_ceil(BATCH) {
        insert_batch(store, BATCH.min(count)).await?;
    }
    Ok(())
}

/// Inserts tasks, each in a commit of its own.
async fn singles(store: &Arc<dyn Store>, count: usize) -> Result<()> {
    for _ in 0..count {
        insert_batch(store, 1).await?;
    }
    Ok(())
}

/// Inserts tasks until the store refuses, then shows that it still answers.
async fn fill(store: &Arc<dyn Store>) -> Result<()> {
    loop {
        if let Err(error) = insert_batch(store, BATCH).await {
            report(&error);
            break;
        }
    }
    let counted: u64 = store.queues().await?.iter().map(|queue| queue.counts.total()).sum();
    println!("counted {counted}");
    for depth in [Depth::Ping, Depth::Full] {
        let inspection = store.inspect(depth).await?;
        let worst = inspection.findings.iter().map(|finding| finding.severity).max();
        println!("writable {} {worst:?}", inspection.is_writable());
    }
    Ok(())
}

async fn insert_batch(store: &Arc<dyn Store>, count: usize) -> Result<()> {
    let ids = store.reserve(vec![Reservation { queue: queue(MAIN), count }]).await?;
    let tasks =
        ids.iter().map(|id| draft().payload(vec![b'x'; 2_000]).with_id(id.clone())).collect();
    for (id, inserted) in ids.iter().zip(store.insert(tasks).await?) {
        assert!(inserted.is_new(), "{id}: {inserted:?}");
        println!("inserted {id}");
    }
    Ok(())
}

/// Claims and completes until `count` tasks of the queue are finished, by whomever.
async fn drain(store: &Arc<dyn Store>, count: usize) -> Result<()> {
    let worker = register(store).await?;
    loop {
        let claim = store.claim(claim_of(&worker)).await?;
        if claim.tasks.is_empty() {
            let finished: u64 =
                store.queues().await?.iter().map(|q| q.counts.get(State::Completed)).sum();
            if finished >= count as u64 {
                return Ok(());
            }
            let params = WaitParams {
                queues: vec![queue(MAIN)],
                since: Some(claim.mark),
                at_most: Duration::from_millis(200),
                ..WaitParams::default()
            };
            store.wait(params).await?;
            continue;
        }
        complete(store, &worker, &claim.tasks).await?;
    }
}

async fn complete(store: &Arc<dyn Store>, worker: &WorkerId, tasks: &[Claimed]) -> Result<()> {
    let mut dice = Dice::seeded(1);
    let completed = || Ending::Completed { result: None };
    let end = |task| finish(task, completed(), &Backoff::default(), &mut dice);
    let transitions = tasks.iter().map(end).collect();
    let params = ApplyParams { worker: worker.clone(), transitions, then_claim: None };
    for (task, applied) in tasks.iter().zip(store.apply(params).await?.outcomes) {
        assert_eq!(applied, Applied::Applied(State::Completed), "{}", task.id);
        println!("completed {} {}", task.id, task.epoch);
    }
    Ok(())
}

/// Finds nothing, waits for work that another process brings, and claims it.
async fn wait(store: &Arc<dyn Store>) -> Result<()> {
    let worker = register(store).await?;
    let claim = store.claim(claim_of(&worker)).await?;
    assert!(claim.tasks.is_empty(), "there is work already");
    println!("waiting");
    let params = WaitParams {
        queues: vec![queue(MAIN)],
        since: Some(claim.mark),
        at_most: Duration::from_secs(60),
        ..WaitParams::default()
    };
    let wake = store.wait(params).await?;
    println!("woken {wake:?} {}", store.claim(claim_of(&worker)).await?.tasks.len());
    Ok(())
}

async fn register(store: &Arc<dyn Store>) -> Result<WorkerId> {
    let worker = WorkerId::new(format!("child-{}", std::process::id()));
    let card = WorkerCard::default();
    let beat =
        Beat { worker: worker.clone(), card, lease: LEASE, held: None, progress: Vec::new() };
    store.beat(beat).await?;
    Ok(worker)
}

fn claim_of(worker: &WorkerId) -> ClaimParams {
    ClaimParams {
        worker: worker.clone(),
        quotas: vec![Quota::of(queue(MAIN), BATCH)],
        limit: BATCH,
        suspects_at_most: 1,
    }
}

fn report(error: &Error) {
    println!("error {:?} {:?} {}", error.kind(), error.reason(), error.chain());
}
