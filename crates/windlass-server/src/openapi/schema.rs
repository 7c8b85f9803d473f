//! JSON schemas of what is sent, from the forms that it is read by.

use serde_json::{Map, Value, json};
use windlass_core::{Priority, State};

use crate::fields::SECONDS_MAX;
use crate::form::{Form, Sort};
use crate::trace_context;

/// Whole names: letters, digits and some marks, 1 to 128 of them.
const NAME: &str = "^[A-Za-z0-9][A-Za-z0-9_.:\\-]{0,127}$";
/// Without control characters.
const KEY: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]+$";
/// Without control characters, and without blanks at its ends.
const PLAIN: &str = "^[^\\s\\u0000-\\u001f\\u007f-\\u009f](?:[^\\u0000-\\u001f\\u007f-\\u009f]*\
                     [^\\s\\u0000-\\u001f\\u007f-\\u009f])?$";
const GLOB: &str = "^[A-Za-z0-9_.:*\\-]{1,128}$";
const DURATION: &str = "^(?:[0-9]{1,9}(?:\\.[0-9]{1,9})?|[0-9]{1,5}(?:ms|s|m|h)|[0-9]{1,4}d|[0-9]{1,3}w|\
     PT[0-9]{1,5}[SMH]|P[0-9]{1,4}D)$";
const TIMEOUT: &str = "^(?:[1-9][0-9]{0,8}(?:\\.[0-9]{1,9})?|[1-9][0-9]{0,4}(?:ms|s|m|h)|[1-9][0-9]{0,3}d|\
     [1-9][0-9]{0,2}w|PT[1-9][0-9]{0,4}[SMH]|P[1-9][0-9]{0,3}D)$";
const WAIT: &str = "^(?:[0-5]?[0-9](?:\\.[0-9]{1,9})?|60)s?$";
const BASE64: &str = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw](?:==)?|\
                      [A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=?)?$";

/// A reference to a form, which is put among the schemas.
pub(super) fn form(form: &Form, forms: &mut Map<String, Value>) -> Value {
    if !forms.contains_key(form.name) {
        // Its place first, for forms that hold themselves.
        forms.insert(form.name.into(), Value::Null);
        let mut properties = Map::new();
        for field in form.fields {
            let mut schema = value(&field.sort, forms);
            if !form.required.contains(&field.name) {
                schema = or_null(schema);
            }
            schema["description"] = field.what.into();
            properties.insert(field.name.into(), schema);
        }
        let mut schema = json!({
            "type": "object",
            "properties": properties,
            "additionalProperties": false,
        });
        if !form.required.is_empty() {
            schema["required"] = json!(form.required);
        }
        let rules = (form.rules)();
        if !rules.is_empty() {
            schema["allOf"] = rules.into();
        }
        forms.insert(form.name.into(), schema);
    }
    json!({ "$ref": format!("{}/{}", super::SCHEMAS, form.name) })
}

/// A field that is null counts as absent.
fn or_null(schema: Value) -> Value {
    match schema.get("type") {
        Some(Value::String(name)) if schema.get("enum").is_none() => {
            let types = json!([name, "null"]);
            let mut schema = schema;
            schema["type"] = types;
            schema
        }
        None if schema.as_object().is_some_and(Map::is_empty) => schema,
        _ => match schema {
            Value::Object(mut object) if object.contains_key("anyOf") => {
                if let Some(Value::Array(ways)) = object.get_mut("anyOf") {
                    ways.push(json!({ "type": "null" }));
                }
                Value::Object(object)
            }
            other => json!({ "anyOf": [other, { "type": "null" }] }),
        },
    }
}

