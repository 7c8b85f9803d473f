//! Generations of the PostgreSQL store: tasks that are kept no longer go with their partitions, the
//! others stay as they are, and nobody who submits or works is kept from it.

#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

#[path = "postgres_generations/roles.rs"]
mod roles;
#[path = "subjects/schema.rs"]
mod schema;
#[path = "subjects/postgres.rs"]
mod subject;

use std::sync::Arc;

use schema::connect;
use subject::PostgresSubject;
use uuid::Uuid;
use windlass_core::store::{Depth, Filter, Inserted, ListParams, Severity};
use windlass_core::{Ending, ErrorKind, State, TaskId};
use windlass_stores::postgres::tokio_postgres::{Client, Config, NoTls};
use windlass_testkit::draft::{Draft, RETENTION, draft, held_for, until_finished};
use windlass_testkit::scene::{HOUR, SECOND, Scene, completed};
use windlass_testkit::{PgBouncer, PostgresServer, Subject as _};

/// A scene, and a connection behind the store's back.
async fn scene() -> (Scene, Client) {
    let subject = PostgresSubject::fresh().await;
    let client = connect(&subject.place.schema).await;
    (Scene::on(Arc::new(subject)), client)
}

async fn count(client: &Client, text: &str) -> i64 {
    client.query_one(text, &[]).await.unwrap().get(0)
}

