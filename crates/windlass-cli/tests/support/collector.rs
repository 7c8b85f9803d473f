//! A collector of OpenTelemetry: takes traces by OTLP over HTTP, and keeps them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

/// What was taken so far.
#[derive(Clone)]
pub(crate) struct Collector {
    pub(crate) url: String,
    taken: Arc<Mutex<Vec<Taken>>>,
}

/// A span, and who told it.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) service: String,
    /// The head of the request that brought it, in lower case.
    pub(crate) head: String,
    pub(crate) span: Span,
}

impl Collector {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("it has an address"));
        let collector = Self { url, taken: Arc::default() };
        let taken = Arc::clone(&collector.taken);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let taken = Arc::clone(&taken);
                std::thread::spawn(move || while let Some(()) = take(&stream, &taken) {});
            }
        });
        collector
    }

    /// All spans so far, in the order of their beginnings.
    pub(crate) fn spans(&self) -> Vec<Taken> {
        let mut taken = self.taken.lock().expect("nobody panicked").clone();
        taken.sort_by_key(|taken| taken.span.start_time_unix_nano);
        taken
    }
}

/// Takes one request; nothing when there is no further one.
fn take(stream: &TcpStream, taken: &Mutex<Vec<Taken>>) -> Option<()> {
    // Bytes that it has read too many would be lost; there are none, since clients wait for the answer.
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let head = head.to_lowercase();
    assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
    assert!(head.contains("content-type: application/x-protobuf"), "{head}");
    let length = head.split("content-length: ").nth(1)?.lines().next()?.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let request = ExportTraceServiceRequest::decode(&body[..]).expect("it is what OTLP says");
    for of_resource in request.resource_spans {
        let attributes = of_resource.resource.map(|resource| resource.attributes);
        let service = text(&attributes.unwrap_or_default(), "service.name").unwrap_or_default();
        for span in of_resource.scope_spans.into_iter().flat_map(|of_scope| of_scope.spans) {
            let told = Taken { service: service.clone(), head: head.clone(), span };
            taken.lock().expect("nobody panicked").push(told);
        }
    }
    let mut stream = stream;
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()
}

impl Taken {
    pub(crate) fn trace(&self) -> String {
        hex(&self.span.trace_id)
    }

    pub(crate) fn id(&self) -> String {
        hex(&self.span.span_id)
    }

    pub(crate) fn parent(&self) -> String {
        hex(&self.span.parent_span_id)
    }

    /// The spans that it is linked to.
    pub(crate) fn links(&self) -> Vec<(String, String)> {
        self.span.links.iter().map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect()
    }

    /// An attribute, as text.
    #[track_caller]
    pub(crate) fn attribute(&self, name: &str) -> String {
        text(&self.span.attributes, name).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }
}

fn text(attributes: &[KeyValue], name: &str) -> Option<String> {
    let value = attributes.iter().find(|pair| pair.key == name)?.value.clone();
    match value {
        Some(AnyValue { value: Some(any_value::Value::StringValue(text)) }) => Some(text),
        Some(AnyValue { value: Some(any_value::Value::IntValue(number)) }) => {
            Some(number.to_string())
        }
        other => panic!("{name} is {other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
