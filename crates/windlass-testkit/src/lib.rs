//! The tests that every store must pass, and what they need.
