//! Statistics from the count to the answer: several clients, one store, a clock that the test moves.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use windlass_core::dice::Dice;
use windlass_core::statistics::{Cell, RAW, Sketch, Step, window};
use windlass_core::store::{Applied, DocQuery, SaveDoc, Saved};
use windlass_core::{Clock, ErrorKind, Kind, ManualClock, QueueName, State, Store};
use windlass_testkit::faults::{Faults, FaultyStore, Method};
use windlass_testkit::fleet;

use super::{Period, Rolled, Statistics, roll_up};
use crate::metrics::EndedRun;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// A store, and the clock of everyone.
struct Ground {
    clock: Arc<ManualClock>,
    store: Arc<dyn Store>,
}

impl Ground {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = fleet::memory_at(clock.clone());
        Self { clock, store }
    }

    fn client(&self) -> Statistics {
        Statistics::at(&self.store, true, self.clock.clone())
    }

    /// One whose way to the store has faults.
    fn faulty_client(&self) -> (Statistics, Faults) {
        let (store, faults) = FaultyStore::around(Arc::clone(&self.store));
        (Statistics::at(&store, true, self.clock.clone()), faults)
    }

    async fn roll_up(&self) {
        roll_up(&self.store, self.clock.now(), Rolled::Everything, &CancellationToken::new())
            .await
            .unwrap();
    }

    /// What a client that has done nothing reads.
    async fn total(&self) -> Cell {
        let read = self.client().read(Period::All).await.unwrap();
        let since = read.now.before(Duration::from_secs(9 * 86_400));
        window(&read.spans, since, |_, _| Some(())).remove(&()).unwrap_or_default()
    }

    async fn completed(&self) -> u64 {
        self.total().await.completed
    }

    async fn keys(&self, class: &str) -> Vec<String> {
        let query = DocQuery::Class { class: class.into(), after: None, limit: 1_000 };
        let found = self.store.load(query).await.unwrap();
        found.into_iter().map(|document| document.key).collect()
    }

    async fn plant(&self, class: &str, key: &str, body: &str) {
        let (class, key, body) = (class.into(), key.into(), Some(body.into()));
        let save = SaveDoc { class, key, expected: None, body };
        assert!(matches!(self.store.save(save).await.unwrap(), Saved::Done(_)));
    }
}

fn complete(statistics: &Statistics, took: &[Duration]) {
    let run = |took: &Duration| EndedRun {
        queue: QueueName::stored("mail"),
        kind: Kind::stored("send"),
        took: Some(*took),
    };
    let runs: Vec<_> = took.iter().map(run).collect();
    statistics.ended(&runs, &vec![Applied::Applied(State::Completed); runs.len()]);
}

fn complete_some(statistics: &Statistics, count: usize) {
    complete(statistics, &vec![Duration::from_millis(5); count]);
}

#[tokio::test]
async fn percentiles_of_100_000_tasks_are_those_of_their_durations() {
    let ground = Ground::new();
    let clients = [ground.client(), ground.client(), ground.client()];
    let mut dice = Dice::seeded(11);
    let mut exact: Vec<Duration> = Vec::new();
    // From a tenth of a millisecond to minutes, most of them short, over a day and a half.
    for batch in 0..1_000 {
        let took: Vec<_> = (0..100)
            .map(|_| Duration::from_secs_f64(1e-4 * 10_f64.powf(6.0 * dice.unit() * dice.unit())))
            .collect();
        complete(&clients[batch % 3], &took);
        exact.extend(took);
        ground.clock.advance(Duration::from_secs(130));
        if batch % 50 == 49 {
            for client in &clients {
                client.save().await.unwrap();
            }
            ground.clock.advance(Duration::from_secs(200));
            ground.roll_up().await;
        }
    }
    exact.sort_unstable();
    let run = ground.total().await.run;
    assert_eq!(run.count(), 100_000);
    check_percentiles(&run, &exact);
    for step in Step::ALL {
        assert!(!ground.keys(step.class()).await.is_empty(), "{step:?} has its part");
    }
}

#[track_caller]
fn check_percentiles(sketch: &Sketch, exact: &[Duration]) {
    for share in [0.01, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999] {
        let rank = (share * exact.len() as f64).ceil() as usize;
        let (exact, told) = (exact[rank - 1], sketch.quantile(share).unwrap());
        let off = (told.as_secs_f64() / exact.as_secs_f64() - 1.0).abs();
        assert!(off < 0.02, "{share}: {told:?} instead of {exact:?}");
    }
}

#[tokio::test]
async fn counts_of_several_clients_are_added_up() {
    let ground = Ground::new();
    let (one, other) = (ground.client(), ground.client());
    complete_some(&one, 3);
    one.save().await.unwrap();
    complete_some(&one, 4);
    complete_some(&other, 10);
    one.save().await.unwrap();
    other.save().await.unwrap();
    assert_eq!(ground.completed().await, 17);
    assert_eq!(ground.keys(RAW).await.len(), 2, "one for each client and minute");
    ground.clock.advance(Duration::from_secs(149));
    ground.roll_up().await;
    assert_eq!(ground.keys(RAW).await.len(), 2, "not before everyone has saved");
    ground.clock.advance(Duration::from_secs(1));
    ground.roll_up().await;
    assert_eq!(
        (ground.keys(RAW).await.len(), ground.keys(Step::Minute.class()).await.len()),
        (0, 1)
    );
    assert_eq!(ground.completed().await, 17);
}

#[tokio::test]
async fn a_client_reads_what_it_has_not_saved_yet() {
    let ground = Ground::new();
    let client = ground.client();
    complete_some(&client, 3);
    let read = client.read(Period::Recent).await.unwrap();
    let sum = window(&read.spans, read.now.before(HOUR), |_, _| Some(()));
    assert_eq!(sum[&()].completed, 3);
    assert_eq!(ground.completed().await, 0, "the others do not know of it");
}

