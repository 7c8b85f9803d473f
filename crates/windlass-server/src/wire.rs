//! The JSON forms of the API, in and out: one file for each thing that has one.

pub(crate) mod autoscale;
pub(crate) mod filter;
pub(crate) mod pull;
pub(crate) mod queue;
pub(crate) mod statistics;
pub(crate) mod stats;
pub(crate) mod submit;
pub(crate) mod task;
pub(crate) mod timeline;
pub(crate) mod words;
pub(crate) mod worker;

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use windlass_core::{State, TaskId};

use crate::pieces::Pieces;

/// An answer in JSON.
pub(crate) struct Json<T>(pub(crate) StatusCode, pub(crate) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let Self(status, value) = self;
        let mut body = Pieces::default();
        serde_json::to_writer(&mut body, &value).expect("our forms hold nothing that JSON cannot");
        let json = HeaderValue::from_static("application/json");
        (status, [(header::CONTENT_TYPE, json)], body.into_body()).into_response()
    }
}

/// A page of a list.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ListOf{T}")]
pub(crate) struct List<T> {
    /// What is in it.
    pub(crate) data: Vec<T>,
    /// Where to go on; null at the end.
    pub(crate) next_cursor: Option<String>,
}

impl<T> List<T> {
    /// A list that has only one page.
    pub(crate) fn whole(data: Vec<T>) -> Self {
        Self { data, next_cursor: None }
    }
}

/// Something was removed.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Deleted<'a> {
    /// What was removed.
    pub(crate) id: &'a str,
    /// Always true.
    pub(crate) deleted: bool,
}

/// What is told of a task that was changed, and of which nothing more can be read.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Brief<'a> {
    #[schemars(with = "String")]
    pub(crate) id: &'a TaskId,
    #[schemars(with = "words::StateWord")]
    pub(crate) state: State,
}

/// A duration as a number of seconds, without decimals where there are none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seconds(pub(crate) Duration);

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.subsec_nanos() == 0 {
            return serializer.serialize_u64(self.0.as_secs());
        }
        serializer.serialize_f64(self.0.as_secs_f64())
    }
}

/// Counts by name, in the order given.
pub(crate) struct Counts(pub(crate) Vec<(String, u64)>);

impl Serialize for Counts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, count)| (name, count)))
    }
}
