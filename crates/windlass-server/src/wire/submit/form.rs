//! Everything that a submit may say.

use serde_json::{Value, json};
use windlass_core::limits;

use crate::form::rule::{any_of, not_together, only_with, only_with_default};
use crate::form::{Entry, Form, Sort, entry};

const BUDGET: Sort = Sort::Count { least: 0, most: limits::BUDGET_MAX };

/// A task to submit.
pub(crate) const SUBMIT: Form = Form::new("Submit", &FIELDS).with(|| {
    // A payload of null is one.
    let payload = json!({ "required": ["payload"] });
    let not_both =
        json!({ "not": { "allOf": [payload, crate::form::rule::given(&["payload_base64"])] } });
    vec![not_together(&["run_at", "delay"]), not_both]
});

const FIELDS: [Entry; 19] = [
    entry("type", Sort::Name, "Names the handler; `default` if absent"),
    entry(
        "payload",
        Sort::Anything,
        "Any JSON up to 64 levels deep, kept byte for byte; null if absent",
    ),
    entry("payload_base64", Sort::Base64, "Any bytes, in place of a payload that is JSON"),
    entry("queue", Sort::Name, "`default` if absent"),
    entry("priority", Sort::Priority, "`normal` if absent"),
    entry("run_at", Sort::Time, "When it may run first"),
    entry("delay", Sort::Duration, "After how long it may run first"),
    entry("max_retries", BUDGET, "Runs after the first that fail; as configured if absent"),
    entry("max_crashes", BUDGET, "Lost workers; as configured if absent"),
    entry("timeout", Sort::Timeout, "Longest run; as configured if absent"),
    entry("deadline", Sort::Time, "No run begins or goes on after it"),
    entry("retry", Sort::Object(&RETRY), "How the delays before retries grow"),
    entry("idempotency_key", Sort::Key, "A repeated submit gets the first task; up to 255 bytes"),
    entry("unique", Sort::Object(&UNIQUE), "No two such tasks at a time"),
    entry("retention", Sort::Duration, "How long it is kept when it is finished"),
    entry(
        "awaited",
        Sort::Flag,
        "True when you will wait for its end: it is kept for a minute at least",
    ),
    entry(
        "tags",
        Sort::List { of: &Sort::Name, least: 0, most: limits::TAGS_MAX },
        "Words to find it by",
    ),
    entry(
        "metadata",
        Sort::Texts { most: limits::METADATA_ENTRIES_MAX },
        "Whatever else is to be kept with it; up to 16 KiB",
    ),
    entry("traceparent", Sort::Traceparent, "A W3C trace context; the field wins over the header"),
];

/// How the delays before retries grow.
pub(super) const RETRY: Form = Form::new(
    "Retry",
    &[
        entry("shape", Sort::OneOf(&["exponential", "linear", "fixed"]), "`exponential` if absent"),
        entry("initial", Sort::Duration, "Before the first retry; exponential and fixed"),
        entry("factor", Sort::Factor, "What each delay is multiplied by; exponential"),
        entry("max", Sort::Duration, "No delay is longer; exponential and linear"),
        entry("step", Sort::Duration, "What each retry adds; linear"),
        entry("jitter", Sort::Share, "Share by which chance moves a delay"),
    ],
)
.with(|| {
    vec![
        only_with_default("initial", "shape", &["exponential", "fixed"]),
        only_with_default("factor", "shape", &["exponential"]),
        only_with_default("max", "shape", &["exponential", "linear"]),
        only_with("step", "shape", &["linear"]),
    ]
});

/// What keeps tasks unique.
pub(super) const UNIQUE: Form = Form::new(
    "Unique",
    &[
        entry("key", Sort::Key, "Made of queue, type and payload if absent"),
        entry("for", Sort::Duration, "How long the key is held"),
        entry("until", Sort::OneOf(&["finished"]), "Held until the task is finished"),
        entry("on_conflict", Sort::OneOf(&["reject", "return"]), "`reject` if absent"),
    ],
)
.with(rules_of_unique);

fn rules_of_unique() -> Vec<Value> {
    vec![any_of(&["for", "until"]), not_together(&["for", "until"])]
}
