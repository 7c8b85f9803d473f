//! Lines of the log as JSON objects: `timestamp`, `level`, `message`, the fields of the event by their names, `target`,
//! and `spans`, the outermost first.

use std::fmt;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;
use windlass::core::{Clock, SystemClock};

/// Names of a line itself: a field of such a name gets an underscore.
const RESERVED: [&str; 4] = ["timestamp", "level", "target", "spans"];

/// Writes fields of spans as a JSON object.
pub(super) struct JsonFields;

/// Writes events as lines of JSON.
pub(super) struct JsonEvents;

impl<'writer> FormatFields<'writer> for JsonFields {
    fn format_fields<R: RecordFields>(
        &self,
        mut writer: Writer<'writer>,
        fields: R,
    ) -> fmt::Result {
        let mut visitor = Visitor(Map::new());
        fields.record(&mut visitor);
        write!(writer, "{}", Value::Object(visitor.0))
    }

    fn add_fields(
        &self,
        current: &'writer mut FormattedFields<Self>,
        fields: &tracing::span::Record<'_>,
    ) -> fmt::Result {
        let mut visitor = Visitor(serde_json::from_str(&current.fields).unwrap_or_default());
        fields.record(&mut visitor);
        current.fields = Value::Object(visitor.0).to_string();
        Ok(())
    }
}

impl<S> FormatEvent<S, JsonFields> for JsonEvents
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut visitor = Visitor(Map::new());
        event.record(&mut visitor);
        let mut fields = visitor.0;
        let mut line = Map::new();
        line.insert("timestamp".into(), SystemClock.now().to_string().into());
        line.insert("level".into(), event.metadata().level().as_str().into());
        line.insert("message".into(), fields.remove("message").unwrap_or_default());
        line.extend(fields);
        line.insert("target".into(), event.metadata().target().into());
        let mut spans = Vec::new();
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<JsonFields>>();
            let fields = fields.and_then(|it| serde_json::from_str(&it.fields).ok());
            let mut fields: Map<String, Value> = fields.unwrap_or_default();
            fields.insert("name".into(), span.name().into());
            spans.push(Value::Object(fields));
        }
        if !spans.is_empty() {
            line.insert("spans".into(), spans.into());
        }
        writeln!(writer, "{}", Value::Object(line))
    }
}

/// Gathers fields, without those that are for OpenTelemetry only.
struct Visitor(Map<String, Value>);

impl Visitor {
    fn put(&mut self, field: &Field, value: Value) {
        let name = field.name();
        if name.starts_with("otel.") {
            return;
        }
        let name = match RESERVED.contains(&name) {
            true => format!("{name}_"),
            false => name.to_owned(),
        };
        self.0.insert(name, value);
    }
}

impl Visit for Visitor {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.put(field, value.to_string().into());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_is_an_object_with_fields_and_spans() {
        let lines = Lines::default();
        let written = lines.clone();
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(move || lines.clone())
            .fmt_fields(JsonFields)
            .event_format(JsonEvents);
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::info_span!("task", task_id = "a", more = tracing::field::Empty);
            span.record("more", 1);
            span.in_scope(|| {
                tracing::warn!("type" = %"mail", level = 2_u64, otel.name = "x", "dead\nletter");
            });
        });
        let text = String::from_utf8(written.0.lock().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["message"], "dead\nletter");
        assert_eq!(
            (&line["level"], &line["level_"], &line["type"]),
            (&"WARN".into(), &2.into(), &"mail".into())
        );
        assert_eq!(
            line["spans"][0],
            serde_json::json!({"name": "task", "task_id": "a", "more": 1})
        );
        assert!(line["otel.name"].is_null());
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z'));
    }
}
