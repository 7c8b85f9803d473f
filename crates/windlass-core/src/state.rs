//! The life cycle of a task: the table of allowed transitions and every judgement about them.
//!
//! [`TABLE`] is the only place that says which state may follow which. [`finish`], [`expire`] and
//! [`release`] decide what a run's end makes of a task; [`cancel`], [`rerun`], [`reschedule`] and
//! [`delete`] decide what an operator may do. Stores only place the result.

mod change;
mod ending;
mod table;

pub use change::{CancelVerdict, RerunVerdict, cancel, delete, rerun, reschedule};
pub use ending::{Ending, Held, Step, Transition, expire, finish, release, unhandled};
pub use table::{Cause, Row, State, TABLE, diagram, is_allowed};
