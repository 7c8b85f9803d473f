//! What a route's description says; each stands beside the handler that it describes.

use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, Schema};

use crate::form::{Entry, Form, Sort, entry};
use crate::problem::Slug;

/// The description of a call.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) group: Group,
    /// Its name in programs that are made from the document.
    pub(crate) id: &'static str,
    /// What it does, in a line.
    pub(crate) summary: &'static str,
    /// What else is to be known.
    pub(crate) details: &'static str,
    /// What varies in its path.
    pub(crate) path: &'static [Entry],
    /// The parameters that its handler reads.
    pub(crate) query: &'static [&'static [Entry]],
    pub(crate) headers: &'static [Entry],
    pub(crate) takes: Takes,
    pub(crate) answers: &'static [Answer],
    /// How it can fail, beside what any call like it can fail of.
    pub(crate) problems: &'static [Slug],
    /// A new thing has its place in a header.
    pub(crate) has_location: bool,
}

impl Call {
    /// The start of every description.
    pub(crate) const PLAIN: Self = Self {
        group: Group::Server,
        id: "",
        summary: "",
        details: "",
        path: &[],
        query: &[],
        headers: &[],
        takes: Takes::Nothing,
        answers: &[],
        problems: &[],
        has_location: false,
    };
}

/// The body of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Takes {
    /// None: what is sent is not read.
    Nothing,
    /// None, or an empty object.
    Empty,
    /// An object.
    Json(&'static Form),
    /// A list of such objects, or lines of them.
    Batch(&'static Form),
}

/// A good answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) what: &'static str,
    pub(crate) given: Given,
}

/// The body of an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Given {
    /// JSON of this schema.
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// Something for browsers.
    Text(&'static str),
}

/// An answer in JSON, in the form of a type.
pub(crate) const fn answer<T: JsonSchema>(status: u16, what: &'static str) -> Answer {
    Answer { status, what, given: Given::Json(SchemaGenerator::subschema_for::<T>) }
}

/// An answer for browsers.
pub(crate) const fn page(what: &'static str, media: &'static str) -> Answer {
    Answer { status: 200, what, given: Given::Text(media) }
}

/// What a task is called in a path.
pub(crate) const TASK_ID: [Entry; 1] = [entry("id", Sort::Text, "The id of a task")];
/// What a worker is called in a path.
pub(crate) const WORKER_ID: [Entry; 1] = [entry("id", Sort::Text, "The id of a worker")];

/// Calls that are read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    Tasks,
    DeadLetters,
    Queues,
    Workers,
    Events,
    Pull,
    Access,
    Server,
    Aliases,
    Pages,
}

impl Group {
    pub(crate) const ALL: [Self; 10] = [
        Self::Tasks,
        Self::DeadLetters,
        Self::Queues,
        Self::Workers,
        Self::Events,
        Self::Pull,
        Self::Access,
        Self::Server,
        Self::Aliases,
        Self::Pages,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Tasks => "Tasks",
            Self::DeadLetters => "Dead letters",
            Self::Queues => "Queues",
            Self::Workers => "Workers",
            Self::Events => "Live events",
            Self::Pull => "Worker protocol",
            Self::Access => "Access",
            Self::Server => "Server",
            Self::Aliases => "Aliases",
            Self::Pages => "Pages",
        }
    }

    pub(crate) const fn about(self) -> &'static str {
        match self {
            Self::Tasks => "Submit tasks, look at them, change them.",
            Self::DeadLetters => "Tasks that will not run again by themselves.",
            Self::Queues => "What waits where; pause, resume, purge.",
            Self::Workers => "Who works, and what they are told to do.",
            Self::Events => "What happens, as it happens.",
            Self::Pull => {
                "A worker in any language: lease tasks, report how they ended, show that one lives."
            }
            Self::Access => "Tokens, and who changed what.",
            Self::Server => "Counts, health, version, and this document.",
            Self::Aliases => "The names that the first design document gave to some calls.",
            Self::Pages => "For browsers.",
        }
    }
}
