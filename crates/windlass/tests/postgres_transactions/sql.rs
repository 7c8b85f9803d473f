//! Tasks from SQL alone.

use std::time::Duration;

use windlass::core::history::Happening;
use windlass::core::store::{Changed, GetParams, Parts};
use windlass::core::{Priority, State, TaskId, TaskRecord};
use windlass::prelude::*;
use windlass::tokio_postgres;

use crate::shop::{Ship, Shop, ship, soon};

impl Shop {
    /// Calls a function of the schema's; `{}` stands for the schema.
    async fn sql(&self, text: &str) -> Result<Option<String>, tokio_postgres::Error> {
        let connection = self.connect().await;
        let rows = connection.query(&text.replace("{}", &self.schema), &[]).await?;
        Ok(rows.first().and_then(|row| row.get(0)))
    }

    async fn enqueue(&self, arguments: &str) -> TaskId {
        let text = format!("SELECT {{}}.enqueue({arguments})");
        TaskId::new(self.sql(&text).await.unwrap().unwrap())
    }

    async fn record(&self, id: &TaskId) -> TaskRecord {
        let params = GetParams { ids: vec![id.clone()], parts: Parts::ALL };
        self.client.store().get(params).await.unwrap().pop().flatten().unwrap()
    }
}

#[tokio::test]
async fn a_task_from_sql_is_as_one_from_rust() {
    let shop = Shop::open().await;
    let ours = shop.client.enqueue(Ship(7)).await.unwrap();
    let (ours, theirs) = (shop.record(ours.id()).await, shop.enqueue("'ship', '7'").await);
    let theirs = shop.record(&theirs).await;
    assert_eq!((&theirs.kind, &theirs.queue), (&ours.kind, &ours.queue));
    assert_eq!((&theirs.spec, &theirs.payload), (&ours.spec, &ours.payload));
    assert_eq!((theirs.state, theirs.priority), (State::Pending, ours.priority));

    let options = r#"{"delay": "5m", "max_retries": 1, "max_crashes": 0, "timeout": "PT30S", "retention": 60,
        "deadline": "2100-01-01T00:00:00Z", "tags": ["a", "b"], "metadata": {"k": "v"}, "traceparent": "t",
        "retry": {"shape": "linear", "step": "5s", "max": "1m"}}"#;
    let theirs = shop
        .enqueue(&format!("'ship', queue => 'far', priority => 'high', options => '{options}'"))
        .await;
    let configured = shop
        .client
        .enqueue(Ship(7))
        .queue("far")
        .priority(Priority::High)
        .delay(Duration::from_secs(300))
        .max_retries(1)
        .max_crashes(0)
        .timeout(Duration::from_secs(30))
        .retention(Duration::from_secs(60))
        .deadline("2100-01-01T00:00:00Z".parse().unwrap())
        .tag("a")
        .tag("b")
        .metadata("k", "v")
        .traceparent("t")
        .backoff(Backoff::Linear {
            step: Duration::from_secs(5),
            max: Duration::from_secs(60),
            jitter: 0.1,
        })
        .await
        .unwrap();
    let (theirs, ours) = (shop.record(&theirs).await, shop.record(configured.id()).await);
    assert_eq!(theirs.spec, ours.spec);
    assert_eq!((theirs.state, theirs.priority), (State::Scheduled, Priority::High));
    shop.check_books().await;
}

#[tokio::test]
async fn keys_hold_between_sql_and_rust() {
    let shop = Shop::open().await;
    let by_sql = shop.enqueue("'ship', '1', idempotency_key => 'i'").await;
    let by_rust = shop.client.enqueue(Ship(1)).idempotency_key("i").await.unwrap();
    assert_eq!((by_rust.id(), by_rust.is_new()), (&by_sql, false));
    let by_rust = shop.client.enqueue(Ship(2)).unique("u").await.unwrap();
    let unique = r#"'ship', '2', options => '{"unique": {"key": "u", "until": "finished", "on_conflict": "return"}}'"#;
    assert_eq!(shop.enqueue(unique).await, *by_rust.id());
    let refused =
        shop.sql(&format!("SELECT {{}}.enqueue({})", unique.replace("return", "reject"))).await;
    assert_eq!(refused.unwrap_err().code().unwrap().code(), "23505");
    let refused = shop.sql("SELECT {}.enqueue('ship', '3', idempotency_key => 'i')").await;
    assert_eq!(refused.unwrap_err().code().unwrap().code(), "22023");
    shop.check_books().await;
}

