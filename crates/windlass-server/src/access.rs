//! Access control: who may do what.
//!
//! [`token`] is what a token is, without I/O; [`keyring`] knows those of the store; [`gate`] stands before
//! every route; [`caller`] is who has passed it, and rides on the request; [`veil`] hides tokens where they do
//! not belong.

pub(crate) mod bucket;
pub(crate) mod caller;
pub(crate) mod gate;
pub(crate) mod keyring;
pub(crate) mod token;
pub(crate) mod veil;

pub(crate) use caller::{Arrival, Caller};
pub(crate) use gate::{Admission, Need};
pub(crate) use keyring::Keyring;