#[tokio::test]
async fn whoever_crashes_while_adding_up_counts_nothing_twice() {
    let ground = Ground::new();
    for count in [3, 10] {
        let client = ground.client();
        complete_some(&client, count);
        client.save().await.unwrap();
    }
    // Through every step, and at each with a crash after the first and the second write.
    for wait in [3 * MINUTE, 3 * HOUR, 27 * HOUR] {
        ground.clock.advance(wait);
        for passed in 1..=2 {
            let (store, faults) = FaultyStore::around(Arc::clone(&ground.store));
            (0..passed).for_each(|_| faults.pass_one(Method::Save));
            faults.fail(Method::Save, 1, ErrorKind::Unavailable);
            let rolled =
                roll_up(&store, ground.clock.now(), Rolled::Everything, &CancellationToken::new())
                    .await;
            assert!(rolled.is_err() || passed == 2, "it crashed");
            assert_eq!(ground.completed().await, 13, "read after the crash");
        }
        ground.roll_up().await;
        assert_eq!(ground.completed().await, 13, "added up again");
    }
    assert_eq!(ground.keys(Step::Hour.class()).await.len(), 1);
    ground.clock.advance(Duration::from_secs(9 * 86_400));
    ground.roll_up().await;
    for class in [RAW, Step::Minute.class(), Step::TenMinutes.class(), Step::Hour.class()] {
        assert!(ground.keys(class).await.is_empty(), "{class} is kept no longer");
    }
}

#[tokio::test]
async fn a_minute_that_comes_late_is_counted_with_those_that_were_added_up() {
    let ground = Ground::new();
    let (late, faults) = ground.faulty_client();
    let early = ground.client();
    complete_some(&early, 3);
    complete_some(&late, 4);
    early.save().await.unwrap();
    faults.go_away();
    assert!(late.save().await.is_err());
    for wait in [3 * MINUTE, 3 * HOUR] {
        ground.clock.advance(wait);
        ground.roll_up().await;
    }
    assert_eq!(ground.keys(Step::TenMinutes.class()).await.len(), 1);
    faults.come_back();
    late.save().await.unwrap();
    for _ in 0..2 {
        assert_eq!(ground.completed().await, 7);
        ground.roll_up().await;
    }
    assert_eq!(ground.keys(Step::TenMinutes.class()).await.len(), 1);
}

#[tokio::test]
async fn an_answer_that_is_lost_counts_nothing_twice_and_a_store_that_is_away_loses_nothing() {
    let ground = Ground::new();
    let (client, faults) = ground.faulty_client();
    complete_some(&client, 3);
    faults.lose_reply(Method::Save);
    assert!(client.save().await.is_err());
    complete_some(&client, 4);
    faults.go_away();
    assert!(client.save().await.is_err());
    ground.clock.advance(10 * MINUTE);
    complete_some(&client, 5);
    assert!(client.save().await.is_err());
    faults.come_back();
    client.save().await.unwrap();
    assert_eq!(ground.completed().await, 12);
    // The leader was faster than the rest of the minute.
    complete_some(&client, 1);
    client.save().await.unwrap();
    ground.clock.advance(Duration::from_secs(150));
    ground.roll_up().await;
    assert_eq!(ground.completed().await, 13);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_dies_has_lost_less_than_ten_seconds_and_one_that_idles_saves_nothing() {
    let ground = Ground::new();
    let (client, faults) = ground.faulty_client();
    for round in 1..=5 {
        complete_some(&client, 1);
        tokio::time::sleep(Duration::from_millis(9_999)).await;
        assert_eq!(ground.completed().await, round);
    }
    let saves = faults.calls(Method::Save);
    tokio::time::sleep(HOUR).await;
    assert_eq!(faults.calls(Method::Save), saves);
    assert!(saves <= 6, "rewritten seldom: {saves}");
}

#[tokio::test]
async fn bad_documents_are_passed_over_and_removed_in_the_end() {
    let ground = Ground::new();
    let time = ground.clock.now();
    for (class, key) in [
        (RAW, String::from("0")),
        (RAW, String::from("nonsense here")),
        (RAW, format!("{time} other.0")),
        (Step::Minute.class(), String::from("0")),
        (Step::Minute.class(), format!("{time}")),
        (Step::Hour.class(), String::from("zzz")),
    ] {
        ground.plant(class, &key, "{\"v\":77}").await;
    }
    let client = ground.client();
    complete_some(&client, 3);
    client.save().await.unwrap();
    assert_eq!(ground.completed().await, 3);
    for wait in [3 * MINUTE, 3 * HOUR, 48 * HOUR] {
        ground.clock.advance(wait);
        ground.roll_up().await;
        assert_eq!(ground.completed().await, 3);
    }
    for class in [RAW, Step::Minute.class()] {
        assert_eq!(ground.keys(class).await, [""; 0], "{class}");
    }
}

#[tokio::test]
async fn what_is_switched_off_counts_and_saves_nothing() {
    let ground = Ground::new();
    let client = Statistics::at(&ground.store, false, ground.clock.clone());
    complete_some(&client, 3);
    client.save().await.unwrap();
    assert_eq!((ground.completed().await, ground.keys(RAW).await.len()), (0, 0));
}

#[tokio::test]
async fn a_storm_of_questions_is_one_read() {
    let ground = Ground::new();
    let (client, faults) = ground.faulty_client();
    let asked = futures_util::future::join_all((0..50).map(|_| client.read(Period::All))).await;
    assert!(asked.iter().all(Result::is_ok));
    assert_eq!(faults.calls(Method::Load), 4, "one for each class");
}
