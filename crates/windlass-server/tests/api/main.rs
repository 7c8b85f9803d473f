//! The API as its callers see it; one program, since each more would be linked anew.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod access;
mod contract;
mod crowd;
mod document;
mod events;
mod http2;
mod pull;
mod root;
mod routes;
mod shares;
mod slow;
mod sockets;
mod spare;
mod statistics;
mod submit;
mod support;
mod tls;
mod types;
mod unread;
