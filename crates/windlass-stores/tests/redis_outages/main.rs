//! Outages done to a real Redis: everything resumes by itself; what was acknowledged and kept is not lost
//! and not completed twice, no attempt and no crash is counted; what was lost is told.

#![cfg(feature = "redis")]
#![expect(clippy::unwrap_used, reason = "a test says what it expected by panicking")]

mod ambiguous;
mod cut;
mod forgotten;
mod losses;
mod restarts;
