//! Runs tasks against any [`windlass_core::Store`], and cannot name one.
//!
//! What will live here (the next step of the plan): the client with its batcher, handlers and their
//! registry, the worker, and its roles, one file each: processor, syncer, heartbeater, subscriber,
//! healthchecker, leader, and the leader's duties under `upkeep/` (forwarder, recoverer, janitor).
