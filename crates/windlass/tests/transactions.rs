//! Submits and completions inside the caller's own SQLite transactions.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::core::store::{
    Beat, ClaimParams, Depth, Finding, Quota, Severity, WaitParams, Wake, WorkerCard,
};
use windlass::core::{QueueName, State, WorkerId};
use windlass::prelude::*;
use windlass::rusqlite::{Connection, Transaction, TransactionBehavior};
use windlass::{Client, Error, ErrorKind};

/// Far less than the 30 seconds after which a wait that missed its wake-up looks again.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Serialize, Deserialize)]
struct Ship(i64);

impl Task for Ship {
    const KIND: &'static str = "ship";
    type Output = i64;
}

async fn ship(task: Ship, _cx: Context<()>) -> Outcome<i64> {
    Ok(task.0)
}

/// A file with a store and a table of the application's.
struct Shop {
    client: Client,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Shop {
    async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shop.db");
        let client = windlass::connect(&format!("sqlite:{}", path.display())).await.unwrap();
        let shop = Self { client, path, _folder: folder };
        shop.connect().execute_batch("CREATE TABLE shipped (item INTEGER)").unwrap();
        shop
    }

    fn connect(&self) -> Connection {
        Connection::open(&self.path).unwrap()
    }

    fn shipped(&self) -> i64 {
        let count = "SELECT count(*) FROM shipped";
        self.connect().query_row(count, [], |row| row.get(0)).unwrap()
    }

    /// Counters, keys and indexes agree with the tasks.
    async fn check_books(&self) {
        let inspection = self.client.store().inspect(Depth::Full).await.unwrap();
        let is_fine = |finding: &Finding| finding.severity == Severity::Info;
        assert!(inspection.findings.iter().all(is_fine), "{:?}", inspection.findings);
    }
}

fn begin(connection: &mut Connection) -> Transaction<'_> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap()
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("in time")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_makes_the_task_and_a_worker_runs_it() {
    let shop = Shop::open().await;
    let worker = shop.client.worker().handle(ship).start().await.unwrap();
    let handle = {
        let mut connection = shop.connect();
        let tx = begin(&mut connection);
        let handle = shop.client.enqueue(Ship(2)).within(&tx).unwrap();
        tx.commit().unwrap();
        handle
    };
    assert!(handle.is_new());
    assert_eq!(soon(handle.wait()).await.unwrap(), 2);
    worker.stop().await.unwrap();
    shop.check_books().await;
}

#[tokio::test]
async fn a_commit_wakes_those_who_wait_for_work() {
    let shop = Shop::open().await;
    let (store, worker) = (shop.client.store(), WorkerId::new("waiting"));
    let (card, lease) = (WorkerCard::default(), PATIENCE);
    let beat = Beat { worker: worker.clone(), card, lease, held: None, progress: Vec::new() };
    store.beat(beat).await.unwrap();
    let quotas = vec![Quota::of(QueueName::new("default").unwrap(), 1)];
    let claim = ClaimParams { worker, quotas, limit: 1, suspects_at_most: 1 };
    let nothing = store.claim(claim).await.unwrap();
    let wait = store.wait(WaitParams {
        queues: vec![QueueName::new("default").unwrap()],
        since: Some(nothing.mark),
        at_most: PATIENCE,
        ..WaitParams::default()
    });
    let commit = async {
        let mut connection = shop.connect();
        let tx = begin(&mut connection);
        shop.client.enqueue(Ship(1)).within(&tx).unwrap();
        tx.commit().unwrap();
    };
    // In this order: the wait has begun when the transaction commits.
    let (wake, ()) = tokio::join!(biased; wait, commit);
    assert!(matches!(wake.unwrap(), Wake::Work));
}

#[tokio::test]
async fn a_rollback_leaves_nothing() {
    let shop = Shop::open().await;
    let mut connection = shop.connect();
    let handle = {
        let tx = begin(&mut connection);
        shop.client.enqueue(Ship(1)).unique("one").within(&tx).unwrap()
    };
    assert_eq!(handle.record().await.unwrap_err().kind(), ErrorKind::NotFound);
    shop.check_books().await;
    let tx = begin(&mut connection);
    shop.client.enqueue(Ship(1)).unique("one").within(&tx).expect("the key is free again");
}

