//! The connection is cut between a commit and its answer: what is repeated is recognised, nothing is
//! lost, nothing counted or done twice.
//!
//! Each test has done its call once before, on other tasks: statements are prepared by then, and the
//! next request that bears the marker is the one that commits.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use windlass_core::state::Ending;
use windlass_core::store::{
    Applied, ApplyParams, Beat, ClaimParams, HeldLeases, ProgressReport, Quota,
};
use windlass_core::{Error, ManualClock, Result, State, Store, TaskId};
use windlass_stores::postgres::{PostgresOptions, PostgresStore};
use windlass_testkit::draft::{MAIN, draft, queue, until_finished};
use windlass_testkit::scene::{HOUR, LEASE, MS, SECOND, claim_of, completed, failed};
use windlass_testkit::servers::PostgresServer;
use windlass_testkit::{Draft, Proxy, Run, Scene, Subject, assert_healthy};

/// Ends transactions.
const COMMIT: &[u8] = b"COMMIT";
const MARKER: &str = "the one that is cut off";

/// A store behind a proxy; further handles on the same data go around it.
struct Spoiled {
    clock: Arc<ManualClock>,
    proxy: Proxy,
    schema: String,
    store: Arc<PostgresStore>,
}

impl Spoiled {
    async fn open(url: &str, clock: &Arc<ManualClock>) -> Arc<PostgresStore> {
        // Nothing but what the test asks for: no news beside it.
        let options = PostgresOptions::of_url(url).unwrap().clock(clock.clone()).polling();
        Arc::new(PostgresStore::open(options).await.unwrap())
    }
}

