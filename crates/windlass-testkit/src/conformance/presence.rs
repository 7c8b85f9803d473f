//! Beats, orders, progress and what is known of workers.

use windlass_core::store::{
    Beat, HandledKinds, HeldLeases, Order, ProgressReport, RunOrder, WorkerCard, WorkerRecord,
};
use windlass_core::{Ending, ErrorKind, Kind, WorkerId};

use crate::draft::{draft, queue};
use crate::scene::{SECOND, Scene, completed};

async fn known(s: &Scene, worker: &WorkerId) -> WorkerRecord {
    let workers = s.store.workers().await.unwrap();
    let found = workers.into_iter().find(|record| record.id == *worker);
    found.unwrap_or_else(|| panic!("{worker} should be known"))
}

async fn order(s: &Scene, worker: &WorkerId, order: RunOrder) {
    let worker = worker.clone();
    s.store.order(Order::Worker { worker, order }).await.unwrap();
}

pub async fn a_worker_is_told_its_order_in_every_beat_until_it_changes(s: Scene) {
    let worker = s.worker().await;
    let other = s.worker().await;
    assert_eq!(s.beat(&worker).await.order, RunOrder::Run);
    for wanted in [RunOrder::Pause, RunOrder::Drain, RunOrder::Run] {
        order(&s.elsewhere().await, &worker, wanted).await;
        for _ in 0..2 {
            assert_eq!(s.beat(&worker).await.order, wanted);
        }
        assert_eq!(known(&s, &worker).await.order, wanted);
        assert_eq!(s.beat(&other).await.order, RunOrder::Run, "not the other");
    }
}

pub async fn an_order_to_an_unknown_worker_is_not_found(s: Scene) {
    let order = Order::Worker { worker: s.new_worker_id(), order: RunOrder::Pause };
    let error = s.store.order(order).await.expect_err("nobody knows it");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}");
}

pub async fn an_order_to_a_worker_that_is_gone_is_not_found(s: Scene) {
    let left = s.worker().await;
    let lost = s.worker().await;
    s.leave(&left).await;
    s.lose_all_workers().await;
    for worker in [left, lost] {
        let order = Order::Worker { worker, order: RunOrder::Pause };
        let error = s.store.order(order).await.expect_err("it is gone");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}");
    }
}

pub async fn a_queue_cannot_be_told_to_drain(s: Scene) {
    let order = Order::Queue { queue: queue("main"), order: RunOrder::Drain };
    let error = s.store.order(order).await.expect_err("only workers drain");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
}

pub async fn a_queue_that_is_not_known_yet_is_made_by_an_order(s: Scene) {
    s.order_queue("new", RunOrder::Pause).await;
    let queue = s.elsewhere().await.queue("new").await;
    assert!(queue.is_some_and(|queue| queue.is_paused), "it is kept");
}

/// Requires beats of a worker that serves these queues to list just those as paused.
async fn expect_paused(s: &Scene, worker: &WorkerId, serves: &[&str], paused: &[&str]) {
    let expected: Vec<_> = paused.iter().map(|name| queue(name)).collect();
    for _ in 0..2 {
        assert_eq!(s.beat_serving(worker, serves).await.paused_queues, expected, "of {serves:?}");
    }
}

pub async fn a_beat_lists_the_paused_queues_that_its_worker_serves(s: Scene) {
    let (worker, elsewhere) = (s.worker().await, s.elsewhere().await);
    s.submit(draft()).await;
    expect_paused(&s, &worker, &["other", "main"], &[]).await;
    elsewhere.order_queue("main", RunOrder::Pause).await;
    expect_paused(&s, &worker, &["other", "main"], &["main"]).await;
    let another = s.worker().await;
    expect_paused(&s, &another, &["other", "third"], &[]).await;
    expect_paused(&s, &another, &[], &[]).await;
    elsewhere.order_queue("other", RunOrder::Pause).await;
    expect_paused(&s, &worker, &["other", "third", "main"], &["other", "main"]).await;
    // A beat that names what is held lists them too.
    let card = WorkerCard { queues: vec![queue("main")], ..WorkerCard::default() };
    let held = Some(HeldLeases { leases: Vec::new(), older_than: SECOND });
    let beat = Beat { card, held, ..s.sign(&another) };
    assert_eq!(s.store.beat(beat).await.unwrap().paused_queues, [queue("main")]);
    elsewhere.order_queue("other", RunOrder::Run).await;
    expect_paused(&s, &worker, &["other", "main"], &["main"]).await;
    elsewhere.order_queue("main", RunOrder::Run).await;
    expect_paused(&s, &worker, &["other", "main"], &[]).await;
}

