//! The strict reading of query strings: every parameter known, none twice.

use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use windlass_core::limits::clip;
use windlass_core::store::{Filter, ListParams};
use windlass_core::{Error, Kind, QueueName, State, duration};

use crate::fields::check_span;
use crate::form::{Entry, Sort, entry};
use crate::nearest::nearest;
use crate::problem::{Outcome, Problem};

/// The parameters by which tasks are found.
pub(crate) const FILTERS: [Entry; 7] = [
    entry("state", Sort::States, "One state, or several with commas between"),
    entry("queue", Sort::Stored, "Tasks of this queue"),
    entry("type", Sort::Stored, "Tasks of this type"),
    entry("priority", Sort::Priority, "Tasks of this priority"),
    entry("tag", Sort::Stored, "Tasks with this tag"),
    entry("created_after", Sort::Time, "Submitted then or later"),
    entry("created_before", Sort::Time, "Submitted earlier than then"),
];
/// All filters but the state, where that is settled.
pub(crate) const FILTERS_BUT_STATE: &[Entry] = FILTERS.split_at(1).1;
/// The parameters of a page.
pub(crate) const PAGING: [Entry; 2] = [
    entry(
        "limit",
        Sort::Count { least: 1, most: LIMIT_MAX as u32 },
        "The most that a page has; 50 if absent",
    ),
    CURSOR,
];
/// Where to go on.
pub(crate) const CURSOR: Entry =
    entry("cursor", Sort::Cursor, "The `next_cursor` of the answer before");
/// A rehearsal.
pub(crate) const DRY_RUN: Entry =
    entry("dry_run", Sort::Flag, "Changes nothing, and counts what would be changed");
/// The size of a page unless the caller says otherwise.
const LIMIT: usize = 50;
/// The largest page.
const LIMIT_MAX: usize = 500;

/// A query string that is still to be checked.
pub(crate) struct RawQuery(String);

/// The parameters of a request, all of them known.
pub(crate) struct Query(Vec<(String, String)>);

impl<S: Sync> FromRequestParts<S> for RawQuery {
    type Rejection = std::convert::Infallible;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(parts.uri.query().unwrap_or_default().to_owned()))
    }
}

impl RawQuery {
    /// Reads the query of a request with none but these parameters.
    pub(crate) fn read(&self, known: &[&[Entry]]) -> Outcome<Query> {
        let entries = || known.iter().copied().flatten();
        let known: Vec<_> = entries().map(|entry| entry.name).collect();
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in self.0.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(name).ok_or_else(|| undecodable(name))?;
            let value = decode(value);
            if !known.contains(&name.as_str()) {
                let text = match nearest(&name, &known) {
                    Some(meant) => format!("there is no such parameter; did you mean {meant}?"),
                    None if known.is_empty() => "this request takes no parameters".into(),
                    None => format!("there is no such parameter; there are {}", known.join(", ")),
                };
                return Err(Problem::field(clip(&name, 128), text));
            }
            let value = value.ok_or_else(|| undecodable(&name))?;
            // No name has it, and not every store could look for it.
            if value.contains('\0') {
                return Err(Problem::field(&name, "must not have a NUL in it"));
            }
            let is_stored =
                |entry: &Entry| entry.name == name && matches!(entry.sort, Sort::Stored);
            if value.is_empty() && entries().any(is_stored) {
                return Err(Problem::field(&name, "is empty: name one, or leave it out for all"));
            }
            if pairs.iter().any(|(taken, _)| *taken == name) {
                return Err(Problem::field(&name, "is there twice"));
            }
            pairs.push((name, value));
        }
        Ok(Query(pairs))
    }

    /// Refuses every parameter.
    pub(crate) fn none(&self) -> Outcome<()> {
        self.read(&[]).map(drop)
    }
}