#[tokio::test]
async fn what_cannot_be_meant_is_refused_with_a_reason() {
    let shop = Shop::open().await;
    for (arguments, reason) in [
        ("'two words'", "task type 'two words': use 1 to 128 letters"),
        ("NULL", "task type NULL"),
        ("'a', queue => '-'", "queue name '-'"),
        ("'a', priority => 'urgent'", "use critical, high, normal or low"),
        ("'a', idempotency_key => ''", "must have 1 to 255 bytes"),
        ("'a', to_jsonb(repeat('x', 1048576))", "at most 1048576 allowed"),
        ("'a', (repeat('[', 65) || repeat(']', 65))::jsonb", "nested too deep"),
        ("'a', options => '[]'", "must be an object"),
        ("'a', options => '{\"timout\": 1}'", "unknown field timout; known: delay, "),
        ("'a', options => '{\"timeout\": 0}'", "must be longer than zero"),
        ("'a', options => '{\"timeout\": \"soon\"}'", "not a duration"),
        ("'a', options => '{\"delay\": \"1 month\"}'", "not a duration"),
        ("'a', options => '{\"delay\": -1}'", "must not be negative"),
        ("'a', options => '{\"max_retries\": 1.5}'", "whole number from 0 to 1000000"),
        ("'a', options => '{\"deadline\": \"tomorrow\"}'", "use RFC 3339"),
        ("'a', options => '{\"tags\": [\"a b\"]}'", "tag 'a b'"),
        ("'a', options => '{\"unique\": {\"key\": \"k\"}}'", "needs for, or until"),
        (
            "'a', options => '{\"retry\": {\"shape\": \"round\"}}'",
            "use exponential, linear or fixed",
        ),
        ("'a', options => '{\"retry\": {\"jitter\": 2}}'", "use 0 to 1"),
        ("'a', run_at => now(), options => '{\"delay\": 1}'", "run_at or delay, not both"),
        ("'a', options => '{\"deadline\": \"9999-12-31T23:59:59Z\"}'", "is not a time before 9999"),
        ("'a', run_at => 'infinity'", "run_at: infinity is not a time"),
        ("'a', run_at => '-infinity'", "run_at: -infinity is not a time"),
        ("'a', run_at => '200000-01-01 00:00:00Z'", "is not a time before 9999"),
        ("'a', options => '{\"delay\": 1e400}'", "not a duration"),
        ("'a', options => '{\"timeout\": \"18446744073709551616\"}'", "not a duration"),
        ("'a', options => '{\"metadata\": {\"k\": null}}'", "must have strings as values"),
        ("'a', options => '{\"retry\": {\"factor\": 1e400}}'", "use a number above 0"),
    ] {
        let refused = shop.sql(&format!("SELECT {{}}.enqueue({arguments})")).await.unwrap_err();
        let told = refused.as_db_error().expect(arguments);
        assert!(told.message().contains(reason), "{arguments}: {told}");
        assert_eq!(told.code().code(), "22023", "{arguments}");
    }
    shop.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_with_just_the_right_to_call_enqueues_by_a_trigger_and_watches_nothing() {
    let shop = Shop::open().await;
    let (schema, role) = (&shop.schema, format!("caller_{}", shop.schema));
    let owner = shop.connect().await;
    let setup = format!(
        "CREATE ROLE {role};
         GRANT USAGE ON SCHEMA {schema} TO {role};
         GRANT EXECUTE ON FUNCTION {schema}.enqueue TO {role};
         CREATE TABLE public.orders_{schema} (id int8);
         GRANT INSERT ON public.orders_{schema} TO {role};
         CREATE FUNCTION public.ship_{schema}() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
           PERFORM {schema}.enqueue('ship', to_jsonb(NEW.id));
           RETURN NEW;
         END $$;
         CREATE TRIGGER ship AFTER INSERT ON public.orders_{schema}
           FOR EACH ROW EXECUTE FUNCTION public.ship_{schema}()"
    );
    owner.batch_execute(&setup).await.unwrap();
    let worker = shop.client.worker().handle(ship).start().await.unwrap();
    let caller = shop.connect().await;
    caller.batch_execute(&format!("SET ROLE {role}")).await.unwrap();
    let insert = format!("INSERT INTO public.orders_{schema} SELECT generate_series(1, 3)");
    caller.batch_execute(&insert).await.unwrap();
    caller.batch_execute(&format!("BEGIN; {insert}; ROLLBACK")).await.unwrap();
    for text in
        ["SELECT count(*) FROM {}.tasks", "SELECT {}.cancel('x')", "SELECT count(*) FROM {}.task"]
    {
        let refused = caller.batch_execute(&text.replace("{}", schema)).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "42501", "{text}");
    }
    let done = format!(
        "SELECT coalesce(sum(completed), 0)::int8, coalesce(sum(pending), 0)::int8 FROM {schema}.counts"
    );
    let all = async {
        while owner.query_one(&done, &[]).await.unwrap().get::<_, i64>(0) < 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(all).await;
    assert_eq!(owner.query_one(&done, &[]).await.unwrap().get::<_, i64>(1), 0);
    worker.stop().await.unwrap();
    shop.check_books().await;
}

#[tokio::test]
async fn a_task_is_called_off_and_run_again_by_sql() {
    let shop = Shop::open().await;
    let id = shop
        .enqueue(
            "'ship', '1', options => '{\"unique\": {\"key\": \"k\", \"until\": \"finished\"}}'",
        )
        .await;
    let call = |function: &str| format!("SELECT {{}}.{function}('{id}')");
    let told = async |function| shop.sql(&call(function)).await.unwrap().unwrap();
    assert_eq!(told("retry").await, "refused");
    assert_eq!(told("cancel").await, "cancelled");
    assert_eq!(told("cancel").await, "finished");
    assert_eq!(shop.record(&id).await.state, State::Cancelled);
    assert!(shop.client.enqueue(Ship(2)).unique("k").await.unwrap().is_new(), "the key is free");
    assert_eq!(told("retry").await, "pending");
    let record = shop.record(&id).await;
    let story: Vec<_> = record.history.entries().iter().map(|entry| entry.what).collect();
    assert_eq!(story, [Happening::Cancelled, Happening::Rerun]);
    assert_eq!(record.history.entries()[0].by.as_deref(), Some("windlass"));
    // The other task was submitted before this one was run again.
    let claimed = shop.claim("one", 2).await.tasks;
    assert_eq!(claimed[1].id, id);
    assert_eq!(told("cancel").await, "requested");
    assert!(shop.record(&id).await.is_cancel_requested);
    assert_eq!(shop.client.cancel(&id).await.unwrap(), Changed::Requested);
    assert_eq!(shop.sql("SELECT {}.cancel('nobody')").await.unwrap().unwrap(), "not_found");
    shop.check_books().await;
}

#[tokio::test]
async fn the_view_tells_what_the_api_tells() {
    let shop = Shop::open().await;
    let id =
        shop.enqueue("'ship', '{\"a\": 1}', options => '{\"tags\": [\"t\"], \"delay\": 60}'").await;
    let raw = shop
        .client
        .enqueue_raw("raw", bytes::Bytes::from_static(b"\xff{"), Options::new())
        .await
        .unwrap()
        .0;
    let connection = shop.connect().await;
    let text = format!(
        "SELECT id, type, queue, priority, state, payload::text, payload_raw, attempts, tags::text,
           run_at - created_at = interval '60 s', timeout::float8
         FROM {}.task($1)",
        shop.schema
    );
    let row = connection.query_one(&text, &[&id.as_str()]).await.unwrap();
    let texts: Vec<&str> = (0..6).map(|at| row.get(at)).collect();
    assert_eq!(texts, [id.as_str(), "ship", "default", "normal", "scheduled", "{\"a\": 1}"]);
    assert_eq!(row.get::<_, &[u8]>(6), b"{\"a\": 1}");
    assert_eq!((row.get::<_, i32>(7), row.get::<_, &str>(8)), (0, "[\"t\"]"));
    assert!(row.get::<_, bool>(9));
    assert!((row.get::<_, f64>(10) - 300.0).abs() < 1e-9);
    let row = connection.query_one(&text, &[&raw.as_str()]).await.unwrap();
    assert_eq!(row.get::<_, Option<&str>>(5), None);
    assert_eq!(row.get::<_, &[u8]>(6), b"\xff{");
    let all = format!("SELECT count(*) FROM {}.tasks", shop.schema);
    assert_eq!(connection.query_one(&all, &[]).await.unwrap().get::<_, i64>(0), 2);
}

#[tokio::test]
async fn the_largest_that_is_taken_can_be_read() {
    let shop = Shop::open().await;
    let options = r#"{"deadline": "9999-12-30T22:00:00Z", "timeout": 9e15, "retention": 18446744073709551615,
        "retry": {"factor": 1e300, "max": 9e15}}"#;
    let far = "run_at => '9999-12-30 22:00:00Z'";
    let id = shop.enqueue(&format!("'ship', '1', {far}, options => '{options}'")).await;
    let record = shop.record(&id).await;
    assert_eq!(record.spec.extras.deadline, Some("9999-12-30T22:00:00Z".parse().unwrap()));
    assert_eq!(record.spec.timeout, Duration::from_secs(9_000_000_000_000_000));
    assert_eq!(record.run_at, Some(windlass::Timestamp::MAX));
    // A fraction of a millisecond rounds up, as everywhere.
    let late = r#"{"deadline": "2100-01-01T00:00:00.0001Z"}"#;
    let id = shop.enqueue(&format!("'ship', '1', options => '{late}'")).await;
    let expected = "2100-01-01T00:00:00.001Z".parse().unwrap();
    assert_eq!(shop.record(&id).await.spec.extras.deadline, Some(expected));
    shop.check_books().await;
}

