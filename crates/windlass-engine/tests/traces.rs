//! Traces of submits and runs, as an exporter of OpenTelemetry gets them.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use opentelemetry::Value;
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceContextExt, TracerProvider,
};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tracing::{Instrument, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::prelude::*;
use windlass_core::retry::Backoff;
use windlass_engine::trace::{RunIds, traceparent};
use windlass_engine::{Client, Configure, Context, Outcome, Task};
use windlass_testkit::fleet;

/// All spans that ended so far. Blocking handlers have threads of their own, so that all tests share what collects.
static ENDED: LazyLock<Arc<Mutex<Vec<SpanData>>>> = LazyLock::new(|| {
    let ended = Arc::new(Mutex::new(Vec::new()));
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(Collector(Arc::clone(&ended)))
        .with_id_generator(RunIds::default())
        .build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::set_global_default(subscriber).expect("there is no other");
    ended
});

#[derive(Debug)]
struct Collector(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Collector {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().extend(batch);
        Ok(())
    }
}

/// The spans of a trace that have ended, in the order of their beginnings, once there are so many.
async fn spans(of: &SpanContext, count: usize) -> Vec<SpanData> {
    for _ in 0..1_000 {
        let is_its = |span: &&SpanData| span.span_context.trace_id() == of.trace_id();
        let mut found: Vec<_> = ENDED.lock().iter().filter(is_its).cloned().collect();
        if found.len() >= count {
            found.sort_by_key(|span| span.start_time);
            return found;
        }
        // The last reference to a span may be held by someone who is about to end.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("not {count} spans: {:?}", ENDED.lock());
}

fn span_of(traceparent: &str) -> SpanContext {
    let span = info_span!("unused");
    windlass_engine::trace::follow(&span, traceparent);
    span.context().span().span_context().clone()
}

#[track_caller]
fn attribute(span: &SpanData, name: &str) -> String {
    let found = span.attributes.iter().find(|pair| pair.key.as_str() == name);
    let value = found.map(|pair| pair.value.clone()).unwrap_or_else(|| panic!("{name}: {span:?}"));
    match value {
        Value::String(text) => text.to_string(),
        other => other.to_string(),
    }
}

#[track_caller]
fn named<'a>(spans: &'a [SpanData], name: &str) -> Vec<&'a SpanData> {
    spans.iter().filter(|span| span.name == name).collect()
}

#[derive(Serialize, Deserialize)]
struct Flaky {
    failures: u32,
}

impl Task for Flaky {
    const KIND: &'static str = "flaky";
    type Output = Option<String>;
}

async fn flaky(task: Flaky, cx: Context<()>) -> Outcome<Option<String>> {
    if cx.attempt() <= task.failures {
        return Err(format!("no luck {}", cx.attempt()).into());
    }
    async { Ok(traceparent()) }.instrument(info_span!("inner")).await
}

#[derive(Serialize, Deserialize)]
struct Blocking;

impl Task for Blocking {
    const KIND: &'static str = "blocking";
    type Output = ();
}

fn blocking(_: Blocking, _: Context<()>) -> Outcome<()> {
    info_span!("inner").in_scope(|| Ok(()))
}

fn client() -> Client {
    LazyLock::force(&ENDED);
    Client::new(fleet::memory())
}

fn at_once() -> Backoff {
    Backoff::Fixed { initial: Duration::from_millis(1), jitter: 0.0 }
}

#[tokio::test]
async fn a_submit_and_all_runs_of_its_task_are_one_trace_and_a_retry_is_linked_to_the_run_before() {
    let client = client();
    let worker = client.worker().handle(flaky).start().await.unwrap();
    let request = info_span!("request");
    let enqueue = client.enqueue(Flaky { failures: 2 }).backoff(at_once()).into_future();
    let handle = enqueue.instrument(request.clone()).await.unwrap();
    let handed_on = handle.wait().await.unwrap().expect("the handler knows its context");
    worker.stop().await.unwrap();
    let around = request.context().span().span_context().clone();
    drop(request);
    let spans = spans(&around, 6).await;

    let [sent] = named(&spans, "send default")[..] else { panic!("{spans:?}") };
    assert_eq!((sent.parent_span_id, &sent.span_kind), (around.span_id(), &SpanKind::Producer));
    for (name, value) in [
        ("messaging.system", "windlass"),
        ("messaging.operation.type", "send"),
        ("messaging.destination.name", "default"),
        ("messaging.message.id", handle.id().as_str()),
        ("windlass.kind", "flaky"),
        ("windlass.outcome", "new"),
    ] {
        assert_eq!(attribute(sent, name), value);
    }

    let runs = named(&spans, "process flaky");
    assert_eq!(runs.len(), 3);
    for (at, run) in runs.iter().enumerate() {
        assert_eq!(run.parent_span_id, sent.span_context.span_id());
        assert_eq!(run.span_kind, SpanKind::Consumer);
        let linked: Vec<_> = run.links.iter().map(|link| link.span_context.clone()).collect();
        let previous = at.checked_sub(1).map(|at| runs[at].span_context.span_id());
        let linked: Vec<_> = linked.iter().map(SpanContext::span_id).collect();
        assert_eq!(linked, previous.into_iter().collect::<Vec<_>>(), "run {at}");
        assert_eq!(attribute(run, "windlass.attempt"), (at + 1).to_string());
        assert_eq!(attribute(run, "messaging.message.id"), handle.id().as_str());
        let worker = attribute(run, "windlass.worker");
        assert!(!worker.is_empty() && worker == attribute(run, "messaging.client.id"));
        let (outcome, status) = match at {
            2 => ("completed", Status::Unset),
            _ => ("failed", Status::error(format!("no luck {}", at + 1))),
        };
        assert_eq!((attribute(run, "windlass.outcome").as_str(), &run.status), (outcome, &status));
        // Beside these, a run has events of its log lines.
        let exceptions: Vec<_> = run
            .events
            .iter()
            .map(|event| event.name.as_ref())
            .filter(|name| *name == "exception")
            .collect();
        assert_eq!(exceptions, if at == 2 { vec![] } else { vec!["exception"] });
    }
    let epochs: Vec<u128> =
        runs.iter().map(|run| attribute(run, "windlass.epoch").parse().unwrap()).collect();
    assert!(epochs.is_sorted_by(|before, after| before < after), "{epochs:?}");

    let [inner] = named(&spans, "inner")[..] else { panic!("{spans:?}") };
    assert_eq!(inner.parent_span_id, runs[2].span_context.span_id());
    assert_eq!(span_of(&handed_on).trace_id(), around.trace_id());
    assert!(handed_on.contains(&inner.span_context.span_id().to_string()), "{handed_on}");
}

