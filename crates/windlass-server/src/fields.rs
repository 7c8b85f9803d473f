//! The strict reading of JSON objects: every field known, none twice, each of its type, and values
//! kept as they were sent until someone asks for them.

use std::fmt;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, IgnoredAny};
use serde_json::value::RawValue;
use windlass_core::limits::clip;
use windlass_core::{Error, Priority, Timestamp, duration};

use crate::form::Form;
use crate::nearest::nearest;
use crate::problem::{Outcome, Problem, Slug};

/// Most fields of one object, and most items of one list inside an object.
pub(crate) const MEMBERS_MAX: usize = 1_000;
/// Longest duration, in seconds: a hundred years. What is longer is a mistake.
pub(crate) const SECONDS_MAX: u64 = 3_153_600_000;

/// An object whose fields are taken one by one.
pub(crate) struct Object<'a>(Vec<Field<'a>>);

/// One value, and where it stands.
#[derive(Clone)]
pub(crate) struct Field<'a> {
    /// Such as `retry.initial` or `tags[2]`.
    pub(crate) path: String,
    /// As it was sent.
    pub(crate) raw: &'a str,
}

impl<'a> Object<'a> {
    /// Reads a body that is one object of this form.
    pub(crate) fn read(body: &'a [u8], form: &Form) -> Outcome<Self> {
        let members: Members<'a> =
            serde_json::from_slice(body).map_err(|error| malformed(&error, "an object"))?;
        members.checked("the body", Some(form)).map(Self)
    }

    /// Takes a field out; one that is null counts as absent.
    pub(crate) fn take(&mut self, name: &str) -> Option<Field<'a>> {
        self.take_even_null(name).filter(|field| field.raw != "null")
    }

    /// Takes a field out as it is.
    pub(crate) fn take_even_null(&mut self, name: &str) -> Option<Field<'a>> {
        let is_it = |field: &Field<'_>| {
            field.path.rsplit_once('.').map_or(&*field.path, |(_, last)| last) == name
        };
        self.0.iter().position(is_it).map(|at| self.0.swap_remove(at))
    }
}

impl<'a> Field<'a> {
    /// A text.
    pub(crate) fn text(&self) -> Outcome<String> {
        if !self.raw.starts_with('"') {
            return Err(self.wrong_type("a string"));
        }
        // A lone surrogate is JSON, but no text that could be kept anywhere.
        serde_json::from_str(self.raw).map_err(|_| self.refused("this is not valid text"))
    }

    /// Yes or no.
    pub(crate) fn flag(&self) -> Outcome<bool> {
        serde_json::from_str(self.raw).map_err(|_| self.wrong_type("true or false"))
    }

    /// A whole number from 0 on.
    pub(crate) fn count(&self) -> Outcome<u32> {
        let number = self.number()?;
        if number < 0.0 {
            return Err(self.refused("must not be negative"));
        }
        // To JSON, 7.0 is as whole as 7.
        let is_whole = number.fract() == 0.0 && number <= f64::from(u32::MAX);
        let refused = || self.refused(format!("must be a whole number up to {}", u32::MAX));
        is_whole.then_some(number as u32).ok_or_else(refused)
    }

    /// Any number.
    pub(crate) fn number(&self) -> Outcome<f64> {
        if !self.raw.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
            return Err(self.wrong_type("a number"));
        }
        serde_json::from_str(self.raw).map_err(|_| self.refused("the number is out of range"))
    }

    /// A duration as text, or as a number of seconds.
    pub(crate) fn duration(&self) -> Outcome<Duration> {
        let read = match self.sort() {
            "a string" => duration::parse(&self.text()?),
            "a number" => duration::from_seconds(self.number()?),
            _ => return Err(self.wrong_type("a duration (\"30s\", \"7d\", \"PT30S\" or seconds)")),
        };
        check_span(read).map_err(|error| self.refused(error))
    }

    /// An instant.
    pub(crate) fn time(&self) -> Outcome<Timestamp> {
        let hint = |error| {
            let latest = Timestamp::MAX;
            let hint = format!("{error}: use RFC 3339, as 2026-01-31T12:00:00Z, up to {latest}");
            self.refused(hint)
        };
        self.text()?.parse().map_err(hint)
    }

    /// A priority by name or number.
    pub(crate) fn priority(&self) -> Outcome<Priority> {
        let is_number = self.sort() == "a number";
        let text = if is_number { self.count()?.to_string() } else { self.text()? };
        text.parse().map_err(|error| self.refused(error))
    }

    /// The items of a list.
    pub(crate) fn list(&self) -> Outcome<Vec<Field<'a>>> {
        if self.sort() != "an array" {
            return Err(self.wrong_type("an array"));
        }
        let (items, count) = items(self.raw.as_bytes(), MEMBERS_MAX)?;
        if count > MEMBERS_MAX {
            return Err(self.refused(format!("has {count} items, at most {MEMBERS_MAX} allowed")));
        }
        let field = |(at, raw): (usize, &'a RawValue)| Field {
            path: format!("{}[{at}]", self.path),
            raw: raw.get(),
        };
        Ok(items.into_iter().enumerate().map(field).collect())
    }

    /// The fields of an object of this form.
    pub(crate) fn object(&self, form: &Form) -> Outcome<Object<'a>> {
        self.members(Some(form)).map(Object)
    }

    /// The entries of an object with any names.
    pub(crate) fn entries(&self) -> Outcome<Vec<Field<'a>>> {
        self.members(None)
    }

    /// The problem of a value that cannot be taken.
    pub(crate) fn refused(&self, why: impl fmt::Display) -> Problem {
        Problem::field(&self.path, why)
    }

    /// What JSON calls this sort of value.
    pub(crate) fn sort(&self) -> &'static str {
        match self.raw.as_bytes().first() {
            Some(b'"') => "a string",
            Some(b'{') => "an object",
            Some(b'[') => "an array",
            Some(b't' | b'f') => "a boolean",
            Some(b'n') => "null",
            _ => "a number",
        }
    }

    fn wrong_type(&self, wanted: &str) -> Problem {
        self.refused(format!("must be {wanted}, not {}", self.sort()))
    }

    fn members(&self, form: Option<&Form>) -> Outcome<Vec<Field<'a>>> {
        if self.sort() != "an object" {
            return Err(self.wrong_type("an object"));
        }
        let members: Members<'a> =
            serde_json::from_str(self.raw).map_err(|_| self.refused("a name is not valid text"))?;
        Members { prefix: format!("{}.", self.path), ..members }.checked(&self.path, form)
    }
}

