//! Workers in any language: leases, results, heartbeats, and everything that can be lost on the way.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use windlass_core::store::{Bid, Duty, Leadership};
use windlass_core::{Clock, WorkerId};
use windlass_server::{Bounds, Method};
use windlass_testkit::faults::Method as Call;

use crate::support::{Answer, Api, Server};

/// Leases up to so many tasks for this worker, or a new one.
pub(crate) async fn lease(api: &Api, worker: Option<&str>, max: u32) -> Value {
    let body = json!({ "worker": { "id": worker, "name": "py" }, "max": max });
    api.post("/leases", &body.to_string()).await.is(200)
}

/// A worker without tasks: it is one from its second request on.
async fn registered(api: &Api) -> Value {
    let first = lease(api, None, 1).await;
    lease(api, Some(id(&first)), 1).await
}

pub(crate) fn id(leased: &Value) -> &str {
    leased["worker"]["id"].as_str().unwrap()
}

/// A result of the first task in a lease.
fn result(leased: &Value, more: &Value) -> Value {
    let task = &leased["tasks"][0];
    let mut result = json!({ "id": task["id"], "epoch": task["epoch"] });
    result.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    result
}

async fn report(api: &Api, worker: &str, results: &[Value]) -> Value {
    let body = json!({ "worker_id": worker, "results": results });
    api.post("/results", &body.to_string()).await.is(200)
}

pub(crate) async fn heartbeat(api: &Api, worker: &str, held: &[Value]) -> Answer {
    let body = json!({ "held": held }).to_string();
    api.post(&format!("/workers/{worker}/heartbeat"), &body).await
}

pub(crate) fn held(leased: &Value) -> Value {
    let task = &leased["tasks"][0];
    json!({ "id": task["id"], "epoch": task["epoch"] })
}

async fn task(api: &Api, id: &str) -> Value {
    api.get(&format!("/tasks/{id}")).await.is(200)
}