#[tokio::test]
async fn a_span_of_a_blocking_handler_is_a_child_of_its_run() {
    let client = client();
    let worker = client.worker().handle_blocking(blocking).start().await.unwrap();
    let request = info_span!("request");
    let enqueue = client.enqueue(Blocking).into_future();
    enqueue.instrument(request.clone()).await.unwrap().wait().await.unwrap();
    worker.stop().await.unwrap();
    let spans = spans(&request.context().span().span_context().clone(), 3).await;
    let run = named(&spans, "process blocking")[0].span_context.span_id();
    assert_eq!(named(&spans, "inner")[0].parent_span_id, run);
}

#[tokio::test]
async fn runs_of_a_task_that_was_submitted_without_a_trace_share_one_all_the_same() {
    let client = client();
    // As a client without traces would.
    let task = windlass_engine::Options::new().backoff(at_once());
    let task = task.into_task("flaky", r#"{"failures":1}"#.into(), client.config()).unwrap();
    let reserved = windlass_core::store::Reservation { queue: task.queue.clone(), count: 1 };
    let id = client.store().reserve(vec![reserved]).await.unwrap().remove(0);
    client.store().insert(vec![windlass_core::NewTask { id: id.clone(), ..task }]).await.unwrap();
    let worker = client.worker().handle(flaky).start().await.unwrap();
    let handed_on = client.handle::<Flaky>(id).wait().await.unwrap().unwrap();
    worker.stop().await.unwrap();
    let spans = spans(&span_of(&handed_on), 3).await;
    let [first, second] = named(&spans, "process flaky")[..] else { panic!("{spans:?}") };
    assert_eq!((first.parent_span_id, second.parent_span_id), (SpanId::INVALID, SpanId::INVALID));
    let linked = &second.links.iter().next().unwrap().span_context;
    assert_eq!(linked.trace_id(), first.span_context.trace_id());
    assert_eq!(linked.span_id(), first.span_context.span_id());
}

#[tokio::test]
async fn a_batch_has_one_span_and_links_to_the_contexts_that_its_tasks_bring() {
    let client = client();
    let own = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let make = |queue: &str, own: Option<&str>| {
        let options = windlass_engine::Options::new().queue(queue);
        let options = match own {
            Some(own) => options.traceparent(own),
            None => options,
        };
        options.into_task("flaky", "{}".into(), client.config()).unwrap()
    };
    let request = info_span!("request");
    let tasks = vec![make("a", None), make("a", Some(own)), make("b", Some(own)), make("b", None)];
    let stored = client.insert_all(tasks).instrument(request.clone()).await;
    let spans = spans(&request.context().span().span_context().clone(), 1).await;
    let [sent] = named(&spans, "send")[..] else { panic!("{spans:?}") };
    assert_eq!(attribute(sent, "messaging.batch.message_count"), "4");
    assert_eq!(sent.links.len(), 1);
    let sent_id = sent.span_context.span_id().to_string();
    for (at, stored) in stored.into_iter().enumerate() {
        let (sent, _) = stored.unwrap();
        let record = client.get(&sent.id).await.unwrap().unwrap();
        assert_eq!(sent.spec, record.spec, "what was stored is what is answered");
        let carried = record.spec.extras.traceparent.unwrap();
        assert_eq!(carried == own, at == 1 || at == 2, "{carried}");
        assert_eq!(carried.contains(&sent_id), at == 0 || at == 3, "{carried}");
    }
}

#[tokio::test]
async fn a_context_that_is_not_sampled_is_handed_on_as_it_is_and_nothing_is_told() {
    let client = client();
    let around = "00-4bf92f3577b34da6a3ce929d0e0e4737-00f067aa0ba902b7-00";
    let request = info_span!("request");
    windlass_engine::trace::follow(&request, around);
    let carried = async {
        let handle = client.enqueue(Flaky { failures: 0 }).await.unwrap();
        client.get(handle.id()).await.unwrap().unwrap().spec.extras.traceparent.unwrap()
    };
    let carried = carried.instrument(request.clone()).await;
    drop(request);
    // The span of the request is between, though nobody will hear of it.
    assert!(carried.starts_with(&around[..36]) && carried.ends_with("-00"), "{carried}");
    let worker = client.worker().handle(flaky).start().await.unwrap();
    worker.stop().await.unwrap();
    let trace = span_of(around).trace_id();
    assert!(ENDED.lock().iter().all(|span| span.span_context.trace_id() != trace));
}