pub async fn a_beat_tells_the_stores_time(s: Scene) {
    let worker = s.worker().await;
    s.advance(SECOND);
    assert_eq!(s.beat(&worker).await.now, s.now().await);
}

pub async fn a_worker_is_known_with_what_it_holds_until_it_is_gone(s: Scene) {
    let worker = s.worker().await;
    s.submit_many(3).await;
    let tasks = s.claim(&worker, 3).await;
    assert_eq!(known(&s, &worker).await.running_count, 3);
    let transition = s.transition(&tasks[0], completed());
    s.apply(&worker, vec![transition]).await;
    assert_eq!(known(&s, &worker).await.running_count, 2);
    s.lose_all_workers().await;
    let record = known(&s, &worker).await;
    assert_eq!((record.is_gone, record.running_count), (true, 0));
}

pub async fn the_kinds_of_a_worker_are_kept_as_it_lists_them(s: Scene) {
    let elsewhere = s.elsewhere().await;
    let list = |count: usize| {
        HandledKinds::new((0..count).map(|number| Kind::stored(&format!("kind-{number}"))))
    };
    for (kinds, unlisted) in [(list(0), 1), (list(3), 3), (list(900), 900), (None, 1)] {
        let worker = s.new_worker_id();
        for kinds in [kinds.clone(), kinds] {
            let card = WorkerCard { kinds: kinds.clone(), ..WorkerCard::default() };
            s.store.beat(Beat { card, ..s.sign(&worker) }).await.unwrap();
            let card = known(&elsewhere, &worker).await.card;
            assert_eq!(card.kinds, kinds);
            let other = Kind::stored(&format!("kind-{unlisted}"));
            assert_eq!(card.handles(&other), kinds.is_none());
        }
        s.store.beat(s.sign(&worker)).await.unwrap();
        assert_eq!(known(&elsewhere, &worker).await.card.kinds, None, "a beat replaces the card");
    }
}

pub async fn workers_are_told_by_id(s: Scene) {
    for name in ["b", "c", "a"] {
        s.beat(&WorkerId::new(name)).await;
    }
    let workers = s.store.workers().await.unwrap();
    let ids: Vec<_> = workers.iter().map(|record| record.id.as_str()).collect();
    assert_eq!(ids, ["a", "b", "c"]);
}

pub async fn progress_is_kept_with_its_time_and_starts_anew_with_each_run(s: Scene) {
    let run = s.start(draft()).await;
    assert_eq!(s.record(&run.id).await.progress, None);
    for (fraction, note) in [(0.25, "first"), (0.5, "second é")] {
        s.advance(SECOND);
        let report = ProgressReport { lease: run.lease(), fraction, note: note.into() };
        let beat = Beat { progress: vec![report], ..s.sign(&run.worker) };
        s.store.beat(beat).await.unwrap();
        let progress = s.record(&run.id).await.progress.expect("just reported");
        let told = (progress.fraction, progress.note.as_str(), progress.at);
        assert_eq!(told, (fraction, note, s.now().await));
    }
    s.finish(&run, completed()).await;
    let progress = s.record(&run.id).await.progress.expect("of the last run");
    assert_eq!(progress.note, "second é");
    s.rerun(&run.id).await;
    s.take(&run.worker, &run.id).await;
    assert_eq!(s.record(&run.id).await.progress, None, "a new run");
}

pub async fn progress_is_forgotten_when_a_task_is_pending_again(s: Scene) {
    let run = s.start(draft()).await;
    let report = ProgressReport { lease: run.lease(), fraction: 0.5, note: "half".into() };
    let beat = Beat { progress: vec![report], ..s.sign(&run.worker) };
    s.store.beat(beat).await.unwrap();
    s.finish(&run, Ending::Released).await;
    assert_eq!(s.record(&run.id).await.progress, None);
}
