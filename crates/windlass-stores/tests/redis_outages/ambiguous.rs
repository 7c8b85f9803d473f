//! The connection is cut after a script ran and before its answer: what is repeated is recognised, nothing
//! is lost, nothing counted or done twice.
//!
//! Each call is made again and again, on data of its own, with the answer to another of its requests lost
//! each time, until none is left to lose. So whatever a call is made of, now or later, it is cut everywhere.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use windlass_core::store::{
    Action, Applied, ApplyParams, Beat, Bid, ChangeParams, Changed, DocQuery, HeldLeases,
    Leadership, Order, ProgressReport, RunOrder, SaveDoc, Saved, Target,
};
use windlass_core::{Ending, Lease, ManualClock, Result, State, Store, TaskId, When, WorkerId};
use windlass_stores::redis::RedisOptions;
use windlass_stores::redis::streams::StreamsStore;
use windlass_testkit::draft::{draft, held_for, queue, until_finished};
use windlass_testkit::scene::{HOUR, LEASE, MS, SECOND, claim_of, completed, failed};
use windlass_testkit::{Draft, Proxy, RedisServer, Run, Scene, Subject};

/// Longer than what is kept within a record: it is written and read by requests of its own.
const LARGE: [u8; 5_000] = [b'x'; 5_000];

/// A store behind a proxy; further handles on the same data go around it.
struct Spoiled {
    clock: Arc<ManualClock>,
    proxy: Proxy,
    prefix: String,
    store: Arc<StreamsStore>,
}

impl Spoiled {
    async fn open(url: &str, clock: &Arc<ManualClock>) -> Arc<StreamsStore> {
        let options = RedisOptions::of_url(url).unwrap().clock(clock.clone());
        Arc::new(StreamsStore::open(options).await.unwrap())
    }
}

