//! Completions inside the handler's transaction.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use windlass::core::dice::Dice;
use windlass::core::state::finish;
use windlass::core::store::{Applied, ApplyParams, Bid, Duty, Leadership, Refusal};
use windlass::core::{Ending, State, Transition, WorkerId};
use windlass::prelude::*;
use windlass::sqlx::{AssertSqlSafe, Connection as _};
use windlass::tokio_postgres::IsolationLevel;
use windlass::{Claimed, ErrorKind, Handler};
use windlass_stores::postgres::PostgresStore;

use crate::shop::{Ship, Shop, soon};

/// What the handlers below need.
struct Desk {
    shop: Arc<Shop>,
    /// The first run of each item ends after its transaction was rolled back.
    fails_first: bool,
}

impl Desk {
    fn insert(&self) -> String {
        format!("INSERT INTO public.shipped_{} (item) VALUES ($1)", self.shop.schema)
    }
}

async fn ship_once(task: Ship, cx: Context<Desk>) -> Outcome<i64> {
    let desk = cx.state();
    let mut connection = desk.shop.connect().await;
    let tx = connection.transaction().await?;
    tx.execute(&desk.insert(), &[&task.0]).await?;
    cx.complete_within(&tx, &task.0).await?;
    if desk.fails_first && cx.attempt() == 1 {
        tx.rollback().await?;
        return Err(retry_after(Duration::ZERO, "not yet"));
    }
    tx.commit().await?;
    Ok(task.0)
}

async fn ship_once_with_sqlx(task: Ship, cx: Context<Desk>) -> Outcome<i64> {
    let desk = cx.state();
    let mut connection = desk.shop.connect_sqlx().await;
    let mut tx = connection.begin().await?;
    let insert = windlass::sqlx::query(AssertSqlSafe(desk.insert()));
    insert.bind(task.0).execute(&mut *tx).await?;
    cx.complete_within(&mut *tx, &task.0).await?;
    tx.commit().await?;
    Ok(task.0)
}

async fn check_all_shipped_once(fails_first: bool, handler: impl Handler<Ship, Desk>) {
    check_shop_ships_once(Shop::open().await, fails_first, handler).await;
}