/// Refuses a duration that is longer than anybody means.
pub(crate) fn check_span(read: Result<Duration, Error>) -> Result<Duration, Error> {
    let is_sane = |span: &Duration| span.as_secs() <= SECONDS_MAX;
    read.and_then(|span| {
        Some(span).filter(is_sane).ok_or_else(|| Error::invalid("at most a hundred years"))
    })
}

/// The first `wanted` items of a list, each as it was sent, and how many there are.
pub(crate) fn items(json: &[u8], wanted: usize) -> Outcome<(Vec<&RawValue>, usize)> {
    let items: Items<'_> =
        SeqSeed(wanted).read(json).map_err(|error| malformed(&error, "an array"))?;
    Ok((items.first, items.count))
}

/// The problem of a body that is no JSON, with the place where that shows, or JSON of another sort.
fn malformed(error: &serde_json::Error, wanted: &str) -> Problem {
    if error.is_data() {
        return Problem::new(Slug::InvalidRequest, format!("the body must be {wanted}"));
    }
    Problem::new(Slug::MalformedJson, format!("malformed JSON: {error}"))
        .with("line", error.line())
        .with("column", error.column())
}

/// The members of an object, as they come.
#[derive(Default)]
struct Members<'a> {
    prefix: String,
    first: Vec<(String, &'a RawValue)>,
    count: usize,
}

impl<'a> Members<'a> {
    fn checked(self, place: &str, form: Option<&Form>) -> Outcome<Vec<Field<'a>>> {
        let Self { prefix, first, count } = self;
        if count > MEMBERS_MAX {
            let text = format!("has {count} fields, at most {MEMBERS_MAX} allowed");
            return Err(Problem::field(place, text));
        }
        let mut fields: Vec<Field<'a>> = Vec::with_capacity(first.len());
        for (name, raw) in first {
            if let Some(form) = form {
                check_known(&prefix, &name, form)?;
            }
            let path = format!("{prefix}{name}");
            if fields.iter().any(|field| field.path == path) {
                return Err(Problem::field(clip(&path, 128), "is there twice"));
            }
            fields.push(Field { path, raw: raw.get() });
        }
        Ok(fields)
    }
}

fn check_known(prefix: &str, name: &str, form: &Form) -> Outcome<()> {
    if form.fields.iter().any(|field| field.name == name) {
        return Ok(());
    }
    let known = form.names();
    let path = format!("{prefix}{}", clip(name, 128));
    let text = match nearest(name, &known) {
        Some(meant) => format!("there is no such field; did you mean {prefix}{meant}?"),
        None if known.is_empty() => "this request takes no fields".into(),
        None => format!("there is no such field; there are {}", known.join(", ")),
    };
    Err(Problem::field(&path, text))
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Members::default();
                while members.count < MEMBERS_MAX
                    && let Some(entry) = map.next_entry()?
                {
                    members.first.push(entry);
                    members.count += 1;
                }
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    members.count += 1;
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

struct Items<'a> {
    first: Vec<&'a RawValue>,
    count: usize,
}

struct SeqSeed(usize);

impl SeqSeed {
    fn read(self, json: &[u8]) -> serde_json::Result<Items<'_>> {
        let mut reader = serde_json::Deserializer::from_slice(json);
        let items = reader.deserialize_seq(self)?;
        reader.end()?;
        Ok(items)
    }
}

impl<'de> de::Visitor<'de> for SeqSeed {
    type Value = Items<'de>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON array")
    }
    fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Items { first: Vec::new(), count: 0 };
        while items.count < self.0
            && let Some(item) = seq.next_element()?
        {
            items.first.push(item);
            items.count += 1;
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {
            items.count += 1;
        }
        Ok(items)
    }
}
