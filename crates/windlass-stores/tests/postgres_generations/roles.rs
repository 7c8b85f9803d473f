//! A role that may not make, change or drop tables runs everything, with the rights that
//! `docs/postgres.md` names.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_core::store::{Depth, Reservation, Severity};
use windlass_core::{Ending, Error, ErrorKind, ManualClock, Reason, State, Store, TaskId};
use windlass_stores::Opening;
use windlass_stores::postgres::PostgresStore;
use windlass_stores::postgres::tokio_postgres::{Client, Config, NoTls};
use windlass_testkit::draft::{RETENTION, draft, queue, until_finished};
use windlass_testkit::scene::{HOUR, SECOND, Scene};
use windlass_testkit::{PostgresServer, Subject};

use crate::schema::{connect, options_at};
use crate::subject::PostgresSubject;

/// The documented grants, for another schema and role.
fn grants(schema: &str, role: &str) -> String {
    let page = include_str!("../../../../docs/postgres.md");
    let (_, block) = page.split_once("## Roles and rights").unwrap();
    let (_, block) = block.split_once("```sql\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    block.replace("SCHEMA windlass", &format!("SCHEMA {schema}")).replace("windlass_app", role)
}

fn url_as(schema: &str, role: &str) -> String {
    PostgresServer::shared().url(schema).replace("user=windlass", &format!("user={role}"))
}

async fn connect_as(schema: &str, role: &str) -> Client {
    let url = url_as(schema, role);
    let config: Config = url.split_once("&schema=").unwrap().0.parse().unwrap();
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("SET search_path TO {schema}")).await.unwrap();
    client
}

/// A schema that its owner has migrated, and a store on it that runs as a role with few rights.
struct Restricted {
    clock: Arc<ManualClock>,
    store: Arc<PostgresStore>,
    url: String,
}

#[async_trait]
impl Subject for Restricted {
    async fn fresh() -> Self {
        let schema = PostgresSubject::fresh().await.place.schema;
        let role = format!("app_{schema}");
        let owner = connect(&schema).await;
        owner.batch_execute(&format!("CREATE ROLE {role} LOGIN")).await.unwrap();
        owner.batch_execute(&grants(&schema, &role)).await.unwrap();
        let clock = Arc::new(ManualClock::default());
        let url = url_as(&schema, &role);
        let store = PostgresStore::open(options_at(&url, &clock)).await.unwrap();
        Self { clock, store: Arc::new(store), url }
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn another(&self) -> Arc<dyn Store> {
        Arc::new(PostgresStore::open(options_at(&self.url, &self.clock)).await.unwrap())
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn spoil(&self, _task: &TaskId) -> bool {
        false
    }

    async fn rows_kept(&self) -> Option<u64> {
        None
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_without_rights_to_make_tables_does_everything() {
    let subject = Restricted::fresh().await;
    let schema = subject.url.split_once("&schema=").unwrap().1.to_owned();
    let s = Scene::on(Arc::new(subject));
    let late = s.make(draft()).await;
    let kept = s.bring(draft().queue("kept").idempotency("kept"), State::DeadLetter).await;
    let before = s.record(&kept).await;
    let unique = draft().queue("unique").unique(until_finished("key")).retention(SECOND);
    let run = s.start(unique).await;
    s.finish_as(&run, Ending::Completed { result: Some("r".into()) }, State::Completed).await;
    s.submit_many(30).await;
    let worker = s.worker().await;
    let runs = s.claim(&worker, 30).await;
    let endings = runs.iter().map(|run| s.transition(run, Ending::Completed { result: None }));
    s.apply(&worker, endings.collect()).await;
    s.tend().await;
    s.advance(RETENTION + HOUR);
    assert_eq!(s.prune().await.done, 31);
    s.tend().await;
    assert_eq!(s.record(&kept).await, before, "it went into a copy");
    let owner = connect(&schema).await;
    let row = owner.query_one("SELECT count(*) FROM task", &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 1, "the others went with their partitions");
    s.delete(&kept).await;
    s.tend().await;
    let row = owner.query_one("SELECT count(*), max(number) FROM generation", &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 1, "and so did its generation");
    assert!(s.insert(vec![late]).await[0].is_new(), "a partition was made for it");
    s.elsewhere().await.submit(draft()).await;
    let findings = s.store.inspect(Depth::Repair).await.unwrap().findings;
    let problems: Vec<_> =
        findings.iter().filter(|finding| finding.severity == Severity::Problem).collect();
    assert!(problems.is_empty(), "{problems:#?}");
    s.books_balance("in the end").await;
    let text = "SELECT count(*) FROM pg_class AS c
        WHERE relnamespace = current_schema()::regnamespace AND relowner <> 'windlass'::regrole";
    let row = owner.query_one(text, &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 0, "everything belongs to the schema's owner");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_role_gets_no_rights_beyond_these() {
    let subject = Restricted::fresh().await;
    let schema = subject.url.split_once("&schema=").unwrap().1;
    let client = connect_as(schema, &format!("app_{schema}")).await;
    for text in [
        "CREATE TABLE mine (a int)",
        "DROP TABLE task_0",
        "ALTER TABLE task DETACH PARTITION task_0",
        "SELECT make_part('task', 77)",
        "SELECT add_generation(77::int8 << 32, 0)",
        "SELECT setval('task_seq', 1)",
    ] {
        let refused = client.batch_execute(text).await.unwrap_err();
        let code = refused.code().unwrap().code().to_owned();
        assert_eq!(code, "42501", "{text}: {refused}");
    }
    // A table of its own with the same name does not get into the functions.
    client.batch_execute("CREATE TEMPORARY TABLE generation (lo int8)").await.unwrap();
    client.batch_execute("SELECT * FROM generations(1)").await.unwrap();
}

/// What the role hears that was granted this much, when it opens the store with or without making it.
async fn refusal(schema: &str, role: &str, creates: bool) -> Error {
    let opening = Opening { creates, ..Opening::default() };
    windlass_stores::open_as(&url_as(schema, role), opening).await.err().expect("it is refused")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_hears_which_right_it_lacks_and_who_may_make_the_schema() {
    let schema = PostgresSubject::fresh().await.place.schema;
    let (owner, role) = (connect(&schema).await, format!("poor_{schema}"));
    owner.batch_execute(&format!("CREATE ROLE {role} LOGIN")).await.unwrap();
    let hears = async |schema: &str, words: &str| {
        for creates in [false, true] {
            let error = refusal(schema, &role, creates).await;
            assert!(error.to_string().contains(words), "{error:?}");
            let is_told = error.reason() == Reason::Forbidden;
            assert!(is_told || error.kind() == ErrorKind::NotFound, "{error:?}");
        }
    };
    hears(&schema, "lacks USAGE").await;
    hears("not_there_yet", "`windlass migrate up` as its owner").await;
    owner.batch_execute(&format!("GRANT USAGE ON SCHEMA {schema} TO {role}")).await.unwrap();
    hears(&schema, "lacks SELECT").await;
    let grant = format!("GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}");
    owner.batch_execute(&grant).await.unwrap();
    let store = windlass_stores::open(&url_as(&schema, &role)).await.unwrap();
    let wish = Reservation { queue: queue("main"), count: 1 };
    let error = store.reserve(vec![wish]).await.unwrap_err();
    assert_eq!(error.reason(), Reason::Forbidden, "{error:?}");
    assert!(error.chain().contains("function reserve"), "{}", error.chain());
    owner.batch_execute("UPDATE meta SET version = version - 1").await.unwrap();
    hears(&schema, "`windlass migrate up` as its owner").await;
}