#[async_trait]
impl Subject for Spoiled {
    async fn fresh() -> Self {
        let (clock, prefix) = (Arc::new(ManualClock::default()), RedisServer::new_prefix());
        let server = RedisServer::shared();
        let proxy = Proxy::start(server.port()).await;
        let store = Self::open(&server.url_through(proxy.port(), &prefix), &clock).await;
        Self { clock, proxy, prefix, store }
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn another(&self) -> Arc<dyn Store> {
        Self::open(&RedisServer::shared().url(&self.prefix), &self.clock).await
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

/// Makes a call, on a store of its own each time: first as it should be, so that the server knows the
/// scripts; then with each of its requests cut off in turn, and repeated. `check` gets what was prepared and
/// what was answered at last, and goes around the proxy.
async fn check_cuts<P, T>(
    prepare: impl AsyncFn(&Scene) -> P,
    call: impl AsyncFn(&dyn Store, &P) -> Result<T>,
    check: impl AsyncFn(&Scene, P, T),
) {
    for spared in [usize::MAX].into_iter().chain(0..) {
        let subject = Arc::new(Spoiled::fresh().await);
        let spoiled = Scene::on(subject.clone());
        let prepared = prepare(&spoiled).await;
        let ambush = subject.proxy.ambush_after(spared);
        let answer = match call(&*spoiled.store, &prepared).await {
            Ok(answer) => answer,
            Err(error) => {
                assert!(error.is_unavailable(), "{error:?}");
                ambush.sprung().await;
                call(&*spoiled.store, &prepared).await.unwrap()
            }
        };
        let was_spared = subject.proxy.call_off();
        let plain = spoiled.elsewhere().await;
        check(&plain, prepared, answer).await;
        plain.books_balance("after the cut").await;
        if was_spared && spared < usize::MAX {
            assert!(spared > 0, "the call sent nothing that could have been cut off");
            return;
        }
    }
}

/// A task that was released, or never run, as it were.
async fn expect_unspent(s: &Scene, id: &TaskId) {
    let record = s.record(id).await;
    let spent = (record.state, record.attempts, record.crashes);
    assert_eq!(spent, (State::Pending, 0, 0), "{record:#?}");
}

async fn check_insert(draft: Draft) {
    check_cuts(
        async |s| vec![s.make(draft.clone()).await, s.make(draft.clone().queue("other")).await],
        async |store, tasks| store.insert(tasks.clone()).await,
        async |s, tasks, answers| {
            assert!(answers.iter().all(|answer| answer.is_new()), "{answers:?}");
            let again = s.insert(tasks.clone()).await;
            assert!(again.iter().all(|answer| answer.is_new()), "{again:?}");
            let worker = s.worker().await;
            for task in tasks {
                let claimed = s.claim_from(&worker, &[task.queue.as_str()], 9).await;
                assert_eq!(claimed.len(), 1, "each is given once");
                assert_eq!(claimed[0].payload, task.payload);
            }
        },
    )
    .await;
}

#[tokio::test]
async fn an_insert_is_new_again() {
    check_insert(draft()).await;
    check_insert(draft().payload(LARGE.to_vec()).idempotency("key").unique(until_finished("one")))
        .await;
}

#[tokio::test]
async fn a_claim_comes_back_by_what_its_worker_holds() {
    check_cuts(
        async |s| (s.worker().await, s.submit(draft().payload(LARGE.to_vec())).await),
        async |store, (worker, _)| Ok(store.claim(claim_of(worker, 5)).await?.tasks),
        async |s, (worker, id), tasks| {
            if tasks.is_empty() {
                s.expect(&id, State::Running, "it was claimed").await;
                s.advance(MS);
                let orders = s.beat_holding(&worker, vec![], Duration::ZERO).await;
                assert_eq!((orders.given_back, orders.lost), (vec![id.clone()], vec![]));
                s.take(&worker, &id).await;
            }
            let record = s.record(&id).await;
            assert_eq!((record.state, record.attempts), (State::Running, 1));
        },
    )
    .await;
}

#[tokio::test]
async fn a_claim_of_several_requests_says_so_when_one_had_no_answer() {
    let mut cut_short_count = 0;
    for spared in [usize::MAX].into_iter().chain(0..) {
        let subject = Arc::new(Spoiled::fresh().await);
        let spoiled = Scene::on(subject.clone());
        let worker = spoiled.worker().await;
        spoiled.submit_many(450).await;
        let params = claim_of(&worker, 450);
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

/// Ends a run; however often that is reported, it has ended once.
async fn check_apply(ending: Ending, state: State) {
    let report = |s: &Scene, run: &Run| ApplyParams {
        worker: run.worker.clone(),
        transitions: vec![s.transition(run, ending.clone())],
        then_claim: None,
    };
    check_cuts(
        async |s| {
            let run = s.start(draft()).await;
            (report(s, &run), run)
        },
        async |store, (params, _)| Ok(store.apply(params.clone()).await?.outcomes),
        async |s, (params, run), outcomes| {
            let is_ended = matches!(outcomes[..], [Applied::Applied(_) | Applied::Already]);
            assert!(is_ended, "{outcomes:?}");
            let kept = s.record(&run.id).await;
            assert_eq!((kept.state, kept.attempts, kept.crashes), (state, 1, 0), "{kept:#?}");
            let again = s.store.apply(params).await.unwrap().outcomes;
            assert_eq!(again, [Applied::Already]);
            assert_eq!(s.record(&run.id).await, kept);
        },
    )
    .await;
}

#[tokio::test]
async fn an_ending_is_recognised() {
    check_apply(completed(), State::Completed).await;
    check_apply(Ending::Completed { result: Some(Bytes::from(&LARGE[..])) }, State::Completed)
        .await;
    check_apply(failed("boom"), State::Retrying).await;
}

#[tokio::test]
async fn a_success_that_travels_with_a_claim_is_recognised_and_the_claim_comes_back() {
    check_cuts(
        async |s| {
            let (run, next) = (s.start(draft()).await, s.submit(draft()).await);
            let transitions = vec![s.transition(&run, completed())];
            let then_claim = Some(claim_of(&run.worker, 5));
            (ApplyParams { worker: run.worker.clone(), transitions, then_claim }, run, next)
        },
        async |store, (params, _, _)| store.apply(params.clone()).await,
        async |s, (_, run, next), reply| {
            let is_ended = matches!(reply.outcomes[..], [Applied::Applied(_) | Applied::Already]);
            assert!(is_ended, "{:?}", reply.outcomes);
            s.expect(&run.id, State::Completed, "it was reported").await;
            let claimed = reply.claim.unwrap().unwrap().tasks;
            let leases: Vec<_> = claimed
                .iter()
                .map(|task| Lease { task: task.id.clone(), epoch: task.epoch })
                .collect();
            let unknown = if claimed.is_empty() { vec![next.clone()] } else { vec![] };
            s.advance(MS);
            let orders = s.beat_holding(&run.worker, leases, Duration::ZERO).await;
            assert_eq!((orders.given_back, orders.lost), (unknown, vec![]));
            if claimed.is_empty() {
                expect_unspent(s, &next).await;
            }
        },
    )
    .await;
}

#[tokio::test]
async fn a_beat_may_be_repeated() {
    check_cuts(
        async |s| {
            let known = s.start(draft()).await;
            let unknown = s.submit(draft()).await;
            s.take(&known.worker, &unknown).await;
            s.advance(MS);
            let held = HeldLeases { leases: vec![known.lease()], older_than: Duration::ZERO };
            let note = ProgressReport { lease: known.lease(), fraction: 0.5, note: "half".into() };
            let beat = Beat { held: Some(held), progress: vec![note], ..s.sign(&known.worker) };
            (beat, known, unknown)
        },
        async |store, (beat, _, _)| store.beat(beat.clone()).await,
        async |s, (_, known, unknown), orders| {
            assert_eq!(orders.lost, []);
            expect_unspent(s, &unknown).await;
            let progress = s.record(&known.id).await.progress;
            assert_eq!(progress.map(|progress| progress.note).as_deref(), Some("half"));
            s.finish_as(&known, completed(), State::Completed).await;
        },
    )
    .await;
}

#[tokio::test]
async fn a_worker_may_leave_twice() {
    check_cuts(
        async |s| s.start(draft()).await,
        async |store, run| store.leave(run.worker.clone()).await,
        async |s, run, _| {
            expect_unspent(s, &run.id).await;
            assert!(s.store.claim(claim_of(&run.worker, 1)).await.is_err(), "it is gone");
            assert!(matches!(s.finish(&run, completed()).await, Applied::Refused(_)));
        },
    )
    .await;
}

#[tokio::test]
async fn a_bid_for_the_lead_may_be_repeated() {
    let seek = || Bid::Seek { holder: WorkerId::new("one"), term_length: LEASE };
    check_cuts(
        async |_| (),
        async |store, ()| store.lead(seek()).await,
        async |s, (), answer| {
            assert!(matches!(answer, Leadership::Leading(_)), "{answer:?}");
            assert_eq!(s.seek("one").await, answer, "the term is the same");
            assert!(matches!(s.seek("two").await, Leadership::Following { .. }));
        },
    )
    .await;
    check_cuts(
        async |s| s.lead_as("one").await,
        async |store, term| store.lead(Bid::Renew { term: *term, term_length: HOUR }).await,
        async |s, term, answer| {
            assert_eq!(answer, Leadership::Leading(term));
            s.advance(LEASE + MS);
            assert!(matches!(s.seek("two").await, Leadership::Following { .. }));
        },
    )
    .await;
    check_cuts(
        async |s| s.lead_as("one").await,
        async |store, term| store.lead(Bid::Resign { term: *term }).await,
        async |s, term, _| assert!(s.lead_as("two").await > term),
    )
    .await;
}

#[tokio::test]
async fn what_is_due_is_promoted_once() {
    check_cuts(
        async |s| {
            let id = s.submit(draft().after(SECOND)).await;
            s.advance(SECOND);
            (s.duty().await, id)
        },
        async |store, (duty, _)| store.promote(*duty).await,
        async |s, (_, id), _| {
            expect_unspent(s, &id).await;
            assert_eq!(s.promote().await.done, 0);
            let worker = s.worker().await;
            assert_eq!(s.claim_ids(&worker, 9).await, [id]);
        },
    )
    .await;
}

#[tokio::test]
async fn a_lost_worker_costs_one_crash() {
    check_cuts(
        async |s| {
            let run = s.start(draft()).await;
            s.advance(LEASE + MS);
            (s.duty().await, run)
        },
        async |store, (duty, _)| store.expire(*duty).await,
        async |s, (_, run), _| {
            s.expire().await;
            let record = s.record(&run.id).await;
            assert_eq!((record.state, record.attempts, record.crashes), (State::Pending, 0, 1));
            assert!(matches!(s.finish(&run, completed()).await, Applied::Refused(_)));
        },
    )
    .await;
}

#[tokio::test]
async fn what_is_over_is_pruned_and_its_keys_are_free() {
    check_cuts(
        async |s| {
            let id = s.bring(draft().retention(SECOND), State::Completed).await;
            s.advance(HOUR);
            (s.duty().await, id)
        },
        async |store, (duty, _)| store.prune(*duty).await,
        async |s, (_, id), _| {
            s.expect_gone(&id, "it was pruned").await;
            assert_eq!(s.prune().await.done, 0);
        },
    )
    .await;
    let keyed = || draft().unique(held_for("key", SECOND));
    check_cuts(
        async |s| {
            s.submit(keyed()).await;
            s.advance(SECOND);
            s.duty().await
        },
        async |store, duty| store.tend(*duty).await,
        async |s, _, _| {
            assert_eq!(s.tend().await.done, 0);
            s.submit(keyed()).await;
        },
    )
    .await;
}

/// Changes a task that is in a state; however often, the task comes to another state once.
async fn check_change(from: State, action: Action, to: Option<State>) {
    check_cuts(
        async |s| match from {
            State::Running => s.start(draft()).await.id.clone(),
            _ => s.bring(draft(), from).await,
        },
        async |store, id| {
            let target = Target::Tasks(vec![id.clone()]);
            let params = ChangeParams { target, action, only_in: Vec::new(), by: None };
            Ok(store.change(params).await?.outcomes.remove(0))
        },
        async |s, id, changed| {
            // A repeated one finds what the first has made of the task.
            let is_told = match to {
                Some(State::Running) => changed == Changed::Requested,
                Some(state) => changed == Changed::Done(to) || changed == Changed::Conflict(state),
                None => matches!(changed, Changed::Done(None) | Changed::NotFound),
            };
            assert!(is_told, "{changed:?}");
            match to {
                Some(state) => s.expect(&id, state, "it was changed").await,
                None => {
                    s.expect_gone(&id, "it was deleted").await;
                    assert_ne!(s.audits().await, [], "its deletion is on record");
                }
            }
        },
    )
    .await;
}

#[tokio::test]
async fn a_change_may_be_repeated() {
    let later = Action::Reschedule(When::After(HOUR));
    check_change(State::Pending, Action::Cancel, Some(State::Cancelled)).await;
    check_change(State::Running, Action::Cancel, Some(State::Running)).await;
    check_change(State::DeadLetter, Action::Rerun, Some(State::Pending)).await;
    check_change(State::Pending, later, Some(State::Scheduled)).await;
    check_change(State::Completed, Action::Delete, None).await;
}

#[tokio::test]
async fn orders_may_be_repeated() {
    check_cuts(
        async |s| s.submit(draft()).await,
        async |store, _| {
            store.order(Order::Queue { queue: queue("main"), order: RunOrder::Pause }).await
        },
        async |s, _, ()| {
            let worker = s.worker().await;
            assert_eq!(s.claim_ids(&worker, 9).await, [], "the queue is paused");
        },
    )
    .await;
    check_cuts(
        async |s| s.worker().await,
        async |store, worker| {
            store.order(Order::Worker { worker: worker.clone(), order: RunOrder::Drain }).await
        },
        async |s, worker, ()| assert_eq!(s.beat(&worker).await.order, RunOrder::Drain),
    )
    .await;
}

#[tokio::test]
async fn a_document_is_written_once() {
    let (class, key) = ("class".to_owned(), "key".to_owned());
    check_cuts(
        async |_| (),
        async |store, ()| {
            let (class, key) = (class.clone(), key.clone());
            store.save(SaveDoc { class, key, expected: None, body: Some("text".into()) }).await
        },
        async |s, (), saved| {
            assert!(matches!(saved, Saved::Done(Some(1)) | Saved::Outdated(Some(1))), "{saved:?}");
            let query = DocQuery::One { class: class.clone(), key: key.clone() };
            let found = s.store.load(query).await.unwrap();
            assert_eq!((found[0].version, found[0].body.as_str()), (1, "text"));
        },
    )
    .await;
}
