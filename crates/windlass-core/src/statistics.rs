//! What windlass remembers of the work that was done: counts and durations by queue and kind, in a form that
//! can be added up across processes and time.
//!
//! - [`Sketch`] keeps how durations are spread: 32 buckets for each doubling, so that a percentile is at most
//!   1.6 % off, however many sketches were added up.
//! - [`Cell`] is what happened to the tasks of one queue and kind, [`Sheet`] all cells of a stretch of time.
//! - [`Record`] is a sheet as a document of a store, with the names of what it was made of: adding the same
//!   thing again changes nothing.
//! - [`Step`] are the lengths of time that are told apart, and how long each is kept.
//! - [`Span`] is a sheet with its time; windows and series are made of spans.

mod cell;
mod record;
mod sheet;
mod sketch;
mod span;
mod step;

pub use cell::Cell;
pub use record::{HOLDS_MAX, RECORD_BYTES_MAX, Record};
pub use sheet::{CELLS_MAX, Sheet};
pub use sketch::Sketch;
pub use span::{Point, Select, Span, rates_per_second, series, window};
pub use step::{RAW, Step};
