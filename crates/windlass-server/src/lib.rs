//! The HTTP face of windlass, on any store.
//!
//! What will live here: `routes/`, live events (WebSocket, SSE), access control, problem+json
//! errors, metrics, and the dashboard. It talks to the engine and never names a store.