#[tokio::test]
async fn a_worker_leases_runs_and_reports() {
    let api = Api::new();
    let submitted = api.submit(r#"{"type":"mail","payload":{"to": 9007199254740993}}"#).await;
    let leased = lease(&api, None, 10).await;
    let got = &leased["tasks"][0];
    assert_eq!(
        (&got["id"], &got["type"], &got["state"]),
        (&json!(submitted), &json!("mail"), &json!("running"))
    );
    assert_eq!(got["payload"].to_string(), r#"{"to":9007199254740993}"#);
    assert_eq!((&got["attempts"], &got["worker_id"]), (&json!(1), &leased["worker"]["id"]));
    assert!(got["epoch"].is_string() && got["lease_expires_at"].is_string(), "{got}");
    assert_eq!(leased["control"], json!({ "state": "run", "heartbeat": 5, "lease": 15 }));
    let done = result(&leased, &json!({ "outcome": "completed", "result": { "sent": true } }));
    let answer = report(&api, id(&leased), std::slice::from_ref(&done)).await;
    assert_eq!(answer["results"], json!([{ "id": submitted, "status": "applied" }]));
    let finished = task(&api, &submitted).await;
    assert_eq!(
        (&finished["state"], &finished["result"]),
        (&json!("completed"), &json!({ "sent": true }))
    );
    let again = report(&api, id(&leased), &[done]).await;
    assert_eq!(again["results"][0]["status"], "already");
}

#[tokio::test]
async fn every_outcome_does_to_the_task_what_it_says() {
    for (said, state, attempts) in [
        (json!({ "outcome": "completed" }), "completed", 1),
        (json!({ "outcome": "completed", "result_base64": "/w==" }), "completed", 1),
        (json!({ "outcome": "failed", "error": "no route" }), "retrying", 1),
        (json!({ "outcome": "failed", "after": "2h" }), "retrying", 1),
        (json!({ "outcome": "discarded", "error": "no such user" }), "dead_letter", 1),
        (json!({ "outcome": "snoozed", "after": 60 }), "scheduled", 0),
        (json!({ "outcome": "cancelled" }), "cancelled", 1),
        (json!({ "outcome": "timed_out" }), "retrying", 1),
        (json!({ "outcome": "released" }), "pending", 0),
    ] {
        let api = Api::new();
        let submitted = api.submit("{}").await;
        let leased = lease(&api, None, 1).await;
        let answer = report(&api, id(&leased), &[result(&leased, &said)]).await;
        assert_eq!(answer["results"][0]["status"], "applied", "{said}");
        let task = task(&api, &submitted).await;
        assert_eq!(
            (&task["state"], &task["attempts"]),
            (&json!(state), &json!(attempts)),
            "{said}"
        );
        if let Some(error) = said["error"].as_str() {
            assert_eq!(task["error"], error);
        }
    }
}

#[tokio::test]
async fn results_bring_the_next_tasks_in_the_same_trip() {
    let api = Api::new();
    let first = api.submit("{}").await;
    let leased = lease(&api, None, 1).await;
    let second = api.submit("{}").await;
    let body = json!({
        "worker_id": id(&leased),
        "results": [result(&leased, &json!({ "outcome": "completed" }))],
        "lease": { "max": 5 },
    });
    let answer = api.post("/results", &body.to_string()).await.is(200);
    assert_eq!(answer["results"], json!([{ "id": first, "status": "applied" }]));
    assert_eq!(answer["tasks"][0]["id"], json!(second), "{answer}");
    assert_eq!(answer["worker"]["id"], id(&leased));
    assert_eq!(answer["control"]["state"], "run");
}

#[tokio::test]
async fn what_another_server_handed_out_is_reported_and_renewed_here() {
    let api = Api::new();
    let other = api.another();
    let submitted = api.submit("{}").await;
    let leased = lease(&api, None, 1).await;
    let told = heartbeat(&other, id(&leased), &[held(&leased)]).await.is(200);
    assert_eq!((&told["cancel"], &told["lost"]), (&json!([]), &json!([])));
    let said = result(&leased, &json!({ "outcome": "failed", "error": "x" }));
    let answer = report(&other, id(&leased), &[said]).await;
    assert_eq!(answer["results"][0]["status"], "applied");
    let task = task(&api, &submitted).await;
    assert_eq!((&task["state"], &task["attempts"]), (&json!("retrying"), &json!(1)));
    assert!(lease(&other, Some(id(&leased)), 1).await["tasks"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn a_worker_that_is_unknown_or_was_lost_has_to_lease_anew() {
    let api = Api::new();
    for worker in ["http-nobody", "hand-1"] {
        let body = json!({ "worker": { "id": worker } }).to_string();
        api.post("/leases", &body).await.is_problem(409, "lease-lost");
        heartbeat(&api, worker, &[]).await.is_problem(409, "lease-lost");
    }
    api.claim("hand-1").await;
    heartbeat(&api, "hand-1", &[]).await.is_problem(409, "lease-lost");
    api.delete("/workers/hand-1").await.is_problem(409, "lease-lost");
    let leased = registered(&api).await;
    assert_eq!(api.delete(&format!("/workers/{}", id(&leased))).await.is(200)["released"], 0);
    let body = json!({ "worker": leased["worker"] }).to_string();
    api.post("/leases", &body).await.is_problem(409, "lease-lost");
}

#[tokio::test]
async fn results_of_a_worker_that_nobody_knows_are_refused() {
    let api = Api::new();
    let other = api.another();
    let submitted = api.submit("{}").await;
    let leased = lease(&api, None, 1).await;
    let done = result(&leased, &json!({ "outcome": "completed" }));
    // The other server remembers the worker, and does not hear that it leaves.
    heartbeat(&other, id(&leased), &[held(&leased)]).await.is(200);
    assert_eq!(api.delete(&format!("/workers/{}", id(&leased))).await.is(200)["released"], 1);
    for (api, worker) in
        [(&api, id(&leased)), (&other, id(&leased)), (&api, "http-nobody"), (&api, "nobody")]
    {
        for lease in [json!(null), json!({})] {
            let body = json!({ "worker_id": worker, "results": [done], "lease": lease });
            api.post("/results", &body.to_string()).await.is_problem(409, "lease-lost");
        }
    }
    let task = task(&api, &submitted).await;
    assert_eq!((&task["state"], &task["attempts"]), (&json!("pending"), &json!(0)));
    let body = json!({ "results": [done] }).to_string();
    let problem = api.post("/results", &body).await.is_problem(422, "invalid-request");
    assert_eq!(problem["field"], "worker_id");
}

#[tokio::test]
async fn a_result_counts_only_from_the_worker_of_the_lease() {
    let api = Api::new();
    let submitted = api.submit("{}").await;
    let leased = lease(&api, None, 1).await;
    let stranger = registered(&api).await;
    let done = result(&leased, &json!({ "outcome": "completed" }));
    let nothing = json!({ "id": "no-such-task", "epoch": "7", "outcome": "completed" });
    let answer = report(&api, id(&stranger), &[done.clone(), nothing]).await;
    let lost = |id: &str| json!({ "id": id, "status": "lease-lost" });
    assert_eq!(answer["results"], json!([lost(&submitted), lost("no-such-task")]));
    assert_eq!(task(&api, &submitted).await["state"], "running");
    let answer = report(&api, id(&leased), std::slice::from_ref(&done)).await;
    assert_eq!(answer["results"][0]["status"], "applied");
    assert_eq!(report(&api, id(&stranger), &[done]).await["results"][0]["status"], "lease-lost");
}

#[tokio::test]
async fn a_run_that_a_worker_of_windlass_left_open_is_ended_over_http() {
    let api = Api::new();
    let submitted = api.submit("{}").await;
    let run = api.claim("hand-1").await.remove(0);
    let done = json!({ "id": submitted, "epoch": run.epoch.to_string(), "outcome": "completed" });
    let answer = report(&api, "hand-1", &[done]).await;
    assert_eq!(answer["results"][0]["status"], "applied");
}

#[tokio::test]
async fn a_heartbeat_tells_of_cancels_and_of_lost_leases_and_keeps_progress() {
    let api = Api::new();
    let submitted = api.submit("{}").await;
    let leased = lease(&api, None, 1).await;
    let mut mine = held(&leased);
    mine["progress"] = json!({ "fraction": 0.25, "note": "a quarter" });
    let told = heartbeat(&api, id(&leased), &[mine.clone()]).await.is(200);
    assert_eq!(
        told,
        json!({ "control": { "state": "run", "heartbeat": 5, "lease": 15 }, "cancel": [], "lost": [] })
    );
    assert_eq!(task(&api, &submitted).await["progress"]["fraction"], 0.25);
    assert_eq!(api.post(&format!("/tasks/{submitted}/cancel"), "").await.status, 202);
    let told = heartbeat(&api, id(&leased), &[mine.clone()]).await.is(200);
    assert_eq!(told["cancel"], json!([submitted]));
    mine["epoch"] = json!("999");
    let told = heartbeat(&api, id(&leased), &[mine]).await.is(200);
    assert_eq!(told["lost"], json!([submitted]));
}

#[tokio::test]
async fn a_run_over_its_time_is_to_stop_and_then_ended_for_it() {
    let (api, clock) = Api::timed();
    let submitted = api.submit(r#"{"timeout":"30s"}"#).await;
    let leased = lease(&api, None, 1).await;
    let mine = [held(&leased)];
    for _ in 0..3 {
        clock.advance(Duration::from_secs(9));
        let told = heartbeat(&api, id(&leased), &mine).await.is(200);
        assert_eq!((&told["cancel"], &told["lost"]), (&json!([]), &json!([])));
    }
    clock.advance(Duration::from_secs(3));
    assert_eq!(heartbeat(&api, id(&leased), &mine).await.is(200)["cancel"], json!([submitted]));
    assert_eq!(task(&api, &submitted).await["state"], "running");
    clock.advance(Duration::from_secs(10));
    assert_eq!(heartbeat(&api, id(&leased), &mine).await.is(200)["lost"], json!([submitted]));
    let ended = task(&api, &submitted).await;
    assert_eq!((&ended["state"], &ended["attempts"]), (&json!("retrying"), &json!(1)));
    assert!(ended["error"].as_str().unwrap().contains("timeout"), "{ended}");
    // What it says now is not stored, and it must not believe so.
    let late = result(&leased, &json!({ "outcome": "completed" }));
    let told = report(&api, id(&leased), &[late]).await;
    assert_eq!(told["results"][0]["status"], "lease-lost");
}

#[tokio::test]
async fn a_run_that_stops_since_it_is_over_its_time_has_timed_out() {
    for (order, state) in [(None, "retrying"), (Some("cancel"), "cancelled")] {
        let (api, clock) = Api::timed();
        let submitted = api.submit(r#"{"timeout":"30s"}"#).await;
        let leased = lease(&api, None, 1).await;
        let mine = [held(&leased)];
        for _ in 0..3 {
            clock.advance(Duration::from_secs(10));
            heartbeat(&api, id(&leased), &mine).await.is(200);
        }
        if let Some(order) = order {
            let answer = api.post(&format!("/tasks/{submitted}/{order}"), "").await;
            assert_eq!(answer.status, 202);
        }
        let stopped = result(&leased, &json!({ "outcome": "cancelled" }));
        let answer = report(&api, id(&leased), &[stopped]).await;
        assert_eq!(answer["results"][0]["status"], "applied");
        let task = task(&api, &submitted).await;
        assert_eq!((&task["state"], &task["attempts"]), (&json!(state), &json!(1)), "{task}");
    }
}

#[tokio::test]
async fn a_lease_of_no_tasks_registers_the_worker() {
    let api = Api::new();
    let submitted = api.submit("{}").await;
    let first = lease(&api, None, 0).await;
    let registered = lease(&api, Some(id(&first)), 0).await;
    assert_eq!((id(&registered), &registered["tasks"]), (id(&first), &json!([])));
    assert_eq!(registered["control"]["lease"], 15);
    heartbeat(&api, id(&first), &[]).await.is(200);
    assert_eq!(task(&api, &submitted).await["state"], "pending");
    let body = json!({ "worker_id": id(&first), "lease": { "max": 0 } });
    let answer = api.post("/results", &body.to_string()).await.is(200);
    assert_eq!(answer["tasks"], json!([]));
    assert_eq!(lease(&api, Some(id(&first)), 1).await["tasks"][0]["id"], json!(submitted));
}

#[tokio::test]
async fn queues_are_leased_strictly_in_their_order_where_that_is_asked_for() {
    let api = Api::new();
    for _ in 0..10 {
        api.submit(r#"{"queue":"bulk"}"#).await;
        api.submit(r#"{"queue":"urgent"}"#).await;
    }
    let body = json!({ "queues": ["urgent", "bulk"], "strict": true, "max": 12 });
    let leased = api.post("/leases", &body.to_string()).await.is(200);
    let queues = leased["tasks"].as_array().unwrap().iter().map(|task| task["queue"].clone());
    let (urgent, bulk): (Vec<_>, Vec<_>) = queues.partition(|queue| queue == "urgent");
    assert_eq!((urgent.len(), bulk.len()), (10, 2));
}

#[tokio::test]
async fn what_a_worker_has_told_of_itself_need_not_be_told_again() {
    let (api, clock) = Api::timed();
    let first = json!({ "worker": { "name": "py", "version": "9", "slots": 7 } });
    let leased = api.post("/leases", &first.to_string()).await.is(200);
    let again = json!({ "worker": { "id": id(&leased) }, "max": 2 });
    clock.advance(Duration::from_secs(6));
    api.post("/leases", &again.to_string()).await.is(200);
    heartbeat(&api, id(&leased), &[]).await.is(200);
    let worker = api.get(&format!("/workers/{}", id(&leased))).await.is(200);
    assert_eq!(
        (&worker["name"], &worker["version"], &worker["slots"]),
        (&json!("py"), &json!("9"), &json!(7))
    );
}

#[tokio::test]
async fn what_is_over_its_deadline_is_not_handed_out() {
    let (api, clock) = Api::timed();
    let deadline = clock.now().after(Duration::from_secs(3)).to_string();
    let late = api.submit(&json!({ "deadline": deadline }).to_string()).await;
    clock.advance(Duration::from_secs(5));
    let good = api.submit("{}").await;
    let leased = lease(&api, None, 1).await;
    assert_eq!(leased["tasks"][0]["id"], json!(good), "{leased}");
    assert_eq!(task(&api, &late).await["state"], "dead_letter");
}

#[tokio::test]
async fn what_a_worker_does_not_name_comes_back() {
    let (api, clock) = Api::timed();
    let submitted = api.submit("{}").await;
    let leased = lease(&api, None, 1).await;
    heartbeat(&api, id(&leased), &[]).await.is(200);
    assert_eq!(task(&api, &submitted).await["state"], "running", "it may be on its way");
    clock.advance(Duration::from_secs(11));
    heartbeat(&api, id(&leased), &[]).await.is(200);
    let task = task(&api, &submitted).await;
    assert_eq!(
        (&task["state"], &task["attempts"], &task["crashes"]),
        (&json!("pending"), &json!(0), &json!(0))
    );
}

#[tokio::test]
async fn a_lease_may_leave_out_tasks_that_crash() {
    let (api, clock) = Api::timed();
    let store = api.client.store();
    let submitted = api.submit("{}").await;
    let (holder, term_length) = (WorkerId::new("leader"), Duration::from_secs(3_600));
    let bid = Bid::Seek { holder, term_length };
    let Leadership::Leading(term) = store.lead(bid).await.unwrap() else { panic!() };
    for _ in 0..2 {
        assert_eq!(lease(&api, None, 1).await["tasks"][0]["id"], json!(submitted));
        clock.advance(Duration::from_secs(16));
        store.expire(Duty { term, limit: 10 }).await.unwrap();
    }
    assert_eq!(task(&api, &submitted).await["crashes"], 2);
    let leased = api.post("/leases", r#"{"suspects":false}"#).await.is(200);
    assert_eq!(leased["tasks"], json!([]));
    assert_eq!(lease(&api, None, 1).await["tasks"][0]["id"], json!(submitted));
}

#[tokio::test]
async fn a_lease_waits_for_a_task() {
    let api = Api::new();
    let body = json!({ "wait": "30s", "queues": { "a": 3, "b": 1 } }).to_string();
    let (_, leased) = tokio::join!(
        async {
            // One call looks for orders, the next one waits.
            api.faults.called_again(Call::Wait, 2).await;
            api.submit(r#"{"queue":"b"}"#).await
        },
        api.post("/leases", &body),
    );
    assert_eq!(leased.is(200)["tasks"][0]["queue"], "b");
}

#[tokio::test]
async fn orders_reach_a_worker_with_its_next_request() {
    let api = Api::new();
    api.submit("{}").await;
    let leased = lease(&api, None, 1).await;
    let worker = id(&leased);
    for (order, state) in [("pause", "pause"), ("drain", "drain"), ("resume", "run")] {
        api.post(&format!("/workers/{worker}/{order}"), "").await.is(200);
        let told = heartbeat(&api, worker, &[held(&leased)]).await.is(200);
        assert_eq!(told["control"]["state"], state);
        api.submit("{}").await;
        let next = lease(&api, Some(worker), 1).await;
        assert_eq!(next["tasks"].as_array().unwrap().is_empty(), state != "run", "{order}");
    }
    api.post("/workers/nobody/pause", "").await.is_problem(404, "not-found");
}

#[tokio::test]
async fn a_lease_obeys_an_order_at_once_whichever_server_was_told() {
    let api = Api::new();
    let other = api.another();
    api.submit("{}").await;
    let mut leased = lease(&api, None, 1).await;
    let worker = id(&leased).to_owned();
    for (order, state) in [("pause", "pause"), ("resume", "run"), ("drain", "drain")] {
        for teller in [&api, &other] {
            let before = api.get(&format!("/workers/{worker}")).await.is(200)["state"].clone();
            let told = teller.post(&format!("/workers/{worker}/{order}"), "").await.is(200);
            // What was asked is not yet what is done.
            assert_eq!((&told["order"], &told["state"]), (&json!(state), &before));
            api.submit("{}").await;
            let next = lease(&api, Some(&worker), 1).await;
            assert_eq!(next["tasks"].as_array().unwrap().is_empty(), state != "run", "{order}");
            assert_eq!(next["control"]["state"], state);
            let body = json!({
                "worker_id": worker,
                "results": [result(&leased, &json!({ "outcome": "completed" }))],
                "lease": {},
            });
            let answer = api.post("/results", &body.to_string()).await.is(200);
            assert_eq!(answer["tasks"].as_array().unwrap().is_empty(), state != "run", "{order}");
            let shown = teller.get(&format!("/workers/{worker}")).await.is(200);
            assert_eq!((&shown["order"], &shown["state"]), (&json!(state), &json!(state)));
            if state == "run" {
                leased = next;
            }
        }
    }
}

#[tokio::test]
async fn an_order_that_comes_with_results_is_obeyed_by_their_lease() {
    let api = Api::new();
    api.submit("{}").await;
    let leased = lease(&api, None, 1).await;
    api.submit("{}").await;
    api.post(&format!("/workers/{}/pause", id(&leased)), "").await.is(200);
    let body = json!({
        "worker_id": id(&leased),
        "results": [result(&leased, &json!({ "outcome": "completed" }))],
        "lease": {},
    });
    let answer = api.post("/results", &body.to_string()).await.is(200);
    assert_eq!(answer["results"][0]["status"], "applied");
    assert_eq!((&answer["tasks"], &answer["control"]["state"]), (&json!([]), &json!("pause")));
}

#[tokio::test]
async fn who_waits_for_tasks_hears_of_an_order_at_once() {
    // Its next beat would be due after 30 s.
    let api = Api::with("[worker]\nlease = \"90s\"\nheartbeat = \"30s\"");
    let leased = registered(&api).await;
    let path = format!("/workers/{}", id(&leased));
    let body = json!({ "worker": leased["worker"], "wait": "60s" }).to_string();
    let started = std::time::Instant::now();
    // One call looks for orders, the next one waits.
    let (_, answer) = tokio::join!(
        async {
            api.faults.called_again(Call::Wait, 2).await;
            api.post(&format!("{path}/pause"), "").await.is(200)
        },
        api.post("/leases", &body),
    );
    assert_eq!(answer.is(200)["control"]["state"], "pause");
    let (submitted, answer) = tokio::join!(
        async {
            api.faults.called_again(Call::Wait, 2).await;
            let submitted = api.submit("{}").await;
            api.post(&format!("{path}/resume"), "").await.is(200);
            submitted
        },
        api.post("/leases", &body),
    );
    assert_eq!(answer.is(200)["tasks"][0]["id"], json!(submitted));
    assert!(started.elapsed() < Duration::from_secs(25), "it waited for a beat");
}

#[tokio::test]
async fn slots_in_use_follow_from_leases_and_results() {
    let api = Api::new();
    for _ in 0..3 {
        api.submit("{}").await;
    }
    let leased = lease(&api, None, 3).await;
    let path = format!("/workers/{}", id(&leased));
    assert_eq!(api.get(&path).await.is(200)["slots_used"], 3);
    assert_eq!(api.get("/stats").await.is(200)["workers"]["slots_used"], 3);
    report(&api, id(&leased), &[result(&leased, &json!({ "outcome": "completed" }))]).await;
    assert_eq!(api.get(&path).await.is(200)["slots_used"], 2);
}

#[tokio::test]
async fn a_worker_that_is_gone_takes_no_orders() {
    let api = Api::new();
    let leased = registered(&api).await;
    let path = format!("/workers/{}", id(&leased));
    api.delete(&path).await.is(200);
    for order in ["pause", "resume", "drain"] {
        let problem = api.post(&format!("{path}/{order}"), "").await;
        problem.is_problem(409, "state-conflict");
    }
    assert_eq!(api.get(&path).await.is(200)["state"], "gone");
}

#[tokio::test]
async fn who_hangs_up_while_it_waits_gets_no_task() {
    let server = Server::start(Bounds { connections_max: 1, ..Bounds::default() }).await;
    let mut stream = server.connect().await;
    let (address, body) = (server.address, r#"{"wait":"60s"}"#);
    let head = format!(
        "POST /api/v1/leases HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let faults = &server.api.faults;
    // One call looks for orders, the next one waits.
    let waits = faults.called_again(Call::Wait, 2);
    let (sent, ()) = tokio::join!(stream.write_all(head.as_bytes()), waits);
    sent.unwrap();
    // The answer to its claim is on the way while it hangs up.
    faults.hold_replies(Call::Claim);
    let ((), submitted) = tokio::join!(faults.called(Call::Claim), server.api.submit("{}"));
    drop(stream);
    // There is room for one connection: when another is let in, the first is seen to have gone.
    while server.send("GET", "/healthz", "", "").await.1.status == 503 {}
    faults.release(Call::Claim);
    let body = json!({ "wait": "60s" }).to_string();
    let leased = server.api.post("/leases", &body).await.is(200);
    assert_eq!(leased["tasks"][0]["id"], json!(submitted));
    assert_eq!(leased["tasks"][0]["attempts"], 1);
    server.stop().await;
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_and_named() {
    let api = Api::new();
    for (path, body, field) in [
        ("/leases", json!({ "strict": 1 }), "strict"),
        ("/leases", json!({ "suspects": "no" }), "suspects"),
        ("/leases", json!({ "max": 101 }), "max"),
        ("/leases", json!({ "wait": "61s" }), "wait"),
        ("/leases", json!({ "queues": [] }), "queues"),
        ("/leases", json!({ "queues": ["a b"] }), "queues[0]"),
        ("/leases", json!({ "queues": { "a": 0 } }), "queues.a"),
        ("/leases", json!({ "worker": { "nam": "x" } }), "worker.nam"),
        ("/leases", json!({ "worker": { "slots": 1001 } }), "worker.slots"),
        (
            "/results",
            json!({ "results": [{ "epoch": "1", "outcome": "completed" }] }),
            "results[0].id",
        ),
        (
            "/results",
            json!({ "results": [{ "id": "a", "outcome": "completed" }] }),
            "results[0].epoch",
        ),
        (
            "/results",
            json!({ "results": [{ "id": "a", "epoch": 1, "outcome": "completed" }] }),
            "results[0].epoch",
        ),
        ("/results", json!({ "results": [{ "id": "a", "epoch": "1" }] }), "results[0].outcome"),
        (
            "/results",
            json!({ "results": [{ "id": "a", "epoch": "1", "outcome": "done" }] }),
            "results[0].outcome",
        ),
        (
            "/results",
            json!({ "results": [{ "id": "a", "epoch": "1", "outcome": "snoozed" }] }),
            "results[0].after",
        ),
        (
            "/results",
            json!({ "results": [{ "id": "a", "epoch": "1", "outcome": "completed", "error": "x" }] }),
            "results[0].error",
        ),
        (
            "/workers/http-x/heartbeat",
            json!({ "held": [{ "id": "a", "epoch": "1", "progress": 2 }] }),
            "held[0].progress",
        ),
    ] {
        let problem = api.post(path, &body.to_string()).await.is_problem(422, "invalid-request");
        assert_eq!(problem["field"], field, "{body}: {problem}");
    }
    api.call(Method::GET, "/api/v1/leases", None).await.is_problem(405, "method-not-allowed");
}