#[tokio::test]
async fn a_deferred_transaction_will_do_and_several_tasks_fit_into_one() {
    let shop = Shop::open().await;
    let mut connection = shop.connect();
    let tx = connection.transaction().unwrap();
    let submit = |number| shop.client.enqueue(Ship(number)).within(&tx).unwrap();
    let handles: Vec<_> = (0..3).map(submit).collect();
    assert_eq!(handles[0].record().await.unwrap_err().kind(), ErrorKind::NotFound);
    tx.commit().unwrap();
    for handle in handles {
        assert_eq!(handle.record().await.unwrap().state, State::Pending);
    }
    shop.check_books().await;
}

#[tokio::test]
async fn a_refused_submit_leaves_the_transaction_as_it_was() {
    let shop = Shop::open().await;
    shop.client.enqueue(Ship(1)).unique("one").await.unwrap();
    let mut connection = shop.connect();
    let tx = begin(&mut connection);
    tx.execute("INSERT INTO shipped VALUES (7)", []).unwrap();
    let error = shop.client.enqueue(Ship(2)).unique("one").within(&tx).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let same = shop.client.enqueue(Ship(2)).unique("one").or_existing().within(&tx).unwrap();
    assert!(!same.is_new());
    tx.commit().unwrap();
    assert_eq!(shop.shipped(), 1);
    shop.check_books().await;
}

#[tokio::test]
async fn a_transaction_elsewhere_is_refused() {
    let shop = Shop::open().await;
    let refused = |client: &Client, connection: &mut Connection| {
        let tx = connection.transaction().unwrap();
        client.enqueue(Ship(1)).within(&tx).unwrap_err().kind()
    };
    let mut elsewhere = Connection::open_in_memory().unwrap();
    assert_eq!(refused(&shop.client, &mut elsewhere), ErrorKind::Invalid);
    for url in ["memory:", "sqlite::memory:"] {
        let client = windlass::connect(url).await.unwrap();
        assert_eq!(refused(&client, &mut shop.connect()), ErrorKind::Unsupported, "{url}");
    }
}

#[tokio::test]
async fn a_schema_that_is_not_known_is_refused() {
    let shop = Shop::open().await;
    let mut connection = shop.connect();
    connection.execute_batch("UPDATE windlass_meta SET version = 1000").unwrap();
    let tx = begin(&mut connection);
    let error = shop.client.enqueue(Ship(1)).within(&tx).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("newer windlass"), "{error}");
}

/// Ships inside a transaction of its own; what it does at the end is up to the test.
fn ship_within(path: &PathBuf, task: &Ship, cx: &Context<PathBuf>, keep: bool) -> Outcome<()> {
    let mut connection = Connection::open(path)?;
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute("INSERT INTO shipped VALUES (?1)", [task.0])?;
    cx.complete_within(&tx, &task.0)?;
    cx.complete_within(&tx, &task.0)?;
    if keep {
        tx.commit()?;
    }
    Ok(())
}

#[tokio::test]
async fn a_commit_keeps_the_handlers_writes_and_its_completion_without_a_warning() {
    let warnings = warnings::watch();
    let shop = Shop::open().await;
    fn handler(task: Ship, cx: Context<PathBuf>) -> Outcome<i64> {
        ship_within(cx.state(), &task, &cx, true)?;
        Ok(task.0)
    }
    let worker = shop.client.worker().state(shop.path.clone()).handle_blocking(handler);
    let worker = worker.start().await.unwrap();
    let handle = shop.client.enqueue(Ship(5)).await.unwrap();
    assert_eq!(soon(handle.wait()).await.unwrap(), 5);
    worker.stop().await.unwrap();
    let task = handle.record().await.unwrap();
    assert_eq!((task.state, task.attempts, shop.shipped()), (State::Completed, 1, 1));
    shop.check_books().await;
    assert_eq!(warnings.count(), 0);
}

#[tokio::test]
async fn a_commit_counts_also_when_the_handler_fails_afterwards() {
    let shop = Shop::open().await;
    fn handler(task: Ship, cx: Context<PathBuf>) -> Outcome<i64> {
        ship_within(cx.state(), &task, &cx, true)?;
        Err("too late to fail".into())
    }
    let worker = shop.client.worker().state(shop.path.clone()).handle_blocking(handler);
    let worker = worker.start().await.unwrap();
    let handle = shop.client.enqueue(Ship(5)).await.unwrap();
    assert_eq!(soon(handle.wait()).await.unwrap(), 5);
    worker.stop().await.unwrap();
    assert_eq!(handle.record().await.unwrap().state, State::Completed);
    assert_eq!(shop.shipped(), 1);
}

