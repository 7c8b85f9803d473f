//! Workers in any language that never send the id they were given.

use std::time::Duration;

use serde_json::json;
use windlass_testkit::faults::Method as Call;

use crate::pull::{heartbeat, held, id, lease};
use crate::support::Api;

#[tokio::test]
async fn leases_without_an_id_leave_no_worker_each() {
    let api = Api::new();
    let mut ids = Vec::new();
    for _ in 0..50 {
        ids.push(id(&lease(&api, None, 1).await).to_owned());
    }
    assert_eq!(api.client.store().workers().await.unwrap().len(), 1);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 50, "nobody is told the id of another");
    // Who comes back with its id is a worker, at whatever server.
    let other = api.another();
    lease(&other, Some(&ids[0]), 1).await;
    lease(&api, Some(&ids[1]), 1).await;
    assert_eq!(api.client.store().workers().await.unwrap().len(), 3);
    // Two at once are two, and so are two with different names.
    let body = json!({ "worker": { "name": "py" }, "wait": "30s" }).to_string();
    let (first, second, _) =
        tokio::join!(api.post("/leases", &body), api.post("/leases", &body), async {
            // Each looks for orders, and then waits.
            api.faults.called_again(Call::Wait, 4).await;
            assert_eq!(api.client.store().workers().await.unwrap().len(), 4);
            api.submit("{}").await;
            api.submit("{}").await;
        });
    let (first, second) = (first.is(200), second.is(200));
    assert!(id(&first) != id(&second), "who has a task has its id alone");
    let third = lease(&api, None, 1).await;
    assert!(![id(&first), id(&second)].contains(&id(&third)));
    heartbeat(&api, id(&first), &[held(&first)]).await.is(200);
    assert_eq!(api.client.store().workers().await.unwrap().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn leases_without_an_id_that_come_seldom_leave_no_worker_each() {
    let api = Api::new();
    for _ in 0..5 {
        lease(&api, None, 1).await;
        // Longer than a worker may be silent.
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    assert_eq!(api.client.store().workers().await.unwrap().len(), 1);
    // Nobody comes any more.
    let left = api.faults.called(Call::Leave);
    tokio::time::timeout(Duration::from_secs(700), left).await.unwrap();
    assert!(api.client.store().workers().await.unwrap()[0].is_gone);
}

#[tokio::test]
async fn who_hangs_up_leaves_no_worker_each() {
    let api = Api::new();
    for _ in 0..20 {
        let waits = api.faults.called_again(Call::Wait, 2);
        tokio::select! {
            answer = api.post("/leases", r#"{"wait":"60s"}"#) => panic!("{answer:?}"),
            () = waits => {}
        }
    }
    assert_eq!(api.client.store().workers().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn new_workers_come_so_many_a_minute() {
    let api = Api::new();
    let ask = async |number: u32| {
        let body = json!({ "worker": { "id": format!("http-{number:032x}") } }).to_string();
        api.post("/leases", &body).await
    };
    for number in 0..1_000 {
        ask(number).await.is(200);
    }
    ask(1_000).await.is_problem(429, "rate-limited");
    ask(0).await.is(200);
}
