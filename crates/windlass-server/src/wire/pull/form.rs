//! Everything that workers in any language may say.

use serde_json::json;

use super::{SLOTS_MAX, TASKS_MAX, WEIGHT_MAX};
use crate::fields::MEMBERS_MAX;
use crate::form::rule::{given, not_together, only_with};
use crate::form::{Entry, Form, Sort, entry};

/// Tasks to lease.
pub(crate) const LEASE: Form = Form::new(
    "Lease",
    &[
        entry("worker", Sort::Object(&WORKER), "Who asks; without an id, a new worker"),
        entry(
            "queues",
            Sort::Either(&[NAMES, WEIGHTS]),
            "Names, or names with weights; `default` if absent",
        ),
        entry(
            "strict",
            Sort::Flag,
            "Serve the queues in the order given: the next only while those before are empty",
        ),
        entry(
            "max",
            Sort::Count { least: 0, most: TASKS_MAX },
            "Most tasks; 1 if absent; 0 only registers the worker",
        ),
        entry(
            "suspects",
            Sort::Flag,
            "With false no task that has crashed twice or more; yes if absent, one at a time",
        ),
        entry("wait", Sort::Wait, "How long to wait for a task, up to 60 s; not at all if absent"),
    ],
);

const NAMES: Sort = Sort::List { of: &Sort::Name, least: 1, most: MEMBERS_MAX };
const TYPES: Sort = Sort::List { of: &Sort::Name, least: 1, most: MEMBERS_MAX };
const WEIGHTS: Sort = Sort::Weights { most: WEIGHT_MAX };

pub(super) const WORKER: Form = Form::new(
    "LeaseWorker",
    &[
        entry("id", Sort::Key, "As an earlier lease has told it"),
        entry("name", Sort::Text, "For people, up to 128 bytes"),
        entry("version", Sort::Text, "For people, up to 128 bytes"),
        entry("slots", Sort::Count { least: 1, most: SLOTS_MAX }, "Tasks that it runs at a time"),
        entry("types", TYPES, "The types that it handles; every type if absent"),
    ],
);

/// How runs ended.
pub(crate) const REPORT: Form = Form::new(
    "Report",
    &[
        entry("worker_id", Sort::Key, "As a lease has told it"),
        entry(
            "results",
            Sort::List { of: &Sort::Object(&RESULT), least: 0, most: MEMBERS_MAX },
            "Each run that ended",
        ),
        entry("lease", Sort::Object(&LEASE), "The next tasks, in the same trip"),
    ],
)
.needs(&["worker_id"]);

pub(super) const RESULT: Form =
    Form::new("RunResult", &RESULT_FIELDS).needs(&["id", "epoch", "outcome"]).with(|| {
        let result = json!({ "required": ["result"] });
        let only = json!({ "properties": { "outcome": { "const": "completed" } } });
        let not_both = json!({ "not": { "allOf": [result, given(&["result_base64"])] } });
        let after = json!({ "anyOf": [
        { "properties": { "outcome": { "not": { "const": "snoozed" } } } },
        given(&["after"]),
    ] });
        vec![
            json!({ "anyOf": [not_together(&["result"]), only] }),
            only_with("result_base64", "outcome", &["completed"]),
            not_both,
            only_with("error", "outcome", &["failed", "discarded"]),
            only_with("after", "outcome", &["failed", "snoozed"]),
            after,
        ]
    });

const RESULT_FIELDS: [Entry; 7] = [
    entry("id", Sort::Key, "The task"),
    entry("epoch", Sort::Epoch, "The run, as the lease has told it"),
    entry(
        "outcome",
        Sort::OneOf(&[
            "completed",
            "failed",
            "discarded",
            "snoozed",
            "cancelled",
            "timed_out",
            "released",
        ]),
        "How it ended",
    ),
    entry("result", Sort::Anything, "What came of it; completed"),
    entry("result_base64", Sort::Base64, "The same, where it is not JSON; completed"),
    entry("error", Sort::Text, "What went wrong; failed and discarded"),
    entry("after", Sort::Duration, "When to run it again; failed and snoozed"),
];

/// A sign of life.
pub(crate) const PULSE: Form = Form::new(
    "Pulse",
    &[entry(
        "held",
        Sort::List { of: &Sort::Object(&HELD), least: 0, most: MEMBERS_MAX },
        "Every run that goes on",
    )],
);

pub(super) const HELD: Form = Form::new(
    "HeldRun",
    &[
        entry("id", Sort::Key, "The task"),
        entry("epoch", Sort::Epoch, "The run, as the lease has told it"),
        entry(
            "progress",
            Sort::Either(&[Sort::Share, Sort::Object(&PROGRESS)]),
            "How far it has come",
        ),
    ],
)
.needs(&["id", "epoch"]);

pub(super) const PROGRESS: Form = Form::new(
    "ProgressReport",
    &[
        entry("fraction", Sort::Share, "From 0 to 1"),
        entry("note", Sort::Text, "What it is doing, up to 128 bytes"),
    ],
)
.needs(&["fraction"]);
