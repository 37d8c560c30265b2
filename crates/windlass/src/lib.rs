//! Windlass: a durable runtime for AI agents.
//!
//! This crate is what a Rust user depends on: the engine that runs work over a database, and
//! workers in process. `Engine::start` on an opened [`database`] is all that is needed; no other
//! program has to run.
//!
//! With the feature `remote` (on by default) it also speaks to a server: the [`client`] of the HTTP
//! API, and [`remote`] workers.
//!
//! Absent: serving HTTP (that is the server's), SQL (the store's), rules (the domain's).

#[cfg(feature = "remote")]
pub mod client;
pub mod database;
pub mod engine;
#[cfg(feature = "remote")]
pub mod remote;
pub mod sdk;
pub mod worker;

pub use engine::{Engine, Options};
pub use windlass_domain as domain;
pub use windlass_store as store;