#[tokio::test]
async fn after_a_rollback_the_task_ends_as_the_handler_says() {
    let shop = Shop::open().await;
    fn handler(task: Ship, cx: Context<PathBuf>) -> Outcome<i64> {
        ship_within(cx.state(), &task, &cx, false)?;
        if task.0 == 1 {
            return Err(discard("changed my mind"));
        }
        Ok(10 * task.0)
    }
    let worker = shop.client.worker().state(shop.path.clone()).handle_blocking(handler);
    let worker = worker.start().await.unwrap();
    let failing = shop.client.enqueue(Ship(1)).await.unwrap();
    let fine = shop.client.enqueue(Ship(2)).await.unwrap();
    assert!(soon(failing.wait()).await.unwrap_err().chain().contains("changed my mind"));
    assert_eq!(soon(fine.wait()).await.unwrap(), 20);
    worker.stop().await.unwrap();
    assert_eq!(shop.shipped(), 0);
    shop.check_books().await;
}

/// The first run outlives its timeout and completes when told to; later runs just end.
struct Late {
    path: PathBuf,
    was_here: AtomicBool,
    go: Mutex<mpsc::Receiver<()>>,
    said: mpsc::Sender<Error>,
}

fn late(task: Ship, cx: Context<Late>) -> Outcome<i64> {
    let late = cx.state();
    if late.was_here.swap(true, Ordering::SeqCst) {
        return Ok(2);
    }
    late.go.lock().unwrap().recv()?;
    let mut connection = Connection::open(&late.path)?;
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute("INSERT INTO shipped VALUES (?1)", [task.0])?;
    if let Err(error) = cx.complete_within(&tx, &1_i64) {
        late.said.send(error)?;
        return Err("rolled back".into());
    }
    tx.commit()?;
    Ok(1)
}

async fn a_late_completion_is_refused(is_run_again: bool) {
    let warnings = warnings::watch();
    let shop = Shop::open().await;
    let ((start, go), (said, heard)) = (mpsc::channel(), mpsc::channel());
    let state = Late { path: shop.path.clone(), was_here: false.into(), go: go.into(), said };
    let worker = shop.client.worker().state(state).handle_blocking(late).concurrency(2);
    let worker = worker.start().await.unwrap();
    let submit = shop.client.enqueue(Ship(1)).max_retries(0).timeout(Duration::from_millis(50));
    let handle = submit.await.unwrap();
    soon(handle.wait()).await.expect_err("it times out");
    if is_run_again {
        shop.client.rerun(handle.id()).await.unwrap();
        assert_eq!(soon(handle.wait()).await.unwrap(), 2);
    }
    start.send(()).unwrap();
    let error = tokio::task::spawn_blocking(move || heard.recv_timeout(PATIENCE)).await.unwrap();
    let error = error.expect("the completion is refused");
    assert_eq!(error.kind(), ErrorKind::LeaseLost);
    worker.stop().await.unwrap();
    assert_eq!(shop.shipped(), 0);
    assert!(warnings.count() > 0, "the dead letter is worth a warning");
    let expected = if is_run_again { State::Completed } else { State::DeadLetter };
    assert_eq!(handle.record().await.unwrap().state, expected);
    shop.check_books().await;
}

#[tokio::test]
async fn a_run_that_timed_out_cannot_complete() {
    a_late_completion_is_refused(false).await;
}

#[tokio::test]
async fn a_run_that_another_run_has_followed_cannot_complete() {
    a_late_completion_is_refused(true).await;
}

/// Counts warnings and errors of this thread.
mod warnings {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    pub(super) struct Watch {
        seen: Arc<AtomicUsize>,
        _guard: tracing::subscriber::DefaultGuard,
    }

    struct Counter(Arc<AtomicUsize>);

    pub(super) fn watch() -> Watch {
        let seen = Arc::new(AtomicUsize::new(0));
        let guard = tracing::subscriber::set_default(Counter(Arc::clone(&seen)));
        Watch { seen, _guard: guard }
    }

    impl Watch {
        pub(super) fn count(&self) -> usize {
            self.seen.load(Ordering::SeqCst)
        }
    }

    impl Subscriber for Counter {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() <= Level::WARN
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }
}
