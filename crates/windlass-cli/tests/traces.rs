//! Traces of the real binary, as a collector of OpenTelemetry gets them.

#[path = "support/collector.rs"]
mod collector;
mod support;

use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use collector::{Collector, Taken};
use serde_json::{Value, json};
use support::{Place, Server, ran};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CLIENT: &str = "00f067aa0ba902b7";
/// For the numbers of OTLP: https://github.com/open-telemetry/opentelemetry-proto, trace.proto.
const SERVER_KIND: i32 = 2;
const CLIENT_KIND: i32 = 3;
const PRODUCER_KIND: i32 = 4;
const CONSUMER_KIND: i32 = 5;
const ERROR_STATUS: i32 = 2;

fn traced(place: &Place, endpoint: &str) -> Command {
    let mut command = place.command();
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint);
    command
}

/// Submits a task that fails once, in the trace of a client; answers it as it was stored.
fn submit(server: &Server) -> Value {
    let body = json!({
        "type": "fail", "payload": {"times": 1, "message": "no luck"},
        "retry": {"shape": "fixed", "initial": 0.01},
    });
    let body = body.to_string();
    let head = format!(
        "POST /api/v1/tasks HTTP/1.1\r\ncontent-type: application/json\r\n\
         traceparent: 00-{TRACE}-{CLIENT}-01\r\ncontent-length: {}\r\n",
        body.len()
    );
    let (status, answer) = server.ask(&head, &body);
    assert_eq!(status, 201, "{answer}");
    serde_json::from_str(&answer).expect("JSON")
}

fn wait(place: &Place, task: &Value) {
    let id = task["id"].as_str().expect("an id");
    let task = place.run(&["task", "wait", id, "--timeout", "60s"]).exits(0).json();
    assert_eq!((&task["state"], &task["attempts"]), (&json!("completed"), &json!(2)), "{task}");
}

#[track_caller]
fn named<'a>(spans: &'a [Taken], name: &str) -> Vec<&'a Taken> {
    spans.iter().filter(|taken| taken.span.name == name).collect()
}

#[test]
fn a_request_its_submit_and_both_runs_in_another_process_are_one_trace() {
    let (place, collector) = (Place::new(), Collector::start());
    let mut serving = traced(&place, &collector.url);
    serving.env("OTEL_SERVICE_NAME", "shop").env("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=seven");
    let server = place.start_with(serving, "serve", &[]);
    let worker = place.start_with(traced(&place, &collector.url), "worker", &[]);
    let task = submit(&server);
    wait(&place, &task);
    // What ends hands over what is left.
    let logged = [server.end(), worker.end()].concat();
    assert!(logged.contains("traces are handed on") && !logged.contains("seven"), "{logged}");
    let spans = collector.spans();
    assert!(spans.iter().all(|taken| taken.trace() == TRACE), "{spans:?}");
    assert_eq!(spans.len(), 4, "{spans:?}");

    let request = named(&spans, "POST /api/v1/tasks")[0];
    assert_eq!((request.parent().as_str(), request.span.kind), (CLIENT, SERVER_KIND));
    assert_eq!(request.attribute("http.response.status_code"), "201");
    assert_eq!(request.service, "shop");
    assert!(request.head.contains("x-tenant: seven"), "{}", request.head);
    let sent = named(&spans, "send default")[0];
    assert_eq!((sent.parent(), sent.span.kind), (request.id(), PRODUCER_KIND));
    assert_eq!(sent.attribute("messaging.system"), "windlass");
    assert_eq!(sent.attribute("messaging.message.id"), task["id"]);
    assert_eq!(task["traceparent"], format!("00-{TRACE}-{}-01", sent.id()));

    let [first, second] = named(&spans, "process fail")[..] else { panic!("{spans:?}") };
    for (run, attempt, outcome) in [(first, "1", "failed"), (second, "2", "completed")] {
        assert_eq!((run.parent(), run.span.kind), (sent.id(), CONSUMER_KIND));
        assert_eq!(run.service, "windlass");
        assert_eq!(run.attribute("messaging.destination.name"), "default");
        assert_eq!(run.attribute("messaging.operation.type"), "process");
        assert_eq!(run.attribute("messaging.message.id"), task["id"]);
        assert_eq!(run.attribute("windlass.kind"), "fail");
        assert_eq!(run.attribute("windlass.attempt"), attempt);
        assert_eq!(run.attribute("windlass.outcome"), outcome);
    }
    assert_eq!(first.attribute("windlass.worker"), second.attribute("windlass.worker"));
    let status = first.span.status.as_ref().expect("a status");
    assert_eq!((status.code, status.message.as_str()), (ERROR_STATUS, "no luck"));
    assert_eq!(first.span.events[0].name, "exception");
    assert_eq!(first.links(), []);
    assert_eq!(second.links(), [(TRACE.to_owned(), first.id())]);
    assert!(second.span.status.as_ref().is_none_or(|status| status.code != ERROR_STATUS));
    assert!(second.span.events.is_empty());
}

