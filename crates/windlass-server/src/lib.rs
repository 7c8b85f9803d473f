//! The HTTP face of windlass, on any store.
//!
//! - [`App`] is the API: give it a [`windlass_engine::Client`], and it answers requests, from a
//!   socket or by [`App::call`] without one.
//! - [`Listener`] is the socket: elsewhere than on loopback only with access tokens, with limits on
//!   connections, headers and slow clients; [`Tls`] is the certificate that it may speak TLS with.
//!
//! Inside: `routes/` has a file per group of routes, each with its description, `wire/` the JSON forms in and
//! out, `form.rs` what may be sent, as data, `fields.rs` and `query.rs` the strict reading of it, `openapi/` the
//! document that is made of all these, `problem.rs` every way a request can fail,
//! `access/` who may do what, `audit.rs` who did what, `guard.rs` what a browser must not do, `remote/` workers
//! in any language, `live/` who listens to events. The dashboard comes later. This crate talks to the engine and never names a store.

mod access;
mod app;
mod audit;
mod body;
mod fields;
mod form;
mod guard;
mod listen;
mod live;
mod memory;
mod names;
mod nearest;
mod openapi;
mod patience;
mod pieces;
mod problem;
mod query;
mod remote;
mod routes;
mod share;
mod shared_read;
mod sweep;
mod tls;
mod trace_context;
mod wire;

pub use access::token::Scope;
pub use app::App;
pub use axum::http::Method;
pub use listen::{Bounds, Exposure, Listener};
pub use routes::Route;
pub use tls::Tls;
