//! What the words of windlass-core look like in JSON: stand-ins for its types where a schema is derived.

use std::borrow::Cow;

use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, Schema, json_schema};
use windlass_core::store::RunOrder;
use windlass_core::{Priority, State};

/// A schema of its own name.
macro_rules! word {
    ($(#[$doc:meta])* $word:ident as $name:literal, $schema:expr) => {
        $(#[$doc])*
        pub(crate) struct $word;
        impl JsonSchema for $word {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    };
}

word!(
    /// [`State`].
    StateWord as "State",
    json_schema!({ "type": "string", "enum": State::ALL.map(State::as_str) })
);
word!(
    /// [`Priority`].
    PriorityWord as "Priority",
    json_schema!({ "type": "string", "enum": Priority::DESCENDING.map(Priority::as_str) })
);
word!(
    /// [`RunOrder`].
    OrderWord as "Order",
    json_schema!({ "type": "string", "enum": [RunOrder::Run, RunOrder::Pause, RunOrder::Drain] })
);
word!(
    /// [`windlass_core::Timestamp`].
    Time as "Time",
    json_schema!({ "type": "string", "format": "date-time", "description": "RFC 3339 in UTC, three decimals" })
);
word!(
    /// [`windlass_core::Epoch`].
    EpochWord as "Epoch",
    json_schema!({ "type": "string", "pattern": "^[0-9]+$", "description": "Names one run of a task; only grows" })
);
word!(
    /// Any JSON.
    Anything as "Anything",
    json_schema!({ "description": "Any JSON, byte for byte as it was sent" })
);
word!(
    /// [`super::Seconds`].
    SecondsWord as "Seconds",
    json_schema!({ "type": "number", "minimum": 0 })
);
word!(
    /// [`super::Counts`].
    CountsWord as "Counts",
    json_schema!({ "type": "object", "additionalProperties": { "type": "integer", "minimum": 0 } })
);

/// How far a run has come.
#[derive(JsonSchema)]
#[schemars(rename = "Progress")]
#[expect(dead_code, reason = "only its schema is used: it describes a type of windlass-core")]
pub(crate) struct ProgressForm {
    /// From 0 to 1.
    fraction: f64,
    /// What it is doing.
    note: String,
    /// When the store heard of it.
    at: Time,
}

/// A change that somebody made.
#[derive(JsonSchema)]
#[schemars(rename = "AuditEntry")]
#[expect(dead_code, reason = "only its schema is used: it describes a type of windlass-core")]
pub(crate) struct AuditForm {
    /// Who: a token, or `local`.
    by: Option<String>,
    /// What.
    action: String,
    /// To what, where that is not told by the tasks.
    #[schemars(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    /// To how many tasks.
    count: u64,
    /// The first hundred of them.
    tasks: Vec<String>,
    /// When.
    at: Time,
}

/// Why a request failed (RFC 9457).
#[derive(JsonSchema)]
#[schemars(rename = "Problem")]
#[expect(dead_code, reason = "only its schema is used: a problem has members of its own")]
pub(crate) struct ProblemForm {
    /// Which problem; leads to a page about it.
    r#type: String,
    /// The same in words.
    title: String,
    /// The status of the answer.
    status: u16,
    /// What is wrong with this very request.
    detail: String,
    /// The field or parameter to blame.
    #[schemars(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    /// The line in which JSON breaks.
    #[schemars(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    /// The column in which JSON breaks.
    #[schemars(skip_serializing_if = "Option::is_none")]
    column: Option<u64>,
    /// The task that holds the key.
    #[schemars(skip_serializing_if = "Option::is_none")]
    existing_id: Option<String>,
    /// The state that the task is in.
    #[schemars(skip_serializing_if = "Option::is_none")]
    state: Option<StateWord>,
}