#[tokio::test]
async fn null_stands_for_the_default() {
    let shop = Shop::open().await;
    let plain = shop.enqueue("'ship'").await;
    let plain = shop.record(&plain).await;
    let nulls = r#"{"delay": null, "timeout": null, "deadline": null, "retry": null, "unique": null,
        "retention": null, "tags": null, "metadata": null, "traceparent": null, "quiet": null,
        "max_retries": null, "max_crashes": null}"#;
    for arguments in [
        String::from("'ship', NULL, NULL, NULL, NULL, NULL, NULL"),
        format!("'ship', run_at => now(), options => '{nulls}'"),
        String::from(r#"'ship', options => '{"retry": {"shape": null, "factor": null}}'"#),
    ] {
        let id = shop.enqueue(&arguments).await;
        let record = shop.record(&id).await;
        assert_eq!((&record.queue, record.priority), (&plain.queue, plain.priority), "{arguments}");
        assert_eq!((&record.payload, record.state), (&plain.payload, plain.state), "{arguments}");
        if !arguments.contains("shape") {
            assert_eq!(record.spec, plain.spec, "{arguments}");
        }
    }
    shop.check_books().await;
}

#[tokio::test]
async fn a_callers_settings_change_nothing() {
    let shop = Shop::open().await;
    let connection = shop.connect().await;
    let settings = "SET standard_conforming_strings = off; SET escape_string_warning = off;
        SET intervalstyle = sql_standard; SET datestyle = 'SQL, DMY'; SET timezone = 'Asia/Tokyo';
        SET extra_float_digits = -15";
    connection.batch_execute(settings).await.unwrap();
    let text = r#"SELECT {}.enqueue('ship', jsonb_build_array(chr(34) || '[[' || chr(92)), idempotency_key => 'k',
        options => '{"timeout": "1m 30s", "deadline": "2100-02-01T00:00:00Z", "retry": {"jitter": 0.125}}')"#;
    let row = connection.query_one(&text.replace("{}", &shop.schema), &[]).await.unwrap();
    let record = shop.record(&TaskId::new(row.get::<_, String>(0))).await;
    assert_eq!(record.spec.timeout, Duration::from_secs(90));
    assert_eq!(record.spec.extras.deadline, Some("2100-02-01T00:00:00Z".parse().unwrap()));
    let text = format!("SELECT payload ->> 0 FROM {}.task($1)", shop.schema);
    let row = connection.query_one(&text, &[&record.id.as_str()]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), "\"[[\\");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_view_shows_what_it_can_of_texts_with_a_nul() {
    let shop = Shop::open().await;
    let refuse = async |_: Ship, _: Context<()>| -> Outcome<i64> { Err("a\0b".into()) };
    let worker = shop.client.worker().handle(refuse).start().await.unwrap();
    let handle = shop
        .client
        .enqueue(Ship(1))
        .max_retries(0)
        .tag("t")
        .metadata("k", "\\u0000 \0\0")
        .deadline("2100-01-01T00:00:00Z".parse().unwrap())
        .await
        .unwrap();
    soon(handle.wait()).await.unwrap_err();
    worker.stop().await.unwrap();
    let raw = bytes::Bytes::from_static(br#"{"a": "x\u0000y"}"#);
    let raw = shop.client.enqueue_raw("raw", raw, Options::new()).await.unwrap().0;
    let connection = shop.connect().await;
    let text = format!(
        "SELECT tags ->> 0, metadata ->> 'k', deadline::text, error, payload ->> 'a' FROM {}.task($1)",
        shop.schema
    );
    let row = connection.query_one(&text, &[&handle.id().as_str()]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), "t");
    assert_eq!(row.get::<_, &str>(1), "\\u0000 \u{fffd}\u{fffd}");
    assert!(row.get::<_, &str>(2).starts_with("2100-01-01"));
    assert_eq!(row.get::<_, &str>(3), "a\u{fffd}b");
    let row = connection.query_one(&text, &[&raw.as_str()]).await.unwrap();
    assert_eq!(row.get::<_, &str>(4), "x\u{fffd}y");
}
