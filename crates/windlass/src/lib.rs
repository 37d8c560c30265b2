//! Windlass: a durable runtime for AI agents.
//!
//! This crate is what a Rust user depends on: the engine that runs work over a database, and
//! workers in process. `Engine::start` on an opened [`database`] is all that is needed; no other
//! program has to run.
//!
//! Absent: no HTTP (that is the server's), no SQL (that is the store's), no rules (the domain's).

pub mod database;
pub mod engine;
pub mod sdk;
pub mod worker;

pub use engine::{Engine, Options};
pub use windlass_domain as domain;
pub use windlass_store as store;