#[test]
fn a_submit_from_the_command_line_goes_on_in_the_trace_that_it_was_started_in() {
    let (place, collector) = (Place::new(), Collector::start());
    let server = place.start_with(traced(&place, &collector.url), "dev", &[]);
    let around = format!("00-{TRACE}-{CLIENT}-01");
    let mut enqueue = traced(&place, &collector.url);
    enqueue.env("TRACEPARENT", &around).args([
        "enqueue",
        "noop",
        "--wait",
        "--server",
        &server.url,
    ]);
    ran(enqueue.output().expect("cargo has built the binary")).exits(0);
    server.end();
    let spans = collector.spans();
    let of = |name| named(&spans, name)[0];
    let chain = ["enqueue", "POST /api/v1/tasks", "send default", "process noop"];
    let mut parent = CLIENT.to_owned();
    for name in chain {
        assert_eq!((of(name).trace().as_str(), of(name).parent()), (TRACE, parent), "{name}");
        parent = of(name).id();
    }
    assert_eq!(of("enqueue").span.kind, CLIENT_KIND);
    assert_eq!(spans.len(), chain.len(), "a wait comes without a trace: {spans:?}");
}

#[test]
fn a_command_per_task_is_told_the_trace_of_its_run() {
    let (place, collector) = (Place::new(), Collector::start());
    let exec = ["--exec", "printf '\"%s\"' \"$TRACEPARENT\""];
    let server = place.start_with(traced(&place, &collector.url), "dev", &exec);
    let task = submit(&server);
    let id = task["id"].as_str().expect("an id");
    let told = place.run(&["task", "wait", id, "--timeout", "60s"]).exits(0).json();
    server.end();
    let spans = collector.spans();
    let run = named(&spans, "process fail")[0];
    assert_eq!(told["result"], format!("00-{TRACE}-{}-01", run.id()));
}

#[test]
fn with_sampling_off_nothing_is_told_and_the_trace_is_passed_on() {
    let (place, collector) = (Place::new(), Collector::start());
    let mut serving = traced(&place, &collector.url);
    serving.env("OTEL_TRACES_SAMPLER", "always_off");
    let server = place.start_with(serving, "dev", &[]);
    let task = submit(&server);
    wait(&place, &task);
    server.end();
    assert_eq!(task["traceparent"], format!("00-{TRACE}-{CLIENT}-01"));
    assert!(collector.spans().is_empty(), "{:?}", collector.spans());
}

#[test]
fn a_collector_that_is_away_holds_up_no_task_and_no_end() {
    let place = Place::new();
    // Bound and then let go: nobody listens there.
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let mut serving = traced(&place, &format!("http://ann:hush@{}", free.expect("a free port")));
    serving
        .env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=hush")
        .env("OTEL_BSP_SCHEDULE_DELAY", "50");
    let server = place.start_with(serving, "dev", &["-vvv"]);
    for _ in 0..20 {
        wait(&place, &submit(&server));
    }
    let began = Instant::now();
    let logged = server.end();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let complaints = logged.matches("traces cannot be handed on").count();
    assert_eq!(complaints, 1, "{logged}");
    assert!(!logged.contains("hush"), "{logged}");
}

#[test]
fn an_environment_that_makes_no_sense_is_refused() {
    let place = Place::new();
    for (name, value) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_TRACES_SAMPLER", "sometimes"),
    ] {
        let mut command = traced(&place, "http://127.0.0.1:4318");
        let command = command.env(name, value).args(["worker"]);
        let refused = ran(command.output().expect("cargo has built the binary")).exits(2);
        assert!(refused.err.contains(name), "{refused}");
    }
    // Whoever does not trace does not care.
    let mut command = traced(&place, "collector:4318");
    ran(command.args(["config", "show"]).output().expect("cargo has built the binary")).exits(0);
}

#[test]
fn without_an_endpoint_nothing_is_traced() {
    let place = Place::new();
    let server = place.dev(&[]);
    let task = submit(&server);
    wait(&place, &task);
    assert_eq!(task["traceparent"], format!("00-{TRACE}-{CLIENT}-01"));
    assert!(!server.end().contains("traces"));
}