#[async_trait]
impl Subject for Spoiled {
    async fn fresh() -> Self {
        let (clock, schema) = (Arc::new(ManualClock::default()), PostgresServer::new_schema());
        let server = PostgresServer::shared();
        let proxy = Proxy::start(server.port()).await;
        let store = Self::open(&server.url_through(proxy.port(), &schema), &clock).await;
        Self { clock, proxy, schema, store }
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn another(&self) -> Arc<dyn Store> {
        Self::open(&PostgresServer::shared().tcp_url(&self.schema), &self.clock).await
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

/// A scene through the proxy, and one that goes around it.
struct Stage {
    subject: Arc<Spoiled>,
    spoiled: Scene,
    plain: Scene,
}

impl Stage {
    async fn set() -> Self {
        let subject = Arc::new(Spoiled::fresh().await);
        let spoiled = Scene::on(subject.clone());
        let plain = spoiled.elsewhere().await;
        Self { subject, spoiled, plain }
    }

    /// Makes a call whose answer is lost after the server has committed it.
    async fn cut<T>(&self, marker: &[u8], call: impl Future<Output = Result<T>>) {
        let ambush = self.subject.proxy.ambush(marker);
        let (answer, ()) = tokio::join!(call, ambush.sprung());
        let error: Error = answer.err().expect("the answer was lost");
        assert!(error.is_unavailable(), "{error:?}");
    }

    /// Ends a run; the answer is lost.
    async fn finish_unheard(&self, marker: &[u8], run: &Run, ending: Ending) {
        let transitions = vec![self.spoiled.transition(run, ending)];
        let params = ApplyParams { worker: run.worker.clone(), transitions, then_claim: None };
        self.cut(marker, self.spoiled.store.apply(params)).await;
    }

    async fn end(self) {
        self.plain.books_balance("after the cut").await;
        assert_healthy(self.plain.store.as_ref()).await;
    }
}

/// A success with a result that can be found on the wire.
fn marked() -> Ending {
    Ending::Completed { result: Some(Bytes::from(MARKER)) }
}

async fn check_insert(tested: Draft, marker: &[u8]) {
    let stage = Stage::set().await;
    // A new name would be made first, in a transaction of its own.
    stage.spoiled.submit(draft()).await;
    let first = stage.spoiled.make(tested.clone().kind("first")).await;
    assert!(stage.spoiled.insert(vec![first]).await[0].is_new());
    let task = stage.spoiled.make(tested.payload(MARKER)).await;
    stage.cut(marker, stage.spoiled.store.insert(vec![task.clone()])).await;
    stage.plain.expect(&task.id, State::Pending, "it was committed").await;
    for _ in 0..2 {
        let answers = stage.spoiled.insert(vec![task.clone()]).await;
        assert!(answers[0].is_new(), "{answers:?}");
    }
    let worker = stage.spoiled.worker().await;
    assert_eq!(stage.spoiled.claim_ids(&worker, 9).await.len(), 3, "each is given once");
    stage.end().await;
}

#[tokio::test]
async fn a_plain_insert_is_new_again() {
    check_insert(draft(), MARKER.as_bytes()).await;
}

#[tokio::test]
async fn a_claim_of_several_requests_says_so_when_one_had_no_answer() {
    let mut cut_short_count = 0;
    for spared in [usize::MAX].into_iter().chain(0..) {
        let subject = Arc::new(Spoiled::fresh().await);
        let spoiled = Scene::on(subject.clone());
        let worker = spoiled.worker().await;
        spoiled.submit_many(6).await;
        // A queue that is named again is claimed from by another statement.
        let quotas = [2, 2, 2].map(|count| Quota::of(queue(MAIN), count)).to_vec();
        let params = ClaimParams { quotas, ..claim_of(&worker, 6) };
        let ambush = subject.proxy.ambush_after(spared);
        let answer = spoiled.store.claim(params).await;
        let was_spared = subject.proxy.call_off();
        drop(ambush);
        let (known, is_told) = match answer {
            Ok(claim) => (claim.tasks, claim.is_cut_short),
            Err(_) => (Vec::new(), true),
        };
        cut_short_count += usize::from(is_told && !known.is_empty());
        let plain = spoiled.elsewhere().await;
        plain.advance(MS);
        let leases = known.iter().map(|task| task.lease()).collect();
        let orders = plain.beat_holding(&worker, leases, Duration::ZERO).await;
        assert_eq!(orders.lost, [], "what was answered is leased");
        assert!(is_told || orders.given_back.is_empty(), "{:?} unsaid", orders.given_back.len());
        if was_spared && spared < usize::MAX {
            assert!(cut_short_count > 0, "no claim was cut short");
            return;
        }
    }
}

#[tokio::test]
async fn a_keyed_insert_is_new_again() {
    let keyed = draft().idempotency("key").unique(until_finished("one"));
    check_insert(keyed, COMMIT).await;
}

#[tokio::test]
async fn a_claim_comes_back_by_what_its_worker_holds() {
    let stage = Stage::set().await;
    let s = &stage.spoiled;
    let known = s.start(draft()).await;
    let worker = &known.worker;
    let id = s.submit(draft()).await;
    stage.cut(worker.as_str().as_bytes(), s.store.claim(claim_of(worker, 5))).await;
    stage.plain.expect(&id, State::Running, "it was committed").await;
    let lost = stage.plain.record(&id).await.epoch;
    assert_eq!(s.claim_ids(worker, 5).await, [], "it is given to nobody else meanwhile");
    s.advance(MS);
    let orders = s.beat_holding(worker, vec![known.lease()], Duration::ZERO).await;
    assert_eq!((orders.given_back, orders.lost), (vec![id.clone()], vec![]));
    let again = s.take(worker, &id).await;
    assert_eq!((again.attempts, again.crashes), (1, 0));
    assert!(Some(again.epoch) > lost, "its epoch is a new one");
    s.finish_as(&known, completed(), State::Completed).await;
    stage.end().await;
}

/// Ends a run without hearing so, and again.
async fn check_apply(marker: &[u8], ending: Ending, state: State) {
    let stage = Stage::set().await;
    let s = &stage.spoiled;
    let first = s.start(draft().queue("first")).await;
    s.finish_as(&first, ending.clone(), state).await;
    let run = s.start(draft()).await;
    stage.finish_unheard(marker, &run, ending.clone()).await;
    let kept = stage.plain.record(&run.id).await;
    assert_eq!((kept.state, kept.attempts, kept.crashes), (state, 1, 0));
    for _ in 0..2 {
        assert_eq!(s.finish(&run, ending.clone()).await, Applied::Already);
    }
    assert_eq!(stage.plain.record(&run.id).await, kept);
    stage.end().await;
}

#[tokio::test]
async fn a_success_is_recognised() {
    check_apply(MARKER.as_bytes(), marked(), State::Completed).await;
}

#[tokio::test]
async fn a_failure_is_recognised() {
    check_apply(COMMIT, failed("boom"), State::Retrying).await;
}

#[tokio::test]
async fn successes_that_travel_with_a_claim_are_recognised_and_the_claim_comes_back() {
    let stage = Stage::set().await;
    let s = &stage.spoiled;
    let worker = &s.worker().await;
    let params = |run: &Run| ApplyParams {
        worker: worker.clone(),
        transitions: vec![s.transition(run, marked())],
        then_claim: Some(claim_of(worker, 1)),
    };
    let ids = s.submit_many(4).await;
    let first = s.take(worker, &ids[0]).await;
    let mut reply = s.store.apply(params(&first)).await.unwrap();
    let task = reply.claim.take().unwrap().unwrap().tasks.remove(0);
    assert_eq!(task.id, ids[1]);
    let second = Run { worker: worker.clone(), task };
    stage.cut(MARKER.as_bytes(), s.store.apply(params(&second))).await;
    stage.plain.expect(&ids[1], State::Completed, "it was committed").await;
    // The claim behind it may have been read by the server or not.
    s.advance(MS);
    s.beat_holding(worker, vec![], Duration::ZERO).await;
    stage.plain.expect(&ids[2], State::Pending, "nobody knows of its claim").await;
    let reply = s.store.apply(params(&second)).await.unwrap();
    assert_eq!(reply.outcomes, [Applied::Already]);
    let mut claimed = reply.claim.unwrap().unwrap().tasks;
    claimed.extend(s.claim(worker, 5).await);
    claimed.sort_by(|a, b| a.id.cmp(&b.id));
    assert_eq!(claimed.iter().map(|task| &task.id).collect::<Vec<_>>(), [&ids[2], &ids[3]]);
    assert_eq!((claimed[0].attempts, claimed[0].crashes), (1, 0));
    stage.end().await;
}

#[tokio::test]
async fn a_beat_may_be_repeated() {
    let stage = Stage::set().await;
    let s = &stage.spoiled;
    let (known, unknown) = (s.start(draft()).await, draft());
    let id = s.submit(unknown).await;
    s.take(&known.worker, &id).await;
    s.advance(MS);
    let held = HeldLeases { leases: vec![known.lease()], older_than: Duration::ZERO };
    let note = ProgressReport { lease: known.lease(), fraction: 0.5, note: "half".into() };
    let beat = Beat { held: Some(held), progress: vec![note], ..s.sign(&known.worker) };
    stage.cut(COMMIT, s.store.beat(beat.clone())).await;
    stage.plain.expect(&id, State::Pending, "it was given back").await;
    let orders = s.store.beat(beat).await.unwrap();
    assert_eq!((orders.given_back, orders.lost), (vec![], vec![]));
    let record = stage.plain.record(&id).await;
    assert_eq!((record.state, record.attempts, record.crashes), (State::Pending, 0, 0));
    let progress = stage.plain.record(&known.id).await.progress;
    assert_eq!(progress.map(|progress| progress.note).as_deref(), Some("half"));
    stage.end().await;
}

#[tokio::test]
async fn upkeep_may_be_repeated() {
    let stage = Stage::set().await;
    let s = &stage.spoiled;
    let due = s.submit(draft().after(SECOND)).await;
    s.advance(SECOND);
    let duty = s.duty().await;
    stage.cut(COMMIT, s.store.promote(duty)).await;
    stage.plain.expect(&due, State::Pending, "it was promoted").await;
    assert_eq!(s.promote().await.done, 0);

    let worker = s.worker().await;
    let run = s.take(&worker, &due).await;
    s.advance(LEASE + MS);
    let duty = s.duty().await;
    stage.cut(COMMIT, s.store.expire(duty)).await;
    s.expire().await;
    let record = stage.plain.record(&due).await;
    assert_eq!((record.state, record.attempts, record.crashes), (State::Pending, 0, 1));
    assert!(matches!(s.finish(&run, completed()).await, Applied::Refused(_)));

    let over = s.bring(draft().queue("over").retention(SECOND), State::Completed).await;
    s.advance(HOUR);
    let duty = s.duty().await;
    stage.cut(COMMIT, s.store.prune(duty)).await;
    stage.plain.expect_gone(&over, "it was pruned").await;
    assert_eq!(s.prune().await.done, 0);
    stage.end().await;
}
