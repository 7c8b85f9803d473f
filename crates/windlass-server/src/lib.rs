//! The HTTP face of windlass, on any store.
//!
//! - [`App`] is the API: give it a [`windlass_engine::Client`], and it answers requests, from a
//!   socket or by [`App::call`] without one.
//! - [`Listener`] is the socket: bound to loopback only until there are access tokens, with limits on
//!   connections, headers and slow clients.
//!
//! Inside: `routes/` has a file per group of routes, `wire/` the JSON forms in and out, `fields.rs`
//! the strict reading of objects and query strings, `problem.rs` every way a request can fail,
//! `guard.rs` what a browser must not do, `remote/` workers in any language. Live events, metrics, access control and the dashboard
//! come later. This crate talks to the engine and never names a store.

mod app;
mod body;
mod fields;
mod guard;
mod listen;
mod nearest;
mod patience;
mod problem;
mod query;
mod remote;
mod routes;
mod sweep;
mod wire;

pub use app::App;
pub use axum::http::Method;
pub use listen::{Bounds, Listener};
