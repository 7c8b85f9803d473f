//! The forms of what callers send, as data: the strict reading goes by them, and the API's document is
//! made of them. So what is read is what is described.

use serde_json::Value;

/// An object that a caller sends.
pub(crate) struct Form {
    /// Its name in the document.
    pub(crate) name: &'static str,
    /// Every field that it may have.
    pub(crate) fields: &'static [Entry],
    /// Those that it must have.
    pub(crate) required: &'static [&'static str],
    /// What else holds between its fields, as JSON schemas.
    pub(crate) rules: fn() -> Vec<Value>,
}

/// A field of a form, or a parameter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) sort: Sort,
    /// What it means, for people.
    pub(crate) what: &'static str,
}

/// What a value may be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sort {
    /// Any text.
    Text,
    /// The name of something that is in a store already: any text but none.
    Stored,
    /// 1 to 255 bytes without control characters.
    Key,
    /// A W3C trace context.
    Traceparent,
    /// The name of a queue, a type or a tag.
    Name,
    /// Plain text without blanks at its ends.
    Plain,
    /// The name of a queue, with `*` for anything.
    Glob,
    /// One of these.
    OneOf(&'static [&'static str]),
    /// Yes or no.
    Flag,
    /// A whole number.
    Count { least: u32, most: u32 },
    /// A number above 0.
    Factor,
    /// A number from 0 to 1.
    Share,
    /// A time span: `30s`, `5m`, `7d`, `PT30S` or a number of seconds.
    Duration,
    /// One that is longer than nothing.
    Timeout,
    /// One of up to 60 s.
    Wait,
    /// An instant in RFC 3339.
    Time,
    /// A priority by its name or number.
    Priority,
    /// States of tasks, one or several.
    States,
    /// Any JSON.
    Anything,
    /// Where a list goes on, as an answer has told it.
    Cursor,
    /// The number of a run, as text.
    Epoch,
    /// Bytes in base64.
    Base64,
    /// A list of such things.
    List { of: &'static Sort, least: usize, most: usize },
    /// Names with texts.
    Texts { most: usize },
    /// Names with weights.
    Weights { most: u32 },
    /// An object.
    Object(&'static Form),
    /// Either of these.
    Either(&'static [Sort]),
}

/// A field or a parameter.
pub(crate) const fn entry(name: &'static str, sort: Sort, what: &'static str) -> Entry {
    Entry { name, sort, what }
}

impl Form {
    /// A form whose fields are free of each other.
    pub(crate) const fn new(name: &'static str, fields: &'static [Entry]) -> Self {
        Self { name, fields, required: &[], rules: Vec::new }
    }

    /// The same, with fields that it must have.
    pub(crate) const fn needs(self, required: &'static [&'static str]) -> Self {
        Self { required, ..self }
    }

    /// The same, with what holds between its fields.
    pub(crate) const fn with(self, rules: fn() -> Vec<Value>) -> Self {
        Self { rules, ..self }
    }

    /// The names of its fields.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.fields.iter().map(|field| field.name).collect()
    }
}

impl std::fmt::Debug for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Rules between fields, as JSON schemas. A field that is null counts as absent.
pub(crate) mod rule {
    use serde_json::{Map, Value, json};

    /// All of these fields are there.
    pub(crate) fn given(names: &[&str]) -> Value {
        let not_null = |name: &&str| ((*name).to_owned(), json!({ "not": { "type": "null" } }));
        let properties: Map<_, _> = names.iter().map(not_null).collect();
        json!({ "required": names, "properties": properties })
    }

    /// Not all of these are there at once.
    pub(crate) fn not_together(names: &[&str]) -> Value {
        json!({ "not": given(names) })
    }

    /// At least one of these is there.
    pub(crate) fn any_of(names: &[&str]) -> Value {
        let each: Vec<_> = names.iter().map(|name| given(&[name])).collect();
        json!({ "anyOf": each })
    }

    /// A field that has a meaning only while another has one of these values.
    pub(crate) fn only_with(field: &str, other: &str, values: &[&str]) -> Value {
        let fits = json!({ "required": [other], "properties": { other: { "enum": values } } });
        json!({ "anyOf": [not_together(&[field]), fits] })
    }

    /// The same, where the other may be absent, too.
    pub(crate) fn only_with_default(field: &str, other: &str, values: &[&str]) -> Value {
        let absent = not_together(&[other]);
        let mut rule = only_with(field, other, values);
        if let Some(ways) = rule["anyOf"].as_array_mut() {
            ways.push(absent);
        }
        rule
    }
}
