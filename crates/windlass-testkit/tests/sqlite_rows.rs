//! What an SQLite file is spared, and what it forgives: nothing is written when there is nothing to do,
//! and rows that cannot be read are left alone, counted, and hold up nobody.

#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use windlass_core::store::{
    Action, Beat, Bid, ChangeParams, ClaimParams, Depth, Duty, Filter, GetParams, Leadership,
    ListParams, Parts, Quota, Reservation, Target, WorkerCard,
};
use windlass_core::{Clock, ManualClock, State, Store, TaskId, WorkerId};
use windlass_stores::sqlite::{SqliteOptions, SqliteStore};
use windlass_testkit::draft::{MAIN, draft, queue};

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn a_claim_that_finds_nothing_and_idle_sweeps_write_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.db");
    let store = SqliteStore::open(SqliteOptions::at(&path)).await.unwrap();
    let worker = WorkerId::new("idle");
    let (card, progress) = (WorkerCard::default(), Vec::new());
    store
        .beat(Beat { worker: worker.clone(), card, lease: HOUR, held: None, progress })
        .await
        .unwrap();
    let bid = Bid::Seek { holder: worker.clone(), term_length: HOUR };
    let Leadership::Leading(term) = store.lead(bid).await.unwrap() else { panic!("not leading") };
    // Another connection sees a new version with every commit that wrote, and only then.
    let watcher = Connection::open(&path).unwrap();
    let version =
        || -> i64 { watcher.pragma_query_value(None, "data_version", |row| row.get(0)).unwrap() };
    let before = version();
    let quotas = vec![Quota::of(queue(MAIN), 10)];
    let claim = ClaimParams { worker, quotas, limit: 10, suspects_at_most: 1 };
    assert_eq!(store.claim(claim).await.unwrap().tasks, []);
    let duty = Duty { term, limit: 10 };
    store.promote(duty).await.unwrap();
    store.expire(duty).await.unwrap();
    store.prune(duty).await.unwrap();
    store.tend(duty).await.unwrap();
    assert_eq!(version(), before);
}

#[tokio::test]
async fn a_promote_leaves_an_unreadable_row_alone_and_moves_its_neighbours() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.db");
    let clock = Arc::new(ManualClock::default());
    let options = SqliteOptions::at(&path).clock(clock.clone() as Arc<dyn Clock>);
    let store = SqliteStore::open(options).await.unwrap();
    let ids = store.reserve(vec![Reservation { queue: queue(MAIN), count: 3 }]).await.unwrap();
    let later = |id: &TaskId| draft().after(HOUR).with_id(id.clone());
    store.insert(ids.iter().map(later).collect()).await.unwrap();

    let connection = Connection::open(&path).unwrap();
    connection.pragma_update(None, "ignore_check_constraints", true).unwrap();
    let spoilt = uuid::Uuid::parse_str(ids[1].as_str()).unwrap();
    let text = "UPDATE windlass_task SET priority = 9 WHERE id = ?1";
    assert_eq!(connection.execute(text, [spoilt.as_bytes()]).unwrap(), 1);

    clock.advance(HOUR);
    let holder = WorkerId::new("leader");
    let bid = Bid::Seek { holder, term_length: HOUR };
    let Leadership::Leading(term) = store.lead(bid).await.unwrap() else { panic!("not leading") };
    let report = store.promote(Duty { term, limit: 10 }).await.unwrap();
    assert_eq!((report.done, report.skipped_bad), (2, 1));
    let again = store.promote(Duty { term, limit: 10 }).await.unwrap();
    assert_eq!((again.done, again.has_more), (0, false), "it must not go on for ever");
    for id in [&ids[0], &ids[2]] {
        let params = GetParams { ids: vec![id.clone()], parts: Parts::NONE };
        let record = store.get(params).await.unwrap().pop().flatten().unwrap();
        assert_eq!(record.state, State::Pending);
    }
}

#[tokio::test]
async fn a_count_out_of_range_stops_no_call() {
    for column in ["attempts", "crashes", "max_retries", "max_crashes"] {
        for count in [-5, i64::MAX] {
            check_count(column, count).await;
        }
    }
}

/// Damages a scheduled task: it is promoted, claimed, listed and cancelled as its neighbour in another queue is.
async fn check_count(column: &str, count: i64) {
    let what = format!("{column} = {count}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.db");
    let clock = Arc::new(ManualClock::default());
    let options = SqliteOptions::at(&path).clock(clock.clone() as Arc<dyn Clock>);
    let store = SqliteStore::open(options).await.unwrap();
    let wanted = ["bad", "good"].map(|name| Reservation { queue: queue(name), count: 1 });
    let ids = store.reserve(wanted.to_vec()).await.unwrap();
    let later = |(id, name): (&TaskId, &str)| draft().queue(name).after(HOUR).with_id(id.clone());
    store.insert(ids.iter().zip(["bad", "good"]).map(later).collect()).await.unwrap();
    let connection = Connection::open(&path).unwrap();
    let text = format!("UPDATE windlass_task SET {column} = {count} WHERE queue = 'bad'");
    assert_eq!(connection.execute(&text, []).unwrap(), 1);
    let findings = store.inspect(Depth::Full).await.unwrap().findings;
    let names_it = |text: &str| text.contains(ids[0].as_str()) && text.contains("queue bad");
    assert!(findings.iter().any(|finding| names_it(&finding.text)), "{what}: {findings:?}");

    clock.advance(HOUR);
    let worker = WorkerId::new("worker");
    let bid = Bid::Seek { holder: worker.clone(), term_length: HOUR };
    let Leadership::Leading(term) = store.lead(bid).await.unwrap() else { panic!("not leading") };
    let report = store.promote(Duty { term, limit: 10 }).await.unwrap();
    assert_eq!((report.done, report.skipped_bad), (2, 0), "{what}");
    let (card, progress) = (WorkerCard::default(), Vec::new());
    store
        .beat(Beat { worker: worker.clone(), card, lease: HOUR, held: None, progress })
        .await
        .unwrap();
    let quotas = ["bad", "good"].map(|name| Quota::of(queue(name), 10)).to_vec();
    let claim = ClaimParams { worker, quotas, limit: 10, suspects_at_most: 1 };
    assert_eq!(store.claim(claim).await.unwrap().tasks.len(), 2, "{what}");
    let params = ListParams { filter: Filter::default(), limit: 10, cursor: None };
    assert_eq!(store.list(params).await.unwrap().tasks.len(), 2, "{what}");
    let target = Target::Matching { filter: Filter::default(), limit: 10, cursor: None };
    let params = ChangeParams { target, action: Action::Cancel, only_in: Vec::new(), by: None };
    assert_eq!(store.change(params).await.unwrap().requested_count, 2, "{what}");
}