impl Query {
    /// A parameter as text.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A parameter that is read by a function of windlass.
    pub(crate) fn read<T>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, Error>,
    ) -> Outcome<Option<T>> {
        let refused = |error| Problem::of_field(name, &error);
        self.text(name).map(read).transpose().map_err(refused)
    }

    /// Yes or no; a parameter without a value means yes.
    pub(crate) fn flag(&self, name: &str) -> Outcome<bool> {
        match self.text(name) {
            None | Some("false" | "0") => Ok(false),
            Some("true" | "1" | "") => Ok(true),
            Some(_) => Err(Problem::field(name, "use true or false")),
        }
    }

    /// A duration.
    pub(crate) fn duration(&self, name: &str) -> Outcome<Option<Duration>> {
        self.read(name, |text| check_span(duration::parse(text)))
    }

    /// Which tasks are meant.
    pub(crate) fn filter(&self) -> Outcome<Filter> {
        Ok(Filter {
            states: self.read("state", states)?.unwrap_or_default(),
            // Names in a store may be older than our rules for names.
            queue: self.text("queue").map(QueueName::stored),
            kind: self.text("type").map(Kind::stored),
            priority: self.read("priority", str::parse)?,
            tag: self.text("tag").map(windlass_core::Tag::stored),
            created_after: self.read("created_after", str::parse)?,
            created_before: self.read("created_before", str::parse)?,
            finished_before: None,
        })
    }

    /// Which page of which tasks is meant.
    pub(crate) fn page(&self) -> Outcome<ListParams> {
        let (limit, cursor) = (self.limit()?, self.text("cursor").map(str::to_owned));
        Ok(ListParams { filter: self.filter()?, limit, cursor })
    }

    /// How many at most.
    pub(crate) fn limit(&self) -> Outcome<usize> {
        let Some(text) = self.text("limit") else { return Ok(LIMIT) };
        let limit = text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
        limit.ok_or_else(|| Problem::field("limit", format!("use 1 to {LIMIT_MAX}")))
    }
}

/// Reads one state or several, with commas between.
pub(crate) fn states(text: &str) -> Result<Vec<State>, Error> {
    text.split(',').map(|state| state.trim().parse()).collect()
}

/// Undoes the escapes of a query string; nothing when they make no text.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
                match (digit(rest.next()), digit(rest.next())) {
                    (Some(high), Some(low)) => (high * 16 + low) as u8,
                    _ => return None,
                }
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

fn undecodable(name: &str) -> Problem {
    Problem::field(clip(name, 128), "the percent-escapes of this parameter make no UTF-8 text")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(query: &str, name: &str, value: Option<&str>) {
        let read = RawQuery(query.into()).read(&[&FILTERS, &PAGING]).unwrap();
        assert_eq!(read.text(name), value, "{query}");
    }

    #[test]
    fn escapes_are_undone() {
        check("", "queue", None);
        check("queue=mail", "queue", Some("mail"));
        check("&queue=a%20b+c&", "queue", Some("a b c"));
        check("qu%65ue=%C3%A9", "queue", Some("é"));
        check("tag=a=b", "tag", Some("a=b"));
        check("cursor", "cursor", Some(""));
    }

    fn check_refused(query: &str, word: &str) {
        let read = RawQuery(query.into()).read(&[&FILTERS, &PAGING]);
        let problem = read.and_then(|query| query.page()).unwrap_err();
        let text = serde_json::to_string(&problem).unwrap();
        assert!(text.contains(word), "{query}: {text}");
    }

    #[test]
    fn what_is_unknown_doubled_or_broken_is_refused() {
        check_refused("sate=pending", "did you mean state");
        check_refused("colour=red", "there are state, queue");
        check_refused("queue=a&queue=b", "twice");
        check_refused("queue=", "is empty");
        check_refused("tag", "is empty");
        check_refused("queue=%zz", "\"field\":\"queue\"");
        check_refused("queue=%ff", "\"field\":\"queue\"");
        check_refused("queue=%ff", "percent");
        check_refused("%ff=mail", "\"field\":\"%ff\"");
        check_refused("limit=0", "1 to 500");
        check_refused("limit=501", "1 to 500");
        check_refused("limit=ten", "1 to 500");
        check_refused("state=pending,odd", "odd");
        check_refused("created_after=yesterday", "not a time");
        check_refused("priority=urgent", "urgent");
    }
}