/// The schema of a value in JSON.
fn value(sort: &Sort, forms: &mut Map<String, Value>) -> Value {
    match sort {
        Sort::Flag => json!({ "type": "boolean" }),
        Sort::Factor => json!({ "type": "number", "exclusiveMinimum": 0 }),
        Sort::Share => json!({ "type": "number", "minimum": 0, "maximum": 1 }),
        Sort::Duration => seconds("duration", DURATION, 0.0, SECONDS_MAX as f64),
        Sort::Timeout => seconds("duration", TIMEOUT, 0.001, SECONDS_MAX as f64),
        Sort::Wait => seconds("duration up to 60 s", WAIT, 0.0, 60.0),
        Sort::Priority => {
            let number = json!({ "type": "integer", "minimum": 0, "maximum": 3 });
            either("low | normal | high | critical | 0–3", parameter(sort), number)
        }
        Sort::States => {
            let each = json!({ "type": "string", "enum": names_of_states() });
            let list = json!({ "type": "array", "minItems": 1, "items": each });
            either("state | [state]", parameter(sort), list)
        }
        Sort::Anything => json!({}),
        Sort::List { of, least, most } => {
            json!({ "type": "array", "minItems": least, "maxItems": most, "items": value(of, forms) })
        }
        Sort::Texts { most } => json!({
            "type": "object", "maxProperties": most, "additionalProperties": { "type": "string" }
        }),
        Sort::Weights { most } => json!({
            "type": "object",
            "minProperties": 1,
            "patternProperties": { NAME: { "type": "integer", "minimum": 1, "maximum": most } },
            "additionalProperties": false
        }),
        Sort::Object(inner) => form(inner, forms),
        Sort::Either(sorts) => {
            let ways: Vec<_> = sorts.iter().map(|sort| value(sort, forms)).collect();
            json!({ "anyOf": ways })
        }
        Sort::Text
        | Sort::Stored
        | Sort::Key
        | Sort::Traceparent
        | Sort::Name
        | Sort::Plain
        | Sort::Glob
        | Sort::OneOf(_)
        | Sort::Count { .. }
        | Sort::Time
        | Sort::Cursor
        | Sort::Epoch
        | Sort::Base64 => parameter(sort),
    }
}

/// The schema of a value in a path, a query or a header, where everything is text.
pub(super) fn parameter(sort: &Sort) -> Value {
    match sort {
        Sort::Stored => json!({ "type": "string", "minLength": 1 }),
        Sort::Key => text(KEY),
        Sort::Traceparent => {
            let mut schema = text(trace_context::PATTERN);
            // Of texts only: a pattern holds for anything else, null too.
            schema["not"] =
                json!({ "type": "string", "pattern": trace_context::PATTERN_OF_NOTHING });
            schema
        }
        Sort::Name => text(NAME),
        // Bytes are told in words: a schema counts letters.
        Sort::Plain => text(PLAIN),
        Sort::Glob => text(GLOB),
        Sort::OneOf(words) => json!({ "type": "string", "enum": words }),
        Sort::Flag => json!({ "type": "string", "enum": ["true", "false", "1", "0", ""] }),
        Sort::Count { least, most } => {
            json!({ "type": "integer", "minimum": least, "maximum": most })
        }
        Sort::Duration => text(DURATION),
        Sort::Timeout => text(TIMEOUT),
        Sort::Wait => text(WAIT),
        Sort::Time => json!({ "type": "string", "format": "date-time" }),
        Sort::Priority => {
            let names = Priority::DESCENDING.iter().map(|priority| priority.as_str());
            let words: Vec<_> = names.chain(["0", "1", "2", "3"]).collect();
            json!({ "type": "string", "enum": words })
        }
        Sort::States => {
            let one = format!("(?:{})", names_of_states().join("|"));
            text(&format!("^{one}(?:,{one})*$"))
        }
        Sort::Epoch => text("^[0-9]{1,18}$"),
        Sort::Base64 => text(BASE64),
        // What only stands in bodies, and what has no form that could be told.
        Sort::Text
        | Sort::Cursor
        | Sort::Factor
        | Sort::Share
        | Sort::Anything
        | Sort::List { .. }
        | Sort::Texts { .. }
        | Sort::Weights { .. }
        | Sort::Object(_)
        | Sort::Either(_) => json!({ "type": "string" }),
    }
}

fn text(pattern: &str) -> Value {
    json!({ "type": "string", "pattern": pattern })
}

/// A time span in words, or in seconds.
fn seconds(title: &str, pattern: &str, least: f64, most: f64) -> Value {
    either(title, text(pattern), json!({ "type": "number", "minimum": least, "maximum": most }))
}

/// One or the other, with words for people that say more than the two do.
fn either(title: &str, one: Value, other: Value) -> Value {
    json!({ "title": title, "anyOf": [one, other] })
}

fn names_of_states() -> Vec<&'static str> {
    State::ALL.iter().map(|state| state.as_str()).collect()
}