/// The numbers of the generations, in order.
async fn generations(client: &Client) -> Vec<i64> {
    let rows = client.query("SELECT number FROM generation ORDER BY lo", &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Every table that is there must belong to a generation, three to each.
async fn check_tables(client: &Client) {
    let text = "SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace
        AND relkind = 'r' AND relname ~ '^(task|result|keyed)_[0-9]+$'";
    let tables = count(client, text).await;
    assert_eq!(tables, generations(client).await.len() as i64 * 3, "partitions");
}

/// Nothing is wrong in the eyes of the doctor, and no task that is gone is left in a table.
async fn check_clean(s: &Scene, client: &Client) {
    let findings = s.store.inspect(Depth::Full).await.unwrap().findings;
    let problems: Vec<_> =
        findings.iter().filter(|finding| finding.severity == Severity::Problem).collect();
    assert!(problems.is_empty(), "{problems:#?}");
    s.books_balance("after upkeep").await;
    check_tables(client).await;
}

async fn complete(s: &Scene, draft: Draft, result: &[u8]) -> TaskId {
    let run = s.start(draft).await;
    let result = Some(result.to_vec().into());
    s.finish_as(&run, Ending::Completed { result }, State::Completed).await;
    run.id.clone()
}

/// How many tasks are not kept.
const BRIEF: usize = 200;

/// Some of each state that is kept, each with all that a task can have, beside some that are not.
async fn mixed(s: &Scene) -> Vec<TaskId> {
    let mut kept = Vec::new();
    let brief = draft().retention(SECOND).idempotency("brief");
    s.submit_all(std::iter::repeat_n(draft().retention(SECOND), BRIEF - 1)).await;
    s.submit(brief).await;
    let worker = s.worker().await;
    let runs = s.claim(&worker, BRIEF).await;
    let result = Some(b"soon gone".to_vec().into());
    let endings =
        runs.iter().map(|run| s.transition(run, Ending::Completed { result: result.clone() }));
    s.apply(&worker, endings.collect()).await;
    for state in [State::Scheduled, State::Running, State::Retrying, State::DeadLetter] {
        for number in 0..3 {
            let name = format!("{state}-{number}");
            let one = draft().queue(&name).payload(vec![number; 3_000]).idempotency(&name);
            kept.push(s.bring(one.unique(until_finished(&name)).tag("kept"), state).await);
        }
    }
    let long = draft().queue("long").retention(HOUR * 1_000);
    kept.push(complete(s, long.clone().idempotency("long"), &[9; 20_000]).await);
    kept.push(s.bring(long.unique(held_for("timed", HOUR)), State::Cancelled).await);
    kept.extend(s.submit_many(3).await);
    kept
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generation_is_dropped_when_no_task_is_left_in_it() {
    let (s, client) = scene().await;
    for _ in 0..3 {
        complete(&s, draft().idempotency("once"), b"r").await;
        s.bring(draft(), State::Cancelled).await;
        s.tend().await;
        s.advance(RETENTION);
        assert_eq!(s.prune().await.done, 2);
    }
    s.tend().await;
    assert_eq!(generations(&client).await.len(), 1, "the open one");
    let rows = "SELECT (SELECT count(*) FROM task) + (SELECT count(*) FROM result)
        + (SELECT count(*) FROM keyed) + (SELECT count(*) FROM uniq)";
    assert_eq!(count(&client, rows).await, 0, "rows");
    check_clean(&s, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_kept_longer_is_kept_byte_for_byte() {
    let (s, client) = scene().await;
    let kept = mixed(&s).await;
    let mut before = Vec::new();
    for id in &kept {
        before.push(s.record(id).await);
    }
    let first = generations(&client).await;
    s.tend().await;
    s.advance(SECOND);
    assert_eq!(s.prune().await.done, BRIEF as u64);
    s.tend().await;
    let after = generations(&client).await;
    assert!(first.iter().all(|number| !after.contains(number)), "{first:?} became {after:?}");
    assert_eq!(count(&client, "SELECT count(*) FROM task").await, kept.len() as i64);
    for (id, before) in kept.iter().zip(before) {
        assert_eq!(s.record(id).await, before);
    }
    let again = draft().queue("long").retention(HOUR * 1_000).idempotency("long");
    let (_, answer) = s.offer(again).await;
    assert!(matches!(answer, Inserted::Existing { is_same_request: true, .. }), "{answer:?}");
    let (_, answer) = s.offer(draft().unique(until_finished("running-0"))).await;
    assert!(matches!(answer, Inserted::Conflict { .. }), "{answer:?}");
    check_clean(&s, &client).await;
    let worker = s.worker().await;
    assert_eq!(s.claim(&worker, 9).await.len(), 3, "pending tasks go on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_pooler_it_is_all_the_same() {
    let subject = PostgresSubject::at(|schema| PgBouncer::shared().url(schema)).await;
    let s = Scene::on(Arc::new(subject));
    let kept = mixed(&s).await;
    s.tend().await;
    s.advance(SECOND);
    assert_eq!(s.prune().await.done, BRIEF as u64);
    s.tend().await;
    for id in &kept {
        s.record(id).await;
    }
    s.submit(draft()).await;
    s.books_balance("after upkeep").await;
}

/// What a client of a pooler finds set in the connection that it is given.
async fn settings(url: &str) -> Vec<String> {
    let (plain, _) = url.split_once('?').unwrap();
    let config: Config = plain.parse().unwrap();
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    let text = "SELECT name || ' ' || setting FROM pg_settings
        WHERE source = 'session' AND name NOT IN ('application_name', 'client_encoding') ORDER BY name";
    let rows = client.query_typed(text, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_nobody_spoke_of_is_refused_before_anything_is_set() {
    let server = PostgresServer::shared();
    for pooler in [PgBouncer::start(server), PgBouncer::start_in_session_mode(server)] {
        let url = pooler.url(&PostgresServer::new_schema());
        let usual = settings(&url).await;
        let (before, after) = url.split_once("pooler=").unwrap();
        let silent = format!("{before}{}", after.split_once('&').unwrap().1);
        let error = windlass_stores::open(&silent).await.err().expect("it is refused");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
        assert!(error.to_string().contains("pooler=transaction"), "{error}");
        assert_eq!(settings(&url).await, usual, "its other clients have theirs");
        let store = windlass_stores::open(&url).await.unwrap();
        assert!(store.queues().await.unwrap().is_empty(), "as it was told, it works");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neighbours_are_merged_when_there_are_too_many() {
    let (s, client) = scene().await;
    let mut records = Vec::new();
    for _ in 0..9 {
        let id = s.bring(draft().idempotency(&s.serial().to_string()), State::DeadLetter).await;
        records.push(s.record(&id).await);
        s.tend().await;
    }
    assert!(generations(&client).await.len() <= 4, "{:?}", generations(&client).await);
    for record in records {
        assert_eq!(s.record(&record.id).await, record);
    }
    check_clean(&s, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_not_obtained_keeps_nobody_from_anything_but_the_drop() {
    let (s, client) = scene().await;
    complete(&s, draft(), b"r").await;
    s.advance(RETENTION);
    s.prune().await;
    let reader = scene_reader(&client).await;
    reader.batch_execute("BEGIN; SELECT count(*) FROM task").await.unwrap();
    s.tend().await;
    assert_eq!(generations(&client).await.len(), 2, "one is closed, and read by someone");
    let id = s.submit(draft()).await;
    let worker = s.worker().await;
    let run = s.take(&worker, &id).await;
    s.finish_as(&run, completed(), State::Completed).await;
    reader.batch_execute("COMMIT").await.unwrap();
    // Another handle has not been refused and need not be patient.
    s.elsewhere().await.tend().await;
    assert!(!generations(&client).await.contains(&0), "the lock is free");
    s.expect(&id, State::Completed, "it is of a later generation").await;
    check_clean(&s, &client).await;
}

/// A further connection to the same schema.
async fn scene_reader(client: &Client) -> Client {
    let row = client.query_one("SELECT current_schema()::text", &[]).await.unwrap();
    connect(row.get(0)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_may_come_into_a_generation_that_was_dropped() {
    let (s, client) = scene().await;
    let (plain, keyed) = (s.make(draft()).await, s.make(draft().idempotency("late")).await);
    complete(&s, draft(), b"r").await;
    s.advance(RETENTION);
    s.prune().await;
    s.tend().await;
    assert_eq!(generations(&client).await, [1], "the first was dropped");
    for task in [plain, keyed] {
        let id = task.id.clone();
        let answers = s.insert(vec![task.clone()]).await;
        assert!(answers[0].is_new(), "{answers:?}");
        assert!(s.insert(vec![task]).await[0].is_new(), "and again");
        let worker = s.worker().await;
        let run = s.take(&worker, &id).await;
        s.finish_as(&run, completed(), State::Completed).await;
    }
    assert_eq!(generations(&client).await.len(), 2, "made on the spot");
    check_clean(&s, &client).await;
    s.advance(RETENTION);
    s.prune().await;
    s.tend().await;
    assert_eq!(generations(&client).await.len(), 1, "and dropped again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_is_finished_by_the_next_leader_with_all_that_happened_meanwhile() {
    let (s, client) = scene().await;
    let kept = mixed(&s).await;
    let long = || draft().queue("long").retention(HOUR * 1_000);
    let rerun = complete(&s, long(), b"first").await;
    let deleted = complete(&s, long().idempotency("deleted"), b"r").await;
    let pruned = complete(&s, draft().queue("pruned").retention(SECOND * 2), b"r").await;
    let late = s.make(draft().queue("late")).await;
    let mut before = Vec::new();
    for id in &kept {
        before.push(s.record(id).await);
    }
    s.tend().await;
    s.advance(SECOND);
    s.prune().await;
    let mut duty = s.duty().await;
    let is_copied = "SELECT count(*) FROM rewrite WHERE copied_to = hi";
    while count(&client, is_copied).await == 0 {
        assert!(s.store.tend(duty).await.unwrap().has_more, "there is a copy to make");
    }
    // The leader is gone. Nobody tends, everything else goes on.
    s.resign(duty.term).await;
    s.rerun(&rerun).await;
    let worker = s.worker().await;
    let run = s.take(&worker, &rerun).await;
    s.finish_as(&run, Ending::Completed { result: Some("second".into()) }, State::Completed).await;
    s.delete(&deleted).await;
    assert!(s.insert(vec![late.clone()]).await[0].is_new());
    s.advance(SECOND);
    duty.term = s.lead_as("heir").await;
    s.store.prune(duty).await.unwrap();
    let heir = s.elsewhere().await;
    while heir.store.tend(duty).await.unwrap().has_more {}
    assert_eq!(count(&client, "SELECT count(*) FROM rewrite").await, 0, "it is finished");
    assert_eq!(count(&client, "SELECT count(*) FROM rewrite_change").await, 0);
    let rows = count(&client, "SELECT count(*) FROM task").await;
    assert_eq!(rows, kept.len() as i64 + 2, "what is kept, the rerun and the late one");
    for (id, before) in kept.iter().zip(before) {
        assert_eq!(s.record(id).await, before);
    }
    assert_eq!(s.record(&rerun).await.result, Some("second".into()));
    s.expect(&late.id, State::Pending, "it came while the copy was made").await;
    for id in [&deleted, &pruned] {
        s.expect_gone(id, "deleted or pruned while the copy was made").await;
    }
    check_clean(&s, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submits_go_on_when_partitions_are_missing() {
    let (s, client) = scene().await;
    let drafts =
        || [draft(), draft().idempotency(&s.serial().to_string()), draft().after(HOUR)].into_iter();
    client.batch_execute("DROP TABLE task_0, result_0, keyed_0").await.unwrap();
    s.submit_all([draft(), draft()]).await;
    s.submit_all(drafts()).await;
    s.tend().await;
    assert_eq!(generations(&client).await, [0, 1]);
    client.batch_execute("DROP TABLE task_1, keyed_1").await.unwrap();
    s.submit_all(drafts()).await;
    check_clean(&s, &client).await;
    client.batch_execute("SELECT setval('task_seq', (7::int8 << 32) - 2)").await.unwrap();
    let ids = s.submit_all(drafts()).await;
    assert_eq!(ids.len(), 3, "over the end of a generation");
    s.tend().await;
    check_clean(&s, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_sql_alone_a_missing_partition_is_made_and_what_is_gone_is_not_shown() {
    let (s, client) = scene().await;
    complete(&s, draft(), b"r").await;
    s.advance(RETENTION);
    s.prune().await;
    assert_eq!(count(&client, "SELECT count(*) FROM task").await, 1, "its generation is open");
    assert_eq!(count(&client, "SELECT count(*) FROM tasks").await, 0, "and nobody sees it");
    client.batch_execute("SELECT setval('task_seq', 9::int8 << 32)").await.unwrap();
    client.batch_execute("SELECT enqueue('work')").await.unwrap();
    assert_eq!(count(&client, "SELECT count(*) FROM tasks").await, 1);
    check_clean(&s, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_beyond_all_that_was_reserved_is_refused_and_hurts_no_other() {
    let (s, client) = scene().await;
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&(9_u64 << 32).to_be_bytes());
    let id = TaskId::new(Uuid::new_v8(bytes).hyphenated().to_string());
    let good = s.make(draft()).await;
    let answers = s.insert(vec![draft().with_id(id), good.clone()]).await;
    let Inserted::Bad(error) = &answers[0] else { panic!("{answers:?}") };
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
    assert!(answers[1].is_new(), "{answers:?}");
    s.expect(&good.id, State::Pending, "it is stored").await;
    assert_eq!(generations(&client).await, [0], "nothing was made");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_insert_does_not_bring_back_a_task_that_was_pruned() {
    let (s, client) = scene().await;
    for sent in [draft(), draft().idempotency("once"), draft().unique(until_finished("one"))] {
        let task = s.make(sent.retention(SECOND)).await;
        assert!(s.insert(vec![task.clone()]).await[0].is_new());
        let worker = s.worker().await;
        let run = s.take(&worker, &task.id).await;
        s.finish_as(&run, completed(), State::Completed).await;
        s.advance(RETENTION);
        s.prune().await;
        // Its answer was lost, and the client asks again: it has run, and must not run twice.
        assert!(s.insert(vec![task.clone()]).await[0].is_new(), "it was stored");
        assert!(s.claim(&worker, 9).await.is_empty(), "it has run");
        s.expect_gone(&task.id, "its time is over").await;
    }
    check_clean(&s, &client).await;
}

/// As after a restore, when numbers are given again: what was pruned under one is in nobody's way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_task_may_come_under_the_number_of_one_that_was_pruned() {
    let (s, client) = scene().await;
    let task = s.make(draft().idempotency("once")).await;
    for payload in ["first", "second"] {
        let task = draft().idempotency("once").payload(payload).with_id(task.id.clone());
        assert!(s.insert(vec![task.clone()]).await[0].is_new());
        let worker = s.worker().await;
        let run = s.take(&worker, &task.id).await;
        let result = Some("r".into());
        s.finish_as(&run, Ending::Completed { result }, State::Completed).await;
        s.advance(RETENTION);
        s.prune().await;
        s.expect_gone(&task.id, "its time is over").await;
    }
    check_clean(&s, &client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_passes_over_any_number_of_tasks_that_are_gone() {
    let (s, client) = scene().await;
    let old = s.submit(draft().queue("old")).await;
    // Behind the store's back, and all at once: as many as a page would never look at.
    let text = "WITH t AS (INSERT INTO task SELECT reserve(1), x.stamp, x.created_at, x.run_at, x.timeout_ms,
          x.retention_ms, x.queue, x.kind, x.max_retries, x.max_crashes, x.priority, x.extras, x.payload
        FROM task AS x CROSS JOIN generate_series(1, 50000) RETURNING seq)
        UPDATE generation SET pruned = (SELECT count(*) FROM t)";
    client.execute(text, &[]).await.unwrap();
    let new = s.submit(draft().queue("new")).await;
    for filter in [Filter::default(), Filter { states: vec![State::Pending], ..Filter::default() }]
    {
        let mut params = ListParams { filter, limit: 10, cursor: None };
        let (mut found, mut pages) = (Vec::new(), 0);
        loop {
            let page = s.store.list(params.clone()).await.unwrap();
            found.extend(page.tasks.into_iter().map(|task| task.id));
            pages += 1;
            params.cursor = page.next_cursor;
            if params.cursor.is_none() {
                break;
            }
        }
        assert_eq!(found, [new.clone(), old.clone()]);
        assert!(pages <= 2, "{pages} pages");
    }
    check_clean(&s, &client).await;
}
