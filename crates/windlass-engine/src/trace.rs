//! Traces: where a submit and the runs of its task meet in one trace of OpenTelemetry.
//!
//! Spans are those of `tracing`; the layer of `tracing-opentelemetry`, if the program has one, hands them on. With the
//! feature `otel` there is a file for each sort of span: `send.rs` for submits, `run.rs` for runs, `request.rs` for
//! what a server is asked; `context.rs` reads and writes trace contexts, and `ids.rs` makes the ids of runs. Without
//! it, `off.rs` has the same names and does next to nothing.

#[cfg(feature = "otel")]
mod context;
#[cfg(feature = "otel")]
mod ids;
#[cfg(not(feature = "otel"))]
mod off;
#[cfg(feature = "otel")]
mod request;
#[cfg(feature = "otel")]
mod run;
#[cfg(feature = "otel")]
mod send;

#[cfg(feature = "otel")]
pub use self::context::{follow, is_sampled, traceparent};
#[cfg(feature = "otel")]
pub use self::ids::RunIds;
#[cfg(not(feature = "otel"))]
pub use self::off::{Request, is_sampled, traceparent};
#[cfg(not(feature = "otel"))]
pub(crate) use self::off::{Run, Sending, inherit};
#[cfg(feature = "otel")]
pub use self::request::Request;
#[cfg(feature = "otel")]
pub(crate) use self::run::Run;
#[cfg(feature = "otel")]
pub(crate) use self::send::{Sending, inherit};
