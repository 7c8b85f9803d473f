//! Queues and types that are made in a transaction that stays open.

use std::time::Duration;

use windlass::core::store::{Inserted, Reservation};
use windlass::core::{NewTask, QueueName, Reason};
use windlass::prelude::*;

use crate::shop::{Ship, Shop, soon};

/// Less than the server may take over a submit, and far more than a submit takes.
const NOT_HELD_UP: Duration = Duration::from_secs(8);

#[tokio::test(flavor = "multi_thread")]
async fn only_who_uses_the_new_name_of_an_open_transaction_waits_for_it() {
    let shop = Shop::open().await;
    shop.client.enqueue(Ship(0)).await.unwrap();
    let mut connection = shop.connect().await;
    let tx = connection.transaction().await.unwrap();
    let made = "SELECT {}.enqueue('unheard', '1'), {}.enqueue('ship', '1', queue => 'unheard')";
    tx.execute(&made.replace("{}", &shop.schema), &[]).await.unwrap();
    let waiting = [
        tokio::spawn(shop.client.enqueue(Ship(1)).queue("unheard").into_future()),
        tokio::spawn(shop.client.enqueue(Ship(1)).queue("unheard").unique("u").into_future()),
    ];
    let kind = shop.client.clone();
    let waiting_kind =
        tokio::spawn(
            async move { kind.enqueue_raw("unheard", "1".into(), Default::default()).await },
        );
    let known: Vec<_> = (1..=20)
        .map(|number| tokio::spawn(shop.client.enqueue(Ship(number)).into_future()))
        .collect();
    for submit in known {
        let submitted = tokio::time::timeout(NOT_HELD_UP, submit).await.expect("in time");
        assert!(submitted.unwrap().unwrap().is_new());
    }
    assert!(waiting.iter().all(|submit| !submit.is_finished()) && !waiting_kind.is_finished());
    tx.commit().await.unwrap();
    for submit in waiting {
        assert!(soon(submit).await.unwrap().unwrap().is_new());
    }
    assert!(soon(waiting_kind).await.unwrap().unwrap().1);
    let counted = "SELECT count(*) FILTER (WHERE type = 'ship' AND queue = 'default'),
        count(*) FILTER (WHERE queue = 'unheard'), count(*) FILTER (WHERE type = 'unheard')
        FROM {}.tasks";
    let row = connection.query_one(&counted.replace("{}", &shop.schema), &[]).await.unwrap();
    let counts: [i64; 3] = [row.get(0), row.get(1), row.get(2)];
    assert_eq!(counts, [21, 3, 2], "each is there once");
    shop.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_one_insert_all_are_stored_but_those_whose_name_is_in_the_making() {
    let shop = Shop::open().await;
    shop.client.enqueue(Ship(0)).await.unwrap();
    let store = shop.client.store();
    let mut connection = shop.connect().await;
    let tx = connection.transaction().await.unwrap();
    let made = format!("SELECT {}.enqueue('unheard')", shop.schema);
    tx.execute(&made, &[]).await.unwrap();
    let wish = Reservation { queue: QueueName::new("default").unwrap(), count: 3 };
    let ids = store.reserve(vec![wish]).await.unwrap();
    // New names of which one is held up, and another is not.
    let task = |(kind, id): (&str, _)| {
        let task = windlass::Options::new().into_task(kind, "1".into(), shop.client.config());
        NewTask { id, ..task.unwrap() }
    };
    let tasks: Vec<_> = ["ship", "unheard", "fresh"].into_iter().zip(ids).map(task).collect();
    let insert = tokio::time::timeout(NOT_HELD_UP, store.insert(tasks.clone()));
    let answers = insert.await.expect("in time").unwrap();
    assert!(answers[0].is_new() && answers[2].is_new(), "{answers:?}");
    let is_busy = |answer: &Inserted| match answer {
        Inserted::Bad(error) => error.is_unavailable() && error.reason() == Reason::NameBusy,
        _ => false,
    };
    assert!(is_busy(&answers[1]), "{answers:?}");
    tx.rollback().await.unwrap();
    let again = async {
        loop {
            let answer = store.insert(vec![tasks[1].clone()]).await.unwrap().remove(0);
            if !is_busy(&answer) {
                break answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(soon(again).await.is_new(), "whoever comes next makes the name");
    shop.check_books().await;
}
