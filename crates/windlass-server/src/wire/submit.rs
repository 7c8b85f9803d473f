//! A task as it is submitted.

mod form;

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use windlass_core::config::Config;
use windlass_core::retry::Backoff;
use windlass_core::unique::{Hold, OnConflict, Unique};
use windlass_core::{Error, Kind, NewTask, QueueName, Result, Tag, limits};
use windlass_engine::{Configure, Options};

pub(crate) use self::form::SUBMIT;
use self::form::{RETRY, UNIQUE};
use crate::fields::{Field, Object};
use crate::problem::{Outcome, Problem};
use crate::trace_context;

/// The kind of tasks that name none.
const DEFAULT_KIND: &str = "default";

/// How long a task is kept that someone waits for and that would leave nothing when it ends.
const AWAITED_KEPT: Duration = Duration::from_secs(60);

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What the headers of a submit say of the task.
#[derive(Default)]
pub(crate) struct FromHeaders {
    /// `Idempotency-Key`.
    pub(crate) idempotency_key: Option<String>,
    /// `traceparent`.
    pub(crate) traceparent: Option<String>,
}

/// Reads a submit.
pub(crate) fn read(json: &[u8], headers: FromHeaders, config: &Config) -> Outcome<NewTask> {
    let mut object = Object::read(json, &SUBMIT)?;
    let mut options = Options::new();
    let kind = name(object.take("type"), Kind::new)?.unwrap_or_else(|| DEFAULT_KIND.into());
    if let Some(queue) = name(object.take("queue"), QueueName::new)? {
        options = options.queue(&queue);
    }
    if let Some(field) = object.take("priority") {
        options = options.priority(field.priority()?);
    }
    match (object.take("run_at"), object.take("delay")) {
        (None, None) => {}
        (Some(at), None) => options = options.at(at.time()?),
        (None, Some(delay)) => options = options.delay(delay.duration()?),
        (Some(at), Some(_)) => return Err(at.refused("give run_at or delay, not both")),
    }
    if let Some(field) = object.take("max_retries") {
        options = options.max_retries(budget(&field)?);
    }
    if let Some(field) = object.take("max_crashes") {
        options = options.max_crashes(budget(&field)?);
    }
    if let Some(field) = object.take("timeout") {
        let timeout = field.duration()?;
        if timeout.is_zero() {
            return Err(field.refused("must be longer than zero"));
        }
        options = options.timeout(timeout);
    }
    if let Some(field) = object.take("deadline") {
        options = options.deadline(field.time()?);
    }
    let is_awaited = object.take("awaited").map_or(Ok(false), |field| field.flag())?;
    if let Some(field) = object.take("retention") {
        options = options.retention(field.duration()?);
    } else if is_awaited && config.task.retention.is_some_and(|kept| kept.is_zero()) {
        options = options.retention(AWAITED_KEPT);
    }
    if let Some(field) = object.take("retry") {
        options = options.backoff(backoff(&field)?);
    }
    if let Some(field) = object.take("unique") {
        options = options.unique_rule(unique(&field)?);
    }
    for tag in tags(object.take("tags"))? {
        options = options.tag(&tag);
    }
    for (key, value) in metadata(object.take("metadata"))? {
        options = options.metadata(&key, &value);
    }
    let given = object.take("idempotency_key").map(|field| key(&field)).transpose()?;
    if let Some(key) = one_of_both(given, headers.idempotency_key)? {
        options = options.idempotency_key(&key);
    }
    let given = object.take("traceparent").map(|field| traceparent(&field)).transpose()?;
    if let Some(traceparent) = given.or(headers.traceparent) {
        options = options.traceparent(&traceparent);
    }
    let payload = bytes(&mut object, "payload", config)?;
    let payload = payload.unwrap_or_else(|| Bytes::from_static(b"null"));
    Ok(options.into_task(&kind, payload, config)?)
}

/// Bytes that are JSON, as they were sent, or that come as base64 under another name.
pub(crate) fn bytes(
    object: &mut Object<'_>,
    name: &str,
    config: &Config,
) -> Outcome<Option<Bytes>> {
    match (object.take_even_null(name), object.take(&format!("{name}_base64"))) {
        (None, None) => Ok(None),
        (Some(json), None) => {
            let (depth, most) = (depth(json.raw), config.limits.json_depth_max);
            if depth > most {
                return Err(json.refused(format!("is nested {depth} deep, at most {most} allowed")));
            }
            // A copy: a part of the body would keep all of it in memory.
            Ok(Some(Bytes::copy_from_slice(json.raw.as_bytes())))
        }
        (None, Some(text)) => {
            let bytes = BASE64.decode(text.text()?).map_err(|error| text.refused(error))?;
            Ok(Some(bytes.into()))
        }
        (Some(_), Some(text)) => {
            Err(text.refused(format!("give {name} or {name}_base64, not both")))
        }
    }
}

/// How deep valid JSON is nested; a plain value is 0 deep. A loop, since a recursion could be sent
/// deeper than the stack is.
fn depth(json: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut is_text, mut is_escaped) = (false, false);
    for byte in json.bytes() {
        match (is_text, byte) {
            (true, _) if is_escaped => is_escaped = false,
            (true, b'\\') => is_escaped = true,
            (true, b'"') => is_text = false,
            (false, b'"') => is_text = true,
            (false, b'{' | b'[') => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            (false, b'}' | b']') => depth = depth.saturating_sub(1),
            (_, _) => {}
        }
    }
    deepest
}