async fn check_shop_ships_once(shop: Shop, fails_first: bool, handler: impl Handler<Ship, Desk>) {
    let shop = Arc::new(shop);
    let desk = Desk { shop: Arc::clone(&shop), fails_first };
    let worker =
        shop.client.worker().state(desk).handle(handler).concurrency(8).start().await.unwrap();
    let handles = shop.client.enqueue_all((0..40).map(Ship)).await.unwrap();
    for (number, handle) in (0..40).zip(handles) {
        assert_eq!(soon(handle.unwrap().wait()).await.unwrap(), number);
    }
    worker.stop().await.unwrap();
    assert_eq!(shop.shipped().await, (0..40).map(|item| (item, 1)).collect::<Vec<_>>());
    shop.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_keeps_the_completion_and_the_rows() {
    check_all_shipped_once(false, ship_once).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_with_sqlx_keeps_them_too() {
    check_all_shipped_once(false, ship_once_with_sqlx).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_rollback_the_task_ends_as_the_handler_says() {
    check_all_shipped_once(true, ship_once).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_broker_completions_are_kept_and_rolled_back_as_ever() {
    check_shop_ships_once(Shop::open_behind_a_broker().await, false, ship_once).await;
    check_shop_ships_once(Shop::open_behind_a_broker().await, true, ship_once).await;
}

fn success(task: &Claimed) -> Transition {
    let ending = Ending::Completed { result: Some("1".into()) };
    finish(task, ending, &Backoff::default(), &mut Dice::seeded(1))
}

impl Shop {
    fn store(&self) -> &PostgresStore {
        let store: &dyn Any = &**self.client.store();
        store.downcast_ref().unwrap()
    }

    async fn apply(&self, transition: Transition) -> Applied {
        let worker = WorkerId::new("one");
        let params = ApplyParams { worker, transitions: vec![transition], then_claim: None };
        soon(self.client.store().apply(params)).await.unwrap().outcomes[0]
    }

    /// Two tasks of one claim.
    async fn two(&self) -> [Claimed; 2] {
        for item in 0..2 {
            self.client.enqueue(Ship(item)).await.unwrap();
        }
        let claimed = self.claim("one", 2).await.tasks;
        assert_eq!(claimed[0].epoch, claimed[1].epoch, "of one claim");
        claimed.try_into().unwrap()
    }

    async fn state(&self, task: &Claimed) -> State {
        self.client.get(&task.id).await.unwrap().unwrap().state
    }

    /// What a leader does about workers that are gone.
    async fn expire(&self) -> u64 {
        let store = self.client.store();
        let bid =
            Bid::Seek { holder: WorkerId::new("leader"), term_length: Duration::from_secs(60) };
        let Leadership::Leading(term) = soon(store.lead(bid)).await.unwrap() else {
            panic!("nobody else leads")
        };
        soon(store.expire(Duty { term, limit: 100 })).await.unwrap().done
    }
}

#[tokio::test]
async fn neighbours_of_one_claim_do_not_wait_for_the_transaction() {
    let shop = Shop::open().await;
    let [mine, neighbour] = shop.two().await;
    let mut connection = shop.connect().await;
    let tx = connection.transaction().await.unwrap();
    shop.store().complete_within(&mut &tx, &success(&mine)).await.unwrap();
    assert_eq!(shop.apply(success(&neighbour)).await, Applied::Applied(State::Completed));
    assert_eq!(shop.state(&mine).await, State::Running);
    assert_eq!(shop.client.get(&mine.id).await.unwrap().unwrap().epoch, Some(mine.epoch));
    // Said again in the same transaction, it is no news.
    shop.store().complete_within(&mut &tx, &success(&mine)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(shop.apply(success(&mine)).await, Applied::Already);
    let record = shop.client.get(&mine.id).await.unwrap().unwrap();
    assert_eq!((record.state, record.epoch), (State::Completed, Some(mine.epoch)));
    shop.check_books().await;
}

#[tokio::test]
async fn a_run_that_was_rolled_back_may_end_in_any_way() {
    let shop = Shop::open().await;
    let tasks = shop.two().await;
    let failed = |task: &Claimed| {
        let ending = Ending::Failed { error: "no".into(), retry_after: Some(Duration::ZERO) };
        finish(task, ending, &Backoff::default(), &mut Dice::seeded(1))
    };
    let mut connection = shop.connect().await;
    for task in &tasks {
        let tx = connection.transaction().await.unwrap();
        shop.store().complete_within(&mut &tx, &success(task)).await.unwrap();
        tx.rollback().await.unwrap();
        shop.check_books().await;
    }
    assert_eq!(shop.apply(success(&tasks[0])).await, Applied::Applied(State::Completed));
    assert_eq!(shop.apply(failed(&tasks[1])).await, Applied::Applied(State::Retrying));
    shop.check_books().await;
}

#[tokio::test]
async fn a_lease_that_is_lost_completes_nothing() {
    let shop = Shop::open().await;
    let tasks = shop.two().await;
    let mut connection = shop.connect().await;
    let tx = connection.transaction().await.unwrap();
    shop.store().complete_within(&mut &tx, &success(&tasks[1])).await.unwrap();
    tx.rollback().await.unwrap();
    shop.client.store().leave(WorkerId::new("one")).await.unwrap();
    for task in &tasks {
        let tx = connection.transaction().await.unwrap();
        let refused = shop.store().complete_within(&mut &tx, &success(task)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::LeaseLost);
        tx.commit().await.unwrap();
        assert_eq!(shop.state(task).await, State::Pending);
    }
    shop.check_books().await;
}

#[tokio::test]
async fn nobody_else_waits_for_a_run_that_is_about_to_complete() {
    let shop = Shop::open().await;
    let [mine, neighbour] = shop.two().await;
    let mut connection = shop.connect().await;
    let tx = connection.transaction().await.unwrap();
    shop.store().complete_within(&mut &tx, &success(&mine)).await.unwrap();
    // Its worker has given it up, and is told that this is not known yet.
    let released = finish(&mine, Ending::Released, &Backoff::default(), &mut Dice::seeded(1));
    assert_eq!(shop.apply(released).await, Applied::Refused(Refusal::LeaseLost));
    assert_eq!(soon(shop.client.store().leave(WorkerId::new("one"))).await.unwrap(), 1);
    assert_eq!(shop.state(&neighbour).await, State::Pending);
    assert_eq!(shop.expire().await, 0);
    tx.commit().await.unwrap();
    assert_eq!(shop.expire().await, 0);
    assert_eq!(shop.state(&mine).await, State::Completed);
    shop.check_books().await;
}

#[tokio::test]
async fn a_run_whose_transaction_ends_with_its_process_runs_again() {
    let shop = Shop::open().await;
    let [mine, _] = shop.two().await;
    let mut connection = shop.connect().await;
    let tx = connection.transaction().await.unwrap();
    shop.store().complete_within(&mut &tx, &success(&mine)).await.unwrap();
    soon(shop.client.store().leave(WorkerId::new("one"))).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(shop.expire().await, 1);
    let record = shop.client.get(&mine.id).await.unwrap().unwrap();
    assert_eq!((record.state, record.epoch), (State::Pending, Some(mine.epoch)));
    let again = shop.claim("two", 2).await.tasks;
    assert!(again.iter().all(|task| task.epoch > mine.epoch));
    shop.check_books().await;
}

#[tokio::test]
async fn an_old_snapshot_is_told_from_a_lost_lease() {
    let shop = Shop::open().await;
    let [mine, _] = shop.two().await;
    let mut connection = shop.connect().await;
    for outcome in [Err(ErrorKind::Unsupported), Ok(())] {
        let builder =
            connection.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
        let tx = builder.start().await.unwrap();
        tx.execute("SELECT 1", &[]).await.unwrap();
        let told = shop.store().complete_within(&mut &tx, &success(&mine)).await;
        assert_eq!(told.map_err(|error| error.kind()), outcome);
        if outcome.is_ok() { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
    }
    assert_eq!(shop.state(&mine).await, State::Completed);
    shop.check_books().await;
}
