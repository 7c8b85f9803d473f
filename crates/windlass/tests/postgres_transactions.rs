//! Submits and completions inside the caller's own PostgreSQL transactions.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

#[path = "postgres_transactions/completions.rs"]
mod completions;
#[path = "postgres_transactions/names.rs"]
mod names;
#[path = "postgres_transactions/shop.rs"]
mod shop;
#[path = "postgres_transactions/sql.rs"]
mod sql;
#[path = "postgres_transactions/views.rs"]
mod views;

use std::time::Duration;

use windlass::core::store::{Changed, WaitParams, Wake};
use windlass::core::{QueueName, State};
use windlass::prelude::*;
use windlass::{ErrorKind, tokio_postgres};

use shop::{Ship, Shop, ship, soon};

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_makes_the_task_and_a_worker_runs_it() {
    let shop = Shop::open().await;
    let worker = shop.client.worker().handle(ship).start().await.unwrap();
    let mut connection = shop.connect().await;
    let tx = connection.transaction().await.unwrap();
    let handle = shop.client.enqueue(Ship(2)).within(&tx).await.unwrap();
    assert!(handle.is_new());
    assert!(
        shop.client.get(handle.id()).await.unwrap().is_none(),
        "nobody sees it before the commit"
    );
    tx.commit().await.unwrap();
    assert_eq!(soon(handle.wait()).await.unwrap(), 2);
    worker.stop().await.unwrap();
    shop.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_makes_the_task_behind_a_broker_too_and_a_quiet_one_is_found() {
    let shop = Shop::open_behind_a_broker().await;
    let worker = shop.client.worker().handle(ship).start().await.unwrap();
    let mut connection = shop.connect().await;
    let tx = connection.transaction().await.unwrap();
    let loud = shop.client.enqueue(Ship(2)).within(&tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(soon(loud.wait()).await.unwrap(), 2);
    let tx = connection.transaction().await.unwrap();
    let quiet = shop.client.enqueue(Ship(3)).within(&tx).quiet().await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(soon(quiet.wait()).await.unwrap(), 3);
    worker.stop().await.unwrap();
    shop.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_with_sqlx_makes_the_task_too() {
    let shop = Shop::open().await;
    let worker = shop.client.worker().handle(ship).start().await.unwrap();
    let mut connection = shop.connect_sqlx().await;
    let mut tx = windlass::sqlx::Connection::begin(&mut connection).await.unwrap();
    let handle = shop.client.enqueue(Ship(3)).within(&mut *tx).await.unwrap();
    let rolled_back = shop.client.enqueue(Ship(4)).unique("four").within(&mut *tx).quiet().await;
    assert!(rolled_back.unwrap().is_new());
    tx.commit().await.unwrap();
    assert_eq!(soon(handle.wait()).await.unwrap(), 3);
    worker.stop().await.unwrap();
    shop.check_books().await;
}

#[tokio::test]
async fn a_rollback_leaves_nothing_behind_not_even_a_key_or_a_name() {
    let shop = Shop::open().await;
    let mut connection = shop.connect().await;
    let tx = connection.transaction().await.unwrap();
    let submit =
        || shop.client.enqueue(Ship(1)).queue("never-seen").unique("one").idempotency_key("i");
    let lost = submit().within(&tx).await.unwrap();
    tx.rollback().await.unwrap();
    assert!(shop.client.get(lost.id()).await.unwrap().is_none());
    let kept = submit().await.unwrap();
    assert!(kept.is_new());
    assert_eq!(shop.client.get(kept.id()).await.unwrap().unwrap().queue.as_str(), "never-seen");
    shop.check_books().await;
}

#[tokio::test]
async fn the_callers_session_is_left_as_it_was() {
    let shop = Shop::open().await;
    let mut connection = shop.connect().await;
    connection
        .batch_execute("CREATE TEMP TABLE task (seq int); SET search_path TO pg_temp, public")
        .await
        .unwrap();
    let tx = connection.transaction().await.unwrap();
    shop.client.enqueue(Ship(1)).within(&tx).await.unwrap();
    let told = "SELECT current_setting('search_path'), current_setting('enable_seqscan'),
        (SELECT count(*) FROM task)";
    let row = tx.query_one(told, &[]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), "pg_temp, public");
    assert_eq!(row.get::<_, &str>(1), "on");
    assert_eq!(row.get::<_, i64>(2), 0, "a table of the caller's is not taken for ours");
    tx.commit().await.unwrap();
    shop.check_books().await;
}

#[tokio::test]
async fn a_savepoint_that_is_rolled_back_takes_its_task_with_it() {
    let shop = Shop::open().await;
    let mut connection = shop.connect().await;
    let mut tx = connection.transaction().await.unwrap();
    let kept = shop.client.enqueue(Ship(1)).within(&tx).await.unwrap();
    let point = tx.transaction().await.unwrap();
    let lost = shop.client.enqueue(Ship(2)).within(&point).await.unwrap();
    point.rollback().await.unwrap();
    tx.commit().await.unwrap();
    assert!(shop.client.get(kept.id()).await.unwrap().is_some());
    assert!(shop.client.get(lost.id()).await.unwrap().is_none());
    shop.check_books().await;
}

#[tokio::test]
async fn a_conflict_is_told_and_the_transaction_goes_on() {
    let shop = Shop::open().await;
    let first = shop.client.enqueue(Ship(1)).unique("one").await.unwrap();
    let same = shop.client.enqueue(Ship(5)).idempotency_key("five").await.unwrap();
    let mut connection = shop.connect().await;
    let tx = connection.transaction().await.unwrap();
    let refused = shop.client.enqueue(Ship(2)).unique("one").within(&tx).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert!(refused.to_string().contains(first.id().as_str()), "{refused}");
    let found = shop.client.enqueue(Ship(5)).idempotency_key("five").within(&tx).await.unwrap();
    assert_eq!((found.id(), found.is_new()), (same.id(), false));
    let other = shop.client.enqueue(Ship(6)).idempotency_key("five").within(&tx).await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Invalid);
    let kept = shop.client.enqueue(Ship(3)).within(&tx).await.unwrap();
    tx.commit().await.unwrap();
    assert!(shop.client.get(kept.id()).await.unwrap().is_some());
    shop.check_books().await;
}

/// Waiting submits are seen in the server, so nothing here depends on time.
async fn wait_until_blocked(shop: &Shop, count: i64) {
    let watcher = shop.connect().await;
    let text = "SELECT count(*) FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
        WHERE NOT l.granted AND l.locktype = 'advisory' AND a.application_name = $1";
    while watcher.query_one(text, &[&shop.schema]).await.unwrap().get::<_, i64>(0) < count {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_wants_the_key_of_an_open_transaction_waits_and_nobody_else() {
    let shop = Shop::open().await;
    let mut connection = shop.connect().await;
    let tx = connection.transaction().await.unwrap();
    let submit = |key: &str| shop.client.enqueue(Ship(1)).idempotency_key(key);
    let first = submit("wanted").within(&tx).await.unwrap();
    // More of them than there are connections for other work.
    let waiting: Vec<_> = (0..20).map(|_| tokio::spawn(submit("wanted").into_future())).collect();
    soon(wait_until_blocked(&shop, 1)).await;
    let other = soon(submit("another").into_future()).await.unwrap();
    assert!(other.is_new());
    assert!(soon(shop.client.enqueue(Ship(2)).into_future()).await.unwrap().is_new());
    assert_eq!(
        soon(shop.client.cancel(other.id())).await.unwrap(),
        Changed::Done(Some(State::Cancelled))
    );
    tx.commit().await.unwrap();
    for waiting in waiting {
        let found = soon(waiting).await.unwrap().unwrap();
        assert_eq!((found.id(), found.is_new()), (first.id(), false));
    }
    shop.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_transactions_with_one_key_the_second_goes_on_after_a_rollback() {
    let shop = Shop::open().await;
    let (mut one, mut two) = (shop.connect().await, shop.connect().await);
    let first = one.transaction().await.unwrap();
    let second = two.transaction().await.unwrap();
    let submit = || shop.client.enqueue(Ship(1)).unique("one");
    submit().within(&first).await.unwrap();
    let rollback = async {
        soon(wait_until_blocked(&shop, 1)).await;
        first.rollback().await.unwrap();
    };
    let (kept, ()) = tokio::join!(submit().within(&second).into_future(), rollback);
    assert!(kept.unwrap().is_new());
    second.commit().await.unwrap();
    assert_eq!(submit().await.unwrap_err().kind(), ErrorKind::Conflict);
    shop.check_books().await;
}

#[tokio::test]
async fn workers_are_told_once_per_transaction_or_not_at_all() {
    let shop = Shop::open().await;
    let mut heard = shop.listen().await;
    let mut connection = shop.connect().await;
    let tx = connection.transaction().await.unwrap();
    for number in 0..10 {
        shop.client.enqueue(Ship(number)).within(&tx).await.unwrap();
    }
    tx.commit().await.unwrap();
    let tx = connection.transaction().await.unwrap();
    shop.client.enqueue(Ship(11)).within(&tx).quiet().await.unwrap();
    tx.commit().await.unwrap();
    shop.tell("the end").await;
    assert_eq!(soon(heard.recv()).await.as_deref(), Some("\nqdefault"));
    assert_eq!(soon(heard.recv()).await.as_deref(), Some("the end"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_wakes_those_who_wait_for_work_in_this_process_too() {
    let shop = Shop::open().await;
    let mark = shop.claim("waiting", 1).await.mark;
    let wait = shop.client.store().wait(WaitParams {
        queues: vec![QueueName::new("default").unwrap()],
        since: Some(mark),
        at_most: Duration::from_secs(60),
        ..WaitParams::default()
    });
    let commit = async {
        let mut connection = shop.connect().await;
        let tx = connection.transaction().await.unwrap();
        shop.client.enqueue(Ship(1)).within(&tx).await.unwrap();
        tx.commit().await.unwrap();
    };
    let (wake, ()) = tokio::join!(biased; wait, commit);
    assert!(matches!(wake.unwrap(), Wake::Work));
}

#[tokio::test]
async fn another_database_or_store_is_refused() {
    let shop = Shop::open().await;
    let mut connection = shop.connect().await;
    let stranger = "stranger";
    connection.batch_execute(&format!("CREATE DATABASE {stranger}")).await.unwrap();
    let mut elsewhere = shop.connect_to(stranger).await;
    let tx = elsewhere.transaction().await.unwrap();
    let refused = shop.client.enqueue(Ship(1)).within(&tx).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    drop(tx);
    // What a schema is that was put in the place of this one.
    let swap = format!("UPDATE {}.identity SET id = 'another'", shop.schema);
    connection.batch_execute(&swap).await.unwrap();
    let tx: tokio_postgres::Transaction<'_> = connection.transaction().await.unwrap();
    let refused = shop.client.enqueue(Ship(1)).within(&tx).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    let memory = windlass::connect("memory:").await.unwrap();
    let refused = memory.enqueue(Ship(1)).within(&tx).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
}