fn name<T>(field: Option<Field<'_>>, check: fn(&str) -> Result<T>) -> Outcome<Option<String>> {
    let Some(field) = field else { return Ok(None) };
    let text = field.text()?;
    check(&text).map_err(|error| field.refused(error))?;
    Ok(Some(text))
}

fn key(field: &Field<'_>) -> Outcome<String> {
    let text = field.text()?;
    limits::check_key("it", &text).map_err(|error| field.refused(error))?;
    Ok(text)
}

/// Who sets the field means it: unlike a header from far away, one that cannot be read is refused.
fn traceparent(field: &Field<'_>) -> Outcome<String> {
    let text = field.text()?;
    if trace_context::is_sound(&text) {
        return Ok(text);
    }
    Err(field.refused("use a W3C trace context: 00-<32 hex>-<16 hex>-<2 hex>, in small letters"))
}

fn one_of_both(body: Option<String>, header: Option<String>) -> Outcome<Option<String>> {
    match (body, header) {
        (Some(body), Some(header)) if body != header => {
            Err(Problem::field("idempotency_key", "the header Idempotency-Key says something else"))
        }
        (body, header) => Ok(body.or(header)),
    }
}

fn budget(field: &Field<'_>) -> Outcome<u32> {
    let (count, most) = (field.count()?, limits::BUDGET_MAX);
    if count > most { Err(field.refused(format!("at most {most}"))) } else { Ok(count) }
}

/// Fields that are not given are those of [`Backoff::default`], whatever the shape.
fn backoff(field: &Field<'_>) -> Outcome<Backoff> {
    let mut object = field.object(&RETRY)?;
    let shape = object.take("shape");
    let name = shape.as_ref().map_or(Ok("exponential".into()), Field::text)?;
    let used: &[&str] = match name.as_str() {
        "exponential" => &["initial", "factor", "max", "jitter"],
        "linear" => &["step", "max", "jitter"],
        "fixed" => &["initial", "jitter"],
        _ => return Err(Problem::field("retry.shape", "use exponential, linear or fixed")),
    };
    let mut unused = RETRY.names().into_iter().filter(|name| !used.contains(name));
    if let Some(field) = unused.find_map(|name| object.take(name)) {
        return Err(field.refused(format!("has no meaning for the shape {name}")));
    }
    let Backoff::Exponential { initial, factor, max, jitter } = Backoff::default() else {
        return Err(Error::internal("the default backoff is not exponential").into());
    };
    let mut duration = |name, default| object.take(name).map_or(Ok(default), |f| f.duration());
    let (step, initial, max) =
        (duration("step", initial)?, duration("initial", initial)?, duration("max", max)?);
    let mut number = |name, default| object.take(name).map_or(Ok(default), |f| f.number());
    let (factor, jitter) = (number("factor", factor)?, number("jitter", jitter)?);
    let backoff = match name.as_str() {
        "linear" => Backoff::Linear { step, max, jitter },
        "fixed" => Backoff::Fixed { initial, jitter },
        _ => Backoff::Exponential { initial, factor, max, jitter },
    };
    backoff.validate().map_err(|error| field.refused(error))?;
    Ok(backoff)
}

fn unique(field: &Field<'_>) -> Outcome<Unique> {
    let mut object = field.object(&UNIQUE)?;
    let key = object.take("key").map(|field| key(&field)).transpose()?;
    let hold = match (object.take("for"), object.take("until")) {
        (Some(time), None) => Hold::For(time.duration()?),
        (None, Some(until)) if until.text()? == "finished" => Hold::UntilFinished,
        (None, Some(until)) => return Err(until.refused("use \"finished\"")),
        (Some(_), Some(until)) => return Err(until.refused("give for or until, not both")),
        (None, None) => return Err(field.refused("needs for, or until: \"finished\"")),
    };
    let on_conflict = match object.take("on_conflict") {
        None => OnConflict::Reject,
        Some(field) => match field.text()?.as_str() {
            "reject" => OnConflict::Reject,
            "return" => OnConflict::Return,
            _ => return Err(field.refused("use reject or return")),
        },
    };
    Ok(Unique { key, hold, on_conflict })
}

fn tags(field: Option<Field<'_>>) -> Outcome<Vec<String>> {
    let Some(field) = field else { return Ok(Vec::new()) };
    let items = field.list()?;
    if items.len() > limits::TAGS_MAX {
        return Err(field.refused(format!("at most {} tags", limits::TAGS_MAX)));
    }
    items.into_iter().map(|item| Ok(name(Some(item), Tag::new)?.unwrap_or_default())).collect()
}

fn metadata(field: Option<Field<'_>>) -> Outcome<BTreeMap<String, String>> {
    let Some(field) = field else { return Ok(BTreeMap::new()) };
    let prefix_bytes = field.path.len() + 1;
    let mut read = BTreeMap::new();
    for entry in field.entries()? {
        read.insert(entry.path[prefix_bytes..].to_owned(), entry.text()?);
    }
    let bytes: usize = read.iter().map(|(key, value)| key.len() + value.len()).sum();
    if read.len() > limits::METADATA_ENTRIES_MAX || bytes > limits::METADATA_BYTES_MAX {
        let (entries, bytes) = (limits::METADATA_ENTRIES_MAX, limits::METADATA_BYTES_MAX);
        return Err(field.refused(format!("at most {entries} entries and {bytes} bytes")));
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_in_texts_do_not_count_as_depth() {
        for (json, expected) in
            [("1", 0), ("[]", 1), (r#"{"a":[1]}"#, 2), (r#""[[[""#, 0), (r#"["\"[[",{}]"#, 2)]
        {
            assert_eq!(depth(json), expected, "{json}");
        }
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        assert_eq!(depth(&deep), 100_000);
    }
}
