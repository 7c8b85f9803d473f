//! The built-in kinds: to try things out, to measure, and to see how failures are treated.

use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use windlass::{Context, Failure, Outcome, RawTask, WorkerBuilder, cancelled};

/// What a failure says when the payload does not.
const MESSAGE: &str = "failed, as the task asked for";

/// How a worker treats tasks that were submitted without a type. Their type is `default`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Untyped {
    /// It logs and completes them.
    Completed,
    /// It leaves them to others.
    Left,
}

/// Adds all of them.
pub(super) fn add(builder: WorkerBuilder<()>, untyped: Untyped) -> WorkerBuilder<()> {
    let builder = builder
        .handle_raw("echo", echo)
        .handle_raw("noop", noop)
        .handle_raw("dummy", noop)
        .handle_raw("sleep", sleep)
        .handle_raw("fail", fail);
    match untyped {
        Untyped::Completed => builder.handle_raw("default", default),
        Untyped::Left => builder,
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sleep {
    ms: u64,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fail {
    message: Option<String>,
    /// How many runs fail; without it, all.
    times: Option<u32>,
}

/// The result is the payload, byte for byte.
async fn echo(task: RawTask, _: Context<()>) -> Outcome<Bytes> {
    Ok(task.payload)
}

/// Like `echo`, and logs each run.
async fn default(task: RawTask, cx: Context<()>) -> Outcome<Bytes> {
    let (id, bytes) = (cx.task_id(), task.payload.len());
    tracing::info!(%id, bytes, "a task without a type was completed");
    Ok(task.payload)
}

async fn noop(_: RawTask, _: Context<()>) -> Outcome<Bytes> {
    Ok(Bytes::from_static(b"null"))
}

async fn sleep(task: RawTask, cx: Context<()>) -> Outcome<Bytes> {
    let Sleep { ms } = read(&task, r#"{"ms": 250}"#)?;
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(ms)) => {}
        () = cx.cancelled() => return Err(cancelled()),
    }
    Ok(Bytes::from(json!({ "slept_ms": ms }).to_string()))
}

async fn fail(task: RawTask, cx: Context<()>) -> Outcome<Bytes> {
    // A kind whose every field may be absent needs no payload either.
    let payload: Option<Fail> = match task.payload.is_empty() {
        true => None,
        false => read(&task, r#"{"message": "boom", "times": 2}"#)?,
    };
    let Fail { message, times } = payload.unwrap_or_default();
    if times.is_none_or(|times| cx.attempt() <= times) {
        return Err(Failure::from(message.unwrap_or_else(|| MESSAGE.into())));
    }
    Ok(Bytes::from(json!({ "attempt": cx.attempt() }).to_string()))
}

/// The payload; an error names the kind, a payload that would do, and what is wrong with this one.
fn read<T: DeserializeOwned>(task: &RawTask, like: &str) -> Outcome<T> {
    serde_json::from_slice(&task.payload).map_err(|error| {
        Failure::from(format!("the payload of {} must be like {like}: {error}", task.kind))
    })
}

#[cfg(test)]
mod tests {
    use windlass::{Configure, Ending, Options, State};

    use super::super::testing::{Scene, check_failed};

    async fn check_completed(kind: &str, payload: &'static [u8], result: &'static [u8]) {
        let mut scene = Scene::start(None).await;
        let ending = scene.run(kind, payload).await;
        assert_eq!(ending, Ending::Completed { result: Some(result.into()) }, "{kind}");
        scene.end().await;
    }

    #[tokio::test]
    async fn echo_returns_its_payload_byte_for_byte() {
        check_completed("echo", b" {\"a\" : 1.50}\n", b" {\"a\" : 1.50}\n").await;
        check_completed("echo", b"\xff\0", b"\xff\0").await;
        check_completed("echo", b"", b"").await;
    }

    #[tokio::test]
    async fn noop_returns_null_whatever_its_payload() {
        check_completed("noop", b"no JSON", b"null").await;
        check_completed("dummy", b"no JSON", b"null").await;
    }

    #[tokio::test]
    async fn a_task_without_a_type_completes_with_its_payload() {
        check_completed("default", b"{}", b"{}").await;
    }

    #[tokio::test]
    async fn sleep_tells_how_long_it_slept() {
        check_completed("sleep", br#"{"ms":3}"#, br#"{"slept_ms":3}"#).await;
    }

    #[tokio::test]
    async fn sleep_ends_when_it_is_cancelled() {
        let mut scene = Scene::start(None).await;
        let id = scene.submit("sleep", br#"{"ms":600000}"#, Options::new()).await;
        scene.started().await;
        scene.client.cancel(&id).await.unwrap();
        assert_eq!(scene.ended().await, Ending::Cancelled);
        scene.end().await;
    }

    #[tokio::test]
    async fn fail_fails_with_its_message_so_many_times_and_then_completes() {
        let mut scene = Scene::start(None).await;
        let payload = br#"{"message":"no luck","times":2}"#;
        let now = windlass::Backoff::Fixed { initial: std::time::Duration::ZERO, jitter: 0.0 };
        let options = Options::new().max_retries(5).backoff(now);
        let id = scene.submit("fail", payload, options).await;
        for _ in 0..2 {
            check_failed(&scene.ended().await, "no luck");
        }
        let result = br#"{"attempt":3}"#[..].into();
        assert_eq!(scene.ended().await, Ending::Completed { result: Some(result) });
        scene.end().await;
        let record = scene.client.get(&id).await.unwrap().unwrap();
        assert_eq!((record.state, record.attempts), (State::Completed, 3));
    }

    #[tokio::test]
    async fn fail_needs_no_payload() {
        let mut scene = Scene::start(None).await;
        for payload in [&b""[..], b"null", b"{}"] {
            check_failed(&scene.run("fail", payload).await, super::MESSAGE);
        }
        let ending = scene.run("fail", br#"{"times":0}"#).await;
        assert!(matches!(ending, Ending::Completed { .. }), "{ending:?}");
        scene.end().await;
    }

    #[tokio::test]
    async fn a_payload_that_does_not_fit_is_told_precisely() {
        let mut scene = Scene::start(None).await;
        for (kind, payload, text) in [
            ("sleep", &br#"{}"#[..], "missing field `ms`"),
            ("sleep", br#"{"millis":5}"#, "unknown field `millis`, expected `ms`"),
            ("sleep", br#"{"ms":-5}"#, "invalid value: integer `-5`"),
            ("sleep", br#"{"ms":"#, "EOF while parsing"),
            ("sleep", b"", "must be like {\"ms\": 250}"),
            ("fail", br#"{"times":"two"}"#, "the payload of fail must be like"),
        ] {
            let ending = scene.run(kind, payload).await;
            let Ending::Failed { error, retry_after: None } = &ending else { panic!("{ending:?}") };
            assert!(error.contains(text), "{error}");
        }
        scene.end().await;
    }

    #[tokio::test]
    async fn a_task_that_nobody_handles_waits() {
        let mut scene = Scene::start(None).await;
        let id = scene.submit("of.an.application", b"{}", Options::new()).await;
        let reason = "no live worker handles type of.an.application";
        let waits = async {
            while scene.client.get(&id).await.unwrap().unwrap().history.wait_reason()
                != Some(reason)
            {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), waits).await.unwrap();
        scene.end().await;
    }
}
